"""The current line of a recipe while its video runs, for online.py: drawn videos and a simulated world.

The line reported is compared with the one that is shown, in the seconds that show one.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grounding
import numpy as np
import real_clips
from grounding import unplaced
from online_figures import Array, Counts, Flags, interval, one_at_last, seconds_right, shown_seconds

from research.drawn_videos import true_record
from research.simulate import SimulatedVideo, simulate
from stepline.grounding.evidence import similarity
from stepline.grounding.ground import ground
from stepline.grounding.online import OnlineGrounder
from stepline.grounding.recipe_filter import order_from_videos
from stepline.grounding.speech import steps_from_texts
from stepline.records import FeatureSequence, Matrix, Step
from stepline.vision import Activity

FOLLOW_LAGS = (0, 10)  # seconds


@dataclass(frozen=True)
class FollowedVideo:
    """A recipe's video. lines_at: the lines as known at a second. vectors: (K, D). truth: (K, T)."""

    lines_at: Callable[[float], list[Step]]
    features: FeatureSequence
    vectors: Matrix
    truth: Flags
    before: Array | None
    activity: Activity | None = None
    usual: tuple[float, float] | None = None


def current_line(video: FollowedVideo) -> Counts:
    """Return in how many of the seconds that show a line each method reports it."""
    count, seconds = video.truth.shape
    cosine = np.nan_to_num(similarity(video.features, video.vectors, seconds))
    offline = ground(
        video.lines_at(math.inf),
        duration=float(seconds),
        features=video.features,
        step_vectors=video.vectors,
        activity=video.activity,
        written=False,
    )
    answers = {
        "last said": last_said_lines(video),
        "order alone (evenly, with the length known)": evenly_spread_lines(count, seconds),
        "pictures alone": cosine - cosine.min() + 1e-6,
        "`ground`, offline": offline.alignment.scores.astype(np.float64),
    }
    no_order = np.full((count, count), 0.5)
    orders = {"the order of the lines": None, "no order": no_order}
    if video.before is not None:
        orders["the order of other videos"] = video.before
    for name, before in orders.items():
        for lag, now in follow(video, before).items():
            answers[f"filter, {name}, lag {lag} s"] = now
    row: Counts = {}
    for name, now in answers.items():
        row |= seconds_right(now, video.truth, name)
    return row


def last_said_lines(video: FollowedVideo) -> Array:
    """Return (K, T): 1 at the line whose words ended last."""
    count, seconds = video.truth.shape
    answers = np.zeros((count, seconds))
    for second in range(seconds):
        ends = []
        for line in video.lines_at(second + 1.0):
            ends.append(line.said.end if line.said else -1.0)
        row = one_at_last(ends)
        if row is not None:
            answers[row, second] = 1.0
    return answers


def evenly_spread_lines(count: int, seconds: int) -> Array:
    """Return (K, T): 1 at the line of a second if the lines divide the video evenly."""
    middles = np.arange(seconds) + 0.5
    rows = np.minimum(middles / seconds * count, count - 1).astype(int)
    return (rows == np.arange(count)[:, None]).astype(float)


def follow(video: FollowedVideo, before: Array | None) -> dict[int, Array]:
    """Return P(line shown), (K, T), as reported immediately and ten seconds later."""
    count, seconds = video.truth.shape
    grounder = OnlineGrounder(before=before, usual=video.usual, written=False)
    answers = {lag: np.zeros((count, seconds)) for lag in FOLLOW_LAGS}
    for second in range(seconds):
        until = second + 1.0
        grounder.update_steps(video.lines_at(until), vectors=video.vectors)
        grounder.update_pictures(until, features=video.features, activity=video.activity)
        for lag, now in answers.items():
            if second >= lag:
                now[:, second - lag] = grounder.follow(lag).now
    # the last seconds, for which the video has no later one
    longest = max(FOLLOW_LAGS)
    for second in range(max(0, seconds - longest), seconds):
        answers[longest][:, second] = grounder.follow(seconds - 1 - second).now
    return answers


