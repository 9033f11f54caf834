"""Hands with forearms, seen from behind as the one who works sees them, fingers up."""

from typing import Literal, TypeAlias

from research.drawn_videos.light import Point
from research.drawn_videos.paint import Color, Pen, darker, lighter, mix

HandPose: TypeAlias = Literal["fist", "open", "pinch"]

SIZE = 0.74  # side of a hand's unit square in frame heights; the forearm fills its lower part
GRIP: Point = (0.5, 0.13)  # where it holds, in its unit square


def paint_hand(pen: Pen, pose: HandPose, skin: Color, sleeve: Color) -> None:
    """Paint a right hand; the left one is its mirror image."""
    _forearm(pen, skin, sleeve)
    {"fist": _fist, "open": _open, "pinch": _pinch}[pose](pen, skin)


def _forearm(pen: Pen, skin: Color, sleeve: Color) -> None:
    pen.poly([(0.452, 0.22), (0.548, 0.22), (0.585, 0.55), (0.60, 1.0), (0.40, 1.0), (0.415, 0.55)], skin, "tube")
    pen.poly([(0.395, 0.50), (0.605, 0.50), (0.66, 1.0), (0.34, 1.0)], sleeve, "tube")
    pen.box(0.385, 0.48, 0.615, 0.53, lighter(sleeve, 0.12), "tube", radius=0.015)
    for x, y in ((0.44, 0.62), (0.55, 0.70), (0.46, 0.82)):
        pen.thread([(x, y), (x + 0.06, y + 0.05)], 0.006, darker(sleeve, 0.3), opacity=0.6)


def _back(pen: Pen, skin: Color, top: float) -> None:
    pen.poly(
        [(0.43, top), (0.57, top), (0.595, top + 0.08), (0.55, 0.26), (0.45, 0.26), (0.405, top + 0.08)],
        skin,
        "ball",
        smooth=True,
    )


def _fist(pen: Pen, skin: Color) -> None:
    _back(pen, skin, 0.085)
    crease = darker(mix(skin, (150, 60, 40), 0.25), 0.25)
    for index, x in enumerate((0.435, 0.478, 0.521, 0.562)):
        lift = (0.012, 0.0, 0.004, 0.018)[index]
        pen.line([(x, 0.125 + lift), (x, 0.078 + lift)], 0.047, skin)
        pen.oval(x, 0.112 + lift, 0.020, 0.016, lighter(skin, 0.16))
    for x in (0.457, 0.50, 0.542):
        pen.thread([(x, 0.070), (x, 0.118)], 0.005, crease)
    pen.line([(0.43, 0.20), (0.395, 0.15), (0.425, 0.10)], 0.044, skin, smooth=True)
    pen.oval(0.424, 0.098, 0.013, 0.015, mix(skin, (250, 220, 210), 0.5), "flat")


def _fingers(pen: Pen, skin: Color, ends: tuple[Point, ...], roots: tuple[Point, ...]) -> None:
    for end, root in zip(ends, roots, strict=True):
        pen.line([root, end], 0.037, skin)
        pen.oval(end[0], end[1] - 0.002, 0.010, 0.013, mix(skin, (252, 224, 214), 0.55), "flat")
        middle = ((root[0] + end[0]) / 2, (root[1] + end[1]) / 2)
        pen.thread([(middle[0] - 0.012, middle[1]), (middle[0] + 0.012, middle[1])], 0.004, darker(skin, 0.25))


def _open(pen: Pen, skin: Color) -> None:
    _back(pen, skin, 0.13)
    roots = ((0.437, 0.165), (0.479, 0.150), (0.521, 0.150), (0.562, 0.165))
    ends = ((0.412, 0.055), (0.470, 0.022), (0.530, 0.024), (0.590, 0.062))
    _fingers(pen, skin, ends, roots)
    _fingers(pen, skin, ((0.352, 0.135),), ((0.43, 0.215),))


def _pinch(pen: Pen, skin: Color) -> None:
    _back(pen, skin, 0.145)
    _fingers(pen, skin, ((0.535, 0.150), (0.575, 0.165)), ((0.521, 0.172), (0.560, 0.190)))
    pen.line([(0.487, 0.17), (0.475, 0.115), (0.497, 0.075)], 0.038, skin, smooth=True)
    pen.line([(0.437, 0.20), (0.425, 0.13), (0.485, 0.080)], 0.040, skin, smooth=True)
    for x in (0.480, 0.500):
        pen.oval(x, 0.078, 0.010, 0.012, mix(skin, (252, 224, 214), 0.5), "flat")
