"""Cuts a stream of audio into windows that end in silences, by Silero's voice detector.

Memory never holds more than one window. faster-whisper contains the detector.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stepline.media.audio import SAMPLE_RATE, AudioBlock, Samples
from stepline.records import Word
from stepline.speech.settings import AsrSettings

Run = tuple[int, int]  # first, last + 1

FRAME_SAMPLES = 512  # samples per frame of the detector, 32 ms
FRAME_SECONDS = FRAME_SAMPLES / SAMPLE_RATE
VOICE_PROBABILITY = 0.5  # from which a frame holds speech; Silero's own default
# a run of speech continues until P(voice) falls this far under the threshold (Silero)
HYSTERESIS_PROBABILITY = 0.15

# a larger hole in the stream ends the window instead of being filled with silence
MAX_FILLED_SECONDS = 1.0
# of audio before a window that the voice detector hears first: it starts cold otherwise
CONTEXT_SECONDS = 3.0
CUT_SECONDS = 4.0  # at the end of a window, in which it is cut at a silence
MIN_ADVANCE = 0.25  # fraction of a window that the next window does not repeat
EMPTY_SAMPLES: Samples = np.zeros(0, np.float32)


def detect_voice(samples: Samples) -> Samples:
    """Return P(voice) of each frame of 512 samples, (ceil(N / 512),) float32.

    samples: (N,) audio at 16 kHz.
    """
    from faster_whisper.vad import get_vad_model

    if not len(samples):
        return np.zeros(0, np.float32)
    padded = np.pad(samples, (0, -len(samples) % FRAME_SAMPLES))
    return np.asarray(get_vad_model()(padded), np.float32).reshape(-1)


def speech_seconds(voice_probabilities: Samples) -> float:
    """Return the seconds of frames with speech.

    voice_probabilities: (F,) P(voice) of each frame of 32 ms.
    """
    return float((voice_probabilities >= VOICE_PROBABILITY).sum()) * FRAME_SECONDS


def find_speech(
    voice_probabilities: Samples, *, threshold: float, gap: float, pad: float
) -> list[Run]:
    """Return the runs of speech as (first sample, last sample + 1).

    Args:
        voice_probabilities: (F,) P(voice) of each frame of 512 samples.
        threshold: probability from which a frame starts a run.
        gap: seconds. Pauses shorter than this do not end a run.
        pad: seconds added before and after each run.
    """
    # Runs of frames: a pause that is too short joins two of them.
    runs: list[list[int]] = []
    is_speech = False
    max_pause = gap * SAMPLE_RATE / FRAME_SAMPLES
    for index, probability in enumerate(voice_probabilities):
        min_probability = threshold - HYSTERESIS_PROBABILITY if is_speech else threshold
        is_speech = bool(probability >= min_probability)
        if not is_speech:
            continue
        if runs and index - runs[-1][1] < max_pause:
            runs[-1][1] = index + 1
        else:
            runs.append([index, index + 1])

    # A run is widened, but never past the middle of the silence next to it.
    margin = round(pad * SAMPLE_RATE)
    spans = [(first * FRAME_SAMPLES, last * FRAME_SAMPLES) for first, last in runs]
    middles = [(before[1] + after[0]) // 2 for before, after in pairwise(spans)]
    limits = pairwise([0, *middles, len(voice_probabilities) * FRAME_SAMPLES])
    return [
        (max(low, first - margin), min(high, last + margin))
        for (first, last), (low, high) in zip(spans, limits, strict=False)
    ]


def middle_of_longest_silence(voice_probabilities: Samples, threshold: float) -> int:
    """Return the index of the frame in the middle of the longest silence.

    Of equally long silences the last one counts. If no frame is silent, it is the frame with the
    lowest P(voice).

    Args:
        voice_probabilities: (F,) P(voice) of each frame.
        threshold: P(voice) below which a frame is silent.
    """
    silences = runs_of_true(voice_probabilities < threshold)
    if not silences:
        return int(np.argmin(voice_probabilities))
    first, last = max(silences, key=lambda run: (run[1] - run[0], run[0]))
    return (first + last) // 2


def runs_of_true(mask: npt.NDArray[np.bool_]) -> list[Run]:
    """Return the runs of True as (first, last + 1) index pairs, in order."""
    edges = np.flatnonzero(np.diff(np.pad(mask.astype(np.int8), 1))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


@dataclass(frozen=True)
class AudioWindow:
    """A window of audio, with the result of the voice detector.

    Attributes:
        start: seconds from the start of the video.
        samples: (N,) audio at 16 kHz.
        voice_probabilities: (F,) P(voice) of each frame of 32 ms (512 samples).
        last: whether the audio ends, or is interrupted, after this window.
    """

    start: float
    samples: Samples
    voice_probabilities: Samples
    last: bool

    @property
    def end(self) -> float:
        """Second of the video at which the window ends."""
        return self.start + len(self.samples) / SAMPLE_RATE

    @property
    def voice(self) -> Samples:
        """The name of `voice_probabilities` in version 0.1.0, for recogniser plugins."""
        return self.voice_probabilities

    def voice_probabilities_between(self, start: float, end: float) -> Samples:
        """Return P(voice) of each frame that overlaps the seconds [start, end) of the video,
        (frames,)."""
        return self.voice_probabilities[
            max(0, self._frame_index(start)) : self._frame_index(end) + 1
        ]

    def _frame_index(self, second: float) -> int:
        return int((second - self.start) * SAMPLE_RATE / FRAME_SAMPLES)


@dataclass(frozen=True)
class WindowTranscript:
    """The words that a recogniser found in one window, before hallucinations are removed.

    Attributes:
        words: in spoken order, with times from the start of the video. Each text begins with the
            space before the word, if any.
        language: ISO 639-1 code, None if unknown.
        log_probability: mean natural log-probability of the tokens. None if unknown or without
            words.
    """

    words: tuple[Word, ...]
    language: str | None = None
    log_probability: float | None = None


class AudioWindower:
    """Cuts a stream of audio into windows that end in silences.

    Memory holds one window and a short context before it.
    """

    def __init__(self, settings: AsrSettings) -> None:
        self._max_samples = int(settings.window * SAMPLE_RATE)
        self._start = 0.0
        self._length = 0  # samples of the last window
        self._advance = 0  # samples from its start to that of the next window
        self._samples = EMPTY_SAMPLES
        self._context = EMPTY_SAMPLES

    def windows(self, blocks: Iterable[AudioBlock]) -> Iterator[AudioWindow]:
        """Yield the windows of a stream of audio blocks.

        Between two windows the caller may call `set_next_start`, so that they overlap.
        """
        for block in blocks:
            end = self._start + len(self._samples) / SAMPLE_RATE
            gap = float(block.start) - end
            if gap > MAX_FILLED_SECONDS or not len(self._samples):
                yield from self._last_windows()
                self._start = float(block.start)
                self._samples = EMPTY_SAMPLES
                self._context = EMPTY_SAMPLES
                gap = 0.0
            # A small hole before the block becomes silence. What it repeats is left out.
            gap_samples = round(gap * SAMPLE_RATE)
            silence = np.zeros(max(0, gap_samples), np.float32)
            samples = np.asarray(block.samples, np.float32)[max(0, -gap_samples) :]
            self._samples = np.concatenate([self._samples, silence, samples])
            while len(self._samples) > self._max_samples:
                yield from self._next_window(last=False)
        yield from self._last_windows()

    def set_next_start(self, second: float) -> float:
        """Make the next window start at `second`, inside the last window. Return its actual start.

        At least a quarter of the last window is skipped, so that the stream ends. The last of
        several calls counts.
        """
        sample = round((second - self._start) * SAMPLE_RATE)
        sample = max(sample, int(MIN_ADVANCE * self._length))
        self._advance = min(self._length, sample)
        return self._start + self._advance / SAMPLE_RATE

    def _last_windows(self) -> Iterator[AudioWindow]:
        while len(self._samples):
            yield from self._next_window(last=True)

    def _next_window(self, *, last: bool) -> Iterator[AudioWindow]:
        sample_count = len(self._samples)
        context_frames = len(self._context) // FRAME_SAMPLES
        detector_input = np.concatenate([self._context, self._samples[: self._max_samples]])
        voice_probabilities = detect_voice(detector_input)[context_frames:]
        frame_count = len(voice_probabilities)

        # up to the middle of the longest silence near its end
        if not last or sample_count > self._max_samples:
            first = max(1, frame_count - int(CUT_SECONDS * SAMPLE_RATE / FRAME_SAMPLES))
            frame_count = first + middle_of_longest_silence(
                voice_probabilities[first:], VOICE_PROBABILITY
            )
        self._length = min(sample_count, frame_count * FRAME_SAMPLES)
        self._advance = self._length
        is_end = last and self._length == sample_count
        yield AudioWindow(
            self._start, self._samples[: self._length], voice_probabilities[:frame_count], is_end
        )

        # `set_next_start` may have been called in the meantime
        count = sample_count if is_end else self._advance
        self._context = detector_context(np.concatenate([self._context, self._samples[:count]]))
        self._samples = self._samples[count:]
        self._start += count / SAMPLE_RATE


def detector_context(samples: Samples) -> Samples:
    """Return the last whole frames of audio before a window, (N,), a multiple of 512 samples. The
    voice detector reads them as context.

    samples: (N,) audio at 16 kHz before the window.
    """
    max_frames = int(CONTEXT_SECONDS * SAMPLE_RATE / FRAME_SAMPLES)
    frame_count = min(max_frames, len(samples) // FRAME_SAMPLES)
    return samples[len(samples) - frame_count * FRAME_SAMPLES :]
