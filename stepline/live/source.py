"""A live source as frames and sound on one clock: a file, an address or a device.

    file       read in real time, or `speed` times that. A file that still grows is followed until it stops
    address    http, HLS, rtsp, rtmp, udp or srt. It is opened again after a break, with growing pauses
    device     camera[:/dev/video0], microphone[:default], or both joined by +

Second 0 is the first second received. After a break the source's own time stamps count where they
agree with the wall clock. Otherwise the wall clock decides.
"""

import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stepline.errors import MediaError, SettingsError
from stepline.files.remote.addresses import NamedHost, check_url, display_url
from stepline.live.forward_proxy import ForwardProxy
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.media.clock import presentation_stamp
from stepline.media.container import LiveInput, OpenMedia, open_live, open_media
from stepline.media.frames import Frame
from stepline.media.reader import StreamReaders, seek_before, stream_readers
from stepline.media.settings import LinkSettings, MediaSettings

if TYPE_CHECKING:
    from stepline.live.recording import StreamRecorder

HTTP_PROTOCOLS = "http,https,tcp,tls,crypto,data,httpproxy"
RTSP_PROTOCOLS = "rtsp,rtp,udp,tcp,tls,crypto"
RTMP_PROTOCOLS = "rtmp,rtmps,rtmpt,tcp,tls,http"
# URL scheme -> protocols that FFmpeg may use for it. None reads a file of this machine
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
# since its last change, after which a file counts as finished
GROWING_SECONDS = 10.0
# maximum difference of time stamps and wall clock after a break
TRUSTED_SECONDS = 30.0
JUMP_SECONDS = 5.0  # a larger step of the time stamps is a break
MAX_PAUSE_SECONDS = 30.0  # between two attempts to connect
# a recording at an address is complete if it ends at most this long before its stated duration
END_SECONDS = 2.0


@dataclass(frozen=True)
class Gap:
    """A part of a live source that is missing.

    Attributes:
        at: second of the source at which the gap starts.
        seconds: length of the gap in seconds.
        reason: why the source was interrupted.
    """

    at: float
    seconds: float
    reason: str


@dataclass(frozen=True)
class PictureRate:
    """How many pictures per second of a live source are decoded, and at which size.

    Attributes:
        rate: pictures per second, None for no pictures.
        size: pixels of the shorter side, None for full size.
    """

    rate: float | None = None
    size: int | None = None


def parse_sources(name: str) -> list[Path | LiveInput]:
    """Return the inputs that the command line's SOURCE names: a file, an address, or 1 to 2 devices.

    name: path of a file, URL, "camera[:DEVICE]", "microphone[:DEVICE]", or both joined by "+".

    Raises SettingsError for an unknown URL scheme, MediaError for a missing file.
    """
    if re.fullmatch(rf"{DEVICE_NAME}(\+{DEVICE_NAME})?", name):
        return _parse_devices(name)
    scheme = re.match(r"([a-z][a-z0-9+]*)://", name)
    if scheme is None:
        path = Path(name)
        if name == "-" or path.is_fifo():
            cure = "send it to an address such as udp://127.0.0.1:5000, and name that"
            raise MediaError(f"{name}: a pipe; {cure}")
        # A playlist of a recorder on this machine may name local files.
        if path.suffix == ".m3u8" and path.is_file():
            return [LiveInput(str(path.absolute()), name, "file,crypto,data")]
        # An unreadable file is reported before any network is loaded.
        with open_media(path, MediaSettings()):
            return [path]
    if scheme[1] not in PROTOCOLS_OF_SCHEME:
        raise SettingsError(
            f"{scheme[1]}: not an address that is read live; give one of "
            f"{', '.join(PROTOCOLS_OF_SCHEME)}"
        )
    try:
        check_url(name)
    except MediaError as error:
        raise SettingsError(str(error)) from error
    options = (("rtsp_transport", "tcp"),) if scheme[1].startswith("rtsp") else ()
    return [LiveInput(name, display_url(name), PROTOCOLS_OF_SCHEME[scheme[1]], options=options)]


def _parse_devices(name: str) -> list[Path | LiveInput]:
    inputs: dict[str, Path | LiveInput] = {}
    for part in name.split("+"):
        kind, _, address = part.partition(":")
        if kind in inputs:
            raise SettingsError(f"{name}: name one camera and one microphone")
        format, default_address = DEVICE_DEFAULTS[kind]
        address = address or default_address
        inputs[kind] = LiveInput(address, f"{kind} {address}", format=format)
    return list(inputs.values())


