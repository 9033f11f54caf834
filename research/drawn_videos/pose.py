"""Where item, hands and target are at one moment of an action."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from research.drawn_videos.hands import HandPose
from research.drawn_videos.light import Point

Effect: TypeAlias = Literal["stream", "drops", "dust", "mist", "trail", "stitches", "fill"]


@dataclass(frozen=True)
class Pose:
    """Where item, hands and target are at one moment.

    x, y: the item's working point. hand: None when it is out of the picture. reach: how far the hand is off the item.
    other: the second hand. inside: the item goes behind the near wall of a hollow target.
    squash: height of the target. turn: its rotation. fold: share folded over. apart: between the item's halves.
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


def ease(share: float) -> float:
    """Return a smooth way from 0 to 1, held at both ends."""
    share = min(1.0, max(0.0, share))
    return share * share * (3 - 2 * share)
