"""Single pictures of a video at given seconds, found by seeking."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from stepline.media.frames import Frame, Shaper
from stepline.media.seeking import pictures, start_before
from stepline.media.settings import MediaSettings
from stepline.media.source import Source, open_media

NEAR = 4.0  # s to the next wanted second up to which decoding on is cheaper than seeking
LINGER = 1.0  # s after the last picture ends during which it still counts as on screen; rows of features are that long


def frames_at(
    path: Path | str, times: Sequence[float], width: int | None = None, settings: MediaSettings | None = None
) -> list[Frame | None]:
    """Return the frame on screen at each of the times, in their order; None where the video has no picture then.

    width: pixels across, None for full size. Before the first frame that is the first one.
    """
    found = {still.time: still for still in stills(path, times, width, settings)}
    return [found.get(time) for time in times]


def stills(
    path: Path | str, times: Sequence[float], width: int | None = None, settings: MediaSettings | None = None
) -> Iterator[Frame]:
    """Yield the frames of `frames_at` one by one, sorted by time, each time once; times without a picture are left out.

    For many pictures of a long video: memory holds one.
    """
    with open_media(path, settings or MediaSettings()) as source:
        walk = _Walk(source)
        shaper = Shaper(width=width, aspect=source.aspect)
        for time in sorted(time for time in set(times) if time >= 0.0):
            picture = walk.at(time)
            if picture is not None:
                yield Frame(time, shaper.image(picture))


class _Walk:
    """Goes forward through the pictures of a file, by decoding or by a leap."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._coming: Iterator[tuple[float, float, Any]] = iter(())
        self._next: tuple[float, float, Any] | None = None
        self._shown: tuple[float, float, Any] | None = None

    def at(self, second: float) -> Any:
        """Return the decoded frame on screen at `second`, which must not lie before the one asked for last."""
        if self._source.picture is None:
            return None
        far = self._next is not None and second > self._next[0] + NEAR
        if self._shown is None or (far and self._source.exact):
            self._leap(second)
        while self._next is not None and self._next[0] <= second:
            self._shown, self._next = self._next, next(self._coming, None)
        if self._shown is None:
            return None
        time, length, frame = self._shown
        return frame if self._next is not None or second < time + length + LINGER else None

    def _leap(self, second: float) -> None:
        start_before(self._source, second)
        self._coming = pictures(self._source)
        self._shown = next(self._coming, None)
        self._next = next(self._coming, None)
