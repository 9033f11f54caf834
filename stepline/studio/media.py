"""What the pages show of a video beside the file itself: pictures of its seconds, and the waveform
of its sound."""

import functools
import io
from pathlib import Path
from threading import Semaphore

import numpy as np

from stepline.errors import MediaError
from stepline.media import MediaSettings, frames_at, probe, read_sound
from stepline.media.audio import SAMPLE_RATE

WIDTH = 320  # pixels of a picture
PEAKS = 2000  # of a waveform, as many as a wide timeline has pixels
AT_ONCE = Semaphore(2)  # videos that are decoded at a time; viewers are many, cores few
KEPT = 1000  # pictures; some 10 kB each

# Types that browsers play; what they do not know they would offer to keep.
TYPES = {
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/mp4",
    ".webm": "video/webm",
    ".mkv": "video/webm",
}


@functools.lru_cache(KEPT)
def picture(path: Path, stamp: str, second: float) -> bytes:  # noqa: ARG001   another file of the path, another picture
    """Return what is on screen at a second, as JPEG, WIDTH pixels across. Raises MediaError where
    nothing is."""
    from PIL import Image

    with AT_ONCE:
        (frame,) = frames_at(path, [second], WIDTH)
    if frame is None:
        raise MediaError(f"{path}: no picture at {second:g} s; ask for a second of the video")
    data = io.BytesIO()
    Image.fromarray(frame.image).save(data, "JPEG", quality=80)
    return data.getvalue()


def peaks(path: Path, settings: MediaSettings | None = None) -> bytes:
    """Return the loudest of each of PEAKS equal parts of a video's sound, 0 to 255 for silence to
    full scale.

    Nothing where it has no sound. Raises MediaError where the file cannot be read.
    """
    info = probe(path, settings)
    if not info.has_sound or not info.duration:
        return b""
    found = np.zeros(PEAKS, np.float32)
    with AT_ONCE:
        for block in read_sound(path, settings):
            seconds = block.start + np.arange(len(block.samples)) / SAMPLE_RATE  # (N,)
            parts = np.clip(seconds / info.duration * PEAKS, 0, PEAKS - 1).astype(np.intp)  # (N,)
            np.maximum.at(found, parts, np.abs(block.samples))
    return bytes(np.clip(np.rint(found * 255), 0, 255).astype(np.uint8))


@functools.lru_cache(KEPT)
def frame_rate(path: Path, stamp: str) -> float:  # noqa: ARG001   another file of the path, another rate
    """Return the pictures a second of a video, 0 where it has none. Raises MediaError where it
    cannot be read."""
    with AT_ONCE:
        return probe(path).frame_rate


def media_type(path: Path) -> str:
    """Return the type by which a browser plays a file."""
    return TYPES.get(path.suffix.lower(), "video/mp4")


def file_stamp(path: Path) -> str:
    """Return what changes when a file does."""
    state = path.stat()
    return f"{state.st_mtime_ns} {state.st_size}"
