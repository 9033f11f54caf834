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
at an empty list. Here the roles are kept, and a video without predictions scores 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Literal

import numpy as np

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Flags, Floats
from stepline.evaluate.events import (
    Event,
    EventsByVideo,
    EventTokenizer,
    check_events,
    event_times,
    segment_iou,
)
from stepline.evaluate.meteor import Meteor

SodaKind = Literal["a", "b", "c", "d"]
PrecisionRecallF1 = tuple[float, float, float]

A_THRESHOLDS = (0.9, 0.7, 0.5, 0.3)  # IoU, SODA's kind a


def best_ordered_sum(scores: Floats) -> float:
    """Return the largest sum of pair scores over all one-to-one pairings that keep the order.

    scores: (N, M) score of pairing row n with column m, none negative.
    """
    # best[j]: the largest sum over the rows so far and the first j columns.
    best = np.zeros(scores.shape[1] + 1)
    for row in scores:
        best[1:] = np.maximum.accumulate(np.maximum(best[1:], best[:-1] + row))
    return float(best[-1])


def backtracked_pairs(scores: Floats) -> list[tuple[int, int]]:
    """Return the (row, column) pairs that SODA's program reads out of its table of best sums.

    The program goes from the last row up. In each row it takes the last column whose best choice
    was to pair, left of the column that it took before. The pairs may therefore lie off the path of
    the best sum. In a tie the program does not pair. At least one pair always comes out, even where
    no events overlap.

    Args:
        scores: (N, M) score of pairing row n with column m, N and M at least 1.
    """
    is_paired = _pairing_mask(scores)
    pairs: list[tuple[int, int]] = []
    row_count, limit = scores.shape
    for row in reversed(range(row_count)):
        columns = np.flatnonzero(is_paired[row, :limit])
        if not len(columns):
            continue
        limit = int(columns[-1])
        pairs.append((row, limit))
        if limit == 0:
            break
    return pairs[::-1]


def _pairing_mask(scores: Floats) -> Flags:
    """Return the mask (N, M) of cells where it is better to pair row and column than to skip
    either.
    """
    is_paired = np.zeros(scores.shape, dtype=bool)
    width = scores.shape[1]
    # Best sums of the row before, and those one column to the left (-1: no such row).
    above = np.full(width, -1.0)
    diagonal = np.zeros(width)
    for index, row in enumerate(scores):
        total = diagonal + row
        best = np.maximum.accumulate(np.maximum(above, total))
        left = np.concatenate(([-1.0], best[:-1]))
        is_paired[index] = (total > above) & (total > left)
        above = best
        diagonal = np.concatenate(([0.0], above[:-1]))
    return is_paired


def harmonic_mean(precision: float, recall: float) -> float:
    """Return F1, the harmonic mean of precision and recall, or 0 when both are 0."""
    if not precision + recall:
        return 0.0
    return 2.0 * precision * recall / (precision + recall)


@dataclass(frozen=True)
class SodaScore:
    """SODA of one kind, all values in [0, 1].

    Attributes:
        precision: mean precision over the videos.
        recall: mean recall over the videos.
        f1: mean F1 over the videos.
        per_video: video id -> (precision, recall, F1).
    """

    precision: float
    recall: float
    f1: float
    per_video: dict[str, PrecisionRecallF1]


def soda(
    reference: EventsByVideo,
    predictions: EventsByVideo,
    *,
    kind: SodaKind = "c",
    meteor: Meteor | None = None,
) -> SodaScore:
    """Return the SODA score of predicted events, over the videos of the reference.

    Args:
        reference: video id -> events (start, end, caption) in seconds, at least one per video.
        predictions: video id -> events in the same form. A video without events scores 0.
        kind: what a pair of events is scored by. "a": METEOR, paired by IoU above four thresholds.
            "b": METEOR, paired by IoU. "c": IoU times METEOR. "d": IoU.
        meteor: scorer whose caches are reused. None: a new one.

    Raises DatasetError for an event that cannot be scored, ModelError without METEOR's tables.
    """
    similarity = None if kind == "d" else _CaptionSimilarity(meteor or Meteor())
    per_video = {}
    for video, events in reference.items():
        predicted = predictions.get(video, ())
        check_events(video, events, predicted)
        try:
            per_video[video] = _video_score(events, predicted, kind, similarity)
        except DatasetError as error:  # METEOR's and the IoU's do not name the video
            raise DatasetError(f"{video}: {error}") from error
    return SodaScore(*_mean_scores(list(per_video.values())), per_video)


class _CaptionSimilarity:
    """Computes METEOR between the captions of reference events and predicted events."""

    def __init__(self, meteor: Meteor) -> None:
        self._meteor = meteor
        self._tokenizer = EventTokenizer()

    def matrix(
        self, truth: list[Event], events: list[Event], pairs: list[tuple[int, int]]
    ) -> Floats:
        """Return the matrix (N, M) of METEOR in [0, 1] for the listed pairs, 0 for all other pairs.

        Args:
            truth: N reference events.
            events: M predicted events.
            pairs: (reference index, prediction index) of the pairs that are compared.
        """
        similarity = np.zeros((len(truth), len(events)))
        references, hypotheses = self._tokenizer.tokens(truth), self._tokenizer.tokens(events)
        # The prediction is METEOR's reference, as in the official program.
        texts = [((hypotheses[column],), references[row]) for row, column in pairs]
        for pair, score in zip(pairs, self._meteor.compare(texts).segments, strict=True):
            similarity[pair] = score
        return similarity


def _video_score(
    reference: Sequence[Event],
    predictions: Sequence[Event],
    kind: SodaKind,
    similarity: _CaptionSimilarity | None,
) -> PrecisionRecallF1:
    if not predictions:
        return 0.0, 0.0, 0.0
    truth = sorted(reference, key=itemgetter(0))
    events = sorted(predictions, key=itemgetter(0))
    scores = []
    for worth in _pairing_sums(truth, events, kind, similarity):
        precision = worth / len(events)
        recall = worth / len(truth)
        scores.append((precision, recall, harmonic_mean(precision, recall)))
    return _mean_scores(scores)


def _pairing_sums(
    truth: list[Event], events: list[Event], kind: SodaKind, similarity: _CaptionSimilarity | None
) -> list[float]:
    """Return the sum of pair scores in the best order-preserving pairing of N reference and M
    predicted events: one sum per IoU threshold for kind "a", else one sum.

    Args:
        truth: N reference events.
        events: M predicted events.
        kind: what a pair is scored by, as in `soda`.
        similarity: computes METEOR between captions. None for kind "d", which needs no captions.
    """
    iou = segment_iou(event_times(truth), event_times(events))  # (reference, predictions)
    if similarity is None:
        return [best_ordered_sum(iou)]
    if kind == "c":
        # Pairs that do not overlap are worth 0, whatever their captions are.
        overlapping = [(int(row), int(column)) for row, column in np.argwhere(iou)]
        return [best_ordered_sum(iou * similarity.matrix(truth, events, overlapping))]
    thresholds = A_THRESHOLDS if kind == "a" else (0.0,)
    pairings = [backtracked_pairs(np.where(iou >= threshold, iou, 0.0)) for threshold in thresholds]
    # Each pair is compared once, however many thresholds choose it.
    scores = similarity.matrix(truth, events, sorted(set(chain(*pairings))))
    return [float(sum(scores[pair] for pair in pairs)) for pairs in pairings]


def _mean_scores(scores: Sequence[PrecisionRecallF1]) -> PrecisionRecallF1:
    precision, recall, f1 = np.array(scores).mean(axis=0).tolist()
    return precision, recall, f1
