"""Frames and waveforms of videos for the pages of the studio."""

import functools
import io
from pathlib import Path
from threading import Semaphore

import numpy as np

from stepline.errors import MediaError
from stepline.library.database import LibraryDatabase
from stepline.media import probe, read_frames_at, read_sound
from stepline.media.audio import SAMPLE_RATE

FRAME_WIDTH_PIXELS = 320  # across
JPEG_QUALITY = 80
PEAK_COUNT = 2000  # of a waveform, as many as a wide timeline has pixels
MAX_PICTURES_IN_MEMORY = 1000  # some 10 kB each
DECODER_SLOTS = Semaphore(
    2
)  # videos that are decoded at a time: there are many viewers and few cores

# Types that browsers play. They would offer to save a file of any other type.
BROWSER_TYPES = {
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".mov": "video/mp4",
    ".webm": "video/webm",
    ".mkv": "video/webm",
}


# The stamp is a key of the cache: another file of the path has other pictures.
@functools.lru_cache(MAX_PICTURES_IN_MEMORY)
def frame_jpeg(path: Path, stamp: str, second: float) -> bytes:  # noqa: ARG001
    """Return the frame of a video at a second, as JPEG. Raises MediaError if there is none.

    Args:
        path: the video file.
        stamp: text from `file_stamp`. It is part of the cache key, so a changed file is decoded
            again.
        second: second of the video.
    """
    from PIL import Image

    with DECODER_SLOTS:
        frame = next(read_frames_at(path, [second], FRAME_WIDTH_PIXELS), None)
    if frame is None:
        raise MediaError(f"{path}: no picture at {second:g} s; ask for a second of the video")
    data = io.BytesIO()
    Image.fromarray(frame.image).save(data, "JPEG", quality=JPEG_QUALITY)
    return data.getvalue()


def load_peaks(database: LibraryDatabase, id: str, path: Path) -> bytes:
    """Return the waveform of a video's sound, as `waveform_peaks` does.

    It is stored in the database until the file changes.

    Args:
        database: stores the waveform.
        id: the id of the video's record.
        path: the video file.
    """
    stamp = file_stamp(path)
    row = database.row("SELECT peaks FROM waveform WHERE video = ? AND stamp = ?", id, stamp)
    # A stranger's row may hold anything.
    if row is not None and isinstance(row[0], bytes) and len(row[0]) <= PEAK_COUNT:
        return row[0]
    waveform = waveform_peaks(path)
    database.write("INSERT OR REPLACE INTO waveform VALUES (?, ?, ?)", id, stamp, waveform)
    return waveform


def waveform_peaks(path: Path) -> bytes:
    """Return the loudest sample in each of PEAK_COUNT equal parts of a video, a byte each.

    255 is full scale. Empty for a video without sound. Raises MediaError if the file cannot be
    read.
    """
    info = probe(path)
    if not info.has_sound or not info.duration:
        return b""
    peak_values = np.zeros(PEAK_COUNT, np.float32)
    with DECODER_SLOTS:
        for block in read_sound(path):
            # Each sample falls into one of the parts, by its time.
            seconds = block.start + np.arange(len(block.samples)) / SAMPLE_RATE  # (N,)
            parts = np.clip(seconds / info.duration * PEAK_COUNT, 0, PEAK_COUNT - 1)  # (N,)
            np.maximum.at(peak_values, parts.astype(np.intp), np.abs(block.samples))
    return bytes(np.clip(np.rint(peak_values * 255), 0, 255).astype(np.uint8))


@functools.lru_cache(MAX_PICTURES_IN_MEMORY)
def frame_rate(path: Path, stamp: str) -> float:  # noqa: ARG001
    """Return the frames per second of a video, 0 for a file without a picture.

    Args:
        path: the video file.
        stamp: text from `file_stamp`. It is part of the cache key.

    Raises MediaError if the file cannot be read.
    """
    with DECODER_SLOTS:
        return probe(path).frame_rate


def browser_media_type(path: Path) -> str:
    """Return the media type with which browsers play a file."""
    return BROWSER_TYPES.get(path.suffix.lower(), "video/mp4")


def file_stamp(path: Path) -> str:
    """Return a text that changes when the file changes."""
    state = path.stat()
    return f"{state.st_mtime_ns} {state.st_size}"
