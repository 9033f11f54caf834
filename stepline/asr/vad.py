"""Where somebody speaks: Silero's voice detector, which faster-whisper carries."""

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from stepline.media.audio import SAMPLE_RATE, Samples

FRAME = 512  # samples a frame of the detector, 32 ms
# a stretch of speech goes on until P(speech) falls this far under the threshold (Silero)
HYSTERESIS = 0.15


def voice_probability(samples: Samples) -> Samples:
    """Return P(speech) for each frame of 512 samples, (ceil(N / 512),) float32; sound at 16 kHz."""
    from faster_whisper.vad import get_vad_model

    if not len(samples):
        return np.zeros(0, np.float32)
    padded = np.pad(samples, (0, -len(samples) % FRAME))
    return np.asarray(get_vad_model()(padded), np.float32).reshape(-1)


def find_speech(
    voice: Samples, *, threshold: float, gap: float, pad: float
) -> list[tuple[int, int]]:
    """Return the runs of speech as (first, last + 1) sample pairs, padded by `pad`; pauses under
    `gap` are kept.

    voice: (F,) P(speech) a frame. gap, pad: seconds.
    """
    runs: list[list[int]] = []
    speaking = False
    for index, probability in enumerate(voice):
        needed = threshold - HYSTERESIS if speaking else threshold
        speaking = bool(probability >= needed)
        if not speaking:
            continue
        if runs and index - runs[-1][1] < gap * SAMPLE_RATE / FRAME:
            runs[-1][1] = index + 1
        else:
            runs.append([index, index + 1])
    # A run is widened, but never past the middle of the silence next to it.
    margin = round(pad * SAMPLE_RATE)
    edges = [(first * FRAME, last * FRAME) for first, last in runs]
    middles = [(before + after) // 2 for (_, before), (after, _) in pairwise(edges)]
    limits = [0, *middles, len(voice) * FRAME]
    widened = []
    for (first, last), low, high in zip(edges, limits[:-1], limits[1:], strict=False):
        widened.append((max(low, first - margin), min(high, last + margin)))
    return widened


def middle_of_longest_silence(voice: Samples, threshold: float) -> int:
    """Return the middle of the longest run of frames without speech, the last of equals; else the
    least voiced."""
    silences = runs_of(voice < threshold)
    if not silences:
        return int(np.argmin(voice))
    first, last = max(silences, key=lambda run: (run[1] - run[0], run[0]))
    return (first + last) // 2


def runs_of(mask: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the runs of True as (first, last + 1) index pairs, in order."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return [(int(first), int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]
