"""The palm detector that research can measure."""

import numpy as np
import pytest

from research.hands import HandDetector
from stepline.networks.weights import find_weights, weights_fetched


def test_no_hand_is_seen_in_a_photograph_of_a_flower():
    datasets = pytest.importorskip("sklearn.datasets")
    if not weights_fetched("mediapipe"):
        pytest.skip("needs `stepline weights get mediapipe`")
    detector = HandDetector(find_weights("mediapipe"))
    flower = datasets.load_sample_image("flower.jpg")
    for picture in (flower, np.zeros((90, 160, 3), np.uint8)):
        assert detector.count(picture) == 0
