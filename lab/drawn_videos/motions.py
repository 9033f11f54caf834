# ruff: noqa: ARG001 - every motion has one signature, though not all depend on the length
"""How hands move: one function an action, from seconds into the shot and its length to a pose.

Offsets are frame heights from the target's work point (x right, y down). Angles are degrees
clockwise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lab.drawn_videos.light import Point
from lab.drawn_videos.people import HandPose

Effect: TypeAlias = Literal["stream", "drops", "dust", "mist", "trail", "stitches", "fill"]


@dataclass(frozen=True)
class Pose:
    """Where item, hands and target are at one moment.

    x, y: the item's working point. hand: None when it is out of the picture. reach: how far the
    hand is off the item.
    other: the second hand. inside: the item goes behind the near wall of a hollow target.
    squash: height of the target. turn: its rotation. fold: fraction folded over. apart: between the
    item's halves.
    """

    x: float = 0.0
    y: float = 0.0
    angle: float = 0.0
    hand: HandPose | None = "fist"
    reach: Point = (0.0, 0.0)
    other: Point | None = None
    inside: bool = False
    effect: Effect | None = None
    squash: float = 1.0
    turn: float = 0.0
    fold: float = 0.0
    apart: float = 0.0


def wave(t: float, period: float) -> float:
    """Return a smooth swing in [-1, 1]."""
    return math.sin(2 * math.pi * t / period)


def ease(fraction: float) -> float:
    """Return a smooth way from 0 to 1, held at both ends."""
    fraction = min(1.0, max(0.0, fraction))
    return fraction * fraction * (3 - 2 * fraction)


Motion: TypeAlias = Callable[[float, float], Pose]


def _away(t: float, length: float) -> float:
    """Return 1 when the hand has not arrived yet or is leaving, 0 while it works."""
    return 1.0 - ease(t / 0.7) * ease((length - t) / 0.5)


def pour(t: float, length: float) -> Pose:
    """Tilt the item over the target until it runs out."""
    tilt = ease((t - 0.3) / 0.9) * ease((length - t) / 0.6)
    flowing: Effect = "stream" if tilt > 0.75 else "fill"
    return Pose(
        0.03 + 0.10 * (1 - tilt),
        -0.20 - 0.10 * (1 - tilt) + 0.008 * wave(t, 1.3),
        -74 * tilt,
        effect=flowing,
    )


def stir(t: float, length: float) -> Pose:
    """Round and round inside the target."""
    up = 0.28 * _away(t, length)
    x, y = 0.10 * wave(t, 0.95), 0.035 * wave(t + 0.24, 0.95) + 0.02
    return Pose(x, y - up, 30 + 9 * wave(t, 0.95), inside=True, other=(-0.30, 0.08), effect="fill")


def cut(t: float, length: float) -> Pose:
    """Down and up again, moving along."""
    along = 0.07 - 0.14 * ease(t / length)
    down = -0.075 * abs(wave(t, 1.1)) - 0.20 * _away(t, length)
    return Pose(along, down, 66 + 10 * abs(wave(t, 1.1)), other=(-0.22 + along * 0.4, 0.03))


def saw(t: float, length: float) -> Pose:
    """Long strokes to and fro."""
    stroke = 0.10 * wave(t, 0.9)
    return Pose(
        0.04 + stroke,
        0.01 - 0.06 * abs(stroke) - 0.2 * _away(t, length),
        58 + 20 * stroke,
        other=(-0.36, 0.04),
    )


def place(t: float, length: float) -> Pose:
    """Carry the item in from the right, let go, draw the hand back, again and again."""
    period = 3.4
    now = t % period
    come, leave = ease(now / 1.5), ease((now - 1.9) / 1.1)
    gone = leave >= 0.98
    return Pose(
        0.85 * (1 - come),
        0.02 - 0.26 * math.sin(math.pi * come) - 0.10 * (1 - come),
        8 * (1 - come),
        hand=None if gone else "pinch",
        reach=(0.75 * leave, 0.22 * leave),
        inside=come > 0.97,
    )


def take(t: float, length: float) -> Pose:
    """Reach in, lift the item out of the target and carry it away, again and again."""
    period = 3.2
    now = t % period
    come, leave = 1 - ease(now / 1.1), ease((now - 1.3) / 1.6)
    return Pose(
        0.95 * leave,
        0.0 - 0.30 * math.sin(math.pi * leave) * 0.9 - 0.08 * leave,
        -10 * leave,
        hand="pinch",
        reach=(0.7 * come, 0.2 * come),
        inside=leave < 0.08,
    )


def press(t: float, length: float) -> Pose:
    """Both hands push the target down."""
    down = max(0.0, wave(t, 1.3))
    y = -0.07 + 0.06 * down - 0.35 * _away(t, length)
    return Pose(0.09, y, 0.0, hand="open", other=(-0.09, y + 0.01), squash=1.0 - 0.22 * down)


def wipe(t: float, length: float) -> Pose:
    """To and fro over the target."""
    away = _away(t, length)
    return Pose(
        0.20 * wave(t, 1.3) + 0.3 * away,
        0.05 * wave(t, 3.1) - 0.2 * away,
        10 * wave(t, 1.3),
        hand="open",
        effect=None,
    )


def brush(t: float, length: float) -> Pose:
    """Strokes that leave colour behind."""
    away = _away(t, length)
    return Pose(
        0.21 * wave(t, 1.7) + 0.3 * away,
        -0.05 + 0.10 * ease(t / length) - 0.25 * away,
        34 + 12 * wave(t, 1.7),
        effect="trail",
    )


def write(t: float, length: float) -> Pose:
    """Small quick strokes along a line."""
    away = _away(t, length)
    return Pose(
        -0.14 + 0.28 * ease(t / length),
        0.015 * wave(t, 0.45) - 0.25 * away,
        38,
        hand="pinch",
        effect="trail",
        other=(-0.26, 0.08),
    )


def turn(t: float, length: float) -> Pose:
    """Twist the upright item in the target."""
    return Pose(0.0, -0.25 * _away(t, length), 16 + 13 * wave(t, 0.8), other=(-0.28, 0.05))


def wrench(t: float, length: float) -> Pose:
    """Swing the item's handle about its working end."""
    return Pose(0.0, -0.3 * _away(t, length), 72 + 24 * wave(t, 1.3), other=(-0.26, 0.06))


