"""The frames of a video, for tests."""

from stepline.media import Frame, MediaReader, MediaSettings


def read_frames(path, rate, size=None, settings=MediaSettings()):
    """Yield the frame on screen at (k + 0.5) / rate seconds for k = 0, 1, ..., `size` pixels on its
    shorter side."""
    reader = MediaReader(path, frame_rate=rate, frame_size=size, sound=False, settings=settings)
    for item in reader:
        if isinstance(item, Frame):
            yield item
