"""Temporal grounding: where texts, or steps in general, are shown (WhenAct, HiREST, COIN, YouCook2,
Tasty).

For instance, a video "a" with two reference texts, shown at 2-6 s and 10-14 s:

    predictions                      R@1    Recall@IoU 0.5    mean IoU
    {"a": [4, 20]}                   1/2    not scored        not scored
    segments 3-7 s and 18-22 s       1/2    1/2               (0.6 + 0) / 2 = 0.3

The middle of 3-7 s is 5 s, which is inside 2-6 s. The two share 3 s of the 5 s from 2 to 7, so
their IoU is 0.6.

grounding: each reference text is to be placed. Predictions are JSON by record id, one second per
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
from typing import TypeAlias

import numpy as np

from stepline.datasets import PredictedSegment, read, read_predictions
from stepline.datasets.files import JSON_ENDINGS, Node, read_node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Statistic, ratio
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
    Pair,
    counts_at_least,
    grounding_overlaps,
    is_inside_any,
    overlap_statistics,
    overlap_sums,
    span_array,
    temporal_iou,
)
from stepline.records import Record, Step

# id -> one per text, None where not placed
Seconds: TypeAlias = Mapping[str, Sequence[float | None]]


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
        instances = {}
        for id, steps in self.shown_steps.items():
            instances[id] = [_step_spans(step) for step in steps]
        return instances

    def scores(
        self,
        scoring: ScoringTask,
        statistics: Mapping[str, Statistic],
        columns: Mapping[str, Floats],
        predicted_ids: Iterable[str],
        notes: Iterable[str],
    ) -> Scores:
        """Return the scores of the videos that show something, their media as sources. HiREST asks
        several things of a video, and WhenAct cuts one into clips. Predicted ids whose reference
        shows nothing are neither extra nor scored.
        """
        # Predictions that count, and those of unknown videos, which are reported.
        scored_ids = []
        for id in predicted_ids:
            if id not in self.records or id in self.shown_steps:
                scored_ids.append(id)
        scores = scoring.scores(
            statistics,
            columns,
            items=columns["steps"].sum(),
            reference_ids=self.shown_steps,
            predicted_ids=scored_ids,
            notes=[*self.notes, *notes],
        )
        # Videos that were cut from one file are not independent.
        sources = []
        for id in self.shown_steps:
            video_id = self.records[id].video.id
            sources.append(CLIP_SUFFIX.sub("", video_id))
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
    # A second for each shown step.
    seconds = {}
    for id, steps in reference.shown_steps.items():
        if id in nodes:
            node = nodes[id]
            record = reference.records[id]
            seconds[id] = _predicted_seconds(node, record, steps)
    instances = reference.instances()
    statistics, columns = _recall(instances, seconds)
    return reference.scores(scoring, statistics, columns, nodes, notes)


def _score_segments(scoring: ScoringTask, reference: _Reference) -> Scores:
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, reference.records)
    seconds: dict[str, list[float | None]] = {}
    fits = []
    instances = reference.instances()
    for id, steps in reference.shown_steps.items():
        spans: Sequence[Pair | None] = [None for _ in steps]
        if id in segments:
            spans = _spans_by_text(reference.records[id], steps, segments[id])
            seconds[id] = [_middle(span) for span in spans]
        fit = grounding_overlaps(spans, instances[id])
        fits.append(fit)
    statistics, columns = _recall(instances, seconds)
    statistics |= overlap_statistics(fits, columns["steps"])
    columns["overlap"] = overlap_sums(fits)
    notes = prediction_notes(predictions)
    notes += _unknown_texts_note(segments, reference)
    return reference.scores(scoring, statistics, columns, segments, notes)


def _middle(span: Pair | None) -> float | None:
    if span is None:
        return None
    start, end = span
    return (start + end) / 2


def _recall(
    instances: Mapping[str, Sequence[Floats]], seconds: Seconds
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return R@1, and the steps and hits of each video."""
    video_count = len(instances)
    steps = np.zeros(video_count)
    hits = np.zeros(video_count)
    for index, (id, texts) in enumerate(instances.items()):
        steps[index] = len(texts)
        video_seconds = seconds.get(id, ())
        for second, spans in zip(video_seconds, texts, strict=False):
            if second is not None and is_inside_any(second, spans):
                hits[index] += 1
    statistics: dict[str, Statistic] = {"R@1": ratio(hits, steps)}
    return statistics, {"steps": steps, "hits": hits}


