"""The shapes that a video file can have, each with its true answer for times, length, pictures and
the first sound."""

import os

import numpy as np
import pytest
from made_shapes import BEEP, CONTAINERS, SECONDS, Shape, make_shape, shapes
from made_videos import index_of
from video_frames import frames_at

from stepline.media import AudioBlock, Frame, MediaReader, probe

# containers whose pictures come at any time, and those that count a frame rate
FREE = "mp4 m4v f4v fragments.mp4 mov 3gp mkv webm ts mts flv nut".split()
ALL = list(CONTAINERS)
COMMON = ["mp4", "mkv"]
B_FRAMES = ["libx264:b-frames", "libx264:no b-frames"]
ODDITIES = "10 bits", "4:4:4", "4:2:2", "full range", "pq", "hlg", "wide pixels"
SOUND_CODECS = "libmp3lame libopus flac ac3 eac3 mp2 pcm_s16le pcm_u8 pcm_f32le".split()
SOUNDS = "stereo", "inverted", "5.1", "8 kHz", "96 kHz", "44.1 kHz"

SHAPES = shapes(
    (ALL, "steady"),
    (ALL, "picture ends"),
    (ALL, "sound ends"),
    (ALL, "steady", ["sound first", "picture", "sound"]),
    (FREE, ["held", "sound late", "late start"]),
    (["mp4", "mov", "mkv", "ts", "flv"], ["steady", "held"], "both", B_FRAMES),
    (COMMON, "steady", "both", "libx265 libvpx-vp9 libsvtav1 mpeg4 mpeg2video mjpeg".split()),
    (COMMON, "steady", "both", [f"libx264:{oddity}" for oddity in ODDITIES]),
    ("mp4", "steady", "both", "libx264:turned"),
    (["mov"], "steady", "both", ["prores", "png", "qtrle"]),
    (["mkv"], "steady", "both", ["mpeg4:odd size", "ffv1", "ffv1:odd size", "rawvideo"]),
    ("mkv", "steady", "both", "", SOUND_CODECS),
    (COMMON, "steady", "both", "", [f"aac:{sound}" for sound in SOUNDS]),
    ("mkv", "steady", "both", "", ["pcm_s16le:stereo", "pcm_s16le:inverted", "libopus:inverted"]),
    (["mp4", "mkv", "mov", "ts"], "steady", ["silent track first", "silent track last"]),
    (["mkv", "webm"], "before zero", ["both", "sound first", "picture"]),
    ("mkv", "before zero", "both", [*B_FRAMES, "mpeg4"]),
    ("mkv", "before zero, sound at zero"),
    (["mp4", "mkv"], "steady", ["cover with flag", "cover without flag"]),
)
SHORTEST = 0.25  # s that lossy codecs and containers without lengths may lack or add


def test_the_table_is_as_large_as_it_says():
    assert len(SHAPES) >= 120
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_file_is_read_at_its_true_times(tmp_path, shape):
    path = make_shape(tmp_path / f"a.{shape.container}", shape)
    reader = MediaReader(path, frame_rate=5.0, sound=True)
    items = list(reader)
    info = probe(path)
    # FFmpeg itself counts the missing stamps of a codec without B-frames
    assert reader.warnings == () or shape.is_before_zero
    assert info.warnings == ()
    assert (info.has_picture, info.has_sound) == (shape.has_picture, shape.has_sound)
    lengths = []
    if shape.has_picture:
        lengths.append(shape.picture_seconds[-1] + 0.04)
        check_pictures(path, shape, [item for item in items if isinstance(item, Frame)])
    if shape.has_sound:
        lengths.append(shape.sound_span[1])
        check_sound([item for item in items if isinstance(item, AudioBlock)])
    assert reader.end == pytest.approx(max(lengths), abs=SHORTEST)
    # programme streams name no length, and AVI that of its picture
    names_length = shape.container not in ("mpg", "vob")
    if names_length and (shape.container, shape.clock) != ("divx", "picture ends"):
        assert info.duration == pytest.approx(max(lengths), abs=SHORTEST)


def check_pictures(path, shape, pictures):
    """Each fifth of a second shows the picture that belongs there, in order and found alone."""
    last = shape.picture_seconds[-1] + 0.04
    assert len(pictures) == pytest.approx(last * 5, abs=1)
    wrong = []
    for frame in pictures:
        expected = shape.picture_at(frame.time)
        if expected is not None and index_of(frame.image) != expected % 20:
            wrong.append((frame.time, index_of(frame.image), expected))
    assert wrong == []
    times = [0.5, 1.1, 1.9, 3.5]
    for time, still in zip(times, frames_at(path, times), strict=True):
        expected = shape.picture_at(time)
        if expected is not None:
            assert index_of(still.image) == expected % 20
        elif time > last + 1.0:
            assert still is None


def check_sound(blocks):
    """The beep sounds when it does, and as long."""
    loud = []
    for block in blocks:
        at = np.flatnonzero(np.abs(block.samples) > 0.1)
        loud += [block.start + float(number) / 16_000 for number in at]
    assert loud, "nothing is heard"
    assert loud[0] == pytest.approx(BEEP[0], abs=0.08)
    assert loud[-1] == pytest.approx(BEEP[1], abs=0.08)
    assert max(loud) < SECONDS


@pytest.mark.skipif(not hasattr(os, "sched_getscheduler"), reason="no scheduling policies here")
def test_making_the_films_leaves_the_process_at_its_priority(tmp_path):
    before = os.sched_getscheduler(0)
    make_shape(tmp_path / "a.mp4", Shape("mp4", picture="libsvtav1"))
    assert os.sched_getscheduler(0) == before
