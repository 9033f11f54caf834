"""Which steps are shown in a video and when, and what is in view in every second, before anything
encodes it.

Letters: T seconds, P windows, L dimensions of a meaning.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from research.simulate.settings import SceneSettings, TimelineSettings
from research.simulate.tasks import Domain, Ints, Task
from stepline.records import Matrix

NONE: Final = -1  # no action, object, step, window or chat

Times = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Timeline:
    """windows: (P, 2) seconds in order, never overlapping. steps: (P,) what each shows, a step's
    number in its task.

    again: (P,) True where a window previews a step or shows it once more.
    """

    duration: float
    windows: Times
    steps: Ints
    again: Flags

    def of(self, step: int) -> Times:
        """Return the windows (n, 2) of a step. None when it is absent."""
        return np.asarray(self.windows[self.steps == step])


def make_timeline(steps: int, settings: TimelineSettings, rng: np.random.Generator) -> Timeline:
    """Return when a video shows which of its task's `steps`."""
    order, kind = _shown_order(steps, settings, rng)
    count = len(order)
    spread = np.exp(settings.window_sigma * rng.standard_normal(count))
    lengths = np.clip(settings.window_median * spread, settings.window_least, settings.window_most)
    lengths = np.where(kind == PREVIEW, np.maximum(settings.preview_median * spread, 1.0), lengths)
    gaps = rng.gamma(settings.gap_shape, settings.gap_mean / settings.gap_shape, count + 1)
    gaps[[0, -1]] = rng.gamma(
        settings.margin_shape, settings.margin_mean / settings.margin_shape, 2
    )
    ends = np.cumsum(gaps[:-1] + lengths)
    duration = float(ends[-1] + gaps[-1])
    scale = float(np.clip(duration, settings.shortest, settings.longest)) / duration
    windows = np.stack((ends - lengths, ends), axis=1) * scale
    return Timeline(round(duration * scale, 2), np.round(windows, 2), order, kind != FIRST)


FIRST, PREVIEW, REPEAT = range(3)  # kinds of windows


def _shown_order(
    steps: int, settings: TimelineSettings, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return the shown steps in the order of showing, neighbours swapped, some repeated or
    previewed, and the kinds."""
    shown = rng.random(steps) < settings.present
    if shown.sum() < settings.least_present:
        shown[rng.permutation(steps)[: settings.least_present]] = True
    order: Ints = np.flatnonzero(shown)
    for index in np.flatnonzero(rng.random(len(order) - 1) < settings.swapped):
        order[[index, index + 1]] = order[[index + 1, index]]
    again = np.flatnonzero(rng.random(len(order)) < settings.repeated)
    kind = np.full(len(order), FIRST)
    for index in again[::-1]:
        later = int(rng.integers(index + 1, len(order) + 1))
        order, kind = np.insert(order, later, order[index]), np.insert(kind, later, REPEAT)
    if settings.previewed:
        chosen = np.flatnonzero((rng.random(len(order)) < settings.previewed) & (kind == FIRST))
        for index in chosen + np.arange(len(chosen)):  # each preview moves what follows it by one
            before = int(rng.integers(0, index + 1))
            order, kind = np.insert(order, before, order[index]), np.insert(kind, before, PREVIEW)
    return order, kind


@dataclass(frozen=True)
class Scene:
    """action, object: (T, L) meaning in view. window: (T,) the window that a second is in, or
    NONE."""

    action: Matrix
    object: Matrix
    window: Ints


def make_scene(
    domain: Domain,
    task: Task,
    timeline: Timeline,
    settings: SceneSettings,
    rng: np.random.Generator,
) -> Scene:
    """Return what is in view: actions inside their windows, in part, and objects long before and
    after."""
    seconds: Times = np.arange(int(np.ceil(timeline.duration)), dtype=np.float64) + 0.5
    latest = np.searchsorted(timeline.windows[:, 0], seconds, side="right") - 1
    inside = (latest >= 0) & (seconds < timeline.windows[np.maximum(latest, 0), 1])
    window = np.where(inside, latest, NONE)
    block = (seconds / settings.block).astype(np.int64)
    chance = settings.action_seen * np.where(
        _acting(timeline, seconds, latest, settings), 1.0, settings.seen_around_act
    )
    seen = rng.random(block[-1] + 1)[block] < chance
    background = domain.backgrounds[rng.integers(0, settings.backgrounds, block[-1] + 1)[block]]
    action = domain.actions[task.actions[timeline.steps[window]]]  # (T, L)
    action = np.where(inside[:, None], action * seen[:, None], background)
    return Scene(
        action.astype(np.float32),
        _objects_in_view(domain, task, timeline, seconds, settings),
        window,
    )


def _acting(timeline: Timeline, seconds: Times, window: Ints, settings: SceneSettings) -> Flags:
    """Say for each second (T,) whether it is in the act of the window that began last: not
    before, not after it."""
    start, end = timeline.windows[np.maximum(window, 0)].T
    part = (seconds - start) / (end - start)
    return np.asarray((part >= settings.preparation) & (part < 1.0 - settings.result))


def _objects_in_view(
    domain: Domain, task: Task, timeline: Timeline, seconds: Times, settings: SceneSettings
) -> Matrix:
    """Return the objects in view (T, L): whole inside their windows, fading with the distance
    outside."""
    before = timeline.windows[:, :1] - seconds  # (P, T)
    distance = np.maximum(np.maximum(before, seconds - timeline.windows[:, 1:]), 0.0)
    strength = np.where(
        distance > 0, settings.object_left * np.exp(-distance / settings.object_fades), 1.0
    )
    objects, owner = np.unique(task.objects[timeline.steps], return_inverse=True)
    most = np.zeros((len(objects), len(seconds)))
    np.maximum.at(most, owner, strength)  # (objects, T)
    view: Matrix = (most.T @ domain.objects[objects]).astype(np.float32)
    return view
