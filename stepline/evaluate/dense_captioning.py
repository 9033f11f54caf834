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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from stepline.datasets import read_predictions
from stepline.datasets.files import Node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Ratio, Statistic, SumOfTotals
from stepline.evaluate.caption_metrics import CaptionPair, bleu, cider, rouge_l
from stepline.evaluate.events import (
    Event,
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
    ScoringTask,
    entries_by_id,
    match_ids,
    prediction_notes,
)
from stepline.evaluate.soda import PairScorer, SodaKind, harmonic_mean, soda


@dataclass(frozen=True)
class Detection:
    """One value a threshold, in [0, 1]; the best over the reference sets, precision and recall
    apart."""

    precision: tuple[float, ...]
    recall: tuple[float, ...]

    @property
    def f1(self) -> tuple[float, ...]:
        """Return the harmonic mean at each threshold."""
        return tuple(map(harmonic_mean, self.precision, self.recall))

    def rows(self) -> dict[str, tuple[float, ...]]:
        """Return the values by the names of DETECTION."""
        return dict(zip(DETECTION, (self.precision, self.recall, self.f1), strict=True))


def detection_by_iou(overlaps: Sequence[Matrix], tious: Sequence[float]) -> Detection:
    """Return detection at IoU above each tIoU, strictly. overlaps: (predictions, events) IoU, one a
    reference set."""
    return _detection([iou > tiou for iou in overlaps] for tiou in tious)


def detection_by_start(
    wanted: Sequence[Sequence[Event]], given: Sequence[Event], distances: Sequence[float]
) -> Detection:
    """Return detection with starts closer than each distance. wanted: events of each reference set.
    Seconds."""
    starts = times(given)[:, 0]
    # (predictions, events)
    apart = [np.abs(starts[:, None] - times(events)[None, :, 0]) for events in wanted]
    return _detection([matrix < distance for matrix in apart] for distance in distances)


def _detection(hits: Iterable[list[npt.NDArray[np.bool_]]]) -> Detection:
    """hits: per threshold, one (predictions, events) matrix a reference set."""
    precision, recall = [], []
    for matrices in hits:
        precision.append(
            max(float(hit.any(axis=1).mean()) if len(hit) else 0.0 for hit in matrices)
        )
        recall.append(max(float(hit.any(axis=0).mean()) for hit in matrices))
    return Detection(tuple(precision), tuple(recall))


# ---------------------------------------------------------------- densevid_eval


Version = Literal["stepline", "2018", "2021", "vidchapters"]
Row = tuple[float, ...]  # one value a threshold

TIOUS = (0.3, 0.5, 0.7, 0.9)
DISTANCES = (1.0, 3.0, 5.0, 10.0, 30.0, 60.0)  # s between starts, VidChapters
MOST_PREDICTIONS = 1000  # a video; what follows is not scored, as in every version
LANGUAGE = ("METEOR", "CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L")
DETECTION = ("precision", "recall", "F1")


@dataclass(frozen=True)
class DensevidRules:
    """How one version differs. garbage: caption held against a prediction that overlaps nothing."""

    garbage: str
    missing: Literal["zero", "skip"]
    by_distance: bool = False


VERSIONS: dict[str, DensevidRules] = {
    "stepline": DensevidRules("zxqwvkjhgf", "zero"),
    "2018": DensevidRules("abc123!@#", "zero"),
    "2021": DensevidRules("zxqwvkjhgf", "zero"),
    "vidchapters": DensevidRules("zxqwvkjhgf", "skip", by_distance=True),
}


@dataclass(frozen=True)
class DensevidScore:
    """Scores in [0, 1], CIDEr in [0, 10].

    per_tiou: metric -> one value a tIoU, means over videos; keys are LANGUAGE and DETECTION. mean:
    metric -> mean over tIoUs. per_video: video -> metric -> one value a tIoU. by_distance:
    DETECTION by distance of starts, vidchapters alone. missing: reference videos without
    predictions; extra: predicted videos outside the reference, ignored.
    """

    tious: tuple[float, ...]
    per_tiou: dict[str, Row]
    mean: dict[str, float]
    per_video: dict[str, dict[str, Row]]
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    by_distance: dict[str, Row] = field(default_factory=dict)


def densevid(
    references: Sequence[Mapping[str, Sequence[Event]]],
    predictions: Mapping[str, Sequence[Event]],
    *,
    version: Version = "stepline",
    tious: Sequence[float] = TIOUS,
    meteor: PairScorer | None = None,
) -> DensevidScore:
    """Return the scores of predicted events against one or more reference sets, video id -> (start,
    end, caption).

    Raises DatasetError for what cannot be scored, ModelError when METEOR's tables are missing.
    """
    if version not in VERSIONS:
        raise DatasetError(
            f"version={version!r}: not a version of densevid_eval; give one of {', '.join(VERSIONS)}"
        )
    if not tious or not all(0.0 <= tiou <= 1.0 for tiou in tious):
        raise DatasetError(f"tious={tuple(tious)}: give at least one tIoU, each in [0, 1]")
    rules = VERSIONS[version]
    covered = cover_videos(references, predictions, rules.missing)
    judge = DensevidScorer(rules.garbage, tuple(tious), meteor)
    per_video, distances = {}, []
    for video in covered.scored:
        wanted = [
            require_events(video, reference[video], "reference")
            for reference in references
            if video in reference
        ]
        given = require_events(video, predictions.get(video, ()), "predicted")[:MOST_PREDICTIONS]
        try:
            per_video[video] = judge.score(wanted, given)
        except DatasetError as error:  # from METEOR, which knows no videos
            raise DatasetError(f"{video}: {error}") from error
        distances.append(detection_by_start(wanted, given, DISTANCES).rows())
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
        self._meteor: PairScorer = meteor if meteor is not None else Meteor()
        self._tokens = EventTokenizer()
        self._garbage = self._tokens.of((0.0, 0.0, garbage))
        self._tious = tious

    def score(self, wanted: list[list[Event]], given: list[Event]) -> dict[str, Row]:
        """Return metric -> one value a tIoU of one video. wanted: its events in each reference
        set."""
        # (predictions, reference)
        overlaps = [segment_iou(times(given), times(events)) for events in wanted]
        rows = detection_by_iou(overlaps, self._tious).rows()
        if not given:
            return {**dict.fromkeys(LANGUAGE, (0.0,) * len(self._tious)), **rows}
        captions = [list(map(self._tokens.of, events)) for events in wanted]
        texts = list(map(self._tokens.of, given))
        # neighbouring tIoUs often hold the same pairs
        known: dict[tuple[CaptionPair, ...], tuple[float, ...]] = {}
        columns = []
        for tiou in self._tious:
            items = self._items(overlaps, captions, texts, tiou)
            if items not in known:
                meteor = self._meteor.compare(items).aggregate
                # in the order of LANGUAGE
                known[items] = (
                    meteor,
                    cider(items).corpus,
                    *bleu(items).corpus,
                    rouge_l(items).corpus,
                )
            columns.append(known[items])
        return {**dict(zip(LANGUAGE, zip(*columns, strict=True), strict=True)), **rows}

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


