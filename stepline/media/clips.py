"""Cuts clips out of a video, exact to the frame and sample, joins them, and copies with chapters."""

import heapq
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import MediaError, SettingsError
from stepline.files.atomic_files import atomic_path
from stepline.media.audio import AudioTimeline
from stepline.media.container import OpenMedia, open_media, picture_rate
from stepline.media.frames import display_size, quarter_turns
from stepline.media.hdr import copy_colours, is_high_range, rotate_high_range
from stepline.media.reader import seek_before
from stepline.media.settings import MediaSettings
from stepline.records import Span

TICK_RATE = 90_000  # a second in the clip's picture time. A multiple of all usual frame rates
CLIP_RATE = 48_000  # Hz, sound of the clip
# Without macroblock-tree rate control, which reads memory that it has not set. With that control,
# clips would differ from run to run. crf 26 then gives the size and the PSNR of x264's default, 23
# with it. Hard to distinguish from the original.
X264_OPTIONS = {"crf": "26", "mbtree": "0", "preset": "veryfast"}
MAX_LAG_SECONDS = 10.0  # s by which one stream of a file may lag the other
COPIED_STREAM_TYPES = ("video", "audio", "subtitle")


def cut_clip(
    path: Path | str, span: Span, out: Path, settings: MediaSettings | None = None
) -> None:
    """Write the seconds of `span` as an mp4 (H.264, AAC) with synchronous picture and sound,
    atomically.

    Args:
        path: of the video.
        span: seconds to cut out.
        out: the mp4 file to write.
        settings: limits of the video.

    Raises MediaError where the video has nothing in that span, StoreError where `out` cannot be
    written.
    """
    join_clips(path, (span,), out, settings)


def join_clips(
    path: Path | str,
    spans: Sequence[Span],
    out: Path,
    settings: MediaSettings | None = None,
    *,
    comment: str | None = None,
) -> None:
    """Write several spans of a video, in the given order, as one mp4.

    Args:
        path: of the video.
        spans: seconds to cut out.
        out: the mp4 file to write.
        settings: limits of the video.
        comment: for the metadata of the file, where `probe` finds it.

    Raises MediaError where the video has nothing in any of them, SettingsError without a span.
    """
    import av

    if not spans:
        raise SettingsError("nothing to cut: no span was chosen; choose at least one")
    settings = settings or MediaSettings()
    with atomic_path(out) as partial, av.open(f"file:{partial}", "w", format="mp4") as container:
        if comment is not None:
            container.metadata["comment"] = comment
        # one picture and one sound encoder, through which every span goes
        encoders: list[_PictureEncoder | _SoundEncoder] = []
        with open_media(path, settings) as media:
            frame = seek_before(media, spans[0].start)
            if frame is not None:
                encoders.append(_PictureEncoder(media, container, frame))
            if media.sound is not None:
                encoders.append(_SoundEncoder(media, container))
        offset = 0.0
        for span in spans:
            with open_media(path, settings) as media:
                _encode_span(media, span, offset, encoders)
            offset += span.duration

        # what the encoders hold back
        written = [encoder for encoder in encoders if encoder.written]
        for encoder in written:
            encoder.finish()
        if not written:
            reason = f"nothing to cut between {spans[0].start:g} and {spans[-1].end:g} s"
            cause = "the video, or what can be read of it, ends before"
            raise MediaError(f"{path}: {reason}; {cause}")


def _h264_encoder() -> str:
    """Return the name of the H.264 encoder of this build of FFmpeg."""
    import av

    return "libx264" if "libx264" in av.codecs_available else "h264"


def _failure_reason(error: Exception) -> str:
    """Return FFmpeg's message of an error, without the arguments of the call."""
    return getattr(error, "strerror", None) or str(error)


def join_tracks(
    picture: Path, sound: Path, out: Path, settings: MediaSettings | None = None
) -> None:
    """Remux the picture of one file and the sound of another into one mkv, without encoding.

    Args:
        picture: file with the picture.
        sound: file with the sound.
        out: the mkv file to write.
        settings: limits of both files.

    Raises MediaError where one of them has none or cannot be copied, StoreError where `out` cannot
    be written.
    """
    import av

    settings = settings or MediaSettings()
    with (
        open_media(picture, settings) as picture_media,
        open_media(sound, settings) as sound_media,
        atomic_path(out) as partial,
    ):
        cure = "as its site says it does; download the video by other means"
        if picture_media.picture is None:
            raise MediaError(f"{picture}: holds no picture, {cure}")
        if sound_media.sound is None:
            raise MediaError(f"{sound}: holds no sound, {cure}")

        # the packets of both, by their decoding time
        sources = ((picture_media, picture_media.picture), (sound_media, sound_media.sound))
        try:
            with av.open(
                f"file:{partial}", "w", format="matroska", options={"fflags": "+bitexact"}
            ) as joined:
                tracks = []
                for media, stream in sources:
                    track = joined.add_stream_from_template(stream)
                    tracks.append(_timed_packets(media, stream, track))
                for packet, track in heapq.merge(*tracks, key=_decoding_time):
                    packet.stream = track
                    joined.mux(packet)
        except (av.error.FFmpegError, ValueError) as error:
            reason = _failure_reason(error)
            cure = "download the video as one file by other means"
            raise MediaError(
                f"{out.name}: picture and sound cannot be joined ({reason}); {cure}"
            ) from error


