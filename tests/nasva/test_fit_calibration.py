import json
from pathlib import Path

import numpy as np
import pytest
from drawn_evidence import drawn

from stepline.errors import DatasetError, ModelError
from stepline.evaluate.calibration import calibration_error, fit_logistic
from stepline.models.nasva.align import TextScores
from stepline.models.nasva.calibration import (
    Calibration,
    compute_calibration_features,
    estimate_shown_fraction,
    estimate_uncalibrated,
    read_calibration,
    write_calibration,
)
from stepline.models.nasva.checkpoint import NO_SPACE, LoadedAligner
from stepline.models.nasva.fit_calibration import (
    calibrate_on_foreign_texts,
    compute_shown_probability,
    cross_validate,
)


def test_evidence_is_what_a_row_looks_like():
    scores = np.zeros((2, 40), np.float32)
    scores[0, 5], scores[0, 30], scores[1, 5] = 0.8, 0.3, 0.1
    rows = compute_calibration_features(TextScores(scores, np.array([2.0, -1.0], np.float32), 1.0))
    np.testing.assert_allclose(rows[0, [0, 1, 3, 4, 5]], [0.8, 0.8, 0.5, 0.7, 2.0], atol=1e-6)
    np.testing.assert_allclose(rows[1, [0, 1, 3, 4, 5]], [0.1, 0.1, 0.1, -0.7, -1.0], atol=1e-6)
    assert 0 < rows[0, 2] < rows[1, 2] < 1


def test_evidence_of_one_text_in_one_row_is_finite():
    one, none = np.full((1, 1), 0.2, np.float32), np.zeros((0, 7), np.float32)
    assert np.isfinite(compute_calibration_features(TextScores(one, None, 1.0))).all()
    assert compute_calibration_features(TextScores(none, None, 1.0)).shape == (0, 6)


def test_without_a_fit_the_head_or_the_best_cosine_stands_in():
    scores = np.array([[0.4, -0.2], [-0.3, -0.1]], np.float32)
    np.testing.assert_allclose(estimate_uncalibrated(TextScores(scores, None, 1.0)), [0.4, 0.0])
    np.testing.assert_allclose(
        estimate_uncalibrated(TextScores(scores, np.zeros(2, np.float32), 1.0)), [0.5, 0.5]
    )


def test_a_calibration_belongs_to_one_network(tmp_path):
    path = tmp_path / "aligner.shown.json"
    assert read_calibration(path, "abc") is None
    calibration = Calibration("abc", {"step": fit_logistic(*drawn())})
    write_calibration(calibration, path)
    assert read_calibration(path, "abc") == calibration
    with pytest.raises(ModelError, match="fitted on another network"):
        read_calibration(path, "def")


@pytest.mark.parametrize(
    "change", [{"evidence": ["best"]}, {"modes": {"step": {"mean": [1.0]}}}, {"modes": None}]
)
def test_a_damaged_calibration_is_named(tmp_path, change):
    path = tmp_path / "aligner.shown.json"
    write_calibration(Calibration("abc", {"step": fit_logistic(*drawn())}), path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match="not a calibration"):
        read_calibration(path, "abc")


def look(shown, absent):
    """A video of texts that are shown, which rise by 1 in one row, and of texts that are not."""
    scores = np.random.default_rng(shown).normal(scale=0.1, size=(shown + absent, 30))
    scores = scores.astype(np.float32)
    scores[:shown, 3] += 1.0
    return TextScores(scores, None, 1.0), np.arange(shown + absent) < shown


def test_each_half_of_the_videos_needs_twenty_texts_of_each_kind():
    assert cross_validate([look(10, 12)] * 4).videos == 4  # 20 shown and 24 not in each half
    videos = [look(10, 12), look(10, 9), look(10, 12), look(10, 10)]  # 19 not in the second half
    with pytest.raises(DatasetError, match=r"20 texts shown and 19 not in a half .* needs 20"):
        cross_validate(videos)


NETWORK = LoadedAligner(Path("aligner.safetensors"), "abc", NO_SPACE, 0, True, None, None)


def fit(shown, rng):
    """Scores of texts over 30 rows: noise, and where a text is shown a peak that is high enough
    half of the times."""
    scores = rng.normal(0.0, 0.1, (len(shown), 30)).astype(np.float32)
    for row, peak in zip(scores, shown, strict=True):
        if peak:
            row[rng.integers(30)] = rng.normal(0.4, 0.1)
    return TextScores(np.clip(scores, -1, 1), None, 1.0)


def made(videos, share, seed):
    rng = np.random.default_rng(seed)
    truth = [[bool(rng.random() < share) for _ in range(5)] for _ in range(videos)]
    fits = []
    for texts in truth:
        own, foreign = fit(texts, rng), fit([False] * 5, rng)
        fits.append((own, TextScores(np.concatenate([own.scores, foreign.scores]), None, 1.0)))
    return fits, [one for texts in truth for one in texts]


def test_the_share_is_read_from_how_many_own_texts_look_foreign():
    foreign = np.linspace(0.0, 0.4, 101)  # median 0.2
    own = np.array([0.1, 0.9, 0.9, 0.9])  # a quarter of them below it
    assert estimate_shown_fraction(own, foreign) == pytest.approx(0.5)
    assert estimate_shown_fraction(foreign, foreign) == pytest.approx(0.0, abs=0.02)


def test_chances_are_one_where_nothing_foreign_looks_so_and_average_to_the_share():
    most, alike, least = compute_shown_probability(np.array([1.0, 0.5, 0.1]), 1.0, 0.6)
    assert most == pytest.approx(1.0, abs=1e-2)
    assert alike == pytest.approx(0.6)  # own and foreign look alike: the prior
    assert least == 0.0


def test_p_shown_means_what_it_says_though_no_one_gave_the_truth():
    fits, _ = made(200, 0.6, seed=0)
    calibration, share = calibrate_on_foreign_texts(NETWORK, fits)
    assert share == pytest.approx(0.6, abs=0.12)
    new, truth = made(200, 0.6, seed=1)
    p = np.concatenate(
        [calibration.modes["step"](compute_calibration_features(own)) for own, _ in new]
    )
    assert calibration_error(np.array(truth), p) < 0.1
    assert p[np.array(truth)].mean() - p[~np.array(truth)].mean() > 0.4
    assert calibration.aligner_sha256 == "abc"


def test_a_known_share_is_taken_as_it_is_and_one_that_cannot_be_estimated_is_an_error():
    fits, _ = made(40, 0.6, seed=2)
    assert calibrate_on_foreign_texts(NETWORK, fits, shown_fraction=0.3)[1] == 0.3
    twice = [(own, TextScores(np.concatenate([own.scores] * 2), None, 1.0)) for own, _ in fits]
    with pytest.raises(DatasetError, match=r"the share of shown texts comes out as 1\.00"):
        calibrate_on_foreign_texts(NETWORK, twice)  # alike in all they show
