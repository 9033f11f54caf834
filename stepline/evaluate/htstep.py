"""HT-Step: recall at 1 of steps, the official article-grounding mAP, and a label-aware one.

The official mAP groups steps by activity and asks only whether a predicted segment overlaps ANY
annotated step of the activity in that video: exchanging the labels of two steps changes nothing.
The label-aware one groups by step instead, and then takes the mean over the steps of an activity
and over activities.

N predictions, M annotated segments, V videos. Source: facebookresearch/htstep,
eval_article_grounding.

The reference is the release's folder (annotations.json, taxonomy.csv). Predictions are its CSV
video-id,t-start,t-end,label,score (all metrics; the second of a step is the middle of its
best-scored segment), or JSON by video id (R@1 only): one second per step, in the order of the
taxonomy's steps of the video's variation, or {step id or headline: second}.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stepline.datasets.files import Node, file_in, read_csv
from stepline.datasets.htstep import ANNOTATIONS_FILE, find_taxonomy, read_taxonomy
from stepline.datasets.submissions import GROUNDING_COLUMNS
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import (
    Floats,
    Integers,
    Ratio,
    Statistic,
    divide_or_nan,
    mean_of_known,
)
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import ScoringTask, entries_by_id, read_number, read_numbers
from stepline.evaluate.temporal_grounding import (
    grounding_overlaps,
    instances_by_step,
    is_inside_any,
    overlap_statistics,
    overlap_sums,
    span_array,
    temporal_iou,
)

TIOU_THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
# a shorter annotation is left out, and two whose ends differ by less are one
MIN_SEGMENT_SECONDS = 1e-3
MAX_QUOTED_CHARS = 40  # of a faulty id in an error


@dataclass(frozen=True)
class AnnotatedVideo:
    """One annotated video: its activity, and the segments (M, 2) with the steps (M,) that they
    show."""

    activity: str
    segments: Floats
    steps: tuple[int, ...]

    def instances(self) -> dict[int, Floats]:
        """Return step -> its segments (M, 2)."""
        return instances_by_step(self.segments, self.steps)


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


@dataclass(frozen=True)
class PredictedSegments:
    """Predicted segments (N, 2) of one video, the steps (N,) that they predict, scores (N,)."""

    segments: Floats
    steps: Integers
    scores: Floats
    order: Integers  # (N,) row in the file, which decides between equal scores

    def select(self, steps: Iterable[int]) -> "PredictedSegments":
        """Return the predictions of these steps."""
        rows = np.isin(self.steps, sorted(steps))
        return PredictedSegments(
            segments=self.segments[rows],
            steps=self.steps[rows],
            scores=self.scores[rows],
            order=self.order[rows],
        )


def without_duplicates(segments: Floats, steps: Sequence[int]) -> tuple[Floats, tuple[int, ...]]:
    """Return the annotations without those shorter than MIN_SEGMENT_SECONDS and without second
    copies of the same step."""
    rows: list[int] = []
    for index, (start, end) in enumerate(segments):
        if end - start < MIN_SEGMENT_SECONDS:
            continue
        same_step = [row for row in rows if steps[row] == steps[index]]
        gaps = np.abs(segments[same_step] - segments[index])  # (rows of the step, 2)
        is_copy = (gaps <= MIN_SEGMENT_SECONDS).all(axis=1)
        if not is_copy.any():
            rows.append(index)
    distinct_steps = [steps[row] for row in rows]
    return segments[rows], tuple(distinct_steps)


def match_predictions(
    predicted: PredictedSegments, truth: AnnotatedVideo, tious: Sequence[float], by_label: bool
) -> npt.NDArray[np.bool_]:
    """Return (len(tious), N): which predictions are right, each annotated segment taken once by the
    best-scored one.

    A prediction takes the free segment that it overlaps most, if by at least the threshold. Of
    equal scores the one later in the file comes first, of equal overlaps the later segment:
    argsort()[::-1], as officially.
    by_label: only segments of the predicted step can be taken.
    """
    shape = (len(tious), len(predicted.scores))
    right = np.zeros(shape, dtype=bool)
    overlaps = temporal_iou(predicted.segments, truth.segments)  # (N, M)
    if by_label:
        true_steps = np.array(truth.steps, dtype=np.int64)
        is_same = predicted.steps[:, None] == true_steps  # (N, M)
        overlaps = np.where(is_same, overlaps, -1.0)
    # of equal scores the later one in the file first
    ranked = np.lexsort((-predicted.order, -predicted.scores))
    ascending = np.argsort(overlaps, axis=1, kind="stable")
    preference = ascending[:, ::-1]
    for level, tiou in enumerate(tious):
        free = np.ones(len(truth.segments), dtype=bool)
        for n in ranked:
            candidates = [m for m in preference[n] if overlaps[n, m] >= tiou and free[m]]
            if candidates:
                free[candidates[0]] = False
                right[level, n] = True
    return right


# ---------------------------------------------------------------- mean average precision


@dataclass(frozen=True)
class RankedGroup:
    """One activity, or one of its steps: right: (tious, N) in ranked order; video: (N,); annotated:
    (V,) counts."""

    right: npt.NDArray[np.bool_]
    video: Integers
    annotated: Floats

    def precision(self, weights: Floats) -> Floats:
        """Return (B,) interpolated average precisions, mean over the thresholds; NaN where nothing
        is annotated."""
        total = weights @ self.annotated  # (B,)
        if not len(self.video):
            return np.where(total > 0, 0.0, np.nan)
        item = weights[:, self.video]  # (B, N)
        ranked = item.cumsum(axis=1)
        area = np.zeros(len(weights))
        for right in self.right:
            right_items = item * right
            hits = right_items.cumsum(axis=1)
            exact = np.zeros_like(hits)
            np.divide(hits, ranked, out=exact, where=ranked > 0)
            # the best precision at this rank or a later one
            best_from_end = np.maximum.accumulate(exact[:, ::-1], axis=1)
            best = best_from_end[:, ::-1]
            gains = np.diff(hits, prepend=0.0, axis=1)
            area += (gains * best).sum(axis=1)
        return divide_or_nan(area, total * len(self.right))


@dataclass(frozen=True)
class GroundingMeanPrecision:
    """Mean over activities of the mean over their groups of interpolated average precision (see
    Statistic).

    activities: one tuple of groups per activity; the official score has one group in each.
    """

    activities: tuple[tuple[RankedGroup, ...], ...]
    videos: int  # V

    @property
    def width(self) -> int:
        """The larger of V and the predictions of one group."""
        sizes = [len(group.video) for group in chain(*self.activities)]
        return max([self.videos, *sizes])

    @property
    def items(self) -> int:
        """Annotated segments."""
        counts = [group.annotated.sum() for group in chain(*self.activities)]
        return int(sum(counts))

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) means; activities without annotations in a draw are left out of it."""
        if not self.activities:
            return np.full(len(weights), np.nan)
        means = []
        for groups in self.activities:
            precisions = [group.precision(weights) for group in groups]
            means.append(mean_of_known(np.stack(precisions), axis=0))
        return mean_of_known(np.stack(means), axis=0)


