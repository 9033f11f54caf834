"""Opens a media file under limits: packets without the damaged ones, time stamps as seconds,
damage.

open_media     an untrusted file, or a MediaError. Nothing but the file itself is ever opened
open_live      an address, a device or a growing file, whose packets come as they are made FileShape
the tracks to read and the true end, for files whose header does not say so
"""

import contextlib
import functools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import MediaError
from stepline.media.clock import (
    JUMP_SECONDS,
    MAX_FILE_PAUSE_SECONDS,
    MAX_MISSING_SECONDS,
    MAX_PAST_END_SECONDS,
    MAX_PAUSE_SECONDS,
    SUSPICIOUS_JUMP_SECONDS,
    Damage,
    PacketClock,
    PictureTiming,
    StreamClock,
    decoding_second,
    presentation_stamp,
)
from stepline.media.opening import LiveInput, check_file, open_container, open_live_container
from stepline.media.settings import MediaSettings

log = logging.getLogger(__name__)

# Containers whose duration FFmpeg guesses from the bit rate, and whose frames may have no time
# stamps.
GUESSED_FORMATS = frozenset(
    {"mp3", "aac", "ac3", "eac3", "amr", "mpeg", "h264", "hevc", "m4v", "mpegvideo", "obu", "dv"}
)

# Containers that give the second of their end as their duration, also where they do not start at 0.
FORMATS_WITH_END_STAMP = frozenset({"matroska", "nut"})

# Containers that are made to be joined end to end, so that their clocks may start over.
JOINED_FORMATS = frozenset({"mpegts", "mpeg"})

# Containers that claim to last up to their latest time stamp, be it broken.
FORMATS_WITH_LATEST_STAMP = frozenset({"matroska", "flv", "nut", "asf"})

# bytes. A file of less for every second that it claims may lie: the poorest speech takes 700
MIN_BYTES_PER_SECOND = 1000

MICROSECONDS_PER_SECOND = 1_000_000  # FFmpeg's unit for the times of a container
DEFAULT_FRAME_RATE = 25.0  # frames/s taken where a video does not say its own
MAX_FRAME_RATE = 1000.0  # frames/s. A time base passes for a rate in some files
MAX_PIXEL_ASPECT = 4  # of a stored pixel. Anamorphic video stays under 2, more is a broken header
MAX_READ_FAILURES = 100  # read errors in a row after which the rest of a file is given up

# packets of a file among which a film has a second picture. About ten seconds of it
MAX_PACKETS_TO_COUNT = 1000
# packets of each sound track among which something is heard. Two minutes of AAC
MAX_AUDIBILITY_PACKETS = 6000
MIN_AUDIBLE_PEAK = 0.003  # of full scale, -50 dB. Noise of an open microphone is below


