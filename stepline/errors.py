"""All error classes of Stepline.

    SteplineError               its message is one line: the value, the rule, the cure
    ├── MediaError              a video or sound that cannot be read
    ├── CaptionError            a caption or transcript file that cannot be read
    ├── ModelError              weights that are missing, damaged or of the wrong kind
    ├── WriterError             a step writer, or the language model behind it, failed
    ├── SettingsError           an unknown or invalid setting
    ├── StoreError              a record, feature file or output that cannot be read or written
    ├── DatasetError            annotations that are missing or malformed
    └── ShapeError              arrays whose shapes or values do not fit together

The command line prints the message and ends with exit code 1. Everything that it prints passes
through `escape_control_characters`.
"""

import re

# Characters that control a terminal: C0 without tab and line feed, DEL, C1, and overrides of the
# writing direction.
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

# A word of over 200 characters, and a message of over 2000: their first three and last quarter.
LONG_WORD = re.compile(r"(?<!\S)(\S{150})\S+(\S{50})(?!\S)")
LONG_MESSAGE = re.compile(r"(?s)\A(.{1500}).+(.{500})\Z")


class NotFoundError(LookupError):
    """A name or id of a request that nothing has. The message is one line."""


def escape_control_characters(text: str) -> str:
    """Return the text with control characters as JSON escapes, such as \\u001b for ESC.

    JSON keeps its values, because these characters are only inside its strings.
    """
    return CONTROL_CHARACTERS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def elide_middle(text: str) -> str:
    """Return a message in which a long word, such as a quoted value, keeps its beginning and end.

    So does the whole message, whose end is the cure.
    """
    return LONG_MESSAGE.sub(r"\1…\2", LONG_WORD.sub(r"\1…\2", text))


def format_error_line(text: str) -> str:
    """Return a message as one printable line, with long quotes shortened."""
    return elide_middle(
        escape_control_characters(" ".join(filter(None, map(str.strip, text.splitlines()))))
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message.

    If it is empty, return the error's class name.
    """
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# optional package -> the extra of Stepline that installs it
EXTRA_PACKAGES = {
    "accelerate": "train",
    "mcp": "mcp",
    "pyarrow": "data",
    "scipy": "data",
    "torch": "train",
    "yt_dlp": "links",
}


def explain_missing_extra(error: BaseException) -> str | None:
    """Return a text that names the missing optional package and the extra that installs it.

    None if the error has another cause.
    """
    if not isinstance(error, ModuleNotFoundError):
        return None
    package, _, _ = (error.name or "").partition(".")
    if package not in EXTRA_PACKAGES:
        return None
    cure = f"pip install -c constraints.txt 'stepline[{EXTRA_PACKAGES[package]}]'"
    return f"needs {package}, which is not installed; {cure}"


class SteplineError(Exception):
    """Base class of the errors that a user can cause and cure. As text it is one printable line."""

    def __str__(self) -> str:
        return format_error_line(super().__str__())


class MediaError(SteplineError):
    """A video or sound that cannot be read."""


class CaptionError(SteplineError):
    """A caption or transcript file that cannot be read."""


class ModelError(SteplineError):
    """Weights that are missing, damaged or of the wrong kind."""


class WriterError(SteplineError):
    """A step writer, or the language model behind it, failed."""


class SettingsError(SteplineError):
    """An unknown or invalid setting."""


class StoreError(SteplineError):
    """A record, feature file or output that cannot be read or written."""


class DatasetError(SteplineError):
    """Annotations that are missing or malformed."""


class ShapeError(SteplineError):
    """Arrays whose shapes or values do not fit together."""
