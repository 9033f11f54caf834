"""Temporal grounding: where texts, or steps in general, are shown (WhenAct, HiREST, COIN, YouCook2,
Tasty).

grounding: each reference text is to be placed. Predictions are JSON by record id, one second a
reference row or {row id: second} (R@1 only); or segments in any form that
`stepline.datasets.read_predictions` reads, matched to the reference by their text, repeated texts
in the order of the file. The second of a segment is its middle.

segmentation: texts are not looked at; only whether spans were found where the reference has some.

Spans are (N, 2) float arrays of [start, end] seconds as the files hold them, also reversed or of no
length; a reversed span covers nothing. A text may have several reference instances; any of them
counts.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets import PredictedSegment, read, read_predictions
from stepline.datasets.files import JSON_ENDINGS, Node, read_node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Ratio, Statistic
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    ScoringTask,
    is_number,
    match_ids,
    prediction_notes,
    read_number,
    read_numbers,
    reference_notes,
    require_length,
)
from stepline.records import Record, Step

# of intersection over union; usual in moment retrieval, HiREST and HT-Step
IOU_THRESHOLDS = (0.1, 0.3, 0.5, 0.7)
Pair: TypeAlias = Sequence[float] | npt.NDArray[np.floating]
Seconds: TypeAlias = Mapping[str, Sequence[float | None]]  # id -> one a text, None where not placed
Pairs: TypeAlias = Sequence[Sequence[float]] | npt.NDArray[np.floating]


def span_array(spans: Pairs, what: str = "spans") -> Floats:
    """Return (N, 2) float64. Raises DatasetError for another shape, NaN or infinity."""
    try:
        array = np.asarray(spans, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DatasetError(
            f"{what}: not numbers in pairs ({error}); give [start, end] in seconds"
        ) from error
    if array.size == 0:
        return np.zeros((0, 2))
    if array.ndim != 2 or array.shape[1] != 2:
        raise DatasetError(f"{what}: shape {array.shape}, not (N, 2); give [start, end] in seconds")
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        start, end = array[~finite][0]
        raise DatasetError(f"{what}: [{start}, {end}] holds NaN or infinity; give seconds")
    return array


def temporal_iou(first: Floats, second: Floats) -> Floats:
    """Return (N, M) intersection over union of (N, 2) and (M, 2); 0 where neither covers a moment.

    Two spans of no length at the same second do not overlap: they cover nothing.
    """
    start = np.maximum(first[:, None, 0], second[None, :, 0])  # (N, M)
    end = np.minimum(first[:, None, 1], second[None, :, 1])
    shared = np.clip(end - start, 0.0, None)
    first_lengths = np.clip(first[:, 1] - first[:, 0], 0.0, None)
    second_lengths = np.clip(second[:, 1] - second[:, 0], 0.0, None)
    union = first_lengths[:, None] + second_lengths - shared
    out = np.zeros_like(shared)
    np.divide(shared, union, out=out, where=union > 0)
    return np.asarray(np.clip(out, 0.0, 1.0))


def is_inside_any(second: float, instances: Floats, *, closed: bool = False) -> bool:
    """Tell whether a second lies in any instance: in [start, end), or with `closed` in [start,
    end]."""
    before_end = second <= instances[:, 1] if closed else second < instances[:, 1]
    return bool(((instances[:, 0] <= second) & before_end).any())


@dataclass(frozen=True)
class SpanOverlaps:
    """How one video's placed spans fit: overlaps: (K,) the best one of each reference; placed: how
    many were given."""

    overlaps: Floats
    placed: int

    def count_at_least(self, threshold: float) -> float:
        """Return how many references are met at this intersection over union or more."""
        return float((self.overlaps >= threshold).sum())


def grounding_overlaps(
    predicted: Sequence[Pair | None], reference: Sequence[Pairs]
) -> SpanOverlaps:
    """Compare one predicted span a text with the instances of that text.

    predicted: K of [start, end] or None where the text was not placed (overlap 0). reference: K of
    instances (M, 2).
    Raises DatasetError when the lengths differ or a text has no instance.
    """
    if len(predicted) != len(reference):
        raise DatasetError(
            f"{len(predicted)} predicted spans for {len(reference)} texts; give one, or null, a text"
        )
    best = np.zeros(len(reference))
    for k, (span, instances) in enumerate(zip(predicted, reference, strict=True)):
        truth = span_array(instances, "reference")
        if not len(truth):
            raise DatasetError(
                f"text {k} has no reference instance; leave out texts that are not in the video"
            )
        if span is not None:
            best[k] = temporal_iou(span_array([span], "prediction"), truth).max()  # type: ignore[list-item]
    return SpanOverlaps(best, sum(span is not None for span in predicted))


def overlap_statistics(fits: Sequence[SpanOverlaps], totals: Floats) -> dict[str, Statistic]:
    """Return recall at each threshold and mean overlap over videos; totals: (V,) references a
    video."""
    statistics: dict[str, Statistic] = {}
    for threshold in IOU_THRESHOLDS:
        hits = np.array([fit.count_at_least(threshold) for fit in fits])
        statistics[f"Recall@IoU {threshold}"] = Ratio(hits, totals)
    statistics["mean IoU"] = Ratio(overlap_sums(fits), totals)
    return statistics


def overlap_sums(fits: Sequence[SpanOverlaps]) -> Floats:
    """Return (V,) the sum of each video's best overlaps."""
    return np.array([float(fit.overlaps.sum()) for fit in fits])


