"""Does a video instruct at all? A talk in which sentences read like orders shows none of them.

    log Bayes factor = min(1, S / 30) (w_mean logit(mean P(step)) + w_top logit(mean of the five likeliest)
                                       + v . direction + b)

P(step): what the writer's scorer of sentences says.
direction: of the sum of the sentence vectors, each weighed by its P(step).
It is used because "take the lid off" and "take the weight off your heart" differ by what they are
about.

The weights are a logistic regression over parts of how-to narrations and talks
(`lab/fit_instruction.py`). docs/grounding.md has what holds on those left out.
Letters: S sentences, D width.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import numpy as np
import numpy.typing as npt

from stepline.numeric import logit
from stepline.records import Matrix

Array = npt.NDArray[np.float64]

# A sentence and a half that no one has said yet, at the usual P(step): few sentences show little.
USUAL_PROBABILITY: Final = 0.15
USUAL_SENTENCES: Final = 2.0
TOP_SENTENCES: Final = 5
USUAL_TOP: Final = 0.3  # P(step) of one more sentence among the most likely
LEAST_WEIGHT: Final = 0.02  # of a sentence without a step, for the direction
DIRECTION_SCALE: Final = 8.0  # of a unit vector next to logits; the regression shrinks all alike
FULL_SENTENCES: Final = 30  # from which the evidence counts in full
MIN_NORM: Final = 1e-9


@dataclass(frozen=True)
class InstructionWeights:
    """Of `instruction_features`, (2 + D,), and what is added to their sum."""

    weights: list[float]
    intercept: float


def instruction_log_bayes(
    probabilities: Sequence[float], vectors: Matrix, model: InstructionWeights | None = None
) -> float:
    """Return the log Bayes factor that a video instructs, against other talk, 0 without a sentence.

    probabilities: (S,) P(the sentence describes a step).
    vectors: (S, D) of MiniLM.
    """
    if not len(probabilities):
        return 0.0
    model = model or load_weights()
    features = instruction_features(np.array(probabilities), vectors)
    log_odds = float(features @ np.array(model.weights)) + model.intercept
    return min(1.0, len(probabilities) / FULL_SENTENCES) * log_odds


def instruction_features(probabilities: Array, vectors: Matrix) -> Array:
    """Return what the regression reads of a video of S > 0 sentences, (2 + D,)."""
    count = len(probabilities)
    mean = probabilities.sum() + USUAL_SENTENCES * USUAL_PROBABILITY
    likeliest = np.sort(probabilities)[::-1][:TOP_SENTENCES]
    top = (likeliest.sum() + USUAL_TOP) / (len(likeliest) + 1)
    direction = (probabilities + LEAST_WEIGHT) @ vectors.astype(np.float64)  # (D,)
    direction *= DIRECTION_SCALE / max(float(np.linalg.norm(direction)), MIN_NORM)
    numbers = logit(np.array([mean / (count + USUAL_SENTENCES), top]))
    return np.concatenate([numbers, direction])


@cache
def load_weights() -> InstructionWeights:
    """Return the weights that come with the package."""
    file = resources.files("stepline.writing.extractive") / "instruction.json"
    return InstructionWeights(**json.loads(file.read_text(encoding="utf-8")))
