"""HT-Step: recall at 1 of steps, the official article-grounding mAP, and a label-aware one.

The official mAP groups steps by activity. It asks only whether a predicted segment overlaps ANY
annotated step of the activity in that video. Exchanging the labels of two steps changes nothing.
The label-aware one groups by step instead, and then takes the mean over the steps of an activity
and over activities.

The mAPs are in `article_grounding`. N predictions, M annotated segments, V videos.

The reference is the release's folder (annotations.json, taxonomy.csv). Predictions are its CSV
video-id,t-start,t-end,label,score or JSON by video id. The CSV gives all metrics. There the second
of a step is the middle of its best-scored segment. JSON gives R@1 only. It has one second per step,
in the order of the taxonomy's steps of the video's variation, or {step id or headline: second}.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from stepline.datasets.files import Node, file_in, read_csv
from stepline.datasets.htstep import ANNOTATIONS_FILE, find_taxonomy, read_taxonomy
from stepline.datasets.submissions import GROUNDING_COLUMNS
from stepline.errors import DatasetError
from stepline.evaluate.article_grounding import AnnotatedVideo, PredictedSegments, grounding_map
from stepline.evaluate.bootstrap import Floats, Ratio, Statistic
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import ScoringTask, entries_by_id, read_number, read_numbers
from stepline.evaluate.span_overlaps import (
    grounding_overlaps,
    is_inside_any,
    overlap_statistics,
    overlap_sums,
    span_array,
)

# a shorter annotation is left out, and two whose ends differ by less are one
MIN_SEGMENT_SECONDS = 1e-3
TABLE_ENDINGS = (".csv", ".csv.gz", ".tsv")
MAX_QUOTED_CHARS = 40  # of a faulty id in an error
SegmentRow: TypeAlias = tuple[float, float, float, int, int]  # start, end, score, step, line


@dataclass(frozen=True)
class Taxonomy:
    """activity: step -> activity. variation: step -> the variation of the article that it belongs
    to."""

    activity: Mapping[int, str]
    variation: Mapping[int, str]

    def candidates(self, truth: AnnotatedVideo) -> frozenset[int]:
        """Return the steps of the video's variation: predictions of other steps are left out, as
        officially.

        Raises DatasetError when the annotation mixes variations or names an unknown step.
        """
        variations = set()
        for step in truth.steps:
            if step not in self.activity:
                fault = f"step {step} is not in the taxonomy"
                raise DatasetError(f"{fault}; give the taxonomy of these annotations")
            variations.add(self.variation[step])
        if len(variations) > 1:
            names = sorted(variations)
            fault = f"a video of {truth.activity!r} mixes the variations {names}"
            raise DatasetError(f"{fault}; correct it")
        candidates = set()
        for step, activity in self.activity.items():
            if activity == truth.activity and self.variation[step] in variations:
                candidates.add(step)
        return frozenset(candidates)


def without_duplicates(segments: Floats, steps: Sequence[int]) -> tuple[Floats, tuple[int, ...]]:
    """Return the annotations without those shorter than MIN_SEGMENT_SECONDS and without second
    copies of the same step."""
    rows: list[int] = []
    for index, (start, end) in enumerate(segments):
        # Copies are looked for among the kept rows of the same step.
        if end - start < MIN_SEGMENT_SECONDS:
            continue
        step = steps[index]
        same_step = [row for row in rows if steps[row] == step]
        gaps = segments[same_step] - segments[index]  # (rows of the step, 2)
        if not (np.abs(gaps) <= MIN_SEGMENT_SECONDS).all(axis=1).any():
            rows.append(index)
    distinct_steps = [steps[row] for row in rows]
    return segments[rows], tuple(distinct_steps)


@dataclass(frozen=True)
class _HtStepReference:
    taxonomy: Taxonomy
    headlines: Mapping[int, str]
    truths: dict[str, AnnotatedVideo]


def score(scoring: ScoringTask) -> Scores:
    """Return R@1, and with segments also recall at overlap, mean overlap and both mAPs."""
    reference = _read_reference(scoring)
    if scoring.predictions.name.endswith(TABLE_ENDINGS):
        return _score_segments(scoring, reference)
    predictions = entries_by_id(scoring.predictions)
    unknown: list[str] = []  # names of no step of their video's variation, or of several
    # The second of each step, by video.
    seconds = {}
    for id in reference.truths:
        if id in predictions:
            node = predictions[id]
            seconds[id] = _predicted_seconds(node, id, reference, unknown)
    statistics, columns = _recall(reference.truths, seconds)
    notes = ["no mAP and no overlap: the predictions are seconds, not segments"]
    if unknown:
        fault = "seconds name no single step of their video's article variation"
        notes.append(f"{len(unknown)} {fault}: {unknown[0]!r}")
    return scoring.scores(
        statistics,
        columns,
        items=columns["steps"].sum(),
        reference_ids=reference.truths,
        predicted_ids=predictions,
        notes=notes,
    )


def _score_segments(scoring: ScoringTask, reference: _HtStepReference) -> Scores:
    predictions = _read_segments(scoring.predictions)
    candidates: dict[str, PredictedSegments] = {}
    seconds: dict[str, dict[int, float]] = {}
    # the candidates, seconds and spans of each video
    fits = []
    for id, truth in reference.truths.items():
        best: dict[int, Floats] = {}
        if id in predictions:
            steps = reference.taxonomy.candidates(truth)
            segments = predictions[id].select(steps)
            candidates[id] = segments
            best = _best_spans(segments)
            seconds[id] = {}
            for step, span in best.items():
                seconds[id][step] = float(span.mean())
        # How the best span of each annotated step overlaps its instances.
        instances = truth.instances()
        spans = [best.get(step) for step in instances]
        reference_spans = list(instances.values())
        fits.append(grounding_overlaps(spans, reference_spans))
    # the scores over all videos
    statistics, columns = _recall(reference.truths, seconds)
    statistics |= overlap_statistics(fits, columns["steps"])
    columns["overlap"] = overlap_sums(fits)
    statistics["mAP"] = grounding_map(reference.truths, candidates)
    statistics["mAP label-aware"] = grounding_map(reference.truths, candidates, by_label=True)
    total = _segment_count(predictions)
    count = _segment_count(candidates)
    note = f"{count} of {total} predicted segments are of steps of their video's article variation"
    return scoring.scores(
        statistics,
        columns,
        items=columns["steps"].sum(),
        reference_ids=reference.truths,
        predicted_ids=predictions,
        notes=[note],
    )


def _segment_count(predictions: Mapping[str, PredictedSegments]) -> int:
    return sum(len(segments.steps) for segments in predictions.values())


def _best_spans(segments: PredictedSegments) -> dict[int, Floats]:
    """Return the best-scored span of each step, of equal scores the first in the file."""
    best: dict[int, Floats] = {}
    # Best score first. Of equal scores, the line that is first.
    ranked = np.lexsort((segments.order, -segments.scores))
    for n in ranked:
        step = int(segments.steps[n])
        best.setdefault(step, segments.segments[n])
    return best


def _recall(
    truths: Mapping[str, AnnotatedVideo], seconds: Mapping[str, Mapping[int, float]]
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return R@1, and the hits and annotated steps of each video. A step counts once, hit when its
    second is in any instance."""
    hits = np.zeros(len(truths))
    steps = np.zeros(len(truths))
    for index, (id, truth) in enumerate(truths.items()):
        video_seconds = seconds.get(id, {})
        for step, instances in truth.instances().items():
            steps[index] += 1
            second = video_seconds.get(step)
            if second is not None and is_inside_any(second, instances, closed=True):
                hits[index] += 1
    statistics: dict[str, Statistic] = {"R@1": Ratio(hits, steps)}
    return statistics, {"hits": hits, "steps": steps}


