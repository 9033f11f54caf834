"""What the commands share: options and the settings they make, one-line errors, and what shows
while work goes on."""

import codecs
import errno
import functools
import io
import json
import logging
import math
import os
import re
import sys
import time
import traceback
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from stepline.errors import SettingsError, SteplineError, error_line, missing_extra, printable

if TYPE_CHECKING:
    from stepline.annotate.local_server import LocalServer
    from stepline.curate.driver import PhaseProgress
    from stepline.pipeline.request import StepsSettings
    from stepline.plugins import Kind
    from stepline.progress import Progress
    from stepline.records import Span
    from stepline.training.loop import Progress as Training

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


class VideoPath(click.Path):
    """A path, or an address of http(s), which stays text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a Path, or the address."""
        from stepline.pipeline.sources import is_link

        return value if is_link(str(value)) else super().convert(value, param, ctx)


class StorePath(click.Path):
    """A path, or an address of any kind, which stays text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a Path, or the address."""
        return value if "://" in str(value) else super().convert(value, param, ctx)


VIDEO = VideoPath(path_type=Path)
STORE = StorePath(path_type=Path)
BACKBONES = ("conse", "clip", "s3d", "s3d-mixed5c", "precomputed", "none")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
store_option = click.option(
    "--features",
    type=STORE,
    required=True,
    help="Store of the videos' features: a folder, or a URL.",
)

exclude_option = click.option(
    "--exclude", multiple=True, type=PATH, help="A list of evaluation videos."
)


