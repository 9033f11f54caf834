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

The command line prints the message in one line and ends with exit code 1.
"""


class SteplineError(Exception):
    """Base of every error that a user can cause and cure."""


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
