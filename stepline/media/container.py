"""A media file opened under limits: its packets past the damaged ones, its time stamps as seconds,
what was damaged.

open_media     an untrusted file, or a MediaError. Nothing but the file itself is ever opened
open_live      an address, a device or a file that still grows, of which packets come as they are made
FileShape      which of its tracks are read and where it ends, where only reading it tells
"""

import contextlib
import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stepline.errors import MediaError
from stepline.media.clock import (
    JUMP_SECONDS,
    MARGIN_SECONDS,
    MAX_FILE_PAUSE_SECONDS,
    MAX_MISSING_SECONDS,
    MAX_PAUSE_SECONDS,
    SUSPECT_SECONDS,
    Damage,
    PacketClock,
    PictureTiming,
    StreamClock,
)
from stepline.media.opening import LiveInput, check_file, open_container, open_live_container
from stepline.media.settings import MediaSettings
from stepline.media.tracks import (
    audible_index,
    check_tracks,
    film_index,
    numbered_track,
    picture_tracks,
    set_up_picture,
    sound_tracks,
)

log = logging.getLogger(__name__)

# Containers whose duration FFmpeg guesses from the bit rate, and whose frames may have no time
# stamps.
GUESSED_FORMATS = frozenset(
    {"mp3", "aac", "ac3", "eac3", "amr", "mpeg", "h264", "hevc", "m4v", "mpegvideo", "obu", "dv"}
)

# Containers that give the second of their end as their duration, also where they do not start at 0.
FORMATS_WITH_ENDS = frozenset({"matroska", "nut"})

# Containers that are made to be joined end to end, so that their clocks may start over.
JOINED_FORMATS = frozenset({"mpegts", "mpeg"})

# Containers that claim to last up to their latest time stamp, be it broken.
FORMATS_WITH_LATEST_STAMP = frozenset({"matroska", "flv", "nut", "asf"})

# bytes. A file of less for every second that it claims may lie: the poorest speech takes 700
MIN_BYTES_PER_SECOND = 1000

MICROSECONDS_PER_SECOND = 1_000_000  # FFmpeg's unit for the times of a container
USUAL_RATE = 25.0  # frames/s taken where a video does not say its own
MOST_RATE = 1000.0  # frames/s. A time base passes for a rate in some files
MOST_ASPECT = 4  # of a stored pixel. Anamorphic video stays under 2, more is a broken header
MOST_FAILURES = 100  # read errors in a row after which the rest of a file is given up


@dataclass
class OpenMedia:
    """An open file: PyAV's container and its best picture and sound streams, each None if it is
    missing.

    start: the container's first time stamp in s, second 0 of the video. duration: s, None if not
    known.
    """

    path: Path
    container: Any
    picture: Any
    sound: Any
    start: float
    duration: float | None
    exact: bool  # the duration is read, not guessed, and the file can be searched
    settings: MediaSettings
    damage: Damage = field(default_factory=Damage)
    on_gpu: bool = False  # `settings.decoder` holds
    live: LiveInput | None = None  # what was opened, where it is not a file
    shape: "FileShape" = field(default_factory=lambda: FileShape())

    def rewind(self) -> None:
        """Open the file, or the live source, again, at its start."""
        self.container.close()
        if self.live is not None:
            self.container = open_live_container(self.live, self.settings)
        else:
            self.container = open_container(self.path, self.settings, on_gpu=self.on_gpu)
        self.picture, self.sound = _tracks(self.path, self.container, self.settings, self.shape)

    def clock(self) -> StreamClock:
        """Return a clock for one stream of the file."""
        duration = self.duration if self.exact else None
        return StreamClock(start=self.start, duration=duration, damage=self.damage)

    def timing(self) -> PictureTiming:
        """Return a clock for the picture stream, which must exist."""
        rate = picture_rate(self.picture)
        return PictureTiming(self.clock(), rate, by_decoding=self._has_lengths_by_decoding)

    @functools.cached_property
    def _has_lengths_by_decoding(self) -> bool:
        """Whether lengths of pictures come in the order of decoding: mp4 with B-frames."""
        if self.picture is None or "mov" not in self.container.format.name:
            return False
        return bool(self.picture.codec_context.has_b_frames)

    @property
    def aspect(self) -> float:
        """Width over height of a stored pixel, 1 unless the file says otherwise."""
        if self.picture is None:
            return 1.0
        aspect = self.picture.sample_aspect_ratio
        return float(aspect) if aspect and MOST_ASPECT >= aspect >= 1 / MOST_ASPECT else 1.0

    def packets(self) -> Iterator[Any]:
        """Yield every packet of the picture and sound streams. What cannot be read is counted and
        passed over.

        Their time stamps go on where those of the file jump.
        """
        if self.live is not None:
            return self._readable_packets()
        used = [track.index for track in (self.picture, self.sound) if track is not None]
        joined = JOINED_FORMATS & set(self.container.format.name.split(","))
        max_pause = MAX_PAUSE_SECONDS if joined else MAX_FILE_PAUSE_SECONDS
        clock = PacketClock(used, max_pause=max_pause, damage=self.damage)
        return clock.mend(self._readable_packets())

    def _readable_packets(self) -> Iterator[Any]:
        import av

        # a damaged place is read past, unless failures come in a row
        failures = 0
        while failures < MOST_FAILURES:
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
        """Return the frames of a packet. Empty, and counted, where the decoder refuses it."""
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
        """Return the second at which a packet ends, 0 where it has no time stamp that can be."""
        stamp = packet.pts if packet.pts is not None else packet.dts
        base = packet.time_base
        if stamp is None or not base:
            return 0.0
        # mp4 has a packet last until the next one of its order, past any jump
        longest = SUSPECT_SECONDS
        if self._has_lengths_by_decoding and packet.stream_index == self.picture.index:
            longest = JUMP_SECONDS
        duration = packet.duration or 0
        if duration * base.numerator > longest * base.denominator:
            duration = 0
        # a Fraction, whose own product takes ten times as long
        end = float((stamp + duration) * base.numerator / base.denominator - self.start)
        if self.duration is None or not self.exact:
            return end
        if end <= self.duration + MARGIN_SECONDS:
            return end
        return 0.0


