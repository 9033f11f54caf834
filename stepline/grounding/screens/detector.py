"""Whether a video may be a screen recording: most of a screen is still, and most of it is flat.

A film has noise and moving hands in nearly every part of each picture. Held photographs are as
still as a screen is, so `read_screen` asks for lines of text too before it believes either.

Thresholds: read off 31 films and 3 screens (docs/results/screencasts.md). Between the two kinds
there is .1 of stillness or more, or no text.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepline.vision.encode import Pictures

if TYPE_CHECKING:
    from stepline.media import Frame

PART_PIXELS = 8  # side of a part of the picture
STILL_CHANGE = 8  # of 255: greatest change of grey in a part that stands still
FLAT_CHANGE = 1  # of 255: greatest difference of grey between neighbours that are flat
MIN_STILL_SHARE = 0.85  # of the parts, in the median of all pairs of frames
MIN_FLAT_SHARE = 0.45  # of the pixels, in the median frame
FRAMES_PER_LOOK = 3  # flatness is counted in every third frame


@dataclass(frozen=True)
class ScreenLikeness:
    """still: share of the parts that do not change from frame to frame. flat: share of the pixels
    that are like their neighbours. Medians over the video, 0 to 1."""

    still: float
    flat: float

    @property
    def is_candidate(self) -> bool:
        """Whether the video may be a screen recording. Its text decides."""
        return self.still >= MIN_STILL_SHARE and self.flat >= MIN_FLAT_SHARE


class ScreenMeter:
    """Collects small frames one at a time. Keeps the last one, and two numbers per frame."""

    def __init__(self) -> None:
        self._last: Pictures | None = None
        self._still: list[float] = []
        self._flat: list[float] = []
        self._frames = 0

    def add(self, frame: "Frame") -> None:
        """Compare one frame with the one before it."""
        green = frame.image[..., 1]
        if self._last is not None and self._last.shape == green.shape:
            changes = part_changes(self._last, green, PART_PIXELS)
            is_still = changes <= STILL_CHANGE
            self._still.append(float(is_still.mean()))
        if self._frames % FRAMES_PER_LOOK == 0:
            self._flat.append(flat_share(green))
        self._last = green
        self._frames += 1

    def finish(self) -> ScreenLikeness:
        """Return how like a screen the video is. A single frame is like none."""
        if not self._still:
            return ScreenLikeness(0.0, 0.0)
        still = float(np.median(self._still))
        flat = float(np.median(self._flat))
        return ScreenLikeness(still, flat)


def part_changes(before: Pictures, after: Pictures, side: int) -> Pictures:
    """Return the greatest change in each part of `side` x `side` pixels of a channel (H, W), 0 to
    255."""
    # The greater less the smaller, since bytes have no negative numbers.
    greater = np.maximum(before, after)
    smaller = np.minimum(before, after)
    change = greater - smaller
    height, width = change.shape
    rows = np.arange(0, height, side)
    columns = np.arange(0, width, side)
    high = np.maximum.reduceat(change, rows, axis=0)
    parts: Pictures = np.maximum.reduceat(high, columns, axis=1)
    return parts


def flat_share(channel: Pictures) -> float:
    """Return the share of the pixels (H, W) that differ from neither neighbour, below nor right."""
    # Differences of bytes would wrap around.
    grey = channel.astype(np.int16)
    across = np.abs(np.diff(grey, axis=1))
    down = np.abs(np.diff(grey, axis=0))
    is_flat = across[:-1] <= FLAT_CHANGE
    is_flat &= down[:, :-1] <= FLAT_CHANGE
    return float(is_flat.mean())
