"""Opens a media file or live source under limits: packets, time stamps as seconds, damage.

open_media     an untrusted file, or a MediaError. Nothing but the file itself is ever opened
open_live      an address, a device or a growing file, whose packets come as they are made
PacketScan     what only reading a file's packets shows: the streams to use and the true end
"""

import contextlib
import functools
import itertools
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
    MAX_REORDERED,
    SUSPICIOUS_JUMP_SECONDS,
    Damage,
    FrameTiming,
    PacketClock,
    StreamClock,
    decoding_second,
    presentation_stamp,
)
from stepline.media.settings import MediaSettings

log = logging.getLogger(__name__)

# Demuxers that read one file and never follow a reference out of it. Playlists (hls, concat, dash,
# sdp) and image sequences are not among them.
ALLOWED_FORMATS = (
    "mov,mp4,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,nut,rm,mxf,dv,ivf,wtv,"
    "h264,hevc,m4v,mpegvideo,obu,"
    "mp3,wav,w64,flac,aac,aiff,caf,amr,ac3,eac3,wv,ape,au"
)

# Containers whose duration FFmpeg guesses from the bit rate, and whose frames may have no time
# stamps.
GUESSED_FORMATS = frozenset(
    {"mp3", "aac", "ac3", "eac3", "amr", "mpeg", "h264", "hevc", "m4v", "mpegvideo", "obu", "dv"}
)

# Containers that give the second of their end as their duration, also where they do not start at 0.
FORMATS_WITH_END_STAMP = frozenset({"matroska", "nut"})

# Containers that are made to be joined end to end, so that their clocks may start over.
JOINED_FORMATS = frozenset({"mpegts", "mpeg"})

# Containers that claim to last up to their latest time stamp, even a broken one.
FORMATS_WITH_LATEST_STAMP = frozenset({"matroska", "flv", "nut", "asf"})

# bytes. A file with fewer for every second that it claims may lie: the poorest speech takes 700
MIN_BYTES_PER_SECOND = 1000

MICROSECONDS_PER_SECOND = 1_000_000  # FFmpeg's unit for the times of a container
DEFAULT_FRAME_RATE = 25.0  # frames/s taken where a video does not say its own
MAX_FRAME_RATE = 1000.0  # frames/s. A time base passes for a rate in some files
MAX_PIXEL_ASPECT = 4  # of a stored pixel. Anamorphic video stays under 2, more is a broken header
MAX_READ_FAILURES = 100  # read errors in a row after which the rest of a file is given up
MIN_FFMPEG_STREAMS = 1000  # FFmpeg's own limit is at least this, since ours has a better message

# packets of a file among which a film has a second frame. About ten seconds of it
MAX_PACKETS_TO_COUNT = 1000
# packets of each audio stream among which something is heard. Two minutes of AAC
MAX_AUDIBILITY_PACKETS = 6000
MIN_AUDIBLE_PEAK = 0.003  # of full scale, -50 dB. Noise of an open microphone is below


@dataclass(frozen=True)
class LiveInput:
    """Address and FFmpeg options of a live source.

    Attributes:
        url: address, device or file, in FFmpeg's notation.
        label: name of the source in messages.
        protocols: FFmpeg protocols that the input, and references inside it, may use.
        format: FFmpeg's name of the input device type. None if FFmpeg detects the format.
        options: further options of FFmpeg as (name, value).
        timeout_seconds: seconds without a packet after which reading fails.
    """

    url: str
    label: str
    protocols: str = ""
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    timeout_seconds: float = 30.0

    @property
    def is_address(self) -> bool:
        """Whether the source is read over the network."""
        return self.format is None and "://" in self.url


@dataclass(frozen=True)
class PacketScan:
    """Facts about a file that only a pass over its packets shows.

    Attributes:
        video_index: index of the video stream to use, None for the default stream.
        audio_index: index of the audio stream to use, None for the default stream.
        end: true end in seconds, None if the duration in the header is right.
    """

    video_index: int | None = None
    audio_index: int | None = None
    end: float | None = None


