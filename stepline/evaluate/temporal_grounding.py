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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets import PredictedSegment, read, read_predictions
from stepline.datasets.files import Node, read_json
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Ratio, Statistic
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    ScoringTask,
    match_ids,
    prediction_notes,
    read_number,
    read_numbers,
    reference_notes,
    require_length,
)
from stepline.records import Record, Step

# of intersection over union; usual in moment retrieval, HiREST and HT-Step
THRESHOLDS = (0.1, 0.3, 0.5, 0.7)
Pair: TypeAlias = Sequence[float] | npt.NDArray[np.floating]
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
    start = np.maximum(first[:, None, 0], second[None, :, 0])
    end = np.minimum(first[:, None, 1], second[None, :, 1])
    shared = np.clip(end - start, 0.0, None)
    lengths = np.clip(first[:, 1] - first[:, 0], 0.0, None)[:, None] + np.clip(
        second[:, 1] - second[:, 0], 0.0, None
    )
    union = lengths - shared
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
    made: dict[str, Statistic] = {
        f"Recall@IoU {threshold}": Ratio(
            np.array([fit.count_at_least(threshold) for fit in fits]), totals
        )
        for threshold in THRESHOLDS
    }
    made["mean IoU"] = Ratio(np.array([float(fit.overlaps.sum()) for fit in fits]), totals)
    return made


# ---------------------------------------------------------------- the scores


CLIP = re.compile(r"mini_\d+\.mp4$")  # what WhenAct writes behind the name of a clip's source video


@dataclass(frozen=True)
class _Reference:
    records: dict[str, Record]
    notes: tuple[str, ...]

    def scores(
        self,
        scoring: ScoringTask,
        statistics: Mapping[str, Statistic],
        columns: Mapping[str, Floats],
        *,
        asked: Collection[str],
        given: Iterable[str],
        notes: Iterable[str],
    ) -> Scores:
        """Return the scores of the `asked` videos, their media as sources (HiREST asks several
        things of a video, WhenAct cuts one into clips); predicted ids whose reference shows nothing
        are neither extra nor scored.
        """
        known = [id for id in given if id not in self.records or _has_spans(self.records[id])]
        sources = [CLIP.sub("", self.records[id].video.id) for id in asked]
        return scoring.scores(
            asked,
            int(columns["steps"].sum()),
            statistics,
            columns,
            asked=asked,
            given=known,
            notes=[*self.notes, *notes],
            sources=sources,
        )


def grounding(scoring: ScoringTask) -> Scores:
    """Return R@1, and with segments also recall at overlap and mean overlap, over texts that the
    video shows."""
    reference = _read_reference(scoring)
    shown = {
        id: [step for step in record.reference if step.spans]
        for id, record in reference.records.items()
    }
    truths = {id: [_step_spans(step) for step in steps] for id, steps in shown.items() if steps}
    counted = np.array([float(len(instances)) for instances in truths.values()])
    seconds_file = _seconds_file(scoring.predictions)
    if seconds_file is not None:
        seconds = match_ids(seconds_file, reference.records)
        notes = _unknown_rows_note(scoring, seconds, reference)
        at = {
            id: _predicted_seconds(seconds[id], reference.records[id], shown[id])
            for id in truths
            if id in seconds
        }
        hits = _count_hits(truths, at)
        columns = {"steps": counted, "hits": hits}
        return reference.scores(
            scoring,
            {"R@1": Ratio(hits, counted)},
            columns,
            asked=truths,
            given=seconds,
            notes=notes,
        )
    return _score_segments(scoring, reference, shown, truths, counted)


