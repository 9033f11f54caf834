"""The presenter (head, shoulders, a mouth that moves with the sound, eyes that blink), and hands
seen from behind."""

from dataclasses import dataclass
from random import Random
from typing import Literal, TypeAlias

from lab.drawn_videos.light import Point
from lab.drawn_videos.paint import Color, Pen, darker, lighter, mix, read_points
from lab.drawn_videos.things.thing import SOFT_COLORS

SKIN_COLORS: tuple[Color, ...] = (
    (244, 206, 178),
    (230, 184, 148),
    (204, 150, 110),
    (160, 108, 74),
    (112, 74, 52),
)
HAIR_COLORS: tuple[Color, ...] = (
    (40, 28, 22),
    (92, 60, 34),
    (176, 128, 66),
    (206, 178, 120),
    (146, 66, 36),
    (150, 148, 146),
)
MOUTH_OPENINGS = 4  # how many openings of the mouth are drawn, 0 shut


@dataclass(frozen=True)
class Person:
    """What someone looks like."""

    skin: Color
    hair: Color
    clothes: Color
    style: int  # of the hair: 0 short, 1 long, 2 bun, 3 bald with beard
    glasses: bool
    apron: bool


def make_person(seed: int) -> Person:
    """Return the presenter of a seed."""
    rng = Random(f"person {seed}")
    return Person(
        skin=rng.choice(SKIN_COLORS),
        hair=rng.choice(HAIR_COLORS),
        clothes=rng.choice(SOFT_COLORS),
        style=rng.randrange(4),
        glasses=rng.random() < 0.3,
        apron=rng.random() < 0.5,
    )


def paint_bust(pen: Pen, who: Person) -> None:
    """Paint head and shoulders without eyes and mouth. The face's centre is (0.5, 0.36)."""
    if who.style == 1:
        pen.poly(
            "0.30,0.24 0.42,0.10 0.58,0.10 0.70,0.24 0.74,0.66 0.26,0.66",
            darker(who.hair, 0.1),
            "flat",
            smooth=True,
        )
    _body(pen, who)
    # neck, ears and face
    pen.poly("0.44,0.48 0.56,0.48 0.58,0.66 0.42,0.66", darker(who.skin, 0.16), "tube")
    for x in (0.335, 0.665):
        pen.oval(x, 0.37, 0.028, 0.045, darker(who.skin, 0.08))
    pen.poly(
        "0.5,0.14 0.62,0.17 0.665,0.30 0.655,0.42 0.60,0.52 "
        "0.5,0.57 0.40,0.52 0.345,0.42 0.335,0.30 0.38,0.17",
        who.skin,
        "ball",
        smooth=True,
    )
    cheek = mix(who.skin, "#e26e60", 0.3)
    for x in (0.405, 0.595):
        pen.oval(x, 0.42, 0.035, 0.024, cheek, "flat", opacity=0.5)
    _hair(pen, who)
    # nose and eyebrows
    pen.line("0.505,0.35 0.522,0.41 0.495,0.425", 0.014, darker(who.skin, 0.16), smooth=True)
    for side in (-1, 1):
        eyebrow = [(0.5 + side * 0.045, 0.292), (0.5 + side * 0.115, 0.288)]
        pen.line(eyebrow, 0.016, darker(who.hair, 0.2))


def _body(pen: Pen, who: Person) -> None:
    pen.poly(
        "0.40,0.60 0.60,0.60 0.80,0.67 0.90,0.80 0.94,1.05 0.06,1.05 0.10,0.80 0.20,0.67",
        who.clothes,
        "tube",
        smooth=True,
    )
    pen.poly(
        "0.42,0.60 0.5,0.70 0.58,0.60 0.62,0.62 0.5,0.76 0.38,0.62", lighter(who.clothes, 0.25)
    )
    if who.apron:
        pen.poly("0.36,0.76 0.64,0.76 0.70,1.0 0.30,1.0", "#ece6d8")
        for side in (-1, 1):
            strap = [(0.5 + side * 0.13, 0.77), (0.5 + side * 0.11, 0.61)]
            pen.line(strap, 0.022, "#ece6d8")


