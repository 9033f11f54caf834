"""What a command prints: data on stdout, talk and one-line errors on stderr."""

import errno
import io
import json
import logging
import math
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

import click

from stepline.errors import SettingsError, SteplineError, error_line, missing_extra, printable

# at level DEBUG, as --debug sets it, every error comes with its trace
log = logging.getLogger("stepline.cli")
MEMORY_WORDS = ("OutOfMemory", "can't allocate memory", "failed to map segment")
FAULT_EXIT_CODE = 70  # exit code of a fault of Stepline itself. EX_SOFTWARE of sysexits.h
MAX_ERROR_CHARS = 400  # characters of a message that Stepline did not write
# of the system's errors, those no user can cure
OWN_FAULTS = frozenset({errno.EBADF, errno.EFAULT, errno.EINVAL})
MIN_STACK_BYTES = 2**18  # bytes; with 2**17 the libraries of networks crash
MIN_ADDRESS_BYTES = 3 * 2**29  # bytes of addresses. The main job ends well from 1.4 GB on
# of addresses, in addition to those that a command has from its start
MIN_FREE_ADDRESS_BYTES = 800 * 2**20
MIN_DATASET_ADDRESS_BYTES = 2560 * 2**20  # the same of `train`, `refine` and `sieve-swap`

# command of an earlier release, without `stepline` -> what to use instead. An entry stays for one release
REMOVED_COMMANDS = {
    "calibrate": "`stepline train calibrate` does it",
    "completion": "`_STEPLINE_COMPLETE=bash_source stepline` prints the script (also zsh, fish)",
    "excluded": "`stepline curate excluded` does it",
    "export-onnx": "a trained network runs by torch: pip install 'stepline[train]'",
    "train export-onnx": "a trained network runs by torch: pip install 'stepline[train]'",
    "train summarizer": "`stepline summarize` takes the seconds by their steps",
    "learn": "`stepline curate corrections` does it",
    "train writer": "`python -m lab.writer_training.train` in a checkout of the repository trains "
    "the narration tagger",
    "curate workflow": "`curate run`, `annotate vnd`, `train`, `evaluate` and `curate run` "
    "again do its work, as docs/evening.md shows",
    "shots": "PySceneDetect lists the shots of a video and cuts it there",
}


def refuse_removed(context: click.Context, name: str) -> None:
    """Raise SettingsError, which names the cure, if an earlier release had this command.

    Args:
        context: of the group whose command is called.
        name: of the command in the group.
    """
    names = [name]
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    command = " ".join(names)
    if command in REMOVED_COMMANDS:
        cure = REMOVED_COMMANDS[command]
        raise SettingsError(f"stepline {command}: no longer a command; {cure}")


def _system_limit(kind: str) -> float:
    """Return a limit of the system on this process in bytes, infinity without a limit. kind: as
    after RLIMIT_."""
    if sys.platform == "win32":
        return math.inf
    import resource

    soft, _ = resource.getrlimit(getattr(resource, f"RLIMIT_{kind}"))
    if soft == resource.RLIM_INFINITY:
        return math.inf
    return soft


def check_address_space(job: str = "the main job", min_bytes: int = MIN_FREE_ADDRESS_BYTES) -> None:
    """Raise SettingsError where a job would run out of addresses, which ends a process within C++,
    unheard, or looks like a damaged file."""
    import psutil

    # What is left for the job, beyond what the process has already.
    room = _system_limit("AS") - psutil.Process().memory_info().vms
    if room < min_bytes:
        needs = f"{job} takes {min_bytes / 2**20:.0f} or more"
        raise SettingsError(
            f"`ulimit -v` leaves {room / 2**20:.0f} MiB of addresses, {needs}; allow more"
        )


