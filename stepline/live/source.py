"""A live source as frames and sound on one clock: a file at its own pace or still growing, an
address, a device.

    file       read as fast as it would be watched, `speed` times that; where it still grows, followed until it stops
    address    http, HLS, rtsp, rtmp, udp or srt, as it comes; opened anew where it breaks off, after a growing pause
    device     camera[:/dev/video0], microphone[:default], or both joined by +

Second 0 is the first one that comes. After a break the source's own time stamps are believed where
they go on as the clock on the wall did; else what comes next stands at the second that the wall's
clock says.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, Literal

from stepline.errors import MediaError, SettingsError, first_line
from stepline.live.forward_proxy import ForwardProxy
from stepline.media.audio import SAMPLE_RATE, AudioBlock
from stepline.media.container import LiveInput, OpenMedia, open_live, open_media, picture_rate
from stepline.media.frames import Frame, FrameSampler, FrameScaler
from stepline.media.http import display_url
from stepline.media.reader import SPARSE, PictureTrack, SoundTrack, seek_before
from stepline.media.settings import LinkSettings, MediaSettings

if TYPE_CHECKING:
    from stepline.live.recording import StreamRecorder

NETWORK = {
    "http": "http,https,tcp,tls,crypto,data,httpproxy",
    "https": "http,https,tcp,tls,crypto,data,httpproxy",
    "rtsp": "rtsp,rtp,udp,tcp,tls,crypto",
    "rtsps": "rtsp,rtp,udp,tcp,tls,crypto",
    "rtmp": "rtmp,rtmps,rtmpt,tcp,tls,http",
    "rtmps": "rtmp,rtmps,rtmpt,tcp,tls,http",
    "udp": "udp,rtp",
    "rtp": "udp,rtp",
    "tcp": "tcp",
    "srt": "srt",
}  # schemes, and the protocols that an address of each may lead to; never a file of this machine
DEVICES = {"camera": ("v4l2", "/dev/video0"), "microphone": ("alsa", "default")}
# s since its last change in which a file counts as being written, and without growth as finished
GROWING = 10.0
# s by which time stamps may disagree with the wall's clock across a break and still be believed
TRUST = 30.0
JUMP = 5.0  # s by which time stamps may leap ahead before it is a break
LONGEST_PAUSE = 30.0  # s between two tries
# s of drift against the wall's clock that are told, and how often it is looked at
DRIFT, DRIFT_EVERY = 1.0, 60.0
END_SLACK = 2.0  # s before its claimed end from which a recording at an address counts as whole
CORRUPT = 100  # packets in a row that cannot be read, from which a connection is given up


@dataclass(frozen=True)
class Gap:
    """What the source's clock did. kind "gap": `seconds` are missing from `at` on; "drift": it is
    so far ahead."""

    at: float
    seconds: float
    reason: str
    kind: Literal["gap", "drift"] = "gap"


@dataclass(frozen=True)
class PictureRate:
    """Pictures to take: `rate` a second, `size` pixels on the shorter side; rate None: none."""

    rate: float | None = None
    size: int | None = None


def parse_sources(name: str) -> list[Path | LiveInput]:
    """Return what the command line's SOURCE names: one file or address, or one or two devices.

    Raises SettingsError for a scheme that is not known, MediaError for a file that is not there.
    """
    if re.fullmatch(r"(camera|microphone)(:[^+]*)?(\+(camera|microphone)(:[^+]*)?)?", name):
        devices = [part.partition(":") for part in name.split("+")]
        if len({kind for kind, _, _ in devices}) < len(devices):
            raise SettingsError(f"{name}: name one camera and one microphone")
        return [
            LiveInput(
                place or DEVICES[kind][1],
                f"{kind} {place or DEVICES[kind][1]}",
                format=DEVICES[kind][0],
            )
            for kind, _, place in devices
        ]
    scheme = re.match(r"([a-z][a-z0-9+]*)://", name)
    if scheme is None:
        path = Path(name)
        # of a recorder beside us; it may name files of this machine
        if path.suffix == ".m3u8" and path.is_file():
            return [LiveInput(str(path.absolute()), name, "file,crypto,data")]
        # one that cannot be read is told before any network is loaded
        with open_media(path, MediaSettings()):
            return [path]
    if scheme[1] not in NETWORK:
        raise SettingsError(
            f"{scheme[1]}: not an address that is read live; give one of {', '.join(NETWORK)}"
        )
    options = (("rtsp_transport", "tcp"),) if scheme[1].startswith("rtsp") else ()
    return [LiveInput(name, display_url(name), NETWORK[scheme[1]], options=options)]


class LiveSource:
    """Yields frames, blocks of sound and gaps as they come, until the source ends or `stop` is set.

    `end`: the last second that came. `now`: the second that the source has reached by the wall's
    clock. `reason`: why it ended. `paced`: it comes at the pace at which it is watched, not as it
    is made. Iterate once.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """start: second of a file to begin with, or that an address stands at. links: its tries and
        patience."""
        self._source, self._pictures, self._speed = source, pictures or PictureRate(), speed
        self._media, self._links = media or MediaSettings(), links or LinkSettings()
        self._recording, self._stop, self._clock = recording, stop or Event(), clock
        self.end, self.reason, self.duration = start, "", 0.0
        self._begun = self._arrived = clock()  # of the first and of the last packet
        self._first, self.paced = start, isinstance(source, Path)
        self._opened = False
        self._origin: float | None = None  # of an address: its time stamp at second 0, in s
        self._heard_to = self._looked_to = 0.0  # s, where sound and frames that were yielded end
        self.held = False  # a paced source waits while it is
        self._drift: float | None = None  # s ahead of the wall's clock, as last told
        self._ahead, self._looked = float("-inf"), clock()

    @property
    def now(self) -> float:
        """Second that the source has reached: of a paced one by the wall's clock, of another what
        has come."""
        elapsed = self._clock() - self._begun
        return (
            self._first + elapsed * self._speed
            if self.paced
            else self.end + self._clock() - self._arrived
        )

    def __iter__(self) -> "Iterator[Frame | AudioBlock | Gap]":
        import av

        failures, pause, lost = 0, self._links.pause, ""
        while not self._stop.is_set():
            before = self.end
            try:
                with self._open() as media:
                    self.duration = media.duration or 0.0
                    whole = self.duration > 0
                    yield from self._connection(media, lost)
                if isinstance(self._source, Path) or (
                    whole and self.end >= self.duration - END_SLACK
                ):
                    break
                lost = "the connection ended"
            except MediaError as error:
                if not self._opened:
                    raise
                lost = str(error)
            except (av.error.FFmpegError, OSError) as error:
                lost = first_line(error)
                if isinstance(self._source, Path):  # a file that grew, and has not for a while
                    break
            failures, pause = (1, self._links.pause) if self.end > before else (failures + 1, pause)
            if failures > self._links.attempts:
                self.reason = f"{failures - 1} tries brought nothing ({lost})"
                return
            self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        self.reason = "stopped" if self._stop.is_set() else "the source ended"

    @contextmanager
    def _open(self) -> Iterator[OpenMedia]:
        source = self._source
        if isinstance(source, LiveInput):
            with self._open_address(replace(source, silence=self._links.seconds)) as media:
                yield media
        elif time.time() - source.stat().st_mtime < GROWING:
            grows = (("follow", "1"),)
            growing = LiveInput(
                f"file:{source}", str(source), "file", options=grows, silence=GROWING
            )
            with open_live(growing, self._media) as media:
                yield media
        else:
            with open_media(source, self._media) as media:
                yield media

    @contextmanager
    def _open_address(self, live: LiveInput) -> Iterator[OpenMedia]:
        """Yield an address, opened; over http(s) by a proxy that looks where it leads."""
        import av

        if not live.url.startswith(("http://", "https://")):
            with open_live(live, self._media) as media:
                yield media
            return
        with ForwardProxy(live.url, self._links) as proxy:
            try:
                through = replace(live, options=(*live.options, ("http_proxy", proxy.address)))
                with open_live(through, self._media) as media:
                    yield media
            except (MediaError, av.error.FFmpegError) as error:
                if not proxy.refused:
                    raise
                raise MediaError(
                    f"{live.shown}: it leads elsewhere, and {proxy.refused}"
                ) from error

    def _connection(self, media: OpenMedia, lost: str) -> "Iterator[Frame | AudioBlock | Gap]":
        """Yield what one connection brings; `lost`: why the one before ended."""
        # A live playlist that has come to its end has a length, too, but its clock goes on.
        recorded = isinstance(self._source, Path) or (
            media.duration is not None and (self.paced or not self._opened)
        )
        if not self._opened:
            self.paced, self._begun, self._arrived = recorded, self._clock(), self._clock()
        if recorded and self.end > 0:
            media.exact = True
            seek_before(media, self.end)
        if not recorded and self._origin is not None:
            media.start = self._origin
        tracks: dict[int, PictureTrack | SoundTrack] = {}
        base = latest = self.end
        for packet in self._packets(media):
            stamp = packet.pts if packet.pts is not None else packet.dts
            if stamp is not None and packet.time_base:
                second = float(stamp * packet.time_base) - media.start
                if not tracks or (not recorded and second > latest + JUMP):
                    for track in tracks.values():
                        yield from self._items(track.finish(), base)
                    if not recorded:
                        media.start += second - self._anchor(second if self._opened else None)
                        self._origin = media.start
                        second = float(stamp * packet.time_base) - media.start
                    base = self._base(second)
                    if lost or tracks:
                        yield Gap(
                            self.end,
                            round(max(0.0, second - self.end), 3),
                            lost or "the time stamps leapt",
                        )
                    lost, self._opened = "", True
                    tracks = self._tracks(media, base)
                latest = max(latest, second)
            self._arrived = self._clock()
            if packet.stream.index in tracks:
                for frame in media.decode(packet):
                    yield from self._items(tracks[packet.stream.index].take(frame), base)
                if self._recording is not None:
                    self._recording.add(packet, media)
            if not recorded and (drift := self._drifted()) is not None:
                yield drift
        for track in tracks.values():
            yield from self._items(track.finish(), base)

    def _base(self, second: float) -> float:
        """Return the second that a connection's frames and sound are counted from, at a row's
        beginning."""
        return float(int(max(second, self.end)))

    def _anchor(self, second: float | None) -> float:
        """Return the second at which what comes next stands. second: by its own stamps; None: of
        the first ever."""
        expected = self.end + (self._clock() - self._arrived)
        if second is not None and second > self.end - TRUST and abs(second - expected) <= TRUST:
            return second
        return self.end if second is None else expected

    def _packets(self, media: OpenMedia) -> Iterator[Any]:
        """Yield the packets of the streams in use; those that cannot be read are counted and passed
        over."""
        import av

        streams = [stream for stream in (media.picture, media.sound) if stream is not None]
        failures = 0
        while failures < CORRUPT and not self._stop.is_set():
            try:
                for packet in media.container.demux(streams):
                    failures = 0
                    if packet.is_corrupt:
                        media.damage.packets += 1
                    else:
                        yield packet
                    if self._stop.is_set():
                        return
                return
            except av.error.EOFError:
                return
            except av.error.InvalidDataError:
                failures += 1
                media.damage.packets += 1

    def _tracks(self, media: OpenMedia, base: float) -> "dict[int, PictureTrack | SoundTrack]":
        """Return what takes the frames of each stream, on a clock that begins at second `base`."""
        tracks: dict[int, PictureTrack | SoundTrack] = {}
        endless, rate = float("inf"), self._pictures.rate
        if media.picture is not None and rate is not None:
            sampler = FrameSampler(
                rate, FrameScaler(shorter=self._pictures.size, aspect=media.aspect)
            )
            tracks[media.picture.index] = PictureTrack(media, sampler, self._media, base, endless)
            if self._media.skip_nonref and rate * SPARSE <= picture_rate(media.picture):
                media.picture.codec_context.skip_frame = "NONREF"
        if media.sound is not None:
            tracks[media.sound.index] = SoundTrack(media, self._media, base, endless)
        return tracks

    def _items(
        self, items: "Iterator[Frame | AudioBlock]", base: float
    ) -> "Iterator[Frame | AudioBlock]":
        """Yield frames and sound at their seconds, when they are due, and nothing again that came
        before a break."""
        for item in items:
            if isinstance(item, Frame):
                item, end = Frame(item.time + base, item.image), item.time + base
                if end <= self._looked_to:
                    continue
                self._looked_to = end
            else:
                again = max(0, round((self._heard_to - item.start - base) * SAMPLE_RATE))
                item = AudioBlock(item.start + base + again / SAMPLE_RATE, item.samples[again:])
                end = self._heard_to = item.start + len(item.samples) / SAMPLE_RATE
                if not len(item.samples):
                    continue
            if self.paced:
                self._wait_while_held()
                self._stop.wait(
                    max(0.0, self._begun + (end - self._first) / self._speed - self._clock())
                )
            self.end = max(self.end, end)
            yield item

    def _wait_while_held(self) -> None:
        since = self._clock()
        while self.held and not self._stop.wait(0.05):
            pass
        self._begun += self._clock() - since

    def _drifted(self) -> Gap | None:
        """Return how far the source's clock has left the wall's since the last telling, where that
        is worth it.

        What comes in bursts is as far ahead as at its best moment of a minute.
        """
        now = self._clock()
        self._ahead = max(self._ahead, self.end - (now - self._begun))
        if now < self._looked + DRIFT_EVERY:
            return None
        drift, self._ahead, self._looked = self._ahead, float("-inf"), now
        if self._drift is None:
            self._drift = drift
        told = drift - self._drift
        if abs(told) <= DRIFT:
            return None
        self._drift = drift
        return Gap(
            self.end, round(told, 3), "its clock and the clock on the wall drift apart", "drift"
        )
