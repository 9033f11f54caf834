# ruff: noqa: ARG001 - every function draws what it is named after, and all share one
# signature
"""Fruit, vegetables and herbs."""

from math import pi
from random import Random

from lab.drawn_videos.paint import Paint, Pen, darker, ellipse_point, lighter, palette
from lab.drawn_videos.things.thing import LEAF_COLOR, Thing


def lemon(pen: Pen, rng: Random) -> None:
    pen.poly(
        "0.04,0.52 0.16,0.40 0.36,0.24 0.64,0.24 0.86,0.40 "
        "0.97,0.52 0.86,0.64 0.64,0.80 0.36,0.80 0.15,0.64",
        "#f6d632",
        "ball",
        smooth=True,
        gloss=0.35,
    )
    pen.speckle("#d6b01e", 70, 0.010, opacity=0.5)


def half_lemon(pen: Pen, rng: Random) -> None:
    pen.oval(0.5, 0.55, 0.46, 0.36, "#f0ce2c")
    pen.oval(0.5, 0.46, 0.45, 0.30, "#faf4ce", "flat")
    _segments(pen, "#f8de5c", 0.46)


def _segments(pen: Pen, color: Paint, y: float) -> None:
    for index in range(9):
        start = 2 * pi * index / 9 + 0.06
        end = 2 * pi * (index + 1) / 9 - 0.06
        outline = [
            (0.5, y),
            ellipse_point(0.5, y, 0.39, 0.25, start),
            ellipse_point(0.5, y, 0.41, 0.265, (start + end) / 2),
            ellipse_point(0.5, y, 0.39, 0.25, end),
        ]
        pen.poly(outline, color)


def orange(pen: Pen, rng: Random) -> None:
    pen.oval(0.5, 0.5, 0.44, 0.43, "#ee8620", gloss=0.35)
    pen.speckle("#ce6812", 150, 0.009, opacity=0.5)
    pen.oval(0.54, 0.14, 0.035, 0.02, "#5c6e2c", "flat")


def banana(pen: Pen, rng: Random) -> None:
    pen.poly(
        "0.04,0.30 0.10,0.27 0.22,0.50 0.46,0.62 0.74,0.56 0.90,0.36 "
        "0.96,0.38 0.92,0.60 0.74,0.78 0.46,0.84 0.20,0.72 0.07,0.50",
        "#f4d042",
        "rod",
        smooth=True,
        gloss=0.2,
    )
    pen.speckle("#7e541e", 16, 0.010, opacity=0.6)
    pen.line("0.18,0.58 0.42,0.71 0.70,0.68 0.88,0.52", 0.012, "#d6ac2c", smooth=True)
    pen.line("0.91,0.36 0.97,0.26", 0.055, "#786828")
    pen.oval(0.06, 0.29, 0.03, 0.03, "#46341e")


