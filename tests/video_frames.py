"""The frames of a video, for tests."""

from stepline.media import Frame, MediaReader, read_frames_at


def read_frames(path, rate, size=None, **options):
    """Yield the frame on screen at (k + 0.5) / rate seconds for k = 0, 1, ..., `size` pixels on its
    shorter side."""
    for item in MediaReader(path, frame_rate=rate, frame_size=size, sound=False, **options):
        if isinstance(item, Frame):
            yield item


def frames_at(path, times, width=None):
    """The frame on screen at each of the times, None where there is none."""
    frames = {frame.time: frame for frame in read_frames_at(path, times, width)}
    return [frames.get(time) for time in times]
