"""Networks and features that another program makes alike, without a file of weights: numbers drawn by
name.

NumPy keeps the stream of `RandomState` as it is. A small edit here asks for the expected numbers
again.
"""

import zlib

import numpy as np
import torch


def draw(name, count):
    """Return count float64 numbers, uniform in [-1, 1), that belong to a name."""
    return np.random.RandomState(zlib.crc32(name.encode())).uniform(-1, 1, count)


def rows(name, count, width):
    """Return features (count, width) float32 that half precision holds exactly."""
    return draw(name, count * width).astype(np.float16).astype(np.float32).reshape(count, width)


def weights(shapes):
    """Return the tensors of a network, each by its name and shape.

    Matrices are uniform up to 2 / sqrt(numbers per output), biases up to 0.2, other vectors from 0.8
    to 1.2.
    """
    state = {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        if len(shape) > 1:
            scale, base = 2 / np.sqrt(size / shape[0]), 0.0
        else:
            scale, base = 0.2, 0.0 if name.endswith("bias") else 1.0
        values = base + scale * draw(name, size)
        state[name] = torch.tensor(values.reshape(shape), dtype=torch.float32)
    return state


def marked_rows(text):
    """Return rows [alignable, start, end, text] of HTM-Align, from "1 2.0 9.0 a text | ..."."""
    rows = (row.split(maxsplit=3) for row in text.split("|"))
    return [
        [int(shown), float(start), float(end), said.strip()] for shown, start, end, said in rows
    ]
