"""A live source as frames and sound on one clock: a file at its own pace or still growing, an
address, a device.

    file       read as fast as it would be watched, `speed` times that; where it still grows, followed until it stops
    address    http, HLS, rtsp, rtmp, udp or srt, as it comes; opened again where it breaks off, after a growing pause
    device     camera[:/dev/video0], microphone[:default], or both joined by +

Second 0 is the first one that comes. After a break the source's own time stamps are believed where
they go on as the clock on the wall did. Else what comes next is at the second of the wall's clock.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from stepline.errors import MediaError, SettingsError
from stepline.files.remote.addresses import NamedHost, check_url, display_url
from stepline.live.forward_proxy import ForwardProxy
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.media.container import LiveInput, OpenMedia, frame_rate, open_live, open_media
from stepline.media.frames import Frame, FrameSampler, FrameScaler
from stepline.media.reader import (
    MIN_SPARSE_RATIO,
    AudioStreamReader,
    VideoStreamReader,
    seek_before,
)
from stepline.media.settings import LinkSettings, MediaSettings

if TYPE_CHECKING:
    from stepline.live.recording import StreamRecorder

HTTP_PROTOCOLS = "http,https,tcp,tls,crypto,data,httpproxy"
RTSP_PROTOCOLS = "rtsp,rtp,udp,tcp,tls,crypto"
RTMP_PROTOCOLS = "rtmp,rtmps,rtmpt,tcp,tls,http"
# schemes, and the protocols that an address of each may lead to. Never a file of this machine
PROTOCOLS_OF_SCHEME = {
    "http": HTTP_PROTOCOLS,
    "https": HTTP_PROTOCOLS,
    "rtsp": RTSP_PROTOCOLS,
    "rtsps": RTSP_PROTOCOLS,
    "rtmp": RTMP_PROTOCOLS,
    "rtmps": RTMP_PROTOCOLS,
    "udp": "udp,rtp",
    "rtp": "udp,rtp",
    "tcp": "tcp",
    "srt": "srt",
}
DEVICE_DEFAULTS = {"camera": ("v4l2", "/dev/video0"), "microphone": ("alsa", "default")}
DEVICE_NAME = r"(camera|microphone)(:[^+]*)?"
# since its last change in which a file counts as being written, and without growth as finished
GROWING_SECONDS = 10.0
# by which time stamps may disagree with the wall's clock across a break and still be believed
TRUSTED_SECONDS = 30.0
JUMP_SECONDS = 5.0  # by which time stamps may leap ahead before it is a break
MAX_PAUSE_SECONDS = 30.0  # between two tries
# before its claimed end from which a recording at an address counts as whole
END_SECONDS = 2.0
# packets in a row that cannot be read, from which a connection is given up
MAX_CORRUPT_PACKETS = 100


@dataclass(frozen=True)
class Gap:
    """What a source lost: `seconds` are missing from `at` on."""

    at: float
    seconds: float
    reason: str


@dataclass(frozen=True)
class PictureRate:
    """Pictures to take: `rate` a second, `size` pixels on the shorter side. rate None: none."""

    rate: float | None = None
    size: int | None = None


def parse_sources(name: str) -> list[Path | LiveInput]:
    """Return what the command line's SOURCE names: one file or address, or one or two devices.

    Raises SettingsError for a scheme that is not known, MediaError for a file that is not there.
    """
    if re.fullmatch(rf"{DEVICE_NAME}(\+{DEVICE_NAME})?", name):
        return _devices(name)
    scheme = re.match(r"([a-z][a-z0-9+]*)://", name)
    if scheme is None:
        path = Path(name)
        # of a recorder on this machine. It may name files of it
        if path.suffix == ".m3u8" and path.is_file():
            return [LiveInput(str(path.absolute()), name, "file,crypto,data")]
        # one that cannot be read is reported before any network is loaded
        with open_media(path, MediaSettings()):
            return [path]
    if scheme[1] not in PROTOCOLS_OF_SCHEME:
        cure = f"give one of {', '.join(PROTOCOLS_OF_SCHEME)}"
        raise SettingsError(f"{scheme[1]}: not an address that is read live; {cure}")
    try:
        check_url(name)
    except MediaError as error:
        raise SettingsError(str(error)) from error
    options: tuple[tuple[str, str], ...] = ()
    if scheme[1].startswith("rtsp"):
        options = (("rtsp_transport", "tcp"),)
    protocols = PROTOCOLS_OF_SCHEME[scheme[1]]
    return [LiveInput(name, display_url(name), protocols, options=options)]


def _devices(name: str) -> list[Path | LiveInput]:
    inputs: dict[str, Path | LiveInput] = {}
    for part in name.split("+"):
        kind, _, address = part.partition(":")
        if kind in inputs:
            raise SettingsError(f"{name}: name one camera and one microphone")
        format, default_address = DEVICE_DEFAULTS[kind]
        inputs[kind] = LiveInput(
            address or default_address, f"{kind} {address or default_address}", format=format
        )
    return list(inputs.values())


class SourceClock:
    """Position of a source in its own seconds and by the wall clock.

    end: the last second that came.
    paced: it comes at the pace at which it is watched, `speed` times that, not as it is made.
    origin: of an address, its time stamp at second 0, in s.
    """

    def __init__(
        self,
        start: float = 0.0,
        *,
        paced: bool = False,
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.end = start
        self.origin: float | None = None
        self._first = start
        self._speed = speed
        self._clock = clock
        self.begin(paced=paced)

    def begin(self, *, paced: bool) -> None:
        """Start the clock."""
        self.paced = paced
        self._begun = self._clock()
        self.arrive()

    def arrive(self) -> None:
        """Record that a packet arrived."""
        self._arrived = self._clock()

    @property
    def now(self) -> float:
        """Second that the source has reached: of a paced one by the wall's clock, of another what
        has come."""
        if self.paced:
            return self._first + (self._clock() - self._begun) * self._speed
        return self.end + self._clock() - self._arrived

    def until_due(self, second: float) -> float:
        """Return how long to wait for a second of a paced source."""
        return max(0.0, self._begun + (second - self._first) / self._speed - self._clock())

    def expected(self, second: float) -> float:
        """Return the second of what comes after a break. It is that of its own time stamps, where
        they go on as the wall's clock did, else the wall's."""
        by_wall = self.end + (self._clock() - self._arrived)
        is_near = abs(second - by_wall) <= TRUSTED_SECONDS
        return second if is_near and second > self.end - TRUSTED_SECONDS else by_wall


Tracks: TypeAlias = dict[int, VideoStreamReader | AudioStreamReader]  # by the index of the stream
SourceItems: TypeAlias = Iterator[Frame | AudioBlock | Gap]


class LiveSource:
    """Yields frames, blocks of sound and gaps as they come, until the source ends or `stop` is set.

    `reason`: why it ended. Iterate once.
    """

    def __init__(
        self,
        source: Path | LiveInput,
        *,
        pictures: PictureRate | None = None,
        media: MediaSettings | None = None,
        links: LinkSettings | None = None,
        speed: float = 1.0,
        start: float = 0.0,
        recording: "StreamRecorder | None" = None,
        stop: Event | None = None,
    ) -> None:
        """start: second of a file to begin with, or of an address as it is opened. links: its tries
        and patience."""
        self._source = source
        self._pictures = pictures or PictureRate()
        self._media = media or MediaSettings()
        self._links = links or LinkSettings()
        self._recording = recording
        self._stop = stop or Event()
        self._named = NamedHost("")  # of an address. All connections share what it is
        if isinstance(source, LiveInput):
            self._named = NamedHost(urlsplit(source.url).hostname or "")
        self._clock = SourceClock(start, paced=isinstance(source, Path), speed=speed)
        self._opened = False
        # where this connection is in time
        self._base = 0.0  # s that frames and sound of this connection are counted from
        self._sound_end = 0.0  # s, where the sound that was yielded ends
        self._picture_end = 0.0
        self.reason = ""

    @property
    def end(self) -> float:
        """The last second that came."""
        return self._clock.end

    @property
    def now(self) -> float:
        """Second that the source has reached by the wall's clock."""
        return self._clock.now

    @property
    def paced(self) -> bool:
        """Whether a file is played at real time, instead of as fast as it is written."""
        return self._clock.paced

    def __iter__(self) -> SourceItems:
        import av

        # One connection after another, with growing pauses while nothing comes.
        failure_count = 0
        pause_seconds = self._links.pause
        lost = ""  # why the connection before ended
        while not self._stop.is_set():
            before = self.end
            try:
                with self._open() as media:
                    duration = media.duration or 0.0
                    yield from self._connection(media, lost)
                # A recording that came to its end is not opened again.
                is_whole = duration > 0 and self.end >= duration - END_SECONDS
                if isinstance(self._source, Path) or is_whole:
                    break
                lost = "the connection ended"
            except MediaError as error:
                if not self._opened:
                    raise
                lost = str(error)
            except (av.error.FFmpegError, OSError) as error:
                # FFmpeg's whole message names the address, with its password.
                lost = error.strerror or type(error).__name__
                if isinstance(self._source, Path):  # a file that grew, and has not for a while
                    break
            failure_count += 1
            # A connection that brought something begins the count again.
            if self.end > before:
                failure_count = 1
                pause_seconds = self._links.pause
            if failure_count > self._links.attempts:
                self.reason = f"{failure_count - 1} tries brought nothing ({lost})"
                return
            self._stop.wait(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)
        self.reason = "stopped" if self._stop.is_set() else "the source ended"

    @contextmanager
    def _open(self) -> Iterator[OpenMedia]:
        source = self._source

        # an address, a file that still grows, or one that is whole
        if isinstance(source, LiveInput):
            opened = self._open_address(replace(source, silence=self._links.seconds))
        elif time.time() - source.stat().st_mtime < GROWING_SECONDS:
            growing_input = LiveInput(
                f"file:{source}",
                str(source),
                "file",
                options=(("follow", "1"),),
                silence=GROWING_SECONDS,
            )
            opened = open_live(growing_input, self._media)
        else:
            opened = open_media(source, self._media)
        with opened as media:
            yield media

    @contextmanager
    def _open_address(self, live: LiveInput) -> Iterator[OpenMedia]:
        """Yield an address, opened. Over http(s) by a proxy that looks where it leads."""
        import av

        if not live.url.startswith(("http://", "https://")):
            with open_live(live, self._media) as media:
                yield media
            return

        # FFmpeg follows redirections unasked, the proxy looks where they lead
        with ForwardProxy(self._named, self._links) as proxy:
            try:
                proxied_address = replace(
                    live, options=(*live.options, ("http_proxy", proxy.address))
                )
                with open_live(proxied_address, self._media) as media:
                    yield media
            except (MediaError, av.error.FFmpegError) as error:
                if not proxy.refused:
                    raise
                raise MediaError(
                    f"{live.label}: it leads elsewhere, and {proxy.refused}"
                ) from error

    def _connection(self, media: OpenMedia, lost: str) -> SourceItems:
        """Yield what one connection brings. `lost`: why the one before ended."""
        # A live playlist that has come to its end has a length, too, but its clock goes on.
        recorded = isinstance(self._source, Path)
        if media.duration is not None and (self.paced or not self._opened):
            recorded = True
        self._begin(media, recorded)
        tracks: Tracks = {}
        latest = self.end
        for packet in self._packets(media):
            stamp = _time_stamp(packet)
            if stamp is not None:
                # Time stamps that leap ahead begin a new piece, as a break does.
                has_jumped = not recorded and stamp - media.start > latest + JUMP_SECONDS
                if not tracks or has_jumped:
                    yield from self._finish(tracks)
                    if not recorded:
                        self._set_origin(media, stamp)
                    if lost or tracks:
                        gap_seconds = round(max(0.0, stamp - media.start - self.end), 3)
                        yield Gap(self.end, gap_seconds, lost or "the time stamps leapt")
                    lost = ""
                    self._opened = True
                    # at a row's beginning
                    self._base = float(int(max(stamp - media.start, self.end)))
                    tracks = self._tracks(media)
                latest = max(latest, stamp - media.start)
            self._clock.arrive()
            if packet.stream.index in tracks:
                for frame in media.decode(packet):
                    yield from self._items(tracks[packet.stream.index].add(frame))
                if self._recording is not None:
                    self._recording.add(packet, media)
        yield from self._finish(tracks)

    def _begin(self, media: OpenMedia, recorded: bool) -> None:
        """Set the clock by a connection that has been opened."""
        if not self._opened:
            self._clock.begin(paced=recorded)
        # A recording goes on where the last connection ended.
        if recorded and self.end > 0:
            media.is_seekable = True
            seek_before(media, self.end)
        # An address keeps the second 0 of its first connection.
        if not recorded and self._clock.origin is not None:
            media.start = self._clock.origin

    def _set_origin(self, media: OpenMedia, stamp: float) -> None:
        """Make the time stamps of an address count from the source's second 0."""
        second = stamp - media.start
        expected = self._clock.expected(second) if self._opened else self.end
        media.start += second - expected
        self._clock.origin = media.start

    def _packets(self, media: OpenMedia) -> Iterator[Any]:
        """Yield the packets of the streams in use. Those that cannot be read are counted and passed
        over."""
        import av

        streams = [
            stream for stream in (media.video_stream, media.audio_stream) if stream is not None
        ]
        failure_count = 0
        while failure_count < MAX_CORRUPT_PACKETS and not self._stop.is_set():
            try:
                for packet in media.container.demux(streams):
                    failure_count = 0
                    if packet.is_corrupt:
                        media.damage.packet_count += 1
                    else:
                        yield packet
                    if self._stop.is_set():
                        return
                return
            except av.error.EOFError:
                return
            except av.error.InvalidDataError:
                # Damage is counted, and only much of it in a row ends the connection.
                failure_count += 1
                media.damage.packet_count += 1

    def _tracks(self, media: OpenMedia) -> Tracks:
        """Return what takes the frames of each stream, on a clock that begins at second `_base`."""
        tracks: Tracks = {}
        endless, rate = float("inf"), self._pictures.rate

        # pictures at a rate, where wanted
        if media.video_stream is not None and rate is not None:
            scaler = FrameScaler(shorter=self._pictures.size, aspect=media.aspect)
            tracks[media.video_stream.index] = VideoStreamReader(
                media, FrameSampler(rate, scaler), self._base, endless
            )
            # Where far more pictures come than are wanted, some need not be decoded.
            if self._media.skip_nonref and rate * MIN_SPARSE_RATIO <= frame_rate(
                media.video_stream
            ):
                media.video_stream.codec_context.skip_frame = "NONREF"
        if media.audio_stream is not None:
            tracks[media.audio_stream.index] = AudioStreamReader(media, self._base, endless)
        return tracks

    def _finish(self, tracks: Tracks) -> "Iterator[Frame | AudioBlock]":
        for track in tracks.values():
            yield from self._items(track.finish())

    def _items(self, items: "Iterator[Frame | AudioBlock]") -> "Iterator[Frame | AudioBlock]":
        """Yield frames and sound at their seconds, when they are due, and nothing again that came
        before a break."""
        for item in items:
            # a picture or a second of sound that came before is left out
            if isinstance(item, Frame):
                end = item.time + self._base
                if end <= self._picture_end:
                    continue
                self._picture_end = end
                item = Frame(end, item.image)
            else:
                repeated = (self._sound_end - item.start - self._base) * SAMPLE_RATE
                first = max(0, round(repeated))
                start = item.start + self._base + first / SAMPLE_RATE
                item = AudioBlock(start, item.samples[first:])
                end = self._sound_end = start + len(item.samples) / SAMPLE_RATE
                if not len(item.samples):
                    continue

            # a file comes at its own pace
            if self.paced:
                self._stop.wait(self._clock.until_due(end))
            self._clock.end = max(self.end, end)
            yield item


def _time_stamp(packet: Any) -> float | None:
    """Return the second of a packet by the source's own clock, if it says."""
    # When it is shown, else when it is decoded.
    stamp = packet.pts if packet.pts is not None else packet.dts
    if stamp is None or not packet.time_base:
        return None
    return float(stamp * packet.time_base)