def _read_reference(scoring: ScoringTask) -> _HtStepReference:
    file = file_in(scoring.reference, ANNOTATIONS_FILE)
    table = find_taxonomy(file.parent)
    activities = {}
    variations = {}
    headlines = {}
    for id, step in read_taxonomy(table).items():
        number = _parse_step(id, str(table))
        activities[number] = step.activity
        variations[number] = step.variation
        headlines[number] = step.text
    taxonomy = Taxonomy(activities, variations)
    truths = {}
    for id, video in entries_by_id(file).items():
        # One subset, where one is asked for.
        subset = video.get("subset")
        is_in_subset = subset is not None and subset.value == scoring.subset
        if scoring.subset is not None and not is_in_subset:
            continue
        truth = _annotated_video(video)
        taxonomy.candidates(truth)  # an annotation that does not fit its taxonomy is an error
        if truth.steps:
            truths[id] = truth
    return _HtStepReference(taxonomy, headlines, truths)


def _annotated_video(video: Node) -> AnnotatedVideo:
    rows = list(video["annotations"].rows())
    pairs = [row["segment"].pair() for row in rows]
    spans = span_array(pairs, video.location)
    numbers = []
    for row in rows:
        step_id = row["id"].name()
        numbers.append(_parse_step(step_id, row.location))
    segments, steps = without_duplicates(spans, numbers)
    return AnnotatedVideo(video["activity"].text(), segments, steps)


