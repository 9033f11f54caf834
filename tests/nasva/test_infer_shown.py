import json

import numpy as np
import pytest
from drawn_evidence import drawn

from stepline.errors import ModelError
from stepline.evaluate.calibration import fit_logistic
from stepline.nasva.align import TextScores
from stepline.nasva.calibration import (
    Calibration,
    calibration_features,
    read_calibration,
    uncalibrated_probability,
    write_calibration,
)


def test_evidence_is_what_a_row_looks_like():
    scores = np.zeros((2, 40), np.float32)
    scores[0, 5], scores[0, 30], scores[1, 5] = 0.8, 0.3, 0.1
    rows = calibration_features(TextScores(scores, np.array([2.0, -1.0], np.float32), 1.0))
    np.testing.assert_allclose(rows[0, [0, 1, 3, 4, 5]], [0.8, 0.8, 0.5, 0.7, 2.0], atol=1e-6)
    np.testing.assert_allclose(rows[1, [0, 1, 3, 4, 5]], [0.1, 0.1, 0.1, -0.7, -1.0], atol=1e-6)
    assert 0 < rows[0, 2] < rows[1, 2] < 1


def test_evidence_of_one_text_in_one_row_is_finite():
    assert np.isfinite(calibration_features(TextScores(np.full((1, 1), 0.2, np.float32), None, 1.0))).all()
    assert calibration_features(TextScores(np.zeros((0, 7), np.float32), None, 1.0)).shape == (0, 6)


def test_without_a_fit_the_head_or_the_best_cosine_stands_in():
    scores = np.array([[0.4, -0.2], [-0.3, -0.1]], np.float32)
    np.testing.assert_allclose(uncalibrated_probability(TextScores(scores, None, 1.0)), [0.4, 0.0])
    np.testing.assert_allclose(uncalibrated_probability(TextScores(scores, np.zeros(2, np.float32), 1.0)), [0.5, 0.5])


def test_a_calibration_belongs_to_one_network(tmp_path):
    path = tmp_path / "aligner.shown.json"
    assert read_calibration(path, "abc") is None
    calibration = Calibration("abc", {"step": fit_logistic(*drawn())})
    write_calibration(calibration, path)
    assert read_calibration(path, "abc") == calibration
    with pytest.raises(ModelError, match="fitted on another network"):
        read_calibration(path, "def")


@pytest.mark.parametrize("change", [{"evidence": ["best"]}, {"modes": {"step": {"mean": [1.0]}}}, {"modes": None}])
def test_a_damaged_calibration_is_named(tmp_path, change):
    path = tmp_path / "aligner.shown.json"
    write_calibration(Calibration("abc", {"step": fit_logistic(*drawn())}), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match="not a calibration"):
        read_calibration(path, "abc")