class SourceClock:
    """The position of a source in its own seconds and by the wall clock.

    Attributes:
        end: last second received.
        paced: whether a recording is played in real time, times `speed`.
        origin: time stamp of an address at second 0, in seconds. None before the first packet.
    """

    def __init__(self, start: float, *, paced: bool, speed: float) -> None:
        """Start the clock.

        Args:
            start: second at which the source begins.
            paced: whether the source is a recording that is played in real time.
            speed: factor at which a recording is played.
        """
        self.end = start
        self.origin: float | None = None
        self._start = start
        self._speed = speed
        self.begin(paced=paced)

    def begin(self, *, paced: bool) -> None:
        """Start the wall clock again. paced: whether a recording is played in real time."""
        self.paced = paced
        self._start_time = time.monotonic()
        self.record_arrival()

    def record_arrival(self) -> None:
        """Record that a packet arrived now."""
        self._arrival_time = time.monotonic()

    @property
    def now(self) -> float:
        """The second that the source has reached by the wall clock."""
        if self.paced:
            return self._start + (time.monotonic() - self._start_time) * self._speed
        return self.end + time.monotonic() - self._arrival_time

    def seconds_until(self, second: float) -> float:
        """Return the wall-clock seconds until second `second` of a paced source is due."""
        return max(0.0, self._start_time + (second - self._start) / self._speed - time.monotonic())

    def second_after_break(self, second: float) -> float:
        """Return the second at which a source continues after a break.

        It is `second` if the wall clock agrees within TRUSTED_SECONDS, else the second by the wall
        clock.

        second: second by the source's own time stamps.
        """
        wall_second = self.end + (time.monotonic() - self._arrival_time)
        is_near = abs(second - wall_second) <= TRUSTED_SECONDS
        return second if is_near and second > self.end - TRUSTED_SECONDS else wall_second


SourceItems = Iterator[Frame | AudioBlock | Gap]