class PluginChoice(click.Choice[str]):
    """A choice among Stepline's own and, beside them, the plugins of a kind, which are looked for
    when one is named."""

    def __init__(self, own: Sequence[str], kind: "Kind") -> None:
        super().__init__(own)
        self._kind = kind

    def convert(
        self, value: Any, option: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the name."""
        from stepline.plugins import plugin_names

        if value not in self.choices and value in plugin_names(self._kind):
            return value
        return super().convert(value, option, context)


def out_option(meaning: str, default: str | None = None) -> Callable[[F], F]:
    """Return the option that says where to write; without a default it must be given."""
    given: dict[str, Any] = (
        {"default": Path(default), "show_default": True} if default else {"required": True}
    )
    return click.option("-o", "--out", type=PATH, help=meaning, **given)


def one_writer(command: F) -> F:
    """Have a command hold its folder --out from begin to end; a second run there is told whose it
    is.

    Of the processes that torchrun starts, the first holds it for all.
    """

    @functools.wraps(command)
    def alone(out: Path, **options: Any) -> Any:
        from stepline.storage import LOCK, check_writable, lock_output

        if os.environ.get("RANK", "0") != "0":
            return command(out=out, **options)
        check_writable(out)
        with lock_output(out / LOCK, out):
            return command(out=out, **options)

    return cast(F, alone)


def set_option(meaning: str) -> Callable[[F], F]:
    """Return the option --set. meaning: its help, with an example that suits the command."""
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=meaning)


def settings_options(meaning: str, file: str = "A TOML file of settings.") -> Callable[[F], F]:
    """Return the options --settings and --set. meaning: the help of --set."""
    return together(
        click.option("--settings", "settings_file", type=PATH, help=file), set_option(meaning)
    )


PRESETS = Path(__file__).parents[1] / "presets"  # a folder a command


def preset_files(command: str) -> dict[str, Path]:
    """Return the presets of a command by name: settings files that hold a paper's values, each with
    its source."""
    return {
        path.stem: path for path in sorted((PRESETS / command.replace(" ", "-")).glob("*.toml"))
    }


def preset_option(command: str) -> Callable[[F], F]:
    """Return the option --preset of a command, whose value is the preset's file."""
    files = preset_files(command)
    return click.option(
        "--preset",
        type=click.Choice(list(files)),
        callback=lambda context, option, name: files.get(name),  # noqa: ARG005
        help="Values of the paper (docs/reproduce.md); --settings and --set change them.",
    )


def together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds the options in the order given."""

    def add(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return add


COMPUTE = "stepline.compute"  # in a context's notes


def _note_compute(context: click.Context, _: click.Parameter, value: str) -> None:
    context.meta[COMPUTE] = value


def _set_device(context: click.Context, _: click.Parameter, value: str) -> None:
    from stepline.device import set_device

    set_device(value, context.meta.get(COMPUTE, "auto"))


# Of every command that trains a network, or runs one; it decides for the whole process, no command
# passes it on.
device_option = click.option(
    "--device",
    default="auto",
    show_default=True,
    expose_value=False,
    callback=_set_device,
    help="Where networks run: auto (a GPU where there is one), cpu, cuda, cuda:N or mps.",
)
device_options: Callable[[F], F] = together(
    device_option,
    click.option(
        "--compute-type",
        type=click.Choice(["auto", "float32", "bf16", "float16"]),
        default="auto",
        show_default=True,
        expose_value=False,
        is_eager=True,
        callback=_note_compute,
        help="Their numbers; auto: float32, but recognition on a GPU in float16.",
    ),
)


def read_seconds(text: str) -> float | None:
    """Return the seconds of "80", "1:20" or "0:01:20.5"; None for anything else."""
    if re.fullmatch(r"(\d+:){0,2}\d+(\.\d+)?", text) is None:
        return None
    return float(
        sum(float(part) * 60**place for place, part in enumerate(reversed(text.split(":"))))
    )


part_options: Callable[[F], F] = together(
    click.option(
        "--from",
        "begin",
        metavar="TIME",
        help="Hear and look at the video from there on: 80 or 1:20.",
    ),
    click.option(
        "--to",
        "end",
        metavar="TIME",
        help="... and up to there; times are of the whole video all the same.",
    ),
)


def chosen_part(options: dict[str, Any]) -> "Span | None":
    """Return the part of the video that --from and --to name; None where neither is given."""
    from stepline.errors import SettingsError
    from stepline.limits import LATEST
    from stepline.records import Span

    given = {"--from": options["begin"], "--to": options["end"]}
    if not any(given.values()):
        return None
    limits = [0.0, LATEST]
    for place, (option, text) in enumerate(given.items()):
        if text is not None:
            seconds = read_seconds(text)
            if seconds is None or seconds > LATEST:
                raise SettingsError(
                    f"{option} {text!r}: give seconds (80), minutes (1:20) or hours (1:01:20)"
                )
            limits[place] = seconds
    if limits[0] >= limits[1]:
        raise SettingsError(
            f"--from {options['begin'] or 0} --to {options['end']}: nothing lies between; swap them"
        )
    return Span(*limits)


# What every command takes that recognises speech.
speech_options: Callable[[F], F] = together(
    settings_options(
        "One setting, e.g. asr.beam=5.", "A TOML file of settings (docs/settings.md)."
    ),
    click.option(
        "--model",
        help="Recogniser: whisper-tiny.en, whisper-base, a CTranslate2 folder, or any name of "
        "faster-whisper (small, large-v3, ...), which is fetched from the model hub.",
    ),
    click.option("--language", help="What is spoken, as a code of ISO 639-1: es, de, ..."),
    click.option("--captions", type=PATH, help="Captions to use instead of recognition."),
    click.option(
        "--translate",
        is_flag=True,
        help="Write speech of other languages in English (Whisper base).",
    ),
    part_options,
    device_options,
)


def chosen_settings(options: dict[str, Any]) -> "StepsSettings":
    """Return the settings from file, --set and the shorthand options, which win."""
    from stepline.pipeline.request import StepsSettings
    from stepline.settings import load_settings

    shorthand = {
        "asr.model": options.get("model"),
        "asr.language": options.get("language"),
        "writing.writer": options.get("writer"),
        "vision.backbone": options.get("backbone"),
        "vision.path": options.get("weights"),
        "nasva.aligner.path": options.get("aligner"),
        "nasva.aligner.mode": options.get("mode"),
        "nasva.aligner.order": options.get("order"),
        "procx.path": options.get("describer"),
    }
    given = [
        f"{key}={json.dumps(str(value))}" for key, value in shorthand.items() if value is not None
    ]
    if options.get("translate"):
        if options.get("captions") is not None:
            raise SettingsError(
                "--translate is for speech, and --captions stands for it; leave one of them out"
            )
        given.append("asr.translate=true")
    if options.get("dry_run"):
        given += ["vision.witness.dry_run=true", "writing.llm.dry_run=true"]
    overrides = [*options["overrides"], *given]
    settings = load_settings(
        StepsSettings, options["settings_file"], overrides, preset=options.get("preset")
    )
    if settings.vision.witness.machine is None and settings.vision.witness.corrected is None:
        return settings
    from stepline.vision_language.corrections import with_counted_answers

    vision = settings.vision.model_copy(
        update={"witness": with_counted_answers(settings.vision.witness)}
    )
    return settings.model_copy(update={"vision": vision})


# at level DEBUG, as --debug sets it, every error comes with its trace
log = logging.getLogger("stepline.cli")

FAULT = 70  # exit code of a fault of Stepline itself; EX_SOFTWARE of sysexits.h
LONGEST_ERROR = 400  # characters of a message that Stepline did not write
# of the system's errors, those no user can cure
OWN_FAULTS = frozenset({errno.EBADF, errno.EFAULT, errno.EINVAL})


LEAST_STACK = 2**18  # bytes; with 2**17 the libraries of networks crash
LEAST_SPACE = 3 * 2**29  # bytes of addresses; the main job ends well from 1.4 GB on

LEAST_ROOM = 800 * 2**20  # bytes of addresses beside those that a command has from its start


def _system_limit(kind: str) -> float:
    """Return a limit of the system on this process in bytes, infinity where there is none. kind: as
    after RLIMIT_."""
    if sys.platform == "win32":
        return math.inf
    import resource

    soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{kind}"))
    return math.inf if soft == resource.RLIM_INFINITY else soft


def check_address_space() -> None:
    """Raise SettingsError where the main job would run out of addresses, which ends a process
    within C++, unheard."""
    import psutil

    room = _system_limit("AS") - psutil.Process().memory_info().vms
    if room < LEAST_ROOM:
        needs = f"the main job takes {LEAST_ROOM / 2**20:.0f} or more"
        raise SettingsError(
            f"`ulimit -v` leaves {room / 2**20:.0f} MiB of addresses, {needs}; allow more"
        )


class Group(click.Group):
    """A group whose commands end with one line whatever goes wrong, and with the exit code of
    `complain`."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command that the arguments name; say what is wrong in one line."""
        arguments = sys.argv[1:] if args is None else list(args)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=ESCAPES)
        try:
            if (stack := _system_limit("STACK")) < LEAST_STACK:
                raise SettingsError(
                    f"a stack of {stack / 1024:.0f} KiB is too small for any network; `ulimit -s 8192`"
                )
            return super().main(arguments, *rest, **extra)
        except Exception as error:  # noqa: BLE001   the outermost handler: what comes here is told, never lost
            sys.exit(complain(error, _named_files(arguments)))

    def make_context(self, *given: Any, **extra: Any) -> click.Context:
        """Read the arguments; what is said of wrong ones can be shown."""
        with _shown_usage():
            return super().make_context(*given, **extra)

    def invoke(self, context: click.Context) -> Any:
        """Run the command; a keyboard's interrupt ends it with a line and exit code 130."""
        try:
            with _shown_usage():
                return super().invoke(context)
        except KeyboardInterrupt:
            say("stepline: stopped; what was finished is kept", urgent=True)
            sys.exit(130)