def instances_by_step(segments: Floats, steps: Sequence[int]) -> dict[int, Floats]:
    """Return step -> its segments (M, 2), in the order of the steps' numbers; steps: of each
    segment."""
    numbers = np.array(steps, dtype=np.int64)
    return {step: segments[numbers == step] for step in sorted(set(steps))}


# ---------------------------------------------------------------- the scores


# what WhenAct writes behind the name of a clip's source video
CLIP_SUFFIX = re.compile(r"mini_\d+\.mp4$")


@dataclass(frozen=True)
class _Reference:
    """The records of a reference.

    shown_steps: the steps with spans of each video that has one. notes: what the reader left out.
    """

    records: dict[str, Record]
    shown_steps: dict[str, list[Step]]
    notes: tuple[str, ...]

    def instances(self) -> dict[str, list[Floats]]:
        """Return id -> the spans (M, 2) of each shown step."""
        return {id: list(map(_step_spans, steps)) for id, steps in self.shown_steps.items()}

    def scores(
        self,
        scoring: ScoringTask,
        statistics: Mapping[str, Statistic],
        columns: Mapping[str, Floats],
        predicted_ids: Iterable[str],
        notes: Iterable[str],
    ) -> Scores:
        """Return the scores of the videos that show something, their media as sources (HiREST asks
        several things of a video, WhenAct cuts one into clips); predicted ids whose reference shows
        nothing are neither extra nor scored.
        """
        scores = scoring.scores(
            statistics,
            columns,
            items=columns["steps"].sum(),
            reference_ids=self.shown_steps,
            predicted_ids=[
                id for id in predicted_ids if id not in self.records or id in self.shown_steps
            ],
            notes=[*self.notes, *notes],
        )
        sources = [CLIP_SUFFIX.sub("", self.records[id].video.id) for id in self.shown_steps]
        return replace(scores, sources=tuple(sources))


def grounding(scoring: ScoringTask) -> Scores:
    """Return R@1, and with segments also recall at overlap and mean overlap, over texts that the
    video shows."""
    reference = _read_reference(scoring)
    seconds_file = _seconds_file(scoring.predictions)
    if seconds_file is None:
        return _score_segments(scoring, reference)
    nodes = match_ids(seconds_file, reference.records)
    notes = _unknown_rows_note(scoring, nodes, reference)
    seconds = {
        id: _predicted_seconds(nodes[id], reference.records[id], steps)
        for id, steps in reference.shown_steps.items()
        if id in nodes
    }
    statistics, columns = _recall(reference.instances(), seconds)
    return reference.scores(scoring, statistics, columns, nodes, notes)


