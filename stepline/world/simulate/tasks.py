"""The tasks of a world and what their steps mean.

Letters: A actions, O objects, L dimensions of a meaning.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.records import Matrix
from stepline.world.simulate import streams
from stepline.world.simulate.settings import TaskSettings

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
    rng = streams.random(seed, streams.WORLD, streams.MEANINGS)
    actions, objects, others = (
        unit_rows(rng.standard_normal((count, settings.latent)))
        for count in (settings.actions, settings.objects, backgrounds)
    )
    choose = streams.random(seed, streams.WORLD, streams.TASKS)
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
