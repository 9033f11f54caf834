"""HT-Step: recall at 1 of steps, and the official article-grounding mAP with a label-aware one beside it.

The official mAP groups steps by activity and asks only whether a predicted segment overlaps ANY annotated step of the
activity in that video: exchanging the labels of two steps changes nothing. The label-aware one groups by step instead,
and then takes the mean over the steps of an activity and over activities.

N predictions, M annotated segments, V videos. Source: facebookresearch/htstep, eval_article_grounding.

The reference is the release's folder (annotations.json, taxonomy.csv). Predictions are its CSV
video-id,t-start,t-end,label,score (all metrics; the second of a step is the middle of its best-scored segment), or
JSON by video id (R@1 only): one second a step, in the order of the taxonomy's steps of the video's variation, or
{step id or headline: second}.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.datasets.files import Node, file_in, find_file, read_csv
from stepline.datasets.htstep import ANNOTATIONS, TAXONOMY, read_taxonomy
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Integers, Ratio, Statistic, mean_of_known
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import ScoringTask, entries_by_id, read_number, read_numbers, require_length
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
SHORTEST = 1e-3  # seconds: a shorter annotation is left out, and two whose ends differ by less are one


@dataclass(frozen=True)
class AnnotatedVideo:
    """One annotated video: its activity, and the segments (M, 2) with the steps (M,) that they show."""

    activity: str
    segments: Floats
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Taxonomy:
    """activity: step -> activity. variation: step -> the variation of the article that it belongs to."""

    activity: Mapping[int, str]
    variation: Mapping[int, str]

    def candidates(self, truth: AnnotatedVideo) -> frozenset[int]:
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
class PredictedSegments:
    """Predicted segments (N, 2) of one video, the steps (N,) they are to show, scores (N,)."""

    segments: Floats
    steps: Integers
    scores: Floats
    order: Integers  # (N,) place in the file, which decides between equal scores


def without_duplicates(segments: Floats, steps: Sequence[int]) -> tuple[Floats, tuple[int, ...]]:
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


def match_predictions(
    predicted: PredictedSegments, truth: AnnotatedVideo, tious: Sequence[float], by_label: bool
) -> npt.NDArray[np.bool_]:
    """Return (len(tious), N): which predictions are right, each annotated segment taken once by the best-scored one.

    A prediction takes the free segment that it overlaps most, if by at least the threshold. Of equal scores the one
    that stands later in the file comes first, of equal overlaps the later segment: argsort()[::-1], as officially.
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
class GroundingMeanPrecision:
    """Mean over activities of the mean over their groups of interpolated average precision (see Statistic).

    activities: one tuple of groups an activity; the official score has one group in each.
    """

    activities: tuple[tuple[RankedGroup, ...], ...]
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
    truths: Mapping[str, AnnotatedVideo], predictions: Mapping[str, PredictedSegments], *, by_label: bool = False,
    tious: Sequence[float] = TIOUS,
) -> GroundingMeanPrecision:  # fmt: skip
    """Return the article-grounding mAP as a statistic over the videos of `truths`.

    Predictions must be of candidate steps already (`Taxonomy.candidates`). A step that no video of the split shows is
    left out, as officially: its predictions count nowhere.
    """
    annotated = {step for truth in truths.values() for step in truth.steps}
    rows: dict[tuple[str, int], list[_Row]] = defaultdict(list)
    counts: dict[tuple[str, int], Floats] = {}
    for video, (name, truth) in enumerate(truths.items()):
        for step in truth.steps:
            counts.setdefault(_group_key(truth, step, by_label), np.zeros(len(truths)))[video] += 1
        found = predictions.get(name)
        if found is not None:
            for row, step in _matched_rows(found, truth, video, annotated, tious, by_label):
                rows[_group_key(truth, step, by_label)].append(row)
    return _group_rows(rows, counts, len(truths), len(tious))


@dataclass(frozen=True)
class _Row:
    score: float
    order: int
    video: int
    right: tuple[bool, ...]


def _group_key(truth: AnnotatedVideo, step: int, by_label: bool) -> tuple[str, int]:
    return truth.activity, step if by_label else -1


