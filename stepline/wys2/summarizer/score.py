"""How good a summarizer's seconds are, in IV-Sum's measures (WYS2, table 3): F, Kendall's tau, Spearman's rho."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepline.batches import Flags
from stepline.evaluate.summaries import frames_overlap, kendall_tau, spearman_rho
from stepline.wys2.summary import Importance


@dataclass(frozen=True)
class SummaryScores:
    """Means over the videos in which each is defined, None where it is in none; videos: how many were scored."""

    f: float | None
    tau: float | None
    rho: float | None
    videos: int


def score_summaries(given: Sequence[Importance], shown: Sequence[Flags]) -> SummaryScores:
    """Return the scores of seconds (T,) of each video against those that belong in its summary, (T,) bool.

    A second is in the summary from .5. Numbers past the end of a reference count for nothing. Equal scores rank
    nothing: tau and rho are 0 then; both are undefined where all seconds of a reference are alike.
    """
    rows = [_scores(scores[: len(truth)], truth) for scores, truth in zip(given, shown, strict=True)]
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)] or [[], [], []]
    f, tau, rho = (float(np.mean(column)) if column else None for column in columns)
    return SummaryScores(f, tau, rho, len(rows))


def _scores(scores: Importance, truth: Flags) -> tuple[float | None, float | None, float | None]:
    reference = truth.astype(np.float64)
    overlap = frames_overlap(scores, reference)
    f = None if overlap is None else overlap.f
    if truth.all() or not truth.any():
        return f, None, None
    return f, kendall_tau(scores, reference) or 0.0, spearman_rho(scores, reference) or 0.0