class Group(click.Group):
    """A group whose commands end with one line whatever goes wrong, and with the exit code of
    `print_error`."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command that the arguments name. Say what is wrong in one line."""
        # The names on the command line serve messages of errors that name no file.
        arguments = sys.argv[1:] if args is None else list(args)
        set_log_form("text")
        # A stream may hold fewer letters than a message. They are escaped, not an error.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=ESCAPES_HANDLER)
        try:
            if (stack := _system_limit("STACK")) < MIN_STACK_BYTES:
                size = f"a stack of {stack / 1024:.0f} KiB"
                raise SettingsError(f"{size} is too small for any network; `ulimit -s 8192`")
            return super().main(arguments, *rest, **extra)
        # the outermost handler: what comes here is printed, never lost
        except Exception as error:  # noqa: BLE001
            sys.exit(print_error(error, _named_files(arguments)))

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Read the arguments. What is said of wrong ones can be shown."""
        with _shown_usage():
            return super().make_context(*arguments, **extra)

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the arguments name. One that was removed says what to use."""
        refuse_removed(context, arguments[0])
        return super().resolve_command(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        """Run the command. A keyboard's interrupt ends it with a line and exit code 130."""
        try:
            with _shown_usage():
                return super().invoke(context)
        except KeyboardInterrupt:
            print_message("stepline: stopped; what was finished is kept", urgent=True)
            sys.exit(130)


QUIET_KEY = "stepline.quiet"  # in a context's notes
LogForm: TypeAlias = Literal["text", "json"]
_log_form: LogForm = "text"  # of this process's talk on stderr. `--log-format` sets it


def set_log_form(form: LogForm) -> None:
    """Make what goes to stderr lines of text, or of JSON for machines."""
    global _log_form
    _log_form = form


def is_json_log() -> bool:
    """Whether stderr has lines of JSON, among which no bar can be drawn."""
    return _log_form == "json"


def is_quiet() -> bool:
    """Whether --quiet is given."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET_KEY))


def time_stamp(seconds: float | None = None) -> str:
    """Return a time as ISO 8601 writes it, with the zone. seconds: since 1970. None: now."""
    moment = time.time() if seconds is None else seconds
    return datetime.fromtimestamp(moment).astimezone().isoformat(timespec="seconds")


def print_message(*lines: str, urgent: bool = False, level: str | None = None) -> None:
    """Print lines on stderr, where what is not data goes. After --quiet only urgent ones.

    level: in a log of JSON. None: "warning" of urgent ones, "info" of others.
    """
    if is_quiet() and not urgent:
        return
    usual_level = "warning" if urgent else "info"
    for line in lines:
        text = line
        if is_json_log():
            text = json_line(time_stamp(), level or usual_level, line)
        click.echo(printable(text), err=True)


def json_line(when: str, level: str, message: str, logger: str | None = None) -> str:
    """Return a line of a log of JSON."""
    row = {"time": when, "level": level, "message": message}
    if logger is not None:
        row["logger"] = logger
    return json.dumps(row, ensure_ascii=False)


def print_data(text: str, *, end: str = "\n") -> None:
    """Print data, a table or JSON, on stdout."""
    click.echo(printable(text + end), nl=False)


@contextmanager
def _shown_usage() -> Iterator[None]:
    """Make click's own messages of wrong usage, which quote the arguments, printable."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message()
        if printable(message) == message:
            raise
        raise click.UsageError(printable(message), error.ctx) from error


class LogLines(logging.Formatter):
    """Log records as lines that a terminal shows and does not obey, each with its time."""

    def __init__(self) -> None:
        super().__init__("%(levelname).1s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text, or as JSON where `--log-format` asks for it."""
        when = time_stamp(record.created)
        if not is_json_log():
            return printable(f"{when} {super().format(record)}")
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        return printable(json_line(when, record.levelname.lower(), message, record.name))


class LogHandler(logging.Handler):
    """Writes log records to what is stderr at the time, above a bar where one is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        try:
            click.echo(printable(self.format(record)), err=True)
        except Exception:  # noqa: BLE001   as in logging's own handlers: a log ends no work
            self.handleError(record)


def print_error(error: Exception, files: Sequence[Path | str] = ()) -> int:
    """Print an error as one line on stderr and return the exit code: 1 for what a user can cure, 70
    for the rest.

    files: what was worked on, for errors that do not name it.
    """
    # The trace comes first, so that the line is the last thing on the screen.
    if log.isEnabledFor(logging.DEBUG):
        print_message(
            "".join(traceback.format_exception(error)).rstrip(), urgent=True, level="error"
        )
    # Errors that say their own cure.
    if isinstance(error, SteplineError):
        print_message(f"stepline: {error}", urgent=True, level="error")
        return 1
    if (lacking := missing_extra(error)) is not None:
        print_message(f"stepline: {lacking}", urgent=True, level="error")
        return 1
    # Errors of the system, with the file if they name one.
    named = error_line(", ".join(map(str, files)))
    if isinstance(error, OSError) and error.errno and error.errno not in OWN_FAULTS:
        # Without a file's name it is a stream's, most likely.
        output = named if named and error.errno != errno.ENOSPC else "the output"
        place = error_line(error.filename) if isinstance(error.filename, str) else output
        cure = "free some space, correct the path or what it allows"
        print_message(f"stepline: {place}: {error.strerror}; {cure}", urgent=True, level="error")
        return 1
    # Memory, which libraries report in many ways.
    what = error_line(f"{type(error).__name__}: {error}")[:MAX_ERROR_CHARS]
    is_memory = isinstance(error, MemoryError) or any(words in what for words in MEMORY_WORDS)
    space = _system_limit("AS")
    # modules that then cannot be loaded raise almost anything
    if space < MIN_ADDRESS_BYTES or (is_memory and space < math.inf):
        cure = f"`ulimit -v` allows {space / 2**20:.0f} MiB, allow more"
        print_message(
            f"stepline: {named or 'no file'}: not enough memory ({what}); {cure}",
            urgent=True,
            level="error",
        )
        return 1
    if is_memory:
        cure = "give less at a time, or smaller sizes in the settings"
        print_message(
            f"stepline: {named or 'no file'}: not enough memory; {cure}", urgent=True, level="error"
        )
        return 1
    # What is left is a fault of Stepline.
    report = (
        "run it again as `stepline --debug COMMAND ...` and report what it shows, "
        "with the file if you may"
    )
    print_message(
        f"stepline: {named or 'no file'}: a fault of Stepline itself ({what}); {report}",
        urgent=True,
        level="error",
    )
    return FAULT_EXIT_CODE


def _named_files(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that name something on the disk."""
    names = []
    for argument in arguments:
        # a name that no file can have does not name one
        with suppress(OSError, ValueError):
            if not argument.startswith("-") and Path(argument).exists():
                names.append(argument)
    return names


def replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Replace what a stream cannot hold (a latin-1 terminal, half a surrogate pair) by JSON's
    escapes, in text too."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # Two bytes are one unit of UTF-16, as JSON's escapes count.
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)), error.end


ESCAPES_HANDLER = "stepline.escapes"  # how the standard streams treat what they cannot hold
