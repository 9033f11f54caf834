"""Video summaries (IV-Sum's WikiHow Summaries): F of frames, Kendall's tau, Spearman's rho.

The official F (utils/evaluate_and_log) has three quirks, here options of `FrameRules`: a reference
without any frame gives F = 1; scores of 0.5 and less are kept as they are, so the summary is soft
(test.py); frames beyond the reference are cut off and lacking ones are 0. tau and rho are not in
the official code; WYS2 (section 4.4) reports them.

The reference is IV-Sum's annotation file, {video: [0 or 1 a frame]}; its results file {video:
{"machine_summary": [...]}} or {video: [score a frame]} are the predictions; "scores" beside
"machine_summary" rank the frames.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from stepline.datasets.files import Node
from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import Floats, Ratio, Statistic
from stepline.evaluate.ranking import Numbers
from stepline.evaluate.report import Scores
from stepline.evaluate.scoring_task import (
    COUNT_MISSING,
    SKIP_MISSING,
    ScoringTask,
    entries_by_id,
    read_numbers,
)

EPSILON = 1e-8  # added below both fractions, official
THRESHOLD = 0.5  # a frame is in the summary above it, IV-Sum's test.py


@dataclass(frozen=True)
class FrameRules:
    """How frames are compared.

    empty_reference: "undefined" leaves a video without reference frames out, "one" gives it F = 1
    (official).
    below: "zero" makes every frame in or out, "keep" leaves scores up to the threshold as they are
    (official).
    lengths: "error" refuses summaries of another length, "pad" cuts and fills with zeros
    (official).
    """

    empty_reference: Literal["undefined", "one"] = "undefined"
    below: Literal["zero", "keep"] = "zero"
    lengths: Literal["error", "pad"] = "pad"


OFFICIAL = FrameRules(empty_reference="one", below="keep", lengths="pad")


@dataclass(frozen=True)
class FrameOverlap:
    """F, precision and recall of one video's frames."""

    f: float
    precision: float
    recall: float


def frames_overlap(
    summary: Numbers, reference: Numbers, rules: FrameRules = FrameRules()
) -> FrameOverlap | None:
    """Return the overlap of a summary (T,) of scores with reference frames (T,) of 0 and 1; None
    where undefined.

    Raises DatasetError for NaN, a reference that is not 0 or 1, or lengths that differ under
    "error".
    """
    truth = _vector(reference, "reference frames")
    if not np.isin(truth, (0.0, 1.0)).all():
        raise DatasetError(
            "a reference frame is neither 0 nor 1; give 1 for the frames of the summary"
        )
    given = binarise(
        cut_or_pad(_vector(summary, "summary frames"), len(truth), rules.lengths), rules.below
    )
    if not truth.any():
        return FrameOverlap(1.0, 1.0, 1.0) if rules.empty_reference == "one" else None
    shared = float((given * truth).sum())
    precision, recall = (
        shared / (float(given.sum()) + EPSILON),
        shared / (float(truth.sum()) + EPSILON),
    )
    f = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    return FrameOverlap(f, precision, recall)


def binarise(frames: Floats, below: Literal["zero", "keep"]) -> Floats:
    """Return frames with 1 above the threshold, and 0 or what stood there below it."""
    return np.where(frames > THRESHOLD, 1.0, frames if below == "keep" else 0.0)


def cut_or_pad(frames: Floats, length: int, lengths: Literal["error", "pad"]) -> Floats:
    """Return frames cut or filled with zeros to a length. Raises DatasetError under "error"."""
    if len(frames) != length and lengths == "error":
        raise DatasetError(
            f"{len(frames)} summary frames for {length} reference frames; give one score a frame"
        )
    return np.pad(frames[:length], (0, max(0, length - len(frames))))


def kendall_tau(first: Numbers, second: Numbers) -> float | None:
    """Return Kendall's tau-b in [-1, 1]; None where one side is constant, which leaves it
    undefined."""
    from scipy.stats import kendalltau

    return _correlation(first, second, kendalltau)


def spearman_rho(first: Numbers, second: Numbers) -> float | None:
    """Return Spearman's rank correlation in [-1, 1], ties at their mean rank; None where one side
    is constant."""
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
        raise DatasetError(
            f"{what}: not a list of numbers ({error}); give one number a frame"
        ) from error
    if vector.ndim != 1 or not np.isfinite(vector).all():
        raise DatasetError(
            f"{what}: shape {vector.shape} or NaN in it; give one finite number a frame"
        )
    return vector


# ---------------------------------------------------------------- the score


NAMES = ("F", "precision", "recall", "Kendall tau", "Spearman rho")


def score(scoring: ScoringTask, *, official: bool = False) -> Scores:
    """Return the means over videos of F, precision, recall, tau and rho, each over the videos where
    it is defined."""
    rules = OFFICIAL if official else FrameRules()
    truths = {id: read_numbers(node) for id, node in entries_by_id(scoring.reference).items()}
    given = {
        id: node
        for id, node in entries_by_id(scoring.predictions).items()
        if id in truths or _is_summary(node)
    }
    kept = [id for id in truths if id in given or not official]
    rows = np.array([_video_scores(given.get(id), truths[id], rules) for id in kept]).reshape(
        len(kept), len(NAMES)
    )
    columns = dict(zip(NAMES, rows.T, strict=True))
    statistics: dict[str, Statistic] = {}
    notes = []
    for name, values in columns.items():
        known = ~np.isnan(values)
        if known.any():
            statistics[name] = Ratio(np.where(known, values, 0.0), known.astype(np.float64))
        if not known.all():
            notes.append(
                f"{name} is undefined for {(~known).sum()} videos, which its mean leaves out"
            )
    items = sum(len(truths[id]) for id in kept)
    return scoring.scores(
        kept,
        items,
        statistics,
        columns,
        asked=truths,
        given=given,
        handling=SKIP_MISSING if official else COUNT_MISSING,
        notes=notes,
    )


def _is_summary(node: Node) -> bool:
    """Tell whether an entry is a video's: IV-Sum's results file also holds averages and a list of
    the best ids."""
    if isinstance(node.value, dict):
        return "machine_summary" in node.value
    return isinstance(node.value, list) and not any(isinstance(item, str) for item in node.value)


def _video_scores(node: Node | None, truth: Floats, rules: FrameRules) -> list[float]:
    """Return the five numbers of one video, NaN where undefined; a missing video scores 0 where it
    could score."""
    frames = _frames(node, "machine_summary", truth, rules)
    ranks = _frames(node, "scores", truth, rules)
    found = frames_overlap(frames, truth, rules)
    defined = len(truth) > 1 and not (truth == truth[0]).all()
    if node is None:
        return [
            *([np.nan] * 3 if found is None else [0.0] * 3),
            *([0.0] * 2 if defined else [np.nan] * 2),
        ]
    tau, rho = kendall_tau(ranks, truth), spearman_rho(ranks, truth)
    if tau is None and defined and rules != OFFICIAL:
        tau = rho = 0.0  # frames that all score the same rank nothing
    overlaps = [np.nan] * 3 if found is None else [found.f, found.precision, found.recall]
    return [*overlaps, *(np.nan if value is None else value for value in (tau, rho))]


def _frames(node: Node | None, key: str, truth: Floats, rules: FrameRules) -> Floats:
    if node is None:
        return np.zeros(len(truth))
    parts = (node.get(key) or node["machine_summary"]) if isinstance(node.value, dict) else node
    values = read_numbers(parts)
    if np.isnan(values).any():
        raise DatasetError(f"{parts.location}: holds null; give a score for every frame")
    return cut_or_pad(values, len(truth), rules.lengths)
