"""What the task graph of other videos is worth for placing their steps in a new one, by words alone.

    python benchmarks/graph_prior.py NARRATION.json.gz [--all-steps] [--folds 5] [--cache FILE]
        [--weights WORDINGS,ORDER,SHARE ...]

From each dish of at least three videos, each video is left out once. The annotated steps of the
others are compared (`stepline compare`). Their common steps are the lines that are sought in the
narration of the video that was left out.

A line is there if the video has a step of the same meaning. By `meaning`, that is a cosine of MiniLM
of at least .6 with one of the line's wordings. By `words`, it is half of the content words of the
shorter one. Such a line is placed right if its best second is in the span of such a step. The area
under the curve of P(said) is computed too, for whether a line is there.

Every weight of the grid is scored. Weights are also chosen by folds: those with the best placing
and area on the other dishes are scored on the dishes of the fold. Means are over lines, and
intervals are by a bootstrap over dishes.

--all-steps: lines are all steps of the graph
--cache: P(step) of each sentence, read and written, because the tagger takes minutes
"""

import argparse
import gzip
import itertools
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from compare import (
    BOOTSTRAP_DRAWS,
    BOOTSTRAP_SEED,
    COVERING_COSINE,
    COVERING_WORDS,
    MIN_VIDEOS,
    NO_FLOOR,
    CachedVectors,
    make_record,
    shared_words,
)
from fit_line_model import area_under_curve
from narration import transcript_of

from stepline.compare.procedure import TaskComparison, compare
from stepline.compare.task_graph import task_graph
from stepline.grounding.ground import ground
from stepline.grounding.settings import CoarseSettings
from stepline.grounding.speech import TextPlacement, place_texts
from stepline.grounding.task_graph import TaskGraph, graph_prior
from stepline.outputs.text import one_line
from stepline.records import Matrix, Transcript
from stepline.writing import WritingSettings
from stepline.writing.extractive.writer import transcript_step_probabilities

Weights: TypeAlias = tuple[float, float, float]  # of wordings, order and share

WORDINGS_WEIGHTS = (0.0, 1.0)
ORDER_WEIGHTS = (0.0, 0.25, 0.5, 1.0)
SHARE_WEIGHTS = (0.0, 0.5, 1.0)
NO_WEIGHTS: Weights = (0.0, 0.0, 0.0)
# of the grid, reported with intervals
ABLATION_WEIGHTS: tuple[Weights, ...] = (
    (1.0, 0.0, 0.0),
    (0.0, 0.5, 0.0),
    (0.0, 0.0, 1.0),
    (1.0, 0.0, 1.0),
    (1.0, 0.5, 1.0),
)
RULE_NAMES = ("meaning", "words")
FIGURE_NAMES = ("right (m)", "AUC (m)", "right (w)", "AUC (w)")
MIN_SAID_PROBABILITY = 0.5
Row = dict[str, Any]
Truths = dict[str, list[list[tuple[float, float]]]]  # rule -> line -> spans of the steps it is
Probabilities = dict[str, list[float] | None]  # video -> P(step) of each sentence


@dataclass(frozen=True)
class LeftOutVideo:
    """A video and the graph of the others of its dish."""

    dish: str
    graph: TaskGraph
    transcript: Transcript
    step_probabilities: np.ndarray | None
    truths: Truths


class LineRow(NamedTuple):
    """A line of a video: whether it is there by a rule, placed right, and P(said)."""

    dish: str
    rule: str
    is_there: bool
    is_right: bool
    said_probability: float


def read_dishes(path: Path) -> dict[str, list[tuple[str, Row]]]:
    """Return the named videos of each dish of enough videos."""
    dishes: dict[str, list[tuple[str, Row]]] = defaultdict(list)
    for name, video in json.loads(gzip.decompress(path.read_bytes())).items():
        if video["steps"] and video["sentences"]:
            # as the lines of a graph are
            for step in video["steps"]:
                step["text"] = one_line(step["text"])
            dishes[video["title"]].append((name, video))
    return {dish: rows for dish, rows in sorted(dishes.items()) if len(rows) >= MIN_VIDEOS}


def read_videos(
    path: Path, probabilities: Probabilities, *, all_steps: bool
) -> tuple[list[LeftOutVideo], CachedVectors]:
    """Return the left-out videos of all dishes, and the vectors of their texts.

    probabilities: those that are known. Others are added.
    """
    dishes = read_dishes(path)
    texts = []
    for rows in dishes.values():
        for _, video in rows:
            texts += [row["text"] for row in (*video["steps"], *video["sentences"])]
    vectors = CachedVectors(texts)
    # each video is left out once
    left_out = []
    for dish, rows in dishes.items():
        for name, video in rows:
            others = [other for other_name, other in rows if other_name != name]
            comparison = compare_videos(others, vectors, all_steps=all_steps)
            if not comparison.common_steps:
                continue
            transcript = transcript_of(video)
            if name not in probabilities:
                row = transcript_step_probabilities(transcript, WritingSettings())
                probabilities[name] = None if row is None else row.tolist()
            video_probabilities = probabilities[name]
            array = None if video_probabilities is None else np.array(video_probabilities)
            item = LeftOutVideo(
                dish=dish,
                graph=task_graph(comparison),
                transcript=transcript,
                step_probabilities=array,
                truths=line_truths(comparison, video["steps"], vectors),
            )
            left_out.append(item)
    return left_out, vectors


