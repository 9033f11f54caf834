# ruff: noqa: ARG001 - every function draws what it is named after, and all share one
# signature
"""Garden and cleaning."""

from math import cos, pi, sin
from random import Random

from lab.drawn_videos.paint import Pen, darker, ellipse_point, lighter, palette
from lab.drawn_videos.things.thing import (
    CREAM_COLOR,
    DARK_STEEL_COLOR,
    EARTH_COLOR,
    LEAF_COLOR,
    STEEL_COLOR,
    WOOD_COLOR,
    Thing,
)

CLAY_COLOR = (190, 104, 66)


def flower_pot(pen: Pen, rng: Random) -> None:
    color = rng.choice([CLAY_COLOR, *palette("#ce7a50 #b05c3c")])
    pen.lathe("0.36,0.34 0.88,0.23", color, gloss=0.08)
    pen.lathe("0.24,0.40 0.36,0.40", lighter(color, 0.06), inside=darker(color, 0.55), gloss=0.08)


def plant(pen: Pen, rng: Random) -> None:
    pen.lathe("0.62,0.16 0.94,0.13", EARTH_COLOR)
    pen.line("0.5,0.64 0.5,0.34", 0.03, darker(LEAF_COLOR, 0.1))
    for index in range(11):
        around = -pi / 2 + (index - 5) * 0.34
        reach = 0.30 + 0.06 * (index % 2)
        x = 0.5 + reach * cos(around)
        y = 0.50 + reach * sin(around) * 1.05
        pen.line([(0.5, 0.56), (x, y)], 0.016, LEAF_COLOR)
        leaf_x = (x + 0.5) / 2 + (x - 0.5) * 0.3
        leaf_y = (y + 0.5) / 2 + (y - 0.5) * 0.25
        green = rng.choice([LEAF_COLOR, *palette("#5ca446 #367436")])
        pen.oval(leaf_x, leaf_y, 0.14, 0.055, green, angle=around * 180 / pi)


