"""SODA a, b, c and d: dense captions scored as a story, by the best one-to-one pairing that keeps
the order.

Source: Fujita et al., "SODA: Story Oriented Dense Video Captioning Evaluation Framework", ECCV
2020, and the values of the authors' program (version 1.1); written again from both. The pairing is
by dynamic programming (section 3.2).

    kind   the pairing maximises               its pairs are worth
    a      IoU, zero under .9 .7 .5 .3         METEOR, mean over the four
    b      IoU                                 METEOR
    c      IoU x METEOR                        IoU x METEOR
    d      IoU                                 IoU

Precision = worth / predicted events, recall = worth / reference events, F1 of a video from these
two; a data set's are the means over its videos. The official program calls METEOR with the roles
swapped (prediction as the reference), drops videos without predictions from the mean and stops at
an empty list; here the roles are an option, missing videos score 0 by default and are
listed, and an empty list scores 0.
"""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from multiprocessing import get_context
from operator import itemgetter
from typing import Literal, Protocol, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from stepline.child_processes import safe_spawn
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
from stepline.evaluate.meteor import Meteor, MeteorScores


def best_ordered_sum(scores: Matrix) -> float:
    """Return the largest sum of scores over pairs (row, column) that rise together. scores: (N, M),
    none negative."""
    best = np.zeros(scores.shape[1] + 1)
    for row in scores:
        best[1:] = np.maximum.accumulate(np.maximum(best[1:], best[:-1] + row))
    return float(best[-1])


def backtracked_pairs(scores: Matrix) -> list[tuple[int, int]]:
    """Return the pairs that SODA's program reads out of the table of best totals, from first to
    last.

    From the last row up it takes, in each row, the last column (left of the one just taken) whose
    best choice was to pair, even where the best total lies on another way; with ties it would
    rather not pair. At least one pair always comes out, with or without overlap. scores: (N, M), N
    and M at least 1.
    """
    paired = _paired(scores)
    pairs: list[tuple[int, int]] = []
    limit = scores.shape[1]
    for row in range(len(scores) - 1, -1, -1):
        columns = np.flatnonzero(paired[row, :limit])
        if not len(columns):
            continue
        limit = int(columns[-1])
        pairs.append((row, limit))
        if limit == 0:
            break
    return pairs[::-1]


def _paired(scores: Matrix) -> npt.NDArray[np.bool_]:
    """Tell for each cell whether pairing its row and column beats leaving either out."""
    paired = np.zeros(scores.shape, dtype=bool)
    above = np.full(scores.shape[1], -1.0)  # of the row before; -1: there is none
    for index, row in enumerate(scores):
        diagonal = np.concatenate(([0.0], above[:-1])) if index else np.zeros_like(row)
        total = diagonal + row
        best = np.maximum.accumulate(np.maximum(above, total))
        neighbour = np.concatenate(([-1.0], best[:-1]))  # on the left
        paired[index] = (total > above) & (total > neighbour)
        above = best
    return paired


def harmonic_mean(precision: float, recall: float) -> float:
    """Return F1; 0 when both are 0."""
    return 2.0 * precision * recall / (precision + recall) if precision + recall else 0.0


SodaKind: TypeAlias = Literal["a", "b", "c", "d"]
Triple: TypeAlias = tuple[float, float, float]  # precision, recall, F1

VIDEOS_PER_CHUNK = 64  # sent to a worker together
A_THRESHOLDS = (0.9, 0.7, 0.5, 0.3)  # IoU, SODA's kind a