@dataclass
class OpenMedia:
    """An open file or live source: PyAV's container and the video and audio stream in use.

    Attributes:
        path: path of the file, or label of the live source.
        container: PyAV's container.
        settings: limits on the file.
        video_stream: PyAV's stream, None without video.
        audio_stream: PyAV's stream, None without audio.
        duration: seconds, None if unknown.
        is_seekable: whether the duration is read, not guessed, and seeking by time works.
        damage: counts of damaged packets and time stamps so far.
        live: the live source, None for a file.
        scan: facts found by a pass over the packets.
        start: first time stamp of the container in seconds, which is second 0 of the video.
    """

    path: Path
    container: Any
    settings: MediaSettings
    video_stream: Any = None
    audio_stream: Any = None
    duration: float | None = None
    is_seekable: bool = False
    damage: Damage = field(default_factory=Damage)
    live: LiveInput | None = None
    scan: PacketScan = field(default_factory=PacketScan)

    def __post_init__(self) -> None:
        self.start = (self.container.start_time or 0) / MICROSECONDS_PER_SECOND

    def rewind(self) -> None:
        """Reopen the file or live source, to read from its start."""
        self.container.close()
        if self.live is not None:
            self.container = _open_live_container(self.live, self.settings)
        else:
            self.container = _open_container(self.path, self.settings)
        self.choose_streams()

    def choose_streams(self) -> None:
        """Select the video and audio stream and configure their decoders.

        Raises MediaError if there is neither.
        """
        video_streams = _video_streams(self.container)
        audio_streams = _usable_streams(self.container.streams.audio)
        if not video_streams and not audio_streams:
            raise MediaError(
                f"{self.path}: neither picture nor sound that can be decoded; convert it to mp4 "
                "(H.264, AAC)"
            )
        self.video_stream = _stream_at(video_streams, self.scan.video_index)
        self.audio_stream = _stream_at(audio_streams, self.scan.audio_index)
        if self.video_stream is not None:
            _configure_video(self.path, self.video_stream, self.settings)

    def clock(self) -> StreamClock:
        """Return a new clock for the frames of one of the file's streams."""
        duration = self.duration if self.is_seekable else None
        return StreamClock(start=self.start, duration=duration, damage=self.damage)

    def timing(self) -> FrameTiming:
        """Return the frame timing of the video stream. The file must have one."""
        rate = frame_rate(self.video_stream)
        return FrameTiming(self.clock(), rate, by_decoding=self._has_durations_in_decoding_order)

    @functools.cached_property
    def _has_durations_in_decoding_order(self) -> bool:
        """Return whether frame durations are stored in decoding order, as in mp4 with B-frames."""
        if self.video_stream is None or "mov" not in self.container.format.name:
            return False
        return bool(self.video_stream.codec_context.has_b_frames)

    @property
    def aspect(self) -> float:
        """Width over height of a stored pixel, 1 if the file declares no other value."""
        aspect = self.video_stream and self.video_stream.sample_aspect_ratio
        is_plausible = aspect and MAX_PIXEL_ASPECT >= aspect >= 1 / MAX_PIXEL_ASPECT
        return float(aspect) if is_plausible else 1.0

    def packets(self) -> Iterator[Any]:
        """Yield the packets of the video and audio streams with continuous time stamps.

        Unreadable packets are skipped and counted.
        """
        if self.live is not None:
            return self.stored_packets()
        streams = (self.video_stream, self.audio_stream)
        used = [stream.index for stream in streams if stream is not None]
        is_joined = JOINED_FORMATS & _format_names(self.container)
        max_pause = MAX_PAUSE_SECONDS if is_joined else MAX_FILE_PAUSE_SECONDS
        clock = PacketClock(used, max_pause=max_pause, damage=self.damage, start=self.start)
        return clock.correct(self.stored_packets())

    def stored_packets(self, *, raises_network_errors: bool = False) -> Iterator[Any]:
        """Yield the packets of the video and audio streams with the time stamps of the file.

        Unreadable packets are skipped and counted, unless MAX_READ_FAILURES come in a row.

        raises_network_errors: whether an FFmpegError that is not about invalid data is raised, not
            counted.
        """
        import av

        failures = 0
        while failures < MAX_READ_FAILURES:
            try:
                for packet in self.container.demux():
                    failures = 0
                    if packet.is_corrupt:
                        self.damage.packet_count += 1
                    elif packet.stream.type in ("video", "audio"):
                        yield packet
                return
            except av.error.EOFError:
                return
            except av.error.FFmpegError as error:
                if raises_network_errors and not isinstance(error, av.error.InvalidDataError):
                    raise
                failures += 1
                self.damage.packet_count += 1

    def decode(self, packet: Any) -> list[Any]:
        """Return PyAV's frames of a packet.

        A packet that cannot be decoded gives [] and counts as damage.
        """
        import av

        try:
            frames = packet.decode()
        except av.error.EOFError:
            return []
        except av.error.FFmpegError:
            self.damage.packet_count += 1
            return []
        intact = [frame for frame in frames if not frame.is_corrupt]
        self.damage.packet_count += len(frames) - len(intact)
        return intact

    def drain(self) -> list[Any]:
        """Return the frames that the video decoder still holds. It can then start at a key frame."""
        import av

        context = self.video_stream.codec_context
        try:
            frames = list(context.decode(None))
        except av.error.FFmpegError:
            self.damage.packet_count += 1
            frames = []
        context.flush_buffers()
        return frames

    def packet_end(self, packet: Any) -> float:
        """Return the second at which a packet ends, 0 if it has no valid time stamp."""
        stamp = presentation_stamp(packet)
        base = packet.time_base
        if stamp is None or not base:
            return 0.0
        # mp4 has a packet last until the next one of its order, past any jump
        max_seconds = SUSPICIOUS_JUMP_SECONDS
        if self._has_durations_in_decoding_order and packet.stream_index == self.video_stream.index:
            max_seconds = JUMP_SECONDS
        duration = packet.duration or 0
        if duration * base.numerator > max_seconds * base.denominator:
            duration = 0
        # The product of Fractions takes ten times as long.
        end = float((stamp + duration) * base.numerator / base.denominator - self.start)
        if self.is_seekable and self.duration and end > self.duration + MAX_PAST_END_SECONDS:
            return 0.0
        return end


