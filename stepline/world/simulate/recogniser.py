"""What a recogniser makes of what was said: words misheard, times off."""

from dataclasses import replace

import numpy as np

from stepline.world.simulate.lines import MISHEARD, NONE, SAID, Lines, Marks
from stepline.world.simulate.settings import RecogniserSettings
from stepline.world.simulate.tasks import Ints
from stepline.world.simulate.timeline import Times

SHORTEST = 0.5  # s, of a sentence whose times are off


def hear(spoken: Lines, duration: float, settings: RecogniserSettings, rng: np.random.Generator) -> Lines:
    """Return the narration as a recogniser gives it: as many lines, sorted by start, each one's truth kept."""
    error = rng.random((2, len(spoken)))
    times = spoken.times + settings.jitter * rng.standard_normal(spoken.times.shape)
    if not (settings.word_error or settings.jitter):
        return spoken
    heard = replace(
        spoken,
        times=_valid(times, duration),
        said_action=_misheard(spoken.said_action, spoken.action, error[0] < settings.word_error),
        said_object=_misheard(spoken.said_object, spoken.object, error[1] < settings.word_error),
    )
    return reordered(heard, np.argsort(heard.times[:, 0], kind="stable"))


def reordered(lines: Lines, order: Ints) -> Lines:
    """Return the lines in another order, or some of them."""
    arrays = ("action", "object", "chat", "step", "window", "times", "said_action", "said_object", "wording")
    sources = tuple(lines.sources[row] for row in order) if lines.sources else ()
    return replace(lines, **{name: getattr(lines, name)[order] for name in arrays}, sources=sources)


def _misheard(said: Marks, word: Ints, error: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Marks:
    marks: Marks = np.where(error & (said == SAID) & (word != NONE), MISHEARD, said).astype(np.int8)
    return marks


def _valid(times: Times, duration: float) -> Times:
    """Return times inside the video, each at least `SHORTEST` long."""
    start = np.clip(times[:, 0], 0.0, duration - SHORTEST)
    end = np.clip(times[:, 1], start + SHORTEST, duration)
    return np.round(np.stack((start, np.maximum(end, start + SHORTEST)), axis=1), 2)
