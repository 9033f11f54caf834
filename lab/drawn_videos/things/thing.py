"""What a drawable thing is."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from lab.drawn_videos.light import Point
from lab.drawn_videos.paint import Color, Pen

Draw: TypeAlias = Callable[[Pen, Random], None]


@dataclass(frozen=True)
class Thing:
    """A thing: how to draw it, how large it is, and where hands and other things meet it.

    size: side of its unit square in frame heights (wide shot).
    grip, tip: unit coordinates of where it is held and where it works.
    lies: degrees clockwise by which it is turned when it rests on the table. content: colour of
    what pours out of it.
    """

    draw: Draw
    size: float
    grip: Point = (0.5, 0.5)
    tip: Point = (0.5, 0.5)
    lies: float = 0.0
    content: Color | None = None


STEEL_COLOR: Color = (176, 182, 190)
DARK_STEEL_COLOR: Color = (92, 98, 108)
IRON_COLOR: Color = (58, 60, 66)
WOOD_COLOR: Color = (186, 130, 78)
DARK_WOOD_COLOR: Color = (122, 78, 44)
GLASS_COLOR: Color = (190, 216, 222)
CREAM_COLOR: Color = (242, 234, 216)
EARTH_COLOR: Color = (84, 56, 38)
LEAF_COLOR: Color = (70, 138, 58)
SOFT_COLORS: tuple[Color, ...] = (
    (196, 66, 58),
    (62, 118, 176),
    (238, 190, 84),
    (94, 152, 112),
    (226, 132, 88),
    (146, 104, 168),
    (64, 148, 156),
)
