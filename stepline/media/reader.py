"""Reads a video: frames at a rate and sound in one pass, or single frames by seeking."""

import math
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from stepline.errors import MediaError
from stepline.media.audio import AudioBlock, AudioTimeline
from stepline.media.container import (
    MICROSECONDS_PER_SECOND,
    OpenMedia,
    check_duration,
    open_media,
    picture_rate,
)
from stepline.media.frames import Frame, FrameSampler, FrameScaler, Thumbnails
from stepline.media.settings import MediaSettings
from stepline.records import Span

# frames of the video for each one wanted, from which leaving some out cannot be seen
MIN_SPARSE_RATIO = 4

# Time and length in seconds, and the decoded frame.
TimedPicture: TypeAlias = tuple[float, float, Any]


class MediaReader:
    """Yields the frames and the sound of a video in the order of the file, each decoded once.

    Args:
        path: of the video.
        frame_rate: frames/s, None for no frames. Frame k is on screen at (k + 0.5) / frame_rate s.
        frame_size: pixels of the shorter side, None for full size.
        sound: whether blocks of sound are yielded.
        settings: limits of the video.
        part: the seconds to read. Its first second becomes time 0.
        thumbnails: collects JPEGs of the frames.

    Missing picture or sound is not yielded. After the iteration, `warnings` lists the damage of the
    file and `end` is the last second read. Raises MediaError for a file that cannot be read at all.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        frame_rate: float | None,
        frame_size: int | None = None,
        sound: bool,
        settings: MediaSettings | None = None,
        part: Span | None = None,
        thumbnails: Thumbnails | None = None,
    ) -> None:
        # What cannot be asked for.
        if frame_rate is not None and not 0 < frame_rate < float("inf"):
            raise MediaError(f"frame_rate {frame_rate}: give frames per second above 0, or none")
        if frame_size is not None and frame_size < 1:
            raise MediaError(
                f"frame_size {frame_size}: give the pixels of the shorter side, at least 1"
            )
        self._path = Path(path)
        self._rate = frame_rate
        self._size = frame_size
        self._sound = sound
        self._settings = settings or MediaSettings()
        self._thumbnails = thumbnails
        # The whole video is a part without an end.
        self._first = 0.0
        self._length = math.inf
        if part is not None:
            self._first = part.start
            self._length = part.duration
        self.warnings: tuple[str, ...] = ()
        self.end = 0.0

    def __iter__(self) -> "Generator[Frame | AudioBlock]":
        self.warnings = ()
        self.end = 0.0
        with open_media(self._path, self._settings, on_gpu=self._rate is not None) as media:
            if self._first > 0:
                seek_before(media, self._first)
            tracks = self._tracks(media)
            for packet in media.packets():
                packet_end = media.packet_end(packet) - self._first
                self.end = max(self.end, min(packet_end, self._length))
                track = tracks.get(packet.stream.index)
                if track is None:
                    continue
                for frame in media.decode(packet):
                    yield from track.take(frame)
                self.end = max(self.end, track.end)
                if all(track.past for track in tracks.values()):
                    break
            for track in tracks.values():
                yield from track.finish()

            # what was really read, of what the file claims to hold
            if media.shape.end is not None:
                self.end = min(self.end, max(0.0, media.shape.end - self._first))
            claimed = None
            if media.exact and media.duration:
                claimed = min(media.duration, self._first + self._length)
            self.warnings = media.damage.warnings(self._first + self.end, claimed)

    def _tracks(self, media: OpenMedia) -> "dict[int, PictureTrack | SoundTrack]":
        """Return the track object of each wanted stream, by stream index."""
        tracks: dict[int, PictureTrack | SoundTrack] = {}
        if self._rate is not None and media.picture is not None:
            scaler = FrameScaler(shorter=self._size, aspect=media.aspect)
            sampler = FrameSampler(self._rate, scaler, self._thumbnails)
            tracks[media.picture.index] = PictureTrack(media, sampler, self._first, self._length)
            # Where few are wanted, frames that no other needs are not decoded.
            is_sparse = self._rate * MIN_SPARSE_RATIO <= picture_rate(media.picture)
            if self._settings.skip_nonref and media.exact and is_sparse:
                media.picture.codec_context.skip_frame = "NONREF"
        if self._sound and media.sound is not None:
            tracks[media.sound.index] = SoundTrack(media, self._first, self._length)
        return tracks


class PictureTrack:
    """Decoded picture stream of the part to read. first, length: start and duration of the part, s."""

    def __init__(
        self, media: OpenMedia, sampler: FrameSampler, first: float, length: float
    ) -> None:
        self._media = media
        self._sampler = sampler
        self._timing = media.timing()
        self.finish = sampler.finish
        self._first = first
        self._length = length
        self.end = 0.0  # s, where the last frame taken stops
        self.past = False  # the part has ended

    def take(self, frame: Any) -> Iterator[Frame]:
        """Yield the frames completed by a decoded frame."""
        time, length = self._timing.time_and_length(frame)
        check_duration(self._media.path, time, self._media.settings)
        time -= self._first
        if time >= self._length:  # what was on screen before is so up to the end
            if not self.past:
                self.past = True
                self.end = self._length
                yield from self._sampler.take(self._length, frame, 0.0)
            return
        length = min(length, self._length - time)
        self.end = max(self.end, time + length)
        yield from self._sampler.take(time, frame, length)


class SoundTrack:
    """Decoded sound stream of the part to read. first, length: start and duration of the part, s."""

    def __init__(self, media: OpenMedia, first: float, length: float) -> None:
        self._media = media
        self._clock = media.clock()
        self._timeline = AudioTimeline()
        self._first = first
        self._length = length
        self.end = 0.0  # s, where the last frame taken stops
        self.past = False  # the part has ended

    def take(self, frame: Any) -> Iterator[AudioBlock]:
        """Yield the blocks completed by a decoded frame."""
        length = frame.samples / frame.sample_rate
        time = self._clock.time_of(frame.pts, frame.time_base, length)
        check_duration(self._media.path, time, self._media.settings)
        time -= self._first
        self.past = self.past or time >= self._length
        if self.past:
            return
        self.end = max(self.end, min(time + length, self._length))
        for start, samples in self._timeline.take(time, frame):
            yield AudioBlock(start, samples[0])

    def finish(self) -> Iterator[AudioBlock]:
        """Yield the remaining block after the last frame."""
        for start, samples in self._timeline.finish():
            yield AudioBlock(start, samples[0])


def read_sound(path: Path | str, settings: MediaSettings | None = None) -> Iterator[AudioBlock]:
    """Yield the sound of a video in blocks of about a second, or nothing without sound."""
    for item in MediaReader(path, frame_rate=None, sound=True, settings=settings):
        if isinstance(item, AudioBlock):
            yield item


def read_frames(
    path: Path | str, rate: float, size: int | None = None, settings: MediaSettings | None = None
) -> Iterator[Frame]:
    """Yield the frame on screen at (k + 0.5) / rate s for each k.

    size: pixels of the shorter side, None for full size.
    """
    for item in MediaReader(path, frame_rate=rate, frame_size=size, sound=False, settings=settings):
        if isinstance(item, Frame):
            yield item


# s before the wanted second tried first, so that its sound is complete. Then four times as far
SEEK_BACK_SECONDS = 1.0


def seek_before(media: OpenMedia, second: float) -> Any:
    """Seek to where decoding yields everything on screen and audible at `second`.

    Return the first picture, or None where no picture can be decoded. A file without seeking is
    reopened at its start.
    """
    back = SEEK_BACK_SECONDS
    while True:
        begin = max(0.0, second - back)
        seek_key_frame(media, begin)
        picture = next(decode_pictures(media), None)
        is_early = picture is not None and picture[0] <= second
        if is_early or not media.exact or second <= back:
            seek_key_frame(media, begin)
            return None if picture is None else picture[2]
        # The key frame came too late.
        back *= 4


def seek_key_frame(media: OpenMedia, second: float) -> None:
    """Seek to the last key frame at or before `second`, or to the start in a file without seeking."""
    import av

    # a key frame that comes late would take the sound before it along
    if not media.exact or second <= 0:
        media.rewind()
        return
    microsecond = round((second + media.start) * MICROSECONDS_PER_SECOND)
    try:
        media.container.seek(microsecond, backward=True)
    except av.error.FFmpegError:
        media.exact = False
        media.rewind()


def decode_pictures(media: OpenMedia) -> Iterator[TimedPicture]:
    """Yield time, duration (s) and decoded frame of every picture from the current position."""
    if media.picture is None:
        return
    timing = media.timing()
    for packet in media.packets():
        if packet.stream.index != media.picture.index:
            continue
        for frame in media.decode(packet):
            time, length = timing.time_and_length(frame)
            yield time, length, frame


# s to the next wanted second up to which decoding on is cheaper than seeking
MAX_GAP_SECONDS = 4.0
# s after the last picture ends during which it still counts as on screen. Rows of features are that
# long
LINGER_SECONDS = 1.0


def frames_at(
    path: Path | str,
    times: Sequence[float],
    width: int | None = None,
    settings: MediaSettings | None = None,
) -> list[Frame | None]:
    """Return the frame on screen at each of the times, None where there is no picture.

    Before the first frame it is the first one.

    Args:
        path: of the video.
        times: seconds, in any order.
        width: pixels across, None for full size.
        settings: limits of the video.
    """
    frames = read_frames_at(path, times, width, settings)
    frame_of_time = {frame.time: frame for frame in frames}
    return [frame_of_time.get(time) for time in times]


def read_frames_at(
    path: Path | str,
    times: Sequence[float],
    width: int | None = None,
    settings: MediaSettings | None = None,
    *,
    shorter: int | None = None,
    longer: int | None = None,
) -> Iterator[Frame]:
    """Yield the frames of `frames_at` sorted by time, without duplicates and missing pictures.

    Memory holds one picture.

    Args:
        path: of the video.
        times: seconds, in any order.
        width: pixels across, None for full size.
        settings: limits of the video.
        shorter: pixels of the shorter side, instead of `width`.
        longer: pixels of the longer side, never more than the video has.
    """
    with open_media(path, settings or MediaSettings()) as media:
        cursor = _PictureCursor(media)
        scaler = FrameScaler(shorter=shorter, width=width, longer=longer, aspect=media.aspect)
        seconds = [time for time in set(times) if time >= 0.0]
        for time in sorted(seconds):
            picture = cursor.at(time)
            if picture is not None:
                yield Frame(time, scaler.image(picture))


class _PictureCursor:
    """Moves forward through the pictures of a file, by decoding or by seeking."""

    def __init__(self, media: OpenMedia) -> None:
        self._media = media
        self._pictures: Iterator[TimedPicture] = iter(())
        self._next: TimedPicture | None = None
        self._shown: TimedPicture | None = None

    def at(self, second: float) -> Any:
        """Return the decoded frame on screen at `second`. Seconds must not decrease between calls."""
        if self._media.picture is None:
            return None
        # Far ahead, a leap is cheaper than decoding on.
        needs_seek = self._next is not None and second > self._next[0] + MAX_GAP_SECONDS
        if self._shown is None or (needs_seek and self._media.exact):
            seek_before(self._media, second)
            self._pictures = decode_pictures(self._media)
            self._shown = next(self._pictures, None)
            self._next = next(self._pictures, None)
        while self._next is not None and self._next[0] <= second:
            self._shown = self._next
            self._next = next(self._pictures, None)
        if self._shown is None:
            return None
        time, length, frame = self._shown
        # The last picture stays for a while after its end.
        if self._next is not None or second < time + length + LINGER_SECONDS:
            return frame
        return None
