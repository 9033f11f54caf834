from pathlib import Path

import numpy as np
import pytest
from made_videos import index_of, make_video, tone

from stepline.media import frames_at, read_frames

TIMES = [k / 10 for k in range(200)]  # 20 s, longer than a leap is worth


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_video(tmp_path_factory.mktemp("stills") / "a.mp4", times=TIMES, codec="libx264", g="10")


def test_each_second_gives_the_frame_on_screen_in_the_order_asked_for(video: Path) -> None:
    found = frames_at(video, [15.05, 0.0, 7.25, 7.29, 19.95])
    assert [frame and index_of(frame.image) for frame in found] == [150 % 20, 0, 72 % 20, 72 % 20, 199 % 20]
    assert [frame and frame.time for frame in found] == [15.05, 0.0, 7.25, 7.29, 19.95]


def test_seconds_without_a_picture_give_none(video: Path) -> None:
    assert [frame is None for frame in frames_at(video, [-1.0, 20.5, 21.5, 500.0, float("nan")])] == [
        True,
        False,
        True,
        True,
        True,
    ]


def test_they_are_the_frames_that_the_reader_gives(clips: Path) -> None:
    path = clips / "making_water.mp4"
    read = {frame.time: frame.image for frame in read_frames(path, 0.25)}  # of 30 frames/s: some are left out
    every = {frame.time: frame.image for frame in read_frames(path, 10.0)}
    for still in frames_at(path, [2.05, 17.05, 30.05]):
        assert still is not None
        assert np.array_equal(still.image, every[still.time])
    assert set(read) == {2.0, 6.0, 10.0, 14.0, 18.0, 22.0, 26.0, 30.0}


def test_width_is_kept(video: Path) -> None:
    (frame,) = frames_at(video, [1.0], width=32)
    assert frame is not None
    assert frame.image.shape == (24, 32, 3)


def test_sound_alone_has_no_pictures(tmp_path: Path) -> None:
    assert frames_at(make_video(tmp_path / "a.m4a", sounds=[(0.0, tone(1.0))]), [0.0, 0.5]) == [None, None]


def test_no_times_give_no_pictures(video: Path) -> None:
    assert frames_at(video, []) == []


def test_a_file_without_time_stamps_is_read_from_its_start(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.h264", times=[k / 25 for k in range(200)], codec="libx264")
    (frame,) = frames_at(path, [6.02])
    assert frame is not None
    assert index_of(frame.image) == 150 % 20
