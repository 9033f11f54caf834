"""Which shot shows which step: an assignment, one step a shot, with a place for steps that are never shown.

    weight(k, u) = odds(shown_k) mass_k(u) exp(w z_k(u)) r_u / (1 - rho + rho r_u)

mass: of the shown prior, in the seconds of the unit; among the units near the words, the one that starts with them
gets most. r: odds of doing against not (`shots`). The denominator is what the picture would be worth if no step
stood there: something unwritten is done in a share rho of the places. Each unit holds one step or none, each step one
unit or none; the chance of each pair is found by belief propagation (the Bethe form of the monomer-dimer model, one
fixed point). Steps of one sentence may share a unit: "take the whisk and beat the eggs" is one picture. Steps are
mostly shown in the order of saying: every pair out of order costs `order` nats.
Letters: K steps, T seconds, U units.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.nasva.prior import Array
from stepline.nasva.settings import GroundSettings
from stepline.nasva.shots import Units
from stepline.records import Span, Step

ROUNDS = 200  # of messages, each half the way; they settle in far fewer
ORDERINGS = 4  # how often the order is looked at again
CERTAIN = 4.0  # nats that the picture may say for or against doing
NEAR = 5.0  # seconds around the words in which a shot answers to them
START = 1.0  # seconds after the first word at which such a shot usually starts (WhenAct: 1.0)
AROUND = 2.0  # seconds, how much that varies; Cauchy


@dataclass(frozen=True)
class Matched:
    """pairs: (K, U) P(step k is shown in unit u); shown: (K,) P(shown); lag: seconds from words to pictures."""

    pairs: Array
    shown: Array
    lag: float


def match(
    prior_at: Callable[[float], Array],
    steps: Sequence[Step],
    evidence: Array,
    base: Array,
    places: Units,
    settings: GroundSettings,
) -> Matched:
    """Return the chances. prior_at: the prior (K, T) under a lag; evidence: (K, T) log, base: (K,) P(shown) before."""
    said = [step.said for step in steps]
    mates = np.array([[bool({*a.sources} & {*b.sources}) and a is not b for b in steps] for a in steps], dtype=float)
    ratio = np.exp(CERTAIN * np.tanh(places.odds / CERTAIN))
    worth = ratio / (1 - settings.unwritten + settings.unwritten * ratio)  # (U,)
    lag = _lag(prior_at, places, worth, settings)
    prior = prior_at(lag)
    mass = by_unit(prior, places.slices)
    likely = by_unit(prior * np.exp(evidence), places.slices) / np.maximum(mass, 1e-12)
    weight = (base / (1 - base))[:, None] * started(mass, said, places) * likely * worth
    pairs, never = assigned(weight, mates)
    for _ in range(ORDERINGS if settings.order else 0):
        pairs, never = assigned(weight * np.exp(-settings.order * inversions(pairs)), mates)
    return Matched(pairs, 1 - never, lag)


def by_unit(rows: Array, slices: Sequence[slice]) -> Array:
    """Return the sums (K, U) of rows (K, T) over units."""
    return np.stack([rows[:, s].sum(axis=1) for s in slices], axis=1)


def _lag(prior_at: Callable[[float], Array], places: Units, worth: Array, settings: GroundSettings) -> float:
    """Return by how many seconds the pictures follow the words: where the prior meets most doing, less its cost."""
    reach = round(settings.lag_reach)
    gains: dict[int, float] = {}
    for lag in range(min(0, 4 - reach), reach + 1):
        met = (by_unit(prior_at(float(lag)), places.slices) * worth).sum(axis=1)
        gains[lag] = float(np.log(met).sum()) - 0.5 * ((lag - settings.lag_usual) / settings.lag_spread) ** 2
    return float(max(gains, key=lambda lag: gains[lag]))


def started(mass: Array, said: Sequence[Span | None], places: Units) -> Array:
    """Return the mass (K, U), that near the words moved to the units that start with them; its sum stays."""
    out: Array = mass.copy()
    stops = np.array([s.stop for s in places.slices])
    for row, span in zip(out, said, strict=True):
        if span is None:
            continue
        near = (places.starts - span.end < NEAR) & (span.start - stops < NEAR)
        fit = row * near / (1 + ((places.starts - span.start - START) / AROUND) ** 2)
        if fit.sum() > 0:
            row[near] = fit[near] * row[near].sum() / fit.sum()
    return np.asarray(out)


def inversions(pairs: Array) -> Array:
    """Return (K, U): how many other steps are expected out of order if step k stood at unit u."""
    through = pairs.cumsum(axis=1)  # P(step j stands at u or before)
    before, after = through - pairs, pairs.sum(axis=1, keepdims=True) - through
    later = before[::-1].cumsum(axis=0)[::-1] - before  # of the steps that come later, those shown before u
    sooner = after.cumsum(axis=0) - after
    return np.asarray(later + sooner)


def assigned(weight: Array, mates: Array) -> tuple[Array, Array]:
    """Return P(pair) (K, U) and P(no unit) (K,) for weights against 1 for "none", one step a unit and back.

    mates: (K, K), 1 where two steps may share a unit, 0 on the diagonal.
    """
    free = np.ones_like(weight)  # message of unit u to step k: P(no other step has it)
    for _ in range(ROUNDS):
        total = (weight * free).sum(axis=1, keepdims=True)
        asks = weight / (1 + total - weight * free)
        rivals = np.maximum(asks.sum(axis=0, keepdims=True) - asks - mates @ asks, 0.0)
        free = (free + 1 / (1 + rivals)) / 2
    pull = weight * free
    total = 1 + pull.sum(axis=1, keepdims=True)
    return np.asarray(pull / total), np.asarray(1 / total[:, 0])
