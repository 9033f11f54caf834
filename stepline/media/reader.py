"""Reads a video: frames at a rate and audio in one pass, key frames alone, or single frames by seeking."""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stepline.errors import MediaError
from stepline.media.audio import AudioBlock, AudioTimeline
from stepline.media.clock import decoding_second, presentation_stamp
from stepline.media.container import (
    MICROSECONDS_PER_SECOND,
    OpenMedia,
    check_duration,
    frame_rate,
    open_media,
)
from stepline.media.frames import Frame, FrameSampler, FrameScaler, Image
from stepline.media.settings import MediaSettings
from stepline.records import Span

# frames of the video per wanted frame, from which the loss of unreferenced ones cannot be seen
MIN_SPARSE_RATIO = 4
# s before the wanted second tried first, so that its audio is complete. Then four times as far
SEEK_BACK_SECONDS = 1.0
# s to the next wanted second up to which further decoding is cheaper than seeking
MAX_GAP_SECONDS = 4.0
# s after the last frame ends during which it still counts as on screen. Rows of features are that
# long
LINGER_SECONDS = 1.0
MIN_KEY_SECONDS = 1.0  # s between two key frames that are decoded
# s between two key frames, beyond which they do not stand for the video. Encoders have 10 s or less
MAX_KEY_SECONDS = 12.5
MIN_KEY_FRAMES = 3
# s after a key frame at which a second frame shows whether the picture moves, and s between such pairs
LATER_PICTURE_SECONDS = 0.34
PAIR_INTERVAL_SECONDS = 6.0

# Start and duration in seconds, and PyAV's decoded frame.
TimedFrame = tuple[float, float, Any]


