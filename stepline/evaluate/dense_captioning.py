"""Dense captioning (YouCook2, Tasty): SODA a to d, and ActivityNet's densevid_eval in its versions.

densevid_eval: at each tIoU every (prediction, reference) pair with IoU >= tIoU becomes an item. So
one prediction may count several times. A prediction without any is compared with a garbage caption.
The metrics run video by video (CIDEr's idf and METEOR's aggregate are that video's). Their means
over videos are reported per tIoU, and the mean over tIoUs after that. Precision and recall of the
segments ask for IoU > tIoU, strictly.

    version      garbage caption                     missing videos      programs
    stepline     one fixed word                      0, and listed       ours, the default
    2018         "abc123!@#", several tokens         0                   PDVC evaluate2018, densevid_eval
    2021         a random word                       0                   PDVC evaluate2021
    vidchapters  a random word                       left out            VidChapters, Vid2Seq in PyTorch

The random word changes nothing (any unknown word scores the same), so it is the fixed one
everywhere. The 2018 garbage does change METEOR. An empty list scores 0, where PDVC stops with an
error if that video comes first. The version vidchapters also reports precision, recall and F1 by
distance of starts.

The reference is the authors' JSON or the flat form. Its segments are taken as they are, also empty
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
from stepline.evaluate.bootstrap import Floats, Statistic, ratio
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
from stepline.evaluate.soda import SodaKind, harmonic_mean, soda

Row: TypeAlias = tuple[float, ...]  # one value per threshold
Rows: TypeAlias = dict[str, Row]  # by metric
DETECTION_METRICS = ("precision", "recall", "F1")


def detection_by_iou(overlaps: Sequence[Matrix], tious: Sequence[float]) -> Rows:
    """Return detection at IoU above each tIoU, strictly. overlaps: (predictions, events) IoU, one
    per reference set."""
    return _detection([[iou > tiou for iou in overlaps] for tiou in tious])


def detection_by_start(
    references: Sequence[Sequence[Event]], events: Sequence[Event], distances: Sequence[float]
) -> Rows:
    """Return detection with starts closer than each distance. references: events of each reference
    set. Seconds."""
    starts = times(events)[:, 0]
    # (predictions, events) each
    gaps = [np.abs(starts[:, None] - times(reference)[:, 0]) for reference in references]
    return _detection([[gap < distance for gap in gaps] for distance in distances])


def _detection(hits: Iterable[list[npt.NDArray[np.bool_]]]) -> Rows:
    """Return precision, recall and their harmonic mean, each the best over the reference sets.

    hits: per threshold, one (predictions, events) matrix per reference set.
    """
    precisions = []
    recalls = []
    for matrices in hits:
        precisions.append(
            max(float(hit.any(axis=1).mean()) if len(hit) else 0.0 for hit in matrices)
        )
        recalls.append(max(float(hit.any(axis=0).mean()) for hit in matrices))
    return _with_f1({"precision": tuple(precisions), "recall": tuple(recalls)})


def _with_f1(rows: Rows) -> Rows:
    f1 = map(harmonic_mean, rows["precision"], rows["recall"])
    return {**rows, "F1": tuple(f1)}


# ---------------------------------------------------------------- densevid_eval


Version: TypeAlias = Literal["stepline", "2018", "2021", "vidchapters"]

TIOU_THRESHOLDS = (0.3, 0.5, 0.7, 0.9)
START_DISTANCES = (1.0, 3.0, 5.0, 10.0, 30.0, 60.0)  # s between starts, VidChapters
MAX_PREDICTIONS = 1000  # per video; what follows is not scored, as in every version
CAPTION_METRICS = ("METEOR", "CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L")


@dataclass(frozen=True)
class DensevidRules:
    """How one version differs. garbage: caption that a prediction without overlap is compared
    with."""

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

    per_tiou: metric -> one value per tIoU, means over videos. Keys are CAPTION_METRICS and
    DETECTION_METRICS.
    mean: metric -> mean over tIoUs.
    per_video: video -> metric -> one value per tIoU.
    by_distance: DETECTION_METRICS by distance of starts, vidchapters alone.
    missing: reference videos without predictions.
    extra: predicted videos outside the reference, ignored.
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
    meteor: Meteor | None = None,
) -> DensevidScore:
    """Return the scores of predicted events against one or more reference sets, video id -> (start,
    end, caption).

    Raises DatasetError for what cannot be scored, ModelError when METEOR's tables are missing.
    """
    if version not in RULES_BY_VERSION:
        fault = f"version={version!r}: not a version of densevid_eval"
        raise DatasetError(f"{fault}; give one of {', '.join(RULES_BY_VERSION)}")
    if not tious or not all(0.0 <= tiou <= 1.0 for tiou in tious):
        raise DatasetError(f"tious={tuple(tious)}: give at least one tIoU, each in [0, 1]")
    rules = RULES_BY_VERSION[version]
    covered = cover_videos(references, predictions, rules.missing)
    judge = DensevidScorer(rules.garbage, tuple(tious), meteor)
    per_video = {}
    distance_rows = []
    # Each video at every tIoU.
    for video in covered.scored:
        sets = [
            require_events(video, reference[video], "reference")
            for reference in references
            if video in reference
        ]
        all_events = require_events(video, predictions.get(video, ()), "predicted")
        events = all_events[:MAX_PREDICTIONS]
        try:
            per_video[video] = judge.score(sets, events)
        except DatasetError as error:  # from METEOR, which knows no videos
            raise DatasetError(f"{video}: {error}") from error
        distance_rows.append(detection_by_start(sets, events, START_DISTANCES))
    # means over videos
    per_tiou = _mean_rows(per_video.values())
    means = {metric: sum(row) / len(row) for metric, row in per_tiou.items()}
    by_distance = _mean_rows(distance_rows) if rules.by_distance else {}
    return DensevidScore(
        tious=tuple(tious),
        per_tiou=per_tiou,
        mean=means,
        per_video=per_video,
        missing=covered.missing,
        extra=covered.extra,
        by_distance=by_distance,
    )


class DensevidScorer:
    """Scores single videos at every tIoU."""

    def __init__(
        self, garbage: str, tious: tuple[float, ...], meteor: Meteor | None = None
    ) -> None:
        """Raises ModelError when METEOR's tables are missing."""
        self._meteor = meteor or Meteor()
        self._tokenizer = EventTokenizer()
        self._garbage = self._tokenizer.caption_tokens(garbage)
        self._tious = tious

    def score(self, references: list[list[Event]], events: list[Event]) -> Rows:
        """Return metric -> one value per tIoU of one video. references: its events in each
        reference set."""
        event_times = times(events)
        # (predictions, reference) each
        overlaps = [segment_iou(event_times, times(reference)) for reference in references]
        detection = detection_by_iou(overlaps, self._tious)
        if not events:
            return dict.fromkeys(CAPTION_METRICS, (0.0,) * len(self._tious)) | detection
        captions = [self._tokenizer.tokens(reference) for reference in references]
        texts = self._tokenizer.tokens(events)
        # neighbouring tIoUs often hold the same pairs
        scores: dict[tuple[CaptionPair, ...], Row] = {}
        columns = []
        for tiou in self._tious:
            items = self._items(overlaps, captions, texts, tiou)
            if items not in scores:
                scores[items] = self._caption_scores(items)
            columns.append(scores[items])
        metric_rows = zip(*columns, strict=True)
        return dict(zip(CAPTION_METRICS, metric_rows, strict=True)) | detection

    def _caption_scores(self, items: tuple[CaptionPair, ...]) -> Row:
        """Return the scores of caption pairs, in the order of CAPTION_METRICS."""
        meteor = self._meteor.compare(items).aggregate
        return (meteor, cider(items).corpus, *bleu(items).corpus, rouge_l(items).corpus)

    def _items(
        self, overlaps: list[Matrix], captions: list[list[str]], texts: list[str], tiou: float
    ) -> tuple[CaptionPair, ...]:
        """Pair each prediction with every reference event that it overlaps enough, or else with
        garbage."""
        items = []
        for row, text in enumerate(texts):
            partners = []
            for matrix, set_captions in zip(overlaps, captions, strict=True):
                # Captions pair at IoU >= tIoU. Detection asks for more than tIoU.
                is_enough = matrix[row] >= tiou
                for column in np.flatnonzero(is_enough).tolist():
                    partners.append(set_captions[column])
            for partner in partners or [self._garbage]:
                items.append(CaptionPair((partner,), text))
        return tuple(items)


