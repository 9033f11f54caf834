"""Gathers a stream of sound into windows that end in silences, so that an hour of it never sits in memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepline.asr.settings import AsrSettings
from stepline.asr.vad import FRAME, SAMPLE_RATE, Samples, middle_of_longest_silence, voice_probability

if TYPE_CHECKING:
    from stepline.media import AudioBlock

LONGEST_GAP = 1.0  # s; a larger hole in the stream ends the window instead of being filled with silence
CONTEXT = 3.0  # s of sound before a window that the voice detector hears first: it starts cold otherwise
ADVANCE = 0.25  # of a window that at least is left behind when the next one starts early


@dataclass(frozen=True)
class AudioWindow:
    """A stretch of sound: start in seconds, samples (N,) at 16 kHz, voice (F,) P(speech) a 32 ms frame.

    last: the sound ends with it, or has a hole behind it.
    """

    start: float
    samples: Samples
    voice: Samples
    last: bool

    @property
    def end(self) -> float:
        """Second at which the window ends."""
        return self.start + len(self.samples) / SAMPLE_RATE

    def voiced(self, start: float, end: float) -> Samples:
        """Return P(speech) of the frames that overlap the seconds [start, end)."""
        first = int((start - self.start) * SAMPLE_RATE / FRAME)
        return self.voice[max(0, first) : int((end - self.start) * SAMPLE_RATE / FRAME) + 1]


class AudioWindower:
    """Holds at most one window of sound, and what came just before it."""

    def __init__(self, settings: AsrSettings) -> None:
        self._settings = settings
        self._size = int(settings.window * SAMPLE_RATE)
        self._start = 0.0
        self._taken = 0  # samples of the window given last
        self._held: Samples = np.zeros(0, np.float32)
        self._before: Samples = np.zeros(0, np.float32)

    def windows(self, blocks: "Iterable[AudioBlock]") -> Iterator[AudioWindow]:
        """Yield the sound in windows; `resume` between two of them makes the next one start early."""
        for block in blocks:
            if self._missing(block) > LONGEST_GAP or not len(self._held):
                yield from self._emptied()
                self._clear(float(block.start))
            self._append(block)
            while len(self._held) > self._size:
                yield from self._one(last=False)
        yield from self._emptied()

    def resume(self, second: float) -> float:
        """Let the next window start at `second`, inside the window given last; return where it really will.

        A quarter of the window is always left behind, so that the reading comes to an end.
        """
        wanted = round((second - self._start) * SAMPLE_RATE)
        self._taken = min(self._taken, max(wanted, int(ADVANCE * self._taken)))
        return self._start + self._taken / SAMPLE_RATE

    def _emptied(self) -> Iterator[AudioWindow]:
        while len(self._held):
            yield from self._one(last=True)

    def _one(self, *, last: bool) -> Iterator[AudioWindow]:
        voice = voice_probability(np.concatenate([self._before, self._held[: self._size]]))
        voice = voice[len(self._before) // FRAME :]
        frames = len(voice) if last and len(self._held) <= self._size else self._cut(voice)
        self._taken = min(len(self._held), frames * FRAME)
        ends = last and self._taken == len(self._held)
        yield AudioWindow(self._start, self._held[: self._taken], voice[:frames], ends)
        self._forget(len(self._held) if ends else self._taken)

    def _cut(self, voice: Samples) -> int:
        """Return how many frames a window takes: up to the middle of the longest silence near its end."""
        first = max(1, len(voice) - int(self._settings.cut_within * SAMPLE_RATE / FRAME))
        return first + middle_of_longest_silence(voice[first:], self._settings.voice)

    def _forget(self, count: int) -> None:
        heard = np.concatenate([self._before, self._held[:count]])
        keep = int(CONTEXT * SAMPLE_RATE / FRAME) * FRAME  # whole frames, so that the detector's stay aligned
        self._before = heard[len(heard) - min(keep, len(heard) // FRAME * FRAME) :]
        self._held = self._held[count:]
        self._start += count / SAMPLE_RATE

    def _clear(self, start: float) -> None:
        self._start = start
        self._held = np.zeros(0, np.float32)
        self._before = np.zeros(0, np.float32)

    def _missing(self, block: "AudioBlock") -> float:
        return float(block.start) - (self._start + len(self._held) / SAMPLE_RATE)

    def _append(self, block: "AudioBlock") -> None:
        """Append a block: a small hole before it becomes silence, what it repeats is left out."""
        count = round(self._missing(block) * SAMPLE_RATE)
        samples = np.asarray(block.samples, np.float32)
        pieces = [self._held, np.zeros(max(0, count), np.float32), samples[max(0, -count) :]]
        self._held = np.concatenate(pieces)
