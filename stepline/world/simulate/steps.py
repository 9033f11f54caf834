"""Steps as a language model writes them from the narration, and the lines of the task's article."""

from dataclasses import replace

import numpy as np

from stepline.world.simulate.lines import DROPPED, MISHEARD, NONE, SAID, Lines, Marks
from stepline.world.simulate.narration import WORDINGS
from stepline.world.simulate.settings import WriterSettings
from stepline.world.simulate.tasks import Ints, Task
from stepline.world.simulate.timeline import Timeline


def write(heard: Lines, settings: WriterSettings, rng: np.random.Generator) -> Lines:
    """Return the written steps: chunk by chunk, each thing to do once a chunk, with the sentences it rests on.

    `times` of a step is the union of its sentences. Source: NaSVA, section 3.1; the rates are docs/world.md's.
    """
    draw = rng.random(len(heard))
    chance = np.select((heard.step != NONE, heard.object != NONE), (settings.step_kept, settings.object_chat_kept),
                       settings.chat_kept)  # fmt: skip
    groups: dict[tuple[int, ...], list[int]] = {}
    for row in np.flatnonzero(draw < chance):
        meaning = (int(heard.step[row]), int(heard.object[row]), int(heard.chat[row]))
        groups.setdefault((int(row) // settings.chunk, *meaning), []).append(int(row))
    sources = tuple(tuple(rows) for rows in groups.values())
    first = np.array([rows[0] for rows in sources], dtype=np.int64)
    last = np.array([rows[-1] for rows in sources], dtype=np.int64)
    return Lines(
        style="step",
        action=heard.action[first],
        object=heard.object[first],
        chat=heard.chat[first],
        step=heard.step[first],
        window=heard.window[first],
        times=np.stack((heard.times[first, 0], np.maximum(heard.times[first, 1], heard.times[last, 1])), axis=1),
        said_action=_restored(heard.said_action[first], settings, rng),
        said_object=_restored(heard.said_object[first], settings, rng),
        wording=rng.integers(0, WORDINGS, len(first)),
        sources=sources,
    )


def _restored(said: Marks, settings: WriterSettings, rng: np.random.Generator) -> Marks:
    draw = rng.random(len(said))
    good = ((said == DROPPED) & (draw < settings.restored)) | ((said == MISHEARD) & (draw < settings.corrected))
    marks: Marks = np.where(good, SAID, said).astype(np.int8)
    return marks


def article(task: Task, wording: Ints) -> Lines:
    """Return the lines of the task's article in its own order, in no video.

    wording: of every step of the task, so that a line reads the same in every video.
    """
    step, count = task.article, len(task)
    return Lines(
        style="recipe",
        action=task.actions[step],
        object=task.objects[step],
        chat=np.full(count, NONE),
        step=step,
        window=np.full(count, NONE),
        times=np.full((count, 2), np.nan),
        said_action=np.full(count, SAID, np.int8),
        said_object=np.full(count, SAID, np.int8),
        wording=wording[step],
    )


def recipe(task: Task, timeline: Timeline, wording: Ints) -> Lines:
    """Return the article's lines for a video; `window` is the first of a step's windows."""
    first = np.full(len(task), NONE)
    for window in range(len(timeline.steps) - 1, -1, -1):
        first[timeline.steps[window]] = window
    return replace(article(task, wording), window=first[task.article])
