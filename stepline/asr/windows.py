"""Cuts a stream of sound into windows at silences, so that an hour of it never sits in memory."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.asr.settings import AsrSettings
from stepline.asr.voice import FRAME, SAMPLE_RATE, voice_probability

if TYPE_CHECKING:
    from stepline.media import Sound

Samples = npt.NDArray[np.float32]

LONGEST_GAP = 1.0   # s; a larger hole in the stream starts a new window instead of being filled with silence


@dataclass(frozen=True)
class Window:
    """A stretch of sound: start in seconds, samples (N,) at 16 kHz, voice (F,) P(speech) a 32 ms frame."""

    start: float
    samples: Samples
    voice: Samples


def windows(blocks: "Iterable[Sound]", settings: AsrSettings) -> Iterator[Window]:
    """Yield the sound in windows of at most `settings.window` seconds, cut in the longest silence near their end."""
    start, held = 0.0, np.zeros(0, np.float32)
    size = int(settings.window * SAMPLE_RATE)
    for block in blocks:
        gap = block.start - (start + len(held) / SAMPLE_RATE)
        if not len(held) or gap > LONGEST_GAP:
            if len(held):
                yield _window(start, held)
            start, held = float(block.start), np.asarray(block.samples, np.float32)
        else:
            held = np.concatenate([held, _joined(block.samples, gap)])
        while len(held) > size:
            window, cut = _first(start, held[:size], settings)
            yield window
            start, held = start + cut / SAMPLE_RATE, held[cut:]
    if len(held):
        yield _window(start, held)


def _joined(samples: Samples, gap: float) -> Samples:
    """Return the samples with a small hole before them filled by silence, or what repeats left out."""
    count = round(gap * SAMPLE_RATE)
    if count >= 0:
        return np.concatenate([np.zeros(count, np.float32), np.asarray(samples, np.float32)])
    return np.asarray(samples[-count:], np.float32)


def _window(start: float, samples: Samples) -> Window:
    return Window(start, samples, voice_probability(samples))


def _first(start: float, samples: Samples, settings: AsrSettings) -> tuple[Window, int]:
    """Return the window up to the middle of the longest silence near the end, and how many samples it took."""
    voice = voice_probability(samples)
    first = max(1, len(voice) - int(settings.cut_within * SAMPLE_RATE / FRAME))
    frame = first + _quietest(voice[first:], settings.voice)
    cut = min(len(samples), frame * FRAME)
    return Window(start, samples[:cut], voice[:frame]), cut


def _quietest(voice: Samples, floor: float) -> int:
    """Return the middle of the longest run of frames without speech; where there is none, the least voiced frame."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], (voice < floor).astype(np.int8), [0]))))
    if not len(edges):
        return int(np.argmin(voice))
    lengths = edges[1::2] - edges[::2]
    best = int(len(lengths) - 1 - np.argmax(lengths[::-1]))   # the last of the longest: longer windows
    return int((edges[2 * best] + edges[2 * best + 1]) // 2)
