"""Speech and pictures into one P(shown at t) a step, and one P(shown). Letters: K steps, T seconds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.nasva import evidence
from stepline.nasva.decode import occupancy
from stepline.nasva.prior import Array
from stepline.nasva.settings import GroundSettings

ROUNDS = 20         # of the competition for seconds, each half the way; it settles in fewer
LEAST_FREE = 1e-3   # a second is never wholly taken

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Fused:
    """held: (K, T) P(being shown at t, if shown at all); score: (K,) P(shown); weights: one a kind of evidence."""

    held: Array
    score: Array
    weights: tuple[float, ...]

    @property
    def best(self) -> npt.NDArray[np.int64]:
        """(K,) the likeliest second of each step."""
        return self.held.argmax(axis=1) if self.held.size else np.zeros(len(self.held), dtype=np.int64)


def fuse(prior: Array, parts: Sequence[Array], said: Flags, base: Array, settings: GroundSettings) -> Fused:
    """Return what speech (prior, (K, T)) and each kind of evidence (parts, (K, T)) say together.

    said: (K,) whether the step is spoken of. base: (K,) P(shown) before any evidence.
    """
    weights = earned(prior, parts, said, settings)
    log_evidence = evidence.tilt(parts, weights, prior.shape)
    noise = _against_noise(parts, weights, prior.shape)
    likely = prior * np.exp(log_evidence)
    score, held = base, occupancy(_normal(likely), settings.typical)
    for _ in range(ROUNDS):
        free = unclaimed(held, score) ** settings.compete
        factor = np.where(said, evidence.bayes_factors(_normal(prior * free), log_evidence), noise)
        score = (score + base * factor / (1 - base + base * factor)) / 2
        held = (held + occupancy(_normal(likely * free), settings.typical)) / 2
    return Fused(held, score, tuple(weights))


def unclaimed(held: Array, score: Array) -> Array:
    """Return (K, T): P(no other step is being shown at t)."""
    absent = np.maximum(1 - held * score[:, None], LEAST_FREE)
    return np.asarray(absent.prod(axis=0) / absent)


def _normal(rows: Array) -> Array:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def earned(prior: Array, parts: Sequence[Array], said: Flags, settings: GroundSettings) -> list[float]:
    """Return the weight of each kind of evidence: earned against speech, or the setting where nothing is said."""
    if not said.any():
        return [settings.vision_alone if part.any() else 0.0 for part in parts]
    spoken = [part[said] for part in parts]
    return evidence.earned_weights(prior[said], spoken, penalty=settings.vision_penalty, limit=settings.vision_limit)


def _against_noise(parts: Sequence[Array], weights: Sequence[float], shape: tuple[int, ...]) -> Array:
    """Return (K,): how much higher the first kind of evidence peaks than noise of unit variance would.

    A step that nobody says has a flat prior, so that it cannot be compared with its own average.
    """
    if not parts:
        return np.ones(shape[0])
    return np.asarray(np.exp(weights[0] * parts[0]).mean(axis=1) / math.exp(weights[0] ** 2 / 2))
