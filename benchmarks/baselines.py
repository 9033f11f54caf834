"""What can be scored without looking or listening: baselines on real annotations, with intervals
over videos.

    python benchmarks/baselines.py

Placing: the steps and their order are known, one span is given for each. Finding: nothing is known
but the training split's median count. CrossTask: the task's steps are known, whether they are shown
is not. WhenAct: the time at which the action is spoken of is known. Videos there are the source
videos of the one-minute clips.

uniform      equal parts of the whole video, in order (clip: of the part that answers the query)
rank prior   centre and length by rank / count, a line fitted on the training split
step prior   median relative centre and length of that step in the training split
             (other folds for CrossTask)
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from baseline_data import Array, Shown, TaskVideo, coin, crosstask, hirest, youcook2
from whenact_data import CLIP, folds, read_actions

from stepline.evaluate.bootstrap import (
    GroupedRatio,
    Ratio,
    Statistic,
    interval,
    point_estimate,
    resample,
)
from stepline.evaluate.crosstask import count_hits, random_test_sets, rows_shown
from stepline.evaluate.report import Metric
from stepline.evaluate.span_overlaps import (
    IOU_THRESHOLDS,
    SpanOverlaps,
    grounding_overlaps,
    is_inside_any,
    overlap_statistics,
    temporal_iou,
)

RESULT_PATH = Path(__file__).resolve().parent / "results" / "baselines.json"
Placer = Callable[[Shown, int], Array]  # video, how many spans -> (K, 2)
Metrics = dict[str, Metric]


def measured(statistics: dict[str, Statistic]) -> Metrics:
    """Return the statistics with their bootstrap intervals."""
    draws = resample(statistics)
    metrics = {}
    for name, statistic in statistics.items():
        low, high = interval(draws[name])
        metrics[name] = Metric(point_estimate(statistic), low, high, statistic.items)
    return metrics


def uniform(video: Shown, count: int) -> Array:
    return equal_parts(0.0, video.duration, count)


def uniform_in_clip(video: Shown, count: int) -> Array:
    start, end = video.bounds
    return equal_parts(start, end, count)


def equal_parts(start: float, end: float, count: int) -> Array:
    """Return (count, 2): equal parts of a span."""
    edges = np.linspace(start, end, count + 1)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def rank_prior(train: Sequence[Shown]) -> Placer:
    """Return spans whose centre is a line in rank / count, and whose length is a share of duration
    / count."""
    ranks = []
    centers = []
    shares = []
    for video in train:
        count = len(video.instances)
        for k, spans in enumerate(video.instances):
            start, end = spans[0]
            ranks.append((k + 0.5) / count)
            centers.append(spans[0].mean() / video.duration)
            shares.append((end - start) * count / video.duration)
    slope, offset = np.polyfit(ranks, centers, 1)
    share = float(np.median(shares))

    def place(video: Shown, count: int) -> Array:
        rank = np.arange(count) + 0.5
        middle = (offset + slope * rank / count) * video.duration
        half = share * video.duration / count / 2
        return np.stack([middle - half, middle + half], axis=1)

    return place


def step_prior(train: Sequence[Shown]) -> Placer:
    """Return spans at the median relative place of the step itself. A step never seen takes the
    rank prior."""
    places: dict[str, list[Array]] = defaultdict(list)
    for video in train:
        for name, spans in zip(video.names, video.instances, strict=True):
            places[name].append(spans[0] / video.duration)
    typical = {}
    for name, rows in places.items():
        typical[name] = np.median(rows, axis=0)
    fallback = rank_prior(train)

    def place(video: Shown, count: int) -> Array:
        spans = fallback(video, count)
        for k, name in enumerate(video.names):
            if name in typical:
                spans[k] = typical[name] * video.duration
        return spans

    return place


def placing(videos: Sequence[Shown], place: Placer) -> Metrics:
    """Return R@1 of the middle second, recall at overlap and mean overlap. One span per step."""
    overlaps = []
    step_counts = []
    hits = []
    for video in videos:
        step_count = len(video.instances)
        spans = place(video, step_count)
        overlaps.append(grounding_overlaps(list(spans), video.instances))
        step_counts.append(float(step_count))
        right = 0
        for span, instances in zip(spans, video.instances, strict=True):
            right += is_inside_any(span.mean(), instances)
        hits.append(float(right))
    steps = np.array(step_counts)
    recall = Ratio(np.array(hits), steps)
    return measured({"R@1": recall, **overlap_statistics(overlaps, steps)})


def finding(videos: Sequence[Shown], place: Placer, count: int) -> Metrics:
    """Return recall and precision at overlap of `count` spans in every video, whatever they
    show."""
    tables = []  # each (count, M)
    for video in videos:
        instances = np.concatenate(video.instances)
        tables.append(temporal_iou(place(video, count), instances))
    overlaps = [SpanOverlaps(table.max(axis=0), count) for table in tables]
    instance_counts = np.array([float(table.shape[1]) for table in tables])
    statistics = overlap_statistics(overlaps, instance_counts)
    span_counts = np.full(len(videos), float(count))
    for threshold in IOU_THRESHOLDS:
        right = []
        for table in tables:
            best = table.max(axis=1)
            right.append(float((best >= threshold).sum()))
        statistics[f"Precision@IoU {threshold}"] = Ratio(np.array(right), span_counts)
    return measured(statistics)


def placed_rows() -> dict[str, Metrics]:
    table = {}
    for name, train, test in (
        ("YouCook2 val", youcook2("train"), youcook2("val")),
        ("COIN testing", coin("training"), coin("testing")),
        ("HiREST val", hirest("train"), hirest("val")),
    ):
        span_counts = [len(np.concatenate(video.instances)) for video in train]
        typical = int(np.median(span_counts))
        placers = {"uniform": uniform, "rank prior": rank_prior(train)}
        for kind, place in placers.items():
            table[f"{name}, finding, {kind} ({typical} spans)"] = finding(test, place, typical)
        if name.startswith("HiREST"):
            placers["uniform in the clip"] = uniform_in_clip
        if name.startswith("COIN"):
            placers["step prior"] = step_prior(train)
        for kind, place in placers.items():
            table[f"{name}, placing, {kind}"] = placing(test, place)
    return table


def crosstask_rows() -> dict[str, Metrics]:
    """Return average R@1 over 20 test sets, drawn here from the shared two thirds of the annotated
    videos."""
    videos = crosstask()
    tasks: dict[str, list[str]] = defaultdict(list)
    for video in videos:
        tasks[video.task].append(video.id)
    memberships = []  # of each test set, each video
    for test_set in random_test_sets(tasks):
        memberships.append([(video.task, video.id) in test_set for video in videos])
    sets = np.array(memberships)
    task_names = sorted(tasks)
    group = np.array([task_names.index(video.task) for video in videos])
    rows = {
        "uniform": [(np.arange(video.count) + 0.5) / video.count for video in videos],
        "step prior": centers(videos),
    }
    table = {}
    for kind, fractions in rows.items():
        pairs = zip(videos, fractions, strict=True)
        counts = np.array([judged(video, places) for video, places in pairs])
        recall = GroupedRatio(counts[:, 0], counts[:, 1], group, sets)
        table[f"CrossTask, {kind}"] = measured({"average R@1": recall})
    return table


def centers(videos: Sequence[TaskVideo]) -> list[Array]:
    """Return for each video the median relative middle of each step in the videos of its task in
    other folds."""
    fold = folds([video.id for video in videos])
    # Relative middles by task, step and fold
    middles: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for video, part in zip(videos, fold, strict=True):
        for segment, step in zip(video.segments, video.steps, strict=True):
            middles[video.task, step, int(part)].append(segment.mean() / video.duration)
    medians = []
    parts = range(int(fold.max()) + 1)
    for video, part in zip(videos, fold, strict=True):
        other_parts = [number for number in parts if number != part]
        row = []
        for step in range(video.count):
            values: list[float] = []
            for number in other_parts:
                values += middles[video.task, step, number]
            row.append(np.median(values or [0.5]))
        medians.append(np.array(row))
    return medians


def judged(video: TaskVideo, fractions: Array) -> tuple[float, float]:
    seconds = int(np.ceil(video.duration))
    is_shown = rows_shown(video.segments, video.steps, seconds, video.count)
    return count_hits(np.floor(fractions * video.duration), is_shown)


def whenact_rows() -> dict[str, Metrics]:
    """Return R@1. The random second's is its exact expectation, the share of the clip that the
    window covers."""
    actions = [action for action in read_actions() if action.shown]
    _, source = np.unique([action.source for action in actions], return_inverse=True)
    windows = np.array([action.shown for action in actions])
    start = windows[:, 0]
    end = windows[:, 1]
    spoken = np.array([action.said.center for action in actions])
    inside = np.clip(windows, 0, CLIP)
    hits = {
        "spoken centre": (start <= spoken) & (spoken < end),
        "random second": (inside[:, 1] - inside[:, 0]) / CLIP,
        "video centre": (start <= CLIP / 2) & (end > CLIP / 2),
    }
    totals = np.bincount(source).astype(np.float64)
    table = {}
    for name, values in hits.items():
        sums = np.asarray(np.bincount(source, values), dtype=np.float64)
        table[f"WhenAct, {name}"] = measured({"R@1": Ratio(sums, totals)})
    return table


def main() -> None:
    table = {**whenact_rows(), **crosstask_rows(), **placed_rows()}
    tree: dict[str, dict[str, list[float]]] = {}
    for row, metrics in table.items():
        tree[row] = {}
        for name, metric in metrics.items():
            numbers = [round(value, 4) for value in (metric.value, metric.low, metric.high)]
            tree[row][name] = [*numbers, metric.items]
    RESULT_PATH.write_text(json.dumps(tree, indent=1) + "\n")
    print(markdown(table))


def markdown(table: dict[str, Metrics]) -> str:
    """Return the table of all baselines."""
    lines = [
        "| baseline | R@1 | Recall@IoU .3 | .5 | mean IoU | items |",
        "|---|---|---|---|---|---|",
    ]
    for row, metrics in table.items():
        columns = [metrics.get("R@1") or metrics.get("average R@1")]
        for name in ("Recall@IoU 0.3", "Recall@IoU 0.5", "mean IoU"):
            columns.append(metrics.get(name))
        cells = [row]
        for metric in columns:
            cell = "–"
            if metric:
                cell = f"{metric.value:.3f} [{metric.low:.3f}, {metric.high:.3f}]"
            cells.append(cell)
        first = next(iter(metrics.values()))
        cells.append(str(first.items))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