ANY_STEP = -1


class _RankedPrediction(NamedTuple):
    """A predicted segment: (-score, -row in the file), its video, and whether it is right at each
    threshold."""

    rank: tuple[float, int]
    video: int
    right: npt.NDArray[np.bool_]


def grounding_map(
    truths: Mapping[str, AnnotatedVideo],
    predictions: Mapping[str, PredictedSegments],
    *,
    by_label: bool = False,
    tious: Sequence[float] = TIOU_THRESHOLDS,
) -> GroundingMeanPrecision:
    """Return the article-grounding mAP as a statistic over the videos of `truths`.

    Predictions must be of candidate steps already (`Taxonomy.candidates`). A step that no video of
    the split shows is left out, as officially: its predictions count nowhere.
    """
    video_count = len(truths)
    annotated_steps: set[int] = set()
    for truth in truths.values():
        annotated_steps.update(truth.steps)
    # annotations and predictions of each activity and step (ANY_STEP: all of its steps)
    predicted: dict[tuple[str, int], list[_RankedPrediction]] = defaultdict(list)
    annotated: dict[tuple[str, int], Floats] = {}
    for video, (id, truth) in enumerate(truths.items()):
        for step in truth.steps:
            key = (truth.activity, step if by_label else ANY_STEP)
            if key not in annotated:
                annotated[key] = np.zeros(video_count)
            annotated[key][video] += 1
        if id in predictions:
            segments = predictions[id].select(annotated_steps)
            right = match_predictions(segments, truth, tious, by_label)
            for n, step in enumerate(segments.steps.tolist()):
                key = (truth.activity, step if by_label else ANY_STEP)
                score = float(segments.scores[n])
                row = int(segments.order[n])
                prediction = _RankedPrediction((-score, -row), video, right[:, n])
                predicted[key].append(prediction)
    # one group for each of them
    activities: dict[str, list[RankedGroup]] = defaultdict(list)
    for key, counts in annotated.items():
        activity, _ = key
        group = _ranked_group(predicted[key], counts, len(tious))
        activities[activity].append(group)
    groups = tuple(map(tuple, activities.values()))
    return GroundingMeanPrecision(groups, video_count)