@dataclass
class OpenMedia:
    """An open file: PyAV's container and its best picture and sound streams, None when missing.

    start: the container's first time stamp in s, second 0 of the video. duration: s, None if not
    known.
    """

    path: Path
    container: Any
    settings: MediaSettings
    picture: Any = None
    sound: Any = None
    duration: float | None = None
    exact: bool = False  # the duration is read, not guessed, and the file can be searched
    damage: Damage = field(default_factory=Damage)
    on_gpu: bool = False  # `settings.decoder` holds
    live: LiveInput | None = None  # what was opened, where it is not a file
    shape: "FileShape" = field(default_factory=lambda: FileShape())

    def __post_init__(self) -> None:
        self.start = (self.container.start_time or 0) / MICROSECONDS_PER_SECOND

    def rewind(self) -> None:
        """Reopen the file, or the live source, at its start."""
        self.container.close()
        if self.live is not None:
            self.container = open_live_container(self.live, self.settings)
        else:
            self.container = open_container(self.path, self.settings, on_gpu=self.on_gpu)
        self.choose_tracks()

    def choose_tracks(self) -> None:
        """Select and configure the picture and sound tracks. Raises MediaError when there are none."""
        pictures = picture_tracks(self.container)
        sounds = sound_tracks(self.container)
        if not pictures and not sounds:
            cure = "convert it to mp4 (H.264, AAC)"
            raise MediaError(f"{self.path}: neither picture nor sound that can be decoded; {cure}")
        self.picture = _track(pictures, self.shape.picture)
        self.sound = _track(sounds, self.shape.sound)
        if self.picture is not None:
            set_up_picture(self.path, self.picture, self.settings)

    def clock(self) -> StreamClock:
        """Return a clock for one stream of the file."""
        duration = self.duration if self.exact else None
        return StreamClock(start=self.start, duration=duration, damage=self.damage)

    def timing(self) -> PictureTiming:
        """Return the timing of the picture stream, which must exist."""
        rate = picture_rate(self.picture)
        return PictureTiming(self.clock(), rate, by_decoding=self._has_durations_in_decoding_order)

    @functools.cached_property
    def _has_durations_in_decoding_order(self) -> bool:
        """Return whether durations of pictures are in decoding order: mp4 with B-frames."""
        if self.picture is None or "mov" not in self.container.format.name:
            return False
        return bool(self.picture.codec_context.has_b_frames)

    @property
    def aspect(self) -> float:
        """Return width over height of a stored pixel, 1 unless the file declares another."""
        if self.picture is None:
            return 1.0
        aspect = self.picture.sample_aspect_ratio
        return (
            float(aspect) if aspect and MAX_PIXEL_ASPECT >= aspect >= 1 / MAX_PIXEL_ASPECT else 1.0
        )

    def packets(self) -> Iterator[Any]:
        """Yield the packets of the picture and sound streams with continuous time stamps.

        Unreadable packets are skipped and counted.
        """
        if self.live is not None:
            return self._readable_packets()
        used = [track.index for track in (self.picture, self.sound) if track is not None]
        joined = JOINED_FORMATS & _formats(self.container)
        max_pause = MAX_PAUSE_SECONDS if joined else MAX_FILE_PAUSE_SECONDS
        clock = PacketClock(used, max_pause=max_pause, damage=self.damage)
        return clock.mend(self._readable_packets())

    def _readable_packets(self) -> Iterator[Any]:
        import av

        # a damaged place is read past, unless failures come in a row
        failures = 0
        while failures < MAX_READ_FAILURES:
            try:
                for packet in self.container.demux():
                    failures = 0
                    if packet.is_corrupt:
                        self.damage.packets += 1
                    elif packet.stream.type in ("video", "audio"):
                        yield packet
                return
            except av.error.EOFError:
                return
            except av.error.FFmpegError:
                failures += 1
                self.damage.packets += 1

    def decode(self, packet: Any) -> list[Any]:
        """Return the frames of a packet, empty and counted as damage where decoding fails."""
        import av

        try:
            frames = packet.decode()
        except av.error.EOFError:
            return []
        except av.error.FFmpegError:
            self.damage.packets += 1
            return []
        whole = [frame for frame in frames if not frame.is_corrupt]
        self.damage.packets += len(frames) - len(whole)
        return whole

    def packet_end(self, packet: Any) -> float:
        """Return the second at which a packet ends, 0 without a valid time stamp."""
        stamp = presentation_stamp(packet)
        base = packet.time_base
        if stamp is None or not base:
            return 0.0
        # mp4 has a packet last until the next one of its order, past any jump
        longest = SUSPICIOUS_JUMP_SECONDS
        if self._has_durations_in_decoding_order and packet.stream_index == self.picture.index:
            longest = JUMP_SECONDS
        duration = packet.duration or 0
        if duration * base.numerator > longest * base.denominator:
            duration = 0
        # a Fraction, whose own product takes ten times as long
        end = float((stamp + duration) * base.numerator / base.denominator - self.start)
        is_late = (
            self.exact and self.duration is not None and end > self.duration + MAX_PAST_END_SECONDS
        )
        return 0.0 if is_late else end


@contextlib.contextmanager
def open_media(
    path: Path | str, settings: MediaSettings, *, on_gpu: bool = False
) -> Iterator[OpenMedia]:
    """Yield the open file.

    Args:
        path: of the file.
        settings: limits of the file.
        on_gpu: decode on a GPU where settings and GPU allow it. Its set-up pays off for many pictures.

    Raises MediaError, with the cure, for a file that is missing, not media, or past a limit.
    """
    path = Path(path)
    check_file(path, settings)
    container = open_container(path, settings, on_gpu=on_gpu)
    media = OpenMedia(path, container, settings, on_gpu=on_gpu)
    try:
        # what only reading it shows
        media.shape = _shape(path, container, settings)
        media.choose_tracks()
        media.duration = media.shape.end or _claimed_duration(container, media.start)
        if media.duration is not None:
            check_duration(path, media.duration, settings)
        media.exact = media.shape.end is None and not GUESSED_FORMATS & _formats(container)
        yield media
    finally:
        media.container.close()


def _formats(container: Any) -> set[str]:
    """Return FFmpeg's names of the container format."""
    return set(container.format.name.split(","))


