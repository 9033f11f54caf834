"""P(a sentence tells a step): what the tagger says of it and of its neighbours, calibrated.

The few numbers are a logistic regression on the tagger's log probabilities, fitted by
`benchmarks/fit_step_score.py`.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stepline.narration import SentenceReading
from stepline.narration.words import EDITS, KINDS
from stepline.numeric import sigmoid

Array = npt.NDArray[np.float64]

MIN_PROBABILITY: Final = 1e-4
REACH_SENTENCES: Final = 3  # neighbours on either side whose scores count
STEP_COLUMN: Final = KINDS.index("step")
TYPICAL_WORDS: Final = 10  # of a sentence
FEATURE_COUNT: Final = 23
LENGTH_WORDS: Final = 8  # up to which the length of a sentence counts


def score_features(readings: Sequence[SentenceReading], lengths: Sequence[int]) -> Array:
    """Return what the regression reads of each sentence of one narration, (S, 23).

    Log P of each kind; log P(step) of three neighbours on either side, and its mean; the length,
    twice; what the tagger would make of the words. lengths: words of each sentence.
    """
    if not readings:
        return np.zeros((0, FEATURE_COUNT))
    kinds = np.stack([reading.kinds for reading in readings]).astype(np.float64)  # (S, 8)
    log_kinds = np.log(kinds + MIN_PROBABILITY)
    step = log_kinds[:, STEP_COLUMN]
    padded = np.pad(step, REACH_SENTENCES, mode="edge")
    count = len(step)
    neighbours = []
    for distance in range(1, REACH_SENTENCES + 1):
        neighbours.append(padded[REACH_SENTENCES - distance :][:count])
        neighbours.append(padded[REACH_SENTENCES + distance :][:count])
    words = np.array(lengths, dtype=np.float64)
    short = np.minimum(words, LENGTH_WORDS) / LENGTH_WORDS
    own = [np.full(count, step.mean()), short, np.log(words + 1)]
    edits = np.stack([_edit_features(reading) for reading in readings])  # (S, 6)
    columns = [log_kinds, np.stack([*neighbours, *own], axis=1), edits]
    return np.concatenate(columns, axis=1)


def _edit_features(reading: SentenceReading) -> Array:
    """Return how surely actions begin in a sentence, and how much of it would stay, (6,)."""
    if not len(reading.edits):
        return np.zeros(6)
    edits = reading.edits.astype(np.float64)
    action = edits[:, EDITS.index("verb")] + edits[:, EDITS.index("next")]  # (W,)
    stays = 1 - edits[:, EDITS.index("drop")]
    name = edits[:, EDITS.index("name")]
    total = stays.sum() / TYPICAL_WORDS
    features = [action.max(), action.sum(), stays.mean(), total, name.max(), reading.verbs[0]]
    return np.array(features)


def step_probabilities(readings: Sequence[SentenceReading], lengths: Sequence[int]) -> Array:
    """Return P(it tells a step) of each sentence of one narration, (S,)."""
    weights, intercept = _read_regression()
    features = score_features(readings, lengths)
    return sigmoid(features @ weights + intercept)


@cache
def _read_regression() -> tuple[Array, float]:
    package = resources.files("stepline.writing.extractive")
    content: dict[str, Any] = json.loads(package.joinpath("step_score.json").read_text("utf-8"))
    return np.array(content["weights"]), float(content["intercept"])
