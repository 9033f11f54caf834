# ruff: noqa: ARG001 - every function draws what it is named after, and all share one
# signature
"""Food from the larder and the oven."""

from random import Random

from lab.drawn_videos.paint import Pen, palette
from lab.drawn_videos.things.thing import CREAM_COLOR, Thing


def egg(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#eed6b8 #d8a87c #f6f2ea"))
    pen.poly(
        "0.5,0.06 0.68,0.14 0.82,0.42 0.84,0.66 0.70,0.90 "
        "0.5,0.95 0.30,0.90 0.16,0.66 0.18,0.42 0.32,0.14",
        color,
        "ball",
        smooth=True,
        gloss=0.3,
    )


def bread(pen: Pen, rng: Random) -> None:
    crust = (176, 108, 50)
    pen.poly(
        "0.10,0.86 0.08,0.46 0.02,0.34 0.12,0.20 0.34,0.14 "
        "0.66,0.14 0.88,0.20 0.98,0.34 0.92,0.46 0.90,0.86",
        crust,
        "flat",
        smooth=True,
    )
    pen.poly(
        "0.14,0.82 0.13,0.46 0.08,0.34 0.16,0.24 0.36,0.19 "
        "0.64,0.19 0.84,0.24 0.92,0.34 0.87,0.46 0.86,0.82",
        "#f0d8a8",
        "flat",
        smooth=True,
    )
    pen.speckle("#d8b880", 90, 0.013, opacity=0.7)


def loaf(pen: Pen, rng: Random) -> None:
    pen.poly(
        "0.02,0.62 0.08,0.40 0.30,0.28 0.70,0.28 0.92,0.40 0.98,0.62 0.88,0.76 0.12,0.76",
        "#bc7a3c",
        "ball",
        smooth=True,
        gloss=0.1,
    )
    for x in (0.26, 0.42, 0.58, 0.74):
        pen.line([(x - 0.05, 0.50), (x + 0.06, 0.34)], 0.045, "#e8be82")


def butter(pen: Pen, rng: Random) -> None:
    pen.poly("0.06,0.46 0.24,0.34 0.96,0.34 0.82,0.46", "#fce88c")
    pen.poly("0.06,0.46 0.82,0.46 0.82,0.68 0.06,0.68", "#f6da6e")
    pen.poly("0.82,0.46 0.96,0.34 0.96,0.56 0.82,0.68", "#debe54")


def dough(pen: Pen, rng: Random) -> None:
    pen.poly(
        "0.04,0.66 0.10,0.48 0.34,0.36 0.62,0.34 0.90,0.48 0.97,0.66 0.80,0.78 0.20,0.78",
        "#ecd6aa",
        "ball",
        smooth=True,
    )
    pen.line("0.34,0.50 0.50,0.46 0.62,0.50", 0.014, "#ceb280", smooth=True)


def flour_bag(pen: Pen, rng: Random) -> None:
    pen.poly("0.24,0.16 0.76,0.16 0.82,0.94 0.18,0.94", "#ece2cc", "tube")
    pen.poly("0.22,0.10 0.78,0.10 0.77,0.20 0.23,0.20", "#d6c8ac", "tube")
    pen.box(0.26, 0.40, 0.74, 0.66, rng.choice(palette("#3a6096 #b44032")), "tube", radius=0.02)
    pen.label(0.5, 0.53, "FLOUR", 0.12, "#faf6ec")


def milk(pen: Pen, rng: Random) -> None:
    pen.poly("0.28,0.32 0.72,0.32 0.72,0.96 0.28,0.96", "#f4f6f8", "tube")
    pen.poly("0.28,0.32 0.36,0.14 0.64,0.14 0.72,0.32", "#548ac4")
    pen.box(0.36, 0.06, 0.64, 0.16, "#4070aa")
    pen.box(0.28, 0.66, 0.72, 0.96, "#548ac4", "tube")
    pen.label(0.5, 0.52, "MILK", 0.14, "#325a96")


def salt(pen: Pen, rng: Random) -> None:
    pen.lathe("0.36,0.20 0.88,0.26", "#eaf0f2", gloss=0.6)
    pen.label(0.5, 0.66, "SALT", 0.13, "#505a64")
    pen.lathe("0.18,0.14 0.26,0.21 0.38,0.21", "#969ca4", gloss=0.6)
    for x in (0.44, 0.5, 0.56):
        pen.oval(x, 0.17, 0.014, 0.008, "#323238", "flat")


def cheese(pen: Pen, rng: Random) -> None:
    pen.poly("0.04,0.56 0.66,0.30 0.96,0.46", "#fcda68")
    pen.poly("0.04,0.56 0.96,0.46 0.96,0.70 0.04,0.80", "#f2c446")
    for x, y, r in (
        (0.24, 0.66, 0.045),
        (0.48, 0.68, 0.06),
        (0.74, 0.58, 0.05),
        (0.84, 0.68, 0.03),
        (0.60, 0.44, 0.035),
    ):
        pen.oval(x, y, r, r * 0.8, "#cc9a2c", "bowl")


def pancakes(pen: Pen, rng: Random) -> None:
    pen.oval(0.5, 0.80, 0.48, 0.15, "#eceeee", "flat", gloss=0.3)
    pen.oval(0.5, 0.805, 0.36, 0.105, "#d6dadc", "bowl")
    for index in range(4):
        y, shift = 0.77 - 0.10 * index, (0.0, 0.015, -0.012, 0.008)[index]
        pen.lathe(
            [(y - 0.075, 0.33), (y - 0.035, 0.345), (y, 0.33)], "#e8c080", x=0.5 + shift, gloss=0.05
        )
        pen.oval(0.5 + shift, y - 0.075, 0.33, 0.105, "#c07e3e", "flat")
        pen.oval(0.5 + shift, y - 0.075, 0.27, 0.085, "#ce8e4c", "flat")
    pen.poly("0.40,0.37 0.58,0.35 0.64,0.40 0.52,0.45 0.38,0.43", "#fce482")


FOOD_THINGS: dict[str, Thing] = {
    "egg": Thing(draw=egg, size=0.14, content=(250, 196, 50)),
    "slice of bread": Thing(draw=bread, size=0.30),
    "loaf": Thing(draw=loaf, size=0.46),
    "butter": Thing(draw=butter, size=0.22),
    "dough": Thing(draw=dough, size=0.42),
    "flour": Thing(
        draw=flour_bag, size=0.42, grip=(0.72, 0.5), tip=(0.26, 0.10), content=CREAM_COLOR
    ),
    "milk": Thing(
        draw=milk, size=0.42, grip=(0.66, 0.6), tip=(0.38, 0.06), content=(248, 246, 242)
    ),
    "salt": Thing(draw=salt, size=0.22, grip=(0.5, 0.7), tip=(0.5, 0.18), content=(250, 250, 250)),
    "cheese": Thing(draw=cheese, size=0.28),
    "pancakes": Thing(draw=pancakes, size=0.46, grip=(0.9, 0.8), tip=(0.5, 0.36)),
}
