"""What a command prints: data on stdout, messages, progress and one-line errors on stderr."""

import errno
import io
import logging
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from stepline.errors import (
    SettingsError,
    SteplineError,
    elide_middle,
    escape_control_characters,
    explain_missing_extra,
    format_error_line,
)

# at level DEBUG, as --debug sets it, every error comes with its trace
log = logging.getLogger("stepline.cli")
MEMORY_WORDS = ("OutOfMemory", "can't allocate memory", "failed to map segment")
FAULT_EXIT_CODE = 70  # exit code of a fault of Stepline itself. EX_SOFTWARE of sysexits.h
MAX_ERROR_CHARS = 400  # characters of a message that Stepline did not write
# of the system's errors, those no user can cure
INTERNAL_ERRNOS = frozenset({errno.EBADF, errno.EFAULT, errno.EINVAL})

# command of an earlier release, without `stepline` -> what to use instead. An entry stays for one release
REMOVED_COMMANDS = {
    "calibrate": "`stepline train calibrate` does it",
    "completion": "`_STEPLINE_COMPLETE=bash_source stepline` prints the script (also zsh, fish)",
    "describe": "`stepline steps VIDEO --describe RUN` does it (`--set procx.when=alone` ignores speech)",
    "excluded": "`stepline curate excluded` does it",
    "export-onnx": "a trained network runs by torch: pip install -c constraints.txt 'stepline[train]'",
    "train export-onnx": "a trained network runs by torch: pip install -c constraints.txt 'stepline[train]'",
    "train summarizer": "`stepline summarize` takes the seconds by their steps",
    "learn": "`stepline curate corrections` does it",
    "train writer": "`python -m lab.writer_training.train` in a checkout of the repository trains "
    "the narration tagger",
    "curate workflow": "`curate run`, `annotate vnd`, `train`, `evaluate` and `curate run` "
    "again do its work, as docs/evening.md shows",
    "text-base index": "every search is exact now; leave it out",
    "shots": "PySceneDetect lists the shots of a video and cuts it there",
}


def reject_removed_command(context: click.Context, name: str) -> None:
    """Raise SettingsError with the replacement, if an earlier release had this command.

    Args:
        context: click context of the group in which the command is looked up.
        name: name of the command in the group.
    """
    path = f"{context.command_path} {name}"
    command = path.removeprefix(f"{context.find_root().command_path} ")
    cure = REMOVED_COMMANDS.get(command)
    if cure is not None:
        raise SettingsError(f"stepline {command}: no longer a command; {cure}")