def _mean_rows(rows: Iterable[Mapping[str, Row]]) -> dict[str, Row]:
    """Return metric -> mean over videos at each threshold; F1 is that of the mean precision and
    recall."""
    listed = list(rows)
    means = {
        metric: tuple(np.mean([row[metric] for row in listed], axis=0).tolist())
        for metric in listed[0]
    }
    return {**means, "F1": tuple(map(harmonic_mean, means["precision"], means["recall"]))}


# ---------------------------------------------------------------- the benchmark


KINDS: tuple[SodaKind, ...] = ("a", "b", "c", "d")
MIXED = "densevid: videos without predictions count 0, as officially; SODA leaves them out, as officially"
SKIPPED = "videos without predictions are left out of the score, as officially"


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
        harmonic = np.divide(
            2 * precision * recall, both, out=np.zeros_like(both), where=both > 0
        ).mean(axis=1)
        return np.where(drawn[:, 0] > 0, harmonic, np.nan)


def score(scoring: ScoringTask, *, version: Version = "stepline") -> Scores:
    """Return SODA and densevid_eval's metrics."""
    reference = read_reference(scoring)
    predictions = read_predictions(scoring.predictions)
    segments = match_ids(predictions.segments, reference)
    given: dict[str, list[Event]] = {
        id: [s[:3] for s in rows] for id, rows in segments.items() if id in reference
    }
    skip = VERSIONS[version].missing == "skip"
    kept = [id for id in reference if id in given or not skip]
    full = {id: given.get(id, []) for id in kept}
    truth = {id: reference[id] for id in kept}
    # the official SODA leaves missing videos out whatever the version of densevid_eval beside it
    present = np.array([float(version == "stepline" or id in given) for id in kept])
    statistics, columns = _statistics(truth, full, present, version) if kept else ({}, {})
    notes = [*prediction_notes(predictions)]
    long = [id for id, rows in full.items() if len(rows) > MOST_PREDICTIONS]
    if long:
        first = f"densevid takes the first {MOST_PREDICTIONS} predictions of a video, SODA all"
        notes.append(f"{first}: {len(long)} videos have more, such as {long[0]}")
    return scoring.scores(
        kept,
        sum(map(len, truth.values())),
        statistics,
        columns,
        asked=reference,
        given=segments,
        handling=COUNT_MISSING if version == "stepline" else (SKIPPED if skip else MIXED),
        notes=notes,
    )


def _statistics(
    truth: Mapping[str, list[Event]],
    given: Mapping[str, list[Event]],
    present: Floats,
    version: Version,
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return the metrics as statistics over the videos of `truth`, and their per-video values."""
    meteor = Meteor()
    statistics: dict[str, Statistic] = {}
    columns: dict[str, Floats] = {}
    for kind in KINDS:
        found_pairs = soda(truth, given, kind=kind, meteor=meteor)
        rows = np.array([found_pairs.per_video[id] for id in truth])  # (V, 3)
        columns[f"SODA_{kind}"] = rows[:, 2]
        for column, name in enumerate(("precision", "recall", "F1")):
            label = f"SODA_{kind}" if name == "F1" else f"SODA_{kind} {name}"
            statistics[label] = Ratio(rows[:, column] * present, present)
    scored = densevid([truth], given, version=version, meteor=meteor).per_video
    ones = np.ones(len(truth))
    # (V, tIoUs)
    tables = {
        name: np.array([scored[id][name] for id in truth]) for name in (*LANGUAGE, *DETECTION[:2])
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
    read: Callable[[Node], list[Event]] = _flat_events
    if "database" in videos:
        videos, read = dict(videos["database"].entries()), _author_events
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
    return {id: rows for id, video in videos.items() if (rows := read(video))}


def _flat_events(video: Node) -> list[Event]:
    spans, texts = list(video["timestamps"].rows()), list(video["sentences"].rows())
    if len(spans) != len(texts):
        raise DatasetError(
            f"{video.location}: {len(spans)} timestamps but {len(texts)} sentences; they go in pairs"
        )
    return [(*span.pair(), text.text()) for span, text in zip(spans, texts, strict=True)]


def _author_events(video: Node) -> list[Event]:
    rows = video.get("annotations")
    return [
        (*row["segment"].pair(), row["sentence"].text()) for row in (rows.rows() if rows else ())
    ]