@contextlib.contextmanager
def open_media(path: Path | str, settings: MediaSettings) -> Iterator[OpenMedia]:
    """Yield an open media file.

    Args:
        path: path of the file.
        settings: limits on the file.

    Raises MediaError, with the cure, if the file is missing, not a media file, or over a limit.
    """
    path = Path(path)
    _check_file(path, settings)
    container = _open_container(path, settings)
    media = OpenMedia(path, container, settings)
    try:
        media.scan = _scan_if_needed(path, container, settings)
        media.choose_streams()
        media.duration = media.scan.end or _header_duration(container, media.start)
        if media.duration is not None:
            check_duration(path, media.duration, settings)
        media.is_seekable = media.scan.end is None and not (
            GUESSED_FORMATS & _format_names(container)
        )
        yield media
    finally:
        media.container.close()


@contextlib.contextmanager
def open_live(live: LiveInput, settings: MediaSettings) -> Iterator[OpenMedia]:
    """Yield an open live source.

    Args:
        live: address and options of the source.
        settings: limits on the source.

    Raises MediaError, with the cure, if it cannot be opened.
    """
    container = _open_live_container(live, settings)
    media = OpenMedia(Path(live.label), container, settings, live=live)
    try:
        _check_stream_count(media.path, container, settings)
        media.choose_streams()
        if container.duration and container.duration > 0:
            media.duration = container.duration / MICROSECONDS_PER_SECOND
        yield media
    finally:
        media.container.close()


def check_duration(path: Path, duration: float, settings: MediaSettings) -> None:
    """Raise MediaError if a duration in seconds is longer than the settings allow."""
    if duration > settings.max_duration:
        raise MediaError(
            f"{path}: {duration:.0f} s are more than media.max_duration = "
            f"{settings.max_duration:g} s; cut the video, or raise the limit with --set "
            f"media.max_duration={duration + 60:.0f}.0"
        )


def frame_rate(stream: Any) -> float:
    """Return the frames per second that a video stream declares.

    A default rate replaces an impossible value.
    """
    rate = stream.average_rate or stream.guessed_rate
    return float(rate) if rate and 0 < rate <= MAX_FRAME_RATE else DEFAULT_FRAME_RATE


# ---------------------------------------------------------------- opening


