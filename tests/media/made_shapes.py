"""Makes a small film in every shape that a file can have: container, clock, tracks, picture, sound.

The film lasts 4 s. Its picture changes every 0.2 s, and each says by its grey which one it is; a
beep of 0.3 s sounds at 1.5 s.
"""

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction

import av
import numpy as np
from made_videos import grey, high_range_signal

SECONDS = 4.0
RATE = 25  # pictures/s
PICTURE_SECONDS = 0.2
BEEP = (1.5, 1.8)  # s
BEFORE_ZERO = 1.2  # s of a film that are cut off with negative times
HELD = (1.0, 3.0)  # s between which no picture comes, where one is held
TRANSFERS = {"pq": 16, "hlg": 18}


@dataclass(frozen=True)
class Container:
    """A kind of file: the muxer, and the codecs that go into it."""

    format: str
    picture: str = "libx264"
    sound: str = "aac"
    options: dict[str, str] = field(default_factory=dict)


CONTAINERS = {
    "mp4": Container("mp4"),
    "m4v": Container("mp4", "mpeg4"),
    "f4v": Container("f4v"),
    "fragments.mp4": Container("mp4", options={"movflags": "frag_keyframe+empty_moov"}),
    "mov": Container("mov", sound="pcm_s16le"),
    "3gp": Container("3gp", "mpeg4"),
    "mkv": Container("matroska"),
    "webm": Container("webm", "libvpx", "libopus"),
    "avi": Container("avi", "mpeg4", "libmp3lame"),
    "divx": Container("avi", "msmpeg4v3", "pcm_s16le"),
    "ts": Container("mpegts"),
    "mts": Container("mpegts", "libx264", "ac3", {"mpegts_m2ts_mode": "1"}),
    "mpg": Container("mpeg", "mpeg2video", "mp2"),
    "vob": Container("vob", "mpeg2video", "ac3"),
    "flv": Container("flv"),
    "wmv": Container("asf", "wmv2", "wmav2"),
    "asf": Container("asf", "msmpeg4v3", "libmp3lame"),
    "nut": Container("nut", "ffv1", "pcm_s16le"),
}


@dataclass(frozen=True)
class Shape:
    """What a file looks like; see `SHAPES` of the tests for the words.

    picture: a codec, with `:` and what is odd about it. sound: a codec, with `:` and what is odd.
    """

    container: str
    clock: str = "steady"
    tracks: str = "both"
    picture: str = ""
    sound: str = ""

    @property
    def name(self):
        """What the test is called."""
        parts = (self.container, self.clock, self.tracks, self.picture, self.sound)
        return " ".join(part for part in parts if part)

    @property
    def picture_seconds(self):
        """When the pictures come."""
        seconds = [k / RATE for k in range(round(SECONDS * RATE))]
        if self.clock == "held":
            return [second for second in seconds if not HELD[0] < second < HELD[1]]
        if self.clock == "picture ends":
            return [second for second in seconds if second < 2.0]
        return seconds

    @property
    def sound_span(self):
        """From when to when there is sound, in s."""
        spans = {"sound late": (0.6, SECONDS), "sound ends": (0.0, 2.0)}
        spans["before zero, sound at zero"] = (BEFORE_ZERO, SECONDS)
        return spans.get(self.clock, (0.0, SECONDS))

    @property
    def is_before_zero(self):
        """Whether the first packets have negative times, which Matroska cannot store."""
        return self.clock.startswith("before zero")

    @property
    def has_picture(self):
        return self.tracks != "sound"

    @property
    def has_sound(self):
        return self.tracks != "picture"

    def picture_at(self, second):
        """Return which picture is on screen, None where there is none."""
        past = [time for time in self.picture_seconds if time <= second + 1e-6]
        if not past or second > self.picture_seconds[-1] + 1 / RATE:
            return None
        return int(past[-1] / PICTURE_SECONDS + 1e-6)