def _score_segments(
    scoring: ScoringTask,
    reference: _Reference,
    shown: dict[str, list[Step]],
    truths: dict[str, list[Floats]],
    counted: Floats,
) -> Scores:
    predictions = read_predictions(scoring.predictions)
    segmented = match_ids(predictions.segments, reference.records)
    spans = {
        id: _spans_by_text(reference.records[id], shown[id], segments)
        for id, segments in segmented.items()
        if id in truths
    }
    at = {
        id: [None if s is None else (s[0] + s[1]) / 2 for s in placed]
        for id, placed in spans.items()
    }
    fits = [
        grounding_overlaps(spans.get(id, [None] * len(instances)), instances)
        for id, instances in truths.items()
    ]
    hits = _count_hits(truths, at)
    statistics: dict[str, Statistic] = {
        "R@1": Ratio(hits, counted),
        **overlap_statistics(fits, counted),
    }
    columns = {
        "steps": counted,
        "hits": hits,
        "overlap": np.array([fit.overlaps.sum() for fit in fits]),
    }
    notes = [*prediction_notes(predictions), *_unknown_texts_note(segmented, reference)]
    return reference.scores(
        scoring, statistics, columns, asked=truths, given=segmented, notes=notes
    )


def _unknown_rows_note(
    scoring: ScoringTask, seconds: Mapping[str, Node], reference: _Reference
) -> list[str]:
    """Return a note of seconds for rows that the reference lacks. Raises DatasetError when all
    are."""
    by_row = [
        id
        for id, node in seconds.items()
        if id in reference.records and isinstance(node.value, dict)
    ]
    rows = {id: {step.id for step in reference.records[id].reference} for id in by_row}
    named = [key in rows[id] for id in by_row for key in seconds[id].value]
    if named and not any(named):
        raise DatasetError(
            f"{scoring.predictions}: no key is the id of a row of the reference; give {{row id: second}}"
        )
    lost = named.count(False)
    return (
        [f"{lost} of {len(named)} seconds are for rows that the reference does not hold"]
        if lost
        else []
    )


def _unknown_texts_note(
    segmented: Mapping[str, Sequence[PredictedSegment]], reference: _Reference
) -> list[str]:
    """Return a note of segments whose text the reference of their video does not hold: they place
    nothing."""
    records = {id: reference.records[id] for id in segmented if id in reference.records}
    texts = {
        id: {_normalised(step.text) for step in record.reference} for id, record in records.items()
    }
    held = [_normalised(segment.sentence) in texts[id] for id in texts for segment in segmented[id]]
    lost = held.count(False)
    note = f"{lost} of {len(held)} predicted segments repeat no text of the reference, so place nothing"
    return [note] if lost else []


def _has_spans(record: Record) -> bool:
    return any(step.spans for step in record.reference)


def segmentation(scoring: ScoringTask) -> Scores:
    """Return recall and precision at overlap and mean overlap of spans, whatever they are
    called."""
    reference = _read_reference(scoring)
    truths = {
        id: np.concatenate([_step_spans(step) for step in record.reference if step.spans])
        for id, record in reference.records.items()
        if _has_spans(record)
    }
    predictions = read_predictions(scoring.predictions)
    segmented = match_ids(predictions.segments, reference.records)
    given = {
        id: span_array([[segment.start, segment.end] for segment in segmented.get(id, ())])
        for id in truths
    }
    tables = [temporal_iou(given[id], truth) for id, truth in truths.items()]  # (N, M) each
    fits = [
        SpanOverlaps(table.max(axis=0) if len(table) else np.zeros(table.shape[1]), len(table))
        for table in tables
    ]
    counted = np.array([float(len(truth)) for truth in truths.values()])
    placed = np.array([float(fit.placed) for fit in fits])
    statistics = overlap_statistics(fits, counted)
    # where nothing was predicted, 0 of 1: the precision is 0 and not undefined
    denominator = np.maximum(placed, 0.0 if placed.any() else 1.0)
    for threshold in THRESHOLDS:
        right = np.array(
            [
                float((table.max(axis=1) >= threshold).sum()) if len(table) else 0.0
                for table in tables
            ]
        )
        statistics[f"Precision@IoU {threshold}"] = Ratio(right, denominator)
    columns = {
        "steps": counted,
        "predicted": placed,
        "overlap": np.array([fit.overlaps.sum() for fit in fits]),
    }
    notes = prediction_notes(predictions)
    return reference.scores(
        scoring, statistics, columns, asked=truths, given=segmented, notes=notes
    )


