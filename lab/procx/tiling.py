"""Steps that fill a video, by a semi-Markov decoder over a network's proposals. Beyond the paper.

    describe_many(network, vocabulary, videos, selector=tiling_selector(cover=1.0))

A segmentation takes k proposals in the order of their middles. It gives each a segment between two
ends of any proposals (or of the video). It leaves what is between segments uncovered. Its worth,
for each k exactly maximal:

    W(k) = max sum_i score_i IoU(segment_i, box_i) - cost * (uncovered seconds)

so that a box is stretched or cut to meet its neighbour where that costs less than the gap. The
count is the k whose expected F1, W(k) times the mean of 2 / (k + c) over the network's counts c, is
greatest: SODA's F1 with the proposals' scores for what they are worth.
Source: segmental (semi-Markov) decoding, Sarawagi and Cohen 2004. The worth is ours.
Letters: N proposals, G ends in the order of time, C counts, k segments.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from stepline.models.procx.inference import Floats, Proposals, ProposalSelector

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Segmentation:
    """A segmentation of a video.

    proposals: their numbers in the order of time. spans: (k, 2), their seconds. worth: W(k).
    """

    proposals: tuple[int, ...]
    spans: Floats
    worth: float


def tile(
    boxes: Floats, scores: Floats, duration: float, *, most: int, cost: float
) -> list[Segmentation]:
    """Return the worthiest tiling of every number of segments from 0 to `most` that there is.

    boxes: (N, 2) seconds, start before end. scores: (N,) worth of a proposal. cost: of an uncovered
    second.
    """
    order = np.argsort(boxes.sum(axis=1), kind="stable")
    inner_ends = boxes.ravel().clip(0.0, duration)
    ends = np.unique(np.concatenate(([0.0, duration], inner_ends)))  # (G,)

    # best: the worth of k segments that are all before an end, (k, G)
    # last_rows: their last segment, as a row of `segments`, (k, G)
    most = min(most, len(order))
    best = np.full((most + 1, len(ends)), -np.inf)
    best[0] = -cost * ends
    last_rows = np.full(best.shape, -1)
    segments = _Segments()
    for number in order.tolist():
        worth = scores[number] * _iou(ends, boxes[number])  # (G, G) from row to column
        totals = best[:-1, :, None] + worth  # (k, G, G)
        first = totals.argmax(axis=1)  # (k, G)
        value = np.take_along_axis(totals, first[:, None], axis=1)[:, 0]  # (k, G)

        # what is better with this proposal as the last segment
        better = value > best[1:]
        count, last = np.nonzero(better)
        parents = last_rows[count, first[better]]
        best[1:][better] = value[better]
        last_rows[1:][better] = segments.add(number, first[better], last, parents)
        best, last_rows = _with_gaps(best, last_rows, ends, cost)

    segmentations = []
    for k in range(most + 1):
        worth_of_all = float(best[k, -1])
        if worth_of_all > -np.inf:
            row = int(last_rows[k, -1])
            segmentations.append(segments.chain(row, ends, worth_of_all))
    return segmentations


def _iou(ends: Floats, box: Floats) -> Floats:
    """Return the IoU of every segment with a box, (G, G). -inf for a segment without length."""
    start = ends[:, None]
    end = ends[None, :]
    box_start, box_end = box
    shared = np.minimum(end, box_end) - np.maximum(start, box_start)
    whole = np.maximum(end, box_end) - np.minimum(start, box_start)
    iou = np.maximum(shared, 0.0) / np.maximum(whole, 1e-9)
    return np.where(end > start, iou, -np.inf)


def _with_gaps(best: Floats, last_rows: Ints, ends: Floats, cost: float) -> tuple[Floats, Ints]:
    """Return both tables where a segmentation may also end earlier.

    The seconds between cost `cost` each.
    """
    level = best + cost * ends
    top = np.maximum.accumulate(level, axis=1)
    # the last column at which the top was reached
    columns = np.where(level == top, np.arange(len(ends)), 0)
    columns = np.maximum.accumulate(columns, axis=1)
    return top - cost * ends, np.take_along_axis(last_rows, columns, axis=1)


class _Segments:
    """Every segment that was ever the last of a best segmentation, with the one before it."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []

    def add(self, number: int, first: Ints, last: Ints, parents: Ints) -> Ints:
        """Keep a proposal's segments, from end `first` to end `last`, and return their rows."""
        begin = len(self._rows)
        columns = (first.tolist(), last.tolist(), parents.tolist())
        for first_end, last_end, parent in zip(*columns, strict=True):
            self._rows.append((number, first_end, last_end, parent))
        return np.arange(begin, len(self._rows))

    def chain(self, row: int, ends: Floats, worth: float) -> Segmentation:
        """Return the segmentation whose last segment is this row, -1: none."""
        numbers = []
        spans = []
        while row >= 0:
            number, first, last, row = self._rows[row]
            numbers.append(number)
            spans.append((ends[first], ends[last]))
        span_rows = np.array(spans[::-1], dtype=np.float64).reshape(-1, 2)
        return Segmentation(tuple(numbers[::-1]), span_rows, worth)


def expected_f1(segmentation: Segmentation, counts: Floats) -> float:
    """Return the expected F1 of a tiling. counts: (C,) chances of 0 ... C - 1 steps."""
    size = len(segmentation.proposals)
    halves = np.maximum((size + np.arange(len(counts))) / 2, 0.5)
    return float(segmentation.worth * (counts / halves).sum())


def tile_proposals(
    proposals: Proposals,
    *,
    cover: float = 0.0,
    count: int | None = None,
    least: int = 1,
    floor: float = 0.0,
) -> tuple[list[int], Floats]:
    """Return the proposals that together fill the video best, and their segments, (k, 2) seconds.

    cover: cost in steps of leaving as much as an average step uncovered. 0: gaps stay. count: of
    the steps, as many as there can be. None: the count of the greatest expected F1, at least
    `least`. floor: a proposal of less confidence is left out.
    """
    usable = proposals.usable(floor)
    chances = softmax(proposals.counts)  # (C,)
    expected_steps = max(1.0, float(chances @ np.arange(len(chances))))
    scores = np.maximum(proposals.scores[usable], 0.0)
    most = len(chances) - 1 if count is None else count
    cost = cover * expected_steps / proposals.duration
    tilings = tile(proposals.boxes[usable], scores, proposals.duration, most=most, cost=cost)

    # the largest number of steps, or the one of the greatest expected F1
    best = tilings[-1]
    if count is None:
        enough = tilings[min(least, len(tilings) - 1) :]
        best = max(enough, key=lambda tiling: expected_f1(tiling, chances))
    numbers = [int(usable[number]) for number in best.proposals]
    return numbers, best.spans


def tiling_selector(cover: float = 0.0) -> ProposalSelector:
    """Return the selector that fills each video. `cover`: as in `tile_proposals`."""
    return lambda _, proposals: tile_proposals(proposals, cover=cover)
