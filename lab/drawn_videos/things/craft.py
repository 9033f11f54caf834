# ruff: noqa: ARG001 - every function draws what it is named after, and all share one
# signature
"""Paper, sewing and gifts."""

from random import Random

from lab.drawn_videos.paint import Pen, darker, lighter, palette
from lab.drawn_videos.things.thing import (
    DARK_STEEL_COLOR,
    SOFT_COLORS,
    STEEL_COLOR,
    WOOD_COLOR,
    Thing,
)


def scissors(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#d63c30 #f08228 #325aa0 #28282c"))
    for x, lean in ((0.32, 16), (0.68, -16)):
        pen.oval(x, 0.18, 0.15, 0.17, color, angle=lean, gloss=0.3)
        pen.hole(x, 0.175, 0.085, 0.105)
    pen.line("0.38,0.32 0.53,0.52", 0.07, color)
    pen.line("0.62,0.32 0.47,0.52", 0.07, color)
    pen.poly("0.46,0.46 0.55,0.46 0.67,0.97 0.62,0.96", STEEL_COLOR, "tube", gloss=0.6)
    pen.poly(
        "0.54,0.46 0.45,0.46 0.33,0.97 0.38,0.96", lighter(STEEL_COLOR, 0.25), "tube", gloss=0.6
    )
    pen.oval(0.5, 0.53, 0.035, 0.035, DARK_STEEL_COLOR, gloss=0.5)


def paper(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#fafaf6 #fae28c #aad2ec #f6b2b4"))
    pen.poly("0.16,0.32 0.84,0.32 0.97,0.72 0.03,0.72", darker(color, 0.25))
    pen.poly("0.16,0.31 0.84,0.31 0.97,0.705 0.03,0.705", color)


def card(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.poly("0.20,0.30 0.80,0.30 0.92,0.74 0.08,0.74", lighter(color, 0.55))
    pen.oval(0.44, 0.50, 0.09, 0.08, "#ce2c3c", "flat")
    pen.oval(0.57, 0.50, 0.09, 0.08, "#ce2c3c", "flat")
    pen.poly("0.36,0.53 0.65,0.53 0.505,0.68", "#ce2c3c", smooth=True)


def tape(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#c49654 #dece96"))
    pen.poly("0.70,0.34 0.98,0.62 0.98,0.76 0.74,0.60", lighter(color, 0.2))
    pen.oval(0.46, 0.54, 0.40, 0.38, darker(color, 0.2), "ball")
    pen.oval(0.46, 0.50, 0.40, 0.38, color, "flat", gloss=0.4)
    pen.oval(0.46, 0.50, 0.24, 0.22, "#e2d8c4", "flat")
    pen.oval(0.46, 0.51, 0.20, 0.185, "#54463a", "bowl")


def spool(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.lathe("0.82,0.30 0.90,0.30", WOOD_COLOR)
    pen.lathe("0.24,0.22 0.84,0.22", color)
    for index in range(12):
        y = 0.30 + 0.045 * index
        pen.thread([(0.28, y), (0.5, y + 0.06), (0.72, y + 0.02)], 0.010, darker(color, 0.3))
    pen.lathe("0.14,0.30 0.20,0.30", WOOD_COLOR, inside="#462e1c")
    pen.thread("0.70,0.60 0.88,0.72 0.97,0.95", 0.014, color)
    pen.rim = None


def needle(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.thread("0.5,0.12 0.62,0.02 0.76,0.16 0.66,0.34 0.82,0.44", 0.018, color)
    pen.poly(
        "0.465,0.06 0.535,0.06 0.525,0.80 0.5,0.99 0.475,0.80",
        lighter(STEEL_COLOR, 0.3),
        "tube",
        gloss=0.7,
    )
    pen.oval(0.5, 0.13, 0.014, 0.05, "#323238", "flat")


def button(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.oval(0.5, 0.54, 0.45, 0.38, darker(color, 0.35), "flat")
    pen.oval(0.5, 0.49, 0.45, 0.38, color, "flat", gloss=0.4)
    pen.oval(0.5, 0.49, 0.33, 0.27, darker(color, 0.12), "bowl")
    for x in (0.41, 0.59):
        for y in (0.42, 0.56):
            pen.oval(x, y, 0.045, 0.036, "#28201e", "flat")


def shirt(pen: Pen, rng: Random) -> None:
    color = rng.choice([*SOFT_COLORS, *palette("#eceef0")])
    pen.poly(
        "0.34,0.14 0.66,0.14 0.99,0.34 0.90,0.54 0.76,0.46 "
        "0.77,0.95 0.23,0.95 0.24,0.46 0.10,0.54 0.01,0.34",
        color,
    )
    if rng.random() < 0.6:
        pen.stripes(lighter(color, 0.4), 10, 0.3, angle=90)
    pen.oval(0.5, 0.14, 0.13, 0.06, darker(color, 0.5), "flat")
    pen.poly("0.36,0.12 0.5,0.25 0.42,0.29", lighter(color, 0.25))
    pen.poly("0.64,0.12 0.5,0.25 0.58,0.29", lighter(color, 0.25))
    pen.thread("0.5,0.26 0.5,0.94", 0.010, darker(color, 0.3))
    for index in range(5):
        pen.oval(0.5, 0.36 + 0.12 * index, 0.018, 0.018, darker(color, 0.6))
    for points in ([(0.30, 0.50), (0.34, 0.78)], [(0.70, 0.52), (0.65, 0.80)]):
        pen.thread(points, 0.012, darker(color, 0.15), opacity=0.6)


def cloth(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.poly("0.10,0.30 0.50,0.26 0.92,0.32 0.99,0.66 0.74,0.76 0.40,0.72 0.03,0.74", color, "flat")
    pen.stripes(lighter(color, 0.4), 8, 0.35, angle=12)
    pen.stripes(lighter(color, 0.4), 5, 0.3, angle=95, opacity=0.35)


def envelope(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#f6f0e0 #cea874 #d6e2ec"))
    pen.box(0.05, 0.26, 0.95, 0.80, color)
    pen.thread("0.05,0.80 0.44,0.52", 0.010, darker(color, 0.3))
    pen.thread("0.95,0.80 0.56,0.52", 0.010, darker(color, 0.3))
    pen.poly("0.05,0.26 0.95,0.26 0.5,0.60", darker(color, 0.12))
    pen.thread("0.05,0.26 0.5,0.60 0.95,0.26", 0.012, darker(color, 0.38))


def candle(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#f6ecce #ce3c3c #96b4a0"))
    pen.lathe("0.40,0.20 0.94,0.20", color, gloss=0.2)
    pen.oval(0.5, 0.40, 0.20, 0.064, lighter(color, 0.35), "flat")
    pen.thread("0.5,0.40 0.505,0.29", 0.022, "#322824")
    pen.poly("0.5,0.05 0.57,0.20 0.55,0.30 0.5,0.33 0.45,0.30 0.43,0.20", "#faaa28", smooth=True)
    pen.poly("0.5,0.14 0.535,0.24 0.5,0.31 0.465,0.24", "#fff0a0", smooth=True)


def candle_jar(pen: Pen, rng: Random) -> None:
    pen.lathe("0.26,0.34 0.84,0.32", "#cedee2", inside="#bacad0", gloss=0.8)


def cardboard_box(pen: Pen, rng: Random) -> None:
    color = (190, 142, 92)
    pen.poly("0.10,0.40 0.24,0.30 0.76,0.30 0.90,0.40 0.5,0.48", darker(color, 0.5))
    pen.poly("0.10,0.42 0.90,0.42 0.88,0.90 0.12,0.90", color)
    pen.poly("0.10,0.42 0.0,0.54 0.03,0.58 0.12,0.48", lighter(color, 0.2))
    pen.poly("0.90,0.42 1.0,0.54 0.97,0.58 0.88,0.48", lighter(color, 0.2))
    pen.box(0.44, 0.42, 0.56, 0.60, "#dec492")
    pen.label(0.30, 0.76, "FRAGILE", 0.07, "#963228")


def gift(pen: Pen, rng: Random) -> None:
    color, band = rng.sample(SOFT_COLORS, 2)
    pen.poly("0.08,0.44 0.22,0.32 0.94,0.32 0.84,0.44", lighter(color, 0.25))
    pen.poly("0.08,0.44 0.84,0.44 0.84,0.90 0.08,0.90", color)
    pen.poly("0.84,0.44 0.94,0.32 0.94,0.76 0.84,0.90", darker(color, 0.3))
    pen.box(0.41, 0.44, 0.52, 0.90, band)
    pen.poly("0.41,0.44 0.53,0.32 0.62,0.32 0.52,0.44", lighter(band, 0.2))
    for x, lean in ((0.42, -28), (0.60, 28)):
        pen.oval(x, 0.27, 0.12, 0.065, band, angle=-lean)
        pen.oval(x, 0.27, 0.06, 0.028, darker(band, 0.4), "flat", angle=-lean)
    pen.oval(0.51, 0.31, 0.045, 0.045, darker(band, 0.1))


def ribbon(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.line(
        "0.14,0.80 0.30,0.60 0.10,0.44 0.36,0.28 0.56,0.46 0.40,0.66 0.66,0.78 0.90,0.56 0.80,0.30",
        0.085,
        color,
        smooth=True,
    )


def marker(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#1e1e22 #c42828 #2850aa"))
    pen.poly("0.47,0.88 0.53,0.88 0.51,0.98 0.49,0.98", color)
    pen.box(0.43, 0.10, 0.57, 0.84, "#eeeef0", "tube", radius=0.03, gloss=0.3)
    pen.box(0.43, 0.02, 0.57, 0.30, color, "tube", radius=0.03, gloss=0.3)
    pen.poly("0.44,0.82 0.56,0.82 0.53,0.90 0.47,0.90", darker(color, 0.2))


def iron(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.line("0.86,0.46 0.80,0.22 0.40,0.24 0.34,0.44", 0.085, darker(color, 0.2), smooth=True)
    pen.poly("0.03,0.68 0.26,0.46 0.88,0.42 0.96,0.68", color, "rod", gloss=0.4)
    pen.poly("0.0,0.74 0.04,0.67 0.97,0.67 0.97,0.74", STEEL_COLOR, "rod", gloss=0.6)


CRAFT_THINGS: dict[str, Thing] = {
    "scissors": Thing(draw=scissors, size=0.40, grip=(0.5, 0.18), tip=(0.5, 0.90), lies=62),
    "paper": Thing(draw=paper, size=0.62, grip=(0.94, 0.6), tip=(0.5, 0.5)),
    "card": Thing(draw=card, size=0.44, grip=(0.9, 0.6), tip=(0.5, 0.5)),
    "tape": Thing(draw=tape, size=0.22, grip=(0.5, 0.5), tip=(0.85, 0.6), content=(206, 170, 100)),
    "thread spool": Thing(draw=spool, size=0.20, grip=(0.5, 0.5), tip=(0.8, 0.7)),
    "needle": Thing(draw=needle, size=0.26, grip=(0.5, 0.2), tip=(0.5, 0.98), lies=60),
    "button": Thing(draw=button, size=0.13),
    "shirt": Thing(draw=shirt, size=0.74, grip=(0.9, 0.4), tip=(0.5, 0.5)),
    "cloth": Thing(draw=cloth, size=0.46, grip=(0.9, 0.5), tip=(0.5, 0.55)),
    "envelope": Thing(draw=envelope, size=0.44, grip=(0.9, 0.6), tip=(0.5, 0.5)),
    "candle": Thing(draw=candle, size=0.36, grip=(0.5, 0.7), tip=(0.5, 0.1)),
    "candle jar": Thing(
        draw=candle_jar, size=0.30, grip=(0.8, 0.5), tip=(0.2, 0.26), content=(248, 238, 204)
    ),
    "cardboard box": Thing(draw=cardboard_box, size=0.54, grip=(0.9, 0.6), tip=(0.5, 0.42)),
    "gift": Thing(draw=gift, size=0.42, grip=(0.8, 0.6), tip=(0.5, 0.4)),
    "ribbon": Thing(draw=ribbon, size=0.28, grip=(0.5, 0.5), tip=(0.3, 0.6)),
    "marker": Thing(draw=marker, size=0.34, grip=(0.5, 0.4), tip=(0.5, 0.98), lies=72),
    "iron": Thing(draw=iron, size=0.42, grip=(0.6, 0.26), tip=(0.4, 0.74)),
}