class MediaReader:
    """Iterator over the frames and audio blocks of a video, decoded once, in file order.

    A file without video yields no frames, a file without audio no blocks. Iteration raises
    MediaError if the file cannot be read at all.

    Attributes:
        warnings: messages about damage in the file, complete after the iteration.
        end: the last second read.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        frame_rate: float | None,
        frame_size: int | None = None,
        sound: bool,
        settings: MediaSettings = MediaSettings(),
        part: Span | None = None,
    ) -> None:
        """Choose what is read.

        Args:
            path: path of the video.
            frame_rate: frames per second, None for no frames. Frame k is the one on screen at
                (k + 0.5) / frame_rate seconds.
            frame_size: pixels of the shorter side, None for full size.
            sound: whether audio blocks are yielded.
            settings: limits on the video.
            part: span in seconds to read, None for the whole video. Its start becomes time 0.
        """
        self._path = Path(path)
        self._rate = frame_rate
        self._size = frame_size
        self._has_audio = sound
        self._settings = settings
        # The whole video is a part without an end.
        self._start = 0.0 if part is None else part.start
        self._length = math.inf if part is None else part.duration
        self.warnings: tuple[str, ...] = ()
        self.end = 0.0

    def __iter__(self) -> "Generator[Frame | AudioBlock]":
        self.warnings = ()
        self.end = 0.0
        with open_media(self._path, self._settings) as media:
            if self._start > 0:
                seek_before(media, self._start)
            readers = stream_readers(
                media,
                self._start,
                self._length,
                rate=self._rate,
                size=self._size,
                has_audio=self._has_audio,
                skip_nonref=self._settings.skip_nonref and media.is_seekable,
            )
            for packet in media.packets():
                packet_end = media.packet_end(packet) - self._start
                self.end = max(self.end, min(packet_end, self._length))
                reader = readers.get(packet.stream.index)
                if reader is None:
                    continue
                for frame in media.decode(packet):
                    yield from reader.add(frame)
                self.end = max(self.end, reader.end)
                if all(reader.is_past_part for reader in readers.values()):
                    break
            for reader in readers.values():
                yield from reader.finish()

            # what was really read, of what the file claims to hold
            if media.scan.end is not None:
                self.end = min(self.end, max(0.0, media.scan.end - self._start))
            claimed = None
            if media.is_seekable:
                claimed = min(media.duration or 0.0, self._start + self._length)
            self.warnings = media.damage.warnings(self._start + self.end, claimed)


class SparseKeyFramesError(MediaError):
    """Raised for a video whose key frames are too few to stand for it."""


@dataclass(frozen=True)
class KeyFrame:
    """A key frame of a video.

    Attributes:
        time: second at which it appears.
        end: second at which the next one appears.
        image: (H, W, 3) uint8 RGB, upright.
        later: the picture 0.34 s later, None where it was not decoded.
    """

    time: float
    end: float
    image: Image
    later: Image | None = None


class KeyFrameReader:
    """Iterator over the key frames of a video, which are decoded alone, at most one a second.

    A tenth of them or more come with a picture shortly after, so that motion can be measured. Iteration
    raises MediaError if the file cannot be read, and SparseKeyFramesError if key frames are too rare or
    the file is damaged.

    Attributes:
        end: the last second read, of picture or sound.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        frame_size: int | None = None,
        settings: MediaSettings = MediaSettings(),
        part: Span | None = None,
    ) -> None:
        """Choose what is read. The arguments are those of `MediaReader`."""
        self._path = Path(path)
        self._size = frame_size
        self._settings = settings
        self._start = 0.0 if part is None else part.start
        self._length = math.inf if part is None else part.duration

    def __iter__(self) -> "Generator[KeyFrame]":
        self.end = self._picture_end = 0.0
        with open_media(self._path, self._settings) as media:
            if not media.is_seekable:
                raise SparseKeyFramesError(f"{self._path}: has no seekable key frames")
            if self._start > 0:
                seek_before(media, self._start)
            if self._settings.skip_nonref:
                skip_unreferenced_frames(media.video_stream, 1 / LATER_PICTURE_SECONDS)
            scaler = FrameScaler(shorter=self._size, aspect=media.aspect)
            shown: KeyFrame | None = None
            count = 0
            for packets in self._packet_runs(media):
                key = self._decode(media, packets, scaler)
                if key is None or not 0 <= key.time < self._length:
                    continue
                self._check_gap(key.time - (shown.time if shown else 0.0))
                if shown is not None:
                    yield replace(shown, end=key.time)
                shown = key
                count += 1
            claimed = min(media.duration or 0.0, self._start + self._length)
            if media.damage.warnings(self._start + self.end, claimed):
                raise SparseKeyFramesError(f"{self._path}: is damaged, so that all of it is read")
            if shown is None or count < MIN_KEY_FRAMES:
                raise SparseKeyFramesError(f"{self._path}: has {count} key frames")
            self._check_gap(self._picture_end - shown.time)
            yield replace(shown, end=max(self._picture_end, shown.time))

    def _check_gap(self, seconds: float) -> None:
        if seconds > MAX_KEY_SECONDS:
            raise SparseKeyFramesError(
                f"{self._path}: has no key frame for {seconds:.1f} s, more than {MAX_KEY_SECONDS:g}"
            )

    def _packet_runs(self, media: OpenMedia) -> Iterator[list[Any]]:
        """Yield the packets to decode, from each key frame on: one, or those of a third of a second."""
        stream = media.video_stream
        tick = float(stream.time_base)
        run: list[Any] = []
        until = next_key = next_pair = -math.inf
        for packet in media.packets():
            end = min(media.packet_end(packet) - self._start, self._length)
            self.end = max(self.end, end)
            second = decoding_second(packet)
            if packet.stream.index != stream.index or second is None:
                continue
            second -= media.start + self._start
            if second >= self._length:
                break
            self._picture_end = max(self._picture_end, end)
            # a key frame before the part is not in it, nor does its pair count
            shown_second = presentation_stamp(packet) * tick - media.start - self._start
            if packet.is_keyframe and second >= next_key and shown_second >= 0:
                if run:
                    yield run
                run = [packet]
                next_key = second + MIN_KEY_SECONDS
                until = second
                if second >= next_pair:
                    next_pair = second + PAIR_INTERVAL_SECONDS
                    until = second + LATER_PICTURE_SECONDS
            elif second <= until:
                run.append(packet)
        if run:
            yield run

    def _decode(self, media: OpenMedia, packets: list[Any], scaler: FrameScaler) -> KeyFrame | None:
        """Return the key frame of some packets, None if nothing can be decoded."""
        decoded = [frame for packet in packets for frame in media.decode(packet)]
        frames = [frame for frame in (*decoded, *media.drain()) if frame.pts is not None]
        if not frames:
            return None
        first, last = frames[0], frames[-1]
        # frames that are drained have no time base of their own
        tick = float(media.video_stream.time_base)
        time = first.pts * tick - media.start - self._start
        is_pair = (last.pts - first.pts) * tick >= LATER_PICTURE_SECONDS / 2
        later = scaler.image(last) if is_pair else None
        return KeyFrame(time, time, scaler.image(first), later)


