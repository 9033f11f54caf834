"""A pen that paints one shaded, antialiased sprite in unit coordinates (0, 0 top left, 1, 1 bottom
right).

Light falls from the upper left. Everything is painted SUPERSAMPLE times larger and reduced at the
end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from research.drawn_videos.light import Array, Point, Relief, curve, lit, rounded

Color: TypeAlias = tuple[int, int, int]

SUPERSAMPLE = 3
TILT = 0.32  # how open a circle on the table looks: the camera looks down by about 20 degrees
ARC = 24  # points that make half an ellipse


def mix(a: Color, b: Color, fraction: float) -> Color:
    """Return the colour `fraction` of the way from a to b."""
    return (
        round(a[0] + (b[0] - a[0]) * fraction),
        round(a[1] + (b[1] - a[1]) * fraction),
        round(a[2] + (b[2] - a[2]) * fraction),
    )


def darker(color: Color, fraction: float = 0.3) -> Color:
    """Return a darker shade."""
    return mix(color, (10, 8, 12), fraction)


def lighter(color: Color, fraction: float = 0.3) -> Color:
    """Return a lighter tint."""
    return mix(color, (255, 255, 250), fraction)


@dataclass(frozen=True)
class Rim:
    """The opening of a hollow thing, an ellipse in the sprite's unit coordinates."""

    x: float
    y: float
    rx: float
    ry: float


