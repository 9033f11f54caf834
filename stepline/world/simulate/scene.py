"""What every second of a video shows, before anything encodes it. Letters: T seconds, P windows, L meaning."""

from dataclasses import dataclass

import numpy as np

from stepline.records import Matrix
from stepline.world.simulate.lines import NONE
from stepline.world.simulate.settings import SceneSettings
from stepline.world.simulate.tasks import Domain, Ints, Task
from stepline.world.simulate.timeline import Timeline, Times


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
