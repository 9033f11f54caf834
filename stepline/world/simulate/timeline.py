"""Which steps of its task a video shows, and when."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.world.simulate.settings import TimelineSettings
from stepline.world.simulate.tasks import Ints

Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Timeline:
    """windows: (P, 2) seconds in order, never overlapping; steps: (P,) what each shows, a step's number in its task."""

    duration: float
    windows: Times
    steps: Ints

    def of(self, step: int) -> Times:
        """Return the windows (n, 2) of a step; none when it is absent."""
        return np.asarray(self.windows[self.steps == step])


def make_timeline(steps: int, settings: TimelineSettings, rng: np.random.Generator) -> Timeline:
    """Return when a video shows which of its task's `steps`."""
    order = _shown(steps, settings, rng)
    count = len(order)
    lengths = settings.window_median * np.exp(settings.window_sigma * rng.standard_normal(count))
    lengths = np.clip(lengths, settings.window_least, settings.window_most)
    gaps = rng.gamma(settings.gap_shape, settings.gap_mean / settings.gap_shape, count + 1)
    gaps[[0, -1]] = rng.gamma(settings.margin_shape, settings.margin_mean / settings.margin_shape, 2)
    ends = np.cumsum(gaps[:-1] + lengths)
    duration = float(ends[-1] + gaps[-1])
    scale = float(np.clip(duration, settings.shortest, settings.longest)) / duration
    windows = np.stack((ends - lengths, ends), axis=1) * scale
    return Timeline(round(duration * scale, 2), np.round(windows, 2), order)


def _shown(steps: int, settings: TimelineSettings, rng: np.random.Generator) -> Ints:
    """Return the shown steps in the order of showing: neighbours swapped, some repeated."""
    shown = rng.random(steps) < settings.present
    if shown.sum() < settings.least_present:
        shown[rng.permutation(steps)[: settings.least_present]] = True
    order: Ints = np.flatnonzero(shown)
    for place in np.flatnonzero(rng.random(len(order) - 1) < settings.swapped):
        order[[place, place + 1]] = order[[place + 1, place]]
    again = np.flatnonzero(rng.random(len(order)) < settings.repeated)
    for place in again[::-1]:
        later = int(rng.integers(place + 1, len(order) + 1))
        order = np.insert(order, later, order[place])
    return order
