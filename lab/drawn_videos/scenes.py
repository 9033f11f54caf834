"""Backgrounds: a wall of the place above, a table below, out of focus as a lens would have them,
and title cards."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from lab.drawn_videos.paint import Color, Paint, Pen, darker, lighter, palette
from lab.drawn_videos.things import THINGS_BY_NAME
from lab.drawn_videos.things.thing import LEAF_COLOR, SOFT_COLORS, WOOD_COLOR

HORIZON_HEIGHT = 0.36  # where the table's far edge lies, fraction of the frame's height
BLUR_RADIUS = 0.006  # of the wall, fraction of the frame's height
CAPTION_CHARS = 20  # of a title card's line

Wall: TypeAlias = Callable[[Image.Image, Random], None]
Texture: TypeAlias = npt.NDArray[np.float32]


def background(place: str, seed: int, width: int, height: int, *, table: bool) -> Image.Image:
    """Return the RGB picture of a place, `table` with a table top in front of the wall."""
    rng = Random(f"{place} {seed}")
    image = Image.new("RGB", (width, height))
    WALL_PAINTERS[place](image, rng)
    # a wall behind a presenter is farther out of focus
    blur = BLUR_RADIUS * height * (1.0 if table else 1.6)
    image = image.filter(ImageFilter.GaussianBlur(blur))
    if table:
        top = round(HORIZON_HEIGHT * height)
        image.paste(_table(place, rng, seed, width, height - top), (0, top))
        draw = ImageDraw.Draw(image)
        edge_width = max(1, height // 200)
        draw.line([(0, top), (width, top)], fill="#322822", width=edge_width)
    return image


def noise(seed: int, width: int, height: int, cell_x: int, cell_y: int) -> Texture:
    """Return smooth noise in [-1, 1], (height, width), with blobs of about cell_x by cell_y
    pixels."""
    rng = np.random.default_rng(seed)
    rows = max(2, height // cell_y + 2)
    columns = max(2, width // cell_x + 2)
    values = rng.random((rows, columns), dtype=np.float32)
    small = Image.fromarray((values * 255).astype(np.uint8))
    large = small.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(large, np.float32) / 127.5 - 1.0


# ------------------------------------------------------------ tables

TABLE_MATERIALS: dict[str, tuple[str, ...]] = {
    "kitchen": ("wood", "marble", "laminate"),
    "workshop": ("wood", "bench"),
    "garden": ("bench", "wood"),
    "sewing room": ("laminate", "wood", "linen"),
    "garage": ("concrete", "bench"),
    "living room": ("wood", "linen"),
}


def _table(place: str, rng: Random, seed: int, width: int, height: int) -> Image.Image:
    material = rng.choice(TABLE_MATERIALS[place])
    # every material draws, so that the draws after it do not depend on the material
    colors: dict[str, Color] = {
        "wood": rng.choice(palette("#b28052 #8e603c #cea474")),
        "bench": rng.choice(palette("#967a5c #806850")),
        "marble": (226, 224, 222),
        "laminate": rng.choice(palette("#dcd6cc #a8b0b4 #e8e8e6")),
        "linen": rng.choice(palette("#d6cebe #b0bec8 #ceb4aa")),
        "concrete": (150, 150, 148),
    }
    # brighter towards the camera and towards the light on the left
    towards_camera = np.linspace(0.86, 1.08, height, dtype=np.float32)[:, None]
    light = towards_camera * np.ones((1, width), np.float32)
    light += _grain(material, seed, width, height)
    side = np.linspace(1.06, 0.92, width, dtype=np.float32)[None, :]
    pixels = np.asarray(colors[material], np.float32) * (light * side)[..., None]
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _grain(material: str, seed: int, width: int, height: int) -> Texture:
    """Return the pattern of a table top, added to its light."""
    if material in ("wood", "bench"):
        return _wood_grain(material, seed, width, height)
    if material == "marble":
        large = noise(seed, width, height, 120, 60)
        small = noise(seed + 1, width, height, 40, 24)
        veins = np.abs(large + 0.5 * small)
        return np.asarray(-0.22 * np.exp(-14 * veins), np.float32)
    if material == "linen":
        rows = np.arange(height)[:, None] % 4 < 2
        columns = np.arange(width)[None, :] % 4 < 2
        folds = noise(seed, width, height, 90, 50)
        return np.asarray(0.03 * (rows ^ columns) + 0.03 * folds, np.float32)
    blotches = noise(seed, width, height, 50, 24)
    dust = noise(seed + 1, width, height, 4, 3)
    return np.asarray(0.035 * blotches + 0.02 * dust, np.float32)


def _wood_grain(material: str, seed: int, width: int, height: int) -> Texture:
    """Return fibres along the table, and the joints between its boards."""
    strength = 0.10 if material == "wood" else 0.16
    fibres = noise(seed, width, height, 260, 3)
    blotches = noise(seed + 1, width, height, 400, 40)
    grain = strength * fibres + 0.05 * blotches
    for row in range(1, 5):
        y = round(height * (row / 5) ** 1.5)
        grain[y : y + 2] -= 0.30
    return np.asarray(grain, np.float32)


# ------------------------------------------------------------ walls


def _wash(image: Image.Image, top: Color, bottom: Color) -> ImageDraw.ImageDraw:
    """Fill with a vertical gradient and return a pen for it."""
    height = image.height
    ramp = np.linspace(0.0, 1.0, height, dtype=np.float32)[:, None, None]
    top_part = np.asarray(top, np.float32) * (1 - ramp)
    column = top_part + np.asarray(bottom, np.float32) * ramp
    pixels = np.broadcast_to(column, (height, image.width, 3))
    image.paste(Image.fromarray(pixels.astype(np.uint8)))
    return ImageDraw.Draw(image)


def _stand(image: Image.Image, name: str, x: float, y: float, size: float, rng: Random) -> None:
    """Put a thing on a shelf: x, y its foot in frame heights, size in frame heights."""
    side = max(8, round(size * image.height))
    pen = Pen(side, rng.randrange(1000))
    THINGS_BY_NAME[name].draw(pen, rng)
    sprite = pen.image()
    _, _, _, foot = sprite.getbbox() or (0, 0, side, side)
    sprite_x = round(x * image.height - side / 2)
    sprite_y = round(y * image.height - foot)
    image.paste(sprite, (sprite_x, sprite_y), sprite)


def _shelf(
    image: Image.Image,
    draw: ImageDraw.ImageDraw,
    y: float,
    names: list[str],
    rng: Random,
    color: Paint,
) -> None:
    """Draw a board across the wall with things on it."""
    h = image.height
    board_end = (y + 0.022) * h
    shade_end = (y + 0.034) * h
    draw.rectangle([0, y * h, image.width, board_end], fill=color)
    draw.rectangle([0, board_end, image.width, shade_end], fill=darker(color, 0.4))
    x = rng.uniform(0.08, 0.2)
    while x < image.width / h:
        _stand(image, rng.choice(names), x, y, rng.uniform(0.14, 0.19), rng)
        x += rng.uniform(0.16, 0.30)


def _kitchen(image: Image.Image, rng: Random) -> None:
    h, w = image.height, image.width
    color = rng.choice(palette("#e2ded4 #c4d4d6 #e0d0ba"))
    draw = _wash(image, lighter(color, 0.1), color)
    # tiles twice as wide as high, every second row moved by half a tile
    step = h // 13
    for row in range(h // step + 1):
        for column in range(-1, w // (2 * step) + 1):
            x = column * 2 * step + (row % 2) * step
            y = row * step
            tile = [x, y, x + 2 * step - 2, y + step - 2]
            draw.rectangle(tile, fill=lighter(color, rng.uniform(0.05, 0.3)))
    names = ["jar", "bottle", "bowl", "mug", "teapot", "pitcher", "salt", "cup"]
    _shelf(image, draw, 0.20, names, rng, WOOD_COLOR)
    _cupboards(draw, w, h, rng)


def _cupboards(draw: ImageDraw.ImageDraw, width: int, height: int, rng: Random) -> None:
    """Draw the kitchen's lower cupboards, seen behind a presenter."""
    color = rng.choice(palette("#eceae4 #5c787c #aa7a50 #4a5c50"))
    top = 0.62 * height
    draw.rectangle([0, top, width, height], fill=color)
    draw.rectangle([0, top - 0.03 * height, width, top], fill="#605852")
    for index in range(5):
        x = width * index / 5
        door = [x + 6, top + 8, x + width / 5 - 6, height - 8]
        draw.rectangle(door, outline=darker(color, 0.25), width=2)
        draw.ellipse([x + 16, top + 30, x + 22, top + 36], fill="#beb496")


