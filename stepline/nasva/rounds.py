"""What one round of labelling has changed: kept, alignable, moved, how alike the labels of two rounds are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.batches import Flags
from stepline.nasva.labels import Places, best_scores
from stepline.records import Matrix, Span

INSIDE = 0.5  # share of a label that must lie in the planted window; NaSVA's table 5 judges by eye


@dataclass(frozen=True)
class RoundReport:
    """One round: shares in [0, 1], seconds; None where it cannot be known.

    kept: of the texts, those with a label. alignable: of the texts, an estimate (`alignable_share`), by the networks
    that this round's labels trained. moved: median of how far a label's middle is from the last round's. iou: mean
    overlap with the last round's. agreement: of held-out texts whose best second is the same as the last round's
    networks have it. inside, shown: of the kept labels, those that lie in the planted window, and whose text has one.
    """

    number: int
    texts: int
    kept: float
    alignable: float | None = None
    moved: float | None = None
    iou: float | None = None
    agreement: float | None = None
    inside: float | None = None
    shown: float | None = None
    cpu_seconds: float = 0.0


def kept_share(labels: Sequence[Places]) -> float:
    """Return the share of texts that have a label; 0 of none."""
    flags = [span is not None for places in labels for span in places]
    return sum(flags) / max(1, len(flags))


def moved(before: Sequence[Places], after: Sequence[Places]) -> tuple[float | None, float | None]:
    """Return the median seconds between the middles of two rounds' labels, and their mean IoU, of texts with both."""
    pairs = list(_pairs(before, after))
    if not pairs:
        return None, None
    apart = [abs(a.center - b.center) for a, b in pairs]
    return float(np.median(apart)), float(np.mean([a.iou(b) for a, b in pairs]))


def agreement(before: Sequence[Matrix], after: Sequence[Matrix], rows: Sequence[float]) -> float | None:
    """Return the share of texts whose best rows in two sets of matrices lie at most `rows` (a video) apart."""
    near = [
        abs(a.argmax(axis=1) - b.argmax(axis=1)) <= limit
        for a, b, limit in zip(before, after, rows, strict=True)
        if len(a)
    ]
    return float(np.concatenate(near).mean()) if near else None


def alignable_share(own: Sequence[Matrix], foreign: Sequence[Matrix]) -> float | None:
    """Return an estimate of the share of texts that are shown at all: 1 - 2 P(best score < median of foreign texts').

    foreign: the same videos' matrices for texts of other videos, which show nothing of them. Source: Storey's
    estimate of the share of true null hypotheses (2002) with lambda 0.5. None without texts.
    """
    scores, null = ([float(best) for matrix in each for best in best_scores(matrix)] for each in (own, foreign))
    if not scores or not null:
        return None
    return float(np.clip(1 - 2 * np.mean(np.asarray(scores) < np.median(null)), 0.0, 1.0))


def inside_share(labels: Sequence[Places], truth: Sequence[Flags], rates: Sequence[float]) -> tuple[float, float]:
    """Return, of the kept labels, the share that lies by half or more in the planted window, and that has one at all.

    truth: (K, T) of each video, True where the text is shown. NaN without labels.
    """
    inside, shown = [], []
    for places, rows, rate in zip(labels, truth, rates, strict=True):
        for span, row in zip(places, rows, strict=True):
            if span is not None:
                shown.append(bool(row.any()))
                inside.append(_covered(span, row, rate) >= INSIDE)
    return (float(np.mean(inside)), float(np.mean(shown))) if inside else (float("nan"), float("nan"))


def _covered(span: Span, row: Flags, rate: float) -> float:
    """Return the share of a label's rows that the truth (T,) holds."""
    start = int(span.start * rate)
    part = row[start : max(start + 1, int(np.ceil(span.end * rate)))]
    return float(part.mean()) if part.size else 0.0


def _pairs(before: Sequence[Places], after: Sequence[Places]) -> Iterator[tuple[Span, Span]]:
    for old, new in zip(before, after, strict=True):
        for a, b in zip(old, new, strict=True):
            if a is not None and b is not None:
                yield a, b