def _unknown_rows_note(
    scoring: ScoringTask, nodes: Mapping[str, Node], reference: _Reference
) -> list[str]:
    """Return a note of seconds for rows that the reference lacks. Raises DatasetError when all
    are."""
    is_known = []
    for id, node in nodes.items():
        if id not in reference.records or not isinstance(node.value, dict):
            continue
        record = reference.records[id]
        rows = {step.id for step in record.reference}
        is_known += [row in rows for row in node.value]
    unknown = is_known.count(False)
    if not unknown:
        return []
    if not any(is_known):
        fault = f"{scoring.predictions}: no key is the id of a row of the reference"
        raise DatasetError(f"{fault}; give {{row id: second}}")
    return [f"{unknown} of {len(is_known)} seconds are for rows that the reference does not hold"]


def _unknown_texts_note(
    segments: Mapping[str, Sequence[PredictedSegment]], reference: _Reference
) -> list[str]:
    """Return a note of segments whose text the reference of their video does not hold: they place
    nothing."""
    is_known = []
    for id, video_segments in segments.items():
        if id not in reference.records:
            continue
        record = reference.records[id]
        texts = {_normalised(step.text) for step in record.reference}
        for segment in video_segments:
            text = _normalised(segment.sentence)
            is_known.append(text in texts)
    unknown = is_known.count(False)
    if not unknown:
        return []
    counts = f"{unknown} of {len(is_known)} predicted segments"
    return [f"{counts} repeat no text of the reference, so place nothing"]


def segmentation(scoring: ScoringTask) -> Scores:
    """Return recall and precision at overlap and mean overlap of spans, whatever they are
    called."""
    reference = _read_reference(scoring)
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, reference.records)
    # how well each video's references are met, and its predictions meet one
    step_counts = []
    placed_counts = []
    fits = []
    prediction_fits = []
    for id, instances in reference.instances().items():
        video_segments = segments.get(id, ())
        pairs = [[segment.start, segment.end] for segment in video_segments]
        spans = span_array(pairs)
        table = temporal_iou(spans, np.concatenate(instances))  # (N, M)
        span_count, step_count = table.shape
        best_of_steps = table.max(axis=0, initial=0.0)
        best_of_spans = table.max(axis=1)
        step_counts.append(float(step_count))
        placed_counts.append(float(span_count))
        fits.append(best_of_steps)
        prediction_fits.append(best_of_spans)
    steps = np.array(step_counts)
    placed = np.array(placed_counts)
    statistics = overlap_statistics(fits, steps)
    denominator = placed
    if not placed.any():
        # where nothing was predicted, 0 of 1: the precision is 0 and not undefined
        denominator = np.ones_like(placed)
    for threshold in IOU_THRESHOLDS:
        right = counts_at_least(threshold, prediction_fits)
        statistics[f"Precision@IoU {threshold}"] = ratio(right, denominator)
    columns = {"steps": steps, "predicted": placed, "overlap": overlap_sums(fits)}
    notes = prediction_notes(predictions)
    return reference.scores(scoring, statistics, columns, segments, notes)


def _read_reference(scoring: ScoringTask) -> _Reference:
    dataset = read(scoring.benchmark, scoring.reference, subset=scoring.subset)
    records = {record.id: record for record in dataset.records}
    shown_steps = {}
    for id, record in records.items():
        steps = [step for step in record.reference if step.spans]
        if steps:
            shown_steps[id] = steps
    notes = reference_notes(dataset.reasons())
    return _Reference(records, shown_steps, notes)


