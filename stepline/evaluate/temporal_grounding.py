"""Temporal grounding: where texts, or steps in general, are shown (WhenAct, HiREST, COIN, YouCook2,
Tasty).

For instance, a video "a" with two reference texts, shown at 2-6 s and 10-14 s:

    predictions                      R@1    Recall@IoU 0.5    mean IoU
    {"a": [4, 20]}                   1/2    not scored        not scored
    segments 3-7 s and 18-22 s       1/2    1/2               (0.6 + 0) / 2 = 0.3

The middle of 3-7 s is 5 s, which is inside 2-6 s. The two share 3 s of the 5 s from 2 to 7, so
their IoU is 0.6.

grounding: each reference text is to be localized. Predictions are JSON by record id, one second per
reference row or {row id: second} (R@1 only). Or they are segments in any form that
`stepline.datasets.read_predictions` reads. These are matched to the reference by their text,
repeated texts in the order of the file. The second of a segment is its middle.

segmentation: texts are not compared, only whether spans were found where the reference has some.

Spans are (N, 2) float arrays of [start, end] seconds, as in `span_overlaps`.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stepline.datasets import PredictedSegment, read, read_predictions
from stepline.datasets.files import JSON_ENDINGS, Node, read_node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic, ratio_statistic
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
from stepline.evaluate.span_overlaps import (
    IOU_THRESHOLDS,
    best_overlap_sums,
    counts_at_least,
    grounding_overlaps,
    is_inside_any,
    overlap_statistics,
    temporal_iou,
)
from stepline.records import Record, Step

Columns = dict[str, Floats]  # per-video numbers

# what WhenAct writes behind the name of a clip's source video
CLIP_SUFFIX = re.compile(r"mini_\d+\.mp4$")


@dataclass(frozen=True)
class _Reference:
    """The annotated records of a benchmark.

    Attributes:
        records: record id -> record.
        shown_steps: record id -> steps that have a span. Records without such a step are left out.
        notes: remarks on the rows that the reader left out.
    """

    records: dict[str, Record]
    shown_steps: dict[str, list[Step]]
    notes: tuple[str, ...]

    def instances(self) -> dict[str, list[Floats]]:
        """Return record id -> for each shown step, its spans (M, 2) in seconds."""
        return {
            id: [np.array([[span.start, span.end] for span in step.spans]) for step in steps]
            for id, steps in self.shown_steps.items()
        }

    def make_scores(
        self,
        scoring: ScoringTask,
        statistics: Mapping[str, Statistic],
        columns: Columns,
        predicted_ids: Iterable[str],
        notes: Iterable[str],
    ) -> Scores:
        """Return the scores of the records with a shown step.

        Records of one video are not independent: HiREST asks several queries of a video, and
        WhenAct cuts a video into clips. So the source video of each record is stored in
        `Scores.sources`.

        Args:
            scoring: the files of the evaluation.
            statistics: metric name -> statistic over the V records with a shown step.
            columns: column name -> (V,) one number per record. "steps" counts the shown steps.
            predicted_ids: ids of the records that have predictions.
            notes: remarks that are printed after those on the reference.
        """
        scores = scoring.make_scores(
            statistics,
            columns,
            items=columns["steps"].sum(),
            reference_ids=self.shown_steps,
            # Predictions for a record that shows nothing are neither scored nor extra.
            predicted_ids=[
                id for id in predicted_ids if id not in self.records or id in self.shown_steps
            ],
            notes=[*self.notes, *notes],
        )
        # Clips of one file are not independent.
        sources = [CLIP_SUFFIX.sub("", self.records[id].video.id) for id in self.shown_steps]
        return replace(scores, sources=tuple(sources))


def score_grounding(scoring: ScoringTask) -> Scores:
    """Return the scores of temporal grounding, over the annotated texts that the video shows.

    Predicted seconds are scored by R@1: the fraction of texts whose second is in an annotated span.
    Predicted segments are also scored by recall at IoU thresholds and mean IoU.

    scoring: the reference and the predictions.
    """
    reference = _read_reference(scoring)
    seconds_by_id = _read_seconds(scoring.predictions)
    if seconds_by_id is None:
        return _score_segments(scoring, reference)
    nodes = match_ids(seconds_by_id, reference.records)
    notes = _unknown_rows_note(scoring, nodes, reference)
    seconds = {
        id: _predicted_seconds(nodes[id], reference.records[id], steps)
        for id, steps in reference.shown_steps.items()
        if id in nodes
    }
    statistics, columns = _recall(reference.instances(), seconds)
    return reference.make_scores(scoring, statistics, columns, nodes, notes)


def _score_segments(scoring: ScoringTask, reference: _Reference) -> Scores:
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, reference.records)
    seconds: dict[str, list[float | None]] = {}
    overlaps = []
    instances = reference.instances()
    for id, steps in reference.shown_steps.items():
        found = _segments_by_step(reference.records[id], segments.get(id, ()))
        matches = [found.get(step.id) for step in steps]
        seconds[id] = [match and (match.start + match.end) / 2 for match in matches]
        spans = [match and match[:2] for match in matches]
        overlaps.append(grounding_overlaps(spans, instances[id]))
    statistics, columns = _recall(instances, seconds)
    statistics |= overlap_statistics(overlaps, columns["steps"])
    columns["overlap"] = best_overlap_sums(overlaps)
    notes = prediction_notes(predictions) + _unknown_texts_note(segments, reference)
    return reference.make_scores(scoring, statistics, columns, segments, notes)


def _recall(
    instances: Mapping[str, Sequence[Floats]], seconds: Mapping[str, Sequence[float | None]]
) -> tuple[dict[str, Statistic], Columns]:
    """Return R@1 as a statistic over videos, and the number of steps and hits of each video. A hit
    is a step whose predicted second is inside one of its annotated spans.

    Args:
        instances: record id -> for each step, its annotated spans (M, 2) in seconds.
        seconds: record id -> predicted second of each step, None for no prediction.
    """
    step_counts = np.zeros(len(instances))
    hits = np.zeros(len(instances))
    for index, (id, spans_by_step) in enumerate(instances.items()):
        step_counts[index] = len(spans_by_step)
        for second, spans in zip(seconds.get(id, ()), spans_by_step, strict=False):
            hits[index] += second is not None and is_inside_any(second, spans)
    return {"R@1": ratio_statistic(hits, step_counts)}, {"steps": step_counts, "hits": hits}


def _unknown_rows_note(
    scoring: ScoringTask, nodes: Mapping[str, Node], reference: _Reference
) -> list[str]:
    """Return a note on predicted seconds whose row id the reference lacks, or [] without any.

    Args:
        scoring: the files of the evaluation, whose predictions are named in the error.
        nodes: record id -> JSON value of its predicted seconds. Only objects name row ids.
        reference: the annotated records.

    Raises DatasetError when the reference lacks every predicted row id.
    """
    is_known = []
    for id, node in nodes.items():
        if id in reference.records and isinstance(node.value, dict):
            rows = {step.id for step in reference.records[id].reference}
            is_known += [row in rows for row in node.value]
    unknown = is_known.count(False)
    if not unknown:
        return []
    if not any(is_known):
        raise DatasetError(
            f"{scoring.predictions}: no key is the id of a row of the reference"
            f"; give {{row id: second}}"
        )
    return [f"{unknown} of {len(is_known)} seconds are for rows that the reference does not hold"]


def _unknown_texts_note(
    segments: Mapping[str, Sequence[PredictedSegment]], reference: _Reference
) -> list[str]:
    """Return a note on predicted texts that the reference lacks, or [] without any.

    These predictions are ignored.

    Args:
        segments: record id -> predicted segments.
        reference: the annotated records.
    """
    is_known = []
    for id, video_segments in segments.items():
        if id in reference.records:
            texts = {_normalize(step.text) for step in reference.records[id].reference}
            is_known += [_normalize(segment.sentence) in texts for segment in video_segments]
    unknown = is_known.count(False)
    if not unknown:
        return []
    counts = f"{unknown} of {len(is_known)} predicted segments"
    return [f"{counts} repeat no text of the reference, so place nothing"]


def score_segmentation(scoring: ScoringTask) -> Scores:
    """Return recall and precision at IoU thresholds, and mean IoU, of segments without their
    labels.
    """
    reference = _read_reference(scoring)
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, reference.records)
    # The best IoU of each reference span, and of each predicted span.
    reference_overlaps = []
    predicted_overlaps = []
    for id, instances in reference.instances().items():
        pairs = [segment[:2] for segment in segments.get(id, ())]
        spans = np.array(pairs, dtype=np.float64).reshape(-1, 2)
        iou = temporal_iou(spans, np.concatenate(instances))  # (N, M)
        reference_overlaps.append(iou.max(axis=0, initial=0.0))
        predicted_overlaps.append(iou.max(axis=1))
    span_counts = np.array([float(len(overlaps)) for overlaps in reference_overlaps])
    predicted_counts = np.array([float(len(overlaps)) for overlaps in predicted_overlaps])
    statistics = overlap_statistics(reference_overlaps, span_counts)
    # Where nothing was predicted the precision is 0 of 1, and not undefined.
    totals = predicted_counts if predicted_counts.any() else np.ones_like(predicted_counts)
    for threshold in IOU_THRESHOLDS:
        hits = counts_at_least(threshold, predicted_overlaps)
        statistics[f"Precision@IoU {threshold}"] = ratio_statistic(hits, totals)
    columns = {
        "steps": span_counts,
        "predicted": predicted_counts,
        "overlap": best_overlap_sums(reference_overlaps),
    }
    return reference.make_scores(
        scoring, statistics, columns, segments, prediction_notes(predictions)
    )


def _read_reference(scoring: ScoringTask) -> _Reference:
    dataset = read(scoring.benchmark, scoring.reference, subset=scoring.subset)
    records = {record.id: record for record in dataset.records}
    shown_steps = {}
    for id, record in records.items():
        steps = [step for step in record.reference if step.spans]
        if steps:
            shown_steps[id] = steps
    return _Reference(records, shown_steps, reference_notes(dataset.reasons()))


def _read_seconds(path: Path) -> dict[str, Node] | None:
    """Return record id -> JSON value of its predicted seconds, None for a file of segments."""
    if path.is_dir() or not path.name.endswith(JSON_ENDINGS):
        return None
    root = read_node(path)
    if not isinstance(root.value, dict):
        return None
    values = root.value.values()
    # Lists that are all empty fit both forms. They are read as segments.
    if not any(values) or not all(map(_holds_seconds, values)):
        return None
    return dict(root.entries())


def _holds_seconds(value: object) -> bool:
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        return False
    return all(item is None or is_number(item) for item in items)


def _predicted_seconds(node: Node, record: Record, steps: Sequence[Step]) -> list[float | None]:
    """Return the predicted second of each step, None for a step without a prediction."""
    seconds: dict[str, float] = {}
    if isinstance(node.value, dict):
        seconds = {key: read_number(value) for key, value in node.entries()}
    elif node.value:
        # A list has one second per row, and a row's number is its id.
        seconds = {str(row): second for row, second in enumerate(_seconds_by_row(node, record))}
    known = {id: second for id, second in seconds.items() if not np.isnan(second)}
    return [known.get(step.id) for step in steps]


def _seconds_by_row(node: Node, record: Record) -> list[float]:
    """Return one predicted second per row of the annotation, rejected rows included.

    Of the rejected rows only the number is known, so every length that this number allows is
    accepted.
    """
    ids = [step.id for step in record.reference]
    max_rows = len(ids) + len(record.dropped)
    # Rejected rows may be anywhere between the others.
    if not all(map(str.isdecimal, ids)) or max(map(int, ids)) >= max_rows:
        raise DatasetError(
            f"{node.location}: this reference's steps have ids of their own"
            f"; give {{step id: second}}"
        )
    seconds: list[float] = read_numbers(node).tolist()
    min_rows = max(len(seconds), max(map(int, ids)) + 1)
    require_length(node, seconds, min(min_rows, max_rows), "rows of the reference")
    return seconds


def _segments_by_step(
    record: Record, segments: Sequence[PredictedSegment]
) -> dict[str, PredictedSegment]:
    """Return step id -> predicted segment with the step's text.

    Texts are compared without case and extra spaces.
    """
    ids_by_text: dict[str, list[str]] = defaultdict(list)
    for step in record.reference:
        ids_by_text[_normalize(step.text)].append(step.id)
    segments_by_text: dict[str, list[PredictedSegment]] = defaultdict(list)
    for segment in segments:
        segments_by_text[_normalize(segment.sentence)].append(segment)
    # Repeated texts take their segments in the order of the file.
    matches: dict[str, PredictedSegment] = {}
    for text, ids in ids_by_text.items():
        matches |= zip(ids, _best_scored(segments_by_text[text], len(ids)), strict=False)
    return matches


def _best_scored(segments: Sequence[PredictedSegment], count: int) -> list[PredictedSegment]:
    """Return the `count` segments with the highest scores, in file order.

    If the segments have no scores, the first ones are returned.
    """
    # sorted is stable: of equal scores the first in the file.
    ranked = sorted(range(len(segments)), key=lambda index: -(segments[index].score or 0.0))
    return [segments[index] for index in sorted(ranked[:count])]


def _normalize(text: str) -> str:
    return " ".join(text.casefold().split())