def make_shape(path, shape):
    """Write the film in a shape."""
    kind = CONTAINERS[shape.container]
    options = dict(kind.options)
    if shape.is_before_zero:
        options["avoid_negative_ts"] = "disabled"
    with av.open(str(path), "w", format=kind.format, options=options) as out:
        packets = []
        for make in _track_makers(out, shape, kind):
            packets += make
        start = 90.0 if shape.clock == "late start" else 0.0
        if shape.is_before_zero:
            start = -BEFORE_ZERO
        packets.sort(key=lambda packet: packet.dts * packet.time_base)
        for packet in packets:
            ticks = round(start / packet.time_base)
            packet.pts, packet.dts = packet.pts + ticks, packet.dts + ticks
            out.mux(packet)
    return path


def _track_makers(out, shape, kind):
    """Add the tracks in the order of the file, and encode each."""
    film, sound, silence = object(), object(), object()
    order = {
        "both": [film, sound],
        "sound first": [sound, film],
        "picture": [film],
        "sound": [sound],
        "silent track first": [film, silence, sound],
        "silent track last": [film, sound, silence],
    }
    streams = []
    for track in order.get(shape.tracks, [film, sound]):
        if track is film:
            streams.append((track, _picture_stream(out, shape, kind)))
        else:
            streams.append((track, _sound_stream(out, shape, kind)))
    cover = None
    if shape.tracks.startswith("cover"):
        cover = _cover_stream(out, flagged=shape.tracks == "cover with flag")
    made = []
    for track, stream in streams:
        if track is film:
            made.append(_encode_pictures(stream, shape))
        else:
            made.append(_encode_sound(stream, shape, is_silent=track is silence))
    if cover is not None:
        frame = _frame(np.zeros((48, 64, 3), np.uint8), "yuvj420p")
        made.append([*cover.encode(frame), *cover.encode(None)])
    return made


def _cover_stream(out, *, flagged):
    cover = out.add_stream("mjpeg", rate=RATE)
    cover.width, cover.height, cover.pix_fmt = 64, 48, "yuvj420p"
    cover.codec_context.time_base = Fraction(1, RATE)
    cover.disposition = 1024 if flagged else 1
    return cover


def _picture_stream(out, shape, kind):
    codec, _, oddity = shape.picture.partition(":")
    options = {"qscale": "2", "crf": "10", "g": "25", "preset": "ultrafast"}
    if oddity == "b-frames":
        options["bf"] = "3"
    elif oddity == "no b-frames":
        options["bf"] = "0"
    stream = out.add_stream(codec or kind.picture, rate=RATE)
    stream.width, stream.height = (63, 47) if oddity == "odd size" else (64, 48)
    stream.pix_fmt = _pixel_format(codec or kind.picture, oddity)
    context = stream.codec_context
    context.time_base = Fraction(1, RATE)
    if stream.codec_context.name == "libvpx":
        options = {"crf": "10", "b": "1M", "g": "25", "lag-in-frames": "0"}
    if stream.codec_context.name == "libsvtav1":
        options = {"preset": "12", "crf": "20", "svtav1-params": "lp=1"}
    if stream.codec_context.name == "libx265":
        options = {"crf": "10", "preset": "ultrafast", "x265-params": "log-level=none"}
    context.options = options
    if oddity == "turned":
        stream.set_display_rotation(90)
    elif oddity == "wide pixels":
        stream.sample_aspect_ratio = Fraction(4, 3)
    elif oddity in TRANSFERS:
        context.color_primaries, context.color_trc = 9, TRANSFERS[oddity]
        context.colorspace, context.color_range = 9, 1
    return stream


def _pixel_format(codec, oddity):
    formats = {
        "10 bits": "yuv420p10le",
        "pq": "yuv420p10le",
        "hlg": "yuv420p10le",
        "4:4:4": "yuv444p",
        "4:2:2": "yuv422p",
        "grey": "gray",
        "full range": "yuvj420p",
    }
    by_codec = {"mjpeg": "yuvj420p", "prores": "yuv422p10le", "png": "rgb24", "qtrle": "rgb24"}
    return formats.get(oddity, by_codec.get(codec, "yuv420p"))


@contextmanager
def _unchanged_priority():
    """Undo what SVT-AV1 does as root: it gives the calling thread real-time priority, which every
    later test and each process that it starts would inherit, until nothing else gets a core."""
    if not hasattr(os, "sched_getscheduler"):
        yield
        return
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def _encode_pictures(stream, shape):
    with _unchanged_priority():
        return _encoded_pictures(stream, shape)


