import numpy as np
import pytest
from numpy.testing import assert_allclose
from small_video import measure_activity
from vision_samples import frame

from stepline.errors import SettingsError
from stepline.media import Frame, KeyFrame
from stepline.vision import KeyFrameMeter
from stepline.vision.motion import find_cuts


def test_motion_is_the_mean_change_of_grey_in_each_second():
    # 0 -> 51 is 0.2 of white, then 51 -> 51 is 0; the second 1 holds one change of 0.4.
    shown = measure_activity([frame(0.0, 0), frame(0.3, 51), frame(0.6, 51), frame(1.5, 153)])
    assert_allclose(shown.motion, [0.1, 0.4], atol=1e-6)


def test_a_second_without_a_pair_has_no_motion():
    shown = measure_activity([frame(0.5, 0), frame(3.5, 255)])
    assert_allclose(shown.motion, [0, 0, 0, 1], atol=1e-6)


def test_a_sudden_change_of_colours_is_a_cut():
    frames = [frame(second / 2, 20 if second < 7 else 220) for second in range(14)]
    assert measure_activity(frames).cuts == (3.5,)


def test_steady_change_is_not_a_cut():
    noise = np.random.default_rng(0).integers(0, 256, (12, 64, 64, 3), dtype=np.uint8)
    blocks = noise[:, :4, :4].repeat(16, axis=1).repeat(16, axis=2)  # every frame has other colours
    shown = measure_activity([Frame(place / 2, image) for place, image in enumerate(blocks)])
    assert shown.cuts == ()
    assert (shown.motion > 0.1).all()


def test_a_cut_stands_out_from_its_neighbours_and_above_the_floor():
    changes = np.array([0.05, 0.05, 0.5, 0.05, 0.05, 0.05, 0.19, 0.05])
    assert find_cuts(changes, ratio=4.0, floor=0.2) == [2]
    assert find_cuts(changes, ratio=3.0, floor=0.1) == [2, 6]
    assert find_cuts(changes, ratio=11.0, floor=0.1) == []


def test_nothing_shown_has_no_activity():
    shown = measure_activity([])
    assert shown.motion.shape == (0,)
    assert shown.cuts == ()


def test_an_impossible_rate_is_refused():
    with pytest.raises(SettingsError, match="rate"):
        measure_activity([], rate=0.0)


def test_the_peak_is_the_change_of_the_spot_that_changes_most():
    small = np.zeros((32, 32, 3), dtype=np.uint8)
    moved = small.copy()
    moved[0, :8] = 255  # 8 of the 1024 parts turn white: a mean of 8 / 1024, a peak of 1
    shown = measure_activity([Frame(0.0, small), Frame(0.25, moved)])
    assert_allclose(shown.motion, [8 / 1024], atol=1e-6)
    assert_allclose(shown.peak_changes, [1.0], atol=1e-6)


def test_a_cut_between_pictures_of_the_same_colours_is_found():
    left = np.zeros((32, 32, 3), dtype=np.uint8)
    left[:, :16] = 120
    frames = [Frame(place / 2, left if place < 7 else left[:, ::-1]) for place in range(14)]
    assert measure_activity(frames).cuts == (3.5,)


def test_looks_are_thumbnails_of_each_second_and_unknown_where_no_frame_fell():
    shown = measure_activity([frame(0.0, 0), frame(0.5, 51), frame(2.0, 255)])
    assert shown.thumbnails.shape == (3, 192)
    assert_allclose(shown.thumbnails[0], 0.1, atol=1e-6)  # the mean of 0 and 0.2
    assert np.isnan(shown.thumbnails[1]).all()


def key(time, end, value, later=None):
    later = None if later is None else frame(time, later).image
    return KeyFrame(time, end, frame(time, value).image, later)


def test_the_picture_of_a_key_frame_holds_until_the_next():
    meter = KeyFrameMeter()
    meter.add_key(key(0.0, 4.0, 51, later=102))
    meter.add_key(key(4.0, 5.0, 51))
    meter.add_key(key(5.0, 8.0, 204, later=204))
    held = meter.finish()
    assert held.cuts == ()
    assert_allclose(held.motion, [0.2] * 5 + [0.0] * 3, atol=1e-6)
    assert_allclose(held.peak_changes, held.motion, atol=1e-6)
    # the first thumbnail is the mean of both pictures
    assert_allclose(held.thumbnails.mean(1), [0.3] * 4 + [0.2] + [0.8] * 3, atol=1e-6)
