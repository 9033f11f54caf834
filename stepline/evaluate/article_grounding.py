"""Article grounding: HT-Step's mean average precision of predicted segments, grouped by activity or
by step.

N predictions, M annotated segments, V videos. Source: facebookresearch/htstep,
eval_article_grounding.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.evaluate.bootstrap import Floats, Integers, divide_or_nan, mean_of_known
from stepline.evaluate.span_overlaps import instances_by_step, temporal_iou

TIOU_THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7)
Flags: TypeAlias = npt.NDArray[np.bool_]


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


def match_predictions(
    predicted: PredictedSegments, truth: AnnotatedVideo, tious: Sequence[float], by_label: bool
) -> Flags:
    """Return (len(tious), N): which predictions are right, each annotated segment taken once by the
    best-scored one.

    A prediction takes the free segment that it overlaps most, if by at least the threshold. Of
    equal scores the one later in the file comes first, of equal overlaps the later segment:
    argsort()[::-1], as officially.
    by_label: only segments of the predicted step can be taken.
    """
    scores = predicted.scores
    shape = (len(tious), len(scores))
    right = np.zeros(shape, dtype=bool)
    overlaps = temporal_iou(predicted.segments, truth.segments)  # (N, M)
    if by_label:
        true_steps = np.array(truth.steps, dtype=np.int64)
        is_same = predicted.steps[:, None] == true_steps  # (N, M)
        overlaps = np.where(is_same, overlaps, -1.0)
    # of equal scores the later one in the file first
    ranked = np.lexsort((-predicted.order, -scores))
    preference = np.argsort(overlaps, axis=1, kind="stable")[:, ::-1]
    segment_count = len(truth.segments)
    for level, tiou in enumerate(tious):
        free = np.ones(segment_count, dtype=bool)
        is_enough = overlaps >= tiou
        for n in ranked:
            candidates = is_enough[n] & free
            for m in preference[n]:
                if candidates[m]:
                    free[m] = False
                    right[level, n] = True
                    break
    return right


@dataclass(frozen=True)
class RankedGroup:
    """One activity, or one of its steps.

    right: (tious, N) in ranked order.
    video: (N,).
    annotated: (V,) counts.
    """

    right: Flags
    video: Integers
    annotated: Floats

    def precision(self, weights: Floats) -> Floats:
        """Return (B,) interpolated average precisions, mean over the thresholds, or NaN where
        nothing is annotated."""
        # Weights repeat items, so ranks and hits are sums of weights.
        total = weights @ self.annotated  # (B,)
        if not len(self.video):
            return np.where(total > 0, 0.0, np.nan)
        item = weights[:, self.video]  # (B, N)
        ranked = item.cumsum(axis=1)
        area = np.zeros(len(weights))
        # Interpolated average precision at each threshold.
        for right in self.right:
            hits = (item * right).cumsum(axis=1)
            exact = np.zeros_like(hits)
            np.divide(hits, ranked, out=exact, where=ranked > 0)
            # the best precision at this rank or a later one
            from_end = exact[:, ::-1]
            best = np.maximum.accumulate(from_end, axis=1)[:, ::-1]
            areas = np.diff(hits, prepend=0.0, axis=1) * best
            area += areas.sum(axis=1)
        return divide_or_nan(area, total * len(self.right))


@dataclass(frozen=True)
class GroundingMeanPrecision:
    """Mean over activities of the mean over their groups of interpolated average precision (see
    Statistic).

    activities: one tuple of groups per activity. The official score has one group in each.
    """

    activities: tuple[tuple[RankedGroup, ...], ...]
    videos: int  # V

    @property
    def width(self) -> int:
        """The larger of V and the predictions of one group."""
        sizes = [self.videos]
        for group in chain(*self.activities):
            sizes.append(len(group.video))
        return max(sizes)

    @property
    def items(self) -> int:
        """Annotated segments."""
        groups = chain(*self.activities)
        counts = [group.annotated.sum() for group in groups]
        return int(sum(counts))

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) means. Activities without annotations in a draw are left out of it."""
        if not self.activities:
            return np.full(len(weights), np.nan)
        means = []
        for groups in self.activities:
            precisions = [group.precision(weights) for group in groups]
            means.append(_mean(precisions))
        return _mean(means)


def _mean(rows: Sequence[Floats]) -> Floats:
    return mean_of_known(np.stack(rows), axis=0)


ANY_STEP = -1
GroupKey: TypeAlias = tuple[str, int]  # activity, step


class _RankedPrediction(NamedTuple):
    """A predicted segment: (-score, -row in the file), its video, and whether it is right at each
    threshold."""

    rank: tuple[float, int]
    video: int
    right: Flags


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
    # Steps that some video of the split shows.
    video_count = len(truths)
    annotated_steps: set[int] = set()
    for truth in truths.values():
        annotated_steps.update(truth.steps)
    # annotations and predictions of each activity and step (ANY_STEP: all of its steps)
    predicted: dict[GroupKey, list[_RankedPrediction]] = defaultdict(list)
    annotated: dict[GroupKey, Floats] = {}
    for video, (id, truth) in enumerate(truths.items()):
        for step in truth.steps:
            group_step = step if by_label else ANY_STEP
            key = (truth.activity, group_step)
            if key not in annotated:
                annotated[key] = np.zeros(video_count)
            annotated[key][video] += 1
        if id in predictions:
            segments = predictions[id].select(annotated_steps)
            right = match_predictions(segments, truth, tious, by_label)
            steps = segments.steps.tolist()
            for n, step in enumerate(steps):
                group_step = step if by_label else ANY_STEP
                key = (truth.activity, group_step)
                score = float(segments.scores[n])
                row = int(segments.order[n])
                prediction = _RankedPrediction((-score, -row), video, right[:, n])
                predicted[key].append(prediction)
    # one group for each of them
    activities: dict[str, list[RankedGroup]] = defaultdict(list)
    for key, counts in annotated.items():
        activity, _ = key
        ranked = sorted(predicted[key], key=attrgetter("rank"))
        group = _ranked_group(ranked, counts, len(tious))
        activities[activity].append(group)
    groups = tuple(map(tuple, activities.values()))
    return GroundingMeanPrecision(groups, video_count)


def _ranked_group(
    ranked: Sequence[_RankedPrediction], annotated: Floats, tiou_count: int
) -> RankedGroup:
    flags = [prediction.right for prediction in ranked]
    videos = [prediction.video for prediction in ranked]
    shape = (len(ranked), tiou_count)
    right = np.array(flags, dtype=bool)
    right = right.reshape(shape)  # (N, tious)
    video = np.array(videos, dtype=np.int64)
    return RankedGroup(right.T, video, annotated)