def _workshop(image: Image.Image, rng: Random) -> None:
    h, w = image.height, image.width
    color = rng.choice(palette("#ba9a70 #969896 #aca08c"))
    draw = _wash(image, color, darker(color, 0.15))
    # a board with holes, and tools that hang on it
    hole_gap = max(6, h // 22)
    for row in range(0, h, hole_gap):
        for column in range(0, w, hole_gap):
            draw.ellipse([column, row, column + 3, row + 3], fill=darker(color, 0.45))
    tools = ["hammer", "wrench", "screwdriver", "saw", "scissors", "paint brush"]
    x = 0.12
    while x < w / h:
        name = rng.choice(tools)
        _stand(image, name, x, rng.uniform(0.26, 0.34), 0.24, rng)
        x += rng.uniform(0.15, 0.26)
    names = ["paint can", "toolbox", "jar", "oil can", "glue", "drill", "cardboard box"]
    _shelf(image, draw, 0.70, names, rng, "#6e543a")


def _garden(image: Image.Image, rng: Random) -> None:
    h, w = image.height, image.width
    draw = _wash(image, (146, 190, 228), (214, 230, 238))
    # bushes, some of them with a flower
    greens = [LEAF_COLOR, (56, 112, 52), (96, 150, 70), (44, 92, 46)]
    for index in range(70):
        x = rng.uniform(0, w)
        y = rng.uniform(0.14, 0.34) * h
        r = rng.uniform(0.03, 0.09) * h
        draw.ellipse([x - r, y - r, x + r, y + r], fill=rng.choice(greens))
        if index % 7 == 0:
            draw.ellipse([x - 4, y - 4, x + 4, y + 4], fill=rng.choice(SOFT_COLORS))
    # grass and a fence
    draw.rectangle([0, 0.33 * h, w, h], fill="#709e4c")
    for index in range(12):
        x = w * index / 12
        draw.rectangle([x, 0.16 * h, x + w / 26, 0.40 * h], fill="#ded6c8")
    draw.rectangle([0, 0.22 * h, w, 0.25 * h], fill="#d6cebe")
    x = 0.15
    while x < w / h:
        name = rng.choice(["plant", "flower", "flower pot"])
        foot = rng.uniform(0.42, 0.62)
        size = rng.uniform(0.16, 0.26)
        _stand(image, name, x, foot, size, rng)
        x += rng.uniform(0.2, 0.4)


def _room(image: Image.Image, rng: Random, names: list[str]) -> None:
    h, w = image.height, image.width
    color = rng.choice(palette("#d8ccbe #bcc8c2 #d6beb8 #bec4d4"))
    draw = _wash(image, color, darker(color, 0.12))
    # a window
    x = rng.uniform(0.08, 0.5) * w
    draw.rectangle([x, 0.03 * h, x + 0.26 * w, 0.30 * h], fill="#f0eee8")
    draw.rectangle([x + 6, 0.05 * h, x + 0.26 * w - 6, 0.28 * h], fill="#b2d4ec")
    draw.rectangle([x + 0.126 * w, 0.03 * h, x + 0.134 * w, 0.30 * h], fill="#f0eee8")
    # a picture
    x = (x + 0.45 * w) % (0.8 * w)
    draw.rectangle([x, 0.06 * h, x + 0.12 * w, 0.24 * h], fill="#5e4632")
    canvas = [x + 5, 0.06 * h + 5, x + 0.12 * w - 5, 0.24 * h - 5]
    draw.rectangle(canvas, fill=rng.choice(SOFT_COLORS))
    _shelf(image, draw, 0.62, names, rng, "#966c4a")


def _sewing_room(image: Image.Image, rng: Random) -> None:
    names = ["thread spool", "cloth", "scissors", "jar", "button", "iron", "cardboard box"]
    _room(image, rng, names)


def _living_room(image: Image.Image, rng: Random) -> None:
    _room(image, rng, ["candle", "plant", "mug", "gift", "cardboard box", "teapot"])


def _garage(image: Image.Image, rng: Random) -> None:
    h, w = image.height, image.width
    draw = _wash(image, (176, 178, 180), (140, 142, 146))
    for row in range(12):
        y = row * h / 12
        draw.line([(0, y), (w, y)], fill="#7c7e82", width=2)
    _stand(image, "wheel", 0.35, 0.40, 0.34, rng)
    _stand(image, "tyre", 1.30, 0.38, 0.32, rng)
    names = ["oil can", "toolbox", "paint can", "pump", "bucket", "spray bottle"]
    _shelf(image, draw, 0.72, names, rng, "#5a5c62")


WALL_PAINTERS: dict[str, Wall] = {
    "kitchen": _kitchen,
    "workshop": _workshop,
    "garden": _garden,
    "sewing room": _sewing_room,
    "garage": _garage,
    "living room": _living_room,
}


def title_card(image: Image.Image, caption: str) -> Image.Image:
    """Return a title card: the blurred place, darkened, with its caption in the middle."""
    blurred = image.filter(ImageFilter.GaussianBlur(9))
    dark = Image.new("RGB", image.size, (24, 28, 38))
    card = Image.blend(blurred, dark, 0.5)
    draw = ImageDraw.Draw(card)
    lines = [""]
    for word in caption.split():
        if len(lines[-1]) + len(word) > CAPTION_CHARS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    font = ImageFont.load_default(card.height * 0.11)
    x = card.width / 2
    middle_line = (len(lines) - 1) / 2
    for index, line in enumerate(lines):
        y = card.height * (0.5 + 0.15 * (index - middle_line))
        draw.text((x + 2, y + 3), line, font=font, fill="#0a0a0e", anchor="mm")
        draw.text((x, y), line, font=font, fill="#faf6ec", anchor="mm")
    return card
