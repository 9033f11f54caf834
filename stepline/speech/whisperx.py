"""WhisperX as the recogniser: Whisper's words with times from forced alignment, as in NaSVA's data.

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
BATCH_SPANS = 8  # stretches of speech that whisperx reads together


class WhisperX:
    """WhisperX, loaded at the first window. `read` transcribes a window into aligned words."""

    at_once = 1  # it makes batches of a window's own speech

    def __init__(self, settings: AsrSettings) -> None:
        self.name = f"whisperx {settings.model or DEFAULT_MODEL}"
        self.language = settings.language
        self._settings = settings
        try:
            import whisperx
        except ImportError as error:
            problem = "asr.recogniser whisperx: the package is not installed"
            install = "in an environment of its own, pip install 'stepline[whisperx]'"
            cure = f"{install}, or set asr.recogniser=whisper"
            raise ModelError(f"{problem}; {cure}") from error
        self._package: Any = whisperx
        self._model = _load(self._package, settings)
        self._aligners: dict[str, tuple[Any, Any]] = {}

    def read(self, window: AudioWindow, *, beam: int | None = None) -> WindowTranscript:
        """Return the transcript of the window. Words that the aligner could not place have no time."""
        del beam  # whisperx takes it when it loads
        # It finds the speech in a window by itself, but a window without any is not given to it.
        if not (window.voice >= VOICE_PROBABILITY).any():
            return WindowTranscript(())
        result = self._model.transcribe(
            window.samples, batch_size=BATCH_SPANS, language=self.language
        )
        language = str(result.get("language") or self.language or "en")
        self.language = self.language or language
        # Forced alignment times the words.
        aligner, metadata = self._aligner(language)
        aligned = self._package.align(
            result["segments"], aligner, metadata, window.samples, current_device().name
        )
        words = []
        for part in aligned["segments"]:
            for word in part.get("words", ()):
                words.append(_word(word, window.start))
        return WindowTranscript(tuple(words), language)

    def read_many(self, windows: Sequence[AudioWindow]) -> list[WindowTranscript]:
        """Return the transcript of each window."""
        return [self.read(window) for window in windows]

    def _aligner(self, language: str) -> tuple[Any, Any]:
        if language not in self._aligners:
            try:
                self._aligners[language] = self._package.load_align_model(
                    language_code=language, device=current_device().name
                )
            except (ValueError, OSError, RuntimeError) as error:
                reason = " ".join(str(error).split())
                problem = f"no alignment model for {language!r} ({reason})"
                raise ModelError(f"whisperx: {problem}; set asr.recogniser=whisper") from error
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
        problem = f"whisperx model {name!r}: not loaded ({reason})"
        raise ModelError(f"{problem}; give a path as asr.model") from error


def _word(word: Mapping[str, Any], offset: float) -> Word:
    """Return an aligned word, without a span where its times are missing or reversed."""
    span = None
    start = word.get("start")
    end = word.get("end")
    if start is not None and end is not None:
        first = float(start)
        last = float(end)
        if 0.0 <= first < last:
            span = Span(round(offset + first, 3), round(offset + last, 3))
    confidence = None
    score = word.get("score")
    if score is not None:
        confidence = min(1.0, max(0.0, float(score)))
    text = str(word["word"]).strip()
    return Word(text=f" {text}", span=span, confidence=confidence)