def _claimed_duration(container: Any, start: float) -> float | None:
    """Return the duration in the header, s. start: of the first time stamp, s."""
    if not container.duration or container.duration < 0:
        return None
    duration = container.duration / MICROSECONDS_PER_SECOND
    counts_from_zero = FORMATS_WITH_END_STAMP & _formats(container)
    if counts_from_zero and duration > start > MAX_MISSING_SECONDS:
        duration -= start
    return float(duration)


@contextlib.contextmanager
def open_live(live: LiveInput, settings: MediaSettings) -> Iterator[OpenMedia]:
    """Yield an open live source. Raises MediaError, with the cure, for one that cannot be opened."""
    container = open_live_container(live, settings)
    media = OpenMedia(Path(live.label), container, settings, live=live)
    try:
        check_tracks(media.path, container, settings)
        media.choose_tracks()
        if container.duration and container.duration > 0:
            media.duration = container.duration / MICROSECONDS_PER_SECOND
        yield media
    finally:
        media.container.close()


def _track(tracks: list[Any], index: int | None) -> Any:
    """Return the track with an index, else the first one."""
    chosen = [track for track in tracks if track.index == index]
    return next(iter(chosen + tracks), None)


@dataclass(frozen=True)
class FileShape:
    """Facts about a file that only reading its packets shows.

    picture, sound: indices of the tracks to read, None for the default ones. end: true end in s,
    None where the claimed duration is right because the clock never jumps.
    """

    picture: int | None = None
    sound: int | None = None
    end: float | None = None


def _shape(path: Path, container: Any, settings: MediaSettings) -> FileShape:
    """Return the facts that must be known before a file is read. Most files need none."""
    check_tracks(path, container, settings)
    pictures = picture_tracks(container)
    sounds = sound_tracks(container)
    status = path.stat()
    claimed = (container.duration or 0) / MICROSECONDS_PER_SECOND
    formats = _formats(container)
    is_sparse = status.st_size < claimed * MIN_BYTES_PER_SECOND
    is_long = claimed > settings.max_duration

    # what has to be examined
    unknown_facts = {
        "films": len(pictures) > 1,
        "sounds": len(sounds) > 1 and settings.audio_track is None,
        "clock": bool(formats & JOINED_FORMATS) or is_sparse or is_long,
        "tail": claimed > 0 and bool(formats & FORMATS_WITH_LATEST_STAMP),
    }
    shape = FileShape()
    if any(unknown_facts.values()):
        version = status.st_size, status.st_mtime_ns
        shape = _examine(path, version, settings, **unknown_facts)
    if settings.audio_track is not None and sounds:
        track = numbered_track(path, container, settings.audio_track)
        shape = replace(shape, sound=track.index)
    return shape


@functools.lru_cache(maxsize=256)
def _examine(
    path: Path,
    version: tuple[int, int],
    settings: MediaSettings,
    *,
    films: bool,
    sounds: bool,
    clock: bool,
    tail: bool,
) -> FileShape:
    """Return the facts that the packets of a file show: film track, audible track, end.

    Args:
        path: of the file.
        changed: its size and time, as the cache key.
        settings: limits of the file.
        films: whether to find the track that is a film.
        sounds: whether to find the audible track.
        clock: whether to find the end of a file whose clock may jump.
        tail: the same, where the file does not end at its claimed duration.
    """
    log.debug("%s (%d bytes) is examined", path, version[0])
    shape = FileShape()
    # each answer needs a file of its own, read from its start
    if films:
        with contextlib.closing(open_container(path, settings)) as container:
            shape = replace(shape, picture=film_index(container, picture_tracks(container)))
    if sounds:
        with contextlib.closing(open_container(path, settings)) as container:
            shape = replace(shape, sound=audible_index(container, sound_tracks(container)))
    if clock or (tail and not _ends_as_claimed(path, settings)):
        shape = replace(shape, end=_mended_end(path, settings, shape))
    return shape


def _mended_end(path: Path, settings: MediaSettings, shape: FileShape) -> float | None:
    """Return the corrected end, in s, of a file whose time stamps jump, by reading all packets,
    else None.
    """
    with contextlib.closing(open_container(path, settings)) as container:
        media = OpenMedia(path, container, settings, shape=shape)
        media.choose_tracks()
        end = max(map(media.packet_end, media.packets()), default=0.0)
        return end if media.damage.is_clock_broken else None


def _ends_as_claimed(path: Path, settings: MediaSettings) -> bool:
    """Return whether the last packets end at about the claimed duration."""
    import av

    with contextlib.closing(open_container(path, settings)) as container:
        # the last packet of each stream
        ends: dict[int, float] = {}
        try:
            container.seek(container.duration, backward=True)
            for packet in container.demux():
                second = decoding_second(packet)
                if second is not None:
                    ends[packet.stream.index] = second
        except av.error.FFmpegError:
            return False
        claimed = container.duration / MICROSECONDS_PER_SECOND
        return bool(max(ends.values(), default=0.0) > claimed - SUSPICIOUS_JUMP_SECONDS)