def compare_videos(
    videos: Sequence[Row], vectors: CachedVectors, *, all_steps: bool
) -> TaskComparison:
    """Return the comparison of the annotated steps of some videos. all_steps: all are common."""
    step_texts = [[step["text"] for step in video["steps"]] for video in videos]
    records = list(map(make_record, range(len(videos)), step_texts))
    comparison = compare(records, NO_FLOOR, embedder=vectors)
    if all_steps:
        steps = [step.model_copy(update={"common": True}) for step in comparison.steps]
        comparison = comparison.model_copy(update={"steps": tuple(steps)})
    return comparison


def line_truths(comparison: TaskComparison, steps: Sequence[Row], vectors: CachedVectors) -> Truths:
    """Return by rule the spans of the video's steps that each line is."""
    texts = [step["text"] for step in steps]
    truths: Truths = {rule: [] for rule in RULE_NAMES}
    for line in comparison.common_steps:
        wordings = [occurrence.text for occurrence in line.occurrences]
        cosines = vectors(texts) @ vectors(wordings).T
        shares = shared_words(texts, wordings)
        same_meaning = cosines.max(axis=1) >= COVERING_COSINE
        same_words = shares.max(axis=1) >= COVERING_WORDS
        for rule, is_line in zip(RULE_NAMES, (same_meaning, same_words), strict=True):
            spans = [tuple(steps[row]["span"]) for row in np.flatnonzero(is_line)]
            truths[rule].append(spans)
    return truths


def said_elsewhere(
    videos: Sequence[LeftOutVideo], weights: Weights, vectors: CachedVectors
) -> float:
    """Return how many lines count as said in a video of another dish."""
    probabilities: list[float] = []
    for number, video in enumerate(videos):
        others = [*videos[number:], *videos[:number]]
        stranger = next(other for other in others if other.dish != video.dish)
        placed = placement(video.graph, stranger, weights, vectors)
        probabilities += placed.tellings.sum(axis=1).tolist()
    return float(np.mean(np.array(probabilities) >= MIN_SAID_PROBABILITY))


def placement(
    graph: TaskGraph, video: LeftOutVideo, weights: Weights, vectors: CachedVectors
) -> TextPlacement:
    """Return where a video says the lines of a graph."""
    wordings, order, share = weights
    settings = CoarseSettings(graph_wordings=wordings, graph_order=order, graph_share=share)
    sentence_texts = [sentence.text for sentence in video.transcript.sentences]
    return place_texts(
        graph.lines,
        video.transcript,
        vectors(sentence_texts),
        vectors(graph.lines),
        step_probabilities=video.step_probabilities,
        settings=settings,
        prior=graph_prior(graph, settings, vectors),
    )


def place_lines(video: LeftOutVideo, weights: Weights, vectors: CachedVectors) -> list[LineRow]:
    """Return what comes of the lines in the video."""
    placed = placement(video.graph, video, weights, vectors)
    grounding = ground(
        placed.steps,
        duration=video.transcript.sentences[-1].span.end,
        transcript=video.transcript,
        written=False,
        tellings=placed.tellings,
    )
    scores: Matrix = grounding.alignment.scores
    said_probabilities = placed.tellings.sum(axis=1)
    rows = []
    for rule, truths in video.truths.items():
        for line, spans in enumerate(truths):
            second = float(scores[line].argmax()) + 0.5
            row = LineRow(
                dish=video.dish,
                rule=rule,
                is_there=bool(spans),
                is_right=any(start <= second <= end for start, end in spans),
                said_probability=float(said_probabilities[line]),
            )
            rows.append(row)
    return rows


def rows_by_rule(rows: Sequence[LineRow]) -> dict[str, list[LineRow]]:
    """Return the rows of each rule."""
    by_rule: dict[str, list[LineRow]] = {rule: [] for rule in RULE_NAMES}
    for row in rows:
        by_rule[row.rule].append(row)
    return by_rule


def figures(rows: Sequence[LineRow]) -> np.ndarray:
    """Return placed right and area under the curve, by meaning and by words, (4,)."""
    values = []
    for rule_rows in rows_by_rule(rows).values():
        is_there = np.array([row.is_there for row in rule_rows])
        is_right = np.array([row.is_right for row in rule_rows])
        probabilities = np.array([row.said_probability for row in rule_rows])
        values.append(is_right[is_there].mean())
        # without either kind nothing is known
        area = np.nan
        if is_there.any() and not is_there.all():
            area = area_under_curve(probabilities, is_there)
        values.append(area)
    return np.array(values)


def said_shares(rows: Sequence[LineRow]) -> str:
    """Return how many of the lines that are there count as said, and of those that are not."""
    cells = []
    for rule, rule_rows in rows_by_rule(rows).items():
        for is_there, name in ((True, "there"), (False, "not there")):
            part = [row.said_probability for row in rule_rows if row.is_there is is_there]
            share = np.mean([probability >= MIN_SAID_PROBABILITY for probability in part])
            cells.append(f"{name} by {rule} {share:.3f}")
    return "said at .5: " + ", ".join(cells)