def _score_segments(scoring: ScoringTask, reference: _Reference) -> Scores:
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, reference.records)
    seconds: dict[str, list[float | None]] = {}
    fits = []
    instances = reference.instances()
    for id, steps in reference.shown_steps.items():
        spans: Sequence[Pair | None] = [None] * len(steps)
        if id in segments:
            spans = _spans_by_text(reference.records[id], steps, segments[id])
            seconds[id] = [(span[0] + span[1]) / 2 if span else None for span in spans]
        fits.append(grounding_overlaps(spans, instances[id]))
    statistics, columns = _recall(instances, seconds)
    statistics |= overlap_statistics(fits, columns["steps"])
    columns["overlap"] = overlap_sums(fits)
    notes = [*prediction_notes(predictions), *_unknown_texts_note(segments, reference)]
    return reference.scores(scoring, statistics, columns, segments, notes)


def _recall(
    instances: Mapping[str, Sequence[Floats]], seconds: Seconds
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return R@1, and the steps and hits of each video."""
    steps = np.array([float(len(spans)) for spans in instances.values()])
    hits = np.zeros(len(instances))
    for index, (id, texts) in enumerate(instances.items()):
        for second, spans in zip(seconds.get(id, ()), texts, strict=False):
            hits[index] += second is not None and is_inside_any(second, spans)
    return {"R@1": Ratio(hits, steps)}, {"steps": steps, "hits": hits}


def _unknown_rows_note(
    scoring: ScoringTask, nodes: Mapping[str, Node], reference: _Reference
) -> list[str]:
    """Return a note of seconds for rows that the reference lacks. Raises DatasetError when all
    are."""
    known_rows = []
    for id, node in nodes.items():
        if id in reference.records and isinstance(node.value, dict):
            rows = {step.id for step in reference.records[id].reference}
            known_rows += [row in rows for row in node.value]
    if known_rows and not any(known_rows):
        raise DatasetError(
            f"{scoring.predictions}: no key is the id of a row of the reference; give {{row id: second}}"
        )
    unknown = known_rows.count(False)
    note = f"{unknown} of {len(known_rows)} seconds are for rows that the reference does not hold"
    return [note] if unknown else []


def _unknown_texts_note(
    segments: Mapping[str, Sequence[PredictedSegment]], reference: _Reference
) -> list[str]:
    """Return a note of segments whose text the reference of their video does not hold: they place
    nothing."""
    known_texts = []
    for id in segments:
        if id in reference.records:
            texts = {_normalised(step.text) for step in reference.records[id].reference}
            known_texts += [_normalised(segment.sentence) in texts for segment in segments[id]]
    unknown = known_texts.count(False)
    note = f"{unknown} of {len(known_texts)} predicted segments repeat no text of the reference, so place nothing"
    return [note] if unknown else []


def segmentation(scoring: ScoringTask) -> Scores:
    """Return recall and precision at overlap and mean overlap of spans, whatever they are
    called."""
    reference = _read_reference(scoring)
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, reference.records)
    tables = []  # (N, M) each
    fits = []
    for id, instances in reference.instances().items():
        spans = span_array([[segment.start, segment.end] for segment in segments.get(id, ())])
        table = temporal_iou(spans, np.concatenate(instances))
        tables.append(table)
        fits.append(SpanOverlaps(table.max(axis=0, initial=0.0), len(table)))
    steps = np.array([float(table.shape[1]) for table in tables])
    placed = np.array([float(fit.placed) for fit in fits])
    statistics = overlap_statistics(fits, steps)
    # where nothing was predicted, 0 of 1: the precision is 0 and not undefined
    denominator = np.maximum(placed, 0.0 if placed.any() else 1.0)
    for threshold in IOU_THRESHOLDS:
        right = np.array([float((table.max(axis=1) >= threshold).sum()) for table in tables])
        statistics[f"Precision@IoU {threshold}"] = Ratio(right, denominator)
    columns = {"steps": steps, "predicted": placed, "overlap": overlap_sums(fits)}
    return reference.scores(scoring, statistics, columns, segments, prediction_notes(predictions))


# ---------------------------------------------------------------- the files


def _read_reference(scoring: ScoringTask) -> _Reference:
    dataset = read(scoring.benchmark, scoring.reference, subset=scoring.subset)
    records = {record.id: record for record in dataset.records}
    shown_steps = {}
    for id, record in records.items():
        steps = [step for step in record.reference if step.spans]
        if steps:
            shown_steps[id] = steps
    return _Reference(records, shown_steps, reference_notes(dataset.reasons()))


def _step_spans(step: Step) -> Floats:
    return np.array([[span.start, span.end] for span in step.spans])


def _seconds_file(path: Path) -> dict[str, Node] | None:
    """Return the predictions by id when they are seconds, None when they are anything else."""
    if path.is_dir() or not path.name.endswith(JSON_ENDINGS):
        return None
    root = read_node(path)
    tree = root.value
    if not isinstance(tree, dict) or not any(tree.values()):
        return None
    return dict(root.entries()) if all(map(_holds_seconds, tree.values())) else None


def _holds_seconds(value: object) -> bool:
    values = list(value.values()) if isinstance(value, dict) else value
    return isinstance(values, list) and all(item is None or is_number(item) for item in values)


def _predicted_seconds(node: Node, record: Record, steps: Sequence[Step]) -> list[float | None]:
    if isinstance(node.value, dict):
        seconds = {key: read_number(value) for key, value in node.entries()}
    elif node.value:
        by_row = enumerate(_seconds_by_row(node, record))
        seconds = {str(row): second for row, second in by_row}
    else:
        seconds = {}
    by_step = [seconds.get(step.id, np.nan) for step in steps]
    return [None if np.isnan(second) else second for second in by_step]


def _seconds_by_row(node: Node, record: Record) -> list[float]:
    """Return one second a row of the annotation; of rows that the reader rejected only the count is
    known."""
    rows = [int(step.id) if step.id.isdecimal() else -1 for step in record.reference]
    most = len(rows) + len(record.dropped)
    if min(rows) < 0 or max(rows) >= most:
        raise DatasetError(
            f"{node.location}: this reference's steps have ids of their own; give {{step id: second}}"
        )
    seconds = read_numbers(node).tolist()
    least = max(len(seconds), max(rows) + 1)
    require_length(node, seconds, min(least, most), "rows of the reference")
    return list(seconds)


def _spans_by_text(
    record: Record, steps: Sequence[Step], segments: Sequence[PredictedSegment]
) -> list[list[float] | None]:
    """Return one predicted span for each shown step: texts are compared without case and doubled
    spaces."""
    rows: dict[str, list[str]] = defaultdict(list)
    for step in record.reference:
        rows[_normalised(step.text)].append(step.id)
    by_text: dict[str, list[PredictedSegment]] = defaultdict(list)
    for segment in segments:
        by_text[_normalised(segment.sentence)].append(segment)
    placed: dict[str, list[float]] = {}
    for text, ids in rows.items():
        for id, segment in zip(ids, _best_scored(by_text[text], len(ids)), strict=False):
            placed[id] = [segment.start, segment.end]
    return [placed.get(step.id) for step in steps]


def _best_scored(segments: Sequence[PredictedSegment], count: int) -> list[PredictedSegment]:
    """Return the `count` best-scored segments in the order of the file; without scores the first
    ones."""
    ranked = sorted(range(len(segments)), key=lambda n: (-(segments[n].score or 0.0), n))
    return [segments[n] for n in sorted(ranked[:count])]


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())
