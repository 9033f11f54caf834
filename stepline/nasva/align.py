"""Alignment of texts with a video of any length by a trained network, and the posterior of where
each text is shown.

Scores. The network sees a whole video, or windows whose scores are averaged; nothing is decided by
padding.
Source: TAN, eval_zeroshot_align; differs: no text is left out of a window unless it is known when
the texts are said.

Posterior. Texts compete for seconds and may keep their order, softly:

    pi_k(t) = p_k softmax_t(A[k, t] / tau) prior_k(t)^w              pi_k(none) = 1 - p_k
    pi_k(t) <- pi_k(t) prod_{j != k} (1 - occupancy_j(t))^c          two texts are not shown at once; c = `compete`
    P(x) ~ prod_k pi_k(x_k) exp(-cost [x_k is before the last shown x_j, j < k])

x_k is the second of text k, or none. The last line is a chain whose state is the second of the last
shown text, so that forward-backward gives every P(x_k = t) and P(x_k = none) exactly, in time K T:
the price of going back is the same from everywhere, so a step of the chain is a cumulative sum. A
dependency matrix, which is no chain, acts through the means of the others (mean field).

Spans. The paper takes 8 s from the best second (its round 1; `start`) or grows a window around it
(rounds 2 and 3). Here the posterior is first summed over `smooth` rows, so that a span is not cut
by one dim second. One bright second among dim ones may then lie outside of its span: the second of
a text that has a span is the best one in it, which in two drawn sets that no result uses (seeds 10,
11) is right more often, R@1 +1.7 to +3.9.

Letters: K texts, T feature rows, C width of the features.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.device import current_device, device_of
from stepline.errors import ShapeError
from stepline.grounding.said_to_shown import Array
from stepline.grounding.speech import grow_window
from stepline.nasva.onnx_aligner import OnnxAligner
from stepline.nasva.settings import AlignerSettings, Mode
from stepline.records import Alignment, FeatureSequence, Matrix, Span

if TYPE_CHECKING:
    from stepline.nasva.model import Aligner

NOWHERE = -1.0  # cosine of a row that no window with the text covers: never the best


@dataclass(frozen=True)
class TextScores:
    """How well K texts fit a video: scores (K, T) cosines, alignable (K,) logits or None without
    that head.

    rate: rows per second.
    """

    scores: Matrix
    alignable: Matrix | None
    rate: float


@dataclass(frozen=True)
class AlignmentWindow:
    """Rows [start, end) of the video, and the texts [first, last) that are sought in them."""

    start: int
    end: int
    first: int
    last: int


def align(
    aligner: "Aligner | OnnxAligner",
    features: FeatureSequence,
    texts: Sequence[str],
    vectors: Matrix,
    *,
    mode: Mode = "step",
    said: Sequence[Span] | None = None,
) -> Alignment:
    """Return how well each text fits each row, as cosines; `score_texts` says what it takes and
    raises."""
    fit = score_texts(aligner, features, vectors, said=said, settings=AlignerSettings(mode=mode))
    return Alignment(tuple(texts), fit.scores, fit.rate, "cosine")


def score_texts(
    aligner: "Aligner | OnnxAligner",
    features: FeatureSequence,
    vectors: Matrix,
    *,
    said: Sequence[Span] | None = None,
    settings: AlignerSettings | None = None,
) -> TextScores:
    """Return how well K texts fit a video.

    vectors: (K, C) float32, of the space that the network was trained on. said: when each text is
    said, in narration mode; a long video then seeks a text only near there. Raises ShapeError for
    arrays that do not fit or hold NaN, and for a video without rows.
    """
    settings = settings or AlignerSettings()
    if vectors.ndim != 2:
        raise ShapeError(
            f"text vectors must be (texts, width), not {vectors.shape}; give one row a text"
        )
    if said is not None and len(said) != len(vectors):
        raise ShapeError(f"{len(said)} times for {len(vectors)} texts; give one a text, or none")
    rows, texts = len(features.values), len(vectors)
    middles = None
    if said is not None and settings.mode == "narration":
        middles = np.array([span.center * features.rate for span in said])
    total = np.zeros((texts, rows), dtype=np.float32)
    count = np.zeros((texts, rows), dtype=np.uint16)
    alignable = None if aligner.alignable is None else np.full(texts, -np.inf, dtype=np.float32)
    parts = alignment_windows(rows, texts, middles, settings)
    for window, scores, logits in _passes(aligner, features.values, vectors, parts, settings):
        texts_in, rows_in = slice(window.first, window.last), slice(window.start, window.end)
        total[texts_in, rows_in] += scores
        count[texts_in, rows_in] += 1
        if alignable is not None and logits is not None:
            alignable[texts_in] = np.maximum(alignable[texts_in], logits)
    total /= np.maximum(count, 1)
    total[count == 0] = NOWHERE
    return TextScores(np.clip(total, -1.0, 1.0), alignable, features.rate)


def alignment_windows(
    rows: int, texts: int, middles: npt.NDArray[np.float64] | None, settings: AlignerSettings
) -> list[AlignmentWindow]:
    """Return the windows of a video; every row is in one, and every text in one at least.

    middles: (K,) rows at which the texts are said, in order; a window then seeks those said between
    its length before its start and twice its length after it, as TAN does, and whatever stands
    between them.
    """
    if rows <= settings.whole:
        return [AlignmentWindow(0, rows, 0, texts)]
    length = settings.window
    found = []
    for start in range(0, rows - length // 2, settings.stride):
        end = min(rows, start + length)
        first, last = 0, texts
        if middles is not None:
            near = np.flatnonzero((start - length <= middles) & (middles <= start + 2 * length))
            first, last = (int(near[0]), int(near[-1]) + 1) if near.size else (0, 0)
        found += [AlignmentWindow(start, end, first, last)] if last > first else []
    return found


def _passes(
    aligner: "Aligner | OnnxAligner",
    video: Matrix,
    vectors: Matrix,
    parts: Sequence[AlignmentWindow],
    settings: AlignerSettings,
) -> Iterator[tuple[AlignmentWindow, Matrix, Matrix | None]]:
    """Yield each window with its scores (texts, rows) and alignability logits (texts,), cut back to
    what is real."""
    if isinstance(aligner, OnnxAligner):
        for part in parts:
            rows, texts = video[part.start : part.end], vectors[part.first : part.last]
            yield part, *aligner(rows, texts, ordered=settings.mode == "narration")
        return
    import torch

    from stepline.training.batches import Sample, collate

    device = device_of(aligner)
    was_training = aligner.training
    aligner.eval()
    try:
        for first in range(0, len(parts), settings.batch):
            some = parts[first : first + settings.batch]
            samples = [
                Sample(
                    id=f"rows {part.start} to {part.end}",
                    video=np.ascontiguousarray(video[part.start : part.end]),
                    text=vectors[part.first : part.last],
                    positive=np.zeros(
                        (part.last - part.first, part.end - part.start), dtype=np.bool_
                    ),
                    ordered=settings.mode == "narration",
                )
                for part in some
            ]
            batch = collate(samples, longest=len(video))
            bf16 = torch.autocast(device.type, torch.bfloat16)
            with torch.inference_mode(), bf16 if settings.bf16 else current_device().autocast():
                aligned = aligner(batch.to(device))
                scores = aligned.scores.float().cpu().numpy()  # (B, K, T)
                logits = (
                    None if aligned.alignable is None else aligned.alignable.float().cpu().numpy()
                )
            for row, part in enumerate(some):
                own = scores[row, : part.last - part.first, : part.end - part.start]
                yield part, own, None if logits is None else logits[row, : part.last - part.first]
    finally:
        aligner.train(was_training)


# of competition and of dependencies, each half the way; they settle in fewer
MEAN_FIELD_ROUNDS = 10
LEAST = 1e-4  # no text is surely shown, or surely not
TINIEST = 1e-30  # of a chance, so that its logarithm is finite
FULL = 0.999  # a second is never wholly taken


@dataclass(frozen=True)
class Posterior:
    """at: (K, T) P(text k is shown in row t, if shown at all), rows sum to 1; shown: (K,) P(it is
    shown at all)."""

    at: Array
    shown: Array

    @property
    def best(self) -> npt.NDArray[np.int64]:
        """(K,) the likeliest row of each text, of equal ones the first."""
        return np.asarray(self.at.argmax(axis=1), dtype=np.int64)


def posterior(
    scores: Matrix,
    shown: Array,
    settings: AlignerSettings | None = None,
    *,
    prior: Array | None = None,
    before: Array | None = None,
) -> Posterior:
    """Return the posterior of where and whether each text is shown.

    scores: (K, T) cosines. shown: (K,) P(shown) of each text by itself. prior: (K, T) P(shown at t
    | when it is said).
    before: (K, K) P(text i comes before text j), 0.5 where that is not known. What settings switch
    off costs nothing. Order costs nothing between two texts of which it is known when they are
    said: that tells more, and the same.
    Raises ShapeError for arrays that do not fit together, hold NaN, or have no row.
    """
    settings = settings or AlignerSettings()
    _check(scores, shown, prior, before)
    shown = np.clip(shown.astype(np.float64), LEAST, 1 - LEAST)
    at, said = (
        softmax(scores.astype(np.float64) / settings.temperature),
        np.zeros(len(scores), np.bool_),
    )
    if prior is not None and settings.speech > 0:
        said = np.ptp(prior, axis=1) > 0  # a text that nobody says is as likely everywhere
        at = _normal(at * np.maximum(prior, TINIEST) ** settings.speech)
    if settings.compete > 0:
        at = compete(at, shown, settings.compete, settings.typical)
    if before is not None:
        at = prefer_order(
            at, shown, np.where(np.outer(said, said), 0.5, before), settings.order_cost
        )
    if settings.order == "given":
        known = said & np.append(False, said[:-1])  # as is when the text in front of it is said
        return ordered_posterior(at, shown, np.where(known, 0.0, settings.order_cost))
    return Posterior(at, shown)


def compete(at: Array, shown: Array, strength: float, typical: int) -> Array:
    """Return P(shown in a row), (K, T), of texts that keep `typical` rows to themselves; P(shown at
    all) stays."""
    occupancy = at * shown[:, None]
    for _ in range(MEAN_FIELD_ROUNDS):
        # (K, T) log P(text k leaves the row free)
        free = np.log1p(-np.minimum(window_sums(occupancy, typical), FULL))
        made = softmax(np.log(at + TINIEST) + strength * (free.sum(axis=0) - free))
        occupancy = (occupancy + made * shown[:, None]) / 2
    return _normal(occupancy)


def prefer_order(at: Array, shown: Array, before: Array, most: float) -> Array:
    """Return P(shown in a row), (K, T), where an order that is broken costs its log odds, at most
    `most`."""
    odds = np.log(np.clip(before, LEAST, 1 - LEAST)) - np.log(np.clip(1 - before, LEAST, 1 - LEAST))
    cost = np.clip(odds, 0.0, most) * (1 - np.eye(len(odds)))  # (K, K) of j being shown before i
    occupancy = at * shown[:, None]
    for _ in range(MEAN_FIELD_ROUNDS):
        reached = occupancy.cumsum(axis=1)  # (K, T) P(shown up to t)
        earlier, later = reached - occupancy, reached[:, -1:] - reached
        made = softmax(np.log(at + TINIEST) - cost @ earlier - cost.T @ later)
        occupancy = (occupancy + made * shown[:, None]) / 2
    return _normal(occupancy)


def ordered_posterior(at: Array, shown: Array, cost: float | Array) -> Posterior:
    """Return the posterior of texts that stand in the order given.

    cost: nats that a text pays that is shown before one in front of it, one for all or (K,).

    What the order would take from P(shown) of texts that fit every row alike is given back: with
    nothing seen, P(shown) stays.
    """
    if len(at) < 2:
        return Posterior(at, shown)
    occupancy, none = _marginals(at * shown[:, None], 1 - shown, cost)
    alike = np.full(at.shape, 1 / at.shape[1]) * shown[:, None]
    _, none_alike = _marginals(alike, 1 - shown, cost)
    logit = _logit(1 - none) - _logit(1 - none_alike) + _logit(shown)
    return Posterior(_normal(occupancy), 1 / (1 + np.exp(-logit)))


def window_sums(rows: Array, width: int) -> Array:
    """Return, for each cell of (K, T), the sum over `width` rows around it; an even width reaches
    further back."""
    before, after = width // 2, width - width // 2
    total = np.pad(rows.cumsum(axis=1), ((0, 0), (1, 0)))  # (K, T + 1)
    row = np.arange(rows.shape[1])
    return np.asarray(
        total[:, np.minimum(row + after, rows.shape[1])] - total[:, np.maximum(row - before, 0)]
    )


def _marginals(shown_at: Array, none: Array, cost: float | Array) -> tuple[Array, Array]:
    """Return P(x_k = t) (K, T) and P(x_k = none) (K,) of the chain, by forward-backward.

    State t: the last shown text is shown in row t; state T: none was shown yet.
    """
    texts, rows = shown_at.shape
    price = np.exp(-np.broadcast_to(cost, texts))
    forward = np.zeros((texts + 1, rows + 1))
    forward[0, rows] = 1.0
    for k in range(texts):
        forward[k + 1] = forward[k] * none[k]
        forward[k + 1, :rows] += _forward_step(forward[k], price[k]) * shown_at[k]
        forward[k + 1] /= forward[k + 1].sum()
    backward = np.ones(rows + 1)
    at, absent = np.zeros((texts, rows)), np.zeros(texts)
    for k in range(texts - 1, -1, -1):
        at[k] = _forward_step(forward[k], price[k]) * shown_at[k] * backward[:rows]
        absent[k] = (forward[k] * backward).sum() * none[k]
        backward = backward * none[k] + _backward_step(shown_at[k] * backward[:rows], price[k])
        backward /= backward.max()
    whole = at.sum(axis=1) + absent
    return at / whole[:, None], absent / whole


def _forward_step(state: Array, price: float) -> Array:
    """Return (T,): what comes to each row from all states, those of later rows at the price of
    going back."""
    reached = state[:-1].cumsum()
    return np.asarray(reached + price * (reached[-1] - reached) + state[-1])


def _backward_step(ahead: Array, price: float) -> Array:
    """Return (T + 1,): what each state sees ahead of it, rows before it at the price of going
    back."""
    rest = ahead[::-1].cumsum()[::-1]
    return np.append(rest + price * (rest[0] - rest), rest[0])


def _check(scores: Matrix, shown: Array, prior: Array | None, before: Array | None) -> None:
    if scores.ndim != 2 or not scores.shape[1]:
        raise ShapeError(
            f"scores must be (texts, rows) with a row at least, not {scores.shape}; give the video's own"
        )
    texts = len(scores)
    wanted = {
        "shown": (shown, (texts,)),
        "prior": (prior, scores.shape),
        "before": (before, (texts, texts)),
    }
    for name, (values, shape) in wanted.items():
        if values is not None and values.shape != shape:
            raise ShapeError(f"{name} must be {shape} for {texts} texts, not {values.shape}")
        if values is not None and not ((values >= 0) & (values <= 1)).all():
            raise ShapeError(f"{name} holds chances outside [0, 1] or NaN; give probabilities")
    if not np.isfinite(scores).all():
        raise ShapeError("scores hold NaN or infinity; align again from finite features")


def softmax(logits: Array) -> Array:
    """Return the softmax of each row."""
    powers = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return _normal(powers)


def _normal(rows: Array) -> Array:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _logit(p: Array) -> Array:
    p = np.clip(p, LEAST, 1 - LEAST)
    return np.asarray(np.log(p) - np.log1p(-p))


def posterior_spans(
    at: Array, rate: float, settings: AlignerSettings | None = None, *, end: float | None = None
) -> list[Span]:
    """Return one span a text, inside the video, by the rule that the settings name.

    at: (K, T) probabilities of each row, T at least 1. rate: rows per second. end: seconds, of the
    video where the last row covers less than a whole one.
    """
    settings = settings or AlignerSettings()
    pairs: Sequence[tuple[float, float]]
    if settings.spans == "grown":
        sums = window_sums(at, settings.smooth)
        pairs = [
            grow_window(row.astype(np.float32), int(row.argmax()), settings.grow) for row in sums
        ]
    else:
        length = settings.duration * rate
        back = 0.0 if settings.spans == "start" else (length - 1) / 2
        pairs = [(best - back, best - back + length) for best in at.argmax(axis=1).tolist()]
    last = at.shape[1] / rate if end is None else end
    return [_inside(start / rate, stop / rate, last) for start, stop in pairs]


def best_seconds(at: Array, placed: Sequence[Span], rate: float, *, end: float) -> list[float]:
    """Return the second of each text: the middle of its likeliest row in its span. end: of the
    video, seconds."""
    seconds = []
    for row, span in zip(at, placed, strict=True):
        first = math.floor(span.start * rate)
        best = first + int(row[first : max(math.ceil(span.end * rate), first + 1)].argmax())
        # of what the video shows of the row
        middle = min((best + 0.5) / rate, (best / rate + end) / 2)
        seconds.append(min(max(middle, span.start), span.end))
    return seconds


def _inside(start: float, stop: float, end: float) -> Span:
    """Return the span cut to the video; one that starts in its very end keeps what there is."""
    start = max(0.0, start)
    stop = min(stop, end)
    return (
        Span(start, stop)
        if stop > start
        else Span(max(0.0, end - 1.0) if end > 0 else 0.0, max(end, 1e-3))
    )
