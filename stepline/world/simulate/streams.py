"""Random numbers by purpose: what one part draws never changes what another gets."""

import zlib
from typing import Final

import numpy as np

MEANINGS: Final = 1
TASKS: Final = 2
ARTICLES: Final = 3
TIMELINE: Final = 4
NARRATION: Final = 5
RECOGNISER: Final = 6
WRITER: Final = 7
SCENE: Final = 8
BACKBONE: Final = 9
FEATURES: Final = 10
VECTORS: Final = 11
EMBEDDER: Final = 12

WORLD: Final = 0  # the number of the world itself, where videos are numbered from 1


def random(seed: int, number: int, purpose: int, *names: str) -> np.random.Generator:
    """Return the generator of one purpose for the world (`WORLD`) or for a video (its index + 1)."""
    return np.random.default_rng([seed, number, purpose, *(zlib.crc32(name.encode()) for name in names)])