def lines_known(lines: Sequence[Step]) -> Callable[[float], list[Step]]:
    """Return the lines as they are known by a second: said only if their words have ended."""

    def lines_at(second: float) -> list[Step]:
        current = []
        for line in lines:
            if line.said is not None and line.said.end > second:
                line = line.model_copy(update={"said": None, "sources": ()})
            current.append(line)
        return current

    return lines_at


def drawn_recipes(cache: Path, seeds: Sequence[int]) -> list[Counts]:
    """Return the counts of each drawn video. Its steps are the lines."""
    rows = []
    for seed in range(*seeds):
        path, script = grounding.rendered(seed, cache)
        pictures = grounding.seen(path, [step.text for step in script.steps])
        reference = true_record(script).reference
        lines = []
        for step in reference:
            lines.append(unplaced(step).model_copy(update={"sources": ()}))
        truth = shown_seconds([step.spans for step in reference], math.ceil(script.duration))
        video = FollowedVideo(
            lines_at=lines_known(lines),
            features=pictures.features,
            vectors=pictures.vectors,
            truth=truth,
            before=None,
            activity=pictures.activity,
        )
        rows.append(current_line(video))
        print("drawn", seed, flush=True)
    return rows


def world_recipes(seed: int, count: int) -> list[Counts]:
    """Return the counts of the first held-out videos of a world.

    Orders and usual likeness are of the others.
    """
    simulation = simulate(seed)
    train = [video for video in simulation.videos if video.subset == "train"]
    held_out = [video for video in simulation.videos if video.subset != "train"]
    usual = usual_similarity([(video.features(), video.vectors("recipe")) for video in train])
    rows = []
    for video in held_out[:count]:
        row_of_step = {int(step): row for row, step in enumerate(video.recipe.step)}
        orders = []
        for other in train:
            if other.task.number == video.task.number:
                orders.append([row_of_step[int(step)] for step in other.timeline.steps])
        followed = FollowedVideo(
            lines_at=functools.cache(simulated_lines(video)),
            features=video.features(),
            vectors=video.vectors("recipe"),
            truth=video.shown("recipe"),
            before=order_from_videos(orders, len(video.record.recipe)),
            usual=usual,
        )
        rows.append(current_line(followed))
        print("world", video.id, flush=True)
    return rows


def simulated_lines(video: SimulatedVideo) -> Callable[[float], list[Step]]:
    """Return the lines of a simulated video as they are known by a second."""
    texts = list(video.record.recipe)
    transcript = video.record.transcript
    assert transcript is not None

    def lines_at(second: float) -> list[Step]:
        ended = [sentence.span.end <= second for sentence in transcript.sentences]
        # the sentences before the first that has not ended
        count = int(np.argmin([*ended, False]))
        current = transcript.model_copy(update={"sentences": transcript.sentences[:count]})
        sentence_vectors = video.embeddings("narration")[:count]
        steps = steps_from_texts(texts, current, sentence_vectors, video.embeddings("recipe"))
        return [step.model_copy(update={"sources": ()}) for step in steps]

    return lines_at


def usual_similarity(videos: Sequence[tuple[FeatureSequence, Matrix]]) -> tuple[float, float]:
    """Return the mean and the spread of the cosine of lines and seconds of videos."""
    means = []
    spreads = []
    for features, vectors in videos:
        cosine = similarity(features, vectors, len(features.values))
        means.append(cosine.mean())
        spreads.append(cosine.std())
    return float(np.mean(means)), float(np.mean(spreads))


def print_recipes(cache: Path, seeds: Sequence[int], count: int) -> dict[str, Any]:
    """Print one row per method."""
    drawn = real_clips.table(drawn_recipes(cache, seeds))
    world = real_clips.table(world_recipes(0, count))
    print("| | drawn videos | simulated world |\n|---|---|---|")
    for name, figures in world.items():
        drawn_cell = interval(drawn[name]) if name in drawn else ""
        print(f"| {name} | {drawn_cell} | {interval(figures)} |")
    return {"drawn": drawn, "world": world}