def apple(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#c42228 #ce3c2e #86ac34"))
    pen.poly(
        "0.5,0.22 0.66,0.16 0.90,0.28 0.95,0.54 0.80,0.86 0.60,0.94 "
        "0.5,0.90 0.40,0.94 0.20,0.86 0.05,0.54 0.10,0.28 0.34,0.16",
        color,
        "ball",
        smooth=True,
        gloss=0.5,
    )
    pen.speckle(lighter(color, 0.4), 40, 0.008, opacity=0.5)
    pen.oval(0.5, 0.25, 0.12, 0.045, darker(color, 0.5), "flat")
    pen.line("0.5,0.26 0.56,0.06", 0.035, "#563a22")
    pen.poly("0.56,0.14 0.70,0.02 0.86,0.08 0.72,0.18", LEAF_COLOR, "ball", smooth=True)


def strawberry(pen: Pen, rng: Random) -> None:
    pen.poly(
        "0.5,0.20 0.80,0.20 0.92,0.42 0.76,0.76 0.5,0.98 0.24,0.76 0.08,0.42 0.20,0.20",
        "#d01e2a",
        "ball",
        smooth=True,
        gloss=0.5,
    )
    pen.speckle("#f6d26e", 46, 0.016, opacity=0.9)
    for x, y in ((0.16, 0.26), (0.34, 0.36), (0.5, 0.40), (0.66, 0.36), (0.84, 0.26)):
        pen.poly(
            [(0.44, 0.14), (0.56, 0.14), (x + 0.04, y), (x, y + 0.04)],
            LEAF_COLOR,
            "ball",
            smooth=True,
        )
    pen.line("0.5,0.18 0.54,0.03", 0.04, darker(LEAF_COLOR, 0.1))


def tomato(pen: Pen, rng: Random) -> None:
    pen.oval(0.5, 0.55, 0.46, 0.40, "#d42c22", gloss=0.6)
    for x, y in ((0.28, 0.20), (0.40, 0.32), (0.58, 0.33), (0.74, 0.21), (0.5, 0.10)):
        pen.line([(0.5, 0.20), (x, y)], 0.05, LEAF_COLOR)


def carrot(pen: Pen, rng: Random) -> None:
    for x in (0.38, 0.46, 0.54, 0.62):
        pen.line([(0.5, 0.26), (x, 0.03)], 0.03, LEAF_COLOR)
    pen.poly(
        "0.36,0.28 0.5,0.22 0.64,0.28 0.58,0.70 0.5,0.99 0.42,0.70", "#e87622", "tube", smooth=True
    )
    for y, w in ((0.40, 0.05), (0.54, 0.04), (0.66, 0.03)):
        pen.thread([(0.44, y), (0.44 + w, y + 0.006)], 0.010, "#be5414")


def onion(pen: Pen, rng: Random) -> None:
    pen.poly(
        "0.48,0.08 0.54,0.08 0.60,0.24 0.88,0.44 0.90,0.70 "
        "0.62,0.92 0.38,0.92 0.10,0.70 0.12,0.44 0.42,0.24",
        "#c6843e",
        "ball",
        smooth=True,
        gloss=0.3,
    )
    for x in (0.22, 0.36, 0.5, 0.64, 0.78):
        pen.line(
            [(0.5, 0.18), (x, 0.55), (0.5 + (x - 0.5) * 0.5, 0.90)], 0.010, "#a4622c", smooth=True
        )


def herbs(pen: Pen, rng: Random) -> None:
    pen.line("0.5,0.98 0.5,0.4", 0.03, darker(LEAF_COLOR, 0.2))
    for index in range(16):
        x, y = 0.5 + 0.34 * rng.uniform(-1, 1) * (1 - index / 24), 0.62 - 0.036 * index
        pen.line([(0.5, y + 0.14), (x, y)], 0.014, LEAF_COLOR)
        pen.oval(
            x,
            y,
            0.085,
            0.05,
            rng.choice([LEAF_COLOR, *palette("#5ca040 #3a7634")]),
            angle=rng.uniform(-60, 60),
        )


PRODUCE_THINGS: dict[str, Thing] = {
    "lemon": Thing(draw=lemon, size=0.19, content=(248, 230, 120)),
    "lemon half": Thing(draw=half_lemon, size=0.18, content=(248, 232, 130)),
    "orange": Thing(draw=orange, size=0.19, content=(246, 170, 60)),
    "banana": Thing(draw=banana, size=0.32),
    "apple": Thing(draw=apple, size=0.20),
    "strawberry": Thing(draw=strawberry, size=0.14),
    "tomato": Thing(draw=tomato, size=0.19),
    "carrot": Thing(draw=carrot, size=0.36, grip=(0.5, 0.3), tip=(0.5, 0.9), lies=66),
    "onion": Thing(draw=onion, size=0.20),
    "herbs": Thing(draw=herbs, size=0.26, grip=(0.5, 0.9), tip=(0.5, 0.3), content=LEAF_COLOR),
}