class PairScorer(Protocol):
    """Scores (references, hypothesis) pairs: `Meteor` or `JarMeteor`."""

    def compare(self, pairs: Sequence[tuple[Sequence[str], str]], /) -> MeteorScores:
        """Return one score a pair."""
        ...


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
    """Scores single videos; tokenises each caption and scores each pair once."""

    def __init__(
        self, kind: SodaKind, *, meteor: PairScorer | None = None, swapped_roles: bool = True
    ) -> None:
        """meteor: by default METEOR in Python. Raises ModelError when its tables are missing."""
        if kind not in get_args(SodaKind):
            raise DatasetError(f"kind={kind!r}: not a kind of SODA; give 'a', 'b', 'c' or 'd'")
        self._kind = kind
        self._swapped_roles = swapped_roles
        if kind != "d":
            self._meteor: PairScorer = Meteor() if meteor is None else meteor
            self._tokenizer = EventTokenizer()

    def score(self, video: str, reference: Sequence[Event], predictions: Sequence[Event]) -> Triple:
        """Return (precision, recall, F1) of one video; 0 without predictions.

        Raises DatasetError for a video without reference events, or an event without finite times.
        """
        truth = sorted(require_events(video, reference, "reference"), key=itemgetter(0))
        events = sorted(require_events(video, predictions, "predicted"), key=itemgetter(0))
        if not events:
            return 0.0, 0.0, 0.0
        try:
            worth = self._worth(truth, events)
        except DatasetError as error:  # from METEOR, which knows no videos
            raise DatasetError(f"{video}: {error}") from error
        shares = [(value / len(events), value / len(truth)) for value in worth]
        triples = np.array([(*share, harmonic_mean(*share)) for share in shares])
        precision, recall, f1 = triples.mean(axis=0).tolist()
        return precision, recall, f1

    def _worth(self, truth: list[Event], events: list[Event]) -> list[float]:
        """Return the worth of the best pairing, one for each threshold of kind a."""
        iou = segment_iou(times(truth), times(events))  # (reference, predictions)
        if self._kind == "d":
            return [best_ordered_sum(iou)]
        if self._kind == "c":
            overlapping = list(zip(*np.nonzero(iou), strict=True))
            return [best_ordered_sum(iou * self._similarity(truth, events, overlapping))]
        thresholds = A_THRESHOLDS if self._kind == "a" else (0.0,)
        pairings = [
            backtracked_pairs(np.where(iou >= threshold, iou, 0.0)) for threshold in thresholds
        ]
        similarity = self._similarity(truth, events, sorted(set(chain(*pairings))))
        return [float(sum(similarity[pair] for pair in pairs)) for pairs in pairings]

    def _similarity(
        self, truth: list[Event], events: list[Event], pairs: list[tuple[int, int]]
    ) -> Matrix:
        """Return (reference, predictions): METEOR of the named pairs, 0 elsewhere."""
        similarity = np.zeros((len(truth), len(events)))
        references = self._tokenizer.tokens(truth)
        hypotheses = self._tokenizer.tokens(events)
        texts = [(references[row], hypotheses[column]) for row, column in pairs]
        if self._swapped_roles:
            texts = [(hypothesis, reference) for reference, hypothesis in texts]
        if texts:
            scores = self._meteor.compare([((first,), second) for first, second in texts])
            rows, columns = zip(*pairs, strict=True)
            similarity[list(rows), list(columns)] = scores.segments
        return similarity


def soda(
    reference: EventsByVideo,
    predictions: EventsByVideo,
    *,
    kind: SodaKind = "c",
    meteor: PairScorer | None = None,
    swapped_roles: bool = True,
    missing: Literal["zero", "skip"] = "zero",
    workers: int = 1,
) -> SodaScore:
    """Return SODA of predicted events, both as video id -> (start, end, caption) in seconds.

    swapped_roles: METEOR as the official program calls it. missing: reference videos without
    predictions count 0, or are left out as officially. workers: processes, for METEOR in Python
    only.
    Raises DatasetError for what cannot be scored, ModelError when METEOR's tables are missing.
    """
    covered = cover_videos([reference], predictions, missing)
    videos = covered.scored
    columns = (
        videos,
        [list(reference[video]) for video in videos],
        [list(predictions.get(video, ())) for video in videos],
    )
    if workers > 1 and meteor is None:
        score = partial(_score_video, kind, swapped_roles)
        context = get_context("spawn")
        with safe_spawn(), ProcessPoolExecutor(workers, mp_context=context) as pool:
            triples = list(pool.map(score, *columns, chunksize=VIDEOS_PER_CHUNK))
    else:
        judge = SodaScorer(kind, meteor=meteor, swapped_roles=swapped_roles)
        triples = list(map(judge.score, *columns))
    precision, recall, f1 = np.array(triples).mean(axis=0).tolist()
    per_video = dict(zip(videos, triples, strict=True))
    return SodaScore(precision, recall, f1, per_video, covered.missing, covered.extra)


_process_scorer = cache(SodaScorer)  # one a process, so that its workers read the tables once


def _score_video(
    kind: SodaKind, swapped_roles: bool, video: str, reference: list[Event], events: list[Event]
) -> Triple:
    return _process_scorer(kind, swapped_roles=swapped_roles).score(video, reference, events)
