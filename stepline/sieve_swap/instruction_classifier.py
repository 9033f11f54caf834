"""P(a sentence tells a step | its wording): "throw the onions in" does, "my grandma loved onions" does not.

A logistic regression on MiniLM vectors, fitted by `benchmarks/fit_instruction_wording.py` to spoken cooking steps and
to talk between steps about the same food. Beyond the paper, whose sieve is the threshold on similarity alone.
"""

import functools
import json
from collections.abc import Sequence
from importlib import resources

import numpy as np

from stepline.errors import ShapeError
from stepline.records import Matrix

ENCODER = "minilm"  # whose vectors the weights are for
IDLE_TALK = "it sounds like no instruction"


def instruction_probability(vectors: Matrix) -> Matrix:
    """Return P(it tells a step) of each sentence, (S,), from its MiniLM vector (S, 384).

    Raises ShapeError for another width.
    """
    weights, intercept = _model()
    if vectors.ndim != 2 or vectors.shape[1] != len(weights):
        raise ShapeError(f"the sieve by wording needs MiniLM vectors (S, {len(weights)}), not {vectors.shape}")
    return (1 / (1 + np.exp(-(vectors.astype(np.float64) @ weights + intercept)))).astype(np.float32)


def are_instructions(texts: Sequence[str], floor: float, vectors: Matrix | None = None) -> list[bool]:
    """Tell for each text whether P(it tells a step) reaches the floor; vectors: its MiniLM vectors, if at hand."""
    if vectors is None:
        from stepline.text import embed

        vectors = embed(texts, model=ENCODER)
    return [bool(chance >= floor) for chance in instruction_probability(vectors)]


@functools.cache
def _model() -> tuple[Matrix, float]:
    file = resources.files("stepline.sieve_swap").joinpath("instruction_wording.json")
    model = json.loads(file.read_text(encoding="utf-8"))
    return np.array(model["weights"]), float(model["intercept"])
