import json

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.procx.batch import nearest_rows, resize_rows


def test_the_official_cases_are_met_exactly(shared):
    cases = json.loads((shared / "metric_cases" / "pdvc_resize.json").read_text())
    assert len(cases) == 6
    for case in cases:
        values = np.array(case["in"], np.float32)
        got = resize_rows(values, case["size"], case["method"])
        np.testing.assert_array_equal(got, np.array(case["out"], np.float32))


def test_a_half_rounds_down():
    assert nearest_rows(2, 3).tolist() == [0, 0, 1]  # places 0, 0.5, 1
    assert nearest_rows(4, 7).tolist() == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("length", [1, 2, 3, 255, 256, 257, 1000])
def test_it_agrees_with_scipy(length):
    from scipy.interpolate import interp1d

    values = np.arange(length, dtype=np.float32)
    places = [i * (length - 1) / 255 for i in range(256)]
    want = interp1d(np.arange(length), values, kind="nearest")(places) if length > 1 else np.zeros(256)
    np.testing.assert_array_equal(resize_rows(values[:, None], 256)[:, 0], want)


@pytest.mark.parametrize("method", ["nearest", "linear"])
def test_a_single_row_is_repeated(method):
    assert resize_rows(np.array([[3.0, 4.0]], np.float32), 3, method).tolist() == [[3, 4]] * 3


def test_one_place_is_the_first_row():
    assert resize_rows(np.array([[1.0], [2.0], [3.0]], np.float32), 1).tolist() == [[1]]


def test_no_row_and_no_place_are_errors():
    with pytest.raises(ShapeError, match="a row at least"):
        resize_rows(np.zeros((0, 4), np.float32), 256)
    with pytest.raises(ShapeError, match="resized to 0"):
        resize_rows(np.zeros((3, 4), np.float32), 0)
