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

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stepline.datasets.files import Node, file_in, find_file, read_csv
from stepline.datasets.htstep import ANNOTATIONS, TAXONOMY, read_taxonomy
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Integers, Ratio, Statistic, mean_of_known
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    ScoringTask,
    entries_by_id,
    read_number,
    read_numbers,
    require_length,
)
from stepline.evaluate.temporal_grounding import (
    SpanOverlaps,
    grounding_overlaps,
    is_inside_any,
    overlap_statistics,
    span_array,
    temporal_iou,
)

TIOUS = (0.3, 0.4, 0.5, 0.6, 0.7)
CSV_COLUMNS = ("video-id", "t-start", "t-end", "label", "score")
# seconds: a shorter annotation is left out, and two whose ends differ by less are one
SHORTEST = 1e-3


@dataclass(frozen=True)
class AnnotatedVideo:
    """One annotated video: its activity, and the segments (M, 2) with the steps (M,) that they
    show."""

    activity: str
    segments: Floats
    steps: tuple[int, ...]


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
    order: Integers  # (N,) place in the file, which decides between equal scores


def without_duplicates(segments: Floats, steps: Sequence[int]) -> tuple[Floats, tuple[int, ...]]:
    """Return the annotations without those shorter than SHORTEST and without second copies of the
    same step."""
    kept: list[int] = []
    for index, (start, end) in enumerate(segments):
        again = any(
            steps[index] == steps[other]
            and (np.abs(segments[index] - segments[other]) <= SHORTEST).all()
            for other in kept
        )
        if end - start >= SHORTEST and not again:
            kept.append(index)
    return segments[kept], tuple(steps[index] for index in kept)


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
        return max(
            [self.videos, *(len(group.video) for groups in self.activities for group in groups)]
        )

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
    truths: Mapping[str, AnnotatedVideo],
    predictions: Mapping[str, PredictedSegments],
    *,
    by_label: bool = False,
    tious: Sequence[float] = TIOUS,
) -> GroundingMeanPrecision:
    """Return the article-grounding mAP as a statistic over the videos of `truths`.

    Predictions must be of candidate steps already (`Taxonomy.candidates`). A step that no video of
    the split shows is left out, as officially: its predictions count nowhere.
    """
    annotated = {step for truth in truths.values() for step in truth.steps}
    # by activity and step (-1: all of its steps): -score, -order, video, right at each threshold
    rows: dict[tuple[str, int], list[tuple[float, int, int, npt.NDArray[np.bool_]]]] = defaultdict(
        list
    )
    counts: dict[tuple[str, int], Floats] = {}
    for video, (name, truth) in enumerate(truths.items()):
        for step in truth.steps:
            counts.setdefault((truth.activity, step if by_label else -1), np.zeros(len(truths)))[
                video
            ] += 1
        if name in predictions:
            found = predictions[name]
            kept = np.isin(found.steps, sorted(annotated))
            found = PredictedSegments(
                found.segments[kept], found.steps[kept], found.scores[kept], found.order[kept]
            )
            right = match_predictions(found, truth, tious, by_label)
            for n, (step, score, order) in enumerate(
                zip(found.steps, found.scores, found.order, strict=True)
            ):
                row = (-float(score), -int(order), video, right[:, n])
                rows[truth.activity, int(step) if by_label else -1].append(row)
    activities: dict[str, list[RankedGroup]] = defaultdict(list)
    for key, annotated_in in counts.items():
        ranked = sorted(rows[key], key=itemgetter(0, 1))
        hits = np.array([row[3] for row in ranked], dtype=bool).reshape(len(ranked), len(tious)).T
        videos = np.array([row[2] for row in ranked], dtype=np.int64)
        activities[key[0]].append(RankedGroup(hits, videos, annotated_in))
    return GroundingMeanPrecision(tuple(map(tuple, activities.values())), len(truths))


# ---------------------------------------------------------------- the score


