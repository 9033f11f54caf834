"""Dense captioning (YouCook2, Tasty): SODA a to d, and ActivityNet's densevid_eval in its versions.

densevid_eval: at each tIoU every (prediction, reference) pair with IoU >= tIoU becomes an item, so
that one prediction may count several times; a prediction without any is held against a garbage
caption. The metrics run video by video (CIDEr's idf and METEOR's aggregate are that video's), their
means over videos are reported per tIoU, and the mean over tIoUs after that. Precision and recall of
the segments ask for IoU > tIoU, strictly.

    version      garbage caption                     missing videos      programs
    stepline     one fixed word                      0, and listed       ours, the default
    2018         "abc123!@#", several tokens         0                   PDVC evaluate2018, densevid_eval
    2021         a random word                       0                   PDVC evaluate2021
    vidchapters  a random word                       left out            VidChapters, Vid2Seq in PyTorch

The random word changes nothing (any unknown word scores the same), so it is the fixed one
everywhere; the 2018 garbage does change METEOR. An empty list scores 0, where PDVC stops with an
error if that video comes first. vidchapters also reports precision, recall and F1 by distance of
starts.

The reference is the authors' JSON or the flat form; its segments are taken as they are, also empty
or reversed ones. Predictions are segments with texts, in any form that
`stepline.datasets.read_predictions` reads.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from stepline.datasets import read_predictions
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Ratio, Statistic, SumOfTotals
from stepline.evaluate.caption_metrics import CaptionPair, bleu, cider, rouge_l
from stepline.evaluate.events import (
    Event,
    EventsByVideo,
    EventTokenizer,
    Matrix,
    cover_videos,
    require_events,
    segment_iou,
    times,
)
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    COUNT_MISSING,
    SKIP_MISSING_VIDEOS,
    ScoringTask,
    entries_by_id,
    match_ids,
    prediction_notes,
)
from stepline.evaluate.soda import PairScorer, SodaKind, harmonic_mean, soda

Row: TypeAlias = tuple[float, ...]  # one value a threshold
Rows: TypeAlias = dict[str, Row]  # by metric
DETECTION_METRICS = ("precision", "recall", "F1")


def detection_by_iou(overlaps: Sequence[Matrix], tious: Sequence[float]) -> Rows:
    """Return detection at IoU above each tIoU, strictly. overlaps: (predictions, events) IoU, one a
    reference set."""
    return _detection([iou > tiou for iou in overlaps] for tiou in tious)


def detection_by_start(
    references: Sequence[Sequence[Event]], events: Sequence[Event], distances: Sequence[float]
) -> Rows:
    """Return detection with starts closer than each distance. references: events of each reference
    set. Seconds."""
    starts = times(events)[:, 0]
    # (predictions, events)
    gaps = [np.abs(starts[:, None] - times(reference)[None, :, 0]) for reference in references]
    return _detection([gap < distance for gap in gaps] for distance in distances)


def _detection(hits: Iterable[list[npt.NDArray[np.bool_]]]) -> Rows:
    """Return precision, recall and their harmonic mean, each the best over the reference sets.

    hits: per threshold, one (predictions, events) matrix a reference set.
    """
    precision, recall = [], []
    for matrices in hits:
        shares = [float(hit.any(axis=1).mean()) if len(hit) else 0.0 for hit in matrices]
        precision.append(max(shares))
        recall.append(max(float(hit.any(axis=0).mean()) for hit in matrices))
    return _with_f1({"precision": tuple(precision), "recall": tuple(recall)})


def _with_f1(rows: Rows) -> Rows:
    return {**rows, "F1": tuple(map(harmonic_mean, rows["precision"], rows["recall"]))}


# ---------------------------------------------------------------- densevid_eval


Version: TypeAlias = Literal["stepline", "2018", "2021", "vidchapters"]

TIOU_THRESHOLDS = (0.3, 0.5, 0.7, 0.9)
START_DISTANCES = (1.0, 3.0, 5.0, 10.0, 30.0, 60.0)  # s between starts, VidChapters
MAX_PREDICTIONS = 1000  # a video; what follows is not scored, as in every version
CAPTION_METRICS = ("METEOR", "CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L")


@dataclass(frozen=True)
class DensevidRules:
    """How one version differs. garbage: caption held against a prediction that overlaps nothing."""

    garbage: str
    missing: Literal["zero", "skip"]
    by_distance: bool = False


RULES_BY_VERSION: dict[str, DensevidRules] = {
    "stepline": DensevidRules("zxqwvkjhgf", "zero"),
    "2018": DensevidRules("abc123!@#", "zero"),
    "2021": DensevidRules("zxqwvkjhgf", "zero"),
    "vidchapters": DensevidRules("zxqwvkjhgf", "skip", by_distance=True),
}


@dataclass(frozen=True)
class DensevidScore:
    """Scores in [0, 1], CIDEr in [0, 10].

    per_tiou: metric -> one value a tIoU, means over videos; keys are CAPTION_METRICS and DETECTION_METRICS. mean:
    metric -> mean over tIoUs. per_video: video -> metric -> one value a tIoU. by_distance:
    DETECTION_METRICS by distance of starts, vidchapters alone. missing: reference videos without
    predictions; extra: predicted videos outside the reference, ignored.
    """

    tious: tuple[float, ...]
    per_tiou: Rows
    mean: dict[str, float]
    per_video: dict[str, Rows]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    by_distance: Rows = field(default_factory=dict)


def densevid(
    references: Sequence[EventsByVideo],
    predictions: EventsByVideo,
    *,
    version: Version = "stepline",
    tious: Sequence[float] = TIOU_THRESHOLDS,
    meteor: PairScorer | None = None,
) -> DensevidScore:
    """Return the scores of predicted events against one or more reference sets, video id -> (start,
    end, caption).

    Raises DatasetError for what cannot be scored, ModelError when METEOR's tables are missing.
    """
    if version not in RULES_BY_VERSION:
        raise DatasetError(
            f"version={version!r}: not a version of densevid_eval; give one of {', '.join(RULES_BY_VERSION)}"
        )
    if not tious or not all(0.0 <= tiou <= 1.0 for tiou in tious):
        raise DatasetError(f"tious={tuple(tious)}: give at least one tIoU, each in [0, 1]")
    rules = RULES_BY_VERSION[version]
    covered = cover_videos(references, predictions, rules.missing)
    judge = DensevidScorer(rules.garbage, tuple(tious), meteor)
    per_video, distances = {}, []
    for video in covered.scored:
        sets = [
            require_events(video, reference[video], "reference")
            for reference in references
            if video in reference
        ]
        events = require_events(video, predictions.get(video, ()), "predicted")[:MAX_PREDICTIONS]
        try:
            per_video[video] = judge.score(sets, events)
        except DatasetError as error:  # from METEOR, which knows no videos
            raise DatasetError(f"{video}: {error}") from error
        distances.append(detection_by_start(sets, events, START_DISTANCES))
    per_tiou = _mean_rows(per_video.values())
    return DensevidScore(
        tuple(tious),
        per_tiou,
        {metric: sum(row) / len(row) for metric, row in per_tiou.items()},
        per_video,
        covered.missing,
        covered.extra,
        _mean_rows(distances) if rules.by_distance else {},
    )


class DensevidScorer:
    """Scores single videos at every tIoU."""

    def __init__(
        self, garbage: str, tious: tuple[float, ...], meteor: PairScorer | None = None
    ) -> None:
        """meteor: by default METEOR in Python. Raises ModelError when its tables are missing."""
        self._meteor: PairScorer = Meteor() if meteor is None else meteor
        self._tokenizer = EventTokenizer()
        self._garbage = self._tokenizer.caption_tokens(garbage)
        self._tious = tious

    def score(self, references: list[list[Event]], events: list[Event]) -> Rows:
        """Return metric -> one value a tIoU of one video. references: its events in each reference
        set."""
        # (predictions, reference)
        overlaps = [segment_iou(times(events), times(reference)) for reference in references]
        rows = detection_by_iou(overlaps, self._tious)
        if not events:
            return {**dict.fromkeys(CAPTION_METRICS, (0.0,) * len(self._tious)), **rows}
        captions = list(map(self._tokenizer.tokens, references))
        texts = self._tokenizer.tokens(events)
        # neighbouring tIoUs often hold the same pairs
        scores: dict[tuple[CaptionPair, ...], Row] = {}
        columns = []
        for tiou in self._tious:
            items = self._items(overlaps, captions, texts, tiou)
            if items not in scores:
                meteor = self._meteor.compare(items).aggregate
                others = cider(items).corpus, *bleu(items).corpus, rouge_l(items).corpus
                scores[items] = (meteor, *others)  # in the order of CAPTION_METRICS
            columns.append(scores[items])
        return {**dict(zip(CAPTION_METRICS, zip(*columns, strict=True), strict=True)), **rows}

    def _items(
        self, overlaps: list[Matrix], captions: list[list[str]], texts: list[str], tiou: float
    ) -> tuple[CaptionPair, ...]:
        """Pair each prediction with every reference event that it overlaps enough, or else with
        garbage."""
        items = []
        for row, text in enumerate(texts):
            matched = [
                CaptionPair((captions[which][column],), text)
                for which, matrix in enumerate(overlaps)
                for column in np.flatnonzero(matrix[row] >= tiou).tolist()
            ]
            items.extend(matched or [CaptionPair((self._garbage,), text)])
        return tuple(items)


def _mean_rows(rows: Iterable[Mapping[str, Row]]) -> Rows:
    """Return metric -> mean over videos at each threshold; F1 is that of the mean precision and
    recall."""
    videos = list(rows)
    means = {
        metric: tuple(np.mean([video[metric] for video in videos], axis=0).tolist())
        for metric in videos[0]
    }
    return _with_f1(means)


# ---------------------------------------------------------------- the benchmark


MIXED_MISSING = "densevid: videos without predictions count 0, as officially; SODA leaves them out, as officially"


@dataclass(frozen=True)
class HarmonicMean(SumOfTotals):
    """2PR/(P+R) of the means over videos of P and R at each tIoU, then the mean over tIoUs; both
    (V, tIoUs).

    totals: (V,) 1 for videos that count, 0 for those left out.
    """

    precision: Floats
    recall: Floats
    totals: Floats

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) scores; 0 where both means are 0."""
        counted = weights * self.totals
        drawn = counted.sum(axis=1, keepdims=True)
        shares = np.divide(counted, drawn, out=np.zeros_like(counted), where=drawn > 0)
        precision, recall = shares @ self.precision, shares @ self.recall  # (B, tIoUs)
        both = precision + recall
        harmonic = np.zeros_like(both)
        np.divide(2 * precision * recall, both, out=harmonic, where=both > 0)
        return np.where(drawn[:, 0] > 0, harmonic.mean(axis=1), np.nan)


