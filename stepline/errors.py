"""Every error that Stepline raises on purpose.

    SteplineError               its message is one line: the value, the rule, the cure
    ├── MediaError              a video or sound that cannot be read
    ├── CaptionError            a caption or transcript file that cannot be read
    ├── ModelError              weights that are missing, damaged or of the wrong kind
    ├── WriterError             a step writer, or the language model behind it, failed
    ├── SettingsError           an unknown or invalid setting
    ├── StoreError              a record, feature file or output that cannot be read or written
    ├── DatasetError            annotations that are missing or malformed
    └── ShapeError              arrays whose shapes or values do not fit together

The command line prints the message and ends with exit code 1. Whatever it prints passes
`printable`.
"""

import re

# What a terminal obeys instead of showing: C0 but tab and line feed, DEL, C1, and what turns the
# direction of writing.
CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return the text with control characters and direction overrides as JSON's escapes, \\u001b
    for ESC.

    JSON says the same before and after, because these characters are nowhere in it but inside
    strings.
    """
    return CONTROL_CHARACTERS.sub(lambda control: f"\\u{ord(control[0]):04x}", text)


def error_line(text: str) -> str:
    """Return a message as one printable line, whatever file names and other libraries' words it
    quotes."""
    return printable(" ".join(filter(None, map(str.strip, text.splitlines()))))


def first_line(error: BaseException) -> str:
    """Return the first line of what another library says of its error, or the error's name where it
    says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# What the main job does without, and the extra that brings it.
EXTRA_PACKAGES = {
    "accelerate": "train",
    "mcp": "mcp",
    "pyarrow": "data",
    "scipy": "data",
    "torch": "train",
    "yt_dlp": "links",
}


def missing_extra(error: BaseException) -> str | None:
    """Return in one line which package is not installed, and the extra that brings it. None for any
    other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    package, _, _ = (error.name or "").partition(".")
    if package not in EXTRA_PACKAGES:
        return None
    cure = f"pip install 'stepline[{EXTRA_PACKAGES[package]}]'"
    return f"needs {package}, which is not installed; {cure}"


class SteplineError(Exception):
    """Base of every error that a user can cause and cure. As text it is one printable line."""

    def __str__(self) -> str:
        """Return the message."""
        return error_line(super().__str__())


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
