# ruff: noqa: ARG001 - every function draws what it is named after, and all share one
# signature
"""Kitchenware."""

from random import Random

from lab.drawn_videos.paint import Color, Pen, darker, lighter, palette
from lab.drawn_videos.things.thing import (
    CREAM_COLOR,
    DARK_STEEL_COLOR,
    DARK_WOOD_COLOR,
    GLASS_COLOR,
    IRON_COLOR,
    SOFT_COLORS,
    STEEL_COLOR,
    WOOD_COLOR,
    Thing,
)


def bowl(pen: Pen, rng: Random) -> None:
    color = rng.choice([CREAM_COLOR, *palette("#eef0f2 #78a8be #d66e5c"), STEEL_COLOR])
    pen.lathe(
        "0.34,0.47 0.45,0.45 0.58,0.37 0.68,0.25 0.72,0.19 0.75,0.19",
        color,
        inside=darker(color, 0.12),
        gloss=0.4,
    )
    if rng.random() < 0.5:
        # a stripe, half an ellipse
        stripe = []
        for index in range(21):
            across = (index - 10) / 10
            stripe.append((0.05 + 0.9 * index / 20, 0.45 + 0.13 * (1 - across**2) ** 0.5))
        pen.thread(stripe, 0.022, rng.choice(SOFT_COLORS))


def pan(pen: Pen, rng: Random) -> None:
    pen.line("0.72,0.52 0.99,0.36", 0.065, rng.choice([*palette("#282628"), DARK_WOOD_COLOR]))
    pen.lathe("0.46,0.38 0.56,0.33 0.60,0.31", IRON_COLOR, x=0.4, inside="#26262a", gloss=0.35)


def pot(pen: Pen, rng: Random) -> None:
    color = rng.choice([STEEL_COLOR, *palette("#be3c32 #466e96")])
    for x in (0.06, 0.94):
        pen.oval(x, 0.46, 0.07, 0.045, DARK_STEEL_COLOR, "flat")
    pen.lathe(
        "0.32,0.38 0.35,0.375 0.74,0.37 0.78,0.34",
        color,
        inside=darker(STEEL_COLOR, 0.35),
        gloss=0.5,
    )


def knife(pen: Pen, rng: Random) -> None:
    pen.poly(
        "0.45,0.36 0.56,0.36 0.57,0.84 0.52,0.98 0.45,0.90",
        lighter(STEEL_COLOR, 0.2),
        "tube",
        gloss=0.6,
    )
    pen.thread("0.455,0.38 0.455,0.89 0.52,0.975", 0.012, "#f0f4f8")
    pen.box(
        0.44,
        0.02,
        0.56,
        0.37,
        rng.choice([*palette("#242224"), DARK_WOOD_COLOR]),
        "tube",
        radius=0.04,
        gloss=0.2,
    )
    for y in (0.10, 0.20, 0.30):
        pen.oval(0.5, y, 0.015, 0.015, STEEL_COLOR)


def spoon(pen: Pen, rng: Random) -> None:
    color = rng.choice([WOOD_COLOR, STEEL_COLOR, *palette("#c89660")])
    pen.line("0.5,0.04 0.5,0.76", 0.05, color)
    pen.oval(0.5, 0.85, 0.095, 0.135, color, gloss=0.3)
    pen.oval(0.5, 0.85, 0.068, 0.104, darker(color, 0.18), "bowl")


def whisk(pen: Pen, rng: Random) -> None:
    for spread in (0.15, 0.115, 0.075, 0.03):
        for side in (-1, 1):
            outline = [
                (0.5 + side * 0.02, 0.40),
                (0.5 + side * spread * 0.7, 0.60),
                (0.5 + side * spread, 0.82),
                (0.5 + side * spread * 0.6, 0.95),
                (0.5, 0.98),
            ]
            pen.line(outline, 0.02, lighter(STEEL_COLOR, 0.25), smooth=True)
    pen.box(
        0.46,
        0.02,
        0.54,
        0.42,
        rng.choice([STEEL_COLOR, *SOFT_COLORS]),
        "tube",
        radius=0.03,
        gloss=0.5,
    )