def say(*lines: str, urgent: bool = False) -> None:
    """Print lines on stderr, where what is no data goes; after --quiet only urgent ones."""
    context = click.get_current_context(silent=True)
    if urgent or context is None or not context.meta.get(QUIET):
        for line in lines:
            click.echo(printable(line), err=True)


QUIET = "stepline.quiet"  # in a context's notes


def verbosity_options(hidden: bool = False) -> Callable[[F], F]:
    """Return the options --verbose and --quiet; hidden: where the help of the command above has
    them."""

    def choose(context: click.Context, option: click.Parameter, value: bool) -> None:
        if value and option.name == "quiet":
            context.meta[QUIET] = True
        elif value:
            logging.getLogger().setLevel(logging.INFO)
            logging.getLogger("faster_whisper").setLevel(logging.NOTSET)

    own: dict[str, Any] = {
        "is_flag": True,
        "expose_value": False,
        "callback": choose,
        "hidden": hidden,
    }
    verbose = click.option(
        "-v", "--verbose", help="Say what each stage does; also after the command.", **own
    )
    quiet = click.option(
        "-q", "--quiet", help="Say only what is wrong; also after the command.", **own
    )
    return together(verbose, quiet)


def offer_verbosity(command: click.Command) -> None:
    """Have a command, and all below it, take --verbose and --quiet too."""
    if isinstance(command, click.Group):
        for below in command.commands.values():
            offer_verbosity(below)
    else:
        verbosity_options(hidden=True)(command)


