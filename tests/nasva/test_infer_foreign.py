from pathlib import Path
from typing import cast

import numpy as np
import pytest

from stepline.errors import DatasetError
from stepline.evaluate.calibration import calibration_error
from stepline.nasva.align import TextScores
from stepline.nasva.calibration import calibration_features
from stepline.nasva.checkpoint import LoadedAligner
from stepline.nasva.fit_calibration import calibrate_by_foreign_texts, shown_fraction, shown_probability
from stepline.nasva.model import Aligner

NETWORK = LoadedAligner(cast(Aligner, None), Path("aligner.safetensors"), "abc", None, None)


def fit(shown: list[bool], rng: np.random.Generator) -> TextScores:
    """Scores of texts over 30 rows: noise, and where a text is shown a peak that is high enough half of the times."""
    scores = rng.normal(0.0, 0.1, (len(shown), 30)).astype(np.float32)
    for row, peak in zip(scores, shown, strict=True):
        if peak:
            row[rng.integers(30)] = rng.normal(0.4, 0.1)
    return TextScores(np.clip(scores, -1, 1), None, 1.0)


def made(videos: int, share: float, seed: int) -> tuple[list[TextScores], list[TextScores], list[bool]]:
    rng = np.random.default_rng(seed)
    truth = [[bool(rng.random() < share) for _ in range(5)] for _ in range(videos)]
    own, foreign = [fit(one, rng) for one in truth], [fit([False] * 5, rng) for _ in truth]
    return own, foreign, [one for texts in truth for one in texts]


def test_the_share_is_read_from_how_many_own_texts_look_foreign() -> None:
    foreign = np.linspace(0.0, 0.4, 101)  # median 0.2
    own = np.array([0.1, 0.9, 0.9, 0.9])  # a quarter of them below it
    assert shown_fraction(own, foreign) == pytest.approx(0.5)
    assert shown_fraction(foreign, foreign) == pytest.approx(0.0, abs=0.02)


def test_chances_are_one_where_nothing_foreign_looks_so_and_average_to_the_share() -> None:
    assert shown_probability(np.array([1.0]), 1.0, 0.6)[0] == pytest.approx(1.0, abs=1e-2)
    assert shown_probability(np.array([0.5]), 1.0, 0.6)[0] == pytest.approx(
        0.6
    )  # own and foreign look alike: the prior
    assert shown_probability(np.array([0.1]), 1.0, 0.6)[0] == 0.0


def test_p_shown_means_what_it_says_though_nobody_told_the_truth() -> None:
    own, foreign, _ = made(200, 0.6, seed=0)
    calibration, share = calibrate_by_foreign_texts(NETWORK, own, foreign)
    assert share == pytest.approx(0.6, abs=0.12)
    new, _, truth = made(200, 0.6, seed=1)
    p = np.concatenate([calibration.modes["step"](calibration_features(one)) for one in new])
    assert calibration_error(np.array(truth), p) < 0.1
    assert p[np.array(truth)].mean() - p[~np.array(truth)].mean() > 0.4
    assert calibration.aligner == "abc"


def test_a_known_share_is_taken_as_it_is_and_one_that_cannot_be_told_is_an_error() -> None:
    own, foreign, _ = made(40, 0.6, seed=2)
    assert calibrate_by_foreign_texts(NETWORK, own, foreign, rate=0.3)[1] == 0.3
    with pytest.raises(DatasetError, match=r"the share of shown texts comes out as 1\.00"):
        calibrate_by_foreign_texts(NETWORK, own, own)  # alike in all they show
