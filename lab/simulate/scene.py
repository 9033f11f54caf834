"""Which steps are shown in a video and when, and what is in view in every second, before anything
encodes it.

Letters: T seconds, P windows, L dimensions of a meaning.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lab.simulate.settings import SceneSettings, TimelineSettings
from lab.simulate.tasks import Domain, Ints, Task
from stepline.records import Matrix

NO_INDEX: Final = -1  # no action, object, step, window or chat

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

    # how long each window is
    spread = np.exp(settings.window_sigma * rng.standard_normal(count))
    window_lengths = settings.window_median * spread
    lengths = np.clip(window_lengths, settings.window_least, settings.window_most)
    preview_lengths = np.maximum(settings.preview_median * spread, 1.0)
    lengths = np.where(kind == PREVIEW_SHOWING, preview_lengths, lengths)

    # the time between windows, and the margins of the video
    gap_scale = settings.gap_mean / settings.gap_shape
    gaps = rng.gamma(settings.gap_shape, gap_scale, count + 1)
    margin_scale = settings.margin_mean / settings.margin_shape
    gaps[[0, -1]] = rng.gamma(settings.margin_shape, margin_scale, 2)
    ends = np.cumsum(gaps[:-1] + lengths)

    # a video outside the limits is stretched or shrunk as a whole
    duration = float(ends[-1] + gaps[-1])
    limited_duration = float(np.clip(duration, settings.shortest, settings.longest))
    scale = limited_duration / duration
    windows = np.stack((ends - lengths, ends), axis=1) * scale
    again = kind != FIRST_SHOWING
    return Timeline(round(duration * scale, 2), np.round(windows, 2), order, again)


# Kinds of windows.
FIRST_SHOWING: Final = 0
PREVIEW_SHOWING: Final = 1
REPEATED_SHOWING: Final = 2


def _shown_order(
    steps: int, settings: TimelineSettings, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Return the shown steps in the order of showing, neighbours swapped, some repeated or
    previewed, and the kinds."""
    is_shown = rng.random(steps) < settings.present
    if is_shown.sum() < settings.least_present:
        is_shown[rng.permutation(steps)[: settings.least_present]] = True
    order: Ints = np.flatnonzero(is_shown)

    is_swapped = rng.random(len(order) - 1) < settings.swapped
    for index in np.flatnonzero(is_swapped):
        order[[index, index + 1]] = order[[index + 1, index]]

    repeated_rows = np.flatnonzero(rng.random(len(order)) < settings.repeated)
    kind = np.full(len(order), FIRST_SHOWING)
    for index in repeated_rows[::-1]:
        later = int(rng.integers(index + 1, len(order) + 1))
        order = np.insert(order, later, order[index])
        kind = np.insert(kind, later, REPEATED_SHOWING)

    if settings.previewed:
        is_previewed = rng.random(len(order)) < settings.previewed
        previewed_rows = np.flatnonzero(is_previewed & (kind == FIRST_SHOWING))
        # each preview moves what follows it by one
        for index in previewed_rows + np.arange(len(previewed_rows)):
            before = int(rng.integers(0, index + 1))
            order = np.insert(order, before, order[index])
            kind = np.insert(kind, before, PREVIEW_SHOWING)
    return order, kind


@dataclass(frozen=True)
class Scene:
    """action, object: (T, L) meaning in view. window: (T,) the window that a second is in, or
    NO_INDEX."""

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
    # the window of each second
    seconds: Times = np.arange(int(np.ceil(timeline.duration)), dtype=np.float64) + 0.5
    starts = timeline.windows[:, 0]
    ends = timeline.windows[:, 1]
    latest = np.searchsorted(starts, seconds, side="right") - 1
    inside = (latest >= 0) & (seconds < ends[np.maximum(latest, 0)])
    window = np.where(inside, latest, NO_INDEX)

    # whether its action is visible, drawn once per block
    block = (seconds / settings.block).astype(np.int64)
    block_count = block[-1] + 1
    acting = _acting(timeline, seconds, latest, settings)
    probability = settings.action_seen * np.where(acting, 1.0, settings.seen_around_act)
    visible = rng.random(block_count)[block] < probability
    background_numbers = rng.integers(0, settings.backgrounds, block_count)
    background = domain.backgrounds[background_numbers[block]]

    step_actions = task.actions[timeline.steps]
    action = domain.actions[step_actions[window]]  # (T, L)
    action = np.where(inside[:, None], action * visible[:, None], background)
    objects = _objects_in_view(domain, task, timeline, seconds, settings)
    return Scene(action.astype(np.float32), objects, window)


def _acting(timeline: Timeline, seconds: Times, window: Ints, settings: SceneSettings) -> Flags:
    """Say for each second (T,) whether it is in the act of the window that began last: not
    before, not after it."""
    start, end = timeline.windows[np.maximum(window, 0)].T
    part = (seconds - start) / (end - start)
    has_begun = part >= settings.preparation
    has_not_ended = part < 1.0 - settings.result
    return np.asarray(has_begun & has_not_ended)


def _objects_in_view(
    domain: Domain, task: Task, timeline: Timeline, seconds: Times, settings: SceneSettings
) -> Matrix:
    """Return the objects in view (T, L): whole inside their windows, fading with the distance
    outside."""
    before = timeline.windows[:, :1] - seconds  # (P, T)
    after = seconds - timeline.windows[:, 1:]
    distance = np.maximum(np.maximum(before, after), 0.0)
    faded = settings.object_left * np.exp(-distance / settings.object_fades)
    strength = np.where(distance > 0, faded, 1.0)

    # an object of several windows is as visible as in the nearest one
    step_objects = task.objects[timeline.steps]
    objects, owner = np.unique(step_objects, return_inverse=True)
    most = np.zeros((len(objects), len(seconds)))
    np.maximum.at(most, owner, strength)  # (objects, T)
    view: Matrix = (most.T @ domain.objects[objects]).astype(np.float32)
    return view
