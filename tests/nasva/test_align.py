import numpy as np
import pytest
import torch
from aligner_samples import WIDTH, tiny

from stepline.errors import ShapeError
from stepline.models.nasva.align import (
    estimate_posterior,
    penalize_overlapping_texts,
    penalize_unlikely_order,
    score_texts,
    split_into_windows,
    sum_windows,
)
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerSettings
from stepline.records import FeatureSequence

SMALL = AlignerSettings(whole=20, window=16, stride=8, batch=3)


def network(**changes):
    torch.manual_seed(0)
    return Aligner(tiny(**changes)).eval()


def video(rows, seed=0):
    return FeatureSequence(vectors(rows, seed), 1.0, "drawn")


def vectors(texts, seed=1):
    return np.random.default_rng(seed).normal(size=(texts, WIDTH)).astype(np.float32)


def test_a_short_video_is_aligned_in_one_piece():
    aligner, features, texts = network(), video(20), vectors(3)
    whole = score_texts(aligner, features, texts)
    assert (whole.rate, whole.scores.shape) == (1.0, (3, 20))
    fit = score_texts(aligner, features, texts, settings=SMALL)
    assert np.array_equal(fit.scores, whole.scores)
    assert fit.alignability_logits is None


def test_windows_are_tans():
    parts = split_into_windows(200, AlignerSettings(whole=100, window=64, stride=16))
    assert [part.start for part in parts] == list(range(0, 168, 16))
    assert (parts[0].stop, parts[-1].stop) == (64, 200)


@pytest.mark.parametrize("rows", [21, 24, 25, 31, 32, 33, 100])
def test_every_row_is_in_a_window(rows):
    for settings in (SMALL, SMALL.model_copy(update={"whole": 20, "window": 64})):
        covered = np.zeros(rows, dtype=bool)
        for part in split_into_windows(rows, settings):
            assert part.stop - part.start <= settings.window
            covered[part] = True
        assert covered.all()


def test_scores_of_windows_are_averaged_and_their_padding_changes_nothing():
    aligner, features, texts = network(), video(29), vectors(4)
    # windows 0-16, 8-24, 16-29: the last is padded
    fit = score_texts(aligner, features, texts, settings=SMALL)
    alone = [
        score_texts(aligner, FeatureSequence(features.values[a:b], 1.0, "drawn"), texts).scores
        for a, b in ((0, 16), (8, 24), (16, 29))
    ]
    expected = np.zeros((4, 29))
    expected[:, :8] = alone[0][:, :8]
    expected[:, 8:16] = (alone[0][:, 8:] + alone[1][:, :8]) / 2
    expected[:, 16:24] = (alone[1][:, 8:] + alone[2][:, :8]) / 2
    expected[:, 24:] = alone[2][:, 8:]
    np.testing.assert_allclose(fit.scores, expected, atol=1e-5)


def test_the_network_never_sees_more_rows_than_a_window_holds(monkeypatch):
    aligner, seen = network(), []
    forward = Aligner.forward

    def watched(self, batch):
        seen.append(batch.video.shape)
        return forward(self, batch)

    monkeypatch.setattr(Aligner, "forward", watched)
    for rows in (100, 1000):
        score_texts(aligner, video(rows), vectors(2), settings=SMALL)
        assert {shape[1] for shape in seen} <= {16, 12, 13, 14, 15}
        assert max(shape[0] for shape in seen) == 3


def test_only_narrations_know_their_places():
    aligner, features, texts = network(), video(18), vectors(4)
    turned = texts[::-1].copy()
    steps, other = (score_texts(aligner, features, some).scores for some in (texts, turned))
    np.testing.assert_allclose(steps, other[::-1], atol=1e-5)
    narration = AlignerSettings(mode="narration")
    told, other = (
        score_texts(aligner, features, some, settings=narration).scores for some in (texts, turned)
    )
    assert np.abs(told - other[::-1]).max() > 1e-3


def test_the_head_is_asked_where_there_is_one():
    fit = score_texts(network(alignability=True), video(29), vectors(4), settings=SMALL)
    assert fit.alignability_logits.shape == (4,)
    assert np.isfinite(fit.alignability_logits).all()


def test_no_text_gives_no_row():
    assert score_texts(network(), video(12), vectors(0)).scores.shape == (0, 12)


def other(*shape):
    return FeatureSequence(np.ones(shape, np.float32), 1.0, "other")


@pytest.mark.parametrize(
    ("features", "texts", "reason"),
    [
        (other(9, 5), vectors(2), "video features have width 5"),
        (video(9), np.ones((2, 5), np.float32), "text features have width 5"),
        (video(9), np.full((2, WIDTH), np.nan, np.float32), "text features hold NaN"),
        (other(0, WIDTH), vectors(2), "no feature row"),
        (video(9), vectors(2)[0], "text vectors must be"),
    ],
)
def test_texts_of_a_wrong_shape_are_refused_with_the_reason(features, texts, reason):
    with pytest.raises(ShapeError, match=reason):
        score_texts(network(), features, texts)


PLAIN = AlignerSettings(compete=0.0)


def best_rows(*given, **more):
    return estimate_posterior(*given, **more).best_rows.tolist()


def chances(*given, **more):
    return estimate_posterior(*given, **more).row_probabilities


def test_order_settles_what_the_pictures_leave_open():
    scores = np.full((2, 9), -0.5, np.float32)
    scores[0, 2] = scores[1, [1, 6]] = 0.5
    assert best_rows(scores, np.full(2, 0.9), PLAIN) == [2, 1]
    ordered = PLAIN.model_copy(update={"order": "given"})
    assert best_rows(scores, np.full(2, 0.9), ordered) == [2, 6]
    scores[1, 1] = 0.9  # what is clearly seen is believed
    assert best_rows(scores, np.full(2, 0.9), ordered) == [2, 1]