def _matched_rows(
    found: PredictedSegments,
    truth: AnnotatedVideo,
    video: int,
    annotated: set[int],
    tious: Sequence[float],
    by_label: bool,
) -> Iterable[tuple[_Row, int]]:
    kept = np.isin(found.steps, sorted(annotated))
    found = PredictedSegments(found.segments[kept], found.steps[kept], found.scores[kept], found.order[kept])
    right = match_predictions(found, truth, tious, by_label)
    for n in range(len(found.scores)):
        yield _Row(float(found.scores[n]), int(found.order[n]), video, tuple(right[:, n])), int(found.steps[n])


def _group_rows(
    rows: Mapping[tuple[str, int], list[_Row]], counts: Mapping[tuple[str, int], Floats], videos: int, levels: int
) -> GroundingMeanPrecision:
    activities: dict[str, list[RankedGroup]] = defaultdict(list)
    for (activity, step), annotated in counts.items():
        ranked = sorted(rows.get((activity, step), []), key=lambda row: (-row.score, -row.order))
        right = np.array([row.right for row in ranked], dtype=bool).reshape(len(ranked), levels).T
        activities[activity].append(
            RankedGroup(right, np.array([row.video for row in ranked], dtype=np.int64), annotated)
        )
    return GroundingMeanPrecision(tuple(map(tuple, activities.values())), videos)


# ---------------------------------------------------------------- the score


@dataclass(frozen=True)
class _HtStepReference:
    taxonomy: Taxonomy
    headlines: Mapping[int, str]
    truths: dict[str, AnnotatedVideo]


