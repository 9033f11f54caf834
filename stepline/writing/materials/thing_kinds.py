"""What a thing is in a how-to, by its name alone: a material, which is used up, a tool, or other.

A logistic regression over MiniLM's vectors of names, which lab/fit_materials.py learned from
lab/narrations/things.txt.
"""

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from stepline.numeric import softmax
from stepline.text import embed

ThingKind: TypeAlias = Literal["material", "tool", "other"]
THING_KINDS: Final[tuple[ThingKind, ...]] = get_args(ThingKind)
WEIGHTS_FILE: Final = "thing_kinds.json"

Array: TypeAlias = npt.NDArray[np.float32]


def thing_kinds(names: Sequence[str]) -> Array:
    """Return P of each of THING_KINDS of each name, (N, 3)."""
    weights, biases = _read_weights()
    names_in_lower_case = [name.lower() for name in names]
    vectors = embed(names_in_lower_case)  # (N, D)
    probabilities: Array = softmax(vectors @ weights.T + biases)
    return probabilities


@cache
def _read_weights() -> tuple[Array, Array]:
    package = resources.files("stepline.writing.materials")
    text = package.joinpath(WEIGHTS_FILE).read_text("utf-8")
    content = json.loads(text)
    weights = np.array(content["weights"], np.float32)
    biases = np.array(content["biases"], np.float32)
    return weights, biases