@contextlib.contextmanager
def open_media(
    path: Path | str, settings: MediaSettings, *, on_gpu: bool = False
) -> Iterator[OpenMedia]:
    """Yield the open file. Raises MediaError, with the cure, for what is missing, not media, or
    past a limit.

    on_gpu: a GPU decodes the pictures where the settings say so and it can. To make one ready pays
    for many alone.
    """
    path = Path(path)
    check_file(path, settings)
    container = open_container(path, settings, on_gpu=on_gpu)
    media = None
    try:
        # what only reading it shows
        shape = _shape(path, container, settings)
        picture, sound = _tracks(path, container, settings, shape)
        start = (container.start_time or 0) / MICROSECONDS_PER_SECOND
        formats = set(container.format.name.split(","))
        duration = shape.end or _claimed_duration(container, start)
        if duration is not None:
            check_duration(path, duration, settings)
        exact = shape.end is None and not GUESSED_FORMATS & formats
        media = OpenMedia(
            path,
            container,
            picture,
            sound,
            start,
            duration,
            exact,
            settings,
            on_gpu=on_gpu,
            shape=shape,
        )
        yield media
    finally:
        opened = container if media is None else media.container
        opened.close()


def _claimed_duration(container: Any, start: float) -> float | None:
    """Return the length that a container claims, s. start: of its first time stamp, s."""
    if not container.duration or container.duration < 0:
        return None
    duration = container.duration / MICROSECONDS_PER_SECOND
    counts_from_zero = FORMATS_WITH_ENDS & set(container.format.name.split(","))
    if counts_from_zero and duration > start > MAX_MISSING_SECONDS:
        duration -= start
    return float(duration)


@contextlib.contextmanager
def open_live(live: LiveInput, settings: MediaSettings) -> Iterator[OpenMedia]:
    """Yield a live source, opened. Raises MediaError, with the cure, for what cannot be."""
    container = open_live_container(live, settings)
    media = None
    try:
        check_tracks(Path(live.label), container, settings)
        picture, sound = _tracks(Path(live.label), container, settings, FileShape())
        start = (container.start_time or 0) / MICROSECONDS_PER_SECOND
        duration = None
        if container.duration and container.duration > 0:
            duration = container.duration / MICROSECONDS_PER_SECOND
        media = OpenMedia(
            Path(live.label), container, picture, sound, start, duration, False, settings, live=live
        )
        yield media
    finally:
        opened = container if media is None else media.container
        opened.close()


def _tracks(
    path: Path, container: Any, settings: MediaSettings, shape: "FileShape"
) -> tuple[Any, Any]:
    """Return the picture and the sound track to read, each None if it is missing, set up for
    decoding."""
    pictures = picture_tracks(container)
    sounds = sound_tracks(container)
    if not pictures and not sounds:
        raise MediaError(
            f"{path}: neither picture nor sound that can be decoded; convert it to mp4 (H.264, AAC)"
        )
    picture = _track(pictures, shape.picture)
    sound = _track(sounds, shape.sound)
    if picture is not None:
        set_up_picture(path, picture, settings)
    return picture, sound


def _track(tracks: list[Any], index: int | None) -> Any:
    """Return the track of an index, else the first one."""
    for track in tracks:
        if track.index == index:
            return track
    return tracks[0] if tracks else None


