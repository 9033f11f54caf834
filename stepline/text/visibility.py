"""P(the picture shows it | its wording): "chop the onion" is shown more often than "let it rest
overnight".

A logistic regression on MiniLM vectors, fitted to WhenAct's labels by
`lab/fit_visible_text.py`.
"""

import functools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.limits import packaged_json
from stepline.numeric import sigmoid
from stepline.records import Matrix

Array: TypeAlias = npt.NDArray[np.float64]


def predict_visibility(vectors: Matrix) -> Array:
    """Return P(shown) of each text, (K,), from its MiniLM vector (K, 384). Raises ShapeError for
    another width."""
    return predict_by_wording(vectors, "stepline.text", "visible_text.json")


def predict_by_wording(vectors: Matrix, package: str, file: str) -> Array:
    """Return the probability of each text, (N,), by the logistic regression in a file of a package.

    vectors: (N, 384), of MiniLM. Raises ShapeError for another width.
    """
    weights, intercept = _read_regression(package, file)
    width = len(weights)
    if vectors.ndim != 2 or vectors.shape[1] != width:
        need = f"needs MiniLM vectors (N, {width}), not {vectors.shape}"
        raise ShapeError(f"a probability by wording {need}")
    return sigmoid(vectors.astype(np.float64) @ weights + intercept)


@functools.cache
def _read_regression(package: str, file: str) -> tuple[Array, float]:
    model = packaged_json(package, file)
    return np.array(model["weights"]), float(model["intercept"])