def cup(pen: Pen, rng: Random) -> None:
    color = rng.choice([*palette("#eef0f2"), CREAM_COLOR, *palette("#aaced6")])
    pen.oval(0.84, 0.46, 0.13, 0.14, darker(color, 0.12), "flat")
    pen.oval(0.83, 0.46, 0.085, 0.095, darker(color, 0.75), "flat")
    pen.lathe(
        "0.28,0.34 0.5,0.32 0.66,0.24 0.72,0.19", color, inside=darker(color, 0.16), gloss=0.5
    )


def mug(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.line("0.74,0.38 0.95,0.40 0.96,0.64 0.74,0.70", 0.075, color, smooth=True)
    pen.lathe("0.24,0.29 0.80,0.28", color, inside="#ece6de", gloss=0.4)


def glass(pen: Pen, rng: Random) -> None:
    pen.lathe(
        "0.14,0.25 0.86,0.20",
        GLASS_COLOR,
        inside=lighter(GLASS_COLOR, 0.3),
        gloss=0.8,
        opacity=0.62,
    )
    pen.thread("0.33,0.28 0.36,0.82", 0.02, "#fafcff", opacity=0.8)


def pitcher(pen: Pen, rng: Random) -> None:
    color = rng.choice([GLASS_COLOR, *palette("#d6e2e4")])
    pen.line("0.70,0.24 0.93,0.28 0.92,0.58 0.72,0.68", 0.06, darker(color, 0.12), smooth=True)
    pen.poly("0.30,0.14 0.17,0.10 0.30,0.28", color, "flat")
    pen.lathe(
        "0.15,0.23 0.32,0.21 0.55,0.27 0.80,0.28 0.88,0.23",
        color,
        inside=lighter(color, 0.3),
        gloss=0.8,
        opacity=0.85,
    )
    pen.thread("0.34,0.34 0.30,0.56 0.32,0.80", 0.02, "#fcfeff", opacity=0.8)


def bottle(pen: Pen, rng: Random) -> None:
    color = rng.choice(palette("#4a763e #c6a83e #784828"))
    pen.lathe(
        "0.12,0.055 0.32,0.065 0.42,0.15 0.48,0.17 0.94,0.165", color, gloss=0.8, opacity=0.95
    )
    pen.box(0.335, 0.58, 0.665, 0.84, CREAM_COLOR, "tube")
    pen.label(0.5, 0.71, rng.choice(["OIL", "VINO", "SOY"]), 0.11, "#503c28")
    pen.lathe("0.05,0.06 0.14,0.06", rng.choice(palette("#282828 #b43228")))


def jar(pen: Pen, rng: Random) -> None:
    inside = rng.choice(palette("#c6842c #b02c34 #e8e0c8 #784624"))
    pen.lathe("0.22,0.23 0.30,0.30 0.84,0.30 0.88,0.27", inside, gloss=0.8)
    pen.box(0.27, 0.48, 0.73, 0.72, CREAM_COLOR, "tube", radius=0.02)
    pen.label(0.5, 0.61, rng.choice(["JAM", "HONEY", "SUGAR"]), 0.12, "#603828")
    pen.lathe(
        "0.12,0.25 0.23,0.25", rng.choice([*palette("#ceaa54 #be3830"), STEEL_COLOR]), gloss=0.6
    )


def plate(pen: Pen, rng: Random) -> None:
    color = rng.choice([*palette("#f0f0ee"), CREAM_COLOR, *palette("#c4d6de")])
    pen.lathe("0.54,0.48 0.62,0.30", darker(color, 0.12))
    pen.oval(0.5, 0.54, 0.48, 0.165, color, "flat", gloss=0.3)
    pen.oval(0.5, 0.545, 0.34, 0.112, darker(color, 0.09), "bowl")
    pen.rim = None


def cutting_board(pen: Pen, rng: Random) -> None:
    color = rng.choice([WOOD_COLOR, *palette("#ce9c66 #a87042")])
    pen.poly("0.02,0.70 0.98,0.70 0.98,0.75 0.02,0.75", darker(color, 0.35))
    pen.poly("0.14,0.36 0.86,0.36 0.98,0.70 0.02,0.70", color)
    pen.stripes(darker(color, 0.22), 9, 0.25, angle=88)
    pen.oval(0.5, 0.405, 0.05, 0.016, darker(color, 0.6), "flat")


def grater(pen: Pen, rng: Random) -> None:
    pen.line("0.38,0.12 0.40,0.03 0.60,0.03 0.62,0.12", 0.05, "#28282c", smooth=True)
    pen.poly("0.36,0.12 0.64,0.12 0.74,0.94 0.26,0.94", STEEL_COLOR, "tube", gloss=0.5)
    for row in range(9):
        for column in range(5):
            pen.oval(0.38 + 0.06 * column, 0.24 + 0.07 * row, 0.016, 0.012, IRON_COLOR, "flat")


def rolling_pin(pen: Pen, rng: Random) -> None:
    pen.box(0.0, 0.47, 1.0, 0.53, DARK_WOOD_COLOR, "rod", radius=0.03)
    pen.box(0.16, 0.41, 0.84, 0.59, WOOD_COLOR, "rod", radius=0.04, gloss=0.2)


def teapot(pen: Pen, rng: Random) -> None:
    color = rng.choice(SOFT_COLORS)
    pen.line("0.72,0.42 0.96,0.40 0.95,0.66 0.74,0.74", 0.06, color, smooth=True)
    pen.line("0.28,0.66 0.14,0.58 0.06,0.36", 0.09, color, smooth=True)
    pen.lathe("0.33,0.14 0.40,0.24 0.55,0.31 0.70,0.29 0.82,0.18", color, gloss=0.5)
    pen.oval(0.5, 0.345, 0.15, 0.05, lighter(color, 0.2), "flat")
    pen.oval(0.5, 0.28, 0.045, 0.045, darker(color, 0.2), gloss=0.5)


def pour_color(name: str) -> Color:
    """Return the colour of what a vessel holds in general: water."""
    return {"milk": (246, 244, 238), "oil": (222, 186, 60)}.get(name, (176, 208, 226))


KITCHEN_THINGS: dict[str, Thing] = {
    "bowl": Thing(
        draw=bowl, size=0.52, grip=(0.95, 0.40), tip=(0.05, 0.34), content=(240, 228, 196)
    ),
    "pan": Thing(draw=pan, size=0.62, grip=(0.92, 0.40), tip=(0.05, 0.48), content=(226, 190, 90)),
    "pot": Thing(
        draw=pot, size=0.52, grip=(0.94, 0.46), tip=(0.14, 0.32), content=pour_color("water")
    ),
    "knife": Thing(draw=knife, size=0.46, grip=(0.5, 0.20), tip=(0.5, 0.74), lies=68),
    "spoon": Thing(draw=spoon, size=0.46, grip=(0.5, 0.16), tip=(0.5, 0.88), lies=72),
    "whisk": Thing(draw=whisk, size=0.46, grip=(0.5, 0.18), tip=(0.5, 0.90), lies=66),
    "cup": Thing(draw=cup, size=0.27, grip=(0.88, 0.46), tip=(0.16, 0.28), content=(244, 240, 230)),
    "mug": Thing(draw=mug, size=0.28, grip=(0.94, 0.52), tip=(0.22, 0.24), content=(96, 58, 34)),
    "glass": Thing(
        draw=glass, size=0.27, grip=(0.68, 0.5), tip=(0.26, 0.15), content=pour_color("water")
    ),
    "pitcher": Thing(
        draw=pitcher, size=0.46, grip=(0.92, 0.44), tip=(0.18, 0.11), content=pour_color("water")
    ),
    "bottle": Thing(
        draw=bottle, size=0.44, grip=(0.5, 0.68), tip=(0.5, 0.05), content=pour_color("oil")
    ),
    "jar": Thing(draw=jar, size=0.30, grip=(0.7, 0.55), tip=(0.3, 0.12), content=(204, 138, 46)),
    "plate": Thing(draw=plate, size=0.50, grip=(0.95, 0.54), tip=(0.5, 0.54)),
    "cutting board": Thing(draw=cutting_board, size=0.74, grip=(0.95, 0.6), tip=(0.5, 0.52)),
    "grater": Thing(draw=grater, size=0.42, grip=(0.5, 0.06), tip=(0.5, 0.6)),
    "rolling pin": Thing(draw=rolling_pin, size=0.62, grip=(0.95, 0.5), tip=(0.5, 0.55)),
    "teapot": Thing(
        draw=teapot, size=0.42, grip=(0.93, 0.52), tip=(0.05, 0.34), content=(150, 96, 40)
    ),
}
