"""HT-Step: recall at 1 of steps, and the official article-grounding mAP with a label-aware one
beside it.

The official mAP groups steps by activity and asks only whether a predicted segment overlaps ANY
annotated step of the activity in that video: exchanging the labels of two steps changes nothing.
The label-aware one groups by step instead, and then takes the mean over the steps of an activity
and over activities.

N predictions, M annotated segments, V videos. Source: facebookresearch/htstep,
eval_article_grounding.

The reference is the release's folder (annotations.json, taxonomy.csv). Predictions are its CSV
video-id,t-start,t-end,label,score (all metrics; the second of a step is the middle of its
best-scored segment), or JSON by video id (R@1 only): one second a step, in the order of the
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
        unknown = [step for step in truth.steps if step not in self.activity]
        if unknown:
            raise DatasetError(
                f"step {unknown[0]} is not in the taxonomy; give the taxonomy of these annotations"
            )
        variations = {self.variation[step] for step in truth.steps}
        if len(variations) > 1:
            raise DatasetError(
                f"a video of {truth.activity!r} mixes the variations {sorted(variations)}; correct it"
            )
        return frozenset(
            step
            for step, activity in self.activity.items()
            if activity == truth.activity and self.variation[step] in variations
        )


@dataclass(frozen=True)
class PredictedSegments:
    """Predicted segments (N, 2) of one video, the steps (N,) they are to show, scores (N,)."""

    segments: Floats
    steps: Integers
    scores: Floats
    order: Integers  # (N,) row in the file, which decides between equal scores

    def select(self, steps: Iterable[int]) -> "PredictedSegments":
        """Return the predictions of these steps."""
        rows = np.isin(self.steps, sorted(steps))
        return PredictedSegments(
            self.segments[rows], self.steps[rows], self.scores[rows], self.order[rows]
        )


def without_duplicates(segments: Floats, steps: Sequence[int]) -> tuple[Floats, tuple[int, ...]]:
    """Return the annotations without those shorter than MIN_SEGMENT_SECONDS and without second
    copies of the same step."""
    rows: list[int] = []
    for index, (start, end) in enumerate(segments):
        repeated = any(
            steps[index] == steps[row]
            and (np.abs(segments[index] - segments[row]) <= MIN_SEGMENT_SECONDS).all()
            for row in rows
        )
        if end - start >= MIN_SEGMENT_SECONDS and not repeated:
            rows.append(index)
    return segments[rows], tuple(steps[row] for row in rows)


def match_predictions(
    predicted: PredictedSegments, truth: AnnotatedVideo, tious: Sequence[float], by_label: bool
) -> npt.NDArray[np.bool_]:
    """Return (len(tious), N): which predictions are right, each annotated segment taken once by the
    best-scored one.

    A prediction takes the free segment that it overlaps most, if by at least the threshold. Of
    equal scores the one that stands later in the file comes first, of equal overlaps the later
    segment: argsort()[::-1], as officially.
    by_label: only segments of the predicted step can be taken.
    """
    right = np.zeros((len(tious), len(predicted.scores)), dtype=bool)
    overlaps = temporal_iou(predicted.segments, truth.segments)  # (N, M)
    if by_label:
        same = predicted.steps[:, None] == np.array(truth.steps, dtype=np.int64)[None, :]
        overlaps = np.where(same, overlaps, -1.0)
    # of equal scores the later one in the file first
    ranked = np.lexsort((-predicted.order, -predicted.scores))
    preference = np.argsort(overlaps, axis=1, kind="stable")[:, ::-1]
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
            hits = (item * right).cumsum(axis=1)
            exact = np.divide(hits, ranked, out=np.zeros_like(hits), where=ranked > 0)
            best = np.maximum.accumulate(exact[:, ::-1], axis=1)[:, ::-1]
            area += (np.diff(hits, prepend=0.0, axis=1) * best).sum(axis=1)
        return divide_or_nan(area, total * len(self.right))


@dataclass(frozen=True)
class GroundingMeanPrecision:
    """Mean over activities of the mean over their groups of interpolated average precision (see
    Statistic).

    activities: one tuple of groups an activity; the official score has one group in each.
    """

    activities: tuple[tuple[RankedGroup, ...], ...]
    videos: int  # V

    @property
    def width(self) -> int:
        """The larger of V and the predictions of one group."""
        return max([self.videos, *(len(group.video) for group in chain(*self.activities))])

    @property
    def items(self) -> int:
        """Annotated segments."""
        return int(sum(group.annotated.sum() for group in chain(*self.activities)))

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) means; activities without annotations in a draw are left out of it."""
        means = [
            mean_of_known(np.stack([group.precision(weights) for group in groups]), axis=0)
            for groups in self.activities
        ]
        return mean_of_known(np.stack(means), axis=0) if means else np.full(len(weights), np.nan)


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
    annotated_steps = {step for truth in truths.values() for step in truth.steps}
    # by activity and step (ANY_STEP: all of its steps)
    predicted: dict[tuple[str, int], list[_RankedPrediction]] = defaultdict(list)
    annotated: dict[tuple[str, int], Floats] = {}
    for video, (id, truth) in enumerate(truths.items()):
        for step in truth.steps:
            key = truth.activity, step if by_label else ANY_STEP
            annotated.setdefault(key, np.zeros(len(truths)))[video] += 1
        if id in predictions:
            segments = predictions[id].select(annotated_steps)
            right = match_predictions(segments, truth, tious, by_label)
            for n, step in enumerate(segments.steps.tolist()):
                rank = -float(segments.scores[n]), -int(segments.order[n])
                key = truth.activity, step if by_label else ANY_STEP
                predicted[key].append(_RankedPrediction(rank, video, right[:, n]))
    activities: dict[str, list[RankedGroup]] = defaultdict(list)
    for key, counts in annotated.items():
        rows = sorted(predicted[key], key=attrgetter("rank"))
        right = np.array([row.right for row in rows], dtype=bool).reshape(len(rows), len(tious)).T
        videos = np.array([row.video for row in rows], dtype=np.int64)
        activities[key[0]].append(RankedGroup(right, videos, counts))
    return GroundingMeanPrecision(tuple(map(tuple, activities.values())), len(truths))


