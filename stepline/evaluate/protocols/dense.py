"""Dense captions as a benchmark (YouCook2, Tasty): SODA a to d, and densevid_eval in its versions.

The reference is the authors' JSON or the flat form; its segments are taken as they are, also empty or reversed ones.
Predictions are segments with texts, in any form that `stepline.datasets.read_predictions` reads.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from stepline.datasets import read_predictions
from stepline.datasets.node import Node
from stepline.errors import DatasetError
from stepline.evaluate.densevid import DETECTION, LANGUAGE, MOST_PREDICTIONS, VERSIONS, DensevidScore, Version, densevid
from stepline.evaluate.events import Event
from stepline.evaluate.meteor import Meteor
from stepline.evaluate.protocols.case import ZERO, Case, by_id, same_ids, unread_note
from stepline.evaluate.report import Scores
from stepline.evaluate.soda import Kind, SodaScore, soda
from stepline.evaluate.statistics import Floats, Ratio, Statistic

KINDS: tuple[Kind, ...] = ("a", "b", "c", "d")
MIXED = "densevid: videos without predictions count 0, as officially; SODA leaves them out, as officially"
SKIPPED = "videos without predictions are left out of the score, as officially"


@dataclass(frozen=True)
class HarmonicMean:
    """2PR/(P+R) of the means over videos of P and R at each tIoU, then the mean over tIoUs; both (V, tIoUs).

    totals: (V,) 1 for videos that count, 0 for those left out.
    """

    precision: Floats
    recall: Floats
    totals: Floats

    @property
    def videos(self) -> int:
        """V."""
        return len(self.totals)

    @property
    def width(self) -> int:
        """V."""
        return len(self.totals)

    @property
    def items(self) -> int:
        """Videos that count."""
        return int(self.totals.sum())

    def __call__(self, weights: Floats) -> Floats:
        """Return (B,) scores; 0 where both means are 0."""
        counted = weights * self.totals
        drawn = counted.sum(axis=1, keepdims=True)
        shares = np.divide(counted, drawn, out=np.zeros_like(counted), where=drawn > 0)
        precision, recall = shares @ self.precision, shares @ self.recall  # (B, tIoUs)
        both = precision + recall
        harmonic = np.divide(2 * precision * recall, both, out=np.zeros_like(both), where=both > 0).mean(axis=1)
        return np.where(drawn[:, 0] > 0, harmonic, np.nan)


def score(case: Case, *, version: Version = "stepline") -> Scores:
    """Return SODA and densevid_eval's metrics."""
    reference = events(case)
    predictions = read_predictions(case.predictions)
    segments = same_ids(predictions.segments, reference)
    given: dict[str, list[Event]] = {id: [s[:3] for s in rows] for id, rows in segments.items() if id in reference}
    skip = VERSIONS[version].missing == "skip"
    kept = [id for id in reference if id in given or not skip]
    full = {id: given.get(id, []) for id in kept}
    truth = {id: reference[id] for id in kept}
    # the official SODA leaves missing videos out whatever the version of densevid_eval beside it
    present = np.array([float(version == "stepline" or id in given) for id in kept])
    statistics, columns = _statistics(truth, full, present, version) if kept else ({}, {})
    notes = (*unread_note(predictions), *_cut_note(full))
    return case.scores(
        kept, sum(map(len, truth.values())), statistics, columns, asked=reference, given=segments,
        handling=ZERO if version == "stepline" else (SKIPPED if skip else MIXED), notes=notes,
    )  # fmt: skip


def _cut_note(given: Mapping[str, list[Event]]) -> tuple[str, ...]:
    """Return a note of videos with more predictions than densevid_eval takes."""
    long = [id for id, rows in given.items() if len(rows) > MOST_PREDICTIONS]
    first = f"densevid takes the first {MOST_PREDICTIONS} predictions of a video, SODA all"
    return (f"{first}: {len(long)} videos have more, such as {long[0]}",) if long else ()


def _statistics(
    truth: Mapping[str, list[Event]], given: Mapping[str, list[Event]], present: Floats, version: Version
) -> tuple[dict[str, Statistic], dict[str, Floats]]:
    """Return the metrics as statistics over the videos of `truth`, and their per-video values."""
    meteor = Meteor()
    statistics: dict[str, Statistic] = {}
    columns: dict[str, Floats] = {}
    for kind in KINDS:
        rows = _soda_rows(soda(truth, given, kind=kind, meteor=meteor), truth)  # (V, 3)
        columns[f"SODA_{kind}"] = rows[:, 2]
        for place, name in enumerate(("precision", "recall", "F1")):
            label = f"SODA_{kind}" if name == "F1" else f"SODA_{kind} {name}"
            statistics[label] = Ratio(rows[:, place] * present, present)
    found = densevid([truth], given, version=version, meteor=meteor)
    ones = np.ones(len(truth))
    for name in (*LANGUAGE, *DETECTION[:2]):
        columns[name] = _densevid_rows(found, truth, name).mean(axis=1)
        statistics[name] = Ratio(columns[name], ones)
    statistics["F1"] = HarmonicMean(
        _densevid_rows(found, truth, "precision"), _densevid_rows(found, truth, "recall"), ones
    )
    return statistics, columns


def _soda_rows(found: SodaScore, ids: Iterable[str]) -> Floats:
    return np.array([found.per_video[id] for id in ids])


def _densevid_rows(found: DensevidScore, ids: Iterable[str], name: str) -> Floats:
    return np.array([found.per_video[id][name] for id in ids])  # (V, tIoUs)


def events(case: Case) -> dict[str, list[Event]]:
    """Return the reference's segments by video id, without videos that have none.

    Raises DatasetError when the file is in neither form, or holds no video of the subset.
    """
    videos = by_id(case.reference)
    read: Callable[[Node], list[Event]] = _flat
    if "database" in videos:
        videos, read = dict(videos["database"].entries()), _authors
    if case.subset is not None:
        videos = {id: video for id, video in videos.items() if _subset(video) == case.subset}
        if not videos:
            raise DatasetError(f"{case.reference}: holds no subset {case.subset!r}; leave --subset out")
    return {id: rows for id, video in videos.items() if (rows := read(video))}


def _subset(video: Node) -> str | None:
    subset = video.get("subset")
    return subset.text() if subset else None


def _flat(video: Node) -> list[Event]:
    spans, texts = list(video["timestamps"].rows()), list(video["sentences"].rows())
    if len(spans) != len(texts):
        raise DatasetError(f"{video.place}: {len(spans)} timestamps but {len(texts)} sentences; they go in pairs")
    return [(*span.pair(), text.text()) for span, text in zip(spans, texts, strict=True)]


def _authors(video: Node) -> list[Event]:
    rows = video.get("annotations")
    return [(*row["segment"].pair(), row["sentence"].text()) for row in (rows.rows() if rows else ())]