def score(scoring: ScoringTask, *, version: Version = "stepline") -> Scores:
    """Return SODA and densevid_eval's metrics."""
    reference = read_reference(scoring)
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, reference)
    handling = COUNT_MISSING if version == "stepline" else MIXED_MISSING
    if RULES_BY_VERSION[version].missing == "skip":
        handling = SKIP_MISSING_VIDEOS
        reference_videos = {id: rows for id, rows in reference.items() if id in segments}
    else:
        reference_videos = reference
    events = {id: [row[:3] for row in segments.get(id, ())] for id in reference_videos}
    # the official SODA leaves missing videos out, whatever the version of densevid_eval
    present = np.array([float(version == "stepline" or id in segments) for id in events])
    statistics: dict[str, Statistic] = {}
    columns: dict[str, Floats] = {}
    if events:
        statistics, columns = _statistics(reference_videos, events, present, version)
    notes = prediction_notes(predictions)
    long = [id for id, rows in events.items() if len(rows) > MAX_PREDICTIONS]
    if long:
        first = f"densevid takes the first {MAX_PREDICTIONS} predictions of a video, SODA all"
        notes.append(f"{first}: {len(long)} videos have more, such as {long[0]}")
    return scoring.scores(
        statistics,
        columns,
        items=sum(map(len, reference_videos.values())),
        reference_ids=reference,
        predicted_ids=segments,
        handling=handling,
        notes=notes,
    )