def _encoded_pictures(stream, shape):
    oddity = shape.picture.partition(":")[2]
    packets = []
    for second in shape.picture_seconds:
        level = grey(int(second / PICTURE_SECONDS + 1e-6))
        image = np.full((stream.height, stream.width, 3), level, np.uint8)
        if oddity in TRANSFERS:
            nits = 100 * (image / 255.0) ** 2.4
            signal = high_range_signal(nits, TRANSFERS[oddity])
            pixels = np.rint(np.clip(signal, 0, 1) * 65_535).astype(np.uint16)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb48le")
            frame = frame.reformat(format="yuv420p10le", dst_colorspace="BT2020")
        else:
            frame = _frame(image, stream.pix_fmt)
        frame.pts, frame.time_base = round(second * RATE), Fraction(1, RATE)
        packets += stream.encode(frame)
    packets += stream.encode(None)
    return [packet for packet in packets if packet.dts is not None]


def _frame(image, format):
    frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format=format)
    frame.pts, frame.time_base = 0, Fraction(1, RATE)
    return frame


def _sound_stream(out, shape, kind):
    codec, _, oddity = shape.sound.partition(":")
    name = codec or kind.sound
    layouts = {"stereo": "stereo", "inverted": "stereo", "5.1": "5.1"}
    layout = layouts.get(oddity, "mono")
    stream = out.add_stream(name, rate=sound_rate(shape), layout=layout)
    if name == "wmav2":
        stream.bit_rate = 64_000
    return stream


def sound_rate(shape):
    """Return the samples/s that a shape's sound is encoded at."""
    oddity = shape.sound.partition(":")[2]
    return {"8 kHz": 8000, "96 kHz": 96_000, "44.1 kHz": 44_100}.get(oddity, 48_000)


def beeping(rate, first, last):
    """The sound of the film between two seconds, (N,) float32."""
    time = np.arange(round(first * rate), round(last * rate)) / rate
    samples = 0.5 * np.sin(2 * np.pi * 440 * time)
    return np.where((time >= BEEP[0]) & (time < BEEP[1]), samples, 0.0).astype(np.float32)


def _encode_sound(stream, shape, *, is_silent):
    oddity = shape.sound.partition(":")[2]
    first, last = shape.sound_span
    rate = sound_rate(shape)
    mono = beeping(rate, first, last)
    if is_silent:
        mono = np.zeros_like(mono)
    count = {"mono": 1, "stereo": 2, "5.1": 6}.get(stream.layout.name, 2)
    channels = np.repeat(mono[None], count, axis=0)
    if oddity == "inverted":
        channels[1] *= -1
    elif oddity == "5.1":
        channels[[0, 1, 3, 4, 5]] = 0.0  # speech is in the centre
    packets = []
    resampler = av.AudioResampler(
        format=stream.format.name, layout=stream.layout.name, rate=rate, frame_size=1024
    )
    for piece in _pieces(channels):
        frame = av.AudioFrame.from_ndarray(piece, format="fltp", layout=stream.layout.name)
        frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
        frame.pts = None
        for whole in resampler.resample(frame):
            packets.append(whole)
    fifo = av.AudioFifo()
    for whole in [*packets, *resampler.resample(None)]:
        whole.pts = None
        fifo.write(whole)
    return _encode_frames(stream, fifo, round(first * rate), rate)


def _pieces(channels):
    for start in range(0, channels.shape[1], 4096):
        yield np.ascontiguousarray(channels[:, start : start + 4096])


def _encode_frames(stream, fifo, first, rate):
    context = stream.codec_context
    context.open()
    size = context.frame_size or 1024
    packets = []
    at = first
    while fifo.samples >= size:
        frame = fifo.read(size)
        frame.pts, frame.time_base, frame.sample_rate = at, Fraction(1, rate), rate
        at += size
        packets += stream.encode(frame)
    packets += stream.encode(None)
    return [packet for packet in packets if packet.dts is not None]


def shapes(*rows):
    """Return a shape for each combination of the words of each row."""
    made = []
    for row in rows:
        columns = [column if isinstance(column, list) else [column] for column in row]
        partial = [()]
        for column in columns:
            partial = [(*before, word) for before in partial for word in column]
        made += [Shape(*words) for words in partial]
    return made
