"""Single pictures of a video at given seconds, found by seeking."""

from collections.abc import Sequence
from pathlib import Path

from stepline.media.frames import Frame


def frames_at(path: Path | str, times: Sequence[float], width: int | None = None) -> list[Frame | None]:
    """Return the frame on screen at each of the times, None where the picture does not last that long."""
    raise NotImplementedError
