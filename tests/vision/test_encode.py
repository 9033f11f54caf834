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


def test_a_row_shows_the_frame_nearest_the_middle_of_its_second():
    # distances .1 of .4, .1 of 1.6
    assert levels([(0.0, 1), (0.4, 2), (0.8, 3), (1.2, 4), (1.6, 5)]) == [2, 5]


def test_of_two_equally_near_frames_the_first_is_taken():
    assert levels([(0.25, 1), (0.75, 2)]) == [1]


def test_the_last_part_of_a_second_has_its_row():
    assert levels([(0.5, 1), (1.0, 2)]) == [1, 2]


def test_two_rows_a_second_cover_half_seconds():
    assert levels([(0.25, 1), (0.75, 2), (1.25, 3)], rate=2.0) == [1, 2, 3]


def test_rounding_keeps_a_frame_in_its_row():
    assert levels([(0.2, 1), (0.9999999, 2)]) == [1, 2]


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


def test_a_late_frame_never_moves_a_closed_row():
    assert levels([(0.5, 1), (1.5, 2), (0.6, 3), (2.5, 4)]) == [1, 2, 4]


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
