"""What flows, falls, fills and stays behind: streams, drops, dust, mist, paint and stitches."""

from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

from research.drawn_videos.light import Point
from research.drawn_videos.motions import MOTIONS_BY_ACTION, Pose
from research.drawn_videos.paint import Color, darker, lighter

SURFACE_RADIUS = 0.80  # radius of a full vessel's surface, fraction of its rim's
TRAIL_STEP = 0.06  # s between the remembered points of a stroke


@dataclass(frozen=True)
class ContactPoints:
    """Where things meet, in pixels. `opening`: half axes of the target's rim. `unit`: pixels of one
    frame height."""

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
    full = (
        min(1.0, 0.35 + 0.75 * fraction)
        if pose.effect in ("stream", "drops") or not pose.inside
        else 1.0
    )
    rx, ry = contact.opening[0] * SURFACE_RADIUS * full, contact.opening[1] * SURFACE_RADIUS * full
    x, y = contact.work[0], contact.work[1] + contact.opening[1] * (1 - SURFACE_RADIUS) * 0.9
    color = contact.own if pose.inside else contact.color
    draw = ImageDraw.Draw(canvas)
    draw.ellipse([x - rx, y - ry, x + rx, y + ry], fill=darker(color, 0.12))
    draw.ellipse([x - rx * 0.93, y - ry * 0.9, x + rx * 0.93, y + ry * 0.94], fill=color)
    draw.arc(
        [x - rx * 0.6, y - ry * 0.6, x + rx * 0.5, y + ry * 0.5],
        180,
        285,
        fill=lighter(color, 0.5),
        width=2,
    )


def draw_effect(
    canvas: Image.Image, action: str, contact: ContactPoints, pose: Pose, t: float, length: float
) -> None:
    """Draw what is in the air, or what the item leaves on the target."""
    draw = ImageDraw.Draw(canvas)
    if pose.effect == "stream":
        _stream(draw, contact, t)
    elif pose.effect in ("drops", "dust"):
        _rain(
            draw,
            contact,
            t,
            6 if pose.effect == "drops" else 22,
            0.013 if pose.effect == "drops" else 0.005,
        )
    elif pose.effect == "mist":
        _mist(canvas, contact, t)
    elif pose.effect in ("trail", "stitches"):
        _trail(draw, action, contact, t, length)


def _stream(draw: ImageDraw.ImageDraw, contact: ContactPoints, t: float) -> None:
    wide = 0.020 * contact.unit
    x, y = contact.tip
    points = []
    for index in range(9):
        fraction = index / 8
        points.append(
            (x + (contact.work[0] - x) * fraction**0.5 * 0.6, y + (contact.work[1] - y) * fraction)
        )
    draw.line(points, fill=darker(contact.color, 0.18), width=max(2, round(wide)), joint="curve")
    draw.line(
        points, fill=lighter(contact.color, 0.25), width=max(1, round(wide * 0.45)), joint="curve"
    )
    end, ripple = points[-1], wide * (1.2 + 0.5 * ((t * 3) % 1))
    draw.ellipse(
        [
            end[0] - ripple * 1.6,
            end[1] - ripple * 0.5,
            end[0] + ripple * 1.6,
            end[1] + ripple * 0.5,
        ],
        outline=lighter(contact.color, 0.5),
    )


def _rain(
    draw: ImageDraw.ImageDraw, contact: ContactPoints, t: float, count: int, size: float
) -> None:
    for index in range(count):
        rng = Random(index)
        spread = rng.uniform(-1, 1) * (0.012 if count < 10 else 0.07) * contact.unit
        fraction = (t * 1.7 + rng.random()) % 1.0
        x = contact.tip[0] + spread * (0.3 + fraction)
        y = (
            contact.tip[1]
            + (contact.work[1] - contact.tip[1] + 0.01 * contact.unit) * fraction * fraction
        )
        radius = max(1.0, size * contact.unit * rng.uniform(0.6, 1.0))
        draw.ellipse(
            [x - radius, y - radius * 1.3, x + radius, y + radius * 1.3],
            fill=contact.color,
            outline=darker(contact.color, 0.2) if radius > 3 else None,
        )


def _mist(canvas: Image.Image, contact: ContactPoints, t: float) -> None:
    cloud = Image.new("RGBA", canvas.size)
    draw = ImageDraw.Draw(cloud)
    rng = Random(round(t * 12))
    for _ in range(70):
        fraction = rng.random()
        x = contact.tip[0] + (contact.work[0] - contact.tip[0]) * fraction
        y = (
            contact.tip[1]
            + (contact.work[1] - contact.tip[1]) * fraction
            + rng.uniform(-1, 1) * 0.11 * fraction * contact.unit
        )
        radius = contact.unit * 0.006 * (0.6 + fraction)
        draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=(*contact.color, 150))
    canvas.paste(cloud, (0, 0), cloud)


def _trail(
    draw: ImageDraw.ImageDraw, action: str, contact: ContactPoints, t: float, length: float
) -> None:
    """Draw where the item has been: a broad band of paint, a pen's line or a row of stitches."""
    motion = MOTIONS_BY_ACTION[action]
    points = []
    for index in range(max(2, int(t / TRAIL_STEP))):
        past = motion(index * TRAIL_STEP, length)
        if past.effect in ("trail", "stitches") and index * TRAIL_STEP > 0.7:
            points.append(
                (contact.work[0] + past.x * contact.unit, contact.work[1] + past.y * contact.unit)
            )
    if len(points) < 2:
        return
    if action == "brush":
        draw.line(
            points, fill=contact.color, width=max(3, round(0.06 * contact.unit)), joint="curve"
        )
    elif action == "write":
        draw.line(points, fill="#24283c", width=max(2, round(0.008 * contact.unit)), joint="curve")
    else:
        y = contact.work[1]
        for x in range(
            round(points[0][0]), round(points[-1][0]), max(4, round(0.03 * contact.unit))
        ):
            draw.line(
                [(x, y), (x + 0.018 * contact.unit, y)],
                fill="#be2832",
                width=max(2, round(0.007 * contact.unit)),
            )
