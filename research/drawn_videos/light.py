"""How light falls on shapes, and how outlines are rounded."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter

Point: TypeAlias = tuple[float, float]
Array: TypeAlias = npt.NDArray[np.float32]
Relief: TypeAlias = Literal["flat", "ball", "tube", "rod", "bowl"]

LIGHT = (-0.50, -0.55, 0.67)  # unit vector towards the light: left, up, out of the picture
AMBIENT = 0.52  # fraction of the colour that reaches the side away from the light


def lit(height: int, width: int, relief: Relief, cover: Array) -> tuple[Array, Array]:
    """Return how much light (1 = full colour) and shine each pixel of a shape gets."""
    v = np.linspace(-1.0, 1.0, height, dtype=np.float32)[:, None] * np.ones((1, width), np.float32)
    u = np.linspace(-1.0, 1.0, width, dtype=np.float32)[None, :] * np.ones((height, 1), np.float32)
    if relief == "flat":
        return 1.0 - 0.07 * u - 0.09 * v, np.zeros_like(u)
    if relief == "tube":
        u, v = _across(cover), np.zeros_like(v)
    elif relief == "rod":
        u = np.zeros_like(u)
    elif relief == "bowl":
        u, v = -u, -v
    depth = np.sqrt(np.clip(1.0 - np.minimum(u * u + v * v, 1.0), 0.0, 1.0))
    facing = np.clip(u * LIGHT[0] + v * LIGHT[1] + depth * LIGHT[2], 0.0, 1.0)
    light = AMBIENT + (1.12 - AMBIENT) * facing
    return light.astype(np.float32), (facing**22).astype(np.float32)


def _across(cover: Array) -> Array:
    """Return, row by row, where each pixel is between the left (-1) and the right (1) edge of the
    shape."""
    solid = cover > 0.02
    width = cover.shape[1]
    first = solid.argmax(1).astype(np.float32)
    last = (width - 1 - solid[:, ::-1].argmax(1)).astype(np.float32)
    columns = np.arange(width, dtype=np.float32)[None, :]
    half = np.maximum((last - first) / 2.0, 1.0)[:, None]
    across: Array = np.clip((columns - ((first + last) / 2.0)[:, None]) / half, -1.0, 1.0).astype(
        np.float32
    )
    return across


def rounded(points: Sequence[Point], rounds: int = 3) -> list[Point]:
    """Return a closed outline with its corners cut off again and again (Chaikin)."""
    path = list(points)
    for _ in range(rounds):
        following = path[1:] + path[:1]
        path = [
            (a[0] * (1 - k) + b[0] * k, a[1] * (1 - k) + b[1] * k)
            for a, b in zip(path, following, strict=True)
            for k in (0.25, 0.75)
        ]
    return path


def curve(points: Sequence[Point], rounds: int = 3) -> list[Point]:
    """Return an open line with its corners cut off, ends kept."""
    path = list(points)
    for _ in range(rounds):
        inner = [
            (a[0] * (1 - k) + b[0] * k, a[1] * (1 - k) + b[1] * k)
            for a, b in pairwise(path)
            for k in (0.25, 0.75)
        ]
        path = [path[0], *inner, path[-1]]
    return path


def shadow(width: int, height: int, strength: float = 0.45) -> Image.Image:
    """Return a soft dark ellipse, RGBA, to lay under a thing."""
    pad = max(4, height)
    image = Image.new("L", (width + 2 * pad, height + 2 * pad), 0)
    ImageDraw.Draw(image).ellipse([pad, pad, pad + width, pad + height], fill=round(255 * strength))
    blurred = image.filter(ImageFilter.GaussianBlur(max(2.0, height / 3)))
    dark = Image.new("RGBA", blurred.size, (15, 10, 8, 0))
    dark.putalpha(blurred)
    return dark
