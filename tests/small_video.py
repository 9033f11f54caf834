"""A video of a few seconds that every test may draw, and captions for it."""

import numpy as np

CAPTIONS = """1
00:00:00,500 --> 00:00:03,000
Hello everyone and welcome back to my channel.

2
00:00:03,500 --> 00:00:06,000
First slice the lemons.

3
00:00:07,000 --> 00:00:10,000
Then pour the juice into the bowl.

4
00:00:11,000 --> 00:00:14,000
Now whisk the sugar into the water until it dissolves.
"""


LIGHT_STEP = 3  # of 255, from one picture to the next
LIGHT_PICTURES = 10  # in which the light grows, and in which it fades again


def draw_video(
    path,
    *,
    seconds=16,
    rate=10,
    size=(160, 120),
    sound=True,
    gop=None,
    steady_light=False,
    **options,
):
    """Write a small video of a moving square over changing colours, with a quiet hum, and return
    its path.

    gop: frames from one key frame to the next. steady_light: whether the light stays as it is, as
    on a screen. Stepline then reads six pictures to learn that it is none, 1.7 CPU s a run.
    """
    import av

    with av.open(str(path), "w", **options) as out:
        picture = out.add_stream(
            "libx264", rate=rate, width=size[0], height=size[1], pix_fmt="yuv420p"
        )
        if gop is not None:
            picture.codec_context.gop_size = gop
        hum = out.add_stream("aac", rate=16_000, layout="mono") if sound else None
        for index in range(seconds * rate):
            grey = (index // (4 * rate) * 60 + 30) % 255
            if not steady_light:
                fading = abs(index % (2 * LIGHT_PICTURES) - LIGHT_PICTURES)
                grey = min(255, grey + LIGHT_STEP * (LIGHT_PICTURES - fading))
            image = np.full((size[1], size[0], 3), grey, np.uint8)
            left = index * 2 % (size[0] - 40)
            image[40:80, left : left + 40] = (220, 60, 30)
            out.mux(picture.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        out.mux(picture.encode(None))
        if hum is not None:
            tone = (0.01 * np.sin(np.arange(seconds * 16_000) * 0.05)).astype(np.float32)
            frame = av.AudioFrame.from_ndarray(tone[None], format="fltp", layout="mono")
            frame.sample_rate = 16_000
            out.mux(hum.encode(frame))
            out.mux(hum.encode(None))
    return path


def write_pictures(path, pictures, rate, **options):
    """Write a video without sound of pictures, (H, W, 3) uint8 each, and return its path.

    options: those of libx264.
    """
    import av

    film = None
    with av.open(str(path), "w") as out:
        for picture in pictures:
            if film is None:
                film = out.add_stream("libx264", rate=rate, options=options)
                film.height, film.width, _ = picture.shape
                film.pix_fmt = "yuv420p"
            out.mux(film.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(film.encode(None))
    return path


def copy_demo(path, seconds):
    """Write the first seconds of the demo video, in which a voice names steps, and return its
    path."""
    import av

    from stepline.cli.steps import DEMO_VIDEO

    with av.open(str(DEMO_VIDEO)) as source, av.open(str(path), "w") as out:
        streams = [out.add_stream_from_template(stream) for stream in source.streams]
        for packet in source.demux():
            if packet.pts is not None and packet.pts * packet.time_base < seconds:
                packet.stream = streams[packet.stream_index]
                out.mux(packet)
    return path


def encode_video(frames, backbone, **options):
    """The features of frames, encoded one after the other."""
    from stepline.vision import VideoEncoder

    return add_frames(VideoEncoder(backbone, **options), frames)


def measure_activity(frames, **options):
    """The motion and cuts of frames."""
    from stepline.vision import ActivityMeter

    return add_frames(ActivityMeter(**options), frames)


def add_frames(meter, frames):
    for frame in frames:
        meter.add(frame)
    return meter.finish()
