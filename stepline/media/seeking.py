"""Finds the place in a file from which decoding reaches a given second."""

from collections.abc import Iterator
from typing import Any

from stepline.errors import MediaError
from stepline.media.source import MICROSECONDS, Source

STEP_BACK = 1.0   # s before the wanted second tried first, so that its sound is complete; then four times as far


def start_before(source: Source, second: float) -> Any:
    """Move the file to where decoding gives all that is on screen and heard at `second`; return that first picture.

    None where no picture can be decoded. A file that cannot be searched is left at, or taken back to, its start.
    """
    back = STEP_BACK
    while True:
        target = max(0.0, second - back) if source.exact else 0.0
        seek(source, target)
        found = next(pictures(source), None)
        if target == 0.0 or (found is not None and found[0] <= second):
            seek(source, target)
            return None if found is None else found[2]
        back *= 4


def seek(source: Source, second: float) -> None:
    """Move the file to the last key frame at or before `second`. Raises MediaError where it cannot be searched."""
    import av

    try:
        source.container.seek(round((second + source.start) * MICROSECONDS), backward=True)
    except (av.error.FFmpegError, OSError) as error:
        raise MediaError(f"{source.path}: cannot be searched for a second; convert it to mp4") from error


def pictures(source: Source) -> Iterator[tuple[float, float, Any]]:
    """Yield time, length (s) and the decoded frame of every picture from where the file stands."""
    if source.picture is None:
        return
    timing = source.timing()
    for packet in source.packets():
        if packet.stream_index == source.picture.index:
            for frame in source.decode(packet):
                yield *timing.place(frame), frame
