"""The shots of a video and a picture of each.

The cuts are those that the main job finds in three frames per second. A second look reads the
frames of the third of a second before each cut alone. It moves the cut to the frame at which the
picture changes most. The same look takes the pictures.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.errors import MediaError
from stepline.media import (
    Frame,
    MediaInfo,
    MediaReader,
    MediaSettings,
    encode_jpeg,
    probe,
    read_frames_at,
)
from stepline.progress import Progress, with_progress
from stepline.records import Span
from stepline.vision import ActivityMeter, VisionSettings

FRAMES_PER_ROW = 3  # for each row of features, as the main job measures cuts
MAX_FRAME_RATE = 60.0  # frames/s that are looked at before a cut; more would only take time
SAMPLE_STEP = 4  # px between the pixels by which two frames are compared
MIN_VIDEO_SECONDS = 0.01  # of a video, and of its last shot

Pixels = npt.NDArray[np.int16]


@dataclass(frozen=True)
class VideoShots:
    """The shots of a video, from its first second to the last without a gap.

    pictures: a JPEG of the middle of each shot, by its index, none of one that cannot be decoded
        there
    warnings: what is wrong with the file
    """

    info: MediaInfo
    shots: tuple[Span, ...]
    pictures: dict[int, bytes]
    warnings: tuple[str, ...]


def find_shots(
    path: Path,
    vision: VisionSettings,
    size: int,
    media: MediaSettings | None = None,
    progress: Progress | None = None,
) -> VideoShots:
    """Return the shots of a video. size: pixels of a picture's longer side, never more than the
    video has.

    Raises MediaError where the file cannot be read or shows no picture.
    """
    info = probe(path, media)
    if not info.has_picture:
        raise MediaError(f"{path}: has no picture, so no shots; give a video")
    # The first look, as the main job does it: between which samples the cuts are.
    rate = vision.rate * FRAMES_PER_ROW
    reader = MediaReader(
        path, frame_rate=rate, frame_size=vision.frame_size, sound=False, settings=media
    )
    meter = ActivityMeter(rate=vision.rate, cut_ratio=vision.cut_ratio, cut_floor=vision.cut_floor)
    for frame in with_progress(reader, Frame, "looking", info.duration, progress, None):
        meter.add(frame)
    if not reader.end > MIN_VIDEO_SECONDS:
        raise MediaError(f"{path}: no picture in it can be decoded; convert it to mp4 (H.264, AAC)")
    last_second = reader.end - MIN_VIDEO_SECONDS
    samples = [cut for cut in meter.finish().cuts if cut < last_second]
    cuts = join_samples(samples, 1 / rate)

    # the second look, which also takes the pictures
    frame_rate = min(info.frame_rate, MAX_FRAME_RATE)
    look = _SecondLook(cuts, reader.end, frame_rate)
    stills = read_frames_at(path, look.times(), settings=media, longer=size)
    for still in with_progress(stills, Frame, "pictures", info.duration, progress, None):
        look.add(still)
    shots = shot_spans(look.starts, reader.end)
    return VideoShots(info, tuple(shots), look.pictures, reader.warnings)


def join_samples(cuts: Sequence[float], interval: float) -> list[Span]:
    """Return the cuts as spans of seconds within which the picture changes, from the last sample of
    a shot to the first of the next.

    Cuts at samples that follow each other are one: a dissolve, or a flash. interval: between two
    samples, s.
    """
    changes: list[Span] = []
    for cut in cuts:
        start = max(0.0, cut - interval)
        if changes and start <= changes[-1].end + interval / 2:
            start = changes.pop().start
        changes.append(Span(start, cut))
    return changes


class _SecondLook:
    """Which frames are looked at again, and what they show."""

    def __init__(self, cuts: Sequence[Span], end: float, frame_rate: float) -> None:
        """cuts: as of `join_samples`."""
        frame_length = 1 / frame_rate
        self._half_frame = frame_length / 2
        self._cut_of: dict[float, int] = {}  # middle of a frame's time -> number of the cut
        for number, cut in enumerate(cuts):
            first = math.floor(cut.start * frame_rate)
            last = math.floor(cut.end * frame_rate)
            for frame in range(first, last + 1):
                middle = (frame + 0.5) * frame_length
                self._cut_of[middle] = number
        # the middle of a shot's samples is within it
        starts = [0.0, *(cut.end for cut in cuts)]
        ends = [*(cut.start for cut in cuts), end]
        self._shot_of: dict[float, int] = {}
        for number, (start, stop) in enumerate(zip(starts, ends, strict=True)):
            middle = (start + stop) / 2
            self._shot_of[middle] = number
        self.starts = [cut.end for cut in cuts]  # of the shots after the first, s
        self._changes = [-1.0] * len(cuts)
        self._last: tuple[int, Pixels] | None = None
        self.pictures: dict[int, bytes] = {}

    def times(self) -> list[float]:
        """Return the seconds of all frames that are looked at."""
        return sorted({*self._cut_of, *self._shot_of})

    def add(self, frame: Frame) -> None:
        """Take the next of these frames."""
        shot = self._shot_of.get(frame.time)
        if shot is not None:
            self.pictures[shot] = encode_jpeg(frame.image)
        cut = self._cut_of.get(frame.time)
        if cut is None:
            return
        pixels = frame.image[::SAMPLE_STEP, ::SAMPLE_STEP].astype(np.int16)
        if self._last is not None and self._last[0] == cut:
            _, last_pixels = self._last
            change = float(np.abs(pixels - last_pixels).mean())
            if change > self._changes[cut]:
                self._changes[cut] = change
                self.starts[cut] = frame.time - self._half_frame
        self._last = (cut, pixels)


def shot_spans(cuts: Sequence[float], end: float) -> list[Span]:
    """Return the shots between cuts, to the millisecond, the last one up to second `end`."""
    edges = [0.0, *cuts, end]
    spans = []
    for start, stop in itertools.pairwise(edges):
        span = Span(round(start, 3), round(stop, 3))
        spans.append(span)
    return spans
