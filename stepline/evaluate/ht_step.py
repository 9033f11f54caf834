"""HT-Step: recall at 1 of steps, and the official article-grounding mAP with a label-aware one beside it.

The official mAP groups steps by activity and asks only whether a predicted segment overlaps ANY annotated step of the
activity in that video: exchanging the labels of two steps changes nothing. The label-aware one groups by step instead,
and then takes the mean over the steps of an activity and over activities.

N predictions, M annotated segments, V videos. Source: facebookresearch/htstep, eval_article_grounding.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.spans import overlap
from stepline.evaluate.statistics import Floats, Integers, mean_of_known

TIOUS = (0.3, 0.4, 0.5, 0.6, 0.7)
SHORTEST = 1e-3  # seconds: a shorter annotation is left out, and two whose ends differ by less are one


@dataclass(frozen=True)
class Truth:
    """One annotated video: its activity, and the segments (M, 2) with the steps (M,) that they show."""

    activity: str
    segments: Floats
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Taxonomy:
    """activity: step -> activity. variation: step -> the variation of the article that it belongs to."""

    activity: Mapping[int, str]
    variation: Mapping[int, str]

    def candidates(self, truth: Truth) -> frozenset[int]:
        """Return the steps of the video's variation: predictions of other steps are left out, as officially.

        Raises DatasetError when the annotation mixes variations or names an unknown step.
        """
        unknown = [step for step in truth.steps if step not in self.activity]
        if unknown:
            raise DatasetError(f"step {unknown[0]} is not in the taxonomy; give the taxonomy of these annotations")
        variations = {self.variation[step] for step in truth.steps}
        if len(variations) > 1:
            raise DatasetError(f"a video of {truth.activity!r} mixes the variations {sorted(variations)}; correct it")
        return frozenset(
            step
            for step, activity in self.activity.items()
            if activity == truth.activity and self.variation[step] in variations
        )


@dataclass(frozen=True)
class Located:
    """Predicted segments (N, 2) of one video, the steps (N,) they are to show, scores (N,)."""

    segments: Floats
    steps: Integers
    scores: Floats
    order: Integers  # (N,) place in the file, which decides between equal scores


def unrepeated(segments: Floats, steps: Sequence[int]) -> tuple[Floats, tuple[int, ...]]:
    """Return the annotations without those shorter than SHORTEST and without second copies of the same step."""
    kept: list[int] = []
    for index, (start, end) in enumerate(segments):
        again = any(
            steps[index] == steps[other] and (np.abs(segments[index] - segments[other]) <= SHORTEST).all()
            for other in kept
        )
        if end - start >= SHORTEST and not again:
            kept.append(index)
    return segments[kept], tuple(steps[index] for index in kept)


def matches(predicted: Located, truth: Truth, tious: Sequence[float], by_label: bool) -> npt.NDArray[np.bool_]:
    """Return (len(tious), N): which predictions are right, each annotated segment taken once by the best-scored one.

    A prediction takes the free segment that it overlaps most, if by at least the threshold. Of equal scores the one
    that stands later in the file comes first, of equal overlaps the later segment: argsort()[::-1], as officially.
    by_label: only segments of the predicted step can be taken.
    """
    right = np.zeros((len(tious), len(predicted.scores)), dtype=bool)
    overlaps = overlap(predicted.segments, truth.segments)  # (N, M)
    if by_label:
        same = predicted.steps[:, None] == np.array(truth.steps, dtype=np.int64)[None, :]
        overlaps = np.where(same, overlaps, -1.0)
    ranked = _ranked(predicted)
    preference = np.argsort(overlaps, axis=1, kind="stable")[:, ::-1]
    for level, tiou in enumerate(tious):
        free = np.ones(len(truth.segments), dtype=bool)
        for n in ranked:
            candidates = [m for m in preference[n] if overlaps[n, m] >= tiou and free[m]]
            if candidates:
                free[candidates[0]] = False
                right[level, n] = True
    return right


def _ranked(predicted: Located) -> Integers:
    """Return (N,) the predictions from the best score down; of equal scores the later one in the file first."""
    return np.lexsort((-predicted.order, -predicted.scores)).astype(np.int64)


@dataclass(frozen=True)
class Group:
    """One activity, or one of its steps: right: (tious, N) in ranked order; video: (N,); annotated: (V,) counts."""

    right: npt.NDArray[np.bool_]
    video: Integers
    annotated: Floats

    def precision(self, weights: Floats) -> Floats:
        """Return (B,) interpolated average precisions, mean over the thresholds; NaN where nothing is annotated."""
        total = weights @ self.annotated  # (B,)
        if not len(self.video):
            return np.where(total > 0, 0.0, np.nan)
        item = weights[:, self.video]  # (B, N)
        every = item.cumsum(axis=1)
        out = np.zeros(len(weights))
        for right in self.right:
            found = (item * right).cumsum(axis=1)
            exact = np.divide(found, every, out=np.zeros_like(found), where=every > 0)
            best = np.maximum.accumulate(exact[:, ::-1], axis=1)[:, ::-1]
            out += (np.diff(found, prepend=0.0, axis=1) * best).sum(axis=1)
        known = np.full(len(weights), np.nan)
        np.divide(out, total * len(self.right), out=known, where=total > 0)
        return known


@dataclass(frozen=True)
class GroundingMap:
    """Mean over activities of the mean over their groups of interpolated average precision (see Statistic).

    activities: one tuple of groups an activity; the official score has one group in each.
    """

    activities: tuple[tuple[Group, ...], ...]
    count: int

    @property
    def videos(self) -> int:
        """V."""
        return self.count

    @property
    def width(self) -> int:
        """The larger of V and the predictions of one group."""
        return max([self.count, *(len(group.video) for groups in self.activities for group in groups)])

    @property
    def items(self) -> int:
        """Annotated segments."""
        return int(sum(group.annotated.sum() for groups in self.activities for group in groups))

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) means; activities without annotations in a draw are left out of it."""
        means = [
            mean_of_known(np.stack([group.precision(weights) for group in groups]), axis=0)
            for groups in self.activities
        ]
        return mean_of_known(np.stack(means), axis=0) if means else np.full(len(weights), np.nan)


