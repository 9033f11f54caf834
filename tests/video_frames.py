"""The frames of a video, for tests."""

from stepline.media import Frame, MediaReader


def read_frames(path, rate, size=None, **options):
    """Yield the frame on screen at (k + 0.5) / rate seconds for k = 0, 1, ..., `size` pixels on its
    shorter side."""
    for item in MediaReader(path, frame_rate=rate, frame_size=size, sound=False, **options):
        if isinstance(item, Frame):
            yield item