def _mean_rows(rows: Iterable[Mapping[str, Row]]) -> Rows:
    """Return metric -> mean over videos at each threshold. F1 is that of the mean precision and
    recall."""
    videos = list(rows)
    means = {}
    for metric in videos[0]:
        values = [video[metric] for video in videos]
        mean = np.mean(values, axis=0)
        means[metric] = tuple(mean.tolist())
    return _with_f1(means)


# ---------------------------------------------------------------- the benchmark


MIXED_MISSING = (
    "densevid: videos without predictions count 0, as officially; "
    "SODA leaves them out, as officially"
)


def harmonic_mean_statistic(precisions: Floats, recalls: Floats) -> Statistic:
    """Return 2PR/(P+R) of the means over videos of P and R at each tIoU, then the mean over tIoUs.
    Both are (V, tIoUs). It is 0 where both means are 0."""

    def score(weights: Floats) -> Floats:
        # The share of each video in a draw.
        shares = weights / weights.sum(axis=1, keepdims=True)
        precision = shares @ precisions  # (B, tIoUs)
        recall = shares @ recalls
        # F1 of the means at each tIoU, not the mean of F1s.
        both = precision + recall
        harmonic = np.zeros_like(both)
        np.divide(2 * precision * recall, both, out=harmonic, where=both > 0)
        return np.asarray(harmonic.mean(axis=1))

    return Statistic(score, len(precisions), len(precisions))


