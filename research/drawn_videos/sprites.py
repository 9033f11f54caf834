"""Painted things at a size and an angle, each painted once."""

import math
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from PIL import Image, ImageDraw

from research.drawn_videos.light import Point
from research.drawn_videos.paint import Color, Pen, Rim
from research.drawn_videos.people import (
    HAND_GRIP,
    HAND_SIZE,
    HandPose,
    Person,
    paint_bust,
    paint_eyes,
    paint_hand,
    paint_mouth,
)
from research.drawn_videos.things import THINGS_BY_NAME

ARM = 1.6  # a hand's square with the whole forearm, in its own squares
ANGLE_STEP = 2  # degrees between cached rotations


@dataclass(frozen=True, eq=False)  # compared by identity, so that it keys caches
class Sprite:
    """A painted unit square: its picture, its opening if it is hollow, and its extent in unit
    coordinates."""

    image: Image.Image
    rim: Rim | None
    left: float
    top: float
    right: float
    bottom: float

    @property
    def side(self) -> int:
        """Pixels a side."""
        return self.image.width

    @property
    def center(self) -> Point:
        """Middle of what is painted."""
        return ((self.left + self.right) / 2, (self.top + self.bottom) / 2)


def _sprite(image: Image.Image, rim: Rim | None) -> Sprite:
    left, top, right, bottom = image.getbbox() or (0, 0, image.width, image.height)
    side = image.width
    return Sprite(image, rim, left / side, top / side, right / side, bottom / side)


@lru_cache(maxsize=512)
def thing_sprite(name: str, side: int, seed: int) -> Sprite:
    """Return a thing, `side` pixels. The same seed gives the same colours."""
    pen = Pen(side, seed)
    THINGS_BY_NAME[name].draw(pen, Random(f"{seed} {name}"))
    return _sprite(pen.image(), pen.rim)


@lru_cache(maxsize=64)
def hand_sprite(pose: HandPose, side: int, skin: Color, sleeve: Color, left: bool) -> Sprite:
    """Return a hand with its forearm."""
    pen = Pen(side)
    paint_hand(pen, pose, skin, sleeve)
    image = _lengthened(pen.image())
    return _sprite(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if left else image, None)


def _lengthened(image: Image.Image) -> Image.Image:
    """Return a hand on a square ARM times larger, its sleeve drawn on to the lower edge."""
    side = image.width
    whole = Image.new("RGBA", (round(side * ARM), round(side * ARM)))
    left = (whole.width - side) // 2
    sleeve = image.crop((0, side - 4, side, side - 3)).resize((side, whole.height - side + 4))
    whole.paste(sleeve, (left, side - 4))
    whole.paste(image.crop((0, 0, side, side - 4)), (left, 0))
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
    return (
        sprite.image.convert("RGBa")
        .rotate(-angle, Image.Resampling.BICUBIC, expand=True)
        .convert("RGBA")
    )


def paste_sprite(
    canvas: Image.Image, sprite: Sprite, pivot: Point, at: Point, angle: float = 0.0
) -> None:
    """Put a sprite on the canvas so that its `pivot` (unit) is on pixel `at`, turned clockwise
    about it."""
    step = round(angle / ANGLE_STEP) * ANGLE_STEP
    image = _turned(sprite, step % 360) if step % 360 else sprite.image
    dx, dy = rotate_offset((pivot[0] - 0.5) * sprite.side, (pivot[1] - 0.5) * sprite.side, step)
    canvas.paste(
        image, (round(at[0] - image.width / 2 - dx), round(at[1] - image.height / 2 - dy)), image
    )


def rotate_offset(x: float, y: float, angle: float) -> Point:
    """Return (x, y) turned clockwise by degrees (y points down)."""
    turn = math.radians(angle)
    return (x * math.cos(turn) - y * math.sin(turn), x * math.sin(turn) + y * math.cos(turn))


@lru_cache(maxsize=64)
def front_wall(sprite: Sprite) -> Sprite:
    """Return the part of a hollow thing that hides what is inside: all that is below the near
    edge of its rim."""
    if sprite.rim is None:
        return sprite
    rim, side = sprite.rim, sprite.side
    keep = Image.new("L", sprite.image.size, 0)
    draw = ImageDraw.Draw(keep)
    draw.rectangle([0, rim.y * side, side, side], fill=255)
    draw.ellipse(
        [
            (rim.x - rim.rx) * side,
            (rim.y - rim.ry) * side,
            (rim.x + rim.rx) * side,
            (rim.y + rim.ry) * side,
        ],
        fill=0,
    )
    image = sprite.image.copy()
    image.putalpha(Image.composite(image.getchannel("A"), Image.new("L", image.size, 0), keep))
    return Sprite(image, rim, sprite.left, rim.y, sprite.right, sprite.bottom)


@lru_cache(maxsize=128)
def squash(sprite: Sprite, percent: int) -> Sprite:
    """Return a sprite pressed down to a fraction of its height and widened, its foot kept."""
    side = sprite.side
    tall = max(1, round(side * percent / 100))
    wide = round(side * (1 + (100 - percent) / 250))
    small = (
        sprite.image.convert("RGBa").resize((wide, tall), Image.Resampling.BILINEAR).convert("RGBA")
    )
    image = Image.new("RGBA", sprite.image.size)
    image.paste(small, (round((side - wide) / 2), round(sprite.bottom * (side - tall))))
    return _sprite(image, sprite.rim)


@lru_cache(maxsize=128)
def fold_over(sprite: Sprite, percent: int) -> Sprite:
    """Return a flat thing whose left half is laid over its right half, by a fraction of the way."""
    side, middle = sprite.side, round(sprite.center[0] * sprite.side)
    image = sprite.image.copy()
    image.paste((0, 0, 0, 0), (0, 0, middle, side))
    reach = math.cos(math.pi * percent / 100)
    width = max(1, round(abs(reach) * middle))
    flap = sprite.image.crop((0, 0, middle, side))
    if reach < 0:
        flap = flap.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    shade = Image.new("RGBA", flap.size, (20, 16, 14, 255))
    dark = Image.blend(flap, shade, 0.14)
    dark.putalpha(flap.getchannel("A"))
    flap = dark.resize((width, side), Image.Resampling.BILINEAR)
    image.paste(flap, (middle - width if reach >= 0 else middle, 0), flap)
    return _sprite(image, sprite.rim)


@lru_cache(maxsize=32)
def sprite_half(sprite: Sprite, right: bool) -> Sprite:
    """Return the left or right half of a sprite, broken along its middle."""
    image = sprite.image.copy()
    middle = image.width // 2
    clear = (0, 0, middle, image.height) if right else (middle, 0, image.width, image.height)
    image.paste((0, 0, 0, 0), clear)
    return Sprite(image, None, sprite.left, sprite.top, sprite.right, sprite.bottom)


def hand_side(height: float) -> int:
    """Return a hand's pixels for a frame height in pixels."""
    return round(HAND_SIZE * height)


SPRITE_GRIP: Point = (0.5, HAND_GRIP[1] / ARM)  # where a hand's sprite holds