def _ranked_group(
    predictions: Sequence[_RankedPrediction], annotated: Floats, tiou_count: int
) -> RankedGroup:
    ranked = sorted(predictions, key=attrgetter("rank"))
    shape = (len(ranked), tiou_count)
    right = np.array([prediction.right for prediction in ranked], dtype=bool)
    videos = np.array([prediction.video for prediction in ranked], dtype=np.int64)
    return RankedGroup(right.reshape(shape).T, videos, annotated)


@dataclass(frozen=True)
class _HtStepReference:
    taxonomy: Taxonomy
    headlines: Mapping[int, str]
    truths: dict[str, AnnotatedVideo]


def score(scoring: ScoringTask) -> Scores:
    """Return R@1, and with segments also recall at overlap, mean overlap and both mAPs."""
    reference = _read_reference(scoring)
    if scoring.predictions.name.endswith((".csv", ".csv.gz", ".tsv")):
        return _score_segments(scoring, reference)
    predictions = entries_by_id(scoring.predictions)
    unknown: list[str] = []  # names of no step of their video's variation, or of several
    seconds = {}
    for id in reference.truths:
        if id in predictions:
            seconds[id] = _predicted_seconds(predictions[id], id, reference, unknown)
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
    fits = []
    for id, truth in reference.truths.items():
        best: dict[int, Floats] = {}
        if id in predictions:
            steps = reference.taxonomy.candidates(truth)
            segments = predictions[id].select(steps)
            candidates[id] = segments
            best = _best_spans(segments)
            seconds[id] = {step: float(span.mean()) for step, span in best.items()}
        instances = truth.instances()
        spans = [best.get(step) for step in instances]
        fits.append(grounding_overlaps(spans, list(instances.values())))
    statistics, columns = _recall(reference.truths, seconds)
    statistics |= overlap_statistics(fits, columns["steps"])
    columns["overlap"] = overlap_sums(fits)
    statistics["mAP"] = grounding_map(reference.truths, candidates)
    statistics["mAP label-aware"] = grounding_map(reference.truths, candidates, by_label=True)
    total = sum(len(segments.steps) for segments in predictions.values())
    count = sum(len(segments.steps) for segments in candidates.values())
    note = f"{count} of {total} predicted segments are of steps of their video's article variation"
    return scoring.scores(
        statistics,
        columns,
        items=columns["steps"].sum(),
        reference_ids=reference.truths,
        predicted_ids=predictions,
        notes=[note],
    )


def _best_spans(segments: PredictedSegments) -> dict[int, Floats]:
    """Return the best-scored span of each step, of equal scores the first in the file."""
    best: dict[int, Floats] = {}
    for n in np.lexsort((segments.order, -segments.scores)):
        step = int(segments.steps[n])
        best.setdefault(step, segments.segments[n])
    return best


def _recall(
    truths: Mapping[str, AnnotatedVideo], seconds: Mapping[str, Mapping[int, float]]
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return R@1, and the hits and annotated steps of each video; a step counts once, hit when its
    second is in any instance."""
    hits = np.zeros(len(truths))
    steps = np.zeros(len(truths))
    for index, (id, truth) in enumerate(truths.items()):
        video_seconds = seconds.get(id, {})
        for step, instances in truth.instances().items():
            steps[index] += 1
            second = video_seconds.get(step)
            hits[index] += second is not None and is_inside_any(second, instances, closed=True)
    statistics: dict[str, Statistic] = {"R@1": Ratio(hits, steps)}
    columns = {"hits": hits, "steps": steps}
    return statistics, columns


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
    numbers = [_parse_step(row["id"].name(), row.location) for row in rows]
    segments, steps = without_duplicates(spans, numbers)
    activity = video["activity"].text()
    return AnnotatedVideo(activity, segments, steps)


def _parse_step(id: str, location: str) -> int:
    try:
        return int(id)
    except ValueError as error:
        fault = f"step {id[:MAX_QUOTED_CHARS]!r} is not a whole number"
        raise DatasetError(f"{location}: {fault}; give a global_step_index") from error


def _predicted_seconds(
    node: Node, id: str, reference: _HtStepReference, unknown: list[str]
) -> dict[int, float]:
    """Return the second of each step that has one; names of no step, or of several, go to
    `unknown`."""
    steps = sorted(reference.taxonomy.candidates(reference.truths[id]))
    seconds: dict[int, float] = {}
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
    for step in steps:
        step_of_name[str(step)] = step
    return step_of_name


def _read_segments(path: Path) -> dict[str, PredictedSegments]:
    rows: dict[str, list[tuple[float, float, float, int, int]]] = defaultdict(list)
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
