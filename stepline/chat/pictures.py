"""Pictures and clips of a video in chat messages: lettered, one by one or in one sheet; about how
many tokens."""

import base64
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from stepline.chat.servers import Content
from stepline.chat.settings import VideoForm

LETTERS = "ABCDEFGHIJKLMNOPQRST"
ACROSS = 4  # pictures side by side in one
# characters and pixels of a token, about; providers' own rules lie around it
TEXT_TOKENS, PICTURE_TOKENS = 4, 750

# Seconds -> a JPEG of each that there is, or an mp4 of what is around it.
PictureReader: TypeAlias = Callable[[Sequence[float]], dict[float, bytes]]


@dataclass(frozen=True)
class VideoPictures:
    """Pictures of a video, or of a part of it.

    read: by their seconds. duration: of it, in seconds. start: second of the whole video at which
    the part begins.
    """

    read: PictureReader
    duration: float
    start: float = 0.0


def with_pictures(
    text: str, pictures: Sequence[bytes], *, together: bool = False, video: VideoForm | None = None
) -> Content:
    """Return a message of a text and pictures (JPEG), each after its letter. together: all of them
    in one.

    video: of the parts of clips (mp4), where those stand in place of pictures.
    """
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}]
    if together:
        return [*parts, _picture(side_by_side(pictures))]
    for letter, picture in zip(LETTERS, pictures, strict=False):
        parts += [
            {"type": "text", "text": f"{letter}:"},
            _clip(picture, video) if video else _picture(picture),
        ]
    return parts


def question_tokens(text: int, pictures: Sequence[tuple[int, int]]) -> int:
    """Return about how many tokens a question takes: its characters, its pictures' widths and
    heights."""
    pixels = sum(width * height for width, height in pictures)
    return math.ceil(text / TEXT_TOKENS) + math.ceil(pixels / PICTURE_TOKENS)


def side_by_side(pictures: Sequence[bytes]) -> bytes:
    """Return one JPEG of all pictures, each with its letter in the corner, four in a row."""
    from PIL import Image, ImageDraw

    opened = [Image.open(io.BytesIO(picture)).convert("RGB") for picture in pictures]
    width, height = max(one.width for one in opened), max(one.height for one in opened)
    rows = math.ceil(len(opened) / ACROSS)
    sheet = Image.new("RGB", (width * min(ACROSS, len(opened)), height * rows))
    draw = ImageDraw.Draw(sheet)
    for n, one in enumerate(opened):
        corner = (n % ACROSS * width, n // ACROSS * height)
        sheet.paste(one, corner)
        draw.rectangle((*corner, corner[0] + 22, corner[1] + 22), fill="black")
        draw.text((corner[0] + 6, corner[1] + 2), LETTERS[n], fill="white", font_size=18)
    return jpeg(sheet)


def jpeg(image: Any) -> bytes:
    """Return a PIL image, or an array (H, W, 3) uint8, as JPEG."""
    from PIL import Image

    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return buffer.getvalue()


def _picture(data: bytes) -> dict[str, Any]:
    url = "data:image/jpeg;base64," + base64.b64encode(data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": url}}


def _clip(data: bytes, form: VideoForm) -> dict[str, Any]:
    """Return the part of a clip: as vLLM, SGLang and hosted servers take it, or as llama.cpp
    does."""
    text = base64.b64encode(data).decode("ascii")
    if form == "input_video":
        return {"type": "input_video", "input_video": {"data": text}}
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{text}"}}
