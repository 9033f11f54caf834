"""Whisper through faster-whisper: one window of sound to words with times."""

import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepline import models
from stepline.asr.heard import Passage
from stepline.asr.settings import AsrSettings
from stepline.asr.voice import SAMPLE_RATE, speech
from stepline.asr.windows import Window
from stepline.errors import ModelError
from stepline.records import Span, Word

log = logging.getLogger(__name__)

ENGLISH_ONLY = "whisper-tiny.en"
MULTILINGUAL = "whisper-base"


class Whisper:
    """A loaded Whisper model; `read` turns a window into words."""

    def __init__(self, name: str, settings: AsrSettings) -> None:
        self.name = name
        self.settings = settings
        self.model = _load(name, settings)
        self.language = settings.language

    def read(self, window: Window) -> Passage:
        """Return what is said in the window; without speech in it, no words, and the model is not asked."""
        settings = self.settings
        runs = speech(window.voice, threshold=settings.voice, gap=settings.voice_gap, pad=settings.voice_pad)
        if not runs:
            return Passage(())
        sound = np.concatenate([window.samples[first:last] for first, last in runs])
        segments, info = self.model.transcribe(
            sound,
            language=self.language,
            beam_size=settings.beam,
            temperature=0.0,   # sampling would give other words on the next run
            condition_on_previous_text=False,   # a loop in one window must not reach the next
            without_timestamps=True,
            word_timestamps=True,
            vad_filter=False,   # done above, once
        )
        return _passage(list(segments), str(info.language), _Clock(window.start, runs))

    def detect(self, window: Window) -> tuple[str, float]:
        """Return the most likely language of the window's speech and its probability."""
        language, probability, _ = self.model.detect_language(window.samples)
        return str(language), float(probability)


class _Clock:
    """Turns seconds of the joined speech back into seconds of the video."""

    def __init__(self, start: float, runs: Sequence[tuple[int, int]]) -> None:
        self.start = start
        self.runs = [(first / SAMPLE_RATE, last / SAMPLE_RATE) for first, last in runs]
        lengths = [last - first for first, last in self.runs]
        self.starts = [sum(lengths[:index]) for index in range(len(lengths))]

    def span(self, start: float, end: float) -> Span:
        """Return the span in the video; a word over a cut belongs to the side that holds its middle."""
        middle = (start + end) / 2
        run = max(index for index, first in enumerate(self.starts) if index == 0 or first <= middle)
        first, last = self.runs[run]
        shift = first - self.starts[run]
        begin = min(max(start + shift, first), last - 0.02)
        return Span(_round(self.start + begin), _round(self.start + min(max(end + shift, begin + 0.02), last)))


def _round(seconds: float) -> float:
    return round(max(0.0, seconds), 3)


def _load(name: str, settings: AsrSettings) -> Any:
    from faster_whisper import WhisperModel

    path: Path = models.find(name)
    try:
        return WhisperModel(str(path), device="cpu", compute_type=settings.compute, cpu_threads=settings.threads)
    except (RuntimeError, ValueError, OSError) as error:
        cure = "give such a folder, or leave asr.model out"
        raise ModelError(f"{path}: not a CTranslate2 Whisper model ({_line(error)}); {cure}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _passage(segments: Sequence[Any], language: str, clock: _Clock) -> Passage:
    words = [
        Word(text=str(word.word), span=clock.span(float(word.start), float(word.end)), confidence=_probability(word))
        for segment in segments
        for word in segment.words or ()
    ]
    if not segments:
        return Passage((), language)
    lengths = [max(1, len(segment.tokens)) for segment in segments]
    mean = sum(float(s.avg_logprob) * n for s, n in zip(segments, lengths, strict=True)) / sum(lengths)
    return Passage(tuple(words), language, mean, max(float(segment.no_speech_prob) for segment in segments))


def _probability(word: Any) -> float:
    value = float(word.probability)
    return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0
