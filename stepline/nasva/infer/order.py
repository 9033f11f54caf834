"""Which second each text is shown in, if any, given how all of them fit: rivals keep apart, order is kept, softly.

    pi_k(t) = p_k softmax_t(A[k, t] / tau) prior_k(t)^w        pi_k(none) = 1 - p_k
    pi_k(t) <- pi_k(t) prod_{j != k} (1 - held_j(t))^c          two texts are not shown at once; c = `compete`
    P(x) ~ prod_k pi_k(x_k) exp(-cost [x_k is before the last shown x_j, j < k])

x_k is the second of text k, or none. The last line is a chain whose state is the second of the last shown text, so
that forward-backward gives every P(x_k = t) and P(x_k = none) exactly, in time K T: the price of going back is the same
from everywhere, so a step of the chain is a cumulative sum. A dependency matrix, which is no chain, acts through the
means of the others (mean field). Letters: K texts, T rows.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.nasva.aligner_settings import AlignerSettings
from stepline.nasva.prior import Array
from stepline.records import Matrix

ROUNDS = 10  # of competition and of dependencies, each half the way; they settle in fewer
LEAST = 1e-4  # no text is surely shown, or surely not
TINY = 1e-30  # of a chance, so that its logarithm is finite
FULL = 0.999  # a second is never wholly taken


@dataclass(frozen=True)
class Chances:
    """at: (K, T) P(text k is shown in row t, if shown at all), rows sum to 1; shown: (K,) P(it is shown at all)."""

    at: Array
    shown: Array

    @property
    def best(self) -> npt.NDArray[np.int64]:
        """(K,) the likeliest row of each text, of equal ones the first."""
        return np.asarray(self.at.argmax(axis=1), dtype=np.int64)


def chances(
    scores: Matrix,
    shown: Array,
    settings: AlignerSettings | None = None,
    *,
    prior: Array | None = None,
    before: Array | None = None,
) -> Chances:
    """Return where and whether each text is shown.

    scores: (K, T) cosines. shown: (K,) P(shown) of each text by itself. prior: (K, T) P(shown at t | when it is said).
    before: (K, K) P(text i comes before text j), 0.5 where that is not known. What settings switch off costs nothing.
    Raises ShapeError for arrays that do not fit together, hold NaN, or have no row.
    """
    settings = settings or AlignerSettings()
    _check(scores, shown, prior, before)
    shown = np.clip(shown.astype(np.float64), LEAST, 1 - LEAST)
    at = softmax(scores.astype(np.float64) / settings.temperature)
    if prior is not None and settings.speech > 0:
        at = _normal(at * np.maximum(prior, TINY) ** settings.speech)
    if settings.compete > 0:
        at = apart(at, shown, settings.compete, settings.typical)
    if before is not None:
        at = dependent(at, shown, before, settings.order_cost)
    if settings.order == "given":
        return chain(at, shown, settings.order_cost)
    return Chances(at, shown)


def apart(at: Array, shown: Array, strength: float, typical: int) -> Array:
    """Return (K, T) chances of texts that keep `typical` rows to themselves; whether they are shown stays."""
    held = at * shown[:, None]
    for _ in range(ROUNDS):
        free = np.log1p(-np.minimum(summed(held, typical), FULL))  # (K, T) log P(text k leaves the row free)
        made = softmax(np.log(at + TINY) + strength * (free.sum(axis=0) - free))
        held = (held + made * shown[:, None]) / 2
    return _normal(held)


def dependent(at: Array, shown: Array, before: Array, most: float) -> Array:
    """Return (K, T) chances where text i at t costs the log odds, at most `most`, of each order that it breaks."""
    odds = np.log(np.clip(before, LEAST, 1 - LEAST)) - np.log(np.clip(1 - before, LEAST, 1 - LEAST))
    cost = np.clip(odds, 0.0, most) * (1 - np.eye(len(odds)))  # (K, K) of j being shown before i
    held = at * shown[:, None]
    for _ in range(ROUNDS):
        reached = held.cumsum(axis=1)  # (K, T) P(shown up to t)
        earlier, later = reached - held, reached[:, -1:] - reached
        made = softmax(np.log(at + TINY) - cost @ earlier - cost.T @ later)
        held = (held + made * shown[:, None]) / 2
    return _normal(held)


def chain(at: Array, shown: Array, cost: float) -> Chances:
    """Return the chances of texts that stand in the order given, a break of which costs `cost` nats.

    What the order would take from P(shown) of texts that fit every row alike is given back: with nothing seen,
    P(shown) stays.
    """
    if len(at) < 2:
        return Chances(at, shown)
    held, none = _marginals(at * shown[:, None], 1 - shown, cost)
    alike = np.full(at.shape, 1 / at.shape[1]) * shown[:, None]
    _, none_alike = _marginals(alike, 1 - shown, cost)
    logit = _logit(1 - none) - _logit(1 - none_alike) + _logit(shown)
    return Chances(_normal(held), 1 / (1 + np.exp(-logit)))


def summed(rows: Array, width: int) -> Array:
    """Return, for each cell of (K, T), the sum over `width` rows around it; an even width reaches further back."""
    before, after = width // 2, width - width // 2
    total = np.pad(rows.cumsum(axis=1), ((0, 0), (1, 0)))  # (K, T + 1)
    place = np.arange(rows.shape[1])
    return np.asarray(total[:, np.minimum(place + after, rows.shape[1])] - total[:, np.maximum(place - before, 0)])


def _marginals(held: Array, none: Array, cost: float) -> tuple[Array, Array]:
    """Return P(x_k = t) (K, T) and P(x_k = none) (K,) of the chain, by forward-backward.

    State t: the last shown text is shown in row t; state T: none was shown yet.
    """
    texts, rows = held.shape
    price = np.exp(-cost)
    forward = np.zeros((texts + 1, rows + 1))
    forward[0, rows] = 1.0
    for k in range(texts):
        forward[k + 1] = forward[k] * none[k]
        forward[k + 1, :rows] += _arrive(forward[k], price) * held[k]
        forward[k + 1] /= forward[k + 1].sum()
    backward = np.ones(rows + 1)
    at, absent = np.zeros((texts, rows)), np.zeros(texts)
    for k in range(texts - 1, -1, -1):
        at[k] = _arrive(forward[k], price) * held[k] * backward[:rows]
        absent[k] = (forward[k] * backward).sum() * none[k]
        backward = backward * none[k] + _leave(held[k] * backward[:rows], price)
        backward /= backward.max()
    whole = at.sum(axis=1) + absent
    return at / whole[:, None], absent / whole


def _arrive(state: Array, price: float) -> Array:
    """Return (T,): what comes to each row from all states, those of later rows at the price of going back."""
    reached = state[:-1].cumsum()
    return np.asarray(reached + price * (reached[-1] - reached) + state[-1])


def _leave(ahead: Array, price: float) -> Array:
    """Return (T + 1,): what each state sees ahead of it, rows before it at the price of going back."""
    rest = ahead[::-1].cumsum()[::-1]
    return np.append(rest + price * (rest[0] - rest), rest[0])


def _check(scores: Matrix, shown: Array, prior: Array | None, before: Array | None) -> None:
    if scores.ndim != 2 or not scores.shape[1]:
        raise ShapeError(f"scores must be (texts, rows) with a row at least, not {scores.shape}; give the video's own")
    texts = len(scores)
    wanted = {"shown": (shown, (texts,)), "prior": (prior, scores.shape), "before": (before, (texts, texts))}
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
