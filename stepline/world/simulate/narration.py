"""What is said in a video: mentions of steps near and far from where they are shown, and talk that shows nothing."""

import numpy as np
import numpy.typing as npt

from stepline.world.simulate.lines import DROPPED, NONE, SAID, Lines
from stepline.world.simulate.settings import NarrationSettings
from stepline.world.simulate.tasks import Ints, Task
from stepline.world.simulate.timeline import Timeline, Times

WORDINGS = 1 << 30  # numbers that a line's wording is drawn from


def narrate(task: Task, timeline: Timeline, settings: NarrationSettings, chats: int, rng: np.random.Generator) -> Lines:
    """Return the narration of a video, in the order of speech; `chats` is how many chat sentences there are."""
    times = _sentences(timeline.duration, settings, rng)
    window = _mentions(timeline, times[:, 0], settings, rng)
    step, object, chat = _meanings(task, timeline, window, settings, chats, rng)
    tells = step != NONE
    drop = rng.random((2, len(times)))
    return Lines(
        style="narration",
        action=np.where(tells, task.actions[step], NONE),
        object=object,
        chat=chat,
        step=step,
        window=window,
        times=times,
        said_action=_marks(tells & (drop[0] < settings.action_dropped)),
        said_object=_marks(tells & (drop[1] < settings.object_dropped)),
        wording=rng.integers(0, WORDINGS, len(times)),
    )


def _marks(dropped: npt.NDArray[np.bool_]) -> npt.NDArray[np.int8]:
    return np.where(dropped, DROPPED, SAID).astype(np.int8)


def _sentences(duration: float, settings: NarrationSettings, rng: np.random.Generator) -> Times:
    """Return the times (S, 2) of sentences that fill the video, at least one."""
    count = int(duration / settings.sentence_least) + 2
    lengths = rng.uniform(settings.sentence_least, settings.sentence_most, count)
    ends = np.cumsum(lengths + rng.exponential(settings.pause, count))
    kept = max(1, int(np.searchsorted(ends, duration, side="right")))
    times = np.stack((ends[:kept] - lengths[:kept], ends[:kept]), axis=1)
    rounded: Times = np.round(np.minimum(times, duration), 2).astype(np.float64)
    return rounded


def _mentions(timeline: Timeline, starts: Times, settings: NarrationSettings, rng: np.random.Generator) -> Ints:
    """Return for each sentence the window that it tells of: each mention takes the free sentence nearest its time."""
    owner = np.repeat(
        np.arange(len(timeline.windows)), 1 + rng.poisson(settings.more_mentions, len(timeline.windows))
    )  # fmt: skip
    tail = settings.offset_scale * rng.standard_t(settings.offset_freedom, len(owner))
    offset = np.clip(settings.offset + tail, -settings.offset_most, settings.offset_most)
    near = _inside(timeline.windows[owner, 0] - offset, timeline.duration)
    anywhere = rng.uniform(0.0, timeline.duration, len(owner))
    wanted = np.where(rng.random(len(owner)) < settings.anywhere, anywhere, near)
    window = np.full(len(starts), NONE)
    for mention in rng.permutation(len(owner))[: len(starts)]:
        distance = np.where(window == NONE, np.abs(starts - wanted[mention]), np.inf)
        window[int(distance.argmin())] = owner[mention]
    return window


def _inside(times: Times, duration: float) -> Times:
    """Reflect times that lie outside the video at its ends."""
    return np.asarray(duration - np.abs(duration - np.mod(times, 2 * duration)))


def _meanings(
    task: Task, timeline: Timeline, window: Ints, settings: NarrationSettings, chats: int, rng: np.random.Generator
) -> tuple[Ints, Ints, Ints]:
    """Return each sentence's step, object and chat."""
    count = len(window)
    free, kind = window == NONE, rng.random(count)
    missing = np.setdiff1d(np.arange(len(task)), timeline.steps)
    absent = free & (kind < settings.absent) & (len(missing) > 0)
    step = np.where(free, NONE, timeline.steps[window])
    if len(missing):
        step = np.where(absent, rng.choice(missing, count), step)
    about = free & ~absent & (kind < settings.absent + settings.object_chat)
    object = np.where(step != NONE, task.objects[step], NONE)
    object = np.where(about, rng.choice(task.objects, count), object)
    chat = np.where(free & ~absent & ~about, rng.integers(0, chats, count), NONE)
    return step, object, chat
