"""What every second of a video shows, before anything encodes it. Letters: T seconds, P windows, L meaning.

Which steps of its task a video shows, and when.

The tasks of a world and what their steps mean.

Letters: A actions, O objects, L dimensions of a meaning.

Texts before they are words: what each line means, how much of it is said, and where it is shown.

Random numbers by purpose: what one part draws never changes what another gets.
"""

import zlib
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from research.simulate.settings import SceneSettings, TaskSettings, TimelineSettings
from stepline.records import Matrix

MEANINGS: Final = 1
TASKS: Final = 2
ARTICLES: Final = 3
TIMELINE: Final = 4
NARRATION: Final = 5
RECOGNISER: Final = 6
WRITER: Final = 7
SCENE: Final = 8
BACKBONE: Final = 9
FEATURES: Final = 10
VECTORS: Final = 11
EMBEDDER: Final = 12

WORLD: Final = 0  # the number of the world itself, where videos are numbered from 1


def random(seed: int, number: int, purpose: int, *names: str) -> np.random.Generator:
    """Return the generator of one purpose for the world (`WORLD`) or for a video (its index + 1)."""
    return np.random.default_rng([seed, number, purpose, *(zlib.crc32(name.encode()) for name in names)])


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """An article: step i is (actions[i], objects[i]) in the order of doing; `article` is the order of its lines."""

    number: int
    actions: Ints
    objects: Ints
    article: Ints

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Domain:
    """All tasks, and the unit vectors of meaning: actions (A, L), objects (O, L), backgrounds (B, L)."""

    seed: int
    tasks: tuple[Task, ...]
    actions: Matrix
    objects: Matrix
    backgrounds: Matrix

    def first_line(self, task: int) -> int:
        """Return how many article lines the tasks before this one have: lines are numbered through all tasks."""
        return sum(len(each) for each in self.tasks[:task])


def make_domain(seed: int, settings: TaskSettings, backgrounds: int) -> Domain:
    """Return the tasks and meanings of the world with this seed."""
    rng = random(seed, WORLD, MEANINGS)
    actions, objects, others = (
        unit_rows(rng.standard_normal((count, settings.latent)))
        for count in (settings.actions, settings.objects, backgrounds)
    )
    choose = random(seed, WORLD, TASKS)
    tasks = tuple(_task(number, settings, choose) for number in range(settings.tasks))
    return Domain(seed, tasks, actions, objects, others)


def _task(number: int, settings: TaskSettings, rng: np.random.Generator) -> Task:
    """Draw distinct (action, object) pairs from a few objects."""
    objects = rng.choice(settings.objects, settings.objects_per_task, replace=False)
    count = int(rng.integers(settings.fewest_steps, settings.most_steps + 1))
    pairs = rng.choice(settings.actions * len(objects), count, replace=False)
    article = rng.permutation(count) if settings.shuffled else np.arange(count)
    return Task(number, pairs // len(objects), objects[pairs % len(objects)], article)


def unit_rows(values: npt.NDArray[np.floating]) -> Matrix:
    """Return the rows at length 1, as float32."""
    rows: Matrix = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return rows


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


Style: TypeAlias = Literal["narration", "step", "recipe"]
STYLES: Final[tuple[Style, ...]] = ("narration", "step", "recipe")

SAID: Final = 0
DROPPED: Final = 1  # a pronoun stands in its place
MISHEARD: Final = 2  # the recogniser wrote another word

NONE: Final = -1  # no action, object, step, window or chat

Marks: TypeAlias = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Lines:
    """K texts of one style; every array has K rows.

    action, object, chat: what a line means, numbers of the world's vocabulary or NONE. step: the task's step that it
    tells, NONE for chat. window: the window it tells of, NONE where the video does not show it. times: (K, 2) when it
    is said, NaN for lines that nobody says. said_action, said_object: SAID, DROPPED or MISHEARD. wording: picks the
    words. sources: for each line the narrations that it was written from.
    """

    style: Style
    action: Ints
    object: Ints
    chat: Ints
    step: Ints
    window: Ints
    times: Times
    said_action: Marks
    said_object: Marks
    wording: Ints
    sources: tuple[tuple[int, ...], ...] = ()

    def __len__(self) -> int:
        return len(self.action)

    @property
    def shown(self) -> npt.NDArray[np.bool_]:
        """Tell for each line whether the video shows it."""
        return np.asarray(self.window != NONE)


@dataclass(frozen=True)
class Scene:
    """action, object: (T, L) meaning in view; window: (T,) the window that a second lies in, or NONE."""

    action: Matrix
    object: Matrix
    window: Ints


def make_scene(
    domain: Domain, task: Task, timeline: Timeline, settings: SceneSettings, rng: np.random.Generator
) -> Scene:
    """Return what is in view: actions inside their windows, in part; objects long before and after."""
    seconds: Times = np.arange(int(np.ceil(timeline.duration)), dtype=np.float64) + 0.5
    place = np.searchsorted(timeline.windows[:, 0], seconds, side="right") - 1
    inside = (place >= 0) & (seconds < timeline.windows[np.maximum(place, 0), 1])
    window = np.where(inside, place, NONE)
    block = (seconds / settings.block).astype(np.int64)
    seen = (rng.random(block[-1] + 1) < settings.action_seen)[block]
    background = domain.backgrounds[rng.integers(0, settings.backgrounds, block[-1] + 1)[block]]
    action = domain.actions[task.actions[timeline.steps[window]]]  # (T, L)
    action = np.where(inside[:, None], action * seen[:, None], background)
    return Scene(action.astype(np.float32), _objects(domain, task, timeline, seconds, settings), window)


def _objects(domain: Domain, task: Task, timeline: Timeline, seconds: Times, settings: SceneSettings) -> Matrix:
    """Return the objects in view (T, L): whole inside their windows, fading with the distance outside."""
    before = timeline.windows[:, :1] - seconds  # (P, T)
    distance = np.maximum(np.maximum(before, seconds - timeline.windows[:, 1:]), 0.0)
    strength = np.where(distance > 0, settings.object_left * np.exp(-distance / settings.object_fades), 1.0)
    objects, owner = np.unique(task.objects[timeline.steps], return_inverse=True)
    most = np.zeros((len(objects), len(seconds)))
    np.maximum.at(most, owner, strength)  # (objects, T)
    view: Matrix = (most.T @ domain.objects[objects]).astype(np.float32)
    return view
