"""Makes the small odd videos that the tests read; each picture says by its grey which one it is."""

from fractions import Fraction

import av
import numpy as np

TICKS = 1000  # a second in the picture's time base
SIZE = (64, 48)
COUNT = 20  # greys that can be told apart; picture COUNT looks like picture 0


def grey(index):
    """The grey of picture `index`: far enough from its neighbours to survive encoding."""
    return 20 + 11 * (index * 7 % COUNT)


def tone(seconds, rate=44_100, hertz=440.0):
    """A sine of amplitude 0.5, (1, N) float32."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(
        np.float32
    )[None]


def make_video(
    path,
    *,
    times=(),
    size=SIZE,
    sounds=(),
    codec="mpeg4",
    rotation=0,
    rate=44_100,
    sound_codec="aac",
    last=0.1,
    **options,
):
    """Write picture k, of grey(k), at times[k], and each sound (start, samples) in one sound
    track."""
    sounds = list(sounds)
    with av.open(str(path), "w", options=options) as out:
        picture = _picture_stream(out, codec, size, rotation) if times else None
        sound = out.add_stream(sound_codec, rate=rate, layout="mono") if sounds else None
        packets = _encode_pictures(picture, times, size, last) if picture else []
        if sound:
            packets += _encode_sounds(sound, sounds, rate)
        for packet in sorted(packets, key=lambda item: item.dts * item.time_base):
            out.mux(packet)
    return path


def _picture_stream(out, codec, size, rotation):
    stream = out.add_stream(codec, rate=10)
    stream.width, stream.height = size
    stream.pix_fmt = "yuv420p"
    stream.codec_context.time_base = Fraction(1, TICKS)
    stream.codec_context.options = {"qscale": "2"}
    if rotation:
        stream.set_display_rotation(rotation)
    return stream


def _encode_pictures(stream, times, size, last):
    packets = []
    ends = {
        round(a * TICKS): round(b * TICKS)
        for a, b in zip(times, [*times[1:], times[-1] + last], strict=True)
    }
    for index, time in enumerate(times):
        image = np.full((size[1], size[0], 3), grey(index), np.uint8)
        image[: size[1] // 4, : size[0] // 4] = (255, 0, 0)  # a red corner shows which way is up
        frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format="yuv420p")
        frame.pts, frame.time_base = round(time * TICKS), Fraction(1, TICKS)
        packets += stream.encode(frame)
    packets += stream.encode(None)
    for packet in packets:
        packet.duration = ends.get(packet.pts, packet.pts) - packet.pts
    return packets


def _encode_sounds(stream, sounds, rate):
    packets = []
    for start, samples in sounds:
        for offset in range(0, samples.shape[1], 1024):
            piece = np.ascontiguousarray(samples[:, offset : offset + 1024])
            if piece.shape[1] < 1024:
                continue  # AAC frames are 1024 samples
            frame = av.AudioFrame.from_ndarray(piece, format="fltp", layout="mono")
            frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
            frame.pts = round(start * rate) + offset
            packets += stream.encode(frame)
    return packets + stream.encode(None)


def index_of(image):
    """Which picture this is, by the grey in its middle, modulo COUNT."""
    height, width = image.shape[:2]
    seen = float(image[height // 2 : height // 2 + 4, width // 2 : width // 2 + 4].mean())
    return int(np.argmin([abs(grey(index) - seen) for index in range(COUNT)]))


BT709_TO_BT2020 = np.array(
    [[0.6274, 0.3293, 0.0433], [0.0691, 0.9195, 0.0114], [0.0164, 0.0880, 0.8956]]
)


def high_range_signal(nits, transfer):
    """The signal of light (..., 3) in nits, primaries of BT.709: PQ (16) or HLG (18) of BT.2100."""
    light = nits @ BT709_TO_BT2020.T
    if transfer == 16:
        root = (light / 10_000) ** (2610 / 16384)
        return ((0.8359375 + 18.8515625 * root) / (1 + 18.6875 * root)) ** 78.84375
    luminance = (light / 1000) @ np.array([0.2627, 0.678, 0.0593])
    scene = light / 1000 * np.maximum(luminance, 1e-9)[..., None] ** (1 / 1.2 - 1)
    low = np.sqrt(3 * scene)
    high = 0.17883277 * np.log(np.maximum(12 * scene - 0.28466892, 1e-9)) + 0.55991073
    return np.where(scene <= 1 / 12, low, high)


def make_high_range_video(path, pictures, *, transfer, rotation=0, **x264):
    """Write pictures (H, W, 3) in nits, ten a second, as H.264 of 10 bits with tags of BT.2020."""
    height, width = pictures[0].shape[:2]
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=10, options={"crf": "4", **x264})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p10le"
        context = stream.codec_context
        context.color_primaries, context.color_trc = 9, transfer
        context.colorspace, context.color_range = 9, 1
        if rotation:
            stream.set_display_rotation(rotation)
        for number, nits in enumerate(pictures):
            signal = high_range_signal(np.asarray(nits, np.float64), transfer)
            pixels = np.rint(np.clip(signal, 0, 1) * 65_535).astype(np.uint16)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb48le")
            frame = frame.reformat(format="yuv420p10le", dst_colorspace="BT2020")
            frame.pts, frame.time_base = number, Fraction(1, 10)
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    return path