@dataclass
class Pen:
    """Paints on a square of `pixels` per side. `seed` moves textures."""

    pixels: int
    seed: int = 0
    rim: Rim | None = None
    _rgb: Array = field(init=False)
    _alpha: Array = field(init=False)
    _last: Array | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        side = self.pixels * SUPERSAMPLE
        self._rgb = np.zeros((side, side, 3), np.float32)
        self._alpha = np.zeros((side, side), np.float32)

    @property
    def side(self) -> int:
        """Supersampled pixels a side."""
        return self.pixels * SUPERSAMPLE

    # ------------------------------------------------------------ shapes

    def poly(
        self,
        points: Sequence[Point],
        color: Color,
        relief: Relief = "flat",
        *,
        smooth: bool = False,
        gloss: float = 0.0,
        opacity: float = 1.0,
    ) -> None:
        """Fill a polygon. `smooth` rounds its corners."""
        outline = rounded(points) if smooth else points
        mask = self._mask()
        ImageDraw.Draw(mask).polygon([(x * self.side, y * self.side) for x, y in outline], fill=255)
        self._lay(mask, color, relief, gloss, opacity)

    def oval(
        self,
        x: float,
        y: float,
        rx: float,
        ry: float,
        color: Color,
        relief: Relief = "ball",
        *,
        angle: float = 0.0,
        gloss: float = 0.0,
        opacity: float = 1.0,
    ) -> None:
        """Fill an ellipse, turned by `angle` degrees clockwise."""
        turn = math.radians(angle)
        points = []
        for index in range(4 * ARC):
            around = index * math.pi / (2 * ARC)
            dx, dy = rx * math.cos(around), ry * math.sin(around)
            points.append(
                (
                    x + dx * math.cos(turn) - dy * math.sin(turn),
                    y + dx * math.sin(turn) + dy * math.cos(turn),
                )
            )
        self.poly(points, color, relief, gloss=gloss, opacity=opacity)

    def box(
        self,
        left: float,
        top: float,
        right: float,
        bottom: float,
        color: Color,
        relief: Relief = "flat",
        *,
        radius: float = 0.0,
        gloss: float = 0.0,
    ) -> None:
        """Fill a rectangle with rounded corners."""
        mask = self._mask()
        edges = [left * self.side, top * self.side, right * self.side, bottom * self.side]
        ImageDraw.Draw(mask).rounded_rectangle(edges, radius=radius * self.side, fill=255)
        self._lay(mask, color, relief, gloss, 1.0)

    def line(
        self,
        points: Sequence[Point],
        width: float,
        color: Color,
        *,
        smooth: bool = False,
        opacity: float = 1.0,
    ) -> None:
        """Stroke a round-ended line, lit from above like a rod."""
        path = curve(points) if smooth else list(points)
        self._stroke(path, width, darker(color, 0.28), opacity)
        shift = width * 0.13
        self._stroke([(x - shift, y - shift) for x, y in path], width * 0.62, color, opacity)
        if width > 0.03:
            self._stroke(
                [(x - 2 * shift, y - 2 * shift) for x, y in path],
                width * 0.2,
                lighter(color, 0.35),
                opacity * 0.7,
            )

    def thread(
        self, points: Sequence[Point], width: float, color: Color, *, opacity: float = 1.0
    ) -> None:
        """Stroke a plain thin line."""
        self._stroke(points, width, color, opacity)

    def lathe(
        self,
        profile: Sequence[Point],
        color: Color,
        *,
        inside: Color | None = None,
        x: float = 0.5,
        gloss: float = 0.25,
        opacity: float = 1.0,
        tilt: float = TILT,
    ) -> None:
        """Turn a profile of (y, radius), top to bottom, about the vertical axis at x. `inside`
        makes it hollow."""
        heights = np.array([point[0] for point in profile])
        radii = np.array([point[1] for point in profile])
        rows = np.linspace(heights[0], heights[-1], 60)
        widths = np.interp(rows, heights, radii)
        top, low = (widths[0], widths[0] * tilt), (widths[-1], widths[-1] * tilt)
        around = np.linspace(0.0, math.pi, ARC)
        outline = [(x - w, y) for y, w in zip(rows, widths, strict=True)]
        outline += [(x - low[0] * math.cos(a), rows[-1] + low[1] * math.sin(a)) for a in around]
        outline += [(x + w, y) for y, w in zip(rows[::-1], widths[::-1], strict=True)]
        outline += [(x + top[0] * math.cos(a), rows[0] - top[1] * math.sin(a)) for a in around]
        self.poly(
            [(float(a), float(b)) for a, b in outline], color, "tube", gloss=gloss, opacity=opacity
        )
        if inside is not None:
            self._open(x, float(rows[0]), float(top[0]), float(top[1]), color, inside)

    def hole(self, x: float, y: float, rx: float, ry: float) -> None:
        """Cut an ellipse out of everything painted so far."""
        mask = self._mask()
        side = self.side
        ImageDraw.Draw(mask).ellipse(
            [(x - rx) * side, (y - ry) * side, (x + rx) * side, (y + ry) * side], fill=255
        )
        keep = 1.0 - np.asarray(mask, np.float32) / 255.0
        self._alpha *= keep
        self._rgb *= keep[..., None]

    def label(self, x: float, y: float, text: str, height: float, color: Color) -> None:
        """Write centred text. `height` of a letter in units."""
        mask = self._mask()
        font = ImageFont.load_default(max(6, height * self.side))
        ImageDraw.Draw(mask).text(
            (x * self.side, y * self.side), text, font=font, fill=255, anchor="mm"
        )
        self._lay(mask, color, "flat", 0.0, 1.0)

    # ------------------------------------------------------------ texture of the last shape

    def speckle(self, color: Color, count: int, size: float, *, opacity: float = 0.8) -> None:
        """Scatter small ovals inside the last shape."""
        shape = self._last
        if shape is None:
            return
        rng = np.random.default_rng(self.seed)
        ys, xs = np.nonzero(shape > 0.99)
        if len(xs) == 0:
            return
        mask = self._mask()
        draw = ImageDraw.Draw(mask)
        for index in rng.integers(0, len(xs), count):
            radius = size * self.side * rng.uniform(0.5, 1.0)
            cx, cy = xs[index], ys[index]
            draw.ellipse([cx - radius, cy - radius * 0.8, cx + radius, cy + radius * 0.8], fill=255)
        self._lay(
            Image.fromarray((np.asarray(mask) * shape).astype(np.uint8)),
            color,
            "flat",
            0.0,
            opacity,
        )
        self._last = shape

    def stripes(
        self, color: Color, count: int, width: float, *, angle: float = 0.0, opacity: float = 0.5
    ) -> None:
        """Draw parallel stripes inside the last shape. Angle 0 is upright, 90 lies flat."""
        shape = self._last
        if shape is None:
            return
        ys, xs = np.nonzero(shape > 0.5)
        turn = math.radians(angle)
        grid_y, grid_x = np.mgrid[0 : self.side, 0 : self.side].astype(np.float32)
        along = grid_x * math.cos(turn) + grid_y * math.sin(turn)
        inside = along[ys, xs]
        if inside.size == 0:
            return
        period = (inside.max() - inside.min()) / count
        wave = np.abs(((along - inside.min()) / period) % 1.0 - 0.5) * 2.0
        mask = np.where(wave < width, 255.0, 0.0) * shape
        self._lay(Image.fromarray(mask.astype(np.uint8)), color, "flat", 0.0, opacity)
        self._last = shape

    # ------------------------------------------------------------ result

    def image(self) -> Image.Image:
        """Return what was painted, RGBA, `pixels` a side."""
        alpha = np.clip(self._alpha, 0.0, 1.0)
        rgb = self._rgb / np.maximum(alpha, 1e-4)[..., None]
        whole = np.dstack([np.clip(rgb, 0.0, 255.0), alpha * 255.0]).astype(np.uint8)
        big = Image.fromarray(whole, "RGBA").convert("RGBa")
        return big.resize((self.pixels, self.pixels), Image.Resampling.BOX).convert("RGBA")

    # ------------------------------------------------------------ inside

    def _mask(self) -> Image.Image:
        return Image.new("L", (self.side, self.side), 0)

    def _stroke(self, points: Sequence[Point], width: float, color: Color, opacity: float) -> None:
        mask = self._mask()
        draw = ImageDraw.Draw(mask)
        dots = [(x * self.side, y * self.side) for x, y in points]
        radius = max(0.5, width * self.side / 2)
        draw.line(dots, fill=255, width=max(1, round(2 * radius)), joint="curve")
        for x, y in (dots[0], dots[-1]):
            draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)
        self._lay(mask, color, "flat", 0.0, opacity)

    def _open(self, x: float, y: float, rx: float, ry: float, color: Color, inside: Color) -> None:
        """Paint the rim and the inner wall of a hollow thing, and remember the rim."""
        self.oval(x, y, rx, ry, lighter(color, 0.35), "flat")
        thin = 0.94
        self.oval(x, y, rx * thin, ry * thin, inside, "bowl")
        self.rim = Rim(x, y, rx, ry)

    def _lay(
        self, mask: Image.Image, color: Color, relief: Relief, gloss: float, opacity: float
    ) -> None:
        """Composite one coloured, lit shape over what is there."""
        edges = mask.getbbox()
        if edges is None:
            return
        left, top, right, bottom = edges
        cover = np.asarray(mask.crop(edges), np.float32) / 255.0 * opacity
        light, shine = lit(bottom - top, right - left, relief, cover)
        rgb = np.asarray(color, np.float32) * light[..., None] + (255.0 * gloss) * shine[..., None]
        keep = (1.0 - cover)[..., None]
        area = (slice(top, bottom), slice(left, right))
        self._rgb[area] = np.minimum(rgb, 255.0) * cover[..., None] + self._rgb[area] * keep
        self._alpha[area] = cover + self._alpha[area] * keep[..., 0]
        self._last = np.zeros((self.side, self.side), np.float32)
        self._last[area] = cover / max(opacity, 1e-4)