def print_data(text: str, *, end: str = "\n") -> None:
    """Print data, a table or JSON, on stdout."""
    click.echo(printable(text + end), nl=False)


@contextmanager
def _shown_usage() -> Iterator[None]:
    """Make click's own messages of wrong usage, which quote the arguments, printable."""
    try:
        yield
    except click.UsageError as error:
        said = error.format_message()
        if printable(said) == said:
            raise
        raise click.UsageError(printable(said), error.ctx) from error


class LogLines(logging.Formatter):
    """Log records as lines that a terminal shows and does not obey."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record's text."""
        return printable(super().format(record))


def complain(error: Exception, files: Sequence[Path | str] = ()) -> int:
    """Print an error as one line on stderr and return the exit code: 1 for what a user can cure, 70
    for the rest.

    files: what was worked on, for errors that do not name it.
    """
    if log.isEnabledFor(logging.DEBUG):
        say("".join(traceback.format_exception(error)).rstrip(), urgent=True)
    if isinstance(error, SteplineError):
        say(f"stepline: {error}", urgent=True)
        return 1
    if (lacking := missing_extra(error)) is not None:
        say(f"stepline: {lacking}", urgent=True)
        return 1
    named = error_line(", ".join(map(str, files)))
    if isinstance(error, OSError) and error.errno and error.errno not in OWN_FAULTS:
        # Without a file's name it is a stream's, most likely.
        output = named if named and error.errno != errno.ENOSPC else "the output"
        place = error_line(error.filename) if isinstance(error.filename, str) else output
        say(
            f"stepline: {place}: {error.strerror}; free some space, correct the path or what it allows",
            urgent=True,
        )
        return 1
    what = error_line(f"{type(error).__name__}: {error}")[:LONGEST_ERROR]
    # modules that then cannot be loaded raise almost anything
    if (space := _system_limit("AS")) < LEAST_SPACE:
        cure = f"`ulimit -v` allows {space / 2**20:.0f} MiB, allow more"
        say(f"stepline: {named or 'no file'}: not enough memory ({what}); {cure}", urgent=True)
        return 1
    if isinstance(error, MemoryError) or "OutOfMemory" in what or "can't allocate memory" in what:
        say(
            f"stepline: {named or 'no file'}: not enough memory; give less at once, or smaller sizes in the settings",
            urgent=True,
        )
        return 1
    report = "run it again as `stepline --debug COMMAND ...` and report what it shows, with the file if you may"
    say(
        f"stepline: {named or 'no file'}: a fault of Stepline itself ({what}); {report}",
        urgent=True,
    )
    return FAULT


def _named_files(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that name something on the disk."""
    found = []
    for argument in arguments:
        try:
            found += [argument] if not argument.startswith("-") and Path(argument).exists() else []
        except (OSError, ValueError):  # a name that no file can have is none
            continue
    return found


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """Replace what a stream cannot hold (a latin-1 terminal, half a surrogate pair) by JSON's
    escapes, in text too."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)), error.end


ESCAPES = "stepline.escapes"  # how the standard streams treat what they cannot hold
codecs.register_error(ESCAPES, _escaped)


OFTEN = 30.0  # seconds between the lines that stand for a bar where stderr is no terminal


@contextmanager
def progress_bars() -> Iterator["Progress"]:
    """Yield a callback that draws a bar a stage on a terminal, else prints a line now and then,
    both on stderr."""
    if not sys.stderr.isatty():
        yield _stage_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    shown = TextColumn("{task.completed:.0f} s")
    columns = (TextColumn("{task.description:>10}"), BarColumn(), shown, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, second: float, duration: float) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=duration or None)
            bars.update(tasks[stage], completed=second)

        yield report