def _count_hits(truths: dict[str, list[Floats]], at: dict[str, list[float | None]]) -> Floats:
    right = np.zeros(len(truths))
    for index, (id, instances) in enumerate(truths.items()):
        for second, spans in zip(at.get(id, ()), instances, strict=False):
            right[index] += second is not None and is_inside_any(second, spans)
    return right


# ---------------------------------------------------------------- the files


def _read_reference(scoring: ScoringTask) -> _Reference:
    reading = read(scoring.benchmark, scoring.reference, subset=scoring.subset)
    return _Reference(
        {record.id: record for record in reading.records}, reference_notes(reading.reasons())
    )


def _step_spans(step: Step) -> Floats:
    return np.array([[span.start, span.end] for span in step.spans])


def _seconds_file(path: Path) -> dict[str, Node] | None:
    """Return the predictions by id when they are seconds, None when they are anything else."""
    if path.is_dir() or not path.name.endswith((".json", ".json.gz")):
        return None
    tree = read_json(path)
    if (
        not isinstance(tree, dict)
        or not any(tree.values())
        or not all(map(_holds_seconds, tree.values()))
    ):
        return None
    return dict(Node(tree, str(path)).entries())


def _holds_seconds(value: object) -> bool:
    values = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(values, list):
        return False
    return all(
        item is None or (isinstance(item, int | float) and not isinstance(item, bool))
        for item in values
    )


def _predicted_seconds(node: Node, record: Record, shown: Sequence[Step]) -> list[float | None]:
    if node.value == []:
        return [None] * len(shown)
    if isinstance(node.value, dict):
        given = {key: read_number(value) for key, value in node.entries()}
    else:
        given = {
            str(index): float(second) for index, second in enumerate(_seconds_by_row(node, record))
        }
    return [None if np.isnan(second := given.get(step.id, np.nan)) else second for step in shown]


def _seconds_by_row(node: Node, record: Record) -> Floats:
    """Return one second a row of the annotation; of rows that the reader rejected only the count is
    known."""
    rows = [int(step.id) if step.id.isdecimal() else -1 for step in record.reference]
    most = len(rows) + len(record.dropped)
    if min(rows) < 0 or max(rows) >= most:
        raise DatasetError(
            f"{node.location}: this reference's steps have ids of their own; give {{step id: second}}"
        )
    seconds = read_numbers(node)
    require_length(
        node, seconds, min(max(len(seconds), max(rows) + 1), most), "rows of the reference"
    )
    return seconds


def _spans_by_text(
    record: Record, shown: Sequence[Step], segments: Sequence[PredictedSegment]
) -> list[list[float] | None]:
    """Return one predicted span for each shown step: texts are compared without case and doubled
    spaces."""
    rows: dict[str, list[str]] = defaultdict(list)
    for step in record.reference:
        rows[_normalised(step.text)].append(step.id)
    found: dict[str, list[PredictedSegment]] = defaultdict(list)
    for segment in segments:
        found[_normalised(segment.sentence)].append(segment)
    placed: dict[str, list[float]] = {}
    for text, ids in rows.items():
        for id, segment in zip(ids, _best_scored(found.get(text, []), len(ids)), strict=False):
            placed[id] = [segment.start, segment.end]
    return [placed.get(step.id) for step in shown]


def _best_scored(segments: Sequence[PredictedSegment], count: int) -> list[PredictedSegment]:
    """Return the `count` best-scored segments in the order of the file; without scores the first
    ones."""
    ranked = sorted(range(len(segments)), key=lambda n: (-(segments[n].score or 0.0), n))[:count]
    return [segments[n] for n in sorted(ranked)]


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())
