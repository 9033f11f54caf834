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

WORDINGS = (0.0, 1.0)
ORDERS = (0.0, 0.25, 0.5, 1.0)
SHARES = (0.0, 0.5, 1.0)
FLAT = (0.0, 0.0, 0.0)
# of the grid, reported with intervals
ABLATION = ((1.0, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 1.0), (1.0, 0.5, 1.0))
Weights: TypeAlias = tuple[float, float, float]  # of wordings, order and share


@dataclass(frozen=True)
class LeftOutVideo:
    """A video and the graph of the others of its dish. truths: by rule, the spans of the steps
    that each line is, else []."""

    dish: str
    graph: TaskGraph
    transcript: Transcript
    step_probabilities: np.ndarray | None
    truths: dict[str, list[list[tuple[float, float]]]]


class LineRow(NamedTuple):
    """A line of a video: whether it is there by a rule, placed right, and P(said)."""

    dish: str
    rule: str
    there: bool
    right: bool
    said: float


def read_videos(
    path: Path, chances: dict[str, list[float] | None], *, all_steps: bool
) -> tuple[list[LeftOutVideo], CachedVectors]:
    """Return the left-out videos of all dishes, and the vectors of their texts."""
    dishes: dict[str, list[tuple[str, Any]]] = defaultdict(list)
    for name, video in json.loads(gzip.decompress(path.read_bytes())).items():
        if video["steps"] and video["sentences"]:
            # as the lines of a graph are
            for step in video["steps"]:
                step["text"] = one_line(step["text"])
            dishes[video["title"]].append((name, video))
    chosen = {dish: rows for dish, rows in sorted(dishes.items()) if len(rows) >= MIN_VIDEOS}
    texts = []
    for rows in chosen.values():
        for _, video in rows:
            texts += [row["text"] for row in (*video["steps"], *video["sentences"])]
    vectors = CachedVectors(texts)
    settings = NO_FLOOR
    left_out = []
    for dish, rows in chosen.items():
        for name, video in rows:
            others = [other for other_name, other in rows if other_name != name]
            step_texts = [[step["text"] for step in other["steps"]] for other in others]
            records = list(map(make_record, range(len(others)), step_texts))
            comparison = compare(records, settings, embedder=vectors)
            if all_steps:
                steps = [step.model_copy(update={"common": True}) for step in comparison.steps]
                comparison = comparison.model_copy(update={"steps": tuple(steps)})
            if not comparison.common_steps:
                continue
            transcript = transcript_of(video)
            if name not in chances:
                row = transcript_step_probabilities(transcript, WritingSettings())
                chances[name] = None if row is None else row.tolist()
            known = chances[name]
            item = LeftOutVideo(
                dish,
                task_graph(comparison),
                transcript,
                None if known is None else np.array(known),
                line_truths(comparison, video["steps"], vectors),
            )
            left_out.append(item)
    return left_out, vectors


def line_truths(
    comparison: TaskComparison, steps: Sequence[dict[str, Any]], vectors: CachedVectors
) -> dict[str, list[list[tuple[float, float]]]]:
    """Return by rule the spans of the video's steps that each line is."""
    texts = [step["text"] for step in steps]
    truths: dict[str, list[list[tuple[float, float]]]] = {"meaning": [], "words": []}
    for line in comparison.common_steps:
        wordings = [occurrence.text for occurrence in line.occurrences]
        cosines = vectors(texts) @ vectors(wordings).T
        shares = shared_words(texts, wordings)
        for rule, likeness, floor in (
            ("meaning", cosines, COVERING_COSINE),
            ("words", shares, COVERING_WORDS),
        ):
            is_line = likeness.max(axis=1) >= floor
            spans = [tuple(steps[row]["span"]) for row in np.flatnonzero(is_line)]
            truths[rule].append(spans)
    return truths


def said_elsewhere(
    videos: Sequence[LeftOutVideo], weights: Weights, vectors: CachedVectors
) -> float:
    """Return how many lines count as said in a video of another dish."""
    said: list[float] = []
    for number, video in enumerate(videos):
        others = [*videos[number:], *videos[:number]]
        stranger = next(other for other in others if other.dish != video.dish)
        said += placement(video.graph, stranger, weights, vectors).tellings.sum(axis=1).tolist()
    return float(np.mean(np.array(said) >= 0.5))


