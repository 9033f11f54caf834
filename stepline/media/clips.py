"""Cuts clips out of a video, exact to the frame and sample, joins them, and copies with chapters."""

import heapq
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import MediaError, SettingsError
from stepline.files.atomic_files import atomic_path
from stepline.media.audio import AudioTimeline
from stepline.media.container import OpenMedia, failure_reason, frame_rate, open_media
from stepline.media.frames import FrameScaler, display_size, quarter_turns
from stepline.media.hdr import is_hdr
from stepline.media.reader import seek_before
from stepline.media.settings import MediaSettings
from stepline.records import Span

TICK_RATE = 90_000  # per second of the clip's video. A multiple of all usual frame rates
CLIP_RATE = 48_000  # Hz, audio of the clip
# Without macroblock-tree rate control, which reads memory that it has not set. With that control,
# clips would differ from run to run. crf 26 then gives the size and the PSNR of x264's default, 23
# with it. Hard to distinguish from the original.
X264_OPTIONS = {"crf": "26", "mbtree": "0", "preset": "veryfast"}
MAX_LAG_SECONDS = 10.0  # s by which one stream of a file may lag the other


def cut_clip(
    path: Path | str, span: Span, out: Path, settings: MediaSettings = MediaSettings()
) -> None:
    """Write a span of a video as an mp4 (H.264, AAC) with synchronous video and audio.

    The file is written atomically. Video of high dynamic range is converted to standard range.

    Args:
        path: path of the video.
        span: seconds to cut out.
        out: path of the mp4 file.
        settings: limits on the video.

    Raises MediaError if the video has nothing in that span, StoreError if `out` cannot be written.
    """
    join_clips(path, (span,), out, settings)


def join_clips(
    path: Path | str,
    spans: Sequence[Span],
    out: Path,
    settings: MediaSettings = MediaSettings(),
    *,
    comment: str | None = None,
) -> None:
    """Write several spans of a video, in the given order, as one mp4.

    Args:
        path: path of the video.
        spans: seconds to cut out.
        out: path of the mp4 file.
        settings: limits on the video.
        comment: comment for the metadata of the file, which `probe` reads. None means no comment.

    Raises MediaError if the video has nothing in any span, SettingsError if there are no spans.
    """
    import av

    if not spans:
        raise SettingsError("nothing to cut: no span was chosen; choose at least one")
    with atomic_path(out) as partial, av.open(f"file:{partial}", "w", format="mp4") as clip:
        if comment is not None:
            clip.metadata["comment"] = comment
        # one video and one audio encoder, through which every span goes
        encoders: list[_VideoEncoder | _AudioEncoder] = []
        with open_media(path, settings) as media:
            first_frame = seek_before(media, spans[0].start)
            if first_frame is not None:
                encoders.append(_VideoEncoder(media, clip, first_frame))
            if media.audio_stream is not None:
                encoders.append(_AudioEncoder(media, clip))
        offset = 0.0
        for span in spans:
            with open_media(path, settings) as media:
                _encode_span(media, span, offset, encoders)
            offset += span.duration

        # what the encoders hold back
        used_encoders = [encoder for encoder in encoders if encoder.has_output]
        for encoder in used_encoders:
            encoder.finish()
        if not used_encoders:
            raise MediaError(
                f"{path}: nothing to cut between {spans[0].start:g} and {spans[-1].end:g} s; the "
                "video, or what can be read of it, ends before"
            )


@contextmanager
def _open_remux_container(
    out: Path, error_start: str, error_cure: str, start: float = 0.0
) -> Iterator[Any]:
    """Yield PyAV's output container for remuxing: packets are copied without encoding.

    The file is written atomically.

    Args:
        out: path of the file, whose suffix selects the container format.
        error_start: start of the error message if the format cannot hold a stream.
        error_cure: end of that message, which says what to do instead.
        start: second of the packets that becomes second 0.
    """
    import av

    options = {"fflags": "+bitexact", "output_ts_offset": f"{-start:f}"}

    with atomic_path(out) as partial:
        try:
            with av.open(f"file:{partial}", "w", options=options) as copy:
                yield copy
        except (av.error.FFmpegError, ValueError) as error:
            raise MediaError(f"{error_start} ({failure_reason(error)}); {error_cure}") from error


def join_tracks(video_path: Path, audio_path: Path, out: Path) -> None:
    """Write the video of one file and the audio of another into one mkv, without encoding.

    Args:
        video_path: file with the video.
        audio_path: file with the audio.
        out: path of the mkv file.

    Raises MediaError if a file lacks its stream or the stream cannot be copied, StoreError if `out`
    cannot be written.
    """
    error_cure = "as its site says it does; download the video by other means"
    settings = MediaSettings()
    with open_media(video_path, settings) as video, open_media(audio_path, settings) as audio:
        if video.video_stream is None:
            raise MediaError(f"{video_path}: holds no picture, {error_cure}")
        if audio.audio_stream is None:
            raise MediaError(f"{audio_path}: holds no sound, {error_cure}")
        with _open_remux_container(
            out,
            f"{out.name}: picture and sound cannot be joined",
            "download the video as one file by other means",
        ) as joined:
            packets = []
            for media, stream in ((video, video.video_stream), (audio, audio.audio_stream)):
                target = joined.add_stream_from_template(stream)
                packets.append(_packets_of_stream(media, stream, target))
            for packet in heapq.merge(
                *packets, key=lambda item: Fraction(item.dts * item.time_base)
            ):
                joined.mux(packet)


