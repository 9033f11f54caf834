import logging

import numpy as np
import pytest
from small_video import encode_video
from vision_samples import LevelBackbone, frame

from stepline.errors import SettingsError
from stepline.media import Frame
from stepline.vision import VideoEncoder


def levels(frames, **options):
    features = encode_video([frame(*pair) for pair in frames], LevelBackbone(), **options)
    assert features.values.dtype == np.float32
    return features.values[:, 0].tolist()


# frames as (second, level), and the level of each second's row
ROWS = {
    # distances .1 of .4, .1 of 1.6
    "the nearest the middle": ([(0.0, 1), (0.4, 2), (0.8, 3), (1.2, 4), (1.6, 5)], [2, 5]),
    "the first of two equally near": ([(0.25, 1), (0.75, 2)], [1]),
    "the last part of a second": ([(0.5, 1), (1.0, 2)], [1, 2]),
    "rounding": ([(0.2, 1), (0.9999999, 2)], [1, 2]),
    "none that comes late": ([(0.5, 1), (1.5, 2), (0.6, 3), (2.5, 4)], [1, 2, 4]),
}


@pytest.mark.parametrize("rule", ROWS)
def test_each_row_shows_one_frame_of_its_second(rule):
    frames, shown = ROWS[rule]
    assert levels(frames) == shown


def test_two_rows_a_second_cover_half_seconds():
    assert levels([(0.25, 1), (0.75, 2), (1.25, 3)], rate=2.0) == [1, 2, 3]


def test_a_row_without_a_frame_repeats_its_neighbour_and_is_reported(caplog):
    encoder = VideoEncoder(LevelBackbone())
    for time, level in [(2.5, 7), (3.5, 8), (6.5, 9)]:
        encoder.add(frame(time, level))
    with caplog.at_level(logging.WARNING):
        features = encoder.finish()
    assert features.values[:, 0].tolist() == [7, 7, 7, 8, 8, 8, 9]
    assert encoder.repeated == (0, 1, 4, 5)
    assert "4 of 7 rows" in caplog.text


def test_full_rows_are_not_reported():
    encoder = VideoEncoder(LevelBackbone())
    for second in range(5):
        encoder.add(frame(second + 0.5))
    assert len(encoder.finish().values) == 5
    assert encoder.repeated == ()


def test_no_frame_gives_no_row():
    features = encode_video([], LevelBackbone())
    assert features.values.shape == (0, 2)


def test_batches_are_bounded_and_change_nothing():
    frames = [frame(second + 0.5, second) for second in range(7)]
    backbone = LevelBackbone()
    three = encode_video(frames, backbone, batch=3)
    assert backbone.batches == [3, 3, 1]
    np.testing.assert_array_equal(
        three.values, encode_video(frames, LevelBackbone(), batch=1).values
    )


def test_a_stream_may_change_its_size():
    frames = [frame(0.5, 1), Frame(1.5, np.full((30, 30, 3), 9, np.uint8))]
    assert encode_video(frames, LevelBackbone()).values[:, 0].tolist() == [1, 9]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(SettingsError, match="rate"):
        VideoEncoder(LevelBackbone(), rate=rate)
