"""Turns the time stamps of one stream into seconds from the start of the video, and mends broken ones."""

from fractions import Fraction
from typing import Any

from stepline.media.damage import Damage

JUMP = 1.0  # s by which time may go back before the stamps count as restarted; rounding stays under it
BEYOND = 60.0  # s past the claimed end from which a stamp is not believed


class Clock:
    """The time of one stream.

    A missing stamp follows on from the frame before; a stamp far past the end is not believed; where the stamps start
    over (joined recordings), the later ones are counted on.
    """

    def __init__(self, *, start: float, duration: float | None, damage: Damage) -> None:
        """start: second 0 of the video on the stream's own scale. duration: s claimed, None if not known."""
        self._start = start
        self._latest = float("inf") if duration is None else duration + BEYOND
        self._damage = damage
        self._expected: float | None = None

    def place(self, stamp: int | None, time_base: Fraction | None, length: float) -> float:
        """Return the time of a frame that lasts `length` s."""
        time = self._time(stamp, time_base)
        self._expected = time + length
        return time

    def _time(self, stamp: int | None, time_base: Fraction | None) -> float:
        if stamp is None or not time_base:
            return self._expected or 0.0
        time = float(stamp * time_base) - self._start
        if time > self._latest:
            self._damage.stamps += 1
            return self._expected or 0.0
        if self._expected is not None and time < self._expected - JUMP:
            self._damage.stamps += 1
            self._start -= self._expected - time
            return self._expected
        return time


class PictureTiming:
    """The time and length of the frames of the picture stream."""

    def __init__(self, clock: Clock, rate: float) -> None:
        """rate: frames/s, for frames that do not say how long they last."""
        self._clock, self._length = clock, 1 / rate
        self._stamp: int | None = None  # of the frame before

    def place(self, frame: Any) -> tuple[float, float]:
        """Return when a decoded frame appears and how long it lasts, in s."""
        stamp = frame.pts if frame.pts is not None else frame.dts
        length = self._lasts(stamp, frame)
        self._stamp = stamp
        return self._clock.place(stamp, frame.time_base, length), length

    def _lasts(self, stamp: int | None, frame: Any) -> float:
        """Return how long a frame lasts: as it says, else as the one before did, else by the frame rate."""
        if not frame.time_base:
            return self._length
        if frame.duration:
            return float(frame.duration * frame.time_base)
        if stamp is not None and self._stamp is not None and 0 < (stamp - self._stamp) * frame.time_base <= JUMP:
            self._length = float((stamp - self._stamp) * frame.time_base)
        return self._length