def score(scoring: ScoringTask, *, version: Version = "stepline") -> Scores:
    """Return SODA and densevid_eval's metrics."""
    reference = read_reference(scoring)
    predictions = read_predictions(scoring.predictions, cut=scoring.cut)
    segments = match_ids(predictions.segments, reference)
    reference_videos = reference
    # Which videos count, by version.
    handling = COUNT_MISSING
    if RULES_BY_VERSION[version].missing == "skip":
        handling = SKIP_MISSING_VIDEOS
        reference_videos = {id: rows for id, rows in reference.items() if id in segments}
    elif version != "stepline":
        handling = MIXED_MISSING
    # predicted events, and which videos SODA counts: the official one leaves missing videos out,
    # whatever the version of densevid_eval
    events = {id: [row[:3] for row in segments.get(id, ())] for id in reference_videos}
    is_present = [version == "stepline" or id in segments for id in reference_videos]
    present = np.array(is_present, dtype=np.float64)
    statistics: dict[str, Statistic] = {}
    columns: dict[str, Floats] = {}
    if events:
        statistics, columns = _statistics(reference_videos, events, present, version)
    notes = prediction_notes(predictions)
    long_videos = [id for id, rows in events.items() if len(rows) > MAX_PREDICTIONS]
    if long_videos:
        rule = f"densevid takes the first {MAX_PREDICTIONS} predictions of a video, SODA all"
        notes.append(f"{rule}: {len(long_videos)} videos have more, such as {long_videos[0]}")
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
    # SODA of every kind, over the videos that it counts.
    for kind in get_args(SodaKind):
        per_video = soda(reference, events, kind=kind, meteor=meteor).per_video
        rows = np.array([per_video[id] for id in reference])  # (V, 3)
        columns[f"SODA_{kind}"] = rows[:, 2]
        for column, suffix in enumerate((" precision", " recall", "")):
            statistics[f"SODA_{kind}{suffix}"] = ratio(rows[:, column] * present, present)
    # densevid at each tIoU. A video's number is its mean over them.
    scores = densevid([reference], events, version=version, meteor=meteor).per_video
    ones = np.ones(len(reference))
    tables = {}
    for name in (*CAPTION_METRICS, "precision", "recall"):
        table = np.array([scores[id][name] for id in reference])  # (V, tIoUs)
        tables[name] = table
        columns[name] = table.mean(axis=1)
        statistics[name] = ratio(columns[name], ones)
    statistics["F1"] = harmonic_mean_statistic(tables["precision"], tables["recall"])
    return statistics, columns


def read_reference(scoring: ScoringTask) -> dict[str, list[Event]]:
    """Return the reference's segments by video id, without videos that have none.

    Raises DatasetError when the file is in neither form, or holds no video of the subset.
    """
    # The authors' form has all videos under one key.
    videos = entries_by_id(scoring.reference)
    is_author_form = "database" in videos
    if is_author_form:
        videos = dict(videos["database"].entries())
    subset = scoring.subset
    if subset is not None:
        videos = {
            id: video for id, video in videos.items() if video.optional_text("subset") == subset
        }
        if not videos:
            fault = f"{scoring.reference}: holds no subset {subset!r}"
            raise DatasetError(f"{fault}; leave --subset out")
    # Events as they are written, also empty or reversed ones.
    reference = {}
    for id, video in videos.items():
        if is_author_form:
            rows = video.optional_rows("annotations")
            pairs = [(row["segment"].pair(), row["sentence"]) for row in rows]
        else:
            pairs = list(video.pairs())
        if pairs:
            reference[id] = [(start, end, sentence.text()) for (start, end), sentence in pairs]
    return reference