def _stage_lines() -> "Progress":
    last = time.monotonic()

    def report(stage: str, second: float, duration: float) -> None:
        nonlocal last
        if time.monotonic() >= last + OFTEN:
            last = time.monotonic()
            say(
                f"{stage}: {second:.0f} of {duration:.0f} s"
                if duration
                else f"{stage}: {second:.0f} s"
            )

    return report


@contextmanager
def training_bar() -> Iterator[Callable[["Training"], None]]:
    """Yield what shows each step of a training: a bar on a terminal, else a line now and then, both
    on stderr."""
    if not sys.stderr.isatty():
        yield _training_lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    shown = TextColumn(
        "loss {task.fields[loss]:.3f}  {task.fields[score]}  {task.fields[memory]:.2f} GiB"
    )
    columns = (MofNCompleteColumn(), BarColumn(), shown, TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("", total=None, loss=float("nan"), score="", memory=0.0)

        def report(progress: "Training") -> None:
            from stepline.training.distributed import peak_memory

            score = {} if progress.score is None else {"score": f"held out {progress.score:.3f}"}
            known = {"loss": progress.loss, "memory": peak_memory() / 2**30} | score
            bars.update(bar, total=progress.steps, completed=progress.step, **known)

        yield report


def _training_lines() -> Callable[["Training"], None]:
    last = -OFTEN

    def report(progress: "Training") -> None:
        nonlocal last
        from stepline.training.distributed import peak_memory

        if (
            progress.score is None
            and progress.step < progress.steps
            and progress.seconds < last + OFTEN
        ):
            return
        last = progress.seconds
        left = progress.seconds / max(progress.taken, 1) * (progress.steps - progress.step)
        score = "" if progress.score is None else f", held out {progress.score:.3f}"
        numbers = f"loss {progress.loss:.3f}{score}, {left:.0f} s left, at most {peak_memory() / 2**30:.2f} GiB"
        say(f"step {progress.step} of {progress.steps}: {numbers}")

    return report


@contextmanager
def curation_bar() -> Iterator[Callable[["PhaseProgress"], None]]:
    """Yield what shows a run over many videos: a bar on a terminal, else a line now and then, both
    on stderr."""
    if not sys.stderr.isatty():
        yield _curation_lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task("videos", total=None, state="")

        def report(progress: "PhaseProgress") -> None:
            bars.update(
                bar, total=progress.total, completed=progress.done, state=_curation_state(progress)
            )

        yield report


def _curation_lines() -> Callable[["PhaseProgress"], None]:
    last = 0.0

    def report(progress: "PhaseProgress") -> None:
        nonlocal last
        if progress.done < progress.total and progress.seconds < last + OFTEN:
            return
        last = progress.seconds
        say(f"{progress.done} of {progress.total} videos: {_curation_state(progress)}")

    return report


def _curation_state(progress: "PhaseProgress") -> str:
    """Return rate, time left and failures in words."""
    rate = (
        f"{progress.rate:,.0f} an hour"
        if progress.rate
        else f"{progress.earlier} of an earlier run"
    )
    left = f", {progress.left / 60:.0f} min left" if progress.left else ""
    lost = f", {progress.kinds['left out']} left out" if progress.kinds["left out"] else ""
    failed = f", {progress.failed} failed" if progress.failed else ""
    return f"{rate}{left}{lost}{failed}"


def serve_until_stopped(
    start: "Callable[[], LocalServer]",
    port: int,
    *,
    notice: str,
    goodbye: str,
    browse: bool = False,
) -> None:
    """Serve a page on this machine until Ctrl-C. notice: said at the beginning, with {address};
    goodbye: at the end."""
    try:
        server = start()
    except OSError as error:
        raise SettingsError(
            f"--port {port}: {error.strerror or error}; give another, or 0"
        ) from error
    line = notice.format(address=server.address)
    try:
        say(line)
        if browse:
            webbrowser.open(line.split()[0])
        server.run()
    except KeyboardInterrupt:
        say(goodbye)
