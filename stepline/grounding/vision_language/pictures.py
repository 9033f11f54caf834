"""Pictures of a video file for questions, and clips: some pictures around a second, joined to a
small mp4.

A clip has no sound and no more pictures than it is known by beforehand, so that what it costs is
too.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from stepline.grounding.vision_language.places import last_picture_second
from stepline.llm.pictures import PictureReader, jpeg
from stepline.media import MediaSettings, encode_clip, read_frames_at
from stepline.vision.settings import VisionLanguageSettings


def picture_reader(
    path: Path, size: int, *, start: float = 0.0, media: MediaSettings | None = None
) -> PictureReader:
    """Return what reads JPEGs of a video, or of its part from `start` on, by their seconds. size:
    shorter side."""

    def read(seconds: Sequence[float]) -> dict[float, bytes]:
        own_second = {start + second: second for second in seconds}
        times = list(own_second)
        pictures = {}
        for frame in read_frames_at(path, times, settings=media, shorter=size):
            second = own_second[frame.time]
            pictures[second] = jpeg(frame.image)
        return pictures

    return read


def question_pictures(
    path: Path,
    settings: VisionLanguageSettings,
    *,
    duration: float,
    start: float = 0.0,
    media: MediaSettings | None = None,
) -> PictureReader:
    """Return what reads the pictures of questions by their seconds, as `picture_reader` does, or
    clips around them.

    duration: of the video, or of its part, in seconds.
    """
    if settings.video is None:
        return picture_reader(path, settings.picture_size, start=start, media=media)

    def read(seconds: Sequence[float]) -> dict[float, bytes]:
        clips = {}
        size = settings.picture_size
        for second in sorted(seconds):
            # Pictures around the second, joined to a clip.
            times = [start + time for time in clip_times(second, settings, duration)]
            frames = read_frames_at(path, times, settings=media, shorter=size)
            images = [frame.image for frame in frames]
            if images:
                clips[second] = encode_clip(images, settings.clip_rate)
        return clips

    return read


def clip_times(second: float, settings: VisionLanguageSettings, duration: float) -> list[float]:
    """Return the seconds of a clip's pictures, evenly around its own, moved as a whole where the
    video ends."""
    count = settings.pictures_a_clip
    length = (count - 1) / settings.clip_rate
    last = last_picture_second(duration)
    centred = second - length / 2
    first = max(0.0, min(centred, last - length))
    times = []
    for n in range(count):
        time = first + n / settings.clip_rate
        if time <= last:
            times.append(round(time, 3))
    return times


def clip_report(settings: VisionLanguageSettings) -> dict[str, JsonValue]:
    """Return what a record says next to the seconds of pictures where clips around them were shown,
    else nothing."""
    if settings.video is None:
        return {}
    clips: JsonValue = {"seconds": settings.clip_seconds, "pictures": settings.pictures_a_clip}
    return {"clips": clips}
