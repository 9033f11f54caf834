import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import case, needs_cases

from stepline.errors import DatasetError
from stepline.evaluate.bootstrap import bootstrap_scores, point_estimate
from stepline.evaluate.ranking import (
    average_precision_statistic,
    require_both_classes,
    roc_auc,
    roc_auc_statistic,
)


def average_precision(labels, scores):
    return point_estimate(average_precision_statistic(*require_both_classes(labels, scores), 1))


@needs_cases
def test_the_area_equals_scikit_learns_also_with_ties():
    for row in case("roc_auc")["cases"]:
        assert roc_auc(row["y"], row["score"]) == pytest.approx(row["auc"], abs=1e-12)


def test_precision_is_averaged_over_distinct_scores():
    # thresholds .9 (1 of 1 right), .5 (2 of 3 right): 1/2 * 1 + 1/2 * 2/3
    assert average_precision([1, 1, 0, 0], [0.9, 0.5, 0.5, 0.1]) == pytest.approx(0.5 + 1 / 3)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(-3, 3)), min_size=2, max_size=60))
def test_both_equal_the_definition_by_pairs_and_thresholds(items):
    labels, scores = zip(*items, strict=True)
    if len(set(labels)) < 2:
        with pytest.raises(DatasetError, match="undefined"):
            roc_auc(labels, scores)
        return
    positive = [s for y, s in items if y]
    negative = [s for y, s in items if not y]
    wins = sum((p > n) + (p == n) / 2 for p in positive for n in negative)
    assert roc_auc(labels, scores) == pytest.approx(wins / len(positive) / len(negative))
    gained = 0.0
    for threshold in sorted(set(scores), reverse=True):
        taken = [y for y, s in items if s >= threshold]
        new = sum(y for y, s in items if s == threshold) / len(positive)
        gained += new * sum(taken) / len(taken)
    assert average_precision(labels, scores) == pytest.approx(gained)


@pytest.mark.parametrize("score", [roc_auc, average_precision])
@pytest.mark.parametrize(
    ("labels", "scores", "reason"),
    [
        ([1, 1], [0.1, 0.2], "undefined"),
        ([], [], "undefined"),
        ([0, 1], [0.1, float("nan")], "NaN"),
        ([0, 1], [0.1, float("inf")], "infinite"),
        ([0, 2], [0.1, 0.2], "neither 0 nor 1"),
        ([0, 1], [0.1], "one score per label"),
    ],
)
def test_what_has_no_ranking_is_an_error(score, labels, scores, reason):
    with pytest.raises(DatasetError, match=reason):
        score(labels, scores)


@pytest.mark.parametrize(
    ("kind", "plain"),
    [(roc_auc_statistic, roc_auc), (average_precision_statistic, average_precision)],
)
def test_a_video_drawn_twice_counts_as_its_items_twice(kind, plain):
    labels, scores = np.array([1.0, 0, 1, 0, 0]), np.array([0.3, 0.3, 0.9, 0.1, 0.5])
    video = np.array([0, 0, 1, 1, 2])
    weights = np.array([[2.0, 1, 0]])
    twice = [0, 0, 1, 1, 2, 3]
    found = kind(labels, scores, video, 3).score(weights)[0]
    assert found == pytest.approx(plain(labels[twice], scores[twice]))


def test_a_draw_of_one_class_only_has_no_score():
    area = roc_auc_statistic(np.array([1.0, 0]), np.array([1.0, 0]), np.array([0, 1]), 2)
    assert point_estimate(area) == 1
    drawn = bootstrap_scores({"auc": area}, draws=50)["auc"]
    assert np.isnan(drawn).any()
    assert (drawn[~np.isnan(drawn)] == 1).all()
