"""What flows, falls, fills and stays behind: streams, drops, dust, mist, paint and stitches."""

from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

from lab.drawn_videos.light import Point
from lab.drawn_videos.motions import MOTIONS_BY_ACTION, Pose
from lab.drawn_videos.paint import Color, darker, lighter

SURFACE_RADIUS = 0.80  # radius of a full vessel's surface, fraction of its rim's
TRAIL_STEP = 0.06  # s between the remembered points of a stroke
ARRIVAL_SECONDS = 0.7  # before a hand works


@dataclass(frozen=True)
class ContactPoints:
    """Where things meet, in pixels.

    opening: half axes of the target's rim. unit: pixels of one frame height.
    """

    work: Point
    tip: Point
    grip: Point
    opening: Point | None
    color: Color  # of what the item holds
    own: Color  # of what the target holds
    unit: float


def draw_fill(canvas: Image.Image, contact: ContactPoints, pose: Pose, fraction: float) -> None:
    """Draw the surface of what is in a hollow target. It rises while something is poured in."""
    if contact.opening is None or pose.effect not in ("stream", "fill", "drops", "dust"):
        return
    is_filling = pose.effect in ("stream", "drops") or not pose.inside
    size = min(1.0, 0.35 + 0.75 * fraction) if is_filling else 1.0
    opening_rx, opening_ry = contact.opening
    rx = opening_rx * SURFACE_RADIUS * size
    ry = opening_ry * SURFACE_RADIUS * size
    x, y = contact.work
    y = y + opening_ry * (1 - SURFACE_RADIUS) * 0.9
    color = contact.own if pose.inside else contact.color
    draw = ImageDraw.Draw(canvas)
    draw.ellipse([x - rx, y - ry, x + rx, y + ry], fill=darker(color, 0.12))
    surface = [x - rx * 0.93, y - ry * 0.9, x + rx * 0.93, y + ry * 0.94]
    draw.ellipse(surface, fill=color)
    shine = [x - rx * 0.6, y - ry * 0.6, x + rx * 0.5, y + ry * 0.5]
    draw.arc(shine, 180, 285, fill=lighter(color, 0.5), width=2)


def draw_effect(
    canvas: Image.Image, action: str, contact: ContactPoints, pose: Pose, t: float, length: float
) -> None:
    """Draw what is in the air, or what the item leaves on the target."""
    draw = ImageDraw.Draw(canvas)
    if pose.effect == "stream":
        _stream(draw, contact, t)
    elif pose.effect == "drops":
        _rain(draw, contact, t, count=6, size=0.013, spread=0.012)
    elif pose.effect == "dust":
        _rain(draw, contact, t, count=22, size=0.005, spread=0.07)
    elif pose.effect == "mist":
        _mist(canvas, contact, t)
    elif pose.effect in ("trail", "stitches"):
        _trail(draw, action, contact, t, length)


def _stream(draw: ImageDraw.ImageDraw, contact: ContactPoints, t: float) -> None:
    tip_x, tip_y = contact.tip
    work_x, work_y = contact.work
    points = []
    for index in range(9):
        fraction = index / 8
        x = tip_x + (work_x - tip_x) * fraction**0.5 * 0.6
        y = tip_y + (work_y - tip_y) * fraction
        points.append((x, y))

    # the stream, and the light on it
    thickness = 0.020 * contact.unit
    outer = max(2, round(thickness))
    inner = max(1, round(thickness * 0.45))
    draw.line(points, fill=darker(contact.color, 0.18), width=outer, joint="curve")
    draw.line(points, fill=lighter(contact.color, 0.25), width=inner, joint="curve")

    # a ring that grows where it ends
    end_x, end_y = points[-1]
    ripple = thickness * (1.2 + 0.5 * ((t * 3) % 1))
    rx = ripple * 1.6
    ry = ripple * 0.5
    ring = [end_x - rx, end_y - ry, end_x + rx, end_y + ry]
    draw.ellipse(ring, outline=lighter(contact.color, 0.5))


def _rain(
    draw: ImageDraw.ImageDraw,
    contact: ContactPoints,
    t: float,
    *,
    count: int,
    size: float,
    spread: float,
) -> None:
    """Draw `count` falling drops. Their size and their spread are in frame heights."""
    tip_x, tip_y = contact.tip
    fall = contact.work[1] - tip_y + 0.01 * contact.unit
    for index in range(count):
        rng = Random(index)
        offset = rng.uniform(-1, 1) * spread * contact.unit
        fraction = (t * 1.7 + rng.random()) % 1.0
        x = tip_x + offset * (0.3 + fraction)
        y = tip_y + fall * fraction * fraction
        radius = max(1.0, size * contact.unit * rng.uniform(0.6, 1.0))
        outline = darker(contact.color, 0.2) if radius > 3 else None
        drop = [x - radius, y - radius * 1.3, x + radius, y + radius * 1.3]
        draw.ellipse(drop, fill=contact.color, outline=outline)


def _mist(canvas: Image.Image, contact: ContactPoints, t: float) -> None:
    cloud = Image.new("RGBA", canvas.size)
    draw = ImageDraw.Draw(cloud)
    rng = Random(round(t * 12))
    tip_x, tip_y = contact.tip
    work_x, work_y = contact.work
    for _ in range(70):
        fraction = rng.random()
        x = tip_x + (work_x - tip_x) * fraction
        y = tip_y + (work_y - tip_y) * fraction
        y += rng.uniform(-1, 1) * 0.11 * fraction * contact.unit
        radius = contact.unit * 0.006 * (0.6 + fraction)
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(*contact.color, 150))
    canvas.paste(cloud, (0, 0), cloud)


def _trail(
    draw: ImageDraw.ImageDraw, action: str, contact: ContactPoints, t: float, length: float
) -> None:
    """Draw where the item has been: a broad band of paint, a pen's line or a row of stitches."""
    motion = MOTIONS_BY_ACTION[action]
    unit = contact.unit
    work_x, work_y = contact.work
    points = []
    for index in range(max(2, int(t / TRAIL_STEP))):
        second = index * TRAIL_STEP
        past = motion(second, length)
        if past.effect in ("trail", "stitches") and second > ARRIVAL_SECONDS:
            points.append((work_x + past.x * unit, work_y + past.y * unit))
    if len(points) < 2:
        return
    if action == "brush":
        draw.line(points, fill=contact.color, width=max(3, round(0.06 * unit)), joint="curve")
    elif action == "write":
        draw.line(points, fill="#24283c", width=max(2, round(0.008 * unit)), joint="curve")
    else:
        _stitches(draw, round(points[0][0]), round(points[-1][0]), work_y, unit)


def _stitches(draw: ImageDraw.ImageDraw, start: int, end: int, y: float, unit: float) -> None:
    """Draw a row of stitches from one x to another."""
    gap = max(4, round(0.03 * unit))
    length = 0.018 * unit
    width = max(2, round(0.007 * unit))
    for x in range(start, end, gap):
        draw.line([(x, y), (x + length, y)], fill="#be2832", width=width)
