"""What can be scored without looking or listening: baselines on real annotations, with intervals
over videos.

    python benchmarks/baselines.py

Placing: the steps and their order are known, one span is given for each. Finding: nothing is known
but the training split's median count. CrossTask: the task's steps are known, whether they are shown
is not. WhenAct: the time at which the action is spoken of is known. Videos there are the source
videos of the one-minute clips.

uniform      equal parts of the whole video, in order            (clip: of the part that answers the query)
rank prior   centre and length by rank / count, a line fitted on the training split
step prior   median relative centre and length of that step in the training split (other folds for CrossTask)
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

OUT = Path(__file__).resolve().parent / "results" / "baselines.json"
Placer = Callable[[Shown, int], Array]  # video, how many spans -> (K, 2)


def measured(statistics: dict[str, Statistic]) -> dict[str, Metric]:
    drawn = resample(statistics)
    return {
        name: Metric(point_estimate(s), *interval(drawn[name]), s.items)
        for name, s in statistics.items()
    }


def uniform(video: Shown, count: int) -> Array:
    edges = np.linspace(0.0, video.duration, count + 1)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def uniform_in_clip(video: Shown, count: int) -> Array:
    edges = np.linspace(*video.bounds, count + 1)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def rank_prior(train: Sequence[Shown]) -> Placer:
    """Return spans whose centre is a line in rank / count, and whose length is a share of duration
    / count."""
    ranks, centers, shares = [], [], []
    for video in train:
        for k, spans in enumerate(video.instances):
            ranks.append((k + 0.5) / len(video.instances))
            centers.append(spans[0].mean() / video.duration)
            shares.append((spans[0, 1] - spans[0, 0]) * len(video.instances) / video.duration)
    slope, offset = np.polyfit(ranks, centers, 1)
    share = float(np.median(shares))

    def place(video: Shown, count: int) -> Array:
        middle = (offset + slope * (np.arange(count) + 0.5) / count) * video.duration
        half = share * video.duration / count / 2
        return np.stack([middle - half, middle + half], axis=1)

    return place


def step_prior(train: Sequence[Shown]) -> Placer:
    """Return spans at the median relative place of the step itself. A step never seen takes the
    rank prior."""
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for video in train:
        for name, spans in zip(video.names, video.instances, strict=True):
            seen[name].append((spans[0, 0] / video.duration, spans[0, 1] / video.duration))
    typical = {name: np.median(rows, axis=0) for name, rows in seen.items()}
    fallback = rank_prior(train)

    def place(video: Shown, count: int) -> Array:
        spans = fallback(video, count)
        for k, name in enumerate(video.names):
            if name in typical:
                spans[k] = typical[name] * video.duration
        return spans

    return place


def placing(videos: Sequence[Shown], place: Placer) -> dict[str, Metric]:
    """Return R@1 of the middle second, recall at overlap and mean overlap. One span per step."""
    placed = [place(video, len(video.instances)) for video in videos]
    fits = [
        grounding_overlaps(list(spans), video.instances)
        for spans, video in zip(placed, videos, strict=True)
    ]
    steps = np.array([float(len(video.instances)) for video in videos])
    hits = [
        float(sum(is_inside_any(s.mean(), i) for s, i in zip(spans, video.instances, strict=True)))
        for spans, video in zip(placed, videos, strict=True)
    ]
    return measured({"R@1": Ratio(np.array(hits), steps), **overlap_statistics(fits, steps)})


def finding(videos: Sequence[Shown], place: Placer, count: int) -> dict[str, Metric]:
    """Return recall and precision at overlap of `count` spans in every video, whatever they
    show."""
    # (count, M)
    tables = [
        temporal_iou(place(video, count), np.concatenate(video.instances)) for video in videos
    ]
    fits = [SpanOverlaps(table.max(axis=0), count) for table in tables]
    shown = np.array([float(table.shape[1]) for table in tables])
    made = overlap_statistics(fits, shown)
    for threshold in IOU_THRESHOLDS:
        right = np.array([float((table.max(axis=1) >= threshold).sum()) for table in tables])
        made[f"Precision@IoU {threshold}"] = Ratio(right, np.full(len(videos), float(count)))
    return measured(made)


def placed_rows() -> dict[str, dict[str, Metric]]:
    table = {}
    for name, train, test in (
        ("YouCook2 val", youcook2("train"), youcook2("val")),
        ("COIN testing", coin("training"), coin("testing")),
        ("HiREST val", hirest("train"), hirest("val")),
    ):
        typical = int(np.median([len(np.concatenate(video.instances)) for video in train]))
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


def crosstask_rows() -> dict[str, dict[str, Metric]]:
    """Return average R@1 over 20 test sets, drawn here from the shared two thirds of the annotated
    videos."""
    videos = crosstask()
    tasks: dict[str, list[str]] = defaultdict(list)
    for video in videos:
        tasks[video.task].append(video.id)
    sets = np.array(
        [[(v.task, v.id) in chosen for v in videos] for chosen in random_test_sets(tasks)]
    )
    group = np.array([sorted(tasks).index(video.task) for video in videos])
    rows = {
        "uniform": [(np.arange(v.count) + 0.5) / v.count for v in videos],
        "step prior": centers(videos),
    }
    table = {}
    for kind, fractions in rows.items():
        found = np.array(
            [judged(video, places) for video, places in zip(videos, fractions, strict=True)]
        )
        table[f"CrossTask, {kind}"] = measured(
            {"average R@1": GroupedRatio(found[:, 0], found[:, 1], group, sets)}
        )
    return table


def centers(videos: Sequence[TaskVideo]) -> list[Array]:
    """Return for each video the median relative middle of each step in the videos of its task in
    other folds."""
    fold = folds([video.id for video in videos])
    seen: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for video, part in zip(videos, fold, strict=True):
        for segment, step in zip(video.segments, video.steps, strict=True):
            seen[video.task, step, int(part)].append(segment.mean() / video.duration)
    parts = range(int(fold.max()) + 1)
    return [
        np.array(
            [
                np.median([c for p in parts if p != part for c in seen[video.task, k, p]] or [0.5])
                for k in range(video.count)
            ]
        )
        for video, part in zip(videos, fold, strict=True)
    ]


def judged(video: TaskVideo, fractions: Array) -> tuple[float, float]:
    seconds = int(np.ceil(video.duration))
    shown = rows_shown(video.segments, video.steps, seconds, video.count)
    return count_hits(np.floor(fractions * video.duration), shown)


def whenact_rows() -> dict[str, dict[str, Metric]]:
    """Return R@1. The random second's is its exact expectation, the share of the clip that the
    window covers."""
    actions = [action for action in read_actions() if action.shown]
    _, source = np.unique([action.source for action in actions], return_inverse=True)
    windows = np.array([action.shown for action in actions])
    said = np.array([action.said.center for action in actions])
    inside = np.clip(windows, 0, CLIP)
    hits = {
        "spoken centre": (windows[:, 0] <= said) & (said < windows[:, 1]),
        "random second": (inside[:, 1] - inside[:, 0]) / CLIP,
        "video centre": (windows[:, 0] <= CLIP / 2) & (windows[:, 1] > CLIP / 2),
    }
    totals = np.bincount(source).astype(np.float64)
    found = {
        name: np.asarray(np.bincount(source, values), dtype=np.float64)
        for name, values in hits.items()
    }
    return {
        f"WhenAct, {name}": measured({"R@1": Ratio(sums, totals)}) for name, sums in found.items()
    }


def main() -> None:
    table = {**whenact_rows(), **crosstask_rows(), **placed_rows()}
    tree = {
        row: {
            name: [round(m.value, 4), round(m.low, 4), round(m.high, 4), m.items]
            for name, m in metrics.items()
        }
        for row, metrics in table.items()
    }
    OUT.write_text(json.dumps(tree, indent=1) + "\n")
    print(markdown(table))


def markdown(table: dict[str, dict[str, Metric]]) -> str:
    lines = [
        "| baseline | R@1 | Recall@IoU .3 | .5 | mean IoU | items |",
        "|---|---|---|---|---|---|",
    ]
    for row, metrics in table.items():
        first = metrics.get("R@1") or metrics.get("average R@1")
        cells = [
            first,
            *(metrics.get(name) for name in ("Recall@IoU 0.3", "Recall@IoU 0.5", "mean IoU")),
        ]
        shown = [f"{m.value:.3f} [{m.low:.3f}, {m.high:.3f}]" if m else "–" for m in cells]
        lines.append(
            "| " + " | ".join((row, *shown, str(next(iter(metrics.values())).items))) + " |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
