"""Key frames of the texts that people check: before, in and after the seconds that the dataset gives them."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from stepline.curate.audit.sample import Asked, Sample
from stepline.errors import SteplineError

if TYPE_CHECKING:
    from stepline.media.frames import Image

AROUND = 3.0  # s before and after a span that are shown too
OVERVIEW = 8  # frames of the whole video
GRID = 0.5  # s; times are rounded to it, so that texts share their frames
QUALITY = 55  # of a JPEG

Frames = dict[str, dict[float, bytes]]  # video -> second -> JPEG


def key_frames(sample: Sample, media: Callable[[str], Path | None], width: int) -> tuple[Frames, list[str]]:
    """Return the frames of every video of a sample, and a note for each video that gave none.

    media(id): the video's file on this machine, None where there is none.
    """
    frames: Frames = {}
    notes = []
    for video in sample.titles:
        try:
            path = media(video)
            frames[video] = _frames(path, _wanted(sample, video), width) if path is not None else {}
            if path is None:
                notes.append(f"{video}: no frames, its file is not on this machine")
        except SteplineError as error:
            notes.append(f"{video}: no frames ({error})")
    return frames, notes


def seconds(asked: Asked, duration: float | None) -> list[float]:
    """Return the times shown for a text: one before its span, three in it, one after it, inside the video."""
    span = asked.span
    times = [span.start - AROUND, *(span.start + part * span.duration for part in (0.1, 0.5, 0.9)), span.end + AROUND]
    last = max(0.0, (duration or span.end + AROUND) - GRID)
    return sorted({round(min(last, max(0.0, time)) / GRID) * GRID for time in times})


def overview(duration: float | None) -> list[float]:
    """Return times spread over a whole video, none where its length is not known."""
    if duration is None:
        return []
    return [round(duration * (part + 0.5) / OVERVIEW / GRID) * GRID for part in range(OVERVIEW)]


def _wanted(sample: Sample, video: str) -> list[float]:
    duration = sample.durations.get(video)
    times = {time for asked in sample.asked if asked.video == video for time in seconds(asked, duration)}
    return sorted(times | set(overview(duration)))


def _frames(path: Path, times: list[float], width: int) -> dict[float, bytes]:
    from stepline.media.stills import stills

    return {still.time: _jpeg(still.image) for still in stills(path, times, width)}


def _jpeg(image: "Image") -> bytes:
    from PIL import Image as Pillow

    buffer = io.BytesIO()
    Pillow.fromarray(image).save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()
