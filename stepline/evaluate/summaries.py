"""Summaries of videos, as IV-Sum scores them: F of frames, Kendall's tau and Spearman's rho; and a reader of its steps.

The official F (utils/evaluate_and_log) has three quirks, here options of `Rules`: a reference without any frame gives
F = 1; scores of 0.5 and less are kept as they are, so the summary is soft (test.py); frames beyond the reference are
cut off and lacking ones are 0. tau and rho are not in the official code; WYS2 (section 4.4) reports them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.statistics import Floats

EPSILON = 1e-8  # added below both fractions, official
THRESHOLD = 0.5  # a frame is in the summary above it, IV-Sum's test.py
Numbers: TypeAlias = Sequence[float] | npt.NDArray[np.floating] | npt.NDArray[np.integer]


@dataclass(frozen=True)
class Rules:
    """How frames are compared.

    empty_reference: "undefined" leaves a video without reference frames out, "one" gives it F = 1 (official).
    below: "zero" makes every frame in or out, "keep" leaves scores up to the threshold as they are (official).
    lengths: "error" refuses summaries of another length, "pad" cuts and fills with zeros (official).
    """

    empty_reference: Literal["undefined", "one"] = "undefined"
    below: Literal["zero", "keep"] = "zero"
    lengths: Literal["error", "pad"] = "pad"


OFFICIAL = Rules(empty_reference="one", below="keep", lengths="pad")


@dataclass(frozen=True)
class Overlap:
    """F, precision and recall of one video's frames."""

    f: float
    precision: float
    recall: float


def frames_overlap(summary: Numbers, reference: Numbers, rules: Rules = Rules()) -> Overlap | None:
    """Return the overlap of a summary (T,) of scores with reference frames (T,) of 0 and 1; None where undefined.

    Raises DatasetError for NaN, a reference that is not 0 or 1, or lengths that differ under "error".
    """
    truth = _vector(reference, "reference frames")
    if not np.isin(truth, (0.0, 1.0)).all():
        raise DatasetError("a reference frame is neither 0 nor 1; give 1 for the frames of the summary")
    given = binarise(fitted(_vector(summary, "summary frames"), len(truth), rules.lengths), rules.below)
    if not truth.any():
        return Overlap(1.0, 1.0, 1.0) if rules.empty_reference == "one" else None
    shared = float((given * truth).sum())
    precision, recall = shared / (float(given.sum()) + EPSILON), shared / (float(truth.sum()) + EPSILON)
    f = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return Overlap(f, precision, recall)


def binarise(frames: Floats, below: Literal["zero", "keep"]) -> Floats:
    """Return frames with 1 above the threshold, and 0 or what stood there below it."""
    return np.where(frames > THRESHOLD, 1.0, frames if below == "keep" else 0.0)


def fitted(frames: Floats, length: int, lengths: Literal["error", "pad"]) -> Floats:
    """Return frames cut or filled with zeros to a length. Raises DatasetError under "error"."""
    if len(frames) != length and lengths == "error":
        raise DatasetError(f"{len(frames)} summary frames for {length} reference frames; give one score a frame")
    return np.pad(frames[:length], (0, max(0, length - len(frames))))


def kendall_tau(first: Numbers, second: Numbers) -> float | None:
    """Return Kendall's tau-b in [-1, 1]; None where one side is constant, which leaves it undefined."""
    from scipy.stats import kendalltau

    return _correlation(first, second, kendalltau)


def spearman_rho(first: Numbers, second: Numbers) -> float | None:
    """Return Spearman's rank correlation in [-1, 1], ties at their mean rank; None where one side is constant."""
    from scipy.stats import spearmanr

    return _correlation(first, second, spearmanr)


def _correlation(first: Numbers, second: Numbers, measure) -> float | None:  # type: ignore[no-untyped-def]
    one, other = _vector(first, "scores"), _vector(second, "reference scores")
    if len(one) != len(other):
        raise DatasetError(f"{len(one)} scores for {len(other)} reference scores; give one a frame")
    if len(one) < 2 or (one == one[0]).all() or (other == other[0]).all():
        return None
    return float(measure(one, other).statistic)


def _vector(values: Numbers, what: str) -> Floats:
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{what}: not a list of numbers ({error}); give one number a frame") from error
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise DatasetError(f"{what}: shape {vector.shape} or NaN in it; give one finite number a frame")
    return vector


@dataclass(frozen=True)
class Article:
    """A wikiHow article of WikiHow Summaries: its steps, and the clip file of each that has one."""

    title: str
    video: str | None
    steps: tuple[str, ...]
    clips: tuple[str | None, ...]


def read_wikihow(path: Path) -> Iterator[Article]:
    """Yield the articles of a how_to_steps JSON file {title: {video_url, steps: [{text, clip}]}}, gzipped or not."""
    from stepline.datasets.node import Node
    from stepline.datasets.source import read_json

    for title, article in Node(read_json(path), str(path)).entries():
        video = article.get("video_url")
        rows = list(article["steps"].rows())
        texts = tuple((text.text() if (text := row.get("text")) else "").strip() for row in rows)
        clips = tuple(clip.text() if (clip := row.get("clip")) else None for row in rows)
        yield Article(title, video.text() if video else None, texts, clips)