class _PartReader:
    """Position in one decoded stream of a part of a video.

    Attributes:
        end: end of the last frame added, in seconds from the start of the part.
        is_past_part: whether a frame after the part was added.
    """

    def __init__(self, media: OpenMedia, start: float, length: float) -> None:
        """Start to read a part.

        Args:
            media: the open video.
            start: start of the part in seconds.
            length: length of the part in seconds.
        """
        self._media = media
        self._start = start
        self._length = length
        self.end = 0.0
        self.is_past_part = False

    def _time_in_part(self, time: float) -> float:
        """Convert seconds of the video to seconds of the part. Raises MediaError past the limit."""
        check_duration(self._media.path, time, self._media.settings)
        return time - self._start


class VideoStreamReader(_PartReader):
    """Selects frames from the decoded video stream of a part of a video."""

    def __init__(
        self, media: OpenMedia, sampler: FrameSampler, start: float, length: float
    ) -> None:
        """Start to read a part.

        Args:
            media: the open video.
            sampler: selects the frames.
            start: start of the part in seconds.
            length: length of the part in seconds.
        """
        super().__init__(media, start, length)
        self._sampler = sampler
        self._timing = media.timing()
        self.finish = sampler.finish

    def add(self, frame: Any) -> Iterator[Frame]:
        """Yield the selected frames that a decoded frame completes."""
        time, length = self._timing.time_and_length(frame)
        time = self._time_in_part(time)
        if time >= self._length:  # The frame before is on screen up to the end of the part.
            if not self.is_past_part:
                self.is_past_part = True
                self.end = self._length
                yield from self._sampler.add(self._length, frame, 0.0)
            return
        length = min(length, self._length - time)
        self.end = max(self.end, time + length)
        yield from self._sampler.add(time, frame, length)


class AudioStreamReader(_PartReader):
    """Resamples the decoded audio stream of a part of a video."""

    def __init__(self, media: OpenMedia, start: float, length: float) -> None:
        super().__init__(media, start, length)
        self._clock = media.clock()
        self._timeline = AudioTimeline()

    def add(self, frame: Any) -> Iterator[AudioBlock]:
        """Yield the audio blocks that a decoded audio frame completes."""
        length = frame.samples / frame.sample_rate
        time = self._time_in_part(self._clock.time_of(frame.pts, frame.time_base, length))
        self.is_past_part = self.is_past_part or time >= self._length
        if self.is_past_part:
            return
        self.end = max(self.end, min(time + length, self._length))
        for start, samples in self._timeline.add(time, frame):
            yield AudioBlock(start, samples[0])

    def finish(self) -> Iterator[AudioBlock]:
        """Yield the last, shorter block, if any audio remains."""
        for start, samples in self._timeline.finish():
            yield AudioBlock(start, samples[0])


StreamReaders = dict[int, VideoStreamReader | AudioStreamReader]  # by stream index


def stream_readers(
    media: OpenMedia,
    start: float,
    length: float,
    *,
    rate: float | None,
    size: int | None,
    skip_nonref: bool,
    has_audio: bool = True,
) -> StreamReaders:
    """Return stream index -> reader of a part of a video, for each stream to read.

    Args:
        media: the open video.
        start: start of the part in seconds.
        length: length of the part in seconds.
        rate: frames per second, None for no frames.
        size: pixels of a frame's shorter side, None for full size.
        skip_nonref: whether frames that no other frame refers to are not decoded, if few are needed.
        has_audio: whether audio is read.
    """
    readers: StreamReaders = {}
    video, audio = media.video_stream, media.audio_stream
    if rate is not None and video is not None:
        sampler = FrameSampler(rate, FrameScaler(shorter=size, aspect=media.aspect))
        readers[video.index] = VideoStreamReader(media, sampler, start, length)
        if skip_nonref:
            skip_unreferenced_frames(video, rate)
    if has_audio and audio is not None:
        readers[audio.index] = AudioStreamReader(media, start, length)
    return readers


