"""Points in the plane, coloured from first to last."""

from collections.abc import Sequence
from html import escape

import numpy as np
import numpy.typing as npt

from stepline.plots.canvas import NOTHING, canvas

SIDE, EDGE, FOOT = 460, 14, 34  # pixels: width and height of the field, its margin, the legend below
SHADES = 12  # colours between first and last; the style sheet names them o0 to o11


def scatter(points: npt.NDArray[np.floating], order: Sequence[float], names: Sequence[str], legend: str) -> str:
    """Return N points (N, 2) with their names; order: of each in [0, 1], its colour; legend: what the order is."""
    if not len(points):
        return NOTHING
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (SIDE - 2 * EDGE) / max(1e-9, float((high - low).max()))
    placed = EDGE + (points - low) * scale + (SIDE - 2 * EDGE - (high - low) * scale) / 2  # centred on both axes
    dots = "".join(
        f'<circle class="o{_shade(share)}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(name)}</title></circle>'
        for (x, y), share, name in zip(placed, order, names, strict=True)
    )
    return canvas(SIDE, SIDE + FOOT, f"{len(points)} points by {legend}", dots + _legend(legend))


def _shade(share: float) -> int:
    return min(SHADES - 1, max(0, int(share * SHADES)))


def _legend(legend: str) -> str:
    y, wide = SIDE + 6, 12
    start = (SIDE - SHADES * wide) / 2
    squares = "".join(
        f'<rect class="o{shade}" x="{start + shade * wide:.1f}" y="{y}" width="{wide}" height="10"/>'
        for shade in range(SHADES)
    )
    first = f'<text x="{start - 6:.1f}" y="{y + 9}" class="e">first</text>'
    last = f'<text x="{SIDE - start + 6:.1f}" y="{y + 9}">last</text>'
    return f'{squares}{first}{last}<text x="{SIDE / 2}" y="{y + 25}" class="m">{escape(legend)}</text>'
