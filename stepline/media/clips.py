"""Cuts clips out of a video, exact to the frame and to the sample."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import MediaError
from stepline.media.frames import display_size, quarter_turns
from stepline.media.seeking import start_before
from stepline.media.settings import MediaSettings
from stepline.media.sounds import Line
from stepline.media.source import Source, open_media, picture_rate
from stepline.records import Span
from stepline.store import atomic_path

TICKS = 90_000      # a second in the clip's picture time; a multiple of all usual frame rates
CLIP_RATE = 48_000  # Hz, sound of the clip
QUALITY = "23"      # x264's crf: its own default, hard to tell from the original
BEHIND = 10.0       # s by which one stream of a file may lag the other


def cut(path: Path | str, span: Span, out: Path, settings: MediaSettings | None = None) -> None:
    """Write the seconds of `span` as an mp4 (H.264, AAC), picture and sound in step; whole or not at all.

    Raises MediaError where the video has nothing in that span, StoreError where `out` cannot be written.
    """
    import av

    settings = settings or MediaSettings()
    with open_media(path, settings) as source:
        first = start_before(source, span.start)
        with atomic_path(out) as partial, av.open(f"file:{partial}", "w", format="mp4") as clip:
            tracks: dict[int, _Pictures | _Sounds] = {}
            if first is not None:
                tracks[source.picture.index] = _Pictures(source, clip, span, first, settings)
            if source.sound is not None:
                tracks[source.sound.index] = _Sounds(source, clip, span)
            _copy(source, tracks, span)
            if not any(track.written for track in tracks.values()):
                raise MediaError(
                    f"{path}: nothing to cut between {span.start:g} and {span.end:g} s; "
                    "the video, or what can be read of it, ends before"
                )


def _copy(source: Source, tracks: "dict[int, _Pictures | _Sounds]", span: Span) -> None:
    for packet in source.packets():
        track = tracks.get(packet.stream_index)
        if track is not None:
            for frame in source.decode(packet):
                track.take(frame)
        if all(track.done for track in tracks.values()) or source.packet_end(packet) > span.end + BEHIND:
            break
    for track in tracks.values():
        track.finish()


class _Pictures:
    """The picture of a clip: every frame that is on screen within the span, upright, for as long as it is."""

    def __init__(self, source: Source, clip: Any, span: Span, first: Any, settings: MediaSettings) -> None:
        import av

        self._clip, self._span = clip, span
        self._timing = source.timing()
        name = "libx264" if "libx264" in av.codecs_available else "h264"
        rate = Fraction(picture_rate(source.picture)).limit_denominator(1001)
        self._stream = clip.add_stream(name, rate=rate, options={"crf": QUALITY, "preset": "veryfast"})
        width, height = display_size(first, source.aspect)
        self._size = (width + width % 2, height + height % 2)   # 4:2:0 needs even sides
        context = self._stream.codec_context
        context.width, context.height = self._size
        context.pix_fmt, context.time_base = "yuv420p", Fraction(1, TICKS)
        context.thread_count = settings.threads   # the bytes depend on it
        self._held: tuple[float, float, Any] | None = None
        self._lengths: dict[int, int] = {}   # ticks that a frame is shown, by its time stamp
        self.written = self.done = False

    def take(self, frame: Any) -> None:
        time, length = self._timing.place(frame)
        if time >= self._span.end:
            self._release(self._span.end)
            self.done = True
        if self.done:
            return
        if time > self._span.start:
            self._release(time)
        self._held = (max(time, self._span.start), time + length, frame)

    def finish(self) -> None:
        if self._held is not None:
            self._release(min(self._held[1], self._span.end))
        if self.written:
            self._mux(self._stream.encode(None))

    def _release(self, until: float) -> None:
        """Encode the frame that is held, shown up to `until`."""
        if self._held is None:
            return
        start, _, frame = self._held
        self._held = None
        stamp, end = (round((second - self._span.start) * TICKS) for second in (start, until))
        if end <= stamp:
            return
        picture = self._upright(frame)
        picture.pts, picture.time_base = stamp, Fraction(1, TICKS)
        self._lengths[stamp] = end - stamp
        self.written = True
        self._mux(self._stream.encode(picture))

    def _upright(self, frame: Any) -> Any:
        import av

        turned = quarter_turns(frame)
        width, height = self._size if turned % 2 == 0 else self._size[::-1]
        if not turned:
            return frame.reformat(width=width, height=height, format="yuv420p")
        pixels = frame.reformat(width=width, height=height, format="rgb24").to_ndarray()
        upright = av.VideoFrame.from_ndarray(np.ascontiguousarray(np.rot90(pixels, turned)), format="rgb24")
        return upright.reformat(format="yuv420p")

    def _mux(self, packets: list[Any]) -> None:
        for packet in packets:
            packet.duration = self._lengths.pop(packet.pts, packet.duration)
            self._clip.mux(packet)


class _Sounds:
    """The sound of a clip: exactly the samples within the span."""

    def __init__(self, source: Source, clip: Any, span: Span) -> None:
        self._clip, self._span = clip, span
        self._clock = source.clock()
        channels = min(2, source.sound.codec_context.channels)
        self._layout = "mono" if channels == 1 else "stereo"
        self._line = Line(rate=CLIP_RATE, channels=channels)
        self._stream = clip.add_stream("aac", rate=CLIP_RATE, layout=self._layout)
        self.written = self.done = False

    def take(self, frame: Any) -> None:
        time = self._clock.place(frame.pts, frame.time_base, frame.samples / frame.sample_rate)
        self.done = self.done or time >= self._span.end
        if not self.done:
            self._write(self._line.take(time, frame))

    def finish(self) -> None:
        self._write(self._line.finish())
        if self.written:
            self._clip.mux(self._stream.encode(None))

    def _write(self, blocks: Iterator[tuple[float, Any]]) -> None:
        import av

        for start, samples in blocks:
            offset = round((start - self._span.start) * CLIP_RATE)   # of the block's first sample within the clip
            last = round(self._span.duration * CLIP_RATE) - offset
            inside = samples[:, max(0, -offset) : max(0, last)]
            if inside.shape[1] == 0:
                continue
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(inside), format="fltp", layout=self._layout)
            frame.sample_rate, frame.time_base = CLIP_RATE, Fraction(1, CLIP_RATE)
            frame.pts = max(0, offset)
            self.written = True
            self._clip.mux(self._stream.encode(frame))
