"""Finds the place in a file from which decoding reaches a given second."""

from collections.abc import Iterator
from typing import Any

from stepline.media.source import MICROSECONDS, Source

STEP_BACK = 1.0  # s before the wanted second tried first, so that its sound is complete; then four times as far


def start_before(source: Source, second: float) -> Any:
    """Move the file to where decoding gives all that is on screen and heard at `second`; return that first picture.

    None where no picture can be decoded. A file that cannot be searched is taken back to its start.
    """
    back = STEP_BACK
    while True:
        seek(source, max(0.0, second - back))
        found = next(pictures(source), None)
        if not source.exact or second <= back or (found is not None and found[0] <= second):
            seek(source, max(0.0, second - back))
            return None if found is None else found[2]
        back *= 4


def seek(source: Source, second: float) -> None:
    """Move the file to the last key frame at or before `second`, or to its start where it cannot be searched."""
    import av

    if not source.exact or second <= 0:  # a key frame that comes late would take the sound before it along
        source.rewind()
        return
    try:
        source.container.seek(round((second + source.start) * MICROSECONDS), backward=True)
    except av.error.FFmpegError:
        source.exact = False
        source.rewind()


def pictures(source: Source) -> Iterator[tuple[float, float, Any]]:
    """Yield time, length (s) and the decoded frame of every picture from where the file stands."""
    if source.picture is None:
        return
    timing = source.timing()
    for packet in source.packets():
        if packet.stream_index == source.picture.index:
            for frame in source.decode(packet):
                yield *timing.place(frame), frame