def _hair(pen: Pen, who: Person) -> None:
    # a bald head with a beard
    if who.style == 3:
        pen.poly(
            "0.35,0.42 0.42,0.47 0.5,0.455 0.58,0.47 0.65,0.42 0.62,0.54 0.5,0.61 0.38,0.54",
            who.hair,
            "flat",
            smooth=True,
        )
        pen.oval(0.5, 0.492, 0.055, 0.026, who.skin, "flat")
        return
    pen.poly(
        "0.325,0.34 0.32,0.20 0.40,0.10 0.52,0.07 0.64,0.11 0.68,0.22 "
        "0.675,0.34 0.64,0.235 0.54,0.20 0.42,0.215 0.36,0.25",
        who.hair,
        "ball",
        smooth=True,
        gloss=0.15,
    )
    # a bun
    if who.style == 2:
        pen.oval(0.5, 0.06, 0.075, 0.06, who.hair, gloss=0.2)
    # long hair on both sides
    if who.style == 1:
        for side in (-1, 1):
            strand = [
                (0.5 + side * 0.165, 0.20),
                (0.5 + side * 0.195, 0.40),
                (0.5 + side * 0.19, 0.62),
            ]
            pen.line(strand, 0.065, who.hair, smooth=True)


def paint_eyes(pen: Pen, who: Person, shut: bool) -> None:
    """Paint the eyes, and the glasses over them, at their place in the person's square."""
    lid_color = darker(who.skin, 0.6)
    for side in (-1, 1):
        x = 0.5 + side * 0.078
        if shut:
            lid = [(x - 0.03, 0.338), (x, 0.346), (x + 0.03, 0.338)]
            pen.line(lid, 0.010, lid_color)
        else:
            pen.oval(x, 0.338, 0.034, 0.021, "#f8f6f2", "flat")
            pen.oval(x, 0.338, 0.0165, 0.0175, "#4a3c2e", "flat")
            pen.oval(x, 0.338, 0.008, 0.008, "#0e0c0c", "flat")
            pen.oval(x - 0.005, 0.332, 0.004, 0.004, "#ffffff", "flat")
            lid = [(x - 0.035, 0.330), (x, 0.316), (x + 0.035, 0.330)]
            pen.thread(lid, 0.008, lid_color)
        # a glass around the eye
        if who.glasses:
            ring = [
                (x - 0.056, 0.31),
                (x + 0.056, 0.31),
                (x + 0.05, 0.375),
                (x - 0.05, 0.375),
                (x - 0.056, 0.31),
            ]
            pen.thread(ring, 0.009, "#242022")
    if who.glasses:
        pen.thread("0.478,0.325 0.522,0.325", 0.009, "#242022")


def paint_mouth(pen: Pen, who: Person, opening: int) -> None:
    """Paint the mouth, from 0 shut to MOUTH_OPENINGS - 1 wide open."""
    lip = mix(who.skin, "#b03c3e", 0.55)
    if opening == 0:
        pen.line("0.45,0.487 0.5,0.497 0.55,0.487", 0.014, lip, smooth=True)
        return
    tall = 0.010 + 0.012 * opening
    pen.oval(0.5, 0.492, 0.048, tall + 0.008, lip, "flat")
    pen.oval(0.5, 0.492, 0.038, tall, "#461618", "flat")
    pen.oval(0.5, 0.492 - tall * 0.55, 0.028, tall * 0.32, "#f6f4f0", "flat")


# ------------------------------------------------------------ hands, fingers up

HandPose: TypeAlias = Literal["fist", "open", "pinch"]

HAND_SIZE = 0.74  # side of a hand's unit square in frame heights; the forearm fills its lower part
HAND_GRIP: Point = (0.5, 0.13)  # where it holds, in its unit square


