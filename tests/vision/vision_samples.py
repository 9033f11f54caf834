"""Pictures and frames for the tests of vision."""

from pathlib import Path

import numpy as np

from stepline.media import Frame

NOISE = np.random.default_rng(5).integers(0, 256, (6, 60, 80, 3), dtype=np.uint8)  # (B, H, W, 3)


def plain(level):
    """A picture of one grey level."""
    return np.full((48, 64, 3), level, dtype=np.uint8)


def frame(time, level=0):
    return Frame(time, plain(level))


def photo(name):
    """A photograph that scikit-learn carries, (427, 640, 3)."""
    import pytest
    from PIL import Image

    sklearn = pytest.importorskip("sklearn")
    return np.asarray(
        Image.open(Path(sklearn.__file__).parent / "datasets" / "images" / name).convert("RGB")
    )


class LevelBackbone:
    """Encodes a picture as its mean grey level and 1; counts its batches."""

    name = "level"
    dim = 2

    def __init__(self):
        self.batches = []

    def encode_images(self, pictures):
        self.batches.append(len(pictures))
        levels = pictures.mean((1, 2, 3), dtype=np.float64)
        return np.stack([levels, np.ones(len(levels))], axis=1).astype(np.float32)

    def encode_texts(self, texts):
        return np.zeros((len(texts), 2), dtype=np.float32)