def _timed_packets(media: OpenMedia, stream: Any, track: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the packets of a stream that have a time, each with its output track."""
    for packet in media.packets():
        if packet.stream.index == stream.index and packet.dts is not None:
            yield packet, track


def _decoding_time(packet_and_track: tuple[Any, Any]) -> Fraction:
    packet, _ = packet_and_track
    return Fraction(packet.dts * packet.time_base)


def copy_with_chapters(
    path: Path | str,
    chapters: Sequence[tuple[Span, str]],
    out: Path,
    settings: MediaSettings | None = None,
) -> None:
    """Remux a video, with chapters, into an mp4 or mkv by the suffix of `out`.

    Args:
        path: of the video.
        chapters: spans with titles.
        out: the file to write.
        settings: limits of the video.

    Raises MediaError where that kind of file cannot hold the streams, StoreError where `out` cannot
    be written.
    """
    import av

    with open_media(path, settings or MediaSettings()) as media, atomic_path(out) as partial:
        # the form, and what to try where it cannot hold the streams
        source = media.container
        form = "mp4"
        cure = "use --format mkv instead"
        if out.suffix == ".mkv":
            form = "matroska"
            cure = "convert it to mp4 (H.264, AAC) first"
        try:
            with av.open(
                f"file:{partial}", "w", format=form, options={"fflags": "+bitexact"}
            ) as copy:
                # The streams that a copy holds, then their packets.
                tracks = {}
                for stream in source.streams:
                    if stream.type in COPIED_STREAM_TYPES:
                        tracks[stream.index] = copy.add_stream_from_template(stream)
                copy.metadata.update(source.metadata)
                copy.set_chapters(_chapter_entries(chapters))
                copied_streams = [source.streams[index] for index in tracks]
                for packet in source.demux(copied_streams):
                    if packet.dts is not None:  # the empty packet at a stream's end has none
                        packet.stream = tracks[packet.stream.index]
                        copy.mux(packet)
        except (av.error.FFmpegError, ValueError) as error:
            reason = _failure_reason(error)
            raise MediaError(
                f"{path}: cannot be copied into {form} with chapters ({reason}); {cure}"
            ) from error


def _chapter_entries(chapters: Sequence[tuple[Span, str]]) -> list[Any]:
    """Return chapters in PyAV's form, in milliseconds."""
    return [
        {
            "id": number,
            "start": round(span.start * 1000),
            "end": round(span.end * 1000),
            "time_base": Fraction(1, 1000),
            "metadata": {"title": title},
        }
        for number, (span, title) in enumerate(chapters, start=1)
    ]


def _encode_span(
    media: OpenMedia,
    span: Span,
    offset: float,
    encoders: "Sequence[_PictureEncoder | _SoundEncoder]",
) -> None:
    """Append a span of the source to a clip. offset: second of the clip where the span starts."""
    seek_before(media, span.start)
    # the encoders of this span, by the index that their streams have in the file
    tracks = {}
    for encoder in encoders:
        stream = media.picture if isinstance(encoder, _PictureEncoder) else media.sound
        if stream is not None:
            tracks[stream.index] = encoder
            encoder.begin(media, span, offset)

    # one stream may lag behind the other, so the file is read a bit farther
    for packet in media.packets():
        if packet.stream.index in tracks:
            for frame in media.decode(packet):
                tracks[packet.stream.index].take(frame)
        if all(track.done for track in tracks.values()):
            break
        if media.packet_end(packet) > span.end + MAX_LAG_SECONDS:
            break
    for track in tracks.values():
        track.end()


class _PictureEncoder:
    """Encodes the picture of a clip: every frame on screen within a span, upright, with its
    duration.
    """

    def __init__(self, media: OpenMedia, clip: Any, first: Any) -> None:
        self._clip = clip
        rate = Fraction(picture_rate(media.picture)).limit_denominator(1001)
        self._stream = clip.add_stream(_h264_encoder(), rate=rate, options=X264_OPTIONS)
        width, height = display_size(first, media.aspect)
        self._size = (width + width % 2, height + height % 2)  # 4:2:0 needs even sides
        context = self._stream.codec_context
        context.width, context.height = self._size
        context.pix_fmt = "yuv420p"
        context.time_base = Fraction(1, TICK_RATE)
        if is_high_range(first):
            copy_colours(first, context)
        context.thread_count = 1  # more of them end with other bytes from run to run
        self._lengths: dict[int, int] = {}  # ticks that a frame is shown, by its time stamp
        self.written = False

    def begin(self, media: OpenMedia, span: Span, offset: float) -> None:
        """Start a span that begins at `offset` seconds of the clip."""
        self._timing = media.timing()
        self._span = span
        self._shift = offset - span.start
        self._shown: tuple[float, float, Any] | None = None
        self.done = False

    def take(self, frame: Any) -> None:
        """Take a decoded frame and encode the one before it."""
        time, length = self._timing.time_and_length(frame)
        if time >= self._span.end:
            self._encode_pending_frame(self._span.end)
            self.done = True
        if self.done:
            return
        if time > self._span.start:
            self._encode_pending_frame(time)
        self._shown = (max(time, self._span.start), time + length, frame)

    def end(self) -> None:
        """End the span: its last frame keeps its duration in the source."""
        if self._shown is not None:
            self._encode_pending_frame(min(self._shown[1], self._span.end))

    def finish(self) -> None:
        """Flush the encoder."""
        self._mux(self._stream.encode(None))

    def _encode_pending_frame(self, until: float) -> None:
        """Encode the pending frame, shown until `until`."""
        if self._shown is None:
            return
        start, _, frame = self._shown
        self._shown = None

        # a frame that is shown for less than a tick is left out
        stamp = round((start + self._shift) * TICK_RATE)
        end = round((until + self._shift) * TICK_RATE)
        if end <= stamp:
            return
        picture = self._upright(frame)
        picture.pts = stamp
        picture.time_base = Fraction(1, TICK_RATE)
        self._lengths[stamp] = end - stamp
        self.written = True
        self._mux(self._stream.encode(picture))

    def _upright(self, frame: Any) -> Any:
        import av

        turns = quarter_turns(frame)
        width, height = self._size
        if turns % 2 == 1:
            width, height = height, width
        format = self._stream.codec_context.pix_fmt
        if not turns or format != "yuv420p":
            scaled = frame.reformat(width=width, height=height, format=format)
            return rotate_high_range(scaled, turns) if turns else scaled

        # turned as RGB, since the halves of 4:2:0 do not turn
        pixels = frame.reformat(width=width, height=height, format="rgb24").to_ndarray()
        upright_pixels = np.ascontiguousarray(np.rot90(pixels, turns))
        upright = av.VideoFrame.from_ndarray(upright_pixels, format="rgb24")
        return upright.reformat(format="yuv420p")

    def _mux(self, packets: list[Any]) -> None:
        for packet in packets:
            # The encoder passes no lengths on, so each is put back by its stamp.
            packet.duration = self._lengths.pop(packet.pts, packet.duration)
            self._clip.mux(packet)


class _SoundEncoder:
    """Encodes the sound of a clip: exactly the samples within a span.

    Silence fills the gap before the next span.
    """

    def __init__(self, media: OpenMedia, clip: Any) -> None:
        self._clip = clip
        self._channels = min(2, media.sound.codec_context.channels)
        self._layout = "mono" if self._channels == 1 else "stereo"
        self._stream = clip.add_stream("aac", rate=CLIP_RATE, layout=self._layout)
        self._next = 0  # the clip's sample that the encoder gets next
        self.written = False

    def begin(self, media: OpenMedia, span: Span, offset: float) -> None:
        """Start a span that begins at `offset` seconds of the clip."""
        self._clock = media.clock()
        self._span = span
        self._timeline = AudioTimeline(rate=CLIP_RATE, channels=self._channels)
        self._first = round(offset * CLIP_RATE)
        self._last = round((offset + span.duration) * CLIP_RATE)
        self.done = False
        missing = self._first - self._next
        if missing > 0:
            silence = np.zeros((self._channels, missing), np.float32)
            self._encode(silence)

    def take(self, frame: Any) -> None:
        """Take a decoded frame."""
        length = frame.samples / frame.sample_rate
        time = self._clock.time_of(frame.pts, frame.time_base, length)
        self.done = self.done or time >= self._span.end
        if not self.done:
            self._write(self._timeline.take(time, frame))

    def end(self) -> None:
        """End the span."""
        self._write(self._timeline.finish())

    def finish(self) -> None:
        """Flush the encoder."""
        self._clip.mux(self._stream.encode(None))

    def _write(self, blocks: Iterator[tuple[float, Any]]) -> None:
        for start, samples in blocks:
            # the block's first sample
            offset = self._first + round((start - self._span.start) * CLIP_RATE)
            inside = samples[:, max(0, self._first - offset) : max(0, self._last - offset)]
            if inside.shape[1]:
                self._next = max(self._first, offset)
                self._encode(inside)
                self.written = True

    def _encode(self, samples: Any) -> None:
        import av

        contiguous = np.ascontiguousarray(samples)
        frame = av.AudioFrame.from_ndarray(contiguous, format="fltp", layout=self._layout)
        frame.sample_rate = CLIP_RATE
        frame.time_base = Fraction(1, CLIP_RATE)
        frame.pts = self._next
        self._next += samples.shape[1]
        self._clip.mux(self._stream.encode(frame))
