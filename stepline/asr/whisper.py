"""Whisper through faster-whisper: one window of sound to words with times."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepline.asr.audio_windows import AudioWindow, WindowTranscript
from stepline.asr.settings import AsrSettings
from stepline.asr.vad import find_speech
from stepline.errors import ModelError, SettingsError
from stepline.media.audio import SAMPLE_RATE, Samples
from stepline.records import Span, Word
from stepline.weights import find_weights

SHORTEST_WORD = 0.02  # s, one step of Whisper's clock


class Whisper:
    """A loaded Whisper model; `read` turns a window into words."""

    def __init__(self, name: str, settings: AsrSettings, language: str | None = None) -> None:
        from faster_whisper import WhisperModel

        self.name = name
        self._settings = settings
        path = find_weights(name)
        try:
            self._model = WhisperModel(
                str(path), device="cpu", compute_type=settings.compute, cpu_threads=settings.threads
            )
        except (RuntimeError, ValueError, OSError) as error:
            said = " ".join(str(error).split())
            raise ModelError(f"{path}: not a CTranslate2 Whisper model ({said}); give such a folder") from error
        self.language = _check_language(name, language or settings.language, self._model)

    def read(self, window: AudioWindow, *, beam: int | None = None) -> WindowTranscript:
        """Return what is said in the window; without speech in it, no words, and the model is not asked."""
        runs = _speech(window, self._settings)
        if not runs:
            return WindowTranscript(())
        segments, info = self._model.transcribe(
            _join_runs(window, runs),
            language=self.language,
            beam_size=beam or self._settings.beam,
            temperature=0.0,  # sampling would give other words on the next run
            condition_on_previous_text=False,  # a loop in one window must not reach the next
            without_timestamps=True,  # one reading a window; the word times come from cross-attention
            word_timestamps=True,
            no_speech_threshold=None,  # hallucinations.py doubts, and says why
            vad_filter=False,  # done above, once
        )
        if self.language is None:
            self.language = str(info.language)
        segment = next(iter(segments), None)
        if segment is None:
            return WindowTranscript((), str(info.language))
        timestamps = _SpeechTimestamps(window.start, runs, self._settings.longest_word)
        words = tuple(_word(word, timestamps) for word in segment.words or ())
        return WindowTranscript(words, str(info.language), float(segment.avg_logprob))

    def detect(self, window: AudioWindow) -> tuple[str, float]:
        """Return the most likely language of the window's speech and its probability; the window holds speech."""
        runs = _speech(window, self._settings)
        language, probability, _ = self._model.detect_language(_join_runs(window, runs))
        return str(language), float(probability)


class _SpeechTimestamps:
    """Maps seconds of the joined speech back to seconds of the video."""

    def __init__(self, start: float, runs: Sequence[tuple[int, int]], longest: float) -> None:
        self._start = start
        self._longest = longest
        self._runs = [(first / SAMPLE_RATE, last / SAMPLE_RATE) for first, last in runs]
        lengths = [last - first for first, last in self._runs]
        self._starts = [sum(lengths[:index]) for index in range(len(lengths))]

    def span(self, start: float, end: float) -> Span:
        """Return the span in the video; a word over a cut belongs to the side that holds its middle."""
        end = min(end, start + self._longest)
        middle = (start + end) / 2
        run = max(index for index, first in enumerate(self._starts) if index == 0 or first <= middle)
        first, last = self._runs[run]
        shift = first - self._starts[run]
        begin = min(max(start + shift, first), last - SHORTEST_WORD)
        finish = min(max(end + shift, begin + SHORTEST_WORD), last)
        return Span(round(self._start + begin, 3), round(self._start + finish, 3))


def _speech(window: AudioWindow, settings: AsrSettings) -> list[tuple[int, int]]:
    runs = find_speech(window.voice, threshold=settings.voice, gap=settings.voice_gap, pad=settings.voice_pad)
    return [(first, min(last, len(window.samples))) for first, last in runs]


def _join_runs(window: AudioWindow, runs: Sequence[tuple[int, int]]) -> Samples:
    return np.concatenate([window.samples[first:last] for first, last in runs])


def _check_language(name: str, wanted: str | None, model: Any) -> str | None:
    """Return the language to listen for, None = detect it; raises SettingsError for one the model cannot hear."""
    known = list(model.supported_languages)
    if wanted is None:
        return None if model.model.is_multilingual else "en"
    if wanted not in known:
        hears = "only English (en)" if known == ["en"] else "languages by their two-letter code (en, zh, es)"
        raise SettingsError(f"asr.language {wanted!r}: {name} hears {hears}; asr.model=whisper-base hears 99 of them")
    return wanted


def _word(word: Any, timestamps: _SpeechTimestamps) -> Word:
    span, probability = timestamps.span(float(word.start), float(word.end)), float(word.probability)
    confidence = min(1.0, max(0.0, probability)) if math.isfinite(probability) else 0.0
    return Word(text=str(word.word), span=span, confidence=confidence)