def flower(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#e85078 #f0be3c #965abe #e2463c"))
    pen.line("0.5,0.98 0.5,0.30", 0.028, LEAF_COLOR)
    for lean, x in ((-30, 0.36), (30, 0.64)):
        pen.oval(x, 0.72, 0.15, 0.05, LEAF_COLOR, angle=-lean)
    for index in range(8):
        around = 2 * pi * index / 8
        x, y = ellipse_point(0.5, 0.24, 0.15, 0.13, around)
        pen.oval(x, y, 0.105, 0.065, color, angle=around * 180 / pi)
    pen.oval(0.5, 0.24, 0.085, 0.075, "#f6c83c")


def watering_can(pen: Pen, rng: Random) -> None:
    color = rng.choice([*palette("#528460 #4078b0 #c4463c"), STEEL_COLOR])
    pen.line("0.70,0.42 0.98,0.34 0.94,0.74 0.76,0.80", 0.05, darker(color, 0.1), smooth=True)
    pen.line("0.46,0.76 0.10,0.26", 0.065, color)
    pen.poly("0.02,0.27 0.16,0.15 0.19,0.24 0.09,0.34", darker(color, 0.15))
    pen.lathe("0.44,0.22 0.90,0.24", color, x=0.60, inside=darker(color, 0.5), gloss=0.4)
    pen.line("0.42,0.44 0.48,0.20 0.72,0.20 0.79,0.44", 0.045, darker(color, 0.1), smooth=True)
    pen.rim = None


def soil(pen: Pen, rng: Random) -> None:
    pen.poly("0.16,0.14 0.84,0.12 0.90,0.50 0.86,0.94 0.14,0.94 0.10,0.50", "#426e40", "tube")
    pen.poly("0.16,0.14 0.84,0.12 0.78,0.22 0.22,0.23", EARTH_COLOR)
    pen.speckle("#322014", 60, 0.014)
    pen.box(0.22, 0.42, 0.78, 0.68, "#f0e2b4", "tube", radius=0.02)
    pen.label(0.5, 0.55, "SOIL", 0.16, "#5a3c1e")


def trowel(pen: Pen, rng: Random) -> None:
    pen.box(
        0.44, 0.02, 0.56, 0.34, rng.choice([WOOD_COLOR, *palette("#c83c32")]), "tube", radius=0.05
    )
    pen.line("0.5,0.34 0.5,0.54", 0.03, STEEL_COLOR)
    pen.poly(
        "0.38,0.52 0.62,0.52 0.63,0.80 0.5,0.99 0.37,0.80",
        STEEL_COLOR,
        "tube",
        smooth=False,
        gloss=0.5,
    )


def seeds(pen: Pen, rng: Random) -> None:
    pen.box(0.18, 0.08, 0.82, 0.94, "#f4e8c4", radius=0.01)
    pen.box(0.18, 0.08, 0.82, 0.28, "#468446")
    pen.label(0.5, 0.18, "SEEDS", 0.12, "#faf6e6")
    flower_x, flower_y = 0.5, 0.58
    pen.line([(flower_x, 0.90), (flower_x, flower_y)], 0.025, LEAF_COLOR)
    for index in range(9):
        around = 2 * pi * index / 9
        x, y = ellipse_point(flower_x, flower_y, 0.14, 0.12, around)
        pen.oval(x, y, 0.08, 0.05, "#f4ba28", angle=around * 180 / pi)
    pen.oval(flower_x, flower_y, 0.085, 0.075, "#6e401e")


def broom(pen: Pen, rng: Random) -> None:
    pen.line("0.5,0.02 0.5,0.66", 0.035, rng.choice([WOOD_COLOR, *palette("#4078b0")]))
    pen.poly("0.40,0.64 0.60,0.64 0.70,0.76 0.30,0.76", "#c43c32", "tube")
    pen.poly("0.30,0.76 0.70,0.76 0.80,0.99 0.20,0.99", "#deb860", "tube")
    pen.stripes("#a07832", 16, 0.35)


def bucket(pen: Pen, rng: Random) -> None:
    color = rng.choice([*palette("#4078ba #ce3c38 #5aa06e"), STEEL_COLOR])
    pen.line("0.10,0.32 0.22,0.06 0.78,0.06 0.90,0.32", 0.02, DARK_STEEL_COLOR, smooth=True)
    pen.lathe("0.30,0.42 0.36,0.40 0.90,0.30", color, inside=darker(color, 0.3), gloss=0.4)


def sponge(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#f8d646 #fabe50"))
    pen.box(0.05, 0.50, 0.95, 0.74, "#468c50", radius=0.05)
    pen.box(0.05, 0.32, 0.95, 0.64, color, "rod", radius=0.08)
    pen.speckle(darker(color, 0.3), 60, 0.020, opacity=0.6)


def spray(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#408cc8 #6eb45a #e26e96"))
    pen.lathe("0.34,0.07 0.46,0.20 0.94,0.21", color, gloss=0.6, opacity=0.92)
    pen.box(0.44, 0.22, 0.56, 0.36, "#f0f0f2", "tube")
    pen.poly("0.18,0.06 0.66,0.06 0.70,0.20 0.40,0.22 0.18,0.16", "#f0f0f2", "rod")
    pen.line("0.36,0.20 0.30,0.34", 0.05, "#d23c32")
    pen.box(0.31, 0.60, 0.69, 0.82, CREAM_COLOR, "tube")
    pen.label(0.5, 0.71, "CLEAN", 0.09, "#3c5a8c")


def mop(pen: Pen, rng: Random) -> None:
    pen.line("0.5,0.02 0.5,0.70", 0.032, WOOD_COLOR)
    for index in range(13):
        x = 0.26 + 0.04 * index
        pen.line(
            [(0.5, 0.70), ((x + 0.5) / 2, 0.80), (x, 0.98)],
            0.035,
            rng.choice([CREAM_COLOR, *palette("#e2ded2")]),
            smooth=True,
        )
    pen.box(0.40, 0.66, 0.60, 0.75, "#4078ba", "rod", radius=0.02)


def window_pane(pen: Pen, rng: Random) -> None:
    pen.box(0.04, 0.10, 0.96, 0.92, "#eceae4")
    pen.box(0.10, 0.16, 0.90, 0.86, "#96c4e2")
    pen.poly("0.10,0.60 0.40,0.50 0.90,0.66 0.90,0.86 0.10,0.86", "#78a86e")
    pen.poly("0.20,0.16 0.36,0.16 0.10,0.56 0.10,0.38", "#e2f0f8", opacity=0.7)
    pen.box(0.48, 0.10, 0.52, 0.92, "#eceae4")
    pen.box(0.04, 0.49, 0.96, 0.53, "#eceae4")


def shoe(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#6e3e24 #282424 #963c2c"))
    pen.poly(
        "0.05,0.70 0.08,0.34 0.34,0.30 0.52,0.50 0.86,0.56 0.97,0.74 0.05,0.76",
        color,
        "rod",
        smooth=True,
        gloss=0.5,
    )
    pen.poly("0.03,0.74 0.97,0.74 0.96,0.82 0.03,0.82", darker(color, 0.65))
    pen.oval(0.20, 0.36, 0.13, 0.05, darker(color, 0.6), "flat")
    for index in range(4):
        x = 0.38 + 0.055 * index
        pen.line([(x, 0.46 + 0.03 * index), (x + 0.06, 0.40 + 0.035 * index)], 0.018, CREAM_COLOR)


def polish(pen: Pen, rng: Random) -> None:
    pen.lathe("0.44,0.40 0.66,0.40", DARK_STEEL_COLOR, inside="#34221a", gloss=0.5)
    pen.label(0.5, 0.68, "POLISH", 0.11, "#f0d278")


GARDEN_THINGS: dict[str, Thing] = {
    "flower pot": Thing(
        draw=flower_pot, size=0.44, grip=(0.88, 0.3), tip=(0.1, 0.24), content=EARTH_COLOR
    ),
    "plant": Thing(draw=plant, size=0.46, grip=(0.5, 0.80), tip=(0.5, 0.90)),
    "flower": Thing(draw=flower, size=0.40, grip=(0.5, 0.8), tip=(0.5, 0.95)),
    "watering can": Thing(
        draw=watering_can, size=0.52, grip=(0.94, 0.54), tip=(0.08, 0.24), content=(176, 208, 226)
    ),
    "soil": Thing(draw=soil, size=0.48, grip=(0.84, 0.5), tip=(0.2, 0.14), content=EARTH_COLOR),
    "trowel": Thing(
        draw=trowel, size=0.44, grip=(0.5, 0.18), tip=(0.5, 0.92), lies=70, content=EARTH_COLOR
    ),
    "seeds": Thing(
        draw=seeds, size=0.26, grip=(0.6, 0.6), tip=(0.2, 0.08), content=(206, 176, 110)
    ),
    "broom": Thing(draw=broom, size=0.64, grip=(0.5, 0.20), tip=(0.5, 0.98), lies=80),
    "bucket": Thing(
        draw=bucket, size=0.48, grip=(0.9, 0.4), tip=(0.1, 0.3), content=(170, 206, 230)
    ),
    "sponge": Thing(
        draw=sponge, size=0.30, grip=(0.80, 0.75), tip=(0.5, 0.7), content=(220, 236, 244)
    ),
    "spray bottle": Thing(
        draw=spray, size=0.42, grip=(0.5, 0.55), tip=(0.18, 0.11), content=(214, 232, 244)
    ),
    "mop": Thing(draw=mop, size=0.64, grip=(0.5, 0.22), tip=(0.5, 0.96), lies=80),
    "window": Thing(draw=window_pane, size=0.66, grip=(0.9, 0.5), tip=(0.5, 0.5)),
    "shoe": Thing(draw=shoe, size=0.46, grip=(0.8, 0.6), tip=(0.6, 0.5)),
    "shoe polish": Thing(
        draw=polish, size=0.22, grip=(0.5, 0.5), tip=(0.5, 0.44), content=(52, 34, 26)
    ),
}
