"""The options that several commands share, and the settings that they make."""

import codecs
import functools
import json
import logging
import os
import re
import webbrowser
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from stepline.cli.errors import ESCAPES_HANDLER, QUIET_KEY, escape_unencodable, print_message
from stepline.errors import SettingsError
from stepline.files.atomic_files import check_writable
from stepline.plugins import BUILT_IN_NAMES, Kind, plugin_names, refuse_removed_output

if TYPE_CHECKING:
    from stepline.pages.web.local_server import LocalServer
    from stepline.pipeline.request import StepsSettings
    from stepline.records import Span
    from stepline.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S", bound="Settings")

MAX_PORT = 65535
PATH_TYPE = click.Path(path_type=Path)
path_option = functools.partial(click.option, type=PATH_TYPE)  # an option that takes a path


class AddressPath(click.Path):
    """A path, or an address (scheme://...), which stays a str."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a Path, or the address as it is: a Path would join its two slashes."""
        return value if "://" in str(value) else super().convert(value, param, ctx)


ADDRESS_TYPE = AddressPath(path_type=Path)

# The option of a page that is served on this machine.
port_option = functools.partial(click.option, "--port", type=click.IntRange(0, MAX_PORT), default=0)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
store_option = click.option(
    "--features",
    type=ADDRESS_TYPE,
    required=True,
    help="Store of the videos' features: a folder, or a URL.",
)

exclude_option = path_option(
    "--exclude", "excluded", multiple=True, help="A list of evaluation videos."
)


