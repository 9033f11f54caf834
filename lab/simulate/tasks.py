"""The tasks of a world and what their steps mean. Random numbers by purpose.

What one part draws never changes what another gets. Letters: A actions, O objects, L dimensions of
a meaning.
"""

import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from lab.simulate.settings import TaskSettings
from stepline.records import Matrix


class Purpose(IntEnum):
    """What random numbers are drawn for."""

    MEANINGS = 1
    TASKS = 2
    ARTICLES = 3
    TIMELINE = 4
    NARRATION = 5
    RECOGNISER = 6
    WRITER = 7
    SCENE = 8
    BACKBONE = 9
    FEATURES = 10
    VECTORS = 11


WORLD_NUMBER: Final = 0  # the number of the world itself, where videos are numbered from 1


def random_stream(seed: int, number: int, purpose: Purpose, *names: str) -> np.random.Generator:
    """Return the generator of one purpose for the world (`WORLD_NUMBER`) or for a video (its index +
    1)."""
    name_digests = [zlib.crc32(name.encode()) for name in names]
    return np.random.default_rng([seed, number, purpose, *name_digests])


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """An article: step i is (actions[i], objects[i]) in the order of doing. `article` is the order
    of its lines."""

    number: int
    actions: Ints
    objects: Ints
    article: Ints

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True)
class Domain:
    """All tasks, and the unit vectors of meaning: actions (A, L), objects (O, L), backgrounds (B,
    L)."""

    seed: int
    tasks: tuple[Task, ...]
    actions: Matrix
    objects: Matrix
    backgrounds: Matrix

    def first_line(self, task: int) -> int:
        """Return how many article lines the tasks before this one have: lines are numbered through
        all tasks."""
        return sum(len(other) for other in self.tasks[:task])


def make_domain(seed: int, settings: TaskSettings, backgrounds: int) -> Domain:
    """Return the tasks and meanings of the world with this seed."""
    rng = random_stream(seed, WORLD_NUMBER, Purpose.MEANINGS)
    actions = unit_rows(rng.standard_normal((settings.actions, settings.latent)))
    objects = unit_rows(rng.standard_normal((settings.objects, settings.latent)))
    other_actions = unit_rows(rng.standard_normal((backgrounds, settings.latent)))
    task_rng = random_stream(seed, WORLD_NUMBER, Purpose.TASKS)
    tasks = tuple(_task(number, settings, task_rng) for number in range(settings.tasks))
    return Domain(seed, tasks, actions, objects, other_actions)


def _task(number: int, settings: TaskSettings, rng: np.random.Generator) -> Task:
    """Draw distinct (action, object) pairs from a few objects."""
    objects = rng.choice(settings.objects, settings.objects_per_task, replace=False)
    count = int(rng.integers(settings.fewest_steps, settings.most_steps + 1))
    pair_count = settings.actions * len(objects)
    pairs = rng.choice(pair_count, count, replace=False)
    article = np.arange(count)
    if settings.shuffled:
        article = rng.permutation(count)
    step_objects = objects[pairs % len(objects)]
    return Task(number, pairs // len(objects), step_objects, article)


def unit_rows(values: npt.NDArray[np.floating]) -> Matrix:
    """Return the rows at length 1, as float32."""
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    rows: Matrix = (values / lengths).astype(np.float32)
    return rows