@dataclass(frozen=True)
class FileShape:
    """What only reading a file shows.

    picture, sound: the indices of the tracks to read, None for the default ones.
    end: s really in it, None where its claimed duration is believed, that is, its clock never
    jumps.
    """

    picture: int | None = None
    sound: int | None = None
    end: float | None = None


def _shape(path: Path, container: Any, settings: MediaSettings) -> FileShape:
    """Return what is to be known of a file before it is read, of most files nothing."""
    check_tracks(path, container, settings)
    pictures = picture_tracks(container)
    sounds = sound_tracks(container)
    status = path.stat()
    claimed = (container.duration or 0) / MICROSECONDS_PER_SECOND
    formats = set(container.format.name.split(","))
    is_joined = bool(formats & JOINED_FORMATS)
    is_sparse = status.st_size < claimed * MIN_BYTES_PER_SECOND

    # what has to be examined
    questions = _Questions(
        films=len(pictures) > 1,
        sounds=len(sounds) > 1 and settings.audio_track is None,
        clock=is_joined or is_sparse or claimed > settings.max_duration,
        tail=claimed > 0 and bool(formats & FORMATS_WITH_LATEST_STAMP),
    )
    shape = FileShape()
    if any(vars(questions).values()):
        changed = status.st_size, status.st_mtime_ns
        shape = _examine(path, changed, settings, questions)
    if settings.audio_track is not None and sounds:
        track = numbered_track(path, container, settings.audio_track)
        shape = replace(shape, sound=track.index)
    return shape


@dataclass(frozen=True)
class _Questions:
    """What is to be examined: which track is a film, which is heard, whether the clock jumps.

    tail: whether the clock jumps, where the file does not end when it claims.
    """

    films: bool
    sounds: bool
    clock: bool
    tail: bool


@functools.lru_cache(maxsize=256)
def _examine(
    path: Path, changed: tuple[int, int], settings: MediaSettings, questions: _Questions
) -> FileShape:
    """Return what the packets of a file tell. changed: its size and time, by which it is known."""
    log.debug("%s (%d bytes) is examined", path, changed[0])
    picture = None
    sound = None
    end = None

    # each answer needs a file of its own, read from its start
    if questions.films:
        with contextlib.closing(open_container(path, settings)) as container:
            picture = film_index(container, picture_tracks(container))
    if questions.sounds:
        with contextlib.closing(open_container(path, settings)) as container:
            sound = audible_index(container, sound_tracks(container))
    if questions.clock or (questions.tail and not _ends_as_claimed(path, settings)):
        end = _mended_end(path, settings, FileShape(picture, sound))
    return FileShape(picture, sound, end)


def _mended_end(path: Path, settings: MediaSettings, shape: FileShape) -> float | None:
    """Return the second at which a file ends whose time stamps jump, read to its end. None where
    they do not."""
    container = open_container(path, settings)
    with contextlib.closing(container):
        picture, sound = _tracks(path, container, settings, shape)
        start = (container.start_time or 0) / MICROSECONDS_PER_SECOND
        media = OpenMedia(path, container, picture, sound, start, None, False, settings)
        end = max((media.packet_end(packet) for packet in media.packets()), default=0.0)
        return None if not media.damage.is_clock_broken else end


def _ends_as_claimed(path: Path, settings: MediaSettings) -> bool:
    """Whether the packets at the end of a file end about when it claims to."""
    import av

    with contextlib.closing(open_container(path, settings)) as container:
        # the last packet of each stream
        ends: dict[int, float] = {}
        try:
            container.seek(container.duration, backward=True)
            for packet in container.demux():
                stamp = packet.dts
                if stamp is None:
                    stamp = packet.pts
                if stamp is not None and packet.time_base:
                    ends[packet.stream.index] = float(stamp * packet.time_base)
        except av.error.FFmpegError:
            return False
        claimed = container.duration / MICROSECONDS_PER_SECOND
        return bool(max(ends.values(), default=0.0) > claimed - SUSPECT_SECONDS)


def check_duration(path: Path, duration: float, settings: MediaSettings) -> None:
    """Raise MediaError where a video lasts longer than the limit."""
    if duration > settings.max_duration:
        limit = f"media.max_duration = {settings.max_duration:g} s"
        higher = f"--set media.max_duration={duration + 60:.0f}.0"
        cure = f"cut the video, or raise the limit with {higher}"
        raise MediaError(f"{path}: {duration:.0f} s are more than {limit}; {cure}")


def picture_rate(stream: Any) -> float:
    """Return the frames/s that a picture stream claims, a usual rate where it claims none that can
    be."""
    rate = stream.average_rate or stream.guessed_rate
    return float(rate) if rate and 0 < rate <= MOST_RATE else USUAL_RATE
