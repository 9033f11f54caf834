"""Which proposals are steps: the surest, as many as the network counts, or the surest together that do not overlap.

Letters: N proposals, k steps.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.procx.describe_settings import DescribeSettings

Floats = npt.NDArray[np.float64]

SHORTEST = 0.05  # s; a proposal that is shorter inside the video is no step


@dataclass(frozen=True)
class Proposals:
    """What the network says of one video of `duration` seconds.

    confidence: (N,); boxes: (N, 2) start and end in seconds, inside it; counts: (C,) logits of 0 ... C - 1 steps.
    likelihood: (N,) of each one's caption, to be added to the confidence; None where captions have no say.
    """

    duration: float
    confidence: Floats
    boxes: Floats
    counts: Floats
    likelihood: Floats | None = None

    @property
    def scores(self) -> Floats:
        """What proposals are ranked by, (N,)."""
        return self.confidence if self.likelihood is None else self.confidence + self.likelihood

    @property
    def count(self) -> int:
        """How many steps the network counts."""
        return int(self.counts.argmax())


def choose(proposals: Proposals, settings: DescribeSettings) -> list[int]:
    """Return the numbers of the proposals that are steps, in the order of time."""
    most = settings.count if settings.count is not None else max(proposals.count, settings.least)
    lengths = proposals.boxes[:, 1] - proposals.boxes[:, 0]
    usable = np.flatnonzero((lengths >= SHORTEST) & (proposals.confidence >= settings.floor))
    if settings.choose == "surest":
        ranked = usable[np.argsort(-proposals.scores[usable], kind="stable")]
        chosen = ranked[:most]
    else:
        chosen = usable[apart(proposals.boxes[usable], proposals.scores[usable], most, settings.overlap)]
    return sorted(map(int, chosen), key=lambda number: (*proposals.boxes[number], number))


def apart(boxes: Floats, scores: Floats, most: int, overlap: float = 0.0) -> list[int]:
    """Return which at most `most` intervals (N, 2), no two overlapping, have the greatest sum of scores (N,).

    overlap: share of the shorter of two neighbours in which they may. Intervals that score 0 or less are never taken.
    Source: weighted interval scheduling (Kleinberg and Tardos 2006, section 6.1), with a limit; not in the paper.
    """
    order = [number for number in np.lexsort((boxes[:, 0], boxes[:, 1])) if scores[number] > 0]
    most = min(most, len(order))
    if not most:
        return []
    ends, starts = boxes[order, 1], boxes[order, 0]
    gains, lengths = scores[order], boxes[order, 1] - boxes[order, 0]
    shared = ends[:, None] - starts  # (N, N) row: the earlier one
    before = np.triu(shared <= overlap * np.minimum(lengths[:, None], lengths) + 1e-9, 1)
    before &= starts[:, None] <= starts  # one inside another comes not before it
    best = np.full((most + 1, len(order)), -np.inf)  # of k + 1 intervals of which this is the last
    best[1] = gains
    parents = np.zeros((most + 1, len(order)), dtype=np.int64)
    for count in range(2, most + 1):
        chances = np.where(before, best[count - 1][:, None], -np.inf)  # (N, N)
        parents[count] = chances.argmax(axis=0)
        best[count] = chances.max(axis=0) + gains
    taken, last = divmod(int(best.argmax()), best.shape[1])
    chosen = [last]
    for number in range(taken, 1, -1):
        chosen.append(int(parents[number, chosen[-1]]))
    return [int(order[place]) for place in reversed(chosen)]


def parted(spans: Floats) -> Floats:
    """Return spans (k, 2) in the order of time, those that overlap the next one cut in the middle of the overlap."""
    cut: Floats = spans.copy()
    for first in range(len(cut) - 1):
        if cut[first, 1] > cut[first + 1, 0]:
            middle = (cut[first, 1] + cut[first + 1, 0]) / 2
            cut[first, 1] = cut[first + 1, 0] = middle
    return cut