class PluginChoice(click.Choice[str]):
    """A choice among the built-in names of a kind, and the installed plugins of that kind.

    Args:
        kind: such as "outputs" or "backbones".
        without: built-in names that a command does not take.

    Plugins are searched only when a name is not built in, since that takes time.
    """

    def __init__(self, kind: Kind, without: Collection[str] = ()) -> None:
        # Plugins are not looked for until a name is not Stepline's own.
        super().__init__([name for name in BUILT_IN_NAMES[kind] if name not in without])
        self._kind = kind

    def convert(
        self, value: Any, option: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the name, if it is known."""
        if self._kind == "outputs":
            refuse_removed_output(value)
        if value not in self.choices and value in plugin_names(self._kind):
            return value
        return super().convert(value, option, context)


def out_option(meaning: str, default: str | None = None) -> Callable[[F], F]:
    """Return the decorator that adds the option --out.

    Args:
        meaning: help text of the option.
        default: the default folder. None: the option is required.
    """
    option = functools.partial(path_option, "-o", "--out", help=meaning)
    return option(required=True) if default is None else option(default=default, show_default=True)


def lock_out_folder(command: F) -> F:
    """Make a command lock its folder --out while it runs.

    A second run on the folder gets an error that names the owner. Of the processes that torchrun
    starts, the first one locks it for all.
    """

    @functools.wraps(command)
    def alone(out: Path, **options: Any) -> Any:
        from stepline.files.locks import LOCK_NAME, lock_output

        # The first process holds the folder for all of them.
        if os.environ.get("RANK", "0") != "0":
            return command(out=out, **options)
        check_writable(out)
        with lock_output(out / LOCK_NAME, out):
            return command(out=out, **options)

    return cast(F, alone)


def set_option(meaning: str) -> Callable[[F], F]:
    """Return the decorator that adds the option --set.

    meaning: help text of the option, with an example that suits the command.
    """
    return click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help=meaning)


def settings_options(meaning: str) -> Callable[[F], F]:
    """Return the decorator that adds the options --settings and --set.

    meaning: help text of --set.
    """
    return combine_options(
        path_option(
            "--settings", "settings_file", help="A TOML file of settings (docs/settings.md)."
        ),
        set_option(meaning),
    )


PRESETS_FOLDER = Path(__file__).parent / "presets"  # a folder per command


def preset_files(command: str) -> dict[str, Path]:
    """Return the presets of a command: name -> TOML file of settings.

    They hold the values of a paper, or the best that were measured, each with its source.
    """
    return {
        path.stem: path
        for path in sorted((PRESETS_FOLDER / command.replace(" ", "-")).glob("*.toml"))
    }


def preset_option(command: str) -> Callable[[F], F]:
    """Return the option --preset of a command. Its value is the preset's file."""
    files = preset_files(command)
    origin = "the paper, or the best that was measured" if "best" in files else "the paper"
    return click.option(
        "--preset",
        type=click.Choice(list(files)),
        callback=lambda context, option, name: files.get(name),  # noqa: ARG005
        help=f"Values of {origin} (docs/reproduce.md). --settings and --set change them.",
    )


def combine_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Return a decorator that adds the options in the order given."""

    def add(command: F) -> F:
        # click shows options in the reverse of the order in which decorators run.
        for option in reversed(options):
            command = option(command)
        return command

    return add


COMPUTE_TYPE_KEY = "stepline.compute"  # in a context's notes


def _remember_compute_type(context: click.Context, _: click.Parameter, value: str) -> None:
    context.meta[COMPUTE_TYPE_KEY] = value


def _set_device(context: click.Context, _: click.Parameter, value: str) -> None:
    from stepline.networks.device import set_device

    set_device(value, context.meta.get(COMPUTE_TYPE_KEY, "auto"))


# Of every command that trains a network, or runs one. It decides for the whole process, no command
# passes it on.
device_option = click.option(
    "--device",
    default="auto",
    expose_value=False,
    callback=_set_device,
    help="Where networks run: auto (a GPU where there is one), cpu, cuda, cuda:N or mps.",
)
device_options: Callable[[F], F] = combine_options(
    device_option,
    click.option(
        "--compute-type",
        type=click.Choice(["auto", "float32", "bf16", "float16"]),
        default="auto",
        expose_value=False,
        is_eager=True,
        callback=_remember_compute_type,
        help="Numeric precision. auto: float32, or float16 for recognition on a GPU.",
    ),
)


def parse_time(text: str) -> float | None:
    """Return the seconds of "80", "1:20" or "0:01:20.5". None for any other text."""
    if re.fullmatch(r"(\d+:){0,2}\d+(\.\d+)?", text) is None:
        return None
    return float(
        sum(float(part) * 60**place for place, part in enumerate(reversed(text.split(":"))))
    )


def part_from_options(options: dict[str, Any]) -> "Span | None":
    """Return the part of the video that --from and --to name, in seconds. None: the whole video.

    options: option name -> value, of the command.
    """
    from stepline.limits import MAX_SECOND
    from stepline.records import Span

    # Where only one is given, the other is the beginning or the end.
    seconds = []
    for option, name, default in (("--from", "begin", 0.0), ("--to", "end", MAX_SECOND)):
        text = options[name]
        second = default if text is None else parse_time(text)
        if second is None or second > MAX_SECOND:
            raise SettingsError(
                f"{option} {text!r}: give seconds (80), minutes (1:20) or hours (1:01:20)"
            )
        seconds.append(second)
    start, end = seconds
    if (start, end) == (0.0, MAX_SECOND):
        return None
    if start >= end:
        raise SettingsError(
            f"--from {options['begin'] or 0} --to {options['end']}: nothing is between; swap them"
        )
    return Span(start, end)


# What every command takes that recognises speech.
speech_options: Callable[[F], F] = combine_options(
    settings_options("One setting, e.g. asr.beam=5."),
    click.option(
        "--model",
        help="Recogniser: whisper-tiny.en, whisper-base, a CTranslate2 folder, or any name of "
        "faster-whisper (small, large-v3, ...), which is fetched from the model hub.",
    ),
    click.option(
        "--language", help="Language of the speech, a code of ISO 639-1 such as es or de."
    ),
    click.option(
        "--audio-track",
        type=click.IntRange(min=1),
        metavar="N",
        help="Sound track to use, from 1 on. Default: the one with speech.",
    ),
    path_option("--captions", help="Captions to use instead of recognition."),
    click.option(
        "--encoding", help="Encoding of captions that are not UTF-8, such as cp1251 or gb18030."
    ),
    click.option(
        "--translate",
        is_flag=True,
        help="Write speech of other languages in English (Whisper base).",
    ),
    click.option("--from", "begin", metavar="TIME", help="Start here (80 or 1:20)."),
    click.option(
        "--to",
        "end",
        metavar="TIME",
        help="Stop here. Times still count from the start of the video.",
    ),
    device_options,
)


def select_options(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return name -> value of the named options of a command."""
    return {name: options[name] for name in names}


def load_from_options(kind: type[S], options: dict[str, Any], overrides: Sequence[str] = ()) -> S:
    """Return the settings from --preset, --settings and --set.

    Args:
        kind: the class of the settings.
        options: option name -> value, of the command.
        overrides: KEY=VALUE texts from other options, which replace all other values.
    """
    from stepline.settings import load_settings

    values = [*options["overrides"], *overrides]
    return load_settings(kind, options["settings_file"], values, preset=options.get("preset"))


def settings_from_options(options: dict[str, Any]) -> "StepsSettings":
    """Return the settings for finding steps, from --settings, --set and the shorthand options.

    Shorthand options replace the other values.

    options: option name -> value, of the command.
    """
    from stepline.pipeline.request import StepsSettings

    # options that are settings by another name
    shorthand = {
        "asr.model": options.get("model"),
        "asr.language": options.get("language"),
        "asr.encoding": options.get("encoding"),
        "writing.writer": options.get("writer"),
        "writing.step_scorer": options.get("step_scorer"),
        "vision.backbone": options.get("backbone"),
        "vision.path": options.get("weights"),
        "nasva.aligner.path": options.get("aligner"),
        "nasva.aligner.mode": options.get("mode"),
        "nasva.aligner.order": options.get("order"),
        "procx.path": options.get("describer"),
        "judge.detector": options.get("detector"),
        "media.audio_track": options.get("audio_track"),
    }
    values = []
    for key, value in shorthand.items():
        if value is not None:
            values.append(f"{key}={json.dumps(value, default=str)}")

    # options that are more than one value
    if options.get("translate"):
        if options.get("captions") is not None:
            raise SettingsError(
                "--translate is for speech, and --captions replaces it; leave one of them out"
            )
        values.append("asr.translate=true")
    if options.get("dry_run"):
        values += ["vision.vlm.dry_run=true", "writing.llm.dry_run=true"]
    return load_from_options(StepsSettings, options, values)


def verbosity_options(hidden: bool = False) -> Callable[[F], F]:
    """Return the options --verbose and --quiet.

    Args:
        hidden: whether the help omits them, because the help of the parent command shows them.
    """

    # The option may come before the command or after it, so it has no value of its own.
    def choose(context: click.Context, option: click.Parameter, value: bool) -> None:
        if value and option.name == "quiet":
            context.meta[QUIET_KEY] = True
        elif value:
            logging.getLogger().setLevel(logging.INFO)
            logging.getLogger("faster_whisper").setLevel(logging.NOTSET)

    flag = functools.partial(
        click.option, is_flag=True, expose_value=False, callback=choose, hidden=hidden
    )
    return combine_options(
        flag("-v", "--verbose", help="Log each stage (also accepted after the command)."),
        flag("-q", "--quiet", help="Print only what is wrong (also accepted after the command)."),
    )


def add_verbosity_options(command: click.Command) -> None:
    """Add --verbose and --quiet to a command and to all its subcommands."""
    if isinstance(command, click.Group):
        # A group passes options on, and each command takes them.
        for below in command.commands.values():
            add_verbosity_options(below)
    else:
        verbosity_options(hidden=True)(command)


codecs.register_error(ESCAPES_HANDLER, escape_unencodable)


def serve_until_stopped(
    make_server: "Callable[[], LocalServer]",
    port: int,
    *,
    notice: str,
    goodbye: str,
    browse: bool = False,
) -> None:
    """Serve a page on this machine until Ctrl-C.

    Args:
        make_server: makes the server, which takes the port.
        port: as the user gave it, for the error when it is taken.
        notice: printed at the start. {address} stands for the address.
        goodbye: printed at the end.
        browse: whether the address is opened in a browser.
    """
    try:
        # A port that is taken is reported by its option.
        try:
            server = make_server()
        except OSError as error:
            raise SettingsError(
                f"--port {port}: {error.strerror or error}; give another, or 0"
            ) from error
        line = notice.format(address=server.address)
        print_message(line)
        if browse:
            webbrowser.open(line.split()[0])
        server.run()
    except KeyboardInterrupt:
        print_message(goodbye)