def _packets_of_stream(media: OpenMedia, stream: Any, target: Any) -> Iterator[Any]:
    """Yield the packets of an input stream that have a time stamp, assigned to an output stream.

    Args:
        media: the open input file.
        stream: PyAV's input stream.
        target: PyAV's output stream.
    """
    for packet in media.packets():
        if packet.stream.index == stream.index and packet.dts is not None:
            packet.stream = target
            yield packet


def copy_with_chapters(path: Path | str, chapters: Sequence[tuple[Span, str]], out: Path) -> None:
    """Copy a video without encoding, and add chapters.

    Args:
        path: path of the video.
        chapters: (span, title) of each chapter.
        out: path of the file to write, whose suffix selects mp4 or mkv.

    Raises MediaError if that format cannot hold the streams, StoreError if `out` cannot be written.
    """
    with (
        open_media(path, MediaSettings()) as media,
        _open_remux_container(
            out,
            f"{path}: cannot be copied into {out.suffix[1:]} with chapters",
            "convert the video to mp4 (H.264, AAC) first, so that its time stamps are new too",
            media.start,
        ) as copy,
    ):
        source = media.container
        copied = [
            stream for stream in source.streams if stream.type in ("video", "audio", "subtitle")
        ]
        targets = {stream.index: copy.add_stream_from_template(stream) for stream in copied}
        for stream in copied:
            target = targets[stream.index]
            target.disposition = stream.disposition
            target.metadata["language"] = stream.language or "und"
        copy.metadata.update(source.metadata)
        copy.set_chapters(
            [
                {
                    "id": number,
                    "start": round(span.start * 1000),
                    "end": round(span.end * 1000),
                    "time_base": Fraction(1, 1000),
                    "metadata": {"title": title},
                }
                for number, (span, title) in enumerate(chapters, start=1)
            ]
        )
        for packet in source.demux(copied):
            if packet.size:  # the last of a stream is empty
                packet.stream = targets[packet.stream.index]
                copy.mux(packet)


def _encode_span(
    media: OpenMedia, span: Span, offset: float, encoders: "Sequence[_VideoEncoder | _AudioEncoder]"
) -> None:
    """Encode a span of the source video at the end of a clip.

    Args:
        media: the open source video.
        span: seconds of the source.
        offset: second of the clip at which the span starts.
        encoders: video and audio encoders of the clip.
    """
    seek_before(media, span.start)
    encoder_of_stream = {}  # by the index of the source's stream
    for encoder in encoders:
        stream = media.audio_stream
        if isinstance(encoder, _VideoEncoder):
            stream = media.video_stream
        if stream is not None:
            encoder_of_stream[stream.index] = encoder
            encoder.start_span(media, span, offset)

    # one stream may lag behind the other, so the file is read a bit farther
    for packet in media.packets():
        if packet.stream.index in encoder_of_stream:
            for frame in media.decode(packet):
                encoder_of_stream[packet.stream.index].add(frame)
        if all(encoder.is_done for encoder in encoder_of_stream.values()):
            break
        if media.packet_end(packet) > span.end + MAX_LAG_SECONDS:
            break
    for encoder in encoder_of_stream.values():
        encoder.end_span()