def hammer(t: float, length: float) -> Pose:
    """Swing up slowly, strike fast."""
    phase = (t % 0.85) / 0.85
    lift = math.sin(math.pi * min(1.0, phase / 0.8)) if phase < 0.8 else 0.0
    return Pose(
        0.04 * lift, -0.20 * lift - 0.3 * _away(t, length), 82 - 34 * lift, other=(-0.13, 0.02)
    )


def fold(t: float, length: float) -> Pose:
    """Both hands lay one side of the target over the other."""
    fraction = ease((t % 3.6 - 0.6) / 1.8)
    x = 0.30 * math.cos(math.pi * fraction)
    lift = 0.16 * math.sin(math.pi * fraction)
    return Pose(0.28, 0.06, hand="open", fold=fraction, other=(-x, -lift))


def shake(t: float, length: float) -> Pose:
    """Shake the held item above the target."""
    return Pose(
        0.03 * wave(t, 0.33),
        -0.14 + 0.05 * wave(t + 0.08, 0.33) - 0.2 * _away(t, length),
        14 * wave(t, 0.33),
        hand="fist",
    )


def sprinkle(t: float, length: float) -> Pose:
    """Turn the item over and let it rain."""
    return Pose(
        0.07 * wave(t, 1.4),
        -0.19 + 0.015 * wave(t, 0.3) - 0.2 * _away(t, length),
        -118 + 10 * wave(t, 0.3),
        effect="dust",
    )


def squeeze(t: float, length: float) -> Pose:
    """Press the item in the fist until it drips."""
    return Pose(
        0.01 * wave(t, 0.5),
        -0.19 - 0.2 * _away(t, length),
        12 * wave(t, 1.1),
        hand="pinch",
        effect="drops",
    )


def pump(t: float, length: float) -> Pose:
    """Push the item's handle down and up next to the target."""
    return Pose(0.16, 0.16 + 0.045 * wave(t, 0.8), 4, other=(-0.30, 0.02))


def sew(t: float, length: float) -> Pose:
    """The needle goes in and out along a seam."""
    along = -0.14 + 0.26 * ease(t / length)
    return Pose(
        along,
        -0.10 * max(0.0, wave(t, 1.2)) - 0.2 * _away(t, length),
        34,
        hand="pinch",
        other=(-0.27, 0.05),
        effect="stitches",
    )