def by_dish(rows: Sequence[LineRow]) -> dict[str, list[LineRow]]:
    """Return the rows of each dish."""
    dishes: dict[str, list[LineRow]] = defaultdict(list)
    for row in rows:
        dishes[row.dish].append(row)
    return dishes


def dish_figures(dishes: dict[str, list[LineRow]], names: Sequence[str]) -> np.ndarray:
    """Return the figures over the lines of some dishes, each as often as it is named."""
    return figures(list(itertools.chain.from_iterable(dishes[name] for name in names)))


def intervals(rows: Sequence[LineRow], base: Sequence[LineRow]) -> str:
    """Return the figures, and their gains over the base with 95 % intervals over dishes."""
    dishes = by_dish(rows)
    base_dishes = by_dish(base)
    names = sorted(base_dishes)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    draws = []
    for _ in range(BOOTSTRAP_DRAWS // 4):
        drawn_names = rng.choice(names, size=len(names))
        gain = dish_figures(dishes, drawn_names) - dish_figures(base_dishes, drawn_names)
        draws.append(gain)
    lows, highs = np.nanpercentile(draws, [2.5, 97.5], axis=0)
    values = figures(rows)
    gains = values - figures(base)
    cells = []
    for name, value, gain, low, high in zip(FIGURE_NAMES, values, gains, lows, highs, strict=True):
        cells.append(f"{name} {value:.3f} {gain:+.3f} [{low:+.3f}, {high:+.3f}]")
    return "; ".join(cells)


def choose(results: dict[Weights, list[LineRow]], dishes: set[str]) -> Weights:
    """Return the weights of the largest sum of all four figures on the dishes."""

    def total(weights: Weights) -> float:
        rows = [row for row in results[weights] if row.dish in dishes]
        return float(figures(rows).sum())

    return max(results, key=total)


def read_options() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("narration", type=Path)
    parser.add_argument("--all-steps", action="store_true")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--cache", type=Path)
    parser.add_argument(
        "--weights",
        action="append",
        metavar="WORDINGS,ORDER,SHARE",
        help="score these, and no weights, instead of the grid. May be repeated",
    )
    return parser.parse_args()


def main() -> None:
    """Score the grid, and what is chosen by folds."""
    options = read_options()
    cache = options.cache
    probabilities: Probabilities = {}
    if cache is not None and cache.is_file():
        probabilities = json.loads(cache.read_text(encoding="utf-8"))
    videos, vectors = read_videos(options.narration, probabilities, all_steps=options.all_steps)
    if cache is not None:
        cache.write_text(json.dumps(probabilities), encoding="utf-8")

    # every weight
    grid: list[Weights] = list(itertools.product(WORDINGS_WEIGHTS, ORDER_WEIGHTS, SHARE_WEIGHTS))
    reported: Sequence[Weights] = ABLATION_WEIGHTS
    if options.weights is not None:
        reported = list(map(parse_weights, options.weights))
        grid = [NO_WEIGHTS, *reported]
    results: dict[Weights, list[LineRow]] = {}
    for weights in grid:
        rows = [row for video in videos for row in place_lines(video, weights, vectors)]
        results[weights] = rows
        print(weights, figures(rows).round(3).tolist(), flush=True)

    # against lines alone
    base = results[NO_WEIGHTS]
    for rule, rule_rows in rows_by_rule(base).items():
        there = sum(row.is_there for row in rule_rows)
        print(f"{len(videos)} videos, {len(rule_rows)} lines, {there} there by {rule}")
    print(f"lines alone: {figures(base).round(3).tolist()}; {said_shares(base)}")
    share = said_elsewhere(videos, NO_WEIGHTS, vectors)
    print(f"said at .5 in a video of another dish {share:.3f}")
    for weights in reported:
        rows = results[weights]
        print(f"{weights}: {intervals(rows, base)}; {said_shares(rows)}")
        share = said_elsewhere(videos, weights, vectors)
        print(f"  said at .5 in a video of another dish {share:.3f}", flush=True)
    if options.weights is None:
        print_folds(results, options.folds)


def parse_weights(text: str) -> Weights:
    """Return the weights that an option gives."""
    wordings, order, share = map(float, text.split(","))
    return wordings, order, share


def print_folds(results: dict[Weights, list[LineRow]], folds: int) -> None:
    """Choose weights by folds of dishes, and print what they do."""
    base = results[NO_WEIGHTS]
    names = sorted({row.dish for row in base})
    np.random.default_rng(BOOTSTRAP_SEED).shuffle(names)
    held_out_rows = []
    for fold in range(folds):
        held_out = set(names[fold::folds])
        weights = choose(results, set(names) - held_out)
        print(f"fold {fold}: {weights}")
        held_out_rows += [row for row in results[weights] if row.dish in held_out]
    print(f"chosen by folds: {intervals(held_out_rows, base)}; {said_shares(held_out_rows)}")


if __name__ == "__main__":
    main()
