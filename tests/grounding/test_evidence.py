"""Evidence of the picture: contrasted, kept inside shots, and weighed by what it is worth."""

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.grounding import evidence
from stepline.grounding.said_to_shown import load_prior
from stepline.records import FeatureSequence, Span


def features(values, rate=1.0):
    return FeatureSequence(np.array(values, np.float32), rate, "test")


def test_similarity_is_the_cosine_of_each_step_and_second():
    seen = features([[2.0, 0.0], [1.0, 1.0]])
    scores = evidence.similarity(seen, np.array([[0.0, 3.0]], np.float32), 2)
    np.testing.assert_allclose(scores, [[0.0, np.sqrt(0.5)]])


def test_seconds_average_their_rows_and_miss_where_there_are_none():
    means = evidence.mean_by_second(features([[1.0], [3.0], [5.0]], rate=2.0), 3)
    np.testing.assert_array_equal(means, [[2.0], [5.0], [np.nan]])


def test_vectors_of_another_width_are_refused():
    said = r"step vectors must be \(K, 2\) for features of 'test', not \(1, 3\)"
    with pytest.raises(ShapeError, match=said):
        evidence.similarity(features([[1.0, 0.0]]), np.ones((1, 3), np.float32), 1)


def test_contrast_removes_what_a_step_has_everywhere_and_what_a_second_has_for_all():
    # row means 2 and 5 go, then the column means; what is left is +-1, already of unit spread
    scores = np.array([[3.0, 1.0], [4.0, 6.0]])
    np.testing.assert_allclose(evidence.center_similarity(scores), [[1, -1], [-1, 1]])


def test_what_looks_the_same_throughout_and_missing_seconds_are_not_evidence():
    assert not evidence.center_similarity(np.full((3, 10), 0.4)).any()
    scores = np.array([[3.0, 1.0, np.nan], [4.0, 6.0, np.nan]])
    assert evidence.center_similarity(scores)[:, 2].tolist() == [0, 0]


def test_shots_cover_every_second_once():
    shots = evidence.shot_slices((2.2, 2.4, 5.0, 9.9), 10)
    assert shots == [slice(0, 2), slice(2, 5), slice(5, 10)]
    assert evidence.shot_slices((), 3) == [slice(0, 3)]


def test_a_bayes_factor_compares_the_said_seconds_with_the_average():
    # exp(ln 3) at the said second, 1 elsewhere: 3 / ((3 + 1 + 1) / 3)
    prior, z = np.array([[1.0, 0.0, 0.0]]), np.array([[np.log(3), 0.0, 0.0]])
    assert evidence.log_bayes_factor(prior, z) == pytest.approx(np.log(9 / 5))


def planted(agrees):
    """Return a prior (6, 60) and evidence of noise plus `agrees` where the steps are said."""
    said = [Span(8.0 * k + 4, 8.0 * k + 8) for k in range(6)]
    prior = np.array([load_prior().distribution([span], 60) for span in said])
    z = np.random.default_rng(7).normal(size=(6, 60))
    for row, span in zip(z, said, strict=True):
        row[int(span.start) : int(span.end)] += agrees
    return prior, z


def test_evidence_that_agrees_with_the_speech_earns_weight_and_must_earn_its_penalty():
    prior, z = planted(agrees=2.0)
    weights = [evidence.fit_weight(prior, z, penalty, 3.0) for penalty in (0.0, 1.0, 4.0, 1000.0)]
    assert weights == sorted(weights, reverse=True)
    assert weights[1] >= 0.5
    assert weights[-1] == 0.0


@pytest.mark.parametrize("agrees", [0.0, -2.0])
def test_evidence_that_does_not_agree_weighs_nothing(agrees):
    prior, z = planted(agrees)
    assert evidence.fit_weight(prior, z, 1.0, 3.0) == 0.0
