"""Batches of videos with steps, and features resized to the rows that the network takes."""

import json

import numpy as np
import pytest
import torch
from small_network import SENTENCES, VOCABULARY, WIDTH, made, sample
from torch.testing import assert_close

from stepline.errors import ShapeError
from stepline.models.procx.batch import StepSample, nearest_rows, resize_rows, stack_videos


def rows(count):
    return np.arange(count * WIDTH, dtype=np.float32).reshape(count, WIDTH)


def test_steps_stand_in_the_order_of_time_with_their_words():
    late = StepSample("a", rows(4), 10.0, ((6.0, 8.0), (1.0, 3.0)), (SENTENCES[0], SENTENCES[4]))
    batch = made([late])
    assert_close(batch.targets.boxes[0], torch.tensor([[0.2, 0.2], [0.7, 0.2]]))
    words = [VOCABULARY.decode(row) for row in batch.captions.targets.tolist()]
    assert words == [SENTENCES[4], SENTENCES[0]]


def test_captions_are_found_by_video_and_step():
    batch = made([sample(steps=2), sample(steps=0), sample(steps=3)])
    found = batch.caption_rows(torch.tensor([0, 0, 2, 2]), torch.tensor([0, 1, 0, 2]))
    assert found.tolist() == [0, 1, 2, 4]
    assert len(batch.captions) == 5


def test_no_step_is_dropped():
    batch = made([sample(steps=100)])
    assert batch.targets.counts.tolist() == [100]
    assert len(batch.captions) == 100


def test_a_video_without_rows_is_zeros_and_marked():
    seen = stack_videos([rows(3), rows(0)], [3.0, 1.0], 4)
    assert seen.empty.tolist() == [False, True]
    assert not seen.values[1].any()
    assert_close(seen.values[0], torch.from_numpy(rows(3)[[0, 1, 1, 2]]))  # 2/3 is row 1, 4/3 too
    assert stack_videos([rows(3)], [3.0], 4).empty is None
    nothing = stack_videos([np.zeros((0, 0), np.float32)], [1.0], 4, WIDTH)
    assert nothing.values.shape == (1, 4, WIDTH)


def test_rows_and_boxes_of_a_wrong_shape_are_refused():
    with pytest.raises(ShapeError, match="one width"):
        made([StepSample("a", np.zeros((2, 3), np.float32), 5.0)])
    with pytest.raises(ShapeError, match="is not in the video"):
        made([StepSample("a", rows(2), 5.0, ((7.0, 8.0),), ("cut",))])


def test_the_official_cases_are_met_exactly(shared):
    cases = json.loads((shared / "metric_cases" / "pdvc_resize.json").read_text())
    assert len(cases) == 6
    nearest = [case for case in cases if case["method"] == "nearest"]  # the form that ProcX takes
    assert len(nearest) >= 3
    for case in nearest:
        values = np.array(case["in"], np.float32)
        got = resize_rows(values, case["size"])
        np.testing.assert_array_equal(got, np.array(case["out"], np.float32))


def test_a_half_rounds_down():
    assert nearest_rows(2, 3).tolist() == [0, 0, 1]  # places 0, 0.5, 1
    assert nearest_rows(4, 7).tolist() == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("length", [1, 2, 3, 255, 256, 257, 1000])
def test_resized_rows_are_those_of_scipys_nearest_interpolation(length):
    from scipy.interpolate import interp1d

    values = np.arange(length, dtype=np.float32)
    places = [i * (length - 1) / 255 for i in range(256)]
    want = np.zeros(256)
    if length > 1:
        want = interp1d(np.arange(length), values, kind="nearest")(places)
    np.testing.assert_array_equal(resize_rows(values[:, None], 256)[:, 0], want)


def test_a_single_row_is_repeated_and_one_place_is_the_first_row():
    assert resize_rows(np.array([[3.0, 4.0]], np.float32), 3).tolist() == [[3, 4]] * 3
    assert resize_rows(np.array([[1.0], [2.0], [3.0]], np.float32), 1).tolist() == [[1]]


def test_no_row_and_no_place_are_errors():
    with pytest.raises(ShapeError, match="0 rows cannot be resized"):
        resize_rows(np.zeros((0, 4), np.float32), 256)
    with pytest.raises(ShapeError, match="resized to 0"):
        resize_rows(np.zeros((3, 4), np.float32), 0)
