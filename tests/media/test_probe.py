from fractions import Fraction

import av
import numpy as np
import pytest
from made_videos import make_video, tone

from stepline.errors import MediaError
from stepline.media import MediaSettings, probe

TIMES = [k / 10 for k in range(10)]


def test_it_reports_what_is_in_the_file(tmp_path):
    info = probe(make_video(tmp_path / "a.mp4", times=TIMES, sounds=[(0.0, tone(1.0))]))
    assert (info.width, info.height, info.rotation) == (64, 48, 0)
    assert info.frame_rate == pytest.approx(10.0)
    assert info.duration == pytest.approx(1.0, abs=0.03)
    assert (info.has_picture, info.has_sound, info.warnings) == (True, True, ())


def test_a_rotated_video_is_reported_as_upright(tmp_path):
    info = probe(make_video(tmp_path / "a.mp4", times=TIMES, rotation=90))
    assert (info.width, info.height, info.rotation) == (48, 64, 270)


def test_sound_alone_is_not_a_picture(tmp_path):
    info = probe(make_video(tmp_path / "a.mp3", sounds=[(0.0, tone(3.0))], sound_codec="mp3"))
    assert (info.has_picture, info.has_sound, info.width, info.frame_rate) == (False, True, 0, 0.0)


def test_a_cover_picture_is_not_a_picture(tmp_path):
    path = tmp_path / "a.mp3"
    with av.open(str(path), "w") as out:
        voice = out.add_stream("mp3", rate=44_100, layout="mono")
        cover = out.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 64, 48, "yuvj420p"
        cover.disposition = av.stream.Disposition.attached_pic
        black = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8)).reformat(
            format="yuvj420p"
        )
        for packet in cover.encode(black):
            out.mux(packet)
        frame = av.AudioFrame.from_ndarray(tone(1.0), "fltp", "mono")
        frame.sample_rate = 44_100
        for packet in [*voice.encode(frame), *voice.encode(None)]:
            out.mux(packet)
    info = probe(path)
    assert (info.has_picture, info.has_sound) == (False, True)


def test_a_file_without_a_stated_duration_is_measured(tmp_path):
    info = probe(
        make_video(tmp_path / "a.h264", times=[k / 25 for k in range(50)], codec="libx264")
    )
    assert info.duration == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("name", "duration", "size", "sound"),
    [
        ("silent_cake.mp4", 10.0, (320, 426), False),
        ("pancake_flip.mkv", 10.4, (426, 240), True),
        ("quilt_clip_zh.mp4", 7.5, (720, 1280), True),
        # stored 320x240 with pixels 4/3 as wide as high
        ("mixing_bowl_hosts.mp4", 12.0, (427, 240), True),
    ],
)
def test_real_clips(clips, name, duration, size, sound):
    info = probe(clips / name)
    assert info.duration == pytest.approx(duration, abs=0.1)
    assert ((info.width, info.height), info.has_sound) == (size, sound)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_pixels": 3000}, "64x48 are more than media.max_pixels = 3000"),
        ({"max_streams": 1}, "2 streams are more than media.max_streams = 1"),
        ({"max_duration": 0.5}, "s are more than media.max_duration = 0.5 s"),
        ({"max_bytes": 100}, "are more than media.max_bytes = 100"),
    ],
)
def test_limits_are_kept_and_named(tmp_path, settings, message):
    path = make_video(tmp_path / "a.mp4", times=TIMES, sounds=[(0.0, tone(1.0))])
    with pytest.raises(MediaError, match=message):
        probe(path, MediaSettings(**settings))


@pytest.mark.parametrize("name", ["a.mov", "a.mp4", "a.mkv", "a.mxf"])
@pytest.mark.parametrize(
    ("rate", "timecode", "seconds"),
    [
        ("25", "01:00:00:00", 3600.0),
        ("25", "00:00:01:05", 1.2),
        ("30000/1001", "01:00:00:00", 3603.6),  # 108000 frames of 1001/30000 s
        ("30000/1001", "00:01:00;02", 60.06),  # 1800 frames: numbers 0 and 1 are dropped
        ("30000/1001", "01:00:00;00", 3599.9964),  # 108000 - 54 x 2 frames
    ],
)
def test_the_time_code_of_the_first_frame_is_in_seconds(tmp_path, name, rate, timecode, seconds):
    path = tmp_path / name
    with av.open(str(path), "w") as out:
        codec = "mpeg2video" if name == "a.mxf" else "mpeg4"
        stream = out.add_stream(codec, rate=Fraction(rate))
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.metadata["timecode"] = timecode
        for _ in range(4):
            frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8))
            out.mux(stream.encode(frame.reformat(format="yuv420p")))
        out.mux(stream.encode(None))
    assert probe(path).start_timecode == pytest.approx(seconds, abs=1e-6)


def test_a_file_without_a_time_code_starts_at_0(tmp_path):
    assert probe(make_video(tmp_path / "a.mov", times=TIMES)).start_timecode == 0.0
