"""P(the picture shows it | its wording): "chop the onion" is shown more often than "let it rest
overnight".

A logistic regression on MiniLM vectors, fitted to WhenAct's labels by
`benchmarks/fit_visible_text.py`.
"""

import functools
import json
from importlib import resources
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.records import Matrix

Array: TypeAlias = npt.NDArray[np.float64]


def predict_visibility(vectors: Matrix) -> Array:
    """Return P(shown) of each text, (K,), from its MiniLM vector (K, 384). Raises ShapeError for
    another width."""
    weights, intercept = _model()
    if vectors.ndim != 2 or vectors.shape[1] != len(weights):
        raise ShapeError(
            f"visibility by wording needs MiniLM vectors (K, {len(weights)}), not {vectors.shape}"
        )
    return np.asarray(1 / (1 + np.exp(-(vectors.astype(np.float64) @ weights + intercept))))


@functools.cache
def _model() -> tuple[Array, float]:
    model = json.loads(
        resources.files("stepline.text").joinpath("visible_text.json").read_text(encoding="utf-8")
    )
    return np.array(model["weights"]), float(model["intercept"])