def _check_file(path: Path, settings: MediaSettings) -> None:
    """Raise MediaError, with the cure, for a file that is not regular or exceeds the limits."""
    try:
        if path.is_dir():
            raise MediaError(f"{path}: a folder, not a video; name a file in it")
        if path.exists() and not path.is_file():
            raise MediaError(f"{path}: not a plain file; save the video to one first")
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise MediaError(f"{path}: {reason}; check the path") from error
    if size == 0:
        raise MediaError(f"{path}: the file is empty; download or copy it again")
    if size > settings.max_bytes:
        raise MediaError(
            f"{path}: {size} bytes are more than media.max_bytes = {settings.max_bytes}; "
            f"cut the video, or raise the limit with --set media.max_bytes={size}"
        )


def _open_container(path: Path, settings: MediaSettings) -> Any:
    """Return PyAV's container of a file. Raises MediaError, with the cure, where opening fails."""
    import av

    options = {
        "format_whitelist": ALLOWED_FORMATS,
        "protocol_whitelist": "file",
        "max_streams": str(max(MIN_FFMPEG_STREAMS, settings.max_streams)),
    }
    try:
        return av.open(f"file:{path}", options=options, metadata_errors="replace")
    except (av.error.InvalidDataError, av.error.EOFError) as error:
        raise MediaError(
            f"{path}: not a video that can be read (damaged, cut off before its index, "
            "or another kind of file); download it again or convert it to mp4"
        ) from error
    except av.error.ArgumentError as error:
        raise MediaError(
            f"{path}: a playlist, picture or other format that is not opened; "
            "convert the video itself to mp4"
        ) from error
    except (av.error.FFmpegError, OSError) as error:
        raise MediaError(
            f"{path}: cannot be opened ({failure_reason(error)}); check the file, "
            "or convert it to mp4"
        ) from error


def _open_live_container(live: LiveInput, settings: MediaSettings) -> Any:
    """Return PyAV's container of a live source. Raises MediaError where opening fails."""
    import av

    options = {
        "max_streams": str(max(MIN_FFMPEG_STREAMS, settings.max_streams)),
        **dict(live.options),
    }
    if live.protocols:
        options["protocol_whitelist"] = live.protocols
    if live.format is None:
        options["format_whitelist"] = f"{ALLOWED_FORMATS},hls,rtsp,sdp,rtp"
    elif live.format not in av.formats_available:
        raise MediaError(
            f"{live.label}: this build of PyAV reads no {live.format} devices; send it with "
            f"`ffmpeg -f {live.format} -i {live.url} -f mpegts udp://127.0.0.1:5000` and name "
            "udp://127.0.0.1:5000"
        )
    try:
        return av.open(
            live.url,
            format=live.format,
            options=options,
            timeout=(live.timeout_seconds, live.timeout_seconds),
            metadata_errors="replace",
        )
    except (av.error.FFmpegError, OSError) as error:
        raise MediaError(
            f"{live.label}: cannot be opened ({failure_reason(error)}); check that it runs, "
            "and its address"
        ) from error


def failure_reason(error: Exception) -> str:
    """Return FFmpeg's message of an error, without the arguments of the call."""
    return getattr(error, "strerror", None) or str(error)


def _format_names(container: Any) -> set[str]:
    """Return FFmpeg's names of the container format."""
    return set(container.format.name.split(","))


def claimed_duration(path: Path, settings: MediaSettings) -> float | None:
    """Return the duration in seconds that a file's header claims. Nothing is decoded.

    None if it is unknown, over a limit, or the file cannot be opened.
    """
    try:
        _check_file(path, settings)
        with contextlib.closing(_open_container(path, settings)) as container:
            duration = _header_duration(container, 0.0)
            check_duration(path, duration or 0.0, settings)
            return duration
    except MediaError:
        return None


def _header_duration(container: Any, start: float) -> float | None:
    """Return the duration in seconds by the file's header, None if unknown.

    start: first time stamp of the container in seconds.
    """
    if not container.duration or container.duration < 0:
        return None
    duration = float(container.duration / MICROSECONDS_PER_SECOND)
    has_end_stamp = FORMATS_WITH_END_STAMP & _format_names(container)
    if has_end_stamp and (start < 0 or duration > start > MAX_MISSING_SECONDS):
        return duration - start
    return duration


# ---------------------------------------------------------------- scanning