def paint_hand(pen: Pen, pose: HandPose, skin: Color, sleeve: Color) -> None:
    """Paint a right hand. The left one is its mirror image."""
    _forearm(pen, skin, sleeve)
    {"fist": _fist, "open": _open, "pinch": _pinch}[pose](pen, skin)


def _forearm(pen: Pen, skin: Color, sleeve: Color) -> None:
    pen.poly("0.452,0.22 0.548,0.22 0.585,0.55 0.60,1.0 0.40,1.0 0.415,0.55", skin, "tube")
    pen.poly("0.395,0.50 0.605,0.50 0.66,1.0 0.34,1.0", sleeve, "tube")
    pen.box(0.385, 0.48, 0.615, 0.53, lighter(sleeve, 0.12), "tube", radius=0.015)
    for x, y in ((0.44, 0.62), (0.55, 0.70), (0.46, 0.82)):
        pen.thread([(x, y), (x + 0.06, y + 0.05)], 0.006, darker(sleeve, 0.3), opacity=0.6)


def _back(pen: Pen, skin: Color, top: float) -> None:
    outline = [
        (0.43, top),
        (0.57, top),
        (0.595, top + 0.08),
        (0.55, 0.26),
        (0.45, 0.26),
        (0.405, top + 0.08),
    ]
    pen.poly(outline, skin, "ball", smooth=True)


def _fist(pen: Pen, skin: Color) -> None:
    _back(pen, skin, 0.085)
    crease = darker(mix(skin, "#963c28", 0.25), 0.25)
    knuckles = read_points("0.435,0.012 0.478,0.0 0.521,0.004 0.562,0.018")
    for x, lift in knuckles:
        pen.line([(x, 0.125 + lift), (x, 0.078 + lift)], 0.047, skin)
        pen.oval(x, 0.112 + lift, 0.020, 0.016, lighter(skin, 0.16))
    for x in (0.457, 0.50, 0.542):
        pen.thread([(x, 0.070), (x, 0.118)], 0.005, crease)
    pen.line("0.43,0.20 0.395,0.15 0.425,0.10", 0.044, skin, smooth=True)
    pen.oval(0.424, 0.098, 0.013, 0.015, mix(skin, "#fadcd2", 0.5), "flat")


def _fingers(pen: Pen, skin: Color, ends: str, roots: str) -> None:
    """Paint fingers from their roots to their ends, each with a nail and a joint."""
    nail = mix(skin, "#fce0d6", 0.55)
    crease = darker(skin, 0.25)
    for end, root in zip(read_points(ends), read_points(roots), strict=True):
        pen.line([root, end], 0.037, skin)
        pen.oval(end[0], end[1] - 0.002, 0.010, 0.013, nail, "flat")
        x = (root[0] + end[0]) / 2
        y = (root[1] + end[1]) / 2
        pen.thread([(x - 0.012, y), (x + 0.012, y)], 0.004, crease)


def _open(pen: Pen, skin: Color) -> None:
    _back(pen, skin, 0.13)
    roots = "0.437,0.165 0.479,0.150 0.521,0.150 0.562,0.165"
    ends = "0.412,0.055 0.470,0.022 0.530,0.024 0.590,0.062"
    _fingers(pen, skin, ends, roots)
    _fingers(pen, skin, "0.352,0.135", "0.43,0.215")


def _pinch(pen: Pen, skin: Color) -> None:
    _back(pen, skin, 0.145)
    _fingers(pen, skin, "0.535,0.150 0.575,0.165", "0.521,0.172 0.560,0.190")
    pen.line("0.487,0.17 0.475,0.115 0.497,0.075", 0.038, skin, smooth=True)
    pen.line("0.437,0.20 0.425,0.13 0.485,0.080", 0.040, skin, smooth=True)
    for x in (0.480, 0.500):
        pen.oval(x, 0.078, 0.010, 0.012, mix(skin, "#fce0d6", 0.5), "flat")