@dataclass(frozen=True)
class _HtStepReference:
    taxonomy: Taxonomy
    headlines: Mapping[int, str]
    truths: dict[str, AnnotatedVideo]


class _CsvRow(NamedTuple):
    segment: tuple[float, float]
    step: int
    score: float
    line: int


def _segments_of(rows: Sequence[_CsvRow], allowed: frozenset[int]) -> PredictedSegments:
    """Return the rows whose step may be predicted."""
    kept = [row for row in rows if row.step in allowed]
    steps, lines = (np.array([row[column] for row in kept], dtype=np.int64) for column in (1, 3))
    scores = np.array([row.score for row in kept], dtype=np.float64)
    return PredictedSegments(
        span_array([row.segment for row in kept], "ht-step"), steps, scores, lines
    )


def score(scoring: ScoringTask) -> Scores:
    """Return R@1, and with segments also recall at overlap, mean overlap and both mAPs."""
    reference = _read_reference(scoring)
    if scoring.predictions.name.endswith((".csv", ".csv.gz", ".tsv")):
        return _score_segments(scoring, reference)
    given = entries_by_id(scoring.predictions)
    strange: list[str] = []  # names of no step of their video's variation, or of several
    shared = [id for id in reference.truths if id in given]
    seconds = {id: _predicted_seconds(given[id], id, reference, strange) for id in shared}
    right, counted = _recall_counts(reference.truths, seconds)
    notes = ["no mAP and no overlap: the predictions are seconds, not segments"]
    if strange:
        notes.append(
            f"{len(strange)} seconds name no single step of their video's article variation: {strange[0]!r}"
        )
    return scoring.scores(
        reference.truths,
        int(counted.sum()),
        {"R@1": Ratio(right, counted)},
        {"hits": right, "steps": counted},
        asked=reference.truths,
        given=given,
        notes=notes,
    )


def _score_segments(scoring: ScoringTask, reference: _HtStepReference) -> Scores:
    rows = _read_rows(scoring.predictions)
    found = {
        id: _segments_of(rows[id], reference.taxonomy.candidates(truth))
        for id, truth in reference.truths.items()
        if id in rows
    }
    best = {id: _best_segments(located) for id, located in found.items()}
    middles = {
        id: {step: float(span.mean()) for step, span in spans.items()} for id, spans in best.items()
    }
    right, counted = _recall_counts(reference.truths, middles)
    statistics: dict[str, Statistic] = {"R@1": Ratio(right, counted)}
    columns = {"hits": right, "steps": counted}
    fits = [_step_overlaps(truth, best.get(id, {})) for id, truth in reference.truths.items()]
    statistics |= overlap_statistics(fits, counted)
    columns["overlap"] = np.array([fit.overlaps.sum() for fit in fits])
    statistics["mAP"] = grounding_map(reference.truths, found)
    statistics["mAP label-aware"] = grounding_map(reference.truths, found, by_label=True)
    total = sum(map(len, rows.values()))
    kept = sum(len(located.steps) for located in found.values())
    notes = [
        f"{kept} of {total} predicted segments are of steps of their video's article variation"
    ]
    return scoring.scores(
        reference.truths,
        int(counted.sum()),
        statistics,
        columns,
        asked=reference.truths,
        given=rows,
        notes=notes,
    )


def _recall_counts(
    truths: Mapping[str, AnnotatedVideo], seconds: Mapping[str, Mapping[int, float]]
) -> tuple[Floats, Floats]:
    """Return (V,) hits and (V,) annotated steps; a step counts once, hit when its second is in any
    instance."""
    right, counted = np.zeros(len(truths)), np.zeros(len(truths))
    for index, (id, truth) in enumerate(truths.items()):
        steps = np.array(truth.steps, dtype=np.int64)
        for step in sorted(set(truth.steps)):
            counted[index] += 1
            second = seconds.get(id, {}).get(step)
            right[index] += second is not None and is_inside_any(
                second, truth.segments[steps == step], closed=True
            )
    return right, counted


