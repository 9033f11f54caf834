"""Frames of a video: selection by time, rotation, scaling and JPEG encoding."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.media.hdr import is_hdr, tone_map_image

Image = npt.NDArray[np.uint8]  # (H, W, 3) RGB

# Longest side of a scaled image, in its wanted sizes. A longer image is squeezed, as no JPEG
# holds it.
MAX_SIDE_RATIO = 16

JPEG_QUALITIES = (82, 70, 55, 40)  # of JPEG, the first that is small enough
# of a key frame: 30 of them, as text, leave a page under 1 MB
MAX_KEYFRAME_BYTES = 18_000


@dataclass(frozen=True)
class Frame:
    """A video frame.

    Attributes:
        time: seconds from the start of the video.
        image: (H, W, 3) uint8 RGB, upright. Frames may share one array: do not write into it.
    """

    time: float
    image: Image


class FrameScaler:
    """Converts decoded frames to upright RGB images of one size, computed from the first frame."""

    def __init__(
        self,
        *,
        shorter: int | None = None,
        width: int | None = None,
        longer: int | None = None,
        aspect: float = 1.0,
    ) -> None:
        """Choose the size of the images.

        With neither `shorter`, `width` nor `longer`, it is full size.

        Args:
            shorter: pixels of the shorter side. None for no such rule.
            width: pixels of the width. None for no such rule.
            longer: maximal pixels of the longer side. Frames are never enlarged to it.
            aspect: width over height of a stored pixel.
        """
        from av.video.reformatter import VideoReformatter

        self._shorter = shorter
        self._width = width
        self._longer = longer
        self.aspect = aspect
        self._swscale: Any = VideoReformatter()  # one for all frames, since it keeps its tables
        self._size: tuple[int, int] | None = None

    def image(self, frame: Any) -> Image:
        """Return a decoded frame as an upright (H, W, 3) uint8 RGB image with square pixels.

        High dynamic range is converted to standard range.
        """
        turns = quarter_turns(frame)
        if self._size is None:
            self._size = self._scaled_size(frame)
        width, height = self._size
        if turns % 2 == 1:
            width, height = height, width
        high_range = is_hdr(frame)
        format = "rgb48le" if high_range else "rgb24"
        small = self._swscale.reformat(frame, width, height, format, interpolation="BILINEAR")
        pixels = small.to_ndarray()
        if high_range:
            pixels = tone_map_image(pixels, frame.color_trc)
        return np.ascontiguousarray(np.rot90(pixels, turns)) if turns else pixels

    def _scaled_size(self, frame: Any) -> tuple[int, int]:
        """Return width and height of the upright images, in pixels."""
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
        wanted_side = self._width or self._shorter
        if wanted_side is None:
            return width, height
        max_side = MAX_SIDE_RATIO * wanted_side
        return min(width, max_side), min(height, max_side)


def quarter_turns(frame: Any) -> int:
    """Return the number of counter-clockwise quarter turns that set a decoded frame upright.

    It is read from the frame's display matrix, which stores the rotation of the camera.
    """
    return int(round(frame.rotation / 90) % 4)


def display_size(frame: Any, aspect: float) -> tuple[int, int]:
    """Return (width, height) of the upright frame in square pixels.

    Args:
        frame: decoded frame of PyAV.
        aspect: width over height of a stored pixel.
    """
    width = max(1, round(frame.width * aspect))
    return (frame.height, width) if quarter_turns(frame) % 2 else (width, frame.height)


def encode_jpeg(image: Image) -> bytes:
    """Return an image (H, W, 3) as JPEG bytes.

    The quality is lowered until the JPEG has at most MAX_KEYFRAME_BYTES, or is the lowest.
    """
    from PIL import Image as Pillow

    for quality in JPEG_QUALITIES:
        buffer = io.BytesIO()
        Pillow.fromarray(image).save(buffer, "JPEG", quality=quality)
        if buffer.tell() <= MAX_KEYFRAME_BYTES:
            break
    return buffer.getvalue()


class FrameSampler:
    """Selects the frames on screen at (k + 0.5) / rate seconds for k = 0, 1, ...

    Times before the first frame give the first frame, times after the last frame give none. A video
    shorter than half of 1 / rate gives its last frame.
    """

    def __init__(self, rate: float, scaler: FrameScaler) -> None:
        """Start the selection.

        Args:
            rate: number of frames to select per second.
            scaler: converts the selected frames to images.
        """
        self._rate = rate
        self._scaler = scaler
        self._count = 0
        self._shown: Any = None  # decoded frame on the screen
        self._image: Image | None = None  # of that frame
        self._end = 0.0

    def add(self, time: float, frame: Any, length: float) -> Iterator[Frame]:
        """Yield the selected frames whose times lie before the end of a decoded frame.

        Args:
            time: second at which the frame appears.
            frame: decoded frame of PyAV.
            length: duration of the frame in seconds.
        """
        if self._shown is not None:
            yield from self._frames_before(time)
        self._shown = frame
        self._image = None
        self._end = time + length

    def finish(self) -> Iterator[Frame]:
        """Yield the selected frames that remain after the last decoded frame."""
        if self._shown is None:
            return
        yield from self._frames_before(self._end)
        if self._count == 0:
            yield self._frame()

    def _frames_before(self, time: float) -> Iterator[Frame]:
        while (self._count + 0.5) / self._rate < time:
            yield self._frame()

    def _frame(self) -> Frame:
        if self._image is None:
            self._image = self._scaler.image(self._shown)
        time = (self._count + 0.5) / self._rate
        self._count += 1
        return Frame(time, self._image)
