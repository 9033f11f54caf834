"""Frames of a video: selection by time, rotation, scaling and JPEG encoding."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.media.hdr import is_high_range, standard_picture

Image = npt.NDArray[np.uint8]

# Times the wanted size that a scaled picture may be long. A longer one is squeezed, as no JPEG
# holds it.
MAX_SIDE_RATIO = 16

JPEG_QUALITIES = (82, 70, 55, 40)  # of JPEG, the first that is small enough
# of a key frame: 30 of them, as text, leave a page under 1 MB
MAX_KEYFRAME_BYTES = 18_000
MAX_THUMBNAIL_BYTES = 1 << 25  # of thumbnails in memory, about half an hour of them
ROUNDING_SECONDS = 1e-6  # s, of rounding


@dataclass(frozen=True)
class Frame:
    """The picture on screen at `time` seconds from the start of the video.

    image: (H, W, 3) uint8 RGB, upright. Frames of a still picture may share one array: do not write
    into it.
    """

    time: float
    image: Image


class FrameScaler:
    """Scales decoded frames to upright RGB arrays of one size, which the first frame decides.

    Args:
        shorter: pixels of the shorter side.
        width: pixels across, instead of `shorter`.
        longer: pixels of the longer side, never more than the video has.
        aspect: width over height of a stored pixel.
    """

    def __init__(
        self,
        *,
        shorter: int | None = None,
        width: int | None = None,
        longer: int | None = None,
        aspect: float = 1.0,
    ) -> None:
        from av.video.reformatter import VideoReformatter

        self._shorter = shorter
        self._width = width
        self._longer = longer
        self.aspect = aspect
        self._swscale: Any = VideoReformatter()  # one for all frames: it keeps its tables
        self._size: tuple[int, int] | None = None

    def image(self, frame: Any) -> Image:
        """Return a frame as (H, W, 3) uint8 RGB of standard range, upright, with square pixels."""
        turns = quarter_turns(frame)
        if self._size is None:
            self._size = self._scaled_size(frame)
        width, height = self._size
        if turns % 2 == 1:
            width, height = height, width
        high_range = is_high_range(frame)
        format = "rgb48le" if high_range else "rgb24"
        small = self._swscale.reformat(frame, width, height, format, interpolation="BILINEAR")
        array = small.to_ndarray()
        pixels: Image = standard_picture(frame, array) if high_range else array
        return pixels if not turns else np.ascontiguousarray(np.rot90(pixels, turns))

    def _scaled_size(self, frame: Any) -> tuple[int, int]:
        """Return width and height of the upright pictures, in pixels."""
        full_width, full_height = display_size(frame, self.aspect)
        scale = 1.0
        if self._shorter is not None:
            scale = self._shorter / min(full_width, full_height)
        if self._width is not None:
            scale = self._width / full_width
        if self._longer is not None:
            scale = min(1.0, self._longer / max(full_width, full_height))
        width = max(1, round(full_width * scale))
        height = max(1, round(full_height * scale))
        side = self._width or self._shorter
        if side is None:
            return width, height
        max_side = MAX_SIDE_RATIO * side
        return min(width, max_side), min(height, max_side)


def quarter_turns(frame: Any) -> int:
    """Return the counter-clockwise quarter turns that set the frame upright, by its display matrix."""
    turns: int = round(frame.rotation / 90) % 4
    return turns


def display_size(frame: Any, aspect: float) -> tuple[int, int]:
    """Return width and height of the upright picture in square pixels.

    aspect: width over height of a stored pixel.
    """
    width = max(1, round(frame.width * aspect))
    height = frame.height
    return (height, width) if quarter_turns(frame) % 2 else (width, height)


def encode_jpeg(image: Image, max_bytes: int | None = None) -> bytes:
    """Return a picture (H, W, 3) as JPEG. A picture over `max_bytes` gets a lower quality."""
    from PIL import Image as Pillow

    picture = Pillow.fromarray(image)
    for quality in JPEG_QUALITIES:
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=quality)
        if max_bytes is None or buffer.tell() <= max_bytes:
            break
    return buffer.getvalue()


class Thumbnails:
    """JPEGs of the frames at the middle of each second, collected while a video is read.

    Memory holds MAX_THUMBNAIL_BYTES, so only the start of a long video. side: pixels of the longer
    side, never more than the video has.
    """

    def __init__(self, side: int) -> None:
        self._side = side
        self._pictures: dict[float, bytes] = {}
        self._scaler: FrameScaler | None = None
        self._bytes = 0
        # a decoded frame that stands for seconds is encoded once
        self._last: tuple[Any, bytes] | None = None

    def add(self, time: float, frame: Any, aspect: float) -> None:
        """Add the decoded frame on screen at `time` if that is the middle of a second."""
        second = math.floor(time) + 0.5
        if abs(time - second) > ROUNDING_SECONDS or self._bytes >= MAX_THUMBNAIL_BYTES:
            return
        if self._last is None or self._last[0] is not frame:
            if self._scaler is None:
                self._scaler = FrameScaler(longer=self._side, aspect=aspect)
            image = self._scaler.image(frame)
            jpeg = encode_jpeg(image, MAX_KEYFRAME_BYTES)
            self._last = (frame, jpeg)
            self._bytes += len(jpeg)
        _, self._pictures[second] = self._last

    def at(self, second: float, side: int) -> bytes | None:
        """Return the thumbnail at second k + 0.5, or None. side: maximal pixels of the longer side."""
        from PIL import Image as Pillow

        jpeg = self._pictures.get(round(second, 3))
        if jpeg is None or side == self._side:
            return jpeg
        with Pillow.open(io.BytesIO(jpeg)) as picture:
            scale = min(1.0, side / max(picture.size))
            width = max(1, round(picture.width * scale))
            height = max(1, round(picture.height * scale))
            smaller = np.asarray(picture.resize((width, height)))
            return encode_jpeg(smaller, MAX_KEYFRAME_BYTES)


class FrameSampler:
    """Selects the frame on screen at the middle of every 1/rate seconds, at any frame rate of the
    video.

    Before the first frame it is the first one, after the last one None. A video shorter than half
    of 1/rate gives its last frame. thumbnails: collects larger pictures.
    """

    def __init__(
        self, rate: float, scaler: FrameScaler, thumbnails: Thumbnails | None = None
    ) -> None:
        self._rate = rate
        self._frame_scaler = scaler
        self._thumbnails = thumbnails
        self._index = 0
        self._shown: Any = None
        self._image: Image | None = None
        self._end = 0.0

    def take(self, time: float, frame: Any, length: float) -> Iterator[Frame]:
        """Yield the selected frames up to the end of a frame at `time` that lasts `length` s."""
        if self._shown is not None:
            yield from self._until(time)
        self._shown = frame
        self._image = None
        self._end = time + length

    def finish(self) -> Iterator[Frame]:
        """Yield the remaining frames after the last one."""
        if self._shown is None:
            return
        yield from self._until(self._end)
        if self._index == 0:
            yield self._frame()

    def _until(self, time: float) -> Iterator[Frame]:
        while (self._index + 0.5) / self._rate < time:
            yield self._frame()

    def _frame(self) -> Frame:
        scaler = self._frame_scaler
        if self._image is None:
            self._image = scaler.image(self._shown)
        self._index += 1
        time = (self._index - 0.5) / self._rate
        if self._thumbnails is not None:
            self._thumbnails.add(time, self._shown, scaler.aspect)
        return Frame(time, self._image)