def _step_spans(step: Step) -> Floats:
    pairs = []
    for span in step.spans:
        pairs.append([span.start, span.end])
    return np.array(pairs)


def _seconds_file(path: Path) -> dict[str, Node] | None:
    """Return the predictions by id when they are seconds, None when they are anything else."""
    if path.is_dir() or not path.name.endswith(JSON_ENDINGS):
        return None
    root = read_node(path)
    tree = root.value
    if not isinstance(tree, dict):
        return None
    values = tree.values()
    # Lists that are all empty fit both forms. They are read as segments.
    if not any(values) or not all(map(_holds_seconds, values)):
        return None
    return dict(root.entries())


def _holds_seconds(value: object) -> bool:
    items = list(value.values()) if isinstance(value, dict) else value
    if not isinstance(items, list):
        return False
    placed = [item for item in items if item is not None]
    return all(map(is_number, placed))


def _predicted_seconds(node: Node, record: Record, steps: Sequence[Step]) -> list[float | None]:
    """Return the second of each step, None where the predictions do not place it."""
    seconds: dict[str, float] = {}
    if isinstance(node.value, dict):
        for key, value in node.entries():
            seconds[key] = read_number(value)
    elif node.value:
        # A list has one second per row, and a row's number is its id.
        row_seconds = _seconds_by_row(node, record)
        for row, second in enumerate(row_seconds):
            seconds[str(row)] = second
    by_step: list[float | None] = []
    for step in steps:
        step_second = seconds.get(step.id)
        if step_second is not None and np.isnan(step_second):
            step_second = None
        by_step.append(step_second)
    return by_step


def _seconds_by_row(node: Node, record: Record) -> list[float]:
    """Return one second per row of the annotation. Of rows that the reader rejected only the count
    is known."""
    rows = []
    for step in record.reference:
        if not step.id.isdecimal():
            raise _own_ids_error(node)
        rows.append(int(step.id))
    # rows that the reader rejected may be anywhere between the others
    most = len(rows) + len(record.dropped)
    last = max(rows)
    if last >= most:
        raise _own_ids_error(node)
    seconds = read_numbers(node).tolist()
    least = max(len(seconds), last + 1)
    require_length(node, seconds, min(least, most), "rows of the reference")
    return list(seconds)


def _own_ids_error(node: Node) -> DatasetError:
    fault = f"{node.location}: this reference's steps have ids of their own"
    return DatasetError(f"{fault}; give {{step id: second}}")


def _spans_by_text(
    record: Record, steps: Sequence[Step], segments: Sequence[PredictedSegment]
) -> list[list[float] | None]:
    """Return one predicted span for each shown step: texts are compared without case and doubled
    spaces."""
    ids_by_text: dict[str, list[str]] = defaultdict(list)
    for step in record.reference:
        text = _normalised(step.text)
        ids_by_text[text].append(step.id)
    segments_by_text: dict[str, list[PredictedSegment]] = defaultdict(list)
    for segment in segments:
        text = _normalised(segment.sentence)
        segments_by_text[text].append(segment)
    # Repeated texts take their segments in the order of the file.
    placed: dict[str, list[float]] = {}
    for text, ids in ids_by_text.items():
        best = _best_scored(segments_by_text[text], len(ids))
        for id, segment in zip(ids, best, strict=False):
            placed[id] = [segment.start, segment.end]
    return [placed.get(step.id) for step in steps]


def _best_scored(segments: Sequence[PredictedSegment], count: int) -> list[PredictedSegment]:
    """Return the `count` best-scored segments in the order of the file. Without scores, return the
    first ones."""
    losses = [-(segment.score or 0.0) for segment in segments]
    # sorted is stable: of equal scores the first in the file.
    ranked = sorted(range(len(segments)), key=losses.__getitem__)
    best = sorted(ranked[:count])
    return [segments[index] for index in best]


def _normalised(text: str) -> str:
    return " ".join(text.casefold().split())