def check_duration(path: Path, duration: float, settings: MediaSettings) -> None:
    """Raise MediaError where a video is longer than the limit."""
    if duration > settings.max_duration:
        limit = f"media.max_duration = {settings.max_duration:g} s"
        higher = f"--set media.max_duration={duration + 60:.0f}.0"
        cure = f"cut the video, or raise the limit with {higher}"
        raise MediaError(f"{path}: {duration:.0f} s are more than {limit}; {cure}")


def picture_rate(stream: Any) -> float:
    """Return the frames/s that a picture stream claims, a usual rate where the claim is impossible."""
    rate = stream.average_rate or stream.guessed_rate
    return float(rate) if rate and 0 < rate <= MAX_FRAME_RATE else DEFAULT_FRAME_RATE


# ---------------------------------------------------------------- tracks


def check_tracks(path: Path, container: Any, settings: MediaSettings) -> None:
    """Raise MediaError where a file has more tracks than the limit."""
    count = len(container.streams)
    if count > settings.max_streams:
        raise MediaError(
            f"{path}: {count} streams are more than media.max_streams = {settings.max_streams}; "
            "keep one picture and one sound track (ffmpeg -i IN -c copy OUT)"
        )


def picture_tracks(container: Any) -> list[Any]:
    """Return the decodable video tracks without cover pictures, the default ones first."""
    from av.stream import Disposition

    # a cover picture is not a picture stream
    cover = Disposition.attached_pic | Disposition.timed_thumbnails
    return _usable(stream for stream in container.streams.video if not stream.disposition & cover)


def sound_tracks(container: Any) -> list[Any]:
    """Return the decodable sound tracks, the default ones first."""
    return _usable(container.streams.audio)


def _usable(streams: Iterable[Any]) -> list[Any]:
    from av.stream import Disposition

    usable = [stream for stream in streams if stream.codec_context is not None]
    return sorted(usable, key=lambda stream: not stream.disposition & Disposition.default)


def film_index(container: Any, tracks: Sequence[Any]) -> int:
    """Return the index of the first track with more than one picture, else of the first one.

    Reads the container, which must be reopened. A cover picture without its flag may come first.
    """
    counts = {stream.index: 0 for stream in tracks}
    for number, packet in enumerate(container.demux(tracks)):
        # An empty packet marks the end of a stream.
        if packet.size:
            counts[packet.stream.index] += 1
        if min(counts.values()) > 1 or number >= MAX_PACKETS_TO_COUNT:
            break
    films = [index for index, count in counts.items() if count > 1]
    return int((films or list(counts))[0])


def numbered_track(path: Path, container: Any, number: int) -> Any:
    """Return the sound track with a number, from 1 on in the order of the file.

    Raises MediaError where that track is missing or cannot be decoded.
    """
    tracks = list(container.streams.audio)
    if number > len(tracks) or tracks[number - 1].codec_context is None:
        raise MediaError(
            f"{path}: no sound track {number} that can be decoded; "
            f"give media.audio_track from 1 to {len(tracks)}"
        )
    return tracks[number - 1]


def audible_index(container: Any, tracks: Sequence[Any]) -> int:
    """Return the index of the first track with audible sound, else of the first one.

    Reads the container, which must be reopened. Recorders write one track per input, and many of
    these are silent.
    """
    import av

    audible: set[int] = set()
    for number, packet in enumerate(container.demux(tracks)):
        if number >= MAX_AUDIBILITY_PACKETS * len(tracks):
            break
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            continue
        if any(_is_audible(frame) for frame in frames):
            audible.add(packet.stream.index)
            if packet.stream.index == tracks[0].index:
                break
    is_audible = [track for track in tracks if track.index in audible]
    return int((is_audible or tracks)[0].index)


def _is_audible(frame: Any) -> bool:
    samples = np.asarray(frame.to_ndarray())
    kind = samples.dtype.kind
    highest = np.iinfo(samples.dtype).max if kind in "iu" else 1.0
    # Unsigned samples are silent in the middle of their range.
    middle = highest / 2 if kind == "u" else 0.0
    peak = np.abs(samples.astype(np.float32) - middle).max(initial=0.0)
    return bool(peak > MIN_AUDIBLE_PEAK * highest)


def set_up_picture(path: Path, picture: Any, settings: MediaSettings) -> None:
    """Configure the decoder of a video track. Raises MediaError where pictures exceed the limit."""
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
