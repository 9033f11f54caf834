"""Voice activity detection by Silero's model, which faster-whisper contains."""

from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.media.audio import SAMPLE_RATE, Samples

Run: TypeAlias = tuple[int, int]  # first, last + 1

FRAME_SAMPLES = 512  # samples per frame of the detector, 32 ms
VOICE_PROBABILITY = 0.5  # from which a frame holds speech; Silero's own default
# a stretch of speech goes on until P(speech) falls this far under the threshold (Silero)
HYSTERESIS_PROBABILITY = 0.15


def voice_probability(samples: Samples) -> Samples:
    """Return P(speech) for each frame of 512 samples, (ceil(N / 512),) float32, sound at 16 kHz."""
    from faster_whisper.vad import get_vad_model

    if not len(samples):
        return np.zeros(0, np.float32)
    padded = np.pad(samples, (0, -len(samples) % FRAME_SAMPLES))
    return np.asarray(get_vad_model()(padded), np.float32).reshape(-1)


def find_speech(voice: Samples, *, threshold: float, gap: float, pad: float) -> list[Run]:
    """Return the runs of speech as (first, last + 1) sample pairs.

    Args:
        voice: (F,) P(speech) per frame.
        threshold: probability at which a run starts.
        gap: seconds. A shorter pause ends no run.
        pad: seconds added before and after each run.
    """
    # Runs of frames: a pause that is too short joins two of them.
    runs: list[list[int]] = []
    is_speech = False
    max_pause = gap * SAMPLE_RATE / FRAME_SAMPLES
    for index, probability in enumerate(voice):
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
    limits = pairwise([0, *middles, len(voice) * FRAME_SAMPLES])
    widened = []
    for (first, last), (low, high) in zip(spans, limits, strict=False):
        widened.append((max(low, first - margin), min(high, last + margin)))
    return widened


def middle_of_longest_silence(voice: Samples, threshold: float) -> int:
    """Return the frame in the middle of the longest silence, the last one of equals.

    Without any silent frame, the frame with the least voice.
    """
    silences = runs_of(voice < threshold)
    if not silences:
        return int(np.argmin(voice))
    first, last = max(silences, key=lambda run: (run[1] - run[0], run[0]))
    return (first + last) // 2


def runs_of(mask: npt.NDArray[np.bool_]) -> list[Run]:
    """Return the runs of True as (first, last + 1) index pairs, in order."""
    closed = np.pad(mask.astype(np.int8), 1)
    edges = np.flatnonzero(np.diff(closed)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