class LiveSource:
    """Yields frames, blocks of sound and gaps in real time. It can be iterated only once.

    Attributes:
        reason: why the source ended, "" before the end.
    """

    def __init__(
        self,
        source: Path | LiveInput,
        *,
        pictures: PictureRate = PictureRate(),
        media: MediaSettings = MediaSettings(),
        links: LinkSettings = LinkSettings(),
        speed: float = 1.0,
        start: float = 0.0,
        recording: "StreamRecorder | None" = None,
        stop: Event | None = None,
    ) -> None:
        """Prepare a source, which the iteration opens.

        Args:
            source: path of a file, or an address or device.
            pictures: rate and size of the decoded pictures.
            media: limits of decoding.
            links: attempts and timeouts of addresses.
            speed: factor at which a file is played.
            start: second at which a file begins, or second of an address when it is opened.
            recording: recorder that copies the packets, None for no recording.
            stop: ends the iteration when it is set. None: it ends with the source.
        """
        self._source = source
        self._pictures = pictures
        self._media = media
        self._links = links
        self._recording = recording
        self._stop = stop or Event()
        # host of an address, shared by all connections
        url = source.url if isinstance(source, LiveInput) else ""
        self._named = NamedHost(urlsplit(url).hostname or "")
        self._clock = SourceClock(start, paced=isinstance(source, Path), speed=speed)
        self._opened = False
        # where this connection is in time
        self._connection_start = 0.0  # second at which this connection begins
        self._sound_end = 0.0  # second at which the yielded sound ends
        self._picture_end = 0.0
        self.reason = ""

    @property
    def end(self) -> float:
        """The last second received."""
        return self._clock.end

    @property
    def now(self) -> float:
        """The second that the source has reached by the wall clock."""
        return self._clock.now

    def __iter__(self) -> SourceItems:
        import av

        # One connection after another, with growing pauses while nothing comes.
        failure_count = 0
        pause_seconds = self._links.pause
        break_reason = ""  # why the last connection ended
        while not self._stop.is_set():
            before = self.end
            try:
                with self._open() as media:
                    duration = media.duration or 0.0
                    yield from self._connection_items(media, break_reason)
                # A recording that is complete is not opened again.
                is_whole = duration > 0 and self.end >= duration - END_SECONDS
                if isinstance(self._source, Path) or is_whole:
                    break
                break_reason = "the connection ended"
            except MediaError as error:
                if not self._opened:
                    raise
                break_reason = str(error)
            except (av.error.FFmpegError, OSError) as error:
                # FFmpeg's whole message names the address, with its password.
                break_reason = error.strerror or type(error).__name__
                if isinstance(self._source, Path):  # a file that grew, and has not for a while
                    break
            failure_count += 1
            # A connection that delivered something resets the count.
            if self.end > before:
                failure_count = 1
                pause_seconds = self._links.pause
            if failure_count > self._links.attempts:
                self.reason = f"{failure_count - 1} tries brought nothing ({break_reason})"
                return
            self._stop.wait(pause_seconds)
            pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)
        self.reason = "stopped" if self._stop.is_set() else "the source ended"

    def _open(self) -> AbstractContextManager[OpenMedia]:
        source = self._source
        if isinstance(source, LiveInput):
            return self._open_address(replace(source, timeout_seconds=self._links.seconds))
        if time.time() - source.stat().st_mtime >= GROWING_SECONDS:
            return open_media(source, self._media)
        growing_input = LiveInput(
            f"file:{source}",
            str(source),
            "file",
            options=(("follow", "1"),),
            timeout_seconds=GROWING_SECONDS,
        )
        return open_live(growing_input, self._media)

    @contextmanager
    def _open_address(self, live: LiveInput) -> Iterator[OpenMedia]:
        """Open an address, over http(s) through a proxy that checks where it leads.

        live: the address.
        """
        import av

        if not live.url.startswith(("http://", "https://")):
            with open_live(live, self._media) as media:
                yield media
            return

        # FFmpeg follows redirects, so the proxy checks their addresses
        with ForwardProxy(self._named, self._links) as proxy:
            try:
                options = (*live.options, ("http_proxy", proxy.address))
                with open_live(replace(live, options=options), self._media) as media:
                    yield media
            except (MediaError, av.error.FFmpegError) as error:
                if not proxy.last_refusal:
                    raise
                raise MediaError(
                    f"{live.label}: it leads elsewhere, and {proxy.last_refusal}"
                ) from error

    def _connection_items(self, media: OpenMedia, break_reason: str) -> SourceItems:
        """Yield the frames, sound and gaps of one connection.

        Args:
            media: the open source.
            break_reason: why the last connection ended, "" for the first.
        """
        # A live playlist that has ended has a duration too, but its clock continues.
        is_recording = isinstance(self._source, Path) or (
            media.duration is not None and (self._clock.paced or not self._opened)
        )
        self._begin_connection(media, is_recording=is_recording)
        streams = (media.video_stream, media.audio_stream)
        tracks: StreamReaders = {}
        latest = self.end
        for packet in media.stored_packets(raises_network_errors=True):
            if packet.stream not in streams:
                continue
            stamp = _time_stamp(packet)
            if stamp is not None:
                # A jump of the time stamps counts as a break.
                has_jumped = not is_recording and stamp - media.start > latest + JUMP_SECONDS
                if not tracks or has_jumped:
                    yield from self._finish_tracks(tracks)
                    if not is_recording:
                        self._set_origin(media, stamp)
                    if break_reason or tracks:
                        gap_seconds = round(max(0.0, stamp - media.start - self.end), 3)
                        yield Gap(self.end, gap_seconds, break_reason or "the time stamps leapt")
                    break_reason = ""
                    self._opened = True
                    # at the beginning of a feature row
                    self._connection_start = float(int(max(stamp - media.start, self.end)))
                    tracks = stream_readers(
                        media,
                        self._connection_start,
                        float("inf"),
                        rate=self._pictures.rate,
                        size=self._pictures.size,
                        skip_nonref=self._media.skip_nonref,
                    )
                latest = max(latest, stamp - media.start)
            self._clock.record_arrival()
            if packet.stream.index in tracks:
                for frame in media.decode(packet):
                    yield from self._timed_items(tracks[packet.stream.index].add(frame))
                if self._recording is not None:
                    self._recording.add(packet, media)
            if self._stop.is_set():
                break
        yield from self._finish_tracks(tracks)

    def _begin_connection(self, media: OpenMedia, *, is_recording: bool) -> None:
        """Prepare the clock and the first position of a newly opened connection.

        A recording is read on from where the last connection ended. A live stream keeps the time
        stamp that was second 0 in its first connection.

        Args:
            media: the open source.
            is_recording: whether the source is a recording, not a live stream.
        """
        if not self._opened:
            self._clock.begin(paced=is_recording)
        if is_recording and self.end > 0:
            media.is_seekable = True
            seek_before(media, self.end)
        if not is_recording and self._clock.origin is not None:
            media.start = self._clock.origin

    def _set_origin(self, media: OpenMedia, stamp: float) -> None:
        """Set the time stamp of an address that is the source's second 0.

        Args:
            media: the open source.
            stamp: time stamp of the next packet in seconds.
        """
        second = stamp - media.start
        continued_second = self._clock.second_after_break(second) if self._opened else self.end
        media.start += second - continued_second
        self._clock.origin = media.start

    def _finish_tracks(self, tracks: StreamReaders) -> "Iterator[Frame | AudioBlock]":
        for track in tracks.values():
            yield from self._timed_items(track.finish())

    def _timed_items(self, items: "Iterator[Frame | AudioBlock]") -> "Iterator[Frame | AudioBlock]":
        """Yield frames and sound with their seconds of the source, when they are due.

        Those that an earlier connection has already given are left out.

        items: frames and sound, with seconds since the start of the connection.
        """
        for item in items:
            # pictures and sound that were already yielded are skipped
            if isinstance(item, Frame):
                end = item.time + self._connection_start
                if end <= self._picture_end:
                    continue
                self._picture_end = end
                item = Frame(end, item.image)
            else:
                repeated = (self._sound_end - item.start - self._connection_start) * SAMPLE_RATE
                first = max(0, round(repeated))
                start = item.start + self._connection_start + first / SAMPLE_RATE
                item = AudioBlock(start, item.samples[first:])
                end = self._sound_end = start + len(item.samples) / SAMPLE_RATE
                if not len(item.samples):
                    continue

            # a recording is played in real time
            if self._clock.paced:
                self._stop.wait(self._clock.seconds_until(end))
            self._clock.end = max(self.end, end)
            yield item


def _time_stamp(packet: Any) -> float | None:
    """Return the presentation time of a packet, else its decoding time, in seconds as stored.

    None without either.
    """
    stamp = presentation_stamp(packet)
    if stamp is None or not packet.time_base:
        return None
    return float(stamp * packet.time_base)
