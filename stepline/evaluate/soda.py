"""SODA a, b, c and d: dense captions scored as a story, by the best one-to-one pairing that keeps
the order.

For instance, kind d of one video:

    reference    0-10 s    20-30 s
    predicted    0-10 s    20-25 s    40-50 s
    IoU          1         0.5        0             the best pairing is worth 1 + 0.5 = 1.5
    precision = 1.5 / 3 = 0.5         recall = 1.5 / 2 = 0.75         F1 = 0.6

Source: Fujita et al., "SODA: Story Oriented Dense Video Captioning Evaluation Framework", ECCV
2020, and the values of the authors' program (version 1.1). It was written again from both. The
pairing is by dynamic programming (section 3.2).

    kind   the pairing maximises               its pairs are worth
    a      IoU, zero under .9 .7 .5 .3         METEOR, mean over the four
    b      IoU                                 METEOR
    c      IoU x METEOR                        IoU x METEOR
    d      IoU                                 IoU

Precision = worth / predicted events, recall = worth / reference events, F1 of a video from these
two. A data set's are the means over its videos. The official program calls METEOR with the roles
swapped (prediction as the reference). It drops videos without predictions from the mean and stops
at an empty list. Here the roles are kept, missing videos score 0 by default and are listed, and an
empty list scores 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
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


def best_ordered_sum(scores: Matrix) -> float:
    """Return the largest sum of scores over pairs (row, column) that rise together. scores: (N, M),
    none negative."""
    _, width = scores.shape
    # best[j]: the largest sum over the rows so far and the first j columns.
    best = np.zeros(width + 1)
    for row in scores:
        with_row = best[:-1] + row
        either = np.maximum(best[1:], with_row)
        best[1:] = np.maximum.accumulate(either)
    return float(best[-1])


def backtracked_pairs(scores: Matrix) -> list[tuple[int, int]]:
    """Return the pairs that SODA's program reads out of the table of best totals, from first to
    last.

    From the last row up, it takes the last column in each row (left of the previous one) whose best
    choice was to pair. That holds even where the best total is on another way. With ties it does
    not pair. At least one pair always comes out, with or without overlap.
    scores: (N, M), N and M at least 1.
    """
    paired = _paired(scores)
    pairs: list[tuple[int, int]] = []
    row_count, limit = scores.shape
    for row in reversed(range(row_count)):
        columns = np.flatnonzero(paired[row, :limit])
        if not len(columns):
            continue
        limit = int(columns[-1])
        pairs.append((row, limit))
        if limit == 0:
            break
    return pairs[::-1]


def _paired(scores: Matrix) -> npt.NDArray[np.bool_]:
    """Return for each cell whether pairing its row and column is better than leaving either out."""
    paired = np.zeros(scores.shape, dtype=bool)
    _, width = scores.shape
    # best totals of the row before, and those one column to the left (-1: no such row)
    above = np.full(width, -1.0)
    diagonal = np.zeros(width)
    for index, row in enumerate(scores):
        total = diagonal + row
        best = np.maximum.accumulate(np.maximum(above, total))
        neighbour = np.concatenate(([-1.0], best[:-1]))
        paired[index] = (total > above) & (total > neighbour)
        above = best
        diagonal = np.concatenate(([0.0], above[:-1]))
    return paired


def harmonic_mean(precision: float, recall: float) -> float:
    """Return F1, or 0 when both are 0."""
    if not precision + recall:
        return 0.0
    return 2.0 * precision * recall / (precision + recall)


SodaKind: TypeAlias = Literal["a", "b", "c", "d"]
Triple: TypeAlias = tuple[float, float, float]  # precision, recall, F1

A_THRESHOLDS = (0.9, 0.7, 0.5, 0.3)  # IoU, SODA's kind a


@dataclass(frozen=True)
class SodaScore:
    """Means over videos, and per video (precision, recall, F1), all in [0, 1].

    missing: reference videos without predictions, counted as 0 unless skipped. extra: predicted
    videos that the reference does not hold, ignored.
    """

    precision: float
    recall: float
    f1: float
    per_video: dict[str, Triple]
    missing: tuple[str, ...]
    extra: tuple[str, ...]


class SodaScorer:
    """Scores single videos, tokenising each caption and scoring each pair once."""

    def __init__(self, kind: SodaKind, meteor: Meteor | None = None) -> None:
        """Raises ModelError when METEOR's tables are missing."""
        if kind not in get_args(SodaKind):
            raise DatasetError(f"kind={kind!r}: not a kind of SODA; give 'a', 'b', 'c' or 'd'")
        self._kind = kind
        if kind != "d":
            self._meteor = meteor or Meteor()
            self._tokenizer = EventTokenizer()

    def score(self, video: str, reference: Sequence[Event], predictions: Sequence[Event]) -> Triple:
        """Return (precision, recall, F1) of one video, or 0 without predictions.

        Raises DatasetError for a video without reference events, or an event without finite times.
        """
        reference = require_events(video, reference, "reference")
        predictions = require_events(video, predictions, "predicted")
        truth = sorted(reference, key=itemgetter(0))
        events = sorted(predictions, key=itemgetter(0))
        if not events:
            return 0.0, 0.0, 0.0
        try:
            worths = self._worths(truth, events)
        except DatasetError as error:  # from METEOR, which knows no videos
            raise DatasetError(f"{video}: {error}") from error
        # one triple for each threshold
        triples = []
        for worth in worths:
            precision = worth / len(events)
            recall = worth / len(truth)
            triples.append((precision, recall, harmonic_mean(precision, recall)))
        return _mean_triple(triples)

    def _worths(self, truth: list[Event], events: list[Event]) -> list[float]:
        """Return the worth of the best pairing, one for each threshold of kind a."""
        iou = segment_iou(times(truth), times(events))  # (reference, predictions)
        if self._kind == "d":
            return [best_ordered_sum(iou)]
        if self._kind == "c":
            # Pairs that do not overlap are worth 0, whatever they say.
            rows, columns = np.nonzero(iou)
            overlapping = list(zip(rows.tolist(), columns.tolist(), strict=True))
            similarity = self._similarity(truth, events, overlapping)
            return [best_ordered_sum(iou * similarity)]
        thresholds: tuple[float, ...] = A_THRESHOLDS if self._kind == "a" else (0.0,)
        pairings = [
            backtracked_pairs(np.where(iou >= threshold, iou, 0.0)) for threshold in thresholds
        ]
        # Each pair is compared once, however many thresholds choose it.
        similarity = self._similarity(truth, events, sorted(set(chain(*pairings))))
        return [float(sum(similarity[pair] for pair in pairs)) for pairs in pairings]

    def _similarity(
        self, truth: list[Event], events: list[Event], pairs: list[tuple[int, int]]
    ) -> Matrix:
        """Return (reference, predictions): METEOR of the named pairs, 0 elsewhere."""
        shape = (len(truth), len(events))
        similarity = np.zeros(shape)
        references = self._tokenizer.tokens(truth)
        hypotheses = self._tokenizer.tokens(events)
        # the prediction as the reference, as the official program calls METEOR
        texts = [((hypotheses[column],), references[row]) for row, column in pairs]
        if texts:
            scores = self._meteor.compare(texts)
            rows, columns = zip(*pairs, strict=True)
            similarity[list(rows), list(columns)] = scores.segments
        return similarity


def _mean_triple(triples: Sequence[Triple]) -> Triple:
    precision, recall, f1 = np.array(triples).mean(axis=0).tolist()
    return precision, recall, f1


def soda(
    reference: EventsByVideo,
    predictions: EventsByVideo,
    *,
    kind: SodaKind = "c",
    meteor: Meteor | None = None,
    missing: Literal["zero", "skip"] = "zero",
) -> SodaScore:
    """Return SODA of predicted events, both as video id -> (start, end, caption) in seconds.

    missing: reference videos without predictions count 0, or are left out as officially.
    Raises DatasetError for what cannot be scored, ModelError when METEOR's tables are missing.
    """
    covered = cover_videos([reference], predictions, missing)
    scorer = SodaScorer(kind, meteor)
    per_video = {}
    for video in covered.scored:
        per_video[video] = scorer.score(video, reference[video], predictions.get(video, ()))
    means = _mean_triple(list(per_video.values()))
    return SodaScore(*means, per_video, covered.missing, covered.extra)