def test_rivals_keep_apart_and_the_more_certain_one_stays():
    scores = np.full((2, 30), -0.5, np.float32)
    scores[0, 5], scores[1, 5], scores[1, 20] = 0.9, 0.55, 0.5
    assert best_rows(scores, np.array([0.9, 0.9]), PLAIN) == [5, 5]
    found = estimate_posterior(scores, np.array([0.9, 0.9]), AlignerSettings())
    assert found.best_rows.tolist() == [5, 20]
    assert found.p_shown.tolist() == [0.9, 0.9]


def test_a_dependency_moves_what_must_come_later():
    scores = np.full((3, 20), -0.5, np.float32)
    scores[0, 10] = 0.9
    scores[1, [4, 15]] = scores[2, [4, 15]] = 0.5, 0.45
    before = np.full((3, 3), 0.5)
    before[0, 1], before[1, 0] = 0.99, 0.01
    assert best_rows(scores, np.full(3, 0.9), PLAIN) == [10, 4, 4]
    found = best_rows(scores, np.full(3, 0.9), PLAIN, order_probabilities=before)
    assert found == [10, 15, 4]


def test_when_it_is_said_settles_what_looks_alike():
    scores = np.full((1, 20), -0.5, np.float32)
    scores[0, [3, 15]] = 0.5
    prior = np.full((1, 20), 0.02)
    prior[0, 14] = prior[0, 15] = 0.3
    assert best_rows(scores, np.array([0.5]), prior=prior) == [15]
    assert best_rows(scores, np.array([0.5]), AlignerSettings(speech=0.0), prior=prior) == [3]


def test_texts_in_no_order_may_stand_in_any():
    chance = np.random.default_rng(2)
    scores = chance.uniform(-0.5, 0.5, (5, 40)).astype(np.float32)
    shown = chance.uniform(0.2, 0.9, 5)
    turn = [3, 0, 4, 1, 2]
    turned = chances(scores[turn], shown[turn])
    np.testing.assert_allclose(turned, chances(scores, shown)[turn], atol=1e-12)


def test_chances_stay_chances():
    chance = np.random.default_rng(0)
    at, shown = chance.dirichlet(np.ones(25), size=6), chance.uniform(0.2, 0.9, 6)
    for rows in (
        penalize_overlapping_texts(at, shown, 2.0, 8),
        penalize_unlikely_order(at, shown, np.full((6, 6), 0.9)),
    ):
        assert (rows >= 0).all()
        np.testing.assert_allclose(rows.sum(axis=1), 1.0)


def test_window_sums_end_where_the_video_ends():
    assert sum_windows(np.array([[1.0, 2.0, 3.0, 4.0]]), 3).tolist() == [[3.0, 6.0, 9.0, 7.0]]
    assert sum_windows(np.array([[1.0, 2.0]]), 8).tolist() == [[3.0, 3.0]]


def test_no_text_and_one_text_are_fine():
    ordered = AlignerSettings(order="given")
    assert chances(np.zeros((0, 5), np.float32), np.zeros(0), ordered).shape == (0, 5)
    assert best_rows(np.zeros((1, 1), np.float32), np.ones(1), ordered) == [0]


@pytest.mark.parametrize(
    ("scores", "shown", "before", "reason"),
    [
        (np.zeros((2, 0)), np.zeros(2), None, "with a row at least"),
        (np.full((2, 3), np.nan), np.zeros(2), None, "scores hold NaN"),
        (np.zeros((2, 3)), np.zeros(3), None, "shown must be"),
        (np.zeros((2, 3)), np.array([0.5, np.nan]), None, "shown holds chances outside"),
        (np.zeros((2, 3)), np.zeros(2), np.zeros((2, 3)), "before must be"),
        (np.zeros((2, 3)), np.zeros(2), np.full((2, 2), 2.0), "before holds chances outside"),
    ],
)
def test_scores_of_a_wrong_shape_are_refused_with_the_reason(scores, shown, before, reason):
    with pytest.raises(ShapeError, match=reason):
        estimate_posterior(scores, shown, order_probabilities=before)


def test_order_costs_nothing_between_texts_that_are_both_said():
    scores = np.zeros((3, 6), np.float32)
    scores[[0, 1, 2], [4, 1, 0]] = 0.3  # shown against their order
    shown, given = np.full(3, 0.9), AlignerSettings(order="given", compete=0.0)
    alone = given.model_copy(update={"order": "none"})
    prior = np.full((3, 6), 1 / 6)
    prior[:2] = [[0.1, 0.1, 0.1, 0.1, 0.5, 0.1], [0.1, 0.5, 0.1, 0.1, 0.1, 0.1]]
    free, ordered = (chances(scores, shown, how, prior=prior) for how in (alone, given))
    assert free[0, 4] - ordered[0, 4] < 0.1 < free[2, 0] - ordered[2, 0]  # nobody says the third
    prior[2] = [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]
    free, ordered = (chances(scores, shown, how, prior=prior) for how in (alone, given))
    np.testing.assert_allclose(free, ordered, atol=1e-9)
    ones = np.ones((3, 3))
    before = 0.5 * ones + 0.4 * np.triu(ones, 1) - 0.4 * np.tril(ones, -1)
    believed = chances(scores, shown, alone, prior=prior, order_probabilities=before)
    np.testing.assert_allclose(believed, free, atol=1e-9)
