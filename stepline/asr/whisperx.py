"""WhisperX as the recogniser: Whisper's words with times from forced alignment, as the NaSVA
paper's data has them.

The package is no requirement and wants an older torch: `pip install -c constraints-whisperx.txt
'stepline[whisperx]'`, in an environment of its own. Its models come by name or by path.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from stepline.asr.audio_windows import AudioWindow, WindowTranscript
from stepline.asr.settings import AsrSettings
from stepline.device import current_device
from stepline.errors import ModelError
from stepline.records import Span, Word

DEFAULT_MODEL = "base"  # whisperx's own name for Whisper base
BATCH = 8  # stretches of speech that whisperx reads at once


class WhisperX:
    """WhisperX, loaded at the first window; `read` turns a window into aligned words."""

    at_once = 1  # it makes batches of a window's own speech

    def __init__(self, settings: AsrSettings) -> None:
        self.name = f"whisperx {settings.model or DEFAULT_MODEL}"
        self.language = settings.language
        self._settings = settings
        try:
            import whisperx
        except ImportError as error:
            missing = "the package is not installed; in an environment of its own, pip install 'stepline[whisperx]'"
            raise ModelError(
                f"asr.recogniser whisperx: {missing}, or set asr.recogniser=whisper"
            ) from error
        self._package: Any = whisperx
        self._model = _load(self._package, settings)
        self._aligners: dict[str, tuple[Any, Any]] = {}

    def read(self, window: AudioWindow, *, beam: int | None = None) -> WindowTranscript:
        """Return what is said in the window; words that the aligner could not place carry no
        time."""
        del beam  # whisperx takes it when it loads
        if not (window.voice >= self._settings.voice).any():
            return WindowTranscript(())
        result = self._model.transcribe(window.samples, batch_size=BATCH, language=self.language)
        language = str(result.get("language") or self.language or "en")
        self.language = self.language or language
        aligner, metadata = self._aligner(language)
        aligned = self._package.align(
            result["segments"], aligner, metadata, window.samples, current_device().name
        )
        words = [
            _word(word, window.start)
            for part in aligned["segments"]
            for word in part.get("words", ())
        ]
        return WindowTranscript(tuple(words), language)

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return what is said in each window."""
        return [self.read(window) for window in windows]

    def _aligner(self, language: str) -> tuple[Any, Any]:
        if language not in self._aligners:
            try:
                self._aligners[language] = self._package.load_align_model(
                    language_code=language, device=current_device().name
                )
            except (ValueError, OSError, RuntimeError) as error:
                failure = f"no alignment model for {language!r} ({' '.join(str(error).split())})"
                raise ModelError(f"whisperx: {failure}; set asr.recogniser=whisper") from error
        return self._aligners[language]


def _load(package: Any, settings: AsrSettings) -> Any:
    name = settings.model or DEFAULT_MODEL
    try:
        return package.load_model(
            name,
            **current_device().recognition(settings.compute),
            language=settings.language,
            threads=settings.threads,
            asr_options={"beam_size": settings.beam},
        )
    except (ValueError, OSError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"whisperx model {name!r}: not loaded ({reason}); give a path as asr.model"
        ) from error


def _word(word: Mapping[str, Any], offset: float) -> Word:
    """Return one aligned word; without both times, or with an end before its start, it has no
    span."""
    start, end, score = word.get("start"), word.get("end"), word.get("score")
    span = None
    if start is not None and end is not None and 0.0 <= float(start) < float(end):
        span = Span(round(offset + float(start), 3), round(offset + float(end), 3))
    confidence = min(1.0, max(0.0, float(score))) if score is not None else None
    return Word(text=f" {str(word['word']).strip()}", span=span, confidence=confidence)
