"""Pictures: which frame is on screen at a second, upright and at the wanted size."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.media.hdr import is_high_range, standard_picture

Image = npt.NDArray[np.uint8]

# Times the wanted size that a scaled picture may be long; a longer one is squeezed, as no JPEG
# holds it.
MAX_SIDE_RATIO = 16

JPEG_QUALITY = 82  # of JPEG
MOST_BYTES = 1 << 25  # of thumbnails in memory, about half an hour of them
ROUNDING_SECONDS = 1e-6  # s, of rounding


@dataclass(frozen=True)
class Frame:
    """What is on screen at `time` seconds from the start of the video: image (H, W, 3) uint8 RGB,
    upright.

    Two frames may share one array where the picture stands still: do not write into it.
    """

    time: float
    image: Image


class FrameScaler:
    """Turns decoded frames into upright RGB arrays, all of one size.

    shorter: pixels of the shorter side; width: pixels across instead; neither: full size. aspect:
    width over height of a stored pixel. The first frame decides the size.
    """

    def __init__(
        self, *, shorter: int | None = None, width: int | None = None, aspect: float = 1.0
    ) -> None:
        from av.video.reformatter import VideoReformatter

        self._shorter, self._width, self.aspect = shorter, width, aspect
        self._swscale: Any = VideoReformatter()  # one for all frames: it keeps its tables
        self._size: tuple[int, int] | None = None

    def image(self, frame: Any) -> Image:
        """Return a frame as (H, W, 3) uint8 RGB of standard range, upright, with square pixels."""
        turned = quarter_turns(frame)
        if self._size is None:
            full = display_size(frame, self.aspect)
            scale = 1.0 if self._shorter is None else self._shorter / min(full)
            scale = scale if self._width is None else self._width / full[0]
            self._size = max(1, round(full[0] * scale)), max(1, round(full[1] * scale))
            if (wanted := self._width or self._shorter) is not None:
                self._size = (
                    min(self._size[0], MAX_SIDE_RATIO * wanted),
                    min(self._size[1], MAX_SIDE_RATIO * wanted),
                )
        width, height = self._size if turned % 2 == 0 else self._size[::-1]
        high_range = is_high_range(frame)
        format = "rgb48le" if high_range else "rgb24"
        small = self._swscale.reformat(frame, width, height, format, interpolation="BILINEAR")
        pixels: Image = (
            standard_picture(frame, small.to_ndarray()) if high_range else small.to_ndarray()
        )
        return np.ascontiguousarray(np.rot90(pixels, turned)) if turned else pixels


def quarter_turns(frame: Any) -> int:
    """Return how many quarter turns counter-clockwise set the frame upright, from its display
    matrix."""
    turns: int = round(frame.rotation / 90) % 4
    return turns


def display_size(frame: Any, aspect: float) -> tuple[int, int]:
    """Return width and height of the upright picture in square pixels; a stored pixel is `aspect`
    times as wide."""
    width, height = max(1, round(frame.width * aspect)), frame.height
    return (height, width) if quarter_turns(frame) % 2 else (width, height)


def encode_jpeg(image: Image) -> bytes:
    """Return a picture (H, W, 3) as JPEG, at the quality of the key frames on pages."""
    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


class Thumbnails:
    """JPEGs of what is on screen at the middle of each second, kept while a video is read for
    something else.

    Memory holds MOST_BYTES of them, so of a long video the first. width: pixels across.
    """

    def __init__(self, width: int) -> None:
        self._width, self._pictures = width, dict[float, bytes]()
        self._scaler: FrameScaler | None = None
        self._bytes = 0
        # a decoded frame that stands for seconds is encoded once
        self._last: tuple[Any, bytes] | None = None

    def add(self, time: float, frame: Any, aspect: float) -> None:
        """Take what is on screen at `time`, a decoded frame, where that is the middle of a
        second."""
        second = math.floor(time) + 0.5
        if abs(time - second) > ROUNDING_SECONDS or self._bytes >= MOST_BYTES:
            return
        if self._last is None or self._last[0] is not frame:
            self._scaler = self._scaler or FrameScaler(width=self._width, aspect=aspect)
            self._last = frame, encode_jpeg(self._scaler.image(frame))
            self._bytes += len(self._last[1])
        self._pictures[second] = self._last[1]

    def at(self, second: float, width: int) -> bytes | None:
        """Return the picture of a second of what was read, k + 0.5; None where none is kept. width:
        at most as kept."""
        from PIL import Image as Pillow

        kept = self._pictures.get(round(second, 3))
        if kept is None or width == self._width:
            return kept
        with Pillow.open(io.BytesIO(kept)) as picture:
            size = width, max(1, round(picture.height * width / picture.width))
            return encode_jpeg(np.asarray(picture.resize(size)))


class FrameSampler:
    """Chooses the frame on screen at the middle of every 1/rate seconds, whatever the frame rate of
    the video.

    Before the first frame that is the first one; after the last one ends there is none. A video
    shorter than half of 1/rate gives its last frame. thumbnails: what keeps larger pictures of
    some.
    """

    def __init__(
        self, rate: float, scaler: FrameScaler, thumbnails: Thumbnails | None = None
    ) -> None:
        self._rate, self._frame_scaler, self._thumbnails = rate, scaler, thumbnails
        self._index = 0
        self._shown: Any = None
        self._image: Image | None = None
        self._end = 0.0

    def take(self, time: float, frame: Any, length: float) -> Iterator[Frame]:
        """Yield the frames that are certain once one that starts at `time` and lasts `length` s has
        come."""
        if self._shown is not None:
            yield from self._until(time)
        self._shown, self._image, self._end = frame, None, time + length

    def finish(self) -> Iterator[Frame]:
        """Yield what is left when no frame follows."""
        if self._shown is None:
            return
        yield from self._until(self._end)
        if self._index == 0:
            yield self._frame()

    def _until(self, time: float) -> Iterator[Frame]:
        while (self._index + 0.5) / self._rate < time:
            yield self._frame()

    def _frame(self) -> Frame:
        if self._image is None:
            self._image = self._frame_scaler.image(self._shown)
        self._index += 1
        time = (self._index - 0.5) / self._rate
        if self._thumbnails is not None:
            self._thumbnails.add(time, self._shown, self._frame_scaler.aspect)
        return Frame(time, self._image)
