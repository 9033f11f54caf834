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
    """Return P(a step is visible in the video) per text, (K,), from MiniLM vectors (K, 384).

    Raises ShapeError for another width.
    """
    return predict_by_wording(vectors, "stepline.text", "visible_text.json")


def predict_by_wording(vectors: Matrix, package: str, file: str) -> Array:
    """Return one probability per text, (N,), by a logistic regression on its vector.

    Args:
        vectors: (N, 384), of MiniLM.
        package: the package that holds the regression.
        file: JSON file of its weights.
    Raises ShapeError for another width.
    """
    weights, intercept = _read_regression(package, file)
    width = len(weights)
    if vectors.ndim != 2 or vectors.shape[1] != width:
        problem = f"needs MiniLM vectors (N, {width}), not {vectors.shape}"
        raise ShapeError(f"a probability by wording {problem}")
    return sigmoid(vectors.astype(np.float64) @ weights + intercept)


@functools.cache
def _read_regression(package: str, file: str) -> tuple[Array, float]:
    model = packaged_json(package, file)
    return np.array(model["weights"]), float(model["intercept"])
