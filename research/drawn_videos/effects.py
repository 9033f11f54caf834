"""What flows, falls, fills and stays behind: streams, drops, dust, mist, paint and stitches."""

from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

from research.drawn_videos.light import Point
from research.drawn_videos.motions import MOTIONS
from research.drawn_videos.paint import Color, darker, lighter
from research.drawn_videos.pose import Pose

LEVEL = 0.80  # radius of a full vessel's surface, share of its rim's
TRAIL_STEP = 0.06  # s between the remembered points of a stroke


@dataclass(frozen=True)
class Meeting:
    """Where things meet, in pixels; `opening`: half axes of the target's rim; `unit`: pixels of one frame height."""

    work: Point
    tip: Point
    grip: Point
    opening: Point | None
    color: Color  # of what the item holds
    own: Color  # of what the target holds
    unit: float


def draw_fill(canvas: Image.Image, meet: Meeting, pose: Pose, share: float) -> None:
    """Draw the surface of what is in a hollow target; it rises while something is poured in."""
    if meet.opening is None or pose.effect not in ("stream", "fill", "drops", "dust"):
        return
    full = min(1.0, 0.35 + 0.75 * share) if pose.effect in ("stream", "drops") or not pose.inside else 1.0
    rx, ry = meet.opening[0] * LEVEL * full, meet.opening[1] * LEVEL * full
    x, y = meet.work[0], meet.work[1] + meet.opening[1] * (1 - LEVEL) * 0.9
    color = meet.own if pose.inside else meet.color
    draw = ImageDraw.Draw(canvas)
    draw.ellipse([x - rx, y - ry, x + rx, y + ry], fill=darker(color, 0.12))
    draw.ellipse([x - rx * 0.93, y - ry * 0.9, x + rx * 0.93, y + ry * 0.94], fill=color)
    draw.arc([x - rx * 0.6, y - ry * 0.6, x + rx * 0.5, y + ry * 0.5], 180, 285, fill=lighter(color, 0.5), width=2)


def draw_effect(canvas: Image.Image, action: str, meet: Meeting, pose: Pose, t: float, length: float) -> None:
    """Draw what is in the air, or what the item leaves on the target."""
    draw = ImageDraw.Draw(canvas)
    if pose.effect == "stream":
        _stream(draw, meet, t)
    elif pose.effect in ("drops", "dust"):
        _rain(draw, meet, t, 6 if pose.effect == "drops" else 22, 0.013 if pose.effect == "drops" else 0.005)
    elif pose.effect == "mist":
        _mist(canvas, meet, t)
    elif pose.effect in ("trail", "stitches"):
        _trail(draw, action, meet, t, length)


def _stream(draw: ImageDraw.ImageDraw, meet: Meeting, t: float) -> None:
    wide = 0.020 * meet.unit
    x, y = meet.tip
    points = []
    for index in range(9):
        share = index / 8
        points.append((x + (meet.work[0] - x) * share**0.5 * 0.6, y + (meet.work[1] - y) * share))
    draw.line(points, fill=darker(meet.color, 0.18), width=max(2, round(wide)), joint="curve")
    draw.line(points, fill=lighter(meet.color, 0.25), width=max(1, round(wide * 0.45)), joint="curve")
    end, ripple = points[-1], wide * (1.2 + 0.5 * ((t * 3) % 1))
    draw.ellipse(
        [end[0] - ripple * 1.6, end[1] - ripple * 0.5, end[0] + ripple * 1.6, end[1] + ripple * 0.5],
        outline=lighter(meet.color, 0.5),
    )


def _rain(draw: ImageDraw.ImageDraw, meet: Meeting, t: float, count: int, size: float) -> None:
    for index in range(count):
        rng = Random(index)
        spread = rng.uniform(-1, 1) * (0.012 if count < 10 else 0.07) * meet.unit
        share = (t * 1.7 + rng.random()) % 1.0
        x = meet.tip[0] + spread * (0.3 + share)
        y = meet.tip[1] + (meet.work[1] - meet.tip[1] + 0.01 * meet.unit) * share * share
        radius = max(1.0, size * meet.unit * rng.uniform(0.6, 1.0))
        draw.ellipse(
            [x - radius, y - radius * 1.3, x + radius, y + radius * 1.3],
            fill=meet.color,
            outline=darker(meet.color, 0.2) if radius > 3 else None,
        )


def _mist(canvas: Image.Image, meet: Meeting, t: float) -> None:
    cloud = Image.new("RGBA", canvas.size)
    draw = ImageDraw.Draw(cloud)
    rng = Random(round(t * 12))
    for _ in range(70):
        share = rng.random()
        x = meet.tip[0] + (meet.work[0] - meet.tip[0]) * share
        y = meet.tip[1] + (meet.work[1] - meet.tip[1]) * share + rng.uniform(-1, 1) * 0.11 * share * meet.unit
        radius = meet.unit * 0.006 * (0.6 + share)
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(*meet.color, 150))
    canvas.paste(cloud, (0, 0), cloud)


def _trail(draw: ImageDraw.ImageDraw, action: str, meet: Meeting, t: float, length: float) -> None:
    """Draw where the item has been: a broad band of paint, a pen's line or a row of stitches."""
    motion = MOTIONS[action]
    points = []
    for index in range(max(2, int(t / TRAIL_STEP))):
        past = motion(index * TRAIL_STEP, length)
        if past.effect in ("trail", "stitches") and index * TRAIL_STEP > 0.7:
            points.append((meet.work[0] + past.x * meet.unit, meet.work[1] + past.y * meet.unit))
    if len(points) < 2:
        return
    if action == "brush":
        draw.line(points, fill=meet.color, width=max(3, round(0.06 * meet.unit)), joint="curve")
    elif action == "write":
        draw.line(points, fill=(36, 40, 60), width=max(2, round(0.008 * meet.unit)), joint="curve")
    else:
        y = meet.work[1]
        for x in range(round(points[0][0]), round(points[-1][0]), max(4, round(0.03 * meet.unit))):
            draw.line([(x, y), (x + 0.018 * meet.unit, y)], fill=(190, 40, 50), width=max(2, round(0.007 * meet.unit)))
