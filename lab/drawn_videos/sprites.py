"""Painted things at a size and an angle, each painted once."""

import math
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from PIL import Image, ImageDraw

from lab.drawn_videos.light import Point
from lab.drawn_videos.paint import Color, Pen, Rim
from lab.drawn_videos.people import (
    HAND_GRIP,
    HAND_SIZE,
    HandPose,
    Person,
    paint_bust,
    paint_eyes,
    paint_hand,
    paint_mouth,
)
from lab.drawn_videos.things import THINGS_BY_NAME

ARM_SQUARES = 1.6  # side of a hand's square with the whole forearm, in hand squares
ANGLE_STEP = 2  # degrees between cached rotations


@dataclass(frozen=True, eq=False)  # compared by identity, so that it keys caches
class Sprite:
    """A painted unit square: its picture, and the opening of a hollow thing.

    x_min, y_min, x_max, y_max: extent of what is painted, in unit coordinates.
    """

    image: Image.Image
    rim: Rim | None
    x_min: float
    y_min: float
    x_max: float
    y_max: float

    @property
    def side(self) -> int:
        """Pixels a side."""
        return self.image.width

    @property
    def center(self) -> Point:
        """Middle of what is painted."""
        return ((self.x_min + self.x_max) / 2, (self.y_min + self.y_max) / 2)

    @property
    def width(self) -> float:
        """Width of what is painted, in units."""
        return self.x_max - self.x_min

    @property
    def height(self) -> float:
        """Height of what is painted, in units."""
        return self.y_max - self.y_min


def _sprite(image: Image.Image, rim: Rim | None) -> Sprite:
    whole = (0, 0, image.width, image.height)
    edges = image.getbbox() or whole
    x_min, y_min, x_max, y_max = (edge / image.width for edge in edges)
    return Sprite(image, rim, x_min, y_min, x_max, y_max)


@lru_cache(maxsize=512)
def thing_sprite(name: str, side: int, seed: int) -> Sprite:
    """Return a thing, `side` pixels. The same seed gives the same colours."""
    pen = Pen(side, seed)
    THINGS_BY_NAME[name].draw(pen, Random(f"{seed} {name}"))
    return _sprite(pen.image(), pen.rim)


@lru_cache(maxsize=64)
def hand_sprite(pose: HandPose, side: int, skin: Color, sleeve: Color, mirrored: bool) -> Sprite:
    """Return a right hand with its forearm, `mirrored` a left one."""
    pen = Pen(side)
    paint_hand(pen, pose, skin, sleeve)
    image = _lengthened(pen.image())
    if mirrored:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return _sprite(image, None)


def _lengthened(image: Image.Image) -> Image.Image:
    """Return a hand on a square ARM_SQUARES as large, its sleeve drawn on to the lower edge."""
    side = image.width
    whole_side = round(side * ARM_SQUARES)
    whole = Image.new("RGBA", (whole_side, whole_side))
    x = (whole_side - side) // 2
    # one row of the sleeve, stretched to the lower edge
    cuff = side - 4
    row = image.crop((0, cuff, side, cuff + 1))
    sleeve = row.resize((side, whole_side - cuff))
    whole.paste(sleeve, (x, cuff))
    whole.paste(image.crop((0, 0, side, cuff)), (x, 0))
    return whole


@lru_cache(maxsize=64)
def presenter_image(who: Person, side: int, opening: int, shut: bool) -> Image.Image:
    """Return head and shoulders with a mouth and eyes."""
    image = _bust(who, side).copy()
    pen = Pen(side)
    paint_eyes(pen, who, shut)
    paint_mouth(pen, who, opening)
    face = pen.image()
    image.alpha_composite(face)
    return image


@lru_cache(maxsize=8)
def _bust(who: Person, side: int) -> Image.Image:
    pen = Pen(side)
    paint_bust(pen, who)
    return pen.image()


@lru_cache(maxsize=600)
def _turned(sprite: Sprite, angle: int) -> Image.Image:
    image = sprite.image.convert("RGBa")
    turned = image.rotate(-angle, Image.Resampling.BICUBIC, expand=True)
    return turned.convert("RGBA")


