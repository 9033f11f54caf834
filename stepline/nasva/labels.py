"""From a network's own alignment matrix to new labels: the second stage of NaSVA (section 3.3, tables 3, 8 and 9).

    best_k  = argmax_t A[k, t]                 a text whose best score stays under eps2 loses its label
    label_k = [best_k, best_k + seconds)       or around it, or grown while A >= zeta A[best_k]

Letters: K texts, T feature rows, V videos.
"""

import logging
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from stepline.batches import Flags
from stepline.errors import ShapeError
from stepline.nasva.coarse import grow
from stepline.nasva.selftrain_settings import RefineSettings
from stepline.records import Matrix, Span

log = logging.getLogger(__name__)

Places: TypeAlias = tuple[Span | None, ...]  # where each text of one video is placed; None: it has no label

FEW = 0.05  # share of kept labels below which there is a warning


def refine(
    matrices: Sequence[Sequence[Matrix]], rates: Sequence[float], settings: RefineSettings | None = None
) -> tuple[Places, ...]:
    """Return a label, or none, for each text of each video.

    matrices: one or several teachers' cosines (K, T) of every video; they are averaged, and the teachers must agree
    where the settings say so. rates: feature rows a second. Raises ShapeError when fewer than `least_kept` of the
    texts keep a label, or the teachers saw other videos.
    """
    settings = settings or RefineSettings()
    if not matrices or any(len(each) != len(rates) for each in matrices):
        raise ShapeError(f"need the matrices of at least one teacher, each of all {len(rates)} videos")
    means = [np.asarray(np.mean(video, axis=0), dtype=np.float32) for video in zip(*matrices, strict=True)]
    floor = least_score(means, settings)
    placed = []
    for mean, rate, each in zip(means, rates, zip(*matrices, strict=True), strict=True):
        keep = best_scores(mean) >= floor
        if settings.agree is not None:
            keep &= agreeing(each, settings.agree * rate)
        placed.append(tuple(place(row, rate, settings) if one else None for row, one in zip(mean, keep, strict=True)))
    _check(placed, floor, settings)
    return tuple(placed)


def place(row: Matrix, rate: float, settings: RefineSettings) -> Span:
    """Return where a text with these scores (T,) is shown, in seconds; never past the video."""
    best, duration = int(row.argmax()), len(row) / rate
    if settings.seconds is None:
        start, end = grow(row, best, settings.grow) if row[best] > 0 else (best, best + 1)
        return Span(start / rate, end / rate)
    first = best / rate if settings.position == "start" else (best + 0.5) / rate - settings.seconds / 2
    return Span(max(0.0, first), min(duration, first + settings.seconds))


def least_score(matrices: Sequence[Matrix], settings: RefineSettings) -> float:
    """Return the cosine that a text's best second must reach: eps2, or the quantile of all texts' best seconds."""
    scores = np.concatenate([best_scores(matrix) for matrix in matrices]) if matrices else np.zeros(0)
    if settings.threshold_kind == "cosine":
        return settings.threshold
    return float(np.quantile(scores, settings.threshold)) if settings.threshold and scores.size else -math.inf


def best_scores(matrix: Matrix) -> Matrix:
    """Return max_t A[k, t], (K,)."""
    return np.asarray(matrix.max(axis=1)) if matrix.size else np.zeros(len(matrix), dtype=np.float32)


def agreeing(matrices: Sequence[Matrix], rows: float) -> Flags:
    """Return for each text (K,) whether all networks' best rows lie at most `rows` apart."""
    best = np.stack([matrix.argmax(axis=1) for matrix in matrices])  # (networks, K)
    return np.asarray(np.ptp(best, axis=0) <= rows)


def alikeness(video: Matrix, text: Matrix) -> Matrix:
    """Return cosines (K, T) of a backbone's own vectors (K, C) and (T, C): what Step-Video labels rest on."""
    lengths = np.linalg.norm(text, axis=1)[:, None] * np.linalg.norm(video, axis=1)  # (K, T)
    return np.asarray(text @ video.T / np.maximum(lengths, 1e-12), dtype=np.float32)


def _check(placed: Sequence[Places], floor: float, settings: RefineSettings) -> None:
    """Raise ShapeError, or warn, when hardly a text has kept a label."""
    labels = [span is not None for places in placed for span in places]
    share = sum(labels) / max(1, len(labels))
    if not any(labels) or share < settings.least_kept:
        raise ShapeError(
            f"{sum(labels)} of {len(labels)} texts keep a label, fewer than {settings.least_kept:.0%} "
            f"(eps2 {floor:.2f}); lower refine.threshold, or give refine.threshold_kind=quantile"
        )
    if share < FEW:
        log.warning("only %d of %d texts keep a label; lower refine.threshold to keep more", sum(labels), len(labels))
