"""Logistic regressions that give P, and how far P is from what happens."""

import numpy as np
import pytest
from drawn_evidence import drawn

from stepline.errors import DatasetError
from stepline.evaluate.calibration import calibration_error, fit_logistic
from stepline.evaluate.ranking import roc_auc


def test_a_fit_is_calibrated_on_other_videos():
    p = fit_logistic(*drawn())(drawn(seed=1)[0])
    shown = drawn(seed=1)[1]
    assert roc_auc(shown.astype(float), p) > 0.8
    assert calibration_error(shown, p) < 0.08


def test_a_feature_that_never_changes_is_not_evidence():
    rows, shown = drawn()
    rows[:, 5] = 0.0
    assert fit_logistic(rows, shown).weights[5] == pytest.approx(0.0, abs=1e-9)


def test_a_feature_that_separates_all_stays_finite():
    rows, shown = drawn()
    rows[:, 0] = 100.0 * shown
    p = fit_logistic(rows, shown)(rows)
    assert np.isfinite(p).all()
    assert p[shown].min() > p[~shown].max()


def test_error_is_the_mean_gap_over_bins():
    shown = np.array([True, False, True, True])
    assert calibration_error(shown, np.array([0.5, 0.5, 0.9, 0.9])) == pytest.approx(0.05)
    assert calibration_error(shown, np.ones(4)) == pytest.approx(0.25)


def test_a_calibration_on_fewer_than_20_of_each_kind_is_refused():
    rows, shown = drawn(30)
    with pytest.raises(DatasetError, match="a calibration needs 20 of each"):
        fit_logistic(rows, shown)
