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

# Unit vector towards the light: left, up, out of the picture.
LIGHT_DIRECTION = (-0.50, -0.55, 0.67)
AMBIENT_FRACTION = 0.52  # of the colour that reaches the side away from the light
FULL_LIGHT = 1.12  # on the side towards the light; 1 is the colour itself
SHINE_POWER = 22  # larger is a smaller shine
CUT_FRACTIONS = (0.25, 0.75)  # of an edge, between which Chaikin keeps it


def lit(height: int, width: int, relief: Relief, cover: Array) -> tuple[Array, Array]:
    """Return how much light (1 = full colour) and shine each pixel of a shape gets."""
    # u, v: components of the surface's normal, right and down, (height, width)
    down = np.linspace(-1.0, 1.0, height, dtype=np.float32)
    across = np.linspace(-1.0, 1.0, width, dtype=np.float32)
    u, v = np.meshgrid(across, down)
    if relief == "flat":
        return 1.0 - 0.07 * u - 0.09 * v, np.zeros_like(u)
    if relief == "tube":
        u = _across(cover)
        v = np.zeros_like(v)
    elif relief == "rod":
        u = np.zeros_like(u)
    elif relief == "bowl":
        u = -u
        v = -v
    slope = np.minimum(u * u + v * v, 1.0)
    depth = np.sqrt(np.clip(1.0 - slope, 0.0, 1.0))
    light_u, light_v, light_depth = LIGHT_DIRECTION
    facing = np.clip(u * light_u + v * light_v + depth * light_depth, 0.0, 1.0)
    light = AMBIENT_FRACTION + (FULL_LIGHT - AMBIENT_FRACTION) * facing
    shine = facing**SHINE_POWER
    return light.astype(np.float32), shine.astype(np.float32)


def _across(cover: Array) -> Array:
    """Return where each pixel of a row is between the shape's left (-1) and right (1) edge."""
    solid = cover > 0.02
    width = cover.shape[1]
    first = solid.argmax(1).astype(np.float32)
    last = (width - 1 - solid[:, ::-1].argmax(1)).astype(np.float32)
    columns = np.arange(width, dtype=np.float32)[None, :]
    middle = ((first + last) / 2.0)[:, None]
    half = np.maximum((last - first) / 2.0, 1.0)[:, None]
    offset = np.clip((columns - middle) / half, -1.0, 1.0)
    across: Array = offset.astype(np.float32)
    return across


def rounded(points: Sequence[Point], rounds: int = 3) -> list[Point]:
    """Return a closed outline with its corners cut off again and again (Chaikin)."""
    path = list(points)
    for _ in range(rounds):
        path = _cut_corners([*path, path[0]])
    return path


def curve(points: Sequence[Point], rounds: int = 3) -> list[Point]:
    """Return an open line with its corners cut off, ends kept."""
    path = list(points)
    for _ in range(rounds):
        path = [path[0], *_cut_corners(path), path[-1]]
    return path


def _cut_corners(path: Sequence[Point]) -> list[Point]:
    """Return the two points that Chaikin's rule keeps of every edge."""
    points = []
    for start, end in pairwise(path):
        for fraction in CUT_FRACTIONS:
            rest = 1 - fraction
            x = start[0] * rest + end[0] * fraction
            y = start[1] * rest + end[1] * fraction
            points.append((x, y))
    return points


def shadow(width: int, height: int, strength: float = 0.45) -> Image.Image:
    """Return a soft dark ellipse, RGBA, to lay under a thing."""
    pad = max(4, height)
    image = Image.new("L", (width + 2 * pad, height + 2 * pad), 0)
    edges = [pad, pad, pad + width, pad + height]
    ImageDraw.Draw(image).ellipse(edges, fill=round(255 * strength))
    blurred = image.filter(ImageFilter.GaussianBlur(max(2.0, height / 3)))
    dark = Image.new("RGBA", blurred.size, (15, 10, 8, 0))
    dark.putalpha(blurred)
    return dark