def crack(t: float, length: float) -> Pose:
    """Tap the item, pull it apart over the target, let the inside fall, again and again."""
    now = t % 3.6
    tap = 0.05 * abs(wave(now, 0.8)) if now < 1.2 else 0.0
    apart = 0.07 * ease((now - 1.3) / 0.6)
    falling: Effect = "drops" if 1.7 < now < 2.6 else "fill"
    return Pose(
        0.0,
        -0.16 - tap,
        0.0,
        hand="pinch",
        reach=(0.03 + apart, 0.0),
        other=(-0.05 - apart, -0.16 - tap),
        apart=apart,
        effect=falling,
    )


def spin(t: float, length: float) -> Pose:
    """The target turns about itself and a hand keeps it going."""
    return Pose(0.26, 0.12 + 0.05 * wave(t, 1.2), hand="open", turn=150.0 * t)


def roll(t: float, length: float) -> Pose:
    """Roll the item over the target with both hands."""
    y = 0.045 * wave(t, 1.5) - 0.3 * _away(t, length)
    return Pose(
        0.0,
        y,
        2 * wave(t, 1.5),
        hand="fist",
        other=(-0.28, y),
        squash=1.0 - 0.25 * ease(t / length),
    )


def wrap(t: float, length: float) -> Pose:
    """Lead the item round the target."""
    return Pose(
        0.24 * wave(t, 2.2),
        -0.05 + 0.11 * wave(t + 0.55, 2.2),
        14 * wave(t, 2.2),
        hand="pinch",
        other=(-0.26, 0.10),
    )


def sweep(t: float, length: float) -> Pose:
    """Long strokes over the ground."""
    x = 0.26 * wave(t, 1.5)
    return Pose(x, 0.05 - 0.05 * abs(wave(t, 1.5)), 24 + 16 * wave(t, 1.5), other=None)


def spray(t: float, length: float) -> Pose:
    """Squirt a cone at the target, a squeeze at a time."""
    on = wave(t, 0.8) > -0.2 and _away(t, length) < 0.3
    return Pose(
        0.30 + 0.04 * wave(t, 2.3),
        -0.10 + 0.04 * wave(t, 1.7) - 0.2 * _away(t, length),
        -6,
        effect="mist" if on else None,
    )


def scoop(t: float, length: float) -> Pose:
    """Dip the item, lift it, tip it aside, again and again."""
    phase = (t % 2.6) / 2.6
    lift = math.sin(math.pi * phase)
    return Pose(
        0.16 * (1 - math.cos(2 * math.pi * phase)) / 2,
        0.04 - 0.20 * lift,
        28 + 34 * lift,
        inside=phase < 0.2 or phase > 0.85,
        effect="fill",
    )


def iron(t: float, length: float) -> Pose:
    """Slide the item flat over the target."""
    return Pose(
        0.20 * wave(t, 1.9),
        0.04 + 0.03 * wave(t, 3.3) - 0.25 * _away(t, length),
        2 * wave(t, 1.9),
        other=(-0.34, 0.10),
    )


def drill(t: float, length: float) -> Pose:
    """Push a trembling item straight down."""
    deep = 0.03 * ease((t - 0.8) / max(length - 1.6, 0.5))
    return Pose(
        0.003 * wave(t, 0.09),
        deep - 0.02 - 0.25 * _away(t, length),
        8 + wave(t, 0.11),
        other=(-0.26, 0.06),
    )


MOTIONS_BY_ACTION: dict[str, Motion] = {
    "pour": pour,
    "stir": stir,
    "cut": cut,
    "saw": saw,
    "place": place,
    "take": take,
    "press": press,
    "wipe": wipe,
    "brush": brush,
    "write": write,
    "turn": turn,
    "wrench": wrench,
    "hammer": hammer,
    "fold": fold,
    "shake": shake,
    "sprinkle": sprinkle,
    "squeeze": squeeze,
    "pump": pump,
    "sew": sew,
    "crack": crack,
    "spin": spin,
    "roll": roll,
    "wrap": wrap,
    "sweep": sweep,
    "spray": spray,
    "scoop": scoop,
    "iron": iron,
    "drill": drill,
}