def grounding_map(
    truths: Mapping[str, Truth], predictions: Mapping[str, Located], *, by_label: bool = False,
    tious: Sequence[float] = TIOUS,
) -> GroundingMap:  # fmt: skip
    """Return the article-grounding mAP as a statistic over the videos of `truths`.

    Predictions must be of candidate steps already (`Taxonomy.candidates`). A step that no video of the split shows is
    left out, as officially: its predictions count nowhere.
    """
    annotated = {step for truth in truths.values() for step in truth.steps}
    rows: dict[tuple[str, int], list[_Row]] = defaultdict(list)
    counts: dict[tuple[str, int], Floats] = {}
    for video, (name, truth) in enumerate(truths.items()):
        for step in truth.steps:
            counts.setdefault(_key(truth, step, by_label), np.zeros(len(truths)))[video] += 1
        found = predictions.get(name)
        if found is not None:
            for row, step in _judged(found, truth, video, annotated, tious, by_label):
                rows[_key(truth, step, by_label)].append(row)
    return _assembled(rows, counts, len(truths), len(tious))


@dataclass(frozen=True)
class _Row:
    score: float
    order: int
    video: int
    right: tuple[bool, ...]


def _key(truth: Truth, step: int, by_label: bool) -> tuple[str, int]:
    return truth.activity, step if by_label else -1


def _judged(
    found: Located, truth: Truth, video: int, annotated: set[int], tious: Sequence[float], by_label: bool
) -> Iterable[tuple[_Row, int]]:
    kept = np.isin(found.steps, sorted(annotated))
    found = Located(found.segments[kept], found.steps[kept], found.scores[kept], found.order[kept])
    right = matches(found, truth, tious, by_label)
    for n in range(len(found.scores)):
        yield _Row(float(found.scores[n]), int(found.order[n]), video, tuple(right[:, n])), int(found.steps[n])


def _assembled(
    rows: Mapping[tuple[str, int], list[_Row]], counts: Mapping[tuple[str, int], Floats], videos: int, levels: int
) -> GroundingMap:
    activities: dict[str, list[Group]] = defaultdict(list)
    for (activity, step), annotated in counts.items():
        ranked = sorted(rows.get((activity, step), []), key=lambda row: (-row.score, -row.order))
        right = np.array([row.right for row in ranked], dtype=bool).reshape(len(ranked), levels).T
        activities[activity].append(Group(right, np.array([row.video for row in ranked], dtype=np.int64), annotated))
    return GroundingMap(tuple(map(tuple, activities.values())), videos)
