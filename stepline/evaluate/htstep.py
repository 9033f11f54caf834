"""HT-Step: recall at 1 of steps, the official article-grounding mAP, and a label-aware one.

The official mAP groups steps by activity. It asks only whether a predicted segment overlaps ANY
annotated step of the activity in that video. Exchanging the labels of two steps changes nothing.
The label-aware one groups by step instead, and then takes the mean over the steps of an activity
and over activities. Source: facebookresearch/htstep, eval_article_grounding.

N predictions, M annotated segments, V videos.

The reference is the release's folder (annotations.json, taxonomy.csv). Predictions are its CSV
video-id,t-start,t-end,label,score or JSON by video id. The CSV gives all metrics. There the second
of a step is the middle of its best-scored segment. JSON gives R@1 only. It has one second per step,
in the order of the taxonomy's steps of the video's variation, or {step id or headline: second}.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.datasets.files import Node, file_in, read_csv
from stepline.datasets.htstep import ANNOTATIONS_FILE, ArticleStep, find_taxonomy, read_taxonomy
from stepline.datasets.submissions import GROUNDING_COLUMNS
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import (
    Floats,
    Integers,
    Statistic,
    divide_or_nan,
    mean_of_known,
    ratio,
)
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import ScoringTask, entries_by_id, read_number, read_numbers
from stepline.evaluate.span_overlaps import (
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
TABLE_ENDINGS = (".csv", ".csv.gz", ".tsv")
MAX_QUOTED_CHARS = 40  # of a faulty id in an error
Flags: TypeAlias = npt.NDArray[np.bool_]
Taxonomy: TypeAlias = Mapping[int, ArticleStep]  # by global_step_index


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
            self.segments[rows], self.steps[rows], self.scores[rows], self.order[rows]
        )


# ---------------------------------------------------------------- mean average precision


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
    right = np.zeros((len(tious), len(predicted.scores)), dtype=bool)
    overlaps = temporal_iou(predicted.segments, truth.segments)  # (N, M)
    if by_label:
        true_steps = np.array(truth.steps, dtype=np.int64)
        overlaps = np.where(predicted.steps[:, None] == true_steps, overlaps, -1.0)
    # of equal scores the later one in the file first
    ranked = np.lexsort((-predicted.order, -predicted.scores))
    preference = np.argsort(overlaps, axis=1, kind="stable")[:, ::-1]
    for level, tiou in enumerate(tious):
        free = np.ones(len(truth.segments), dtype=bool)
        for n in ranked:
            candidates = (overlaps[n] >= tiou) & free
            for m in preference[n]:
                if candidates[m]:
                    free[m] = False
                    right[level, n] = True
                    break
    return right


def _interpolated_precision(
    right: Flags, video: Integers, annotated: Floats, weights: Floats
) -> Floats:
    """Return (B,) interpolated average precisions of a group, mean over the thresholds, or NaN
    where nothing is annotated.

    Args:
        right: (tious, N) in ranked order.
        video: (N,).
        annotated: (V,) counts.
        weights: (B, V).
    """
    # Weights repeat items, so ranks and hits are sums of weights.
    total = weights @ annotated  # (B,)
    if not len(video):
        return np.where(total > 0, 0.0, np.nan)
    item = weights[:, video]  # (B, N)
    ranked = item.cumsum(axis=1)
    area = np.zeros(len(weights))
    for right_at_tiou in right:
        hits = (item * right_at_tiou).cumsum(axis=1)
        exact = np.zeros_like(hits)
        np.divide(hits, ranked, out=exact, where=ranked > 0)
        # the best precision at this rank or a later one
        best = np.maximum.accumulate(exact[:, ::-1], axis=1)[:, ::-1]
        area += (np.diff(hits, prepend=0.0, axis=1) * best).sum(axis=1)
    return divide_or_nan(area, total * len(right))


ANY_STEP = -1


def grounding_map(
    truths: Mapping[str, AnnotatedVideo],
    predictions: Mapping[str, PredictedSegments],
    *,
    by_label: bool = False,
    tious: Sequence[float] = TIOU_THRESHOLDS,
) -> Statistic:
    """Return the article-grounding mAP as a statistic over the videos of `truths`: the mean over
    activities of the mean over their groups of interpolated average precision. The official score
    has one group in each activity, the label-aware one a group per step.

    Predictions must be of candidate steps already (`candidate_steps`). A step that no video of
    the split shows is left out, as officially: its predictions count nowhere. So are activities
    without annotations in a draw.
    """
    annotated_steps = {step for truth in truths.values() for step in truth.steps}
    # of each activity and step (ANY_STEP: all of its steps): the annotations by video, and the
    # predictions as -score, -row in the file, video, whether it is right at each threshold
    annotated: dict[tuple[str, int], Floats] = {}
    predicted: dict[tuple[str, int], list[tuple[float, int, int, Flags]]] = defaultdict(list)
    for video, (id, truth) in enumerate(truths.items()):
        for step in truth.steps:
            key = (truth.activity, step if by_label else ANY_STEP)
            annotated.setdefault(key, np.zeros(len(truths)))[video] += 1
        if id in predictions:
            segments = predictions[id].select(annotated_steps)
            right = match_predictions(segments, truth, tious, by_label)
            for n, step in enumerate(segments.steps.tolist()):
                key = (truth.activity, step if by_label else ANY_STEP)
                rank = (-float(segments.scores[n]), -int(segments.order[n]))
                predicted[key].append((*rank, video, right[:, n]))
    activities: dict[str, list[Callable[[Floats], Floats]]] = defaultdict(list)
    for key, counts in annotated.items():
        rows = sorted(predicted[key], key=itemgetter(0, 1))
        flags = np.array([row[3] for row in rows], dtype=bool).reshape(len(rows), len(tious))
        videos = np.array([row[2] for row in rows], dtype=np.int64)
        activities[key[0]].append(partial(_interpolated_precision, flags.T, videos, counts))

    def score(weights: Floats) -> Floats:
        if not activities:
            return np.full(len(weights), np.nan)
        means = []
        for groups in activities.values():
            precisions = [precision(weights) for precision in groups]
            means.append(mean_of_known(np.stack(precisions), axis=0))
        return mean_of_known(np.stack(means), axis=0)

    items = int(sum(counts.sum() for counts in annotated.values()))
    return Statistic(score, len(truths), items, max(map(len, predicted.values()), default=0))


# ---------------------------------------------------------------- the annotations


def candidate_steps(truth: AnnotatedVideo, taxonomy: Taxonomy) -> frozenset[int]:
    """Return the steps of the video's variation: predictions of other steps are left out, as
    officially.

    Raises DatasetError when the annotation mixes variations or names an unknown step.
    """
    for step in truth.steps:
        if step not in taxonomy:
            fault = f"step {step} is not in the taxonomy"
            raise DatasetError(f"{fault}; give the taxonomy of these annotations")
    variations = {taxonomy[step].variation for step in truth.steps}
    if len(variations) > 1:
        fault = f"a video of {truth.activity!r} mixes the variations {sorted(variations)}"
        raise DatasetError(f"{fault}; correct it")
    return frozenset(
        number
        for number, step in taxonomy.items()
        if step.activity == truth.activity and step.variation in variations
    )


def without_duplicates(segments: Floats, steps: Sequence[int]) -> tuple[Floats, tuple[int, ...]]:
    """Return the annotations without those shorter than MIN_SEGMENT_SECONDS and without second
    copies of the same step."""
    rows: list[int] = []
    for index, (start, end) in enumerate(segments):
        # Copies are looked for among the kept rows of the same step.
        if end - start < MIN_SEGMENT_SECONDS:
            continue
        same_step = [row for row in rows if steps[row] == steps[index]]
        gaps = segments[same_step] - segments[index]  # (rows of the step, 2)
        if not (np.abs(gaps) <= MIN_SEGMENT_SECONDS).all(axis=1).any():
            rows.append(index)
    return segments[rows], tuple(steps[row] for row in rows)


def _read_taxonomy(folder: Path) -> Taxonomy:
    table = find_taxonomy(folder)
    return {_parse_step(id, str(table)): step for id, step in read_taxonomy(table).items()}


def _read_truths(scoring: ScoringTask, file: Path, taxonomy: Taxonomy) -> dict[str, AnnotatedVideo]:
    truths = {}
    for id, video in entries_by_id(file).items():
        # One subset, where one is asked for.
        subset = video.get("subset")
        is_in_subset = subset is not None and subset.value == scoring.subset
        if scoring.subset is not None and not is_in_subset:
            continue
        rows = list(video["annotations"].rows())
        spans = span_array([row["segment"].pair() for row in rows], video.location)
        numbers = [_parse_step(row["id"].name(), row.location) for row in rows]
        truth = AnnotatedVideo(video["activity"].text(), *without_duplicates(spans, numbers))
        candidate_steps(truth, taxonomy)  # an annotation that does not fit is an error
        if truth.steps:
            truths[id] = truth
    return truths


def _parse_step(id: str, location: str) -> int:
    try:
        return int(id)
    except ValueError as error:
        fault = f"step {id[:MAX_QUOTED_CHARS]!r} is not a whole number"
        raise DatasetError(f"{location}: {fault}; give a global_step_index") from error


# ---------------------------------------------------------------- the score


def score(scoring: ScoringTask) -> Scores:
    """Return R@1, and with segments also recall at overlap, mean overlap and both mAPs."""
    file = file_in(scoring.reference, ANNOTATIONS_FILE)
    taxonomy = _read_taxonomy(file.parent)
    truths = _read_truths(scoring, file, taxonomy)
    predictions: Mapping[str, object]
    if scoring.predictions.name.endswith(TABLE_ENDINGS):
        segments = _read_segments(scoring.predictions)
        predictions = segments
        statistics, columns, notes = _score_segments(truths, taxonomy, segments)
    else:
        nodes = entries_by_id(scoring.predictions)
        predictions = nodes
        unknown: list[str] = []  # names of no step of their video's variation, or of several
        seconds = {}
        for id, truth in truths.items():
            if id in nodes:
                seconds[id] = _predicted_seconds(nodes[id], truth, taxonomy, unknown)
        statistics, columns = _recall(truths, seconds)
        notes = ["no mAP and no overlap: the predictions are seconds, not segments"]
        if unknown:
            fault = "seconds name no single step of their video's article variation"
            notes.append(f"{len(unknown)} {fault}: {unknown[0]!r}")
    return scoring.scores(
        statistics,
        columns,
        items=columns["steps"].sum(),
        reference_ids=truths,
        predicted_ids=predictions,
        notes=notes,
    )


def _score_segments(
    truths: Mapping[str, AnnotatedVideo],
    taxonomy: Taxonomy,
    predictions: Mapping[str, PredictedSegments],
) -> tuple[dict[str, Statistic], dict[str, Floats], list[str]]:
    candidates: dict[str, PredictedSegments] = {}
    seconds: dict[str, dict[int, float]] = {}
    fits = []
    for id, truth in truths.items():
        best: dict[int, Floats] = {}
        if id in predictions:
            candidates[id] = predictions[id].select(candidate_steps(truth, taxonomy))
            best = _best_spans(candidates[id])
            seconds[id] = {step: float(span.mean()) for step, span in best.items()}
        # How the best span of each annotated step overlaps its instances.
        instances = truth.instances()
        spans = [best.get(step) for step in instances]
        fits.append(grounding_overlaps(spans, list(instances.values())))
    # the scores over all videos
    statistics, columns = _recall(truths, seconds)
    statistics |= overlap_statistics(fits, columns["steps"])
    columns["overlap"] = overlap_sums(fits)
    statistics["mAP"] = grounding_map(truths, candidates)
    statistics["mAP label-aware"] = grounding_map(truths, candidates, by_label=True)
    total = sum(len(segments.steps) for segments in predictions.values())
    count = sum(len(segments.steps) for segments in candidates.values())
    note = f"{count} of {total} predicted segments are of steps of their video's article variation"
    return statistics, columns, [note]


def _best_spans(segments: PredictedSegments) -> dict[int, Floats]:
    """Return the best-scored span of each step, of equal scores the first in the file."""
    best: dict[int, Floats] = {}
    for n in np.lexsort((segments.order, -segments.scores)):
        best.setdefault(int(segments.steps[n]), segments.segments[n])
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
    return {"R@1": ratio(hits, steps)}, {"hits": hits, "steps": steps}


def _predicted_seconds(
    node: Node, truth: AnnotatedVideo, taxonomy: Taxonomy, unknown: list[str]
) -> dict[int, float]:
    """Return the second of each step that has one. Names of no step, or of several, go to
    `unknown`."""
    steps = sorted(candidate_steps(truth, taxonomy))
    if not isinstance(node.value, dict):
        # One second per step of the variation, in the order of the ids.
        numbers = read_numbers(node, len(steps), "steps of the article's variation").tolist()
        pairs = list(zip(steps, numbers, strict=True))
    else:
        # Seconds by the headline of a step where no other has it, or by its id. Ids come last: they
        # win over a headline that reads like one.
        headlines = [taxonomy[step].text for step in steps]
        step_of_name = {taxonomy[step].text: step for step in steps}
        step_of_name = {
            text: step for text, step in step_of_name.items() if headlines.count(text) == 1
        }
        step_of_name |= {str(step): step for step in steps}
        unknown += [name for name in node.value if name not in step_of_name]
        pairs = []
        for name, value in node.entries():
            if name in step_of_name:
                pairs.append((step_of_name[name], read_number(value)))
    # a later null does not take back an earlier second of the same step
    return {step: second for step, second in pairs if not np.isnan(second)}


def _read_segments(path: Path) -> dict[str, PredictedSegments]:
    # start, end, score, step, line
    rows: dict[str, list[tuple[float, float, float, int, int]]] = defaultdict(list)
    for line, row in read_csv(path, GROUNDING_COLUMNS):
        location = f"{path}: line {line}"
        try:
            start, end, score = (float(row[name]) for name in ("t-start", "t-end", "score"))
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