@dataclass
class _PredictedRows:
    """One video's rows of the CSV."""

    segments: list[tuple[float, float]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    order: list[int] = field(default_factory=list)

    def to_segments(self, allowed: frozenset[int]) -> PredictedSegments:
        """Return the rows whose step may be predicted."""
        kept = [index for index, step in enumerate(self.steps) if step in allowed]
        return PredictedSegments(
            span_array([self.segments[index] for index in kept], "ht-step"),
            np.array([self.steps[index] for index in kept], dtype=np.int64),
            np.array([self.scores[index] for index in kept], dtype=np.float64),
            np.array([self.order[index] for index in kept], dtype=np.int64),
        )


def score(scoring: ScoringTask) -> Scores:
    """Return R@1, and with segments also recall at overlap, mean overlap and both mAPs."""
    reference = _read_reference(scoring)
    if scoring.predictions.name.endswith((".csv", ".csv.gz", ".tsv")):
        return _score_segments(scoring, reference)
    given = entries_by_id(scoring.predictions)
    seconds = {id: _predicted_seconds(given[id], id, reference) for id in reference.truths if id in given}
    right, counted = _recall_counts(reference.truths, seconds)
    notes = ["no mAP and no overlap: the predictions are seconds, not segments"]
    strange = [key for id in seconds for key in _unknown_names(given[id], id, reference)]
    if strange:
        notes.append(f"{len(strange)} seconds name no single step of their video's article variation: {strange[0]!r}")
    return scoring.scores(
        reference.truths, int(counted.sum()), {"R@1": Ratio(right, counted)}, {"hits": right, "steps": counted},
        asked=reference.truths, given=given, notes=notes,
    )  # fmt: skip


def _score_segments(scoring: ScoringTask, reference: _HtStepReference) -> Scores:
    rows = _read_rows(scoring.predictions)
    found = {
        id: rows[id].to_segments(reference.taxonomy.candidates(truth))
        for id, truth in reference.truths.items()
        if id in rows
    }
    best = {id: _best_segments(located) for id, located in found.items()}
    middles = {id: {step: float(span.mean()) for step, span in spans.items()} for id, spans in best.items()}
    right, counted = _recall_counts(reference.truths, middles)
    statistics: dict[str, Statistic] = {"R@1": Ratio(right, counted)}
    columns = {"hits": right, "steps": counted}
    fits = [_step_overlaps(truth, best.get(id, {})) for id, truth in reference.truths.items()]
    statistics |= overlap_statistics(fits, counted)
    columns["overlap"] = np.array([fit.overlaps.sum() for fit in fits])
    statistics["mAP"] = grounding_map(reference.truths, found)
    statistics["mAP label-aware"] = grounding_map(reference.truths, found, by_label=True)
    total = sum(len(row.steps) for row in rows.values())
    kept = sum(len(located.steps) for located in found.values())
    notes = [f"{kept} of {total} predicted segments are of steps of their video's article variation"]
    return scoring.scores(
        reference.truths, int(counted.sum()), statistics, columns, asked=reference.truths, given=rows, notes=notes
    )


def _recall_counts(
    truths: Mapping[str, AnnotatedVideo], seconds: Mapping[str, Mapping[int, float]]
) -> tuple[Floats, Floats]:
    """Return (V,) hits and (V,) annotated steps; a step counts once, hit when its second is in any instance."""
    right, counted = np.zeros(len(truths)), np.zeros(len(truths))
    for index, (id, truth) in enumerate(truths.items()):
        steps = np.array(truth.steps, dtype=np.int64)
        for step in sorted(set(truth.steps)):
            counted[index] += 1
            second = seconds.get(id, {}).get(step)
            right[index] += second is not None and is_inside_any(second, truth.segments[steps == step], closed=True)
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
        raise DatasetError(f"{file.parent}: holds no {TAXONOMY}; put the release's beside {file.name}")
    headlines = {_parse_step(id, str(table)): row for id, row in read_taxonomy(table).items()}
    taxonomy = Taxonomy(
        {id: row.activity for id, row in headlines.items()}, {id: row.variation for id, row in headlines.items()}
    )
    truths = {}
    for id, video in entries_by_id(file).items():
        subset = video.get("subset")
        if scoring.subset is None or (subset is not None and subset.value == scoring.subset):
            truth = _read_video(video)
            taxonomy.candidates(truth)  # an annotation that does not fit its taxonomy is an error
            if truth.steps:
                truths[id] = truth
    return _HtStepReference(taxonomy, {id: row.text for id, row in headlines.items()}, truths)


def _read_video(video: Node) -> AnnotatedVideo:
    rows = list(video["annotations"].rows())
    segments = span_array([list(row["segment"].pair()) for row in rows], video.location)
    kept, steps = without_duplicates(segments, [_parse_step(row["id"].name(), row.location) for row in rows])
    return AnnotatedVideo(video["activity"].text(), kept, steps)


def _parse_step(id: str, location: str) -> int:
    try:
        return int(id)
    except ValueError as error:
        raise DatasetError(f"{location}: step {id[:40]!r} is not a whole number; give a global_step_index") from error


def _predicted_seconds(node: Node, id: str, reference: _HtStepReference) -> dict[int, float]:
    steps = sorted(reference.taxonomy.candidates(reference.truths[id]))
    if isinstance(node.value, dict):
        named = _steps_by_name(id, reference)
        pairs = [(named[key], read_number(value)) for key, value in node.entries() if key in named]
    else:
        seconds = read_numbers(node)
        require_length(node, seconds, len(steps), "steps of the article's variation")
        pairs = list(zip(steps, seconds.tolist(), strict=True))
    return {step: second for step, second in pairs if not np.isnan(second)}


def _steps_by_name(id: str, reference: _HtStepReference) -> dict[str, int]:
    """Return the steps of the video's variation by id and by headline, where only one step has that headline."""
    steps = reference.taxonomy.candidates(reference.truths[id])
    count = Counter(reference.headlines[step] for step in steps)
    headlines = {reference.headlines[step]: step for step in steps if count[reference.headlines[step]] == 1}
    return headlines | {str(step): step for step in steps}


def _unknown_names(node: Node, id: str, reference: _HtStepReference) -> list[str]:
    """Return the names that stand for no step of the video's variation, or for several."""
    named = _steps_by_name(id, reference)
    return [key for key in node.value if key not in named] if isinstance(node.value, dict) else []


def _read_rows(path: Path) -> dict[str, _PredictedRows]:
    rows: dict[str, _PredictedRows] = defaultdict(_PredictedRows)
    for line, row in read_csv(path, CSV_COLUMNS):
        try:
            start, end, value = float(row["t-start"]), float(row["t-end"]), float(row["score"])
        except ValueError as error:
            raise DatasetError(f"{path}: line {line}: {error}; t-start, t-end and score are numbers") from error
        if not np.isfinite((start, end, value)).all():
            raise DatasetError(f"{path}: line {line} holds NaN or infinity; give seconds and a score")
        video = rows[row["video-id"]]
        video.segments.append((start, end))
        video.steps.append(_parse_step(row["label"], f"{path}: line {line}"))
        video.scores.append(value)
        video.order.append(line)
    return dict(rows)
