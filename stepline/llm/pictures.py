"""Images of a video in chat messages, one by one or as a contact sheet, and their estimated number
of tokens."""

import base64
import io
import math
from collections.abc import Callable, Sequence
from typing import Any

from stepline.llm.servers import Content

PICTURE_LETTERS = "ABCDEFGHIJKLMNOPQRST"
PICTURES_PER_SHEET_ROW = 4  # pictures side by side in one
# Estimates near the rules of several providers.
CHARS_PER_TOKEN = 4
PIXELS_PER_TOKEN = 750

# Returns second -> JPEG for those of the given seconds that can be decoded.
PictureReader = Callable[[Sequence[float]], dict[float, bytes]]


def with_pictures(text: str, pictures: Sequence[bytes], *, in_one_image: bool = False) -> Content:
    """Return a chat message of a text and images, lettered A, B, ...

    Args:
        text: the prompt.
        pictures: the images, as JPEG files.
        in_one_image: whether all images are joined into one contact sheet.
    """
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if in_one_image:
        return [*parts, _picture_part(contact_sheet(pictures))]
    for letter, picture in zip(PICTURE_LETTERS, pictures, strict=False):
        parts.append({"type": "text", "text": f"{letter}:"})
        parts.append(_picture_part(picture))
    return parts


def question_tokens(text: int, pictures: Sequence[tuple[int, int]]) -> int:
    """Return the estimated number of tokens of a prompt.

    Args:
        text: number of characters of its text.
        pictures: (width, height) of each of its images, in pixels.
    """
    pixels = sum(width * height for width, height in pictures)
    return math.ceil(text / CHARS_PER_TOKEN) + math.ceil(pixels / PIXELS_PER_TOKEN)


def contact_sheet(pictures: Sequence[bytes]) -> bytes:
    """Return one JPEG with all images in rows of four, each with its letter in the top left corner.

    pictures: the images, as JPEG files.
    """
    from PIL import Image, ImageDraw

    images = [Image.open(io.BytesIO(picture)).convert("RGB") for picture in pictures]
    # every picture has the cell of the largest one
    width = max(image.width for image in images)
    height = max(image.height for image in images)
    columns = min(PICTURES_PER_SHEET_ROW, len(images))
    rows = math.ceil(len(images) / PICTURES_PER_SHEET_ROW)
    sheet = Image.new("RGB", (width * columns, height * rows))
    draw = ImageDraw.Draw(sheet)
    for number, image in enumerate(images):
        row, column = divmod(number, PICTURES_PER_SHEET_ROW)
        left, top = column * width, row * height
        sheet.paste(image, (left, top))
        draw.rectangle((left, top, left + 22, top + 22), fill="black")
        draw.text((left + 6, top + 2), PICTURE_LETTERS[number], fill="white", font_size=18)
    return jpeg(sheet)


def jpeg(image: Any) -> bytes:
    """Return a PIL image, or an array (H, W, 3) uint8, as JPEG bytes."""
    from PIL import Image

    if not isinstance(image, Image.Image):
        image = Image.fromarray(image)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def _picture_part(data: bytes) -> dict[str, Any]:
    """Return a JPEG as the part of a chat message."""
    text = base64.b64encode(data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{text}"}}