class _VideoEncoder:
    """Encodes the video of a clip.

    The clip has every frame that is on screen within a span, upright and with its duration.
    """

    def __init__(self, media: OpenMedia, clip: Any, first_frame: Any) -> None:
        """Add a video stream to a clip.

        Args:
            media: the open source video.
            clip: PyAV's output container.
            first_frame: decoded frame that decides the size of the clip.
        """
        import av

        self._clip = clip
        width, height = display_size(first_frame, media.aspect)
        encoder = "libx264" if "libx264" in av.codecs_available else "h264"
        self._stream = clip.add_stream(
            encoder,
            rate=Fraction(frame_rate(media.video_stream)).limit_denominator(1001),
            options=X264_OPTIONS,
        )
        context = self._stream.codec_context
        # 4:2:0 needs even sides
        context.width = width + width % 2
        context.height = height + height % 2
        context.pix_fmt = "yuv420p"
        context.time_base = Fraction(1, TICK_RATE)
        context.thread_count = 1  # more of them end with other bytes from run to run
        self._scaler = FrameScaler(aspect=media.aspect)
        self._lengths: dict[int, int] = {}  # ticks that a frame is shown, by its time stamp
        self.has_output = False

    def start_span(self, media: OpenMedia, span: Span, offset: float) -> None:
        """Start a span of the source video.

        Args:
            media: the open source video.
            span: seconds of the source.
            offset: second of the clip at which the span starts.
        """
        self._timing = media.timing()
        self._span = span
        self._shift = offset - span.start
        self._pending: tuple[float, float, Any] | None = None  # start, end, frame
        self.is_done = False

    def add(self, frame: Any) -> None:
        """Add a decoded frame, and encode the frame before it, whose end is now known."""
        time, length = self._timing.time_and_length(frame)
        if time >= self._span.end:
            self._encode_pending_frame(self._span.end)
            self.is_done = True
        if self.is_done:
            return
        if time > self._span.start:
            self._encode_pending_frame(time)
        self._pending = (max(time, self._span.start), time + length, frame)

    def end_span(self) -> None:
        """End the span and encode its last frame, with its duration in the source."""
        if self._pending is not None:
            self._encode_pending_frame(min(self._pending[1], self._span.end))

    def finish(self) -> None:
        """Flush the encoder."""
        self._mux(self._stream.encode(None))

    def _encode_pending_frame(self, end: float) -> None:
        """Encode the pending frame.

        end: second at which the frame leaves the screen.
        """
        if self._pending is None:
            return
        start, _, frame = self._pending
        self._pending = None

        # a frame that is shown for less than a tick is left out
        stamp = round((start + self._shift) * TICK_RATE)
        length = round((end + self._shift) * TICK_RATE) - stamp
        if length <= 0:
            return
        upright = self._upright_frame(frame)
        upright.pts = stamp
        upright.time_base = Fraction(1, TICK_RATE)
        self._lengths[stamp] = length
        self.has_output = True
        self._mux(self._stream.encode(upright))

    def _upright_frame(self, frame: Any) -> Any:
        import av

        context = self._stream.codec_context
        if quarter_turns(frame) or is_hdr(frame):
            # as RGB, since the halves of 4:2:0 do not turn
            frame = av.VideoFrame.from_ndarray(self._scaler.image(frame), format="rgb24")
        return frame.reformat(width=context.width, height=context.height, format="yuv420p")

    def _mux(self, packets: list[Any]) -> None:
        for packet in packets:
            # The encoder passes no lengths on, so each is put back by its stamp.
            packet.duration = self._lengths.pop(packet.pts, packet.duration)
            self._clip.mux(packet)


class _AudioEncoder:
    """Encodes the audio of a clip: the samples within each span, to the sample.

    Silence fills a gap before the next span.
    """

    def __init__(self, media: OpenMedia, clip: Any) -> None:
        """Add an audio stream to a clip.

        Args:
            media: the open source video.
            clip: PyAV's output container.
        """
        self._clip = clip
        self._channels = min(2, media.audio_stream.codec_context.channels)
        self._layout = "mono" if self._channels == 1 else "stereo"
        self._stream = clip.add_stream("aac", rate=CLIP_RATE, layout=self._layout)
        self._next = 0  # the clip's sample that the encoder gets next
        self.has_output = False

    def start_span(self, media: OpenMedia, span: Span, offset: float) -> None:
        """Start a span of the source video.

        Args:
            media: the open source video.
            span: seconds of the source.
            offset: second of the clip at which the span starts.
        """
        self._clock = media.clock()
        self._span = span
        self._timeline = AudioTimeline(rate=CLIP_RATE, channels=self._channels)
        self._first = round(offset * CLIP_RATE)
        self._last = round((offset + span.duration) * CLIP_RATE)
        self.is_done = False
        missing = self._first - self._next
        if missing > 0:
            self._encode(np.zeros((self._channels, missing), np.float32))

    def add(self, frame: Any) -> None:
        """Add a decoded audio frame."""
        time = self._clock.time_of(frame.pts, frame.time_base, frame.samples / frame.sample_rate)
        self.is_done = self.is_done or time >= self._span.end
        if not self.is_done:
            self._encode_blocks(self._timeline.add(time, frame))

    def end_span(self) -> None:
        """End the span and encode its remaining samples."""
        self._encode_blocks(self._timeline.finish())

    def finish(self) -> None:
        """Flush the encoder."""
        self._clip.mux(self._stream.encode(None))

    def _encode_blocks(self, blocks: Iterator[tuple[float, Any]]) -> None:
        for start, samples in blocks:
            # the clip's sample of the block's first one
            offset = self._first + round((start - self._span.start) * CLIP_RATE)
            in_span = samples[:, max(0, self._first - offset) : max(0, self._last - offset)]
            if in_span.shape[1]:
                self._next = max(self._first, offset)
                self._encode(in_span)
                self.has_output = True

    def _encode(self, samples: Any) -> None:
        import av

        contiguous = np.ascontiguousarray(samples)
        frame = av.AudioFrame.from_ndarray(contiguous, format="fltp", layout=self._layout)
        frame.sample_rate = CLIP_RATE
        frame.time_base = Fraction(1, CLIP_RATE)
        frame.pts = self._next
        self._next += samples.shape[1]
        self._clip.mux(self._stream.encode(frame))