class Group(click.Group):
    """A group of commands.

    Every error ends its command with one line and the exit code of `print_error`.
    """

    def main(self, args: Sequence[str] | None = None, *rest: Any, **extra: Any) -> Any:
        """Run the command that the arguments name."""
        # The names on the command line serve messages of errors that name no file.
        arguments = sys.argv[1:] if args is None else list(args)
        # A stream may hold fewer letters than a message. They are escaped, not an error.
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors=ESCAPES_HANDLER)
        try:
            return super().main(arguments, *rest, **extra)
        # the outermost handler: what comes here is printed, never lost
        except Exception as error:  # noqa: BLE001
            sys.exit(print_error(error, _existing_files(arguments)))

    def make_context(self, *arguments: Any, **extra: Any) -> click.Context:
        """Parse the arguments. Usage errors are printed with control characters escaped."""
        with _printable_usage_errors():
            return super().make_context(*arguments, **extra)

    def resolve_command(
        self, context: click.Context, arguments: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command by its name. A removed one raises an error with the replacement."""
        reject_removed_command(context, arguments[0])
        return super().resolve_command(context, arguments)

    def invoke(self, context: click.Context) -> Any:
        """Run the command. Ctrl-C ends it with a line and exit code 130."""
        try:
            with _printable_usage_errors():
                return super().invoke(context)
        except KeyboardInterrupt:
            print_message("stepline: stopped; what was finished is kept", urgent=True)
            sys.exit(130)


QUIET_KEY = "stepline.quiet"  # in a context's notes
LOG_FORM = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
LOG_TIME_FORM = "%Y-%m-%dT%H:%M:%S%z"
_has_status = False  # whether a line of progress is drawn on the terminal


def is_quiet() -> bool:
    """Return whether --quiet is given."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET_KEY))


def draw_status(text: str) -> None:
    """Draw a line of progress on a terminal, in the place of the last one.

    Args:
        text: the line. "" removes it.
    """
    global _has_status
    _has_status = bool(text)
    width = shutil.get_terminal_size().columns - 1
    sys.stderr.write(f"\r\x1b[K{escape_control_characters(text)[:width]}")
    sys.stderr.flush()


def _print(text: str, *, err: bool) -> None:
    if _has_status:
        draw_status("")
    click.echo(escape_control_characters(text), nl=False, err=err)


def print_message(*lines: str, urgent: bool = False) -> None:
    """Print messages on stderr, one per line. --quiet hides those that are not urgent."""
    if urgent or not is_quiet():
        for line in lines:
            _print(line + "\n", err=True)


def print_data(text: str, *, end: str = "\n") -> None:
    """Print data, a table or JSON, on stdout."""
    _print(text + end, err=False)


@contextmanager
def _printable_usage_errors() -> Iterator[None]:
    """Escape control characters in click's usage errors, which quote the arguments."""
    try:
        yield
    except click.UsageError as error:
        message = error.format_message()
        quoted = elide_middle(escape_control_characters(message))
        if quoted == message:
            raise
        raise click.UsageError(quoted, error.ctx) from error


class LogHandler(logging.Handler):
    """Writes log records to stderr, a line each, with control characters escaped."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(LOG_FORM, LOG_TIME_FORM))

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as a line: of a warning without --verbose only what it says."""
        if record.levelno == logging.WARNING and not log.isEnabledFor(logging.INFO):
            return f"warning: {record.getMessage()}"
        return super().format(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a log record."""
        try:
            _print(self.format(record) + "\n", err=True)
        except Exception:  # noqa: BLE001   as in logging's own handlers: a log ends no work
            self.handleError(record)


def print_error(error: Exception, files: Sequence[Path | str]) -> int:
    """Print an error as one line on stderr and return the exit code.

    Args:
        error: what ended the command.
        files: the files of the command, for errors that name none.

    The code is 1 for what a user can cure, FAULT_EXIT_CODE for a fault of Stepline.
    """
    # The trace comes first, so that the line is the last thing on the screen.
    if log.isEnabledFor(logging.DEBUG):
        print_message("".join(traceback.format_exception(error)).rstrip(), urgent=True)
    line, code = _error_line(error, files), 1
    if line is None:
        message = format_error_line(f"{type(error).__name__}: {error}")[:MAX_ERROR_CHARS]
        line = (
            f"{format_error_line(', '.join(map(str, files))) or 'no file'}: a fault of Stepline itself "
            f"({message}); run it again as `stepline --debug COMMAND ...` and report what it shows, "
            "with the file if you may"
        )
        code = FAULT_EXIT_CODE
    print_message(f"stepline: {line}", urgent=True)
    return code


def _error_line(error: Exception, files: Sequence[Path | str]) -> str | None:
    """Return an error that a user can cure as a line. None for a fault of Stepline."""
    if isinstance(error, SteplineError):
        return str(error)
    extra = explain_missing_extra(error)
    if extra is not None:
        return extra
    # Errors of the system, with the file if they name one.
    named = format_error_line(", ".join(map(str, files)))
    if isinstance(error, OSError) and error.errno and error.errno not in INTERNAL_ERRNOS:
        # Without a file's name it is a stream's, most likely.
        path = named if named and error.errno != errno.ENOSPC else "the output"
        if isinstance(error.filename, str):
            path = format_error_line(error.filename)
        return f"{path}: {error.strerror}; free some space, correct the path or what it allows"
    # Memory, which libraries report in many ways.
    if isinstance(error, MemoryError) or any(
        words in f"{type(error).__name__}: {error}" for words in MEMORY_WORDS
    ):
        cure = "give less at a time, or smaller sizes in the settings"
        return f"{named or 'no file'}: not enough memory; {cure}"
    return None


def _existing_files(arguments: Sequence[str]) -> list[str]:
    """Return the arguments that are paths of existing files."""
    names = []
    for argument in arguments:
        # a name that no file can have does not name one
        with suppress(OSError, ValueError):
            if not argument.startswith("-") and Path(argument).exists():
                names.append(argument)
    return names


def escape_unencodable(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that a stream cannot encode by the escapes of JSON.

    A terminal may use latin-1, and text may hold half a surrogate pair.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    # Two bytes are one unit of UTF-16, as JSON's escapes count.
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2)), error.end


ESCAPES_HANDLER = "stepline.escapes"  # how the standard streams treat what they cannot hold