# ---------------------------------------------------------------- the score


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
    seconds = {
        id: _predicted_seconds(predictions[id], id, reference, unknown)
        for id in reference.truths
        if id in predictions
    }
    statistics, columns = _recall(reference.truths, seconds)
    notes = ["no mAP and no overlap: the predictions are seconds, not segments"]
    if unknown:
        notes.append(
            f"{len(unknown)} seconds name no single step of their video's article variation: {unknown[0]!r}"
        )
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
            segments = predictions[id].select(reference.taxonomy.candidates(truth))
            candidates[id] = segments
            # the best-scored segment of each step, of equal scores the first in the file
            for n in np.lexsort((segments.order, -segments.scores)):
                best.setdefault(int(segments.steps[n]), segments.segments[n])
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


def _recall(
    truths: Mapping[str, AnnotatedVideo], seconds: Mapping[str, Mapping[int, float]]
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return R@1, and the hits and annotated steps of each video; a step counts once, hit when its
    second is in any instance."""
    hits = np.zeros(len(truths))
    steps = np.zeros(len(truths))
    for index, (id, truth) in enumerate(truths.items()):
        for step, instances in truth.instances().items():
            steps[index] += 1
            second = seconds.get(id, {}).get(step)
            hits[index] += second is not None and is_inside_any(second, instances, closed=True)
    return {"R@1": Ratio(hits, steps)}, {"hits": hits, "steps": steps}


# ---------------------------------------------------------------- the files


def _read_reference(scoring: ScoringTask) -> _HtStepReference:
    file = file_in(scoring.reference, ANNOTATIONS_FILE)
    table = find_taxonomy(file.parent)
    articles = {_parse_step(id, str(table)): step for id, step in read_taxonomy(table).items()}
    taxonomy = Taxonomy(
        {id: step.activity for id, step in articles.items()},
        {id: step.variation for id, step in articles.items()},
    )
    truths = {}
    for id, video in entries_by_id(file).items():
        subset = video.get("subset")
        if scoring.subset is None or (subset is not None and subset.value == scoring.subset):
            rows = list(video["annotations"].rows())
            spans = span_array([row["segment"].pair() for row in rows], video.location)
            numbers = [_parse_step(row["id"].name(), row.location) for row in rows]
            segments, steps = without_duplicates(spans, numbers)
            truth = AnnotatedVideo(video["activity"].text(), segments, steps)
            taxonomy.candidates(truth)  # an annotation that does not fit its taxonomy is an error
            if steps:
                truths[id] = truth
    return _HtStepReference(taxonomy, {id: step.text for id, step in articles.items()}, truths)


def _parse_step(id: str, location: str) -> int:
    try:
        return int(id)
    except ValueError as error:
        raise DatasetError(
            f"{location}: step {id[:40]!r} is not a whole number; give a global_step_index"
        ) from error


def _predicted_seconds(
    node: Node, id: str, reference: _HtStepReference, unknown: list[str]
) -> dict[int, float]:
    """Return the second of each step that has one; names of no step, or of several, go to
    `unknown`."""
    steps = sorted(reference.taxonomy.candidates(reference.truths[id]))
    if isinstance(node.value, dict):
        # by id and by headline, where only one step of the variation has that headline
        headlines = [reference.headlines[step] for step in steps]
        named = {
            headline: step
            for headline, step in zip(headlines, steps, strict=True)
            if headlines.count(headline) == 1
        }
        named |= {str(step): step for step in steps}
        pairs = [(named[key], read_number(value)) for key, value in node.entries() if key in named]
        unknown += [key for key in node.value if key not in named]
    else:
        seconds = read_numbers(node, len(steps), "steps of the article's variation")
        pairs = list(zip(steps, seconds.tolist(), strict=True))
    return {step: second for step, second in pairs if not np.isnan(second)}


def _read_segments(path: Path) -> dict[str, PredictedSegments]:
    rows: dict[str, list[tuple[float, float, float, int, int]]] = defaultdict(list)
    for line, row in read_csv(path, GROUNDING_COLUMNS):
        location = f"{path}: line {line}"
        try:
            numbers = float(row["t-start"]), float(row["t-end"]), float(row["score"])
        except ValueError as error:
            raise DatasetError(
                f"{location}: {error}; t-start, t-end and score are numbers"
            ) from error
        if not np.isfinite(numbers).all():
            raise DatasetError(f"{location} holds NaN or infinity; give seconds and a score")
        rows[row["video-id"]].append((*numbers, _parse_step(row["label"], location), line))
    segments = {}
    for id, cells in rows.items():
        starts, ends, scores, steps, lines = map(np.array, zip(*cells, strict=True))
        segments[id] = PredictedSegments(np.stack([starts, ends], axis=1), steps, scores, lines)
    return segments
