# ruff: noqa: ARG001 - every function draws what it is named after, and all share one
# signature
"""Workshop and bicycle."""

from math import pi
from random import Random

from lab.drawn_videos.paint import Pen, darker, ellipse_point, lighter, palette
from lab.drawn_videos.things.thing import (
    CREAM_COLOR,
    DARK_STEEL_COLOR,
    IRON_COLOR,
    SOFT_COLORS,
    STEEL_COLOR,
    WOOD_COLOR,
    Thing,
)


def hammer(pen: Pen, rng: Random) -> None:
    pen.box(
        0.455, 0.02, 0.545, 0.84, rng.choice([WOOD_COLOR, *palette("#cea060")]), "tube", radius=0.04
    )
    if rng.random() < 0.5:
        pen.box(0.445, 0.02, 0.555, 0.34, rng.choice(SOFT_COLORS), "tube", radius=0.04)
    pen.poly(
        "0.46,0.80 0.34,0.79 0.20,0.70 0.22,0.78 0.34,0.90 0.46,0.94",
        DARK_STEEL_COLOR,
        "rod",
        gloss=0.5,
    )
    pen.box(0.44, 0.78, 0.66, 0.96, DARK_STEEL_COLOR, "rod", radius=0.02, gloss=0.5)
    pen.box(0.66, 0.76, 0.76, 0.98, STEEL_COLOR, "rod", radius=0.03, gloss=0.6)


