"""Cuts a stream of sound into windows that end in silences, so that memory never holds an hour of
it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from stepline.media.audio import SAMPLE_RATE, AudioBlock, Samples
from stepline.records import Word
from stepline.speech.settings import AsrSettings
from stepline.speech.vad import (
    FRAME_SAMPLES,
    VOICE_PROBABILITY,
    middle_of_longest_silence,
    voice_probability,
)

# a larger hole in the stream ends the window instead of being filled with silence
MAX_FILLED_SECONDS = 1.0
# of sound before a window that the voice detector hears first: it starts cold otherwise
CONTEXT_SECONDS = 3.0
CUT_SECONDS = 4.0  # at the end of a window in which it is cut at a silence
MIN_ADVANCE = 0.25  # fraction of a window that is left behind when the next one starts early
NO_SOUND: Samples = np.zeros(0, np.float32)


@dataclass(frozen=True)
class AudioWindow:
    """A window of sound: start in seconds, samples (N,) at 16 kHz, voice (F,) P(speech) per 32 ms
    frame.

    last: whether the sound ends, or is interrupted, after this window.
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
        first = self._frame(start)
        last = self._frame(end)
        return self.voice[max(0, first) : last + 1]

    def _frame(self, second: float) -> int:
        return int((second - self.start) * SAMPLE_RATE / FRAME_SAMPLES)


@dataclass(frozen=True)
class WindowTranscript:
    """The words that a recogniser found in one window of sound, before hallucinations are removed.

    words: in spoken order, times from the start of the video, each with the space before it.
    log_probability: mean over the tokens, natural logarithm. None without words or when unknown.
    """

    words: tuple[Word, ...]
    language: str | None = None
    log_probability: float | None = None


class AudioWindower:
    """Cuts a stream of sound into windows. Memory holds at most one window and its left context."""

    def __init__(self, settings: AsrSettings) -> None:
        self._size = int(settings.window * SAMPLE_RATE)
        self._start = 0.0
        self._length = 0  # samples of the last window
        self._passed = 0  # of them, those that the next window does not hold again
        self._samples = NO_SOUND
        self._context = NO_SOUND

    def windows(self, blocks: Iterable[AudioBlock]) -> Iterator[AudioWindow]:
        """Yield the windows of the sound. A call of `resume` in between makes the next window start
        early.
        """
        for block in blocks:
            end = self._start + len(self._samples) / SAMPLE_RATE
            gap = float(block.start) - end
            if gap > MAX_FILLED_SECONDS or not len(self._samples):
                yield from self._rest()
                self._start = float(block.start)
                self._samples = NO_SOUND
                self._context = NO_SOUND
                gap = 0.0
            # A small hole before the block becomes silence, what it repeats is left out.
            gap_samples = round(gap * SAMPLE_RATE)
            silence = np.zeros(max(0, gap_samples), np.float32)
            repeated = max(0, -gap_samples)
            samples = np.asarray(block.samples, np.float32)
            pieces = [self._samples, silence, samples[repeated:]]
            self._samples = np.concatenate(pieces)
            while len(self._samples) > self._size:
                yield from self._next_window(last=False)
        yield from self._rest()

    def resume(self, second: float) -> float:
        """Make the next window start at `second`, inside the last window. Return where it really
        starts.

        At least a quarter of the window is always passed, so that the stream ends. The last call
        counts.
        """
        sample = round((second - self._start) * SAMPLE_RATE)
        sample = max(sample, int(MIN_ADVANCE * self._length))
        self._passed = min(self._length, sample)
        return self._start + self._passed / SAMPLE_RATE

    def _rest(self) -> Iterator[AudioWindow]:
        while len(self._samples):
            yield from self._next_window(last=True)

    def _next_window(self, *, last: bool) -> Iterator[AudioWindow]:
        sample_count = len(self._samples)
        samples = self._samples[: self._size]
        context_frames = len(self._context) // FRAME_SAMPLES
        detector_input = np.concatenate([self._context, samples])
        voice = voice_probability(detector_input)[context_frames:]
        frames = len(voice)

        # up to the middle of the longest silence near its end
        if not last or sample_count > self._size:
            first = max(1, frames - int(CUT_SECONDS * SAMPLE_RATE / FRAME_SAMPLES))
            frames = first + middle_of_longest_silence(voice[first:], VOICE_PROBABILITY)
        self._length = min(sample_count, frames * FRAME_SAMPLES)
        self._passed = self._length
        is_end = last and self._length == sample_count
        samples = self._samples[: self._length]
        voice = voice[:frames]
        yield AudioWindow(self._start, samples, voice, is_end)

        # `resume` may have been called in the meantime
        count = sample_count if is_end else self._passed
        passed_samples = np.concatenate([self._context, self._samples[:count]])
        self._context = detector_context(passed_samples)
        self._samples = self._samples[count:]
        self._start += count / SAMPLE_RATE


def detector_context(samples: Samples) -> Samples:
    """Return the end of the previous samples, in whole frames, as context for the voice detector."""
    max_frames = int(CONTEXT_SECONDS * SAMPLE_RATE / FRAME_SAMPLES)
    frames = min(max_frames, len(samples) // FRAME_SAMPLES)
    return samples[len(samples) - frames * FRAME_SAMPLES :]
