"""P(the video shows a step), from the wording of the step alone: "chop the onion" is shown more often
than "let it rest overnight".

A logistic regression on MiniLM vectors, fitted to WhenAct's labels by
`lab/fit_visible_text.py`.
"""

import functools
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.limits import load_packaged_json
from stepline.numeric import sigmoid
from stepline.records import Matrix

Array: TypeAlias = npt.NDArray[np.float64]


def predict_visibility(vectors: Matrix) -> Array:
    """Return P(the video shows the step) of K steps, (K,).

    vectors: MiniLM vectors of their texts, (K, 384).
    Raises ShapeError for another width.
    """
    return predict_by_wording(vectors, "stepline.text", "visible_text.json")


def predict_by_wording(vectors: Matrix, package: str, file: str) -> Array:
    """Return the probability that a logistic regression gives each of N texts, (N,).

    Args:
        vectors: MiniLM vectors of the texts, (N, 384).
        package: dotted name of the package that ships the regression.
        file: name of the JSON file with its "weights" and "intercept".
    Raises ShapeError for another width.
    """
    weights, intercept = _read_regression(package, file)
    if vectors.ndim != 2 or vectors.shape[1] != len(weights):
        problem = f"needs MiniLM vectors (N, {len(weights)}), not {vectors.shape}"
        raise ShapeError(f"a probability by wording {problem}")
    return sigmoid(vectors.astype(np.float64) @ weights + intercept)


@functools.cache
def _read_regression(package: str, file: str) -> tuple[Array, float]:
    model = load_packaged_json(package, file)
    return np.array(model["weights"]), float(model["intercept"])