def screwdriver(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#c82c28 #eeb428 #2860a8"))
    pen.box(0.47, 0.40, 0.53, 0.94, STEEL_COLOR, "tube", gloss=0.6)
    pen.poly("0.455,0.92 0.545,0.92 0.53,0.99 0.47,0.99", DARK_STEEL_COLOR)
    pen.box(0.40, 0.03, 0.60, 0.40, color, "tube", radius=0.07, gloss=0.5)
    for x in (0.45, 0.50, 0.55):
        pen.thread([(x, 0.09), (x, 0.34)], 0.014, darker(color, 0.45))
    pen.box(0.43, 0.38, 0.57, 0.44, "#1e1e20", "tube", radius=0.02)


def wrench(pen: Pen, rng: Random) -> None:
    pen.box(0.445, 0.14, 0.555, 0.84, STEEL_COLOR, "tube", radius=0.03, gloss=0.6)
    pen.oval(0.5, 0.10, 0.12, 0.09, STEEL_COLOR, gloss=0.6)
    pen.oval(0.5, 0.10, 0.055, 0.042, "#1e2024", "flat")
    pen.poly(
        "0.42,0.76 0.58,0.76 0.68,0.86 0.66,0.99 0.57,0.97 "
        "0.57,0.89 0.43,0.89 0.43,0.97 0.34,0.99 0.32,0.86",
        STEEL_COLOR,
        "tube",
        gloss=0.6,
    )


def nail(pen: Pen, rng: Random) -> None:
    pen.poly("0.455,0.16 0.545,0.16 0.535,0.86 0.5,0.98 0.465,0.86", STEEL_COLOR, "tube", gloss=0.7)
    pen.oval(0.5, 0.13, 0.17, 0.06, STEEL_COLOR, gloss=0.6)


def plank(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#d6a86e #c49058"))
    pen.poly("0.0,0.62 0.95,0.62 0.95,0.72 0.0,0.72", darker(color, 0.3))
    pen.poly("0.06,0.40 1.0,0.40 0.95,0.62 0.0,0.62", color)
    pen.stripes(darker(color, 0.2), 7, 0.22, angle=89)
    for x, y in ((0.30, 0.50), (0.72, 0.54)):
        pen.oval(x, y, 0.035, 0.018, darker(color, 0.35), "flat")
        pen.oval(x, y, 0.018, 0.009, darker(color, 0.55), "flat")


def saw(pen: Pen, rng: Random) -> None:
    teeth = []
    for index in range(37):
        depth = 0.03 if index % 2 else 0.0
        x = 0.34 - depth + 0.10 * index / 36
        teeth.append((x, 0.32 + 0.66 * index / 36))
    pen.poly([*teeth, (0.52, 0.98), (0.64, 0.30)], lighter(STEEL_COLOR, 0.25), "flat", gloss=0.6)
    pen.thread("0.63,0.32 0.515,0.97", 0.012, DARK_STEEL_COLOR)
    pen.poly(
        "0.28,0.38 0.30,0.12 0.40,0.01 0.60,0.02 0.70,0.10 0.70,0.36 0.5,0.42",
        rng.choice([WOOD_COLOR, *palette("#e27828")]),
        "ball",
        smooth=True,
    )
    pen.hole(0.5, 0.20, 0.085, 0.085)


def brush(pen: Pen, rng: Random) -> None:
    pen.poly(
        "0.46,0.03 0.54,0.03 0.56,0.40 0.64,0.56 0.36,0.56 0.44,0.40",
        rng.choice([WOOD_COLOR, *SOFT_COLORS]),
        "tube",
        smooth=True,
        gloss=0.4,
    )
    pen.box(0.34, 0.54, 0.66, 0.68, STEEL_COLOR, "tube", gloss=0.6)
    pen.poly("0.35,0.68 0.65,0.68 0.63,0.97 0.37,0.97", "#3c2c22", "tube")
    pen.stripes("#785a42", 14, 0.4)


def paint_can(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.line("0.16,0.30 0.20,0.04 0.80,0.04 0.84,0.30", 0.018, DARK_STEEL_COLOR, smooth=True)
    pen.lathe("0.26,0.36 0.90,0.36", STEEL_COLOR, inside=color, gloss=0.6)
    pen.poly("0.14,0.46 0.86,0.46 0.86,0.80 0.5,0.90 0.14,0.80", CREAM_COLOR, "tube")
    pen.box(0.14, 0.70, 0.86, 0.80, color, "tube")
    pen.label(0.5, 0.61, "PAINT", 0.15, "#464650")


def glue(pen: Pen, rng: Random) -> None:
    pen.lathe("0.30,0.12 0.38,0.24 0.92,0.25", "#f8f8f6", gloss=0.3)
    pen.lathe("0.06,0.03 0.24,0.09 0.31,0.11", "#e87824")
    pen.box(0.26, 0.52, 0.74, 0.80, "#285aa0", "tube")
    pen.label(0.5, 0.66, "GLUE", 0.15, "#fafafa")


def screw(pen: Pen, rng: Random) -> None:
    pen.poly("0.42,0.22 0.58,0.22 0.56,0.84 0.5,0.98 0.44,0.84", STEEL_COLOR, "tube", gloss=0.6)
    for index in range(8):
        pen.thread(
            [(0.41, 0.32 + 0.07 * index), (0.59, 0.28 + 0.07 * index)], 0.022, DARK_STEEL_COLOR
        )
    pen.oval(0.5, 0.17, 0.22, 0.09, STEEL_COLOR, gloss=0.5)
    pen.line("0.38,0.165 0.62,0.165", 0.03, IRON_COLOR)


def drill(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#eebe28 #288282 #c83c28"))
    pen.box(0.46, 0.82, 0.52, 0.99, STEEL_COLOR, "tube", gloss=0.6)
    pen.poly("0.40,0.66 0.58,0.66 0.54,0.84 0.44,0.84", IRON_COLOR, "tube")
    pen.box(0.34, 0.20, 0.64, 0.68, color, "tube", radius=0.06, gloss=0.3)
    pen.poly("0.60,0.26 0.96,0.32 0.96,0.46 0.60,0.46", darker(color, 0.1), "rod")
    pen.box(0.86, 0.24, 0.99, 0.54, "#242428", "tube", radius=0.02)


def sandpaper(pen: Pen, rng: Random) -> None:
    pen.poly("0.06,0.40 0.92,0.34 0.97,0.62 0.10,0.70", "#b27a48")
    pen.speckle("#784e2c", 400, 0.006, opacity=0.7)
    pen.poly("0.80,0.348 0.92,0.34 0.97,0.62 0.88,0.52", "#e2d0b2")


def wheel(pen: Pen, rng: Random) -> None:
    pen.oval(0.5, 0.5, 0.48, 0.48, "#222224", "ball")
    pen.oval(0.5, 0.5, 0.425, 0.425, STEEL_COLOR, "flat", gloss=0.5)
    pen.hole(0.5, 0.5, 0.395, 0.395)
    for index in range(18):
        around = 2 * pi * index / 18
        hub = ellipse_point(0.5, 0.5, 0.03, 0.03, around + 1)
        rim = ellipse_point(0.5, 0.5, 0.395, 0.395, around)
        pen.thread([hub, rim], 0.008, "#e2e6ea")
    pen.oval(0.5, 0.5, 0.055, 0.055, DARK_STEEL_COLOR, gloss=0.6)
    pen.oval(0.5, 0.93, 0.016, 0.03, "#dc3228", "flat")


def tyre(pen: Pen, rng: Random) -> None:
    pen.oval(0.5, 0.5, 0.48, 0.48, "#28282a", "ball")
    for index in range(40):
        around = 2 * pi * index / 40
        inner = ellipse_point(0.5, 0.5, 0.44, 0.44, around)
        outer = ellipse_point(0.5, 0.5, 0.478, 0.478, around)
        pen.thread([inner, outer], 0.016, "#121214")
    pen.oval(0.5, 0.5, 0.40, 0.40, "#424040", "flat")
    pen.hole(0.5, 0.5, 0.37, 0.37)


def tube(pen: Pen, rng: Random) -> None:
    pen.oval(0.5, 0.5, 0.46, 0.42, "#34343a", "ball", gloss=0.3)
    pen.hole(0.5, 0.5, 0.35, 0.31)
    pen.line("0.5,0.19 0.5,0.30", 0.022, "#c8b064")


def pump(pen: Pen, rng: Random) -> None:
    pen.line("0.56,0.90 0.80,0.94 0.92,0.70 0.80,0.52", 0.022, "#1e1e20", smooth=True)
    pen.box(0.47, 0.08, 0.53, 0.40, STEEL_COLOR, "tube", gloss=0.6)
    pen.box(0.28, 0.03, 0.72, 0.10, "#222224", "rod", radius=0.03)
    pen.box(0.42, 0.34, 0.58, 0.92, rng.choice(SOFT_COLORS), "tube", radius=0.02, gloss=0.5)
    pen.box(0.30, 0.91, 0.70, 0.97, "#222224", "rod", radius=0.02)


def toolbox(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#c42c28 #2c5896"))
    pen.line("0.30,0.36 0.32,0.22 0.68,0.22 0.70,0.36", 0.05, "#28282c")
    pen.box(0.06, 0.34, 0.94, 0.82, color, "rod", radius=0.03, gloss=0.3)
    pen.box(0.06, 0.48, 0.94, 0.51, darker(color, 0.4))
    for x in (0.26, 0.74):
        pen.box(x - 0.05, 0.45, x + 0.05, 0.57, STEEL_COLOR, radius=0.01)
    pen.rim = None


def oil_can(pen: Pen, rng: Random) -> None:
    pen.line("0.42,0.50 0.20,0.16", 0.035, STEEL_COLOR)
    pen.lathe("0.46,0.06 0.58,0.22 0.92,0.24", rng.choice(palette("#c43228 #3c785a")), gloss=0.6)
    pen.label(0.5, 0.78, "OIL", 0.13, "#faf0dc")


def ruler(pen: Pen, rng: Random) -> None:
    pen.box(0.44, 0.01, 0.56, 0.99, "#f0cc5c", "flat")
    for index in range(25):
        y = 0.03 + 0.0385 * index
        end = 0.475 if index % 5 else 0.50
        pen.thread([(0.44, y), (end, y)], 0.006, "#3c321e")


TOOLS_THINGS: dict[str, Thing] = {
    "hammer": Thing(draw=hammer, size=0.50, grip=(0.5, 0.16), tip=(0.76, 0.87), lies=80),
    "screwdriver": Thing(draw=screwdriver, size=0.44, grip=(0.5, 0.22), tip=(0.5, 0.98), lies=70),
    "wrench": Thing(draw=wrench, size=0.46, grip=(0.5, 0.28), tip=(0.5, 0.90), lies=64),
    "nail": Thing(draw=nail, size=0.17, grip=(0.5, 0.2), tip=(0.5, 0.98)),
    "screw": Thing(draw=screw, size=0.16, grip=(0.5, 0.2), tip=(0.5, 0.98)),
    "wood plank": Thing(draw=plank, size=0.86, grip=(0.9, 0.55), tip=(0.5, 0.50)),
    "saw": Thing(draw=saw, size=0.58, grip=(0.5, 0.16), tip=(0.43, 0.72), lies=74),
    "paint brush": Thing(
        draw=brush, size=0.40, grip=(0.5, 0.2), tip=(0.5, 0.96), lies=70, content=(62, 118, 176)
    ),
    "paint can": Thing(
        draw=paint_can, size=0.36, grip=(0.86, 0.5), tip=(0.14, 0.26), content=(62, 118, 176)
    ),
    "glue": Thing(draw=glue, size=0.32, grip=(0.5, 0.66), tip=(0.5, 0.06), content=(250, 250, 246)),
    "drill": Thing(draw=drill, size=0.48, grip=(0.82, 0.38), tip=(0.49, 0.99), lies=30),
    "sandpaper": Thing(draw=sandpaper, size=0.28, grip=(0.5, 0.5), tip=(0.5, 0.6)),
    "wheel": Thing(draw=wheel, size=0.74, grip=(0.9, 0.5), tip=(0.5, 0.5)),
    "tyre": Thing(draw=tyre, size=0.70, grip=(0.92, 0.5), tip=(0.5, 0.5)),
    "inner tube": Thing(draw=tube, size=0.52, grip=(0.9, 0.5), tip=(0.5, 0.5)),
    "pump": Thing(draw=pump, size=0.58, grip=(0.5, 0.06), tip=(0.5, 0.95)),
    "toolbox": Thing(draw=toolbox, size=0.48, grip=(0.5, 0.24), tip=(0.5, 0.4)),
    "oil can": Thing(
        draw=oil_can, size=0.34, grip=(0.62, 0.7), tip=(0.19, 0.15), content=(206, 166, 60)
    ),
    "ruler": Thing(draw=ruler, size=0.50, grip=(0.5, 0.2), tip=(0.5, 0.8), lies=78),
}