def paste_sprite(
    canvas: Image.Image, sprite: Sprite, pivot: Point, at: Point, angle: float = 0.0
) -> None:
    """Paste a sprite with its `pivot` (unit) on pixel `at`, turned clockwise about it."""
    degrees = round(angle / ANGLE_STEP) * ANGLE_STEP
    image = sprite.image
    if degrees % 360:
        image = _turned(sprite, degrees % 360)
    pivot_x = (pivot[0] - 0.5) * sprite.side
    pivot_y = (pivot[1] - 0.5) * sprite.side
    dx, dy = rotate_offset(pivot_x, pivot_y, degrees)
    x = round(at[0] - image.width / 2 - dx)
    y = round(at[1] - image.height / 2 - dy)
    canvas.paste(image, (x, y), image)


def rotate_offset(x: float, y: float, angle: float) -> Point:
    """Return (x, y) turned clockwise by degrees (y points down)."""
    turn = math.radians(angle)
    cosine = math.cos(turn)
    sine = math.sin(turn)
    return (x * cosine - y * sine, x * sine + y * cosine)


@lru_cache(maxsize=64)
def front_wall(sprite: Sprite) -> Sprite:
    """Return the part of a hollow thing that hides what is inside.

    It is all that is below the near edge of its rim.
    """
    rim = sprite.rim
    if rim is None:
        return sprite
    side = sprite.side
    wall = Image.new("L", sprite.image.size, 0)
    draw = ImageDraw.Draw(wall)
    draw.rectangle([0, rim.y * side, side, side], fill=255)
    x_min = (rim.x - rim.rx) * side
    y_min = (rim.y - rim.ry) * side
    x_max = (rim.x + rim.rx) * side
    y_max = (rim.y + rim.ry) * side
    draw.ellipse([x_min, y_min, x_max, y_max], fill=0)

    image = sprite.image.copy()
    clear = Image.new("L", image.size, 0)
    image.putalpha(Image.composite(image.getchannel("A"), clear, wall))
    return Sprite(image, rim, sprite.x_min, rim.y, sprite.x_max, sprite.y_max)


@lru_cache(maxsize=128)
def squash(sprite: Sprite, percent: int) -> Sprite:
    """Return a sprite pressed down to a fraction of its height and widened, its foot kept."""
    side = sprite.side
    tall = max(1, round(side * percent / 100))
    wide = round(side * (1 + (100 - percent) / 250))
    small = sprite.image.convert("RGBa").resize((wide, tall), Image.Resampling.BILINEAR)
    image = Image.new("RGBA", sprite.image.size)
    x = round((side - wide) / 2)
    y = round(sprite.y_max * (side - tall))
    image.paste(small.convert("RGBA"), (x, y))
    return _sprite(image, sprite.rim)


@lru_cache(maxsize=128)
def fold_over(sprite: Sprite, percent: int) -> Sprite:
    """Return a flat thing whose left half is laid over its right half, by a fraction of the way."""
    side = sprite.side
    middle = round(sprite.center[0] * side)
    image = sprite.image.copy()
    image.paste((0, 0, 0, 0), (0, 0, middle, side))
    reach = math.cos(math.pi * percent / 100)
    width = max(1, round(abs(reach) * middle))

    # the half that is folded, darker than the one that lies
    flap = sprite.image.crop((0, 0, middle, side))
    if reach < 0:
        flap = flap.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    shade = Image.new("RGBA", flap.size, (20, 16, 14, 255))
    dark = Image.blend(flap, shade, 0.14)
    dark.putalpha(flap.getchannel("A"))
    flap = dark.resize((width, side), Image.Resampling.BILINEAR)
    x = middle - width if reach >= 0 else middle
    image.paste(flap, (x, 0), flap)
    return _sprite(image, sprite.rim)


@lru_cache(maxsize=32)
def sprite_half(sprite: Sprite, right: bool) -> Sprite:
    """Return the left or right half of a sprite, broken along its middle."""
    image = sprite.image.copy()
    middle = image.width // 2
    other_half = (0, 0, middle, image.height)
    if not right:
        other_half = (middle, 0, image.width, image.height)
    image.paste((0, 0, 0, 0), other_half)
    return Sprite(image, None, sprite.x_min, sprite.y_min, sprite.x_max, sprite.y_max)


def hand_side(height: float) -> int:
    """Return a hand's pixels for a frame height in pixels."""
    return round(HAND_SIZE * height)


SPRITE_GRIP: Point = (0.5, HAND_GRIP[1] / ARM_SQUARES)  # where a hand's sprite holds
