"""Which of a file's tracks are read: the one that holds pictures and the one that is heard."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import MediaError
from stepline.media.settings import MediaSettings

# packets of a file among which a film has a second picture. About ten seconds of it
MAX_PACKETS_TO_COUNT = 1000
# packets of each sound track among which something is heard. Two minutes of AAC
MAX_PACKETS_TO_HEAR = 6000
MIN_PEAK = 0.003  # of full scale, -50 dB. Noise of an open microphone is below


def check_tracks(path: Path, container: Any, settings: MediaSettings) -> None:
    """Raise MediaError where a file has more tracks than the limit."""
    count = len(container.streams)
    if count > settings.max_streams:
        raise MediaError(
            f"{path}: {count} streams are more than media.max_streams = {settings.max_streams}; "
            "keep one picture and one sound track (ffmpeg -i IN -c copy OUT)"
        )


def picture_tracks(container: Any) -> list[Any]:
    """Return the tracks of pictures that can be decoded, without flagged covers, the default ones
    first."""
    from av.stream import Disposition

    # a cover picture is not a picture stream
    cover = Disposition.attached_pic | Disposition.timed_thumbnails
    return _usable(stream for stream in container.streams.video if not stream.disposition & cover)


def sound_tracks(container: Any) -> list[Any]:
    """Return the tracks of sound that can be decoded, the default ones first."""
    return _usable(container.streams.audio)


def _usable(streams: Iterable[Any]) -> list[Any]:
    from av.stream import Disposition

    usable = [stream for stream in streams if stream.codec_context is not None]
    return sorted(usable, key=lambda stream: not stream.disposition & Disposition.default)


def film_index(container: Any, tracks: Sequence[Any]) -> int:
    """Return the index of the first track that holds more than one picture, else of the first one.

    Reads the container, which is to be opened again. A cover may lack its flag, and comes first.
    """
    counts: dict[int, int] = {}
    for stream in tracks:
        counts[stream.index] = 0
    for number, packet in enumerate(container.demux(tracks)):
        # An empty packet marks the end of a stream.
        if packet.size:
            counts[packet.stream.index] += 1
        if min(counts.values()) > 1 or number >= MAX_PACKETS_TO_COUNT:
            break
    for index, count in counts.items():
        if count > 1:
            return index
    return int(tracks[0].index)


def numbered_track(path: Path, container: Any, number: int) -> Any:
    """Return the sound track of a number, from 1 on in the order of the file. Raise MediaError
    where that track is missing or cannot be decoded."""
    tracks = list(container.streams.audio)
    if number > len(tracks) or tracks[number - 1].codec_context is None:
        raise MediaError(
            f"{path}: no sound track {number} that can be decoded; "
            f"give media.audio_track from 1 to {len(tracks)}"
        )
    return tracks[number - 1]


def audible_index(container: Any, tracks: Sequence[Any]) -> int:
    """Return the index of the first track in which something is heard, else of the first one.

    Reads the container, which is to be opened again. Recorders write a track for each of their
    inputs, and many of these are silent.
    """
    import av

    loud: set[int] = set()
    for number, packet in enumerate(container.demux(tracks)):
        if number >= MAX_PACKETS_TO_HEAR * len(tracks):
            break
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            continue
        if any(_is_audible(frame) for frame in frames):
            loud.add(packet.stream.index)
            if packet.stream.index == tracks[0].index:
                break
    for track in tracks:
        if track.index in loud:
            return int(track.index)
    return int(tracks[0].index)


def _is_audible(frame: Any) -> bool:
    samples = np.asarray(frame.to_ndarray())
    kind = samples.dtype.kind
    highest = np.iinfo(samples.dtype).max if kind in "iu" else 1.0
    # Unsigned samples are silent in the middle of their range.
    middle = highest / 2 if kind == "u" else 0.0
    peak = np.abs(samples.astype(np.float32) - middle).max(initial=0.0)
    return bool(peak > MIN_PEAK * highest)


def set_up_picture(path: Path, picture: Any, settings: MediaSettings) -> None:
    """Make a track of pictures ready for decoding. Raise MediaError where they are larger than the
    limit."""
    context = picture.codec_context
    if context.width * context.height > settings.max_pixels:
        raise MediaError(
            f"{path}: pictures of {context.width}x{context.height} are more than "
            f"media.max_pixels = {settings.max_pixels}; scale the video down "
            "(ffmpeg -i IN -vf scale=-2:720 OUT)"
        )
    # pictures may grow in mid-stream
    context.options = {"max_pixels": str(settings.max_pixels)}
    context.thread_count = settings.threads
