"""Average R@1 as CrossTask has it, for online.py: its videos' own segments in a simulated world."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import real_clips
from baseline_data import TaskVideo, crosstask
from online_figures import Array
from online_recipes import usual_similarity

from research.simulate import SHORT_WORLD, SimulatedVideo, make_world
from research.simulate.scene import Timeline
from research.simulate.tasks import Task
from stepline.evaluate.crosstask import TRAIN_VIDEOS, best_rows, count_hits, rows_shown
from stepline.grounding.evidence import similarity
from stepline.grounding.ground import ground
from stepline.grounding.recipe_filter import RecipeFilter, line_evidence, order_from_videos
from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Matrix, Step

FILTER_LAG = 10  # seconds

HitsByTask = dict[str, list[Array]]  # task -> (hits, steps) of each video


def crosstask_world(videos: Sequence[TaskVideo], seed: int = 0) -> dict[str, SimulatedVideo]:
    """Return videos of a world by id whose lines are shown when CrossTask's steps are.

    Its tasks have as many lines as CrossTask's.
    """
    world = make_world(seed, SHORT_WORLD)
    rng = np.random.default_rng(seed)
    counts = {video.task: video.count for video in videos}
    names = sorted(counts)
    kinds = SHORT_WORLD.tasks
    tasks = []
    for number, name in enumerate(names):
        objects = rng.choice(kinds.objects, kinds.objects_per_task, replace=False)
        pairs = rng.choice(kinds.actions * len(objects), counts[name], replace=False)
        actions = pairs // len(objects)
        step_objects = objects[pairs % len(objects)]
        order = np.arange(counts[name])
        tasks.append(Task(number, actions, step_objects, order))
    wordings = tuple(np.zeros(len(task), dtype=np.int64) for task in tasks)
    domain = replace(world.domain, tasks=tuple(tasks))
    world = replace(world, domain=domain, wordings=wordings)

    simulated = {}
    for index, video in enumerate(videos):
        task = tasks[names.index(video.task)]
        timeline = timeline_of(video)
        simulated[video.id] = SimulatedVideo(world, index, video.id, "train", task, timeline)
    return simulated


def timeline_of(video: TaskVideo) -> Timeline:
    """Return when the steps of a CrossTask video are shown, in the order of their starts."""
    order = np.argsort(video.segments[:, 0], kind="stable")
    steps = np.array(video.steps)[order]
    is_repeated = [step in steps[:number] for number, step in enumerate(steps)]
    again = np.array(is_repeated, dtype=bool)
    return Timeline(video.duration, video.segments[order], steps, again)


def print_crosstask(max_videos: int) -> dict[str, Any]:
    """Print average R@1 of each method, over the first test videos of every task.

    30 others of the task are known.
    """
    videos = crosstask()
    rng = np.random.default_rng(0)
    simulated = crosstask_world(videos)
    by_task: dict[str, list[TaskVideo]] = {}
    for video in videos:
        by_task.setdefault(video.task, []).append(video)

    # the hits of each method, task by task
    hits_of_method: dict[str, HitsByTask] = {}
    for task, task_videos in sorted(by_task.items()):
        shuffled = [task_videos[number] for number in rng.permutation(len(task_videos))]
        train = shuffled[:TRAIN_VIDEOS]
        test = shuffled[TRAIN_VIDEOS : TRAIN_VIDEOS + max_videos]
        for name, hits in task_hits(train, test, simulated).items():
            hits_of_method.setdefault(name, {})[task] = hits
        print(task, flush=True)

    # a row per method
    result = {}
    print("| method | online | training-free | average R@1 |\n|---|---|---|---|")
    for name, hits_by_task in hits_of_method.items():
        draws = [recall(hits_by_task, rng) for _ in range(real_clips.BOOTSTRAP_DRAWS)]
        low, high = np.percentile(draws, [2.5, 97.5])
        value = recall(hits_by_task)
        result[name] = [round(100 * float(figure), 1) for figure in (value, low, high)]
        is_online = "offline" not in name
        is_free = "other videos" not in name
        cell = "{} [{}, {}]".format(*result[name])
        print(f"| {name} | {yes_or_no(is_online)} | {yes_or_no(is_free)} | {cell} |")
    return result


def yes_or_no(flag: bool) -> str:
    """Return a flag as printed."""
    return "yes" if flag else "no"


def task_hits(
    train: Sequence[TaskVideo], test: Sequence[TaskVideo], simulated: dict[str, SimulatedVideo]
) -> HitsByTask:
    """Return by method the (hits, steps) of each test video of a task."""
    # what other videos of the task show: the order of its steps, and the usual likeness
    orders = []
    pairs = []
    for video in train:
        order = np.argsort(video.segments[:, 0], kind="stable")
        orders.append([video.steps[number] for number in order])
        pairs.append((simulated[video.id].features(), simulated[video.id].vectors("recipe")))
    before = order_from_videos(orders, train[0].count)
    usual = usual_similarity(pairs)

    hits: HitsByTask = {}
    for video in test:
        features = simulated[video.id].features()
        vectors = simulated[video.id].vectors("recipe")
        segments = [(start, end) for start, end in video.segments]
        truth = rows_shown(segments, video.steps, len(features.values), video.count)
        for name, now in crosstask_methods(features, vectors, before, usual).items():
            rows = best_rows(-now.T).astype(np.float64)
            hits.setdefault(name, []).append(np.array(count_hits(rows, truth)))
    return hits


def recall(hits_by_task: HitsByTask, rng: np.random.Generator | None = None) -> float:
    """Return recall averaged over tasks, of the videos or of as many drawn from them."""
    means = []
    for rows in hits_by_task.values():
        table = np.array(rows)
        if rng is not None:
            table = table[rng.integers(0, len(table), len(table))]
        hits = table[:, 0].sum()
        steps = table[:, 1].sum()
        means.append(hits / max(1.0, steps))
    return float(np.mean(means))


def crosstask_methods(
    features: FeatureSequence, vectors: Matrix, before: Array, usual: tuple[float, float]
) -> dict[str, Array]:
    """Return scores (K, T) of each method. No line is spoken of."""
    count = len(vectors)
    seconds = len(features.values)
    cosine = similarity(features, vectors, seconds)
    lines = [Step(id=str(number), text=str(number)) for number in range(count)]
    offline = ground(
        lines, duration=float(seconds), features=features, step_vectors=vectors, written=False
    )
    middles = np.arange(seconds) + 0.5
    line_middles = (np.arange(count) + 0.5) / count * seconds
    scores = {
        "order alone, evenly, offline": -np.abs(middles - line_middles[:, None]),
        "each second's likeness": cosine,
        "`ground`, offline": offline.alignment.scores.astype(np.float64),
    }
    no_order = np.full((count, count), 0.5)
    choices = {
        "filter, no order": (no_order, None),
        "filter, the order of the steps": (None, None),
        "filter, no order, usual likeness of other videos": (no_order, usual),
        "filter, order and usual likeness of other videos": (before, usual),
    }
    for name, (order, likeness) in choices.items():
        now, late = filtered(cosine, order, likeness)
        scores[name] = now
        scores[f"{name}, {FILTER_LAG} s later"] = late
    return scores


def filtered(
    cosine: Array, order: Array | None, likeness: tuple[float, float] | None
) -> tuple[Array, Array]:
    """Return P(line shown), (K, T), by the recipe filter: immediately and FILTER_LAG s later."""
    count, seconds = cosine.shape
    settings = GroundSettings()
    recipe = RecipeFilter(count, settings, before=order, lag=FILTER_LAG)
    prior = np.full((count, seconds), 1 / seconds)
    is_said = np.zeros(count, dtype=bool)
    rate = np.full(count, settings.unsaid_rate)
    now = np.zeros((count, seconds))
    late = cosine * 0.0
    for second in range(seconds):
        end = second + 1
        past = cosine[:, :end]
        evidence = line_evidence(prior[:, :end], past, is_said, 0.0, settings, usual=likeness)
        recipe.update(evidence[:, -1:], rate)
        now[:, second] = recipe.state().now
        if second >= FILTER_LAG:
            late[:, second - FILTER_LAG] = recipe.state(FILTER_LAG).now
    return now, late