def placement(
    graph: TaskGraph, video: LeftOutVideo, weights: Weights, vectors: CachedVectors
) -> TextPlacement:
    """Return where a video says the lines of a graph."""
    wordings, order, share = weights
    settings = CoarseSettings(graph_wordings=wordings, graph_order=order, graph_share=share)
    return place_texts(
        graph.lines,
        video.transcript,
        vectors([sentence.text for sentence in video.transcript.sentences]),
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
    said = placed.tellings.sum(axis=1)
    rows = []
    for rule, truths in video.truths.items():
        for line, spans in enumerate(truths):
            second = float(scores[line].argmax()) + 0.5
            is_right = any(start <= second <= end for start, end in spans)
            rows.append(LineRow(video.dish, rule, bool(spans), is_right, float(said[line])))
    return rows


def figures(rows: Sequence[LineRow]) -> np.ndarray:
    """Return placed right and area under the curve, by meaning and by words, (4,)."""
    values = []
    for rule in ("meaning", "words"):
        of_rule = [row for row in rows if row.rule == rule]
        is_there = np.array([row.there for row in of_rule])
        said = np.array([row.said for row in of_rule])
        right = np.array([row.right for row in of_rule])
        values.append(right[is_there].mean())
        # without either kind nothing is known
        both = is_there.any() and not is_there.all()
        values.append(area_under_curve(said, is_there) if both else np.nan)
    return np.array(values)


def said_shares(rows: Sequence[LineRow]) -> str:
    """Return how many of the lines that are there count as said, and of those that are not."""
    cells = []
    for rule in ("meaning", "words"):
        for is_there, name in ((True, "there"), (False, "not there")):
            said = [row.said >= 0.5 for row in rows if row.rule == rule and row.there is is_there]
            cells.append(f"{name} by {rule} {np.mean(said):.3f}")
    return "said at .5: " + ", ".join(cells)


def by_dish(rows: Sequence[LineRow]) -> dict[str, list[LineRow]]:
    """Return the rows of each dish."""
    dishes: dict[str, list[LineRow]] = defaultdict(list)
    for row in rows:
        dishes[row.dish].append(row)
    return dishes


def intervals(rows: Sequence[LineRow], base: Sequence[LineRow]) -> str:
    """Return the figures, and their gains over the base with 95 % intervals over dishes."""
    of_rows = by_dish(rows)
    of_base = by_dish(base)
    names = sorted(of_base)
    rng = np.random.default_rng(BOOTSTRAP_SEED)
    draws = []
    for _ in range(BOOTSTRAP_DRAWS // 4):
        drawn = rng.choice(names, size=len(names))
        ours = list(itertools.chain.from_iterable(of_rows[name] for name in drawn))
        theirs = list(itertools.chain.from_iterable(of_base[name] for name in drawn))
        draws.append(figures(ours) - figures(theirs))
    low, high = np.nanpercentile(draws, [2.5, 97.5], axis=0)
    gains = figures(rows) - figures(base)
    cells = []
    for number, name in enumerate(("right (m)", "AUC (m)", "right (w)", "AUC (w)")):
        value = figures(rows)[number]
        gain = f"{gains[number]:+.3f} [{low[number]:+.3f}, {high[number]:+.3f}]"
        cells.append(f"{name} {value:.3f} {gain}")
    return "; ".join(cells)


def choose(results: dict[Weights, list[LineRow]], dishes: set[str]) -> Weights:
    """Return the weights of the largest sum of all four figures on the dishes."""

    def total(weights: Weights) -> float:
        rows = [row for row in results[weights] if row.dish in dishes]
        return float(figures(rows).sum())

    return max(results, key=total)


def main() -> None:
    """Score the grid, and what is chosen by folds."""
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
        help="these alone, and none; may be given again",
    )
    options = parser.parse_args()
    chances = {}
    if options.cache is not None and options.cache.is_file():
        chances = json.loads(options.cache.read_text(encoding="utf-8"))
    videos, vectors = read_videos(options.narration, chances, all_steps=options.all_steps)
    if options.cache is not None:
        options.cache.write_text(json.dumps(chances), encoding="utf-8")
    results: dict[Weights, list[LineRow]] = {}
    grid: list[Weights] = list(itertools.product(WORDINGS, ORDERS, SHARES))
    if options.weights is not None:
        grid = [FLAT]
        for text in options.weights:
            wordings, order, share = map(float, text.split(","))
            grid.append((wordings, order, share))
    for weights in grid:
        rows = [row for video in videos for row in place_lines(video, weights, vectors)]
        results[weights] = rows
        print(weights, figures(rows).round(3).tolist(), flush=True)
    base = results[FLAT]
    for rule in ("meaning", "words"):
        there = [row.there for row in base if row.rule == rule]
        print(f"{len(videos)} videos, {len(there)} lines, {sum(there)} there by {rule}")
    print(f"lines alone: {figures(base).round(3).tolist()}; {said_shares(base)}")
    print(f"said at .5 in a video of another dish {said_elsewhere(videos, FLAT, vectors):.3f}")
    for weights in grid[1:] if options.weights is not None else ABLATION:
        rows = results[weights]
        print(f"{weights}: {intervals(rows, base)}; {said_shares(rows)}")
        share = said_elsewhere(videos, weights, vectors)
        print(f"  said at .5 in a video of another dish {share:.3f}", flush=True)
    if options.weights is not None:
        return
    names = sorted({row.dish for row in base})
    np.random.default_rng(BOOTSTRAP_SEED).shuffle(names)
    chosen_rows = []
    for fold in range(options.folds):
        held_out = set(names[fold :: options.folds])
        weights = choose(results, set(names) - held_out)
        print(f"fold {fold}: {weights}")
        chosen_rows += [row for row in results[weights] if row.dish in held_out]
    print(f"chosen by folds: {intervals(chosen_rows, base)}; {said_shares(chosen_rows)}")


if __name__ == "__main__":
    main()