def _statistics(
    reference: EventsByVideo, events: EventsByVideo, present: Floats, version: Version
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return the metrics as statistics over the videos of the reference, and their per-video
    values."""
    meteor = Meteor()
    statistics: dict[str, Statistic] = {}
    columns: dict[str, Floats] = {}
    for kind in get_args(SodaKind):
        per_video = soda(reference, events, kind=kind, meteor=meteor).per_video
        rows = np.array([per_video[id] for id in reference])  # (V, 3)
        columns[f"SODA_{kind}"] = rows[:, 2]
        for column, name in enumerate((" precision", " recall", "")):
            statistics[f"SODA_{kind}{name}"] = Ratio(rows[:, column] * present, present)
    scores = densevid([reference], events, version=version, meteor=meteor).per_video
    ones = np.ones(len(reference))
    # (V, tIoUs)
    tables = {
        name: np.array([scores[id][name] for id in reference])
        for name in (*CAPTION_METRICS, "precision", "recall")
    }
    for name, table in tables.items():
        columns[name] = table.mean(axis=1)
        statistics[name] = Ratio(columns[name], ones)
    statistics["F1"] = HarmonicMean(tables["precision"], tables["recall"], ones)
    return statistics, columns


def read_reference(scoring: ScoringTask) -> dict[str, list[Event]]:
    """Return the reference's segments by video id, without videos that have none.

    Raises DatasetError when the file is in neither form, or holds no video of the subset.
    """
    videos = entries_by_id(scoring.reference)
    is_author_form = "database" in videos
    if is_author_form:
        videos = dict(videos["database"].entries())
    if scoring.subset is not None:
        videos = {
            id: video
            for id, video in videos.items()
            if video.optional_text("subset") == scoring.subset
        }
        if not videos:
            raise DatasetError(
                f"{scoring.reference}: holds no subset {scoring.subset!r}; leave --subset out"
            )
    reference = {}
    for id, video in videos.items():
        if is_author_form:
            rows = video.optional_rows("annotations")
            pairs = [(row["segment"].pair(), row["sentence"]) for row in rows]
        else:
            pairs = list(video.pairs())
        if pairs:
            reference[id] = [(*span, sentence.text()) for span, sentence in pairs]
    return reference
