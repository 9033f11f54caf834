"""Dense captioning as ActivityNet's densevid_eval scores it: caption metrics of all pairs that overlap enough.

At each tIoU every (prediction, reference) pair with IoU >= tIoU becomes an item, so that one prediction may count
several times; a prediction without any is held against a garbage caption. The metrics run video by video (CIDEr's idf
and METEOR's aggregate are that video's), their means over videos are reported per tIoU, and the mean over tIoUs after
that. Precision and recall of the segments ask for IoU > tIoU, strictly.

    version      garbage caption                     missing videos      programs
    stepline     one fixed word                      0, and listed       ours, the default
    2018         "abc123!@#", several tokens         0                   PDVC evaluate2018, densevid_eval
    2021         a random word                       0                   PDVC evaluate2021
    vidchapters  a random word                       left out            VidChapters, Vid2Seq in PyTorch

The random word changes nothing (any unknown word scores the same), so it is the fixed one everywhere; the 2018 garbage
does change METEOR. An empty list scores 0, where PDVC stops with an error if that video comes first. vidchapters also
reports precision, recall and F1 by distance of starts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.bleu import bleu
from stepline.evaluate.caption_tokens import CaptionTokens
from stepline.evaluate.captions import Item
from stepline.evaluate.cider import cider
from stepline.evaluate.detection import Detection, by_overlap, by_start, harmonic_mean
from stepline.evaluate.events import Event, Matrix, coverage, overlap, require_events, times
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.rouge import rouge_l
from stepline.evaluate.soda import PairScorer

Version = Literal["stepline", "2018", "2021", "vidchapters"]
Row = tuple[float, ...]  # one value a threshold

TIOUS = (0.3, 0.5, 0.7, 0.9)
DISTANCES = (1.0, 3.0, 5.0, 10.0, 30.0, 60.0)  # s between starts, VidChapters
MOST_PREDICTIONS = 1000  # a video; what follows is not scored, as in every version
LANGUAGE = ("METEOR", "CIDEr", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L")
DETECTION = ("precision", "recall", "F1")


@dataclass(frozen=True)
class Rules:
    """How one version differs. garbage: caption held against a prediction that overlaps nothing."""

    garbage: str
    missing: Literal["zero", "skip"]
    by_distance: bool = False


VERSIONS: dict[str, Rules] = {
    "stepline": Rules("zxqwvkjhgf", "zero"),
    "2018": Rules("abc123!@#", "zero"),
    "2021": Rules("zxqwvkjhgf", "zero"),
    "vidchapters": Rules("zxqwvkjhgf", "skip", by_distance=True),
}


@dataclass(frozen=True)
class DensevidScore:
    """Scores in [0, 1], CIDEr in [0, 10].

    per_tiou: metric -> one value a tIoU, means over videos; keys are LANGUAGE and DETECTION. mean: metric -> mean over
    tIoUs. per_video: video -> metric -> one value a tIoU. by_distance: DETECTION by distance of starts, vidchapters
    alone. missing: reference videos without predictions; extra: predicted videos outside the reference, ignored.
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
    """Return the scores of predicted events against one or more reference sets, video id -> (start, end, caption).

    Raises DatasetError for what cannot be scored, ModelError when METEOR's tables are missing.
    """
    rules = _rules(version, tious)
    covered = coverage(references, predictions, rules.missing)
    judge = Judge(rules.garbage, tuple(tious), meteor)
    per_video, distances = {}, []
    for video in covered.scored:
        wanted = [_wanted(video, reference[video]) for reference in references if video in reference]
        given = require_events(video, predictions.get(video, ()), "predicted event")[:MOST_PREDICTIONS]
        per_video[video] = _scored(judge, video, wanted, given)
        distances.append(by_start(wanted, given, DISTANCES))
    per_tiou = _mean_rows(per_video.values())
    return DensevidScore(
        tuple(tious),
        per_tiou,
        {metric: sum(row) / len(row) for metric, row in per_tiou.items()},
        per_video,
        covered.missing,
        covered.extra,
        _mean_rows(map(_detection_rows, distances)) if rules.by_distance else {},
    )


