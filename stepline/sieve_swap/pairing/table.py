"""What each pair of thresholds would keep: the paper's figure 7a as a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.sieve_swap.pairing.pair import Pairs

IOUS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
RECALLS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6)


@dataclass(frozen=True)
class ThresholdRow:
    """What is kept where token-IoU >= iou and token-recall >= recall: videos, documents, and pairs of them."""

    iou: float
    recall: float
    videos: int
    documents: int
    pairs: int


def threshold_table(
    found: Iterable[Pairs], ious: Sequence[float] = IOUS, recalls: Sequence[float] = RECALLS
) -> list[ThresholdRow]:
    """Return a row for each pair of thresholds; `found` must have been paired at thresholds as low as the least."""
    listed = list(found)
    iou = np.concatenate([np.empty(0), *(pairs.iou for pairs in listed)])
    recall = np.concatenate([np.empty(0), *(pairs.recall for pairs in listed)])
    document = np.concatenate([np.empty(0, np.int64), *(pairs.documents for pairs in listed)])
    video = np.repeat(np.arange(len(listed)), [len(pairs) for pairs in listed])
    rows = []
    for least_iou in ious:
        for least_recall in recalls:
            kept = (iou >= least_iou) & (recall >= least_recall)
            videos, documents = len(np.unique(video[kept])), len(np.unique(document[kept]))
            rows.append(ThresholdRow(least_iou, least_recall, videos, documents, int(kept.sum())))
    return rows