def skip_unreferenced_frames(video: Any, rate: float) -> None:
    """Decode no frames that no other frame refers to, if the video has many frames per wanted one.

    Args:
        video: PyAV's video stream.
        rate: wanted frames per second.
    """
    if rate * MIN_SPARSE_RATIO <= frame_rate(video):
        video.codec_context.skip_frame = "NONREF"


def read_sound(path: Path | str) -> Iterator[AudioBlock]:
    """Yield the audio of a video in blocks of about one second. No audio yields no block."""
    for item in MediaReader(path, frame_rate=None, sound=True):
        if isinstance(item, AudioBlock):
            yield item


def seek_before(media: OpenMedia, second: float) -> Any:
    """Seek to a position from which decoding yields all that is seen or heard at `second`.

    Return PyAV's first frame from there, None if no frame can be decoded. A file without seeking is
    reopened at its start.
    """
    seek_back = SEEK_BACK_SECONDS
    while True:
        start = max(0.0, second - seek_back)
        _seek_key_frame(media, start)
        first = next(_decoded_frames(media), None)
        is_early = first is not None and first[0] <= second
        if is_early or not media.is_seekable or second <= seek_back:
            _seek_key_frame(media, start)
            return None if first is None else first[2]
        # The key frame came too late.
        seek_back *= 4


def _seek_key_frame(media: OpenMedia, second: float) -> None:
    """Seek to the last key frame at or before `second`. A file without seeking is reopened."""
    import av

    # a key frame that comes late would take the audio before it along
    if not media.is_seekable or second <= 0:
        media.rewind()
        return
    microsecond = round((second + media.start) * MICROSECONDS_PER_SECOND)
    try:
        media.container.seek(microsecond, backward=True)
    except av.error.FFmpegError:
        media.is_seekable = False
        media.rewind()


def _decoded_frames(media: OpenMedia) -> Iterator[TimedFrame]:
    """Yield the decoded frames of the video stream from the current position."""
    if media.video_stream is None:
        return
    timing = media.timing()
    for packet in media.packets():
        if packet.stream.index == media.video_stream.index:
            for frame in media.decode(packet):
                yield *timing.time_and_length(frame), frame


def read_frames_at(
    path: Path | str,
    times: Sequence[float],
    width: int | None = None,
    settings: MediaSettings = MediaSettings(),
    *,
    shorter: int | None = None,
    longer: int | None = None,
) -> Iterator[Frame]:
    """Yield the frames on screen at the given times, sorted by time, each frame once.

    Only one frame is in memory at a time.

    Args:
        path: path of the video.
        times: seconds, in any order.
        width: pixels of the width, None for full size.
        settings: limits on the video.
        shorter: pixels of the shorter side, instead of `width`.
        longer: maximal pixels of the longer side. Frames are never enlarged to it.
    """
    with open_media(path, settings) as media:
        cursor = _FrameCursor(media)
        scaler = FrameScaler(shorter=shorter, width=width, longer=longer, aspect=media.aspect)
        for time in sorted(time for time in set(times) if time >= 0.0):
            frame = cursor.frame_at(time)
            if frame is not None:
                yield Frame(time, scaler.image(frame))


class _FrameCursor:
    """Position in the frames of a file. It moves forward by decoding or by seeking."""

    def __init__(self, media: OpenMedia) -> None:
        self._media = media
        self._frames: Iterator[TimedFrame] = iter(())
        self._shown: TimedFrame | None = None
        self._next: TimedFrame | None = None

    def frame_at(self, second: float) -> Any:
        """Return PyAV's frame on screen at `second`, which must not decrease between calls."""
        if self._media.video_stream is None:
            return None
        is_far = self._next is not None and second > self._next[0] + MAX_GAP_SECONDS
        if self._shown is None or (is_far and self._media.is_seekable):
            seek_before(self._media, second)
            self._frames = _decoded_frames(self._media)
            self._shown = next(self._frames, None)
            self._next = next(self._frames, None)
        while self._next is not None and self._next[0] <= second:
            self._shown = self._next
            self._next = next(self._frames, None)
        if self._shown is None:
            return None
        time, length, frame = self._shown
        # The last frame stays for a while after its end.
        is_on_screen = self._next is not None or second < time + length + LINGER_SECONDS
        return frame if is_on_screen else None
