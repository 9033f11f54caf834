"""What speech recognition returns: of one window, and of the whole sound."""

from dataclasses import dataclass

from stepline.records import Rejected, Transcript, Word


@dataclass(frozen=True)
class TranscriptionResult:
    """The transcript, and each sentence that was left out with its reason."""

    transcript: Transcript
    dropped: tuple[Rejected, ...] = ()


@dataclass(frozen=True)
class WindowTranscript:
    """The words that a recogniser found in one window of sound, before any is doubted.

    words: in spoken order, times from the start of the video, each with the space before it. log_probability: mean
    over its tokens, natural logarithm; None when nothing was read or the recogniser does not say.
    """

    words: tuple[Word, ...]
    language: str | None = None
    log_probability: float | None = None