def _scan_if_needed(path: Path, container: Any, settings: MediaSettings) -> PacketScan:
    """Return the facts that a pass over the packets shows, if the file needs such a pass."""
    _check_stream_count(path, container, settings)
    status = path.stat()
    claimed = (container.duration or 0) / MICROSECONDS_PER_SECOND
    formats = _format_names(container)
    is_sparse = status.st_size < claimed * MIN_BYTES_PER_SECOND
    is_too_long = claimed > settings.max_duration
    has_audio_choice = len(_usable_streams(container.streams.audio)) > 1
    has_latest_stamp = bool(formats & FORMATS_WITH_LATEST_STAMP)
    # a cut with negative times, which Matroska cannot store
    start = container.start_time
    is_before_zero = has_latest_stamp and (
        start is None or start > claimed * MICROSECONDS_PER_SECOND > 0
    )
    needed_facts = {
        "find_film": len(_video_streams(container)) > 1,
        "find_audible": has_audio_choice and settings.audio_track is None,
        "find_end": bool(formats & JOINED_FORMATS) or is_sparse or is_too_long or is_before_zero,
        "check_end": claimed > 0 and has_latest_stamp,
    }
    scan = PacketScan()
    if any(needed_facts.values()):
        version = status.st_size, status.st_mtime_ns
        scan = _scan_packets(path, version, settings, **needed_facts)
    if settings.audio_track is not None and _usable_streams(container.streams.audio):
        number = settings.audio_track
        scan = replace(scan, audio_index=_numbered_audio_index(path, container, number))
    return scan


@functools.lru_cache(maxsize=256)
def _scan_packets(
    path: Path,
    version: tuple[int, int],
    settings: MediaSettings,
    *,
    find_film: bool,
    find_audible: bool,
    find_end: bool,
    check_end: bool,
) -> PacketScan:
    """Return the facts that a pass over the packets of a file shows.

    Args:
        path: path of the file.
        version: size and modification time of the file, as a cache key.
        settings: limits on the file.
        find_film: whether to find the video stream that is not only a cover image.
        find_audible: whether to find the first audio stream with audible sound.
        find_end: whether to find the true end, since the time stamps may jump.
        check_end: whether to find the true end if the last packets do not end at the duration in
            the header.
    """
    log.debug("%s (%d bytes) is scanned", path, version[0])
    scan = PacketScan()
    # each answer needs a container of its own, read from its start
    if find_film:
        with _open_container(path, settings) as container:
            scan = replace(
                scan, video_index=_main_video_index(container, _video_streams(container))
            )
    if find_audible:
        with _open_container(path, settings) as container:
            audio_streams = _usable_streams(container.streams.audio)
            scan = replace(scan, audio_index=_audible_index(container, audio_streams))
    if find_end or (check_end and not _ends_at_header_duration(path, settings)):
        with _open_container(path, settings) as container:
            media = OpenMedia(path, container, settings, scan=scan)
            media.choose_streams()
            end = max(map(media.packet_end, media.packets()), default=0.0)
            if media.damage.has_broken_stamps:
                scan = replace(scan, end=end)
    return scan


def _ends_at_header_duration(path: Path, settings: MediaSettings) -> bool:
    """Return whether the last packets end at about the duration in the header.

    Packets at the beginning without time stamps also last, so they make it False.
    """
    import av

    with _open_container(path, settings) as container:
        for packet in itertools.islice(container.demux(), MAX_REORDERED):
            if packet.size and decoding_second(packet) is None:
                return False
        last_seconds: dict[int, float] = {}  # by stream
        try:
            container.seek(container.duration, backward=True)
            for packet in container.demux():
                second = decoding_second(packet)
                if second is not None:
                    last_seconds[packet.stream.index] = second
        except av.error.FFmpegError:
            return False
        claimed = container.duration / MICROSECONDS_PER_SECOND
        return bool(max(last_seconds.values(), default=0.0) > claimed - SUSPICIOUS_JUMP_SECONDS)


# ---------------------------------------------------------------- streams


def _check_stream_count(path: Path, container: Any, settings: MediaSettings) -> None:
    """Raise MediaError where a file has more streams than the limit."""
    count = len(container.streams)
    if count > settings.max_streams:
        raise MediaError(
            f"{path}: {count} streams are more than media.max_streams = {settings.max_streams}; "
            "keep one picture and one sound track (ffmpeg -i IN -c copy OUT)"
        )


