"""WhisperX as the recogniser: Whisper's words with times by forced alignment, as in NaSVA's data.

The package is optional and needs an older torch: `pip install -c constraints-whisperx.txt
'stepline[whisperx]'`, in an environment of its own. Its models are given by name or path.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stepline.errors import ModelError
from stepline.networks.device import current_device
from stepline.records import Span, Word
from stepline.speech.audio_windows import VOICE_PROBABILITY, AudioWindow, WindowTranscript
from stepline.speech.settings import AsrSettings

DEFAULT_MODEL = "base"  # whisperx's own name for Whisper base
BATCH_SIZE = 8  # parts of speech that whisperx recognises together


class WhisperX:
    """A loaded WhisperX model. `read` transcribes a window into aligned words."""

    at_once = 1  # It makes batches of the speech of one window.

    def __init__(self, settings: AsrSettings) -> None:
        self.name = f"whisperx {settings.model or DEFAULT_MODEL}"
        self.language = settings.language
        self._settings = settings
        try:
            import whisperx
        except ImportError as error:
            raise ModelError(
                "asr.recogniser whisperx: the package is not installed; in an environment of its "
                "own, pip install -c constraints-whisperx.txt 'stepline[whisperx]', or set "
                "asr.recogniser=whisper"
            ) from error
        self._package: Any = whisperx
        self._model = _load_model(self._package, settings)
        self._aligners: dict[str, tuple[Any, Any]] = {}

    def read(self, window: AudioWindow, *, beam: int | None = None) -> WindowTranscript:
        """Return the transcript of a window. Words that cannot be aligned have no time.

        beam: ignored, since WhisperX takes the number of hypotheses only when it loads.
        """
        del beam  # whisperx takes it when it loads
        # It detects speech by itself, but fails for a window without any.
        if not (window.voice_probabilities >= VOICE_PROBABILITY).any():
            return WindowTranscript(())
        result = self._model.transcribe(
            window.samples, batch_size=BATCH_SIZE, language=self.language
        )
        language = str(result.get("language") or self.language or "en")
        self.language = self.language or language
        aligner, metadata = self._load_aligner(language)
        aligned = self._package.align(
            result["segments"], aligner, metadata, window.samples, current_device().name
        )
        words = tuple(
            _make_word(word, window.start)
            for segment in aligned["segments"]
            for word in segment.get("words", ())
        )
        return WindowTranscript(words, language)

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return the transcript of each window."""
        return [self.read(window) for window in windows]

    def _load_aligner(self, language: str) -> tuple[Any, Any]:
        if language not in self._aligners:
            try:
                self._aligners[language] = self._package.load_align_model(
                    language_code=language, device=current_device().name
                )
            except (ValueError, OSError, RuntimeError) as error:
                reason = " ".join(str(error).split())
                raise ModelError(
                    f"whisperx: no alignment model for {language!r} ({reason}); set "
                    "asr.recogniser=whisper"
                ) from error
        return self._aligners[language]


def _load_model(package: Any, settings: AsrSettings) -> Any:
    name = settings.model or DEFAULT_MODEL
    try:
        return package.load_model(
            name,
            **current_device().ctranslate2_options(settings.compute),
            language=settings.language,
            threads=settings.threads,
            asr_options={"beam_size": settings.beam},
        )
    except (ValueError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"whisperx model {name!r}: not loaded ({reason}); give a path as asr.model"
        ) from error


def _make_word(word: Mapping[str, Any], offset: float) -> Word:
    """Convert an aligned word of WhisperX. It has no span if its times are missing or reversed.

    offset: start of the window in seconds of the video.
    """
    span = None
    start, end = word.get("start"), word.get("end")
    if start is not None and end is not None and 0.0 <= start < end:
        span = Span(round(offset + float(start), 3), round(offset + float(end), 3))
    score = word.get("score")
    confidence = None if score is None else min(1.0, max(0.0, float(score)))
    return Word(text=f" {str(word['word']).strip()}", span=span, confidence=confidence)