def _step_overlaps(truth: AnnotatedVideo, best: Mapping[int, Floats]) -> SpanOverlaps:
    steps = np.array(truth.steps, dtype=np.int64)
    wanted = sorted(set(truth.steps))
    instances = [truth.segments[steps == step] for step in wanted]
    return grounding_overlaps([best.get(step) for step in wanted], instances)


def _best_segments(located: PredictedSegments) -> dict[int, Floats]:
    """Return the best-scored segment of each step, of equal scores the first in the file."""
    best: dict[int, Floats] = {}
    for n in np.lexsort((located.order, -located.scores)):
        best.setdefault(int(located.steps[n]), located.segments[n])
    return best


# ---------------------------------------------------------------- the files


def _read_reference(scoring: ScoringTask) -> _HtStepReference:
    file = file_in(scoring.reference, ANNOTATIONS)
    table = find_file(file.parent, TAXONOMY)
    if table is None:
        raise DatasetError(
            f"{file.parent}: holds no {TAXONOMY}; put the release's beside {file.name}"
        )
    headlines = {_parse_step(id, str(table)): row for id, row in read_taxonomy(table).items()}
    taxonomy = Taxonomy(
        {id: row.activity for id, row in headlines.items()},
        {id: row.variation for id, row in headlines.items()},
    )
    truths = {}
    for id, video in entries_by_id(file).items():
        subset = video.get("subset")
        if scoring.subset is None or (subset is not None and subset.value == scoring.subset):
            rows = list(video["annotations"].rows())
            segments = span_array([list(row["segment"].pair()) for row in rows], video.location)
            kept, steps = without_duplicates(
                segments, [_parse_step(row["id"].name(), row.location) for row in rows]
            )
            truth = AnnotatedVideo(video["activity"].text(), kept, steps)
            taxonomy.candidates(truth)  # an annotation that does not fit its taxonomy is an error
            if truth.steps:
                truths[id] = truth
    return _HtStepReference(taxonomy, {id: row.text for id, row in headlines.items()}, truths)


def _parse_step(id: str, location: str) -> int:
    try:
        return int(id)
    except ValueError as error:
        raise DatasetError(
            f"{location}: step {id[:40]!r} is not a whole number; give a global_step_index"
        ) from error


def _predicted_seconds(
    node: Node, id: str, reference: _HtStepReference, strange: list[str]
) -> dict[int, float]:
    """Return the second of each step that has one; names that stand for no step, or for several, go
    to `strange`."""
    steps = sorted(reference.taxonomy.candidates(reference.truths[id]))
    if isinstance(node.value, dict):
        # by id and by headline, where only one step of the variation has that headline
        count = Counter(reference.headlines[step] for step in steps)
        named = {
            reference.headlines[step]: step
            for step in steps
            if count[reference.headlines[step]] == 1
        }
        named |= {str(step): step for step in steps}
        pairs = [(named[key], read_number(value)) for key, value in node.entries() if key in named]
        strange += [key for key in node.value if key not in named]
    else:
        seconds = read_numbers(node)
        require_length(node, seconds, len(steps), "steps of the article's variation")
        pairs = list(zip(steps, seconds.tolist(), strict=True))
    return {step: second for step, second in pairs if not np.isnan(second)}


def _read_rows(path: Path) -> dict[str, list[_CsvRow]]:
    rows: dict[str, list[_CsvRow]] = defaultdict(list)
    for line, row in read_csv(path, CSV_COLUMNS):
        try:
            start, end, value = float(row["t-start"]), float(row["t-end"]), float(row["score"])
        except ValueError as error:
            raise DatasetError(
                f"{path}: line {line}: {error}; t-start, t-end and score are numbers"
            ) from error
        if not np.isfinite((start, end, value)).all():
            raise DatasetError(
                f"{path}: line {line} holds NaN or infinity; give seconds and a score"
            )
        step = _parse_step(row["label"], f"{path}: line {line}")
        rows[row["video-id"]].append(_CsvRow((start, end), step, value, line))
    return dict(rows)