def _video_streams(container: Any) -> list[Any]:
    """Return the decodable video streams without cover images, the default ones first."""
    from av.stream import Disposition

    cover = Disposition.attached_pic | Disposition.timed_thumbnails
    streams = container.streams.video
    return _usable_streams(stream for stream in streams if not stream.disposition & cover)


def _usable_streams(streams: Iterable[Any]) -> list[Any]:
    """Return the decodable streams, the default ones first."""
    from av.stream import Disposition

    usable = [stream for stream in streams if stream.codec_context is not None]
    return sorted(usable, key=lambda stream: not stream.disposition & Disposition.default)


def _stream_at(streams: list[Any], index: int | None) -> Any:
    """Return the stream with a container index, else the first one. None if there are none.

    Args:
        streams: PyAV's streams.
        index: index of a stream in the container, None for the first one.
    """
    chosen = [stream for stream in streams if stream.index == index]
    return next(iter(chosen + streams), None)


def _main_video_index(container: Any, streams: Sequence[Any]) -> int:
    """Return the index of the first video stream with more than one frame.

    If there is none, return the index of the first stream. A cover image that is not marked as such
    may come first. This reads the container, which must then be reopened.

    Args:
        container: PyAV's container.
        streams: its video streams to choose from.
    """
    counts = {stream.index: 0 for stream in streams}
    for number, packet in enumerate(container.demux(streams)):
        # An empty packet marks the end of a stream.
        if packet.size:
            counts[packet.stream.index] += 1
        if min(counts.values()) > 1 or number >= MAX_PACKETS_TO_COUNT:
            break
    films = [index for index, count in counts.items() if count > 1]
    return int((films or list(counts))[0])


def _numbered_audio_index(path: Path, container: Any, number: int) -> int:
    """Return the container index of the n-th audio stream of a file.

    number: n, from 1 on.

    Raises MediaError if that stream is missing or cannot be decoded.
    """
    streams = list(container.streams.audio)
    if number > len(streams) or streams[number - 1].codec_context is None:
        raise MediaError(
            f"{path}: no sound track {number} that can be decoded; "
            f"give media.audio_track from 1 to {len(streams)}"
        )
    return int(streams[number - 1].index)


def _audible_index(container: Any, streams: Sequence[Any]) -> int:
    """Return the index of the first audio stream with audible sound, else of the first stream.

    Recorders write one stream per input, and many of them are silent. This reads the container,
    which must then be reopened.

    Args:
        container: PyAV's container.
        streams: its audio streams to choose from.
    """
    import av

    audible: set[int] = set()
    for number, packet in enumerate(container.demux(streams)):
        if number >= MAX_AUDIBILITY_PACKETS * len(streams):
            break
        try:
            frames = packet.decode()
        except av.error.FFmpegError:
            continue
        if any(map(_is_audible, frames)):
            audible.add(packet.stream.index)
            if packet.stream.index == streams[0].index:
                break
    indices = [stream.index for stream in streams]
    return int(next((index for index in indices if index in audible), indices[0]))


def _is_audible(frame: Any) -> bool:
    samples = np.asarray(frame.to_ndarray())
    kind = samples.dtype.kind
    highest = np.iinfo(samples.dtype).max if kind in "iu" else 1.0
    # Unsigned samples are silent in the middle of their range.
    middle = highest / 2 if kind == "u" else 0.0
    peak = np.abs(samples.astype(np.float32) - middle).max(initial=0.0)
    return bool(peak > MIN_AUDIBLE_PEAK * highest)


def _configure_video(path: Path, stream: Any, settings: MediaSettings) -> None:
    """Configure the decoder of a video stream. Raises MediaError if its frames have more pixels
    than the settings allow."""
    context = stream.codec_context
    if context.width * context.height > settings.max_pixels:
        raise MediaError(
            f"{path}: pictures of {context.width}x{context.height} are more than "
            f"media.max_pixels = {settings.max_pixels}; scale the video down "
            "(ffmpeg -i IN -vf scale=-2:720 OUT)"
        )
    # frames may grow in mid-stream
    context.options = {"max_pixels": str(settings.max_pixels)}
    context.thread_count = settings.threads
