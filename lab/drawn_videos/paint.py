"""A pen that paints one shaded, antialiased sprite in unit coordinates.

(0, 0) is top left, (1, 1) bottom right. Light falls from the upper left. Everything is painted
SUPERSAMPLE_FACTOR times larger and reduced at the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageColor, ImageDraw, ImageFont

from lab.drawn_videos.light import Array, Point, Relief, curve, lit, rounded

Color: TypeAlias = tuple[int, int, int]
# A colour, or its hexadecimal code: "#d63c30".
Paint: TypeAlias = Color | str
# Points, or their text as SVG writes them: "x,y x,y".
Points: TypeAlias = Sequence[Point] | str

SUPERSAMPLE_FACTOR = 3
# Height over width of a circle on the table: the camera looks down by about 20 degrees.
TABLE_TILT = 0.32
ARC_POINTS = 24  # that make half an ellipse
PROFILE_ROWS = 60  # of a turned thing, between its top and its foot


def read_color(paint: Paint) -> Color:
    """Return the red, green and blue of a colour, 0 to 255."""
    if not isinstance(paint, str):
        return paint
    red, green, blue = ImageColor.getrgb(paint)[:3]
    return (red, green, blue)


def palette(text: str) -> list[Color]:
    """Return the colours of a text of hexadecimal codes: `#d63c30 #f08228`."""
    return [read_color(code) for code in text.split()]


def mix(first: Paint, second: Paint, fraction: float) -> Color:
    """Return the colour `fraction` of the way from the first to the second."""
    channels = zip(read_color(first), read_color(second), strict=True)
    red, green, blue = (round(a + (b - a) * fraction) for a, b in channels)
    return (red, green, blue)


def darker(color: Paint, fraction: float = 0.3) -> Color:
    """Return a darker shade."""
    return mix(color, (10, 8, 12), fraction)


def lighter(color: Paint, fraction: float = 0.3) -> Color:
    """Return a lighter tint."""
    return mix(color, (255, 255, 250), fraction)


def read_points(points: Points) -> list[Point]:
    """Return points, read from their SVG text where they are a text."""
    if not isinstance(points, str):
        return list(points)
    pairs = []
    for pair in points.split():
        x, y = pair.split(",")
        pairs.append((float(x), float(y)))
    return pairs


def ellipse_point(x: float, y: float, rx: float, ry: float, angle: float) -> Point:
    """Return the point of an ellipse at an angle in radians, clockwise from the right."""
    return (x + rx * math.cos(angle), y + ry * math.sin(angle))


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
        side = self.pixels * SUPERSAMPLE_FACTOR
        self._rgb = np.zeros((side, side, 3), np.float32)
        self._alpha = np.zeros((side, side), np.float32)

    @property
    def side(self) -> int:
        """Supersampled pixels a side."""
        return self.pixels * SUPERSAMPLE_FACTOR

    # ------------------------------------------------------------ shapes

    def poly(
        self,
        points: Points,
        color: Paint,
        relief: Relief = "flat",
        *,
        smooth: bool = False,
        gloss: float = 0.0,
        opacity: float = 1.0,
    ) -> None:
        """Fill a polygon. `smooth` rounds its corners."""
        outline = read_points(points)
        if smooth:
            outline = rounded(outline)
        mask = self._mask()
        ImageDraw.Draw(mask).polygon(self._in_pixels(outline), fill=255)
        self._lay(mask, color, relief, gloss, opacity)

    def oval(
        self,
        x: float,
        y: float,
        rx: float,
        ry: float,
        color: Paint,
        relief: Relief = "ball",
        *,
        angle: float = 0.0,
        gloss: float = 0.0,
        opacity: float = 1.0,
    ) -> None:
        """Fill an ellipse, turned by `angle` degrees clockwise."""
        turn = math.radians(angle)
        cosine = math.cos(turn)
        sine = math.sin(turn)
        points = []
        for index in range(4 * ARC_POINTS):
            around = index * math.pi / (2 * ARC_POINTS)
            dx = rx * math.cos(around)
            dy = ry * math.sin(around)
            # turned by `angle`
            point_x = x + dx * cosine - dy * sine
            point_y = y + dx * sine + dy * cosine
            points.append((point_x, point_y))
        self.poly(points, color, relief, gloss=gloss, opacity=opacity)

    def box(
        self,
        x_min: float,
        y_min: float,
        x_max: float,
        y_max: float,
        color: Paint,
        relief: Relief = "flat",
        *,
        radius: float = 0.0,
        gloss: float = 0.0,
    ) -> None:
        """Fill a rectangle with rounded corners."""
        mask = self._mask()
        side = self.side
        edges = [x_min * side, y_min * side, x_max * side, y_max * side]
        ImageDraw.Draw(mask).rounded_rectangle(edges, radius=radius * side, fill=255)
        self._lay(mask, color, relief, gloss, 1.0)

    def line(
        self,
        points: Points,
        width: float,
        color: Paint,
        *,
        smooth: bool = False,
        opacity: float = 1.0,
    ) -> None:
        """Stroke a round-ended line, lit from above like a rod."""
        path = read_points(points)
        if smooth:
            path = curve(path)
        self._stroke(path, width, darker(color, 0.28), opacity)
        # nearer to the light: the lit side, then the shine
        shift = width * 0.13
        lit_path = [(x - shift, y - shift) for x, y in path]
        self._stroke(lit_path, width * 0.62, color, opacity)
        if width > 0.03:
            shine_path = [(x - 2 * shift, y - 2 * shift) for x, y in path]
            self._stroke(shine_path, width * 0.2, lighter(color, 0.35), opacity * 0.7)

    def thread(self, points: Points, width: float, color: Paint, *, opacity: float = 1.0) -> None:
        """Stroke a plain thin line."""
        self._stroke(read_points(points), width, color, opacity)

    def lathe(
        self,
        profile: Points,
        color: Paint,
        *,
        inside: Paint | None = None,
        x: float = 0.5,
        gloss: float = 0.25,
        opacity: float = 1.0,
        tilt: float = TABLE_TILT,
    ) -> None:
        """Turn a profile of (y, radius), top to bottom, about the vertical axis at x. `inside`
        makes it hollow."""
        heights, radii = np.array(read_points(profile)).T
        rows = np.linspace(heights[0], heights[-1], PROFILE_ROWS)
        widths = np.interp(rows, heights, radii)
        top_rx = widths[0]
        top_ry = top_rx * tilt
        foot_rx = widths[-1]
        foot_ry = foot_rx * tilt
        around = np.linspace(0.0, math.pi, ARC_POINTS)

        # down the left side, round the foot, up the right side, round the top
        outline = list(zip(x - widths, rows, strict=True))
        for angle in around:
            foot_x = x - foot_rx * math.cos(angle)
            outline.append((foot_x, rows[-1] + foot_ry * math.sin(angle)))
        outline += zip(x + widths[::-1], rows[::-1], strict=True)
        for angle in around:
            top_x = x + top_rx * math.cos(angle)
            outline.append((top_x, rows[0] - top_ry * math.sin(angle)))
        points = [(float(across), float(down)) for across, down in outline]
        self.poly(points, color, "tube", gloss=gloss, opacity=opacity)
        if inside is not None:
            self._open(x, float(rows[0]), float(top_rx), float(top_ry), color, inside)

    def hole(self, x: float, y: float, rx: float, ry: float) -> None:
        """Cut an ellipse out of everything painted so far."""
        mask = self._mask()
        side = self.side
        edges = [(x - rx) * side, (y - ry) * side, (x + rx) * side, (y + ry) * side]
        ImageDraw.Draw(mask).ellipse(edges, fill=255)
        keep = 1.0 - np.asarray(mask, np.float32) / 255.0
        self._alpha *= keep
        self._rgb *= keep[..., None]

    def label(self, x: float, y: float, text: str, height: float, color: Paint) -> None:
        """Write centred text. `height` of a letter in units."""
        mask = self._mask()
        font = ImageFont.load_default(max(6, height * self.side))
        middle = (x * self.side, y * self.side)
        ImageDraw.Draw(mask).text(middle, text, font=font, fill=255, anchor="mm")
        self._lay(mask, color, "flat", 0.0, 1.0)

    # ------------------------------------------------------------ texture of the last shape

    def speckle(self, color: Paint, count: int, size: float, *, opacity: float = 0.8) -> None:
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
            cx = xs[index]
            cy = ys[index]
            tall = radius * 0.8
            draw.ellipse([cx - radius, cy - tall, cx + radius, cy + tall], fill=255)
        clipped = (np.asarray(mask) * shape).astype(np.uint8)
        self._lay(Image.fromarray(clipped), color, "flat", 0.0, opacity)
        self._last = shape

    def stripes(
        self, color: Paint, count: int, width: float, *, angle: float = 0.0, opacity: float = 0.5
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
        phase = ((along - inside.min()) / period) % 1.0
        wave = np.abs(phase - 0.5) * 2.0
        mask = np.where(wave < width, 255.0, 0.0) * shape
        self._lay(Image.fromarray(mask.astype(np.uint8)), color, "flat", 0.0, opacity)
        self._last = shape

    # ------------------------------------------------------------ result

    def image(self) -> Image.Image:
        """Return what was painted, RGBA, `pixels` a side."""
        alpha = np.clip(self._alpha, 0.0, 1.0)
        rgb = self._rgb / np.maximum(alpha, 1e-4)[..., None]
        channels = [np.clip(rgb, 0.0, 255.0), alpha * 255.0]
        whole = np.dstack(channels).astype(np.uint8)
        # RGBa has the alpha multiplied in, so that clear pixels do not colour their neighbours
        large = Image.fromarray(whole, "RGBA").convert("RGBa")
        small = large.resize((self.pixels, self.pixels), Image.Resampling.BOX)
        return small.convert("RGBA")

    # ------------------------------------------------------------ inside

    def _mask(self) -> Image.Image:
        return Image.new("L", (self.side, self.side), 0)

    def _in_pixels(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self.side, y * self.side) for x, y in points]

    def _stroke(self, points: Sequence[Point], width: float, color: Paint, opacity: float) -> None:
        mask = self._mask()
        draw = ImageDraw.Draw(mask)
        dots = self._in_pixels(points)
        radius = max(0.5, width * self.side / 2)
        draw.line(dots, fill=255, width=max(1, round(2 * radius)), joint="curve")
        for x, y in (dots[0], dots[-1]):
            draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=255)
        self._lay(mask, color, "flat", 0.0, opacity)

    def _open(self, x: float, y: float, rx: float, ry: float, color: Paint, inside: Paint) -> None:
        """Paint the rim and the inner wall of a hollow thing, and remember the rim."""
        self.oval(x, y, rx, ry, lighter(color, 0.35), "flat")
        thin = 0.94
        self.oval(x, y, rx * thin, ry * thin, inside, "bowl")
        self.rim = Rim(x, y, rx, ry)

    def _lay(
        self, mask: Image.Image, color: Paint, relief: Relief, gloss: float, opacity: float
    ) -> None:
        """Composite one coloured, lit shape over what is there."""
        edges = mask.getbbox()
        if edges is None:
            return
        x_min, y_min, x_max, y_max = edges
        cover = np.asarray(mask.crop(edges), np.float32) / 255.0 * opacity
        light, shine = lit(y_max - y_min, x_max - x_min, relief, cover)
        shaded = np.asarray(read_color(color), np.float32) * light[..., None]
        rgb = np.minimum(shaded + (255.0 * gloss) * shine[..., None], 255.0)
        keep = (1.0 - cover)[..., None]
        area = (slice(y_min, y_max), slice(x_min, x_max))
        self._rgb[area] = rgb * cover[..., None] + self._rgb[area] * keep
        self._alpha[area] = cover + self._alpha[area] * keep[..., 0]
        self._last = np.zeros((self.side, self.side), np.float32)
        self._last[area] = cover / max(opacity, 1e-4)
