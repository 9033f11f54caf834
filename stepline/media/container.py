"""A media file opened under limits: its packets past the damaged ones, its time stamps as seconds,
what was damaged.

open_media     an untrusted file, or a MediaError; nothing but the file itself is ever opened
open_live      an address, a device or a file that still grows, of which packets come as they are made
StreamClock    time stamps of one stream as seconds from the start of the video, broken ones mended
Damage         what could not be read, counted, a line each
"""

import contextlib
import functools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from stepline.device import Device, current_device
from stepline.errors import MediaError, ModelError, first_line
from stepline.media.settings import MediaSettings

log = logging.getLogger(__name__)

MAX_MISSING_SECONDS = (
    1.0  # s that may be missing at the end before a file counts as cut short; encoders round
)


@dataclass
class Damage:
    """What could not be read, counted: packets or frames that a decoder refused, and time stamps
    that were mended."""

    packets: int = 0
    stamps: int = 0

    def warnings(self, end: float, duration: float | None) -> tuple[str, ...]:
        """Return one line for each kind of damage. end: s really read; duration: s claimed, None if
        not known."""
        lines = []
        if duration is not None and end < duration - MAX_MISSING_SECONDS - 0.02 * duration:
            lines.append(f"only the first {end:.0f} s of {duration:.0f} s can be read")
        if self.packets:
            lines.append(f"{_counted(self.packets, 'damaged packet')} left out")
        if self.stamps:
            lines.append(f"{_counted(self.stamps, 'broken time stamp')} mended")
        return tuple(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{' was' if number == 1 else 's were'}"


# s by which time may go back before the stamps count as restarted; rounding stays under it
JUMP_SECONDS = 1.0
MARGIN_SECONDS = 60.0  # s past the claimed end from which a stamp is not believed


class StreamClock:
    """The time of one stream.

    A missing stamp follows on from the frame before; a stamp far past the end is not believed;
    where the stamps start over (joined recordings), the later ones are counted on.
    """

    def __init__(self, *, start: float, duration: float | None, damage: Damage) -> None:
        """start: second 0 of the video on the stream's own scale. duration: s claimed, None if not
        known."""
        self._start = start
        self._latest = float("inf") if duration is None else duration + MARGIN_SECONDS
        self._damage = damage
        self._expected: float | None = None

    def time_of(self, stamp: int | None, time_base: Fraction | None, length: float) -> float:
        """Return the time of a frame that lasts `length` s."""
        time = self._expected or 0.0
        if stamp is not None and time_base:
            claimed = stamp * time_base.numerator / time_base.denominator - self._start
            if claimed > self._latest:
                self._damage.stamps += 1
            elif self._expected is not None and claimed < self._expected - JUMP_SECONDS:
                self._damage.stamps += 1
                self._start -= self._expected - claimed
            else:
                time = claimed
        self._expected = time + length
        return time


class PictureTiming:
    """The time and length of the frames of the picture stream."""

    def __init__(self, clock: StreamClock, rate: float) -> None:
        """rate: frames/s, for frames that do not say how long they last."""
        self._clock, self._length = clock, 1 / rate
        self._stamp: int | None = None  # of the frame before

    def time_and_length(self, frame: Any) -> tuple[float, float]:
        """Return when a decoded frame appears and how long it lasts, in s.

        It lasts as it says, else as the one before did, else by the frame rate.
        """
        stamp = frame.pts if frame.pts is not None else frame.dts
        length = self._length
        if frame.time_base and frame.duration:
            length = float(frame.duration * frame.time_base)
        elif frame.time_base and stamp is not None and self._stamp is not None:
            step = (stamp - self._stamp) * frame.time_base
            if 0 < step <= JUMP_SECONDS:
                self._length = length = float(step)
        self._stamp = stamp
        return self._clock.time_of(stamp, frame.time_base, length), length


# Demuxers that read one file and never follow a reference out of it. Playlists (hls, concat, dash,
# sdp) and picture sequences are not among them.
ALLOWED_FORMATS = (
    "mov,mp4,matroska,webm,avi,mpegts,mpeg,flv,asf,ogg,nut,rm,mxf,dv,ivf,wtv,h264,hevc,m4v,mpegvideo,obu,"
    "mp3,wav,w64,flac,aac,aiff,caf,amr,ac3,eac3,wv,ape,au"
)

# Containers whose duration FFmpeg guesses from the bit rate, and whose frames may have no time
# stamps.
GUESSED_FORMATS = frozenset(
    {"mp3", "aac", "ac3", "eac3", "amr", "mpeg", "h264", "hevc", "m4v", "mpegvideo", "obu", "dv"}
)

# Containers that give the second of their end as their duration, also where they do not start at 0.
FORMATS_WITH_ENDS = frozenset({"matroska", "nut"})

MICROSECONDS_PER_SECOND = 1_000_000  # FFmpeg's unit for the times of a container
USUAL_RATE = 25.0  # frames/s taken where a video does not say its own
MOST_RATE = 1000.0  # frames/s; a time base passes for a rate in some files
MOST_ASPECT = 4  # of a stored pixel; anamorphic video stays under 2, more is a broken header
MOST_FAILURES = 100  # read errors in a row after which the rest of a file is given up


@dataclass
class OpenMedia:
    """An open file: PyAV's container and its best picture and sound streams, each None if there is
    none.

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
    live: "LiveInput | None" = None  # what was opened, where it is no file

    def rewind(self) -> None:
        """Open the file, or the live source, anew, at its start."""
        self.container.close()
        if self.live is not None:
            self.container = _open_live_container(self.live, self.settings)
        else:
            self.container = _open_container(self.path, self.settings, on_gpu=self.on_gpu)
        self.picture, self.sound = _streams(self.path, self.container, self.settings)

    def clock(self) -> StreamClock:
        """Return a clock for one stream of the file."""
        return StreamClock(
            start=self.start, duration=self.duration if self.exact else None, damage=self.damage
        )

    def timing(self) -> PictureTiming:
        """Return a clock for the picture stream, which must exist."""
        return PictureTiming(self.clock(), picture_rate(self.picture))

    @property
    def aspect(self) -> float:
        """Width over height of a stored pixel; 1 unless the file says otherwise."""
        aspect = self.picture.sample_aspect_ratio if self.picture is not None else None
        return float(aspect) if aspect and MOST_ASPECT >= aspect >= 1 / MOST_ASPECT else 1.0

    def packets(self) -> Iterator[Any]:
        """Yield every packet of the picture and sound streams; what cannot be read is counted and
        passed over."""
        import av

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
        """Return the frames of a packet; empty, and counted, where the decoder refuses it."""
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
        """Return the second at which a packet ends; 0 where it has no time stamp that can be."""
        stamp = packet.pts if packet.pts is not None else packet.dts
        if stamp is None or not packet.time_base:
            return 0.0
        base = packet.time_base  # a Fraction, whose own product takes ten times as long
        end = (stamp + (packet.duration or 0)) * base.numerator / base.denominator - self.start
        return (
            end
            if self.duration is None or not self.exact or end <= self.duration + MARGIN_SECONDS
            else 0.0
        )


@contextlib.contextmanager
def open_media(
    path: Path | str, settings: MediaSettings, *, on_gpu: bool = False
) -> Iterator[OpenMedia]:
    """Yield the open file. Raises MediaError, with the cure, for what is missing, not media, or
    past a limit.

    on_gpu: a GPU decodes the pictures where the settings say so and it can; to make one ready pays
    for many alone.
    """
    path = Path(path)
    _check_file(path, settings)
    container = _open_container(path, settings, on_gpu=on_gpu)
    media = None
    try:
        picture, sound = _streams(path, container, settings)
        start = (container.start_time or 0) / MICROSECONDS_PER_SECOND
        duration = (
            container.duration / MICROSECONDS_PER_SECOND
            if container.duration and container.duration > 0
            else None
        )
        if (
            duration is not None
            and FORMATS_WITH_ENDS & set(container.format.name.split(","))
            and duration > start > MAX_MISSING_SECONDS
        ):
            duration -= start
        if duration is not None:
            check_duration(path, duration, settings)
        exact = not GUESSED_FORMATS & set(container.format.name.split(","))
        media = OpenMedia(
            path, container, picture, sound, start, duration, exact, settings, on_gpu=on_gpu
        )
        yield media
    finally:
        (container if media is None else media.container).close()


@dataclass(frozen=True)
class LiveInput:
    """What FFmpeg opens of a live source. format: None where the bytes tell. protocols: what it may
    open, and inside.

    silence: s without a packet after which reading it ends with an error.
    """

    url: str
    shown: str  # what messages call it
    protocols: str = ""
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    silence: float = 30.0

    @property
    def is_address(self) -> bool:
        """Whether it is reached over the network."""
        return self.format is None and "://" in self.url


@contextlib.contextmanager
def open_live(live: LiveInput, settings: MediaSettings) -> Iterator[OpenMedia]:
    """Yield a live source, opened. Raises MediaError, with the cure, for what cannot be."""
    container = _open_live_container(live, settings)
    media = None
    try:
        picture, sound = _streams(Path(live.shown), container, settings)
        start = (container.start_time or 0) / MICROSECONDS_PER_SECOND
        duration = None
        if container.duration and container.duration > 0:
            duration = container.duration / MICROSECONDS_PER_SECOND
        media = OpenMedia(
            Path(live.shown), container, picture, sound, start, duration, False, settings, live=live
        )
        yield media
    finally:
        opened = container if media is None else media.container
        opened.close()


def _open_live_container(live: LiveInput, settings: MediaSettings) -> Any:
    import av

    options = {"max_streams": str(max(1000, settings.max_streams)), **dict(live.options)}
    if live.format is None:
        options["format_whitelist"] = f"{ALLOWED_FORMATS},hls,rtsp,sdp,rtp"
    if live.protocols:
        options["protocol_whitelist"] = live.protocols
    if live.format is not None and live.format not in av.formats_available:
        sent = f"`ffmpeg -f {live.format} -i {live.url} -f mpegts udp://127.0.0.1:5000`"
        cure = f"send it with {sent} and name udp://127.0.0.1:5000"
        raise MediaError(f"{live.shown}: this build of PyAV reads no {live.format} devices; {cure}")
    try:
        return av.open(
            live.url,
            format=live.format,
            options=options,
            timeout=(live.silence, live.silence),
            metadata_errors="replace",
        )
    except (av.error.FFmpegError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(
            f"{live.shown}: cannot be opened ({reason}); check that it runs, and its address"
        ) from error


def _check_file(path: Path, settings: MediaSettings) -> None:
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


def _open_container(path: Path, settings: MediaSettings, *, on_gpu: bool = False) -> Any:
    import av

    options = {
        "format_whitelist": ALLOWED_FORMATS,
        "protocol_whitelist": "file",
        # FFmpeg's own guard; ours says which limit it was
        "max_streams": str(max(1000, settings.max_streams)),
    }
    open_file = functools.partial(
        av.open, f"file:{path}", options=options, metadata_errors="replace"
    )
    refusal = ""
    if on_gpu and settings.decoder == "cuda":
        try:
            container = open_file(hwaccel=_nvidia_decoder(current_device()))
        # of the device, unless the file is refused below
        except (av.error.FFmpegError, OSError, ModelError) as error:
            refusal = first_line(error)
        else:
            for stream in container.streams.video:
                if stream.codec_context is not None and not stream.codec_context.is_hwaccel:
                    _tell_software(f"it cannot take {stream.codec_context.name}")
            return container
    try:
        container = open_file()
    except (av.error.InvalidDataError, av.error.EOFError) as error:
        raise MediaError(
            f"{path}: not a video that can be read (damaged, cut off before its index, or another kind of file); "
            "download it again or convert it to mp4"
        ) from error
    except av.error.ArgumentError as error:
        raise MediaError(
            f"{path}: a playlist, picture or other format that is not opened; convert the video itself to mp4"
        ) from error
    except (av.error.FFmpegError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(
            f"{path}: cannot be opened ({reason}); check the file, or convert it to mp4"
        ) from error
    if refusal:
        _tell_software(refusal)
    return container


def _nvidia_decoder(device: Device) -> Any:
    """Return the decoder (NVDEC) of a GPU, as PyAV takes it. Raises ModelError for a device that
    has none."""
    from av.codec.hwaccel import HWAccel

    if device.kind != "cuda":
        raise ModelError(f"networks run on the device {device.name}")
    return HWAccel("cuda", device.name.partition(":")[2] or None, allow_software_fallback=True)


@functools.cache  # once each reason
def _tell_software(reason: str) -> None:
    log.warning("media.decoder=cuda: pictures are decoded by software (%s)", reason)


def _streams(path: Path, container: Any, settings: MediaSettings) -> tuple[Any, Any]:
    """Return the best picture and sound stream, each None if there is none, set up for decoding."""
    from av.stream import Disposition

    count = len(container.streams)
    if count > settings.max_streams:
        raise MediaError(
            f"{path}: {count} streams are more than media.max_streams = {settings.max_streams}; "
            "keep one picture and one sound track (ffmpeg -i IN -c copy OUT)"
        )
    # a cover picture is no picture stream
    cover = Disposition.attached_pic | Disposition.timed_thumbnails
    picture = _best_stream(
        [stream for stream in container.streams.video if not stream.disposition & cover]
    )
    sound = _best_stream(container.streams.audio)
    if picture is None and sound is None:
        raise MediaError(
            f"{path}: neither picture nor sound that can be decoded; convert it to mp4 (H.264, AAC)"
        )
    if picture is not None:
        context = picture.codec_context
        if context.width * context.height > settings.max_pixels:
            raise MediaError(
                f"{path}: pictures of {context.width}x{context.height} are more than media.max_pixels = "
                f"{settings.max_pixels}; scale the video down (ffmpeg -i IN -vf scale=-2:720 OUT)"
            )
        # pictures may grow in mid-stream
        context.options = {"max_pixels": str(settings.max_pixels)}
        context.thread_count = settings.threads
    return picture, sound


def check_duration(path: Path, duration: float, settings: MediaSettings) -> None:
    """Raise MediaError where a video lasts longer than the limit."""
    if duration > settings.max_duration:
        raise MediaError(
            f"{path}: {duration:.0f} s are more than media.max_duration = {settings.max_duration:g} s; "
            f"cut the video, or raise the limit with --set media.max_duration={duration + 60:.0f}.0"
        )


def _best_stream(streams: Any) -> Any:
    """Return the default stream among those that a decoder exists for, else the first of them."""
    from av.stream import Disposition

    usable = [stream for stream in streams if stream.codec_context is not None]
    return next(
        (stream for stream in usable if stream.disposition & Disposition.default),
        next(iter(usable), None),
    )


def picture_rate(stream: Any) -> float:
    """Return the frames/s that a picture stream claims, a usual rate where it claims none that can
    be."""
    rate = stream.average_rate or stream.guessed_rate
    return float(rate) if rate and 0 < rate <= MOST_RATE else USUAL_RATE
