"""Faces: boxes by hand from a detector's numbers, and the networks themselves where they
are fetched."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from vision_samples import photo

from stepline.networks.weights import find_weights, weights_fetched
from stepline.vision import faces as seen
from stepline.vision.faces import Detection, FaceDetector


def test_anchors_are_in_the_middle_of_every_place_two_per_map():
    found = seen.anchor_centers(128)
    assert found.shape == (2 * 16 * 16 + 6 * 8 * 8, 2)
    assert_allclose(found[:3], [[0.5 / 16, 0.5 / 16], [0.5 / 16, 0.5 / 16], [1.5 / 16, 0.5 / 16]])
    assert_allclose(found[-1], [7.5 / 8, 7.5 / 8])


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (90, 160, [(0, 0, 90), (70, 0, 90)]),
        (160, 90, [(0, 0, 90), (0, 70, 90)]),
        (50, 50, [(0, 0, 50)]),
    ],
)
def test_squares_of_the_shorter_side_cover_a_picture(height, width, expected):
    assert seen.covering_squares(np.zeros((height, width, 3), np.uint8)) == expected


class OneBox:
    """A network of 128 px that finds one box, 32 px wide and 16 high, its middle 8 px right of the
    first anchor."""

    side = 128

    def __call__(self, picture):
        self.picture = picture
        boxes, scores = np.zeros((896, 16), np.float32), np.full((896, 1), -9.0, np.float32)
        boxes[0, :6] = [8, 0, 32, 16, 4, 4]
        scores[0] = 2.0
        return [boxes, scores]


def test_a_box_is_given_in_pixels_of_the_picture(monkeypatch, tmp_path):
    network = OneBox()
    monkeypatch.setattr(seen, "load_tflite", lambda path: network)
    (found,) = FaceDetector(tmp_path).detect(np.full((64, 64, 3), 255, np.uint8))
    assert found.score == pytest.approx(1 / (1 + np.exp(-2)))
    # The anchor is at 4 px of 128, the picture half as large: the middle at ((4 + 8) / 2, 4 / 2).
    assert_allclose(found.box, [6 - 8, 2 - 4, 6 + 8, 2 + 4])
    assert_allclose(found.points[0], [4, 4])
    assert network.picture.min() == network.picture.max() == 1.0


def box(score, left, right):
    return Detection(score, np.array([left, 0.0, right, 10.0]), np.zeros((6, 2)))


def test_of_boxes_that_overlap_the_surest_is_kept():
    kept = seen.suppress_overlaps([box(0.6, 0, 10), box(0.9, 2, 12), box(0.7, 30, 40)])
    assert [each.score for each in kept] == [0.9, 0.7]


@pytest.mark.parametrize(
    ("nose", "expected"),
    [((10.0, 6.0), 1.0), ((15.0, 6.0), np.exp(-1.0)), ((30.0, 6.0), 0.0)],
    ids=["front", "half", "side"],
)
def test_a_face_looks_at_the_camera_where_its_nose_is_between_its_eyes(nose, expected):
    points = np.array([[0.0, 0.0], [20.0, 0.0], nose])
    assert seen.measure_frontality(points) == pytest.approx(expected, abs=1e-6)
    assert seen.measure_frontality(points @ np.array([[0.0, 1.0], [-1.0, 0.0]])) == 0.0  # lying


def test_no_face_is_seen_in_a_photograph_of_a_flower():
    if not weights_fetched("mediapipe"):
        pytest.skip("needs `stepline weights get mediapipe`")
    folder = find_weights("mediapipe")
    for picture in (photo("flower.jpg"), np.zeros((90, 160, 3), np.uint8)):
        assert FaceDetector(folder).presenter(picture) < 0.1