def _parse_step(id: str, location: str) -> int:
    try:
        return int(id)
    except ValueError as error:
        fault = f"step {id[:MAX_QUOTED_CHARS]!r} is not a whole number"
        raise DatasetError(f"{location}: {fault}; give a global_step_index") from error


def _predicted_seconds(
    node: Node, id: str, reference: _HtStepReference, unknown: list[str]
) -> dict[int, float]:
    """Return the second of each step that has one. Names of no step, or of several, go to
    `unknown`."""
    truth = reference.truths[id]
    steps = sorted(reference.taxonomy.candidates(truth))
    seconds: dict[int, float] = {}
    # Seconds by the id or the headline of a step.
    if isinstance(node.value, dict):
        step_of_name = _steps_by_name(steps, reference.headlines)
        for name, value in node.entries():
            if name in step_of_name:
                step = step_of_name[name]
                second = read_number(value)
                # a later null does not take back an earlier second of the same step
                if not np.isnan(second):
                    seconds[step] = second
            else:
                unknown.append(name)
        return seconds
    # One second per step of the variation, in the order of the ids.
    numbers = read_numbers(node, len(steps), "steps of the article's variation")
    for step, second in zip(steps, numbers.tolist(), strict=True):
        if not np.isnan(second):
            seconds[step] = second
    return seconds


def _steps_by_name(steps: Sequence[int], headlines: Mapping[int, str]) -> dict[str, int]:
    """Return step of its id, and of its headline where no other of the steps has it."""
    step_headlines = [headlines[step] for step in steps]
    step_of_name = {}
    for headline, step in zip(step_headlines, steps, strict=True):
        if step_headlines.count(headline) == 1:
            step_of_name[headline] = step
    # Ids come last: they win over a headline that reads like one.
    for step in steps:
        step_of_name[str(step)] = step
    return step_of_name


def _read_segments(path: Path) -> dict[str, PredictedSegments]:
    rows: dict[str, list[SegmentRow]] = defaultdict(list)
    for line, row in read_csv(path, GROUNDING_COLUMNS):
        location = f"{path}: line {line}"
        try:
            start = float(row["t-start"])
            end = float(row["t-end"])
            score = float(row["score"])
        except ValueError as error:
            cure = "t-start, t-end and score are numbers"
            raise DatasetError(f"{location}: {error}; {cure}") from error
        if not np.isfinite([start, end, score]).all():
            raise DatasetError(f"{location} holds NaN or infinity; give seconds and a score")
        step = _parse_step(row["label"], location)
        rows[row["video-id"]].append((start, end, score, step, line))
    segments = {}
    for id, cells in rows.items():
        starts, ends, scores, steps, lines = map(np.array, zip(*cells, strict=True))
        spans = np.stack([starts, ends], axis=1)
        segments[id] = PredictedSegments(spans, steps, scores, lines)
    return segments