class Judge:
    """Scores single videos at every tIoU."""

    def __init__(self, garbage: str, tious: tuple[float, ...], meteor: PairScorer | None = None) -> None:
        """meteor: by default METEOR in Python. Raises ModelError when its tables are missing."""
        self._meteor: PairScorer = meteor if meteor is not None else Meteor()
        self._tokens = CaptionTokens()
        self._garbage = self._tokens.of((0.0, 0.0, garbage))
        self._tious = tious

    def score(self, wanted: list[list[Event]], given: list[Event]) -> dict[str, Row]:
        """Return metric -> one value a tIoU of one video. wanted: its events in each reference set."""
        overlaps = [overlap(times(given), times(events)) for events in wanted]  # (predictions, reference)
        rows = _detection_rows(by_overlap(overlaps, self._tious))
        if not given:
            return {**dict.fromkeys(LANGUAGE, (0.0,) * len(self._tious)), **rows}
        captions = [list(map(self._tokens.of, events)) for events in wanted]
        texts = list(map(self._tokens.of, given))
        known: dict[tuple[Item, ...], tuple[float, ...]] = {}  # neighbouring tIoUs often hold the same pairs
        columns = []
        for tiou in self._tious:
            items = self._items(overlaps, captions, texts, tiou)
            if items not in known:
                known[items] = self._language(items)
            columns.append(known[items])
        return {**dict(zip(LANGUAGE, zip(*columns, strict=True), strict=True)), **rows}

    def _items(
        self, overlaps: list[Matrix], captions: list[list[str]], texts: list[str], tiou: float
    ) -> tuple[Item, ...]:
        """Pair each prediction with every reference event that it overlaps enough, or else with garbage."""
        items = []
        for row, text in enumerate(texts):
            matched = [
                Item((captions[which][column],), text)
                for which, matrix in enumerate(overlaps)
                for column in np.flatnonzero(matrix[row] >= tiou).tolist()
            ]
            items.extend(matched or [Item((self._garbage,), text)])
        return tuple(items)

    def _language(self, items: tuple[Item, ...]) -> tuple[float, ...]:
        """Return the caption metrics of one video's items, in the order of LANGUAGE."""
        meteor = self._meteor.compare(items).aggregate
        return (meteor, cider(items).corpus, *bleu(items).corpus, rouge_l(items).corpus)


def _scored(judge: Judge, video: str, wanted: list[list[Event]], given: list[Event]) -> dict[str, Row]:
    try:
        return judge.score(wanted, given)
    except DatasetError as error:  # from METEOR, which knows no videos
        raise DatasetError(f"{video}: {error}") from error


def _rules(version: str, tious: Sequence[float]) -> Rules:
    if version not in VERSIONS:
        raise DatasetError(f"version={version!r}: not a version of densevid_eval; give one of {', '.join(VERSIONS)}")
    if not tious or not all(0.0 <= tiou <= 1.0 for tiou in tious):
        raise DatasetError(f"tious={tuple(tious)}: give at least one tIoU, each in [0, 1]")
    return VERSIONS[version]


def _wanted(video: str, events: Sequence[Event]) -> list[Event]:
    checked = require_events(video, events, "reference event")
    if not checked:
        raise DatasetError(f"{video}: the reference has no event; leave the video out")
    return checked


def _detection_rows(found: Detection) -> dict[str, Row]:
    return dict(zip(DETECTION, (found.precision, found.recall, found.f1), strict=True))


def _mean_rows(rows: Iterable[Mapping[str, Row]]) -> dict[str, Row]:
    """Return metric -> mean over videos at each threshold; F1 is that of the mean precision and recall."""
    listed = list(rows)
    means = {metric: tuple(np.mean([row[metric] for row in listed], axis=0).tolist()) for metric in listed[0]}
    return {**means, "F1": tuple(map(harmonic_mean, means["precision"], means["recall"]))}
