import numpy as np
import pytest

from stepline.evaluate import bootstrap
from stepline.evaluate.bootstrap import bootstrap_scores, percentile_interval, point_estimate


def ratio_of(hits, totals):
    return bootstrap.ratio_statistic(np.array(hits, float), np.array(totals, float))


def test_a_ratio_pools_its_videos_and_chosen_ones_are_scored_as_if_there_were_no_others():
    assert point_estimate(ratio_of([1, 0, 3], [2, 2, 4])) == 0.5
    chosen = bootstrap.group_by_source(ratio_of([1, 0, 3], [1, 5, 4]), ["c", None, "a"])
    assert point_estimate(chosen) == point_estimate(ratio_of([3, 1], [4, 1]))
    # nothing to score has no interval
    nothing = bootstrap_scores({"r": ratio_of([], [])}, draws=3)["r"]
    assert np.isnan(percentile_interval(nothing)).all()


@pytest.mark.parametrize(
    ("hits", "totals", "groups", "sets", "mean"),
    [
        # groups are averaged without weights and empty ones left out; test sets are averaged
        ([1, 1, 0], [1, 3, 0], [0, 1, 2], [[True] * 3], (1 + 1 / 3) / 2),
        ([1, 0], [1, 1], [0, 0], [[True, False], [True, True]], (1 + 0.5) / 2),
    ],
)
def test_groups_and_test_sets_are_averaged(hits, totals, groups, sets, mean):
    counts = (np.array(hits, float), np.array(totals, float), np.array(groups))
    grouped = bootstrap.grouped_ratio_statistic(*counts, np.array(sets))
    assert point_estimate(grouped) == pytest.approx(mean)


def test_a_draw_holds_as_many_videos_as_there_are():
    drawn = bootstrap.draw_videos(7, 100, np.random.default_rng(0))
    assert (drawn.sum(axis=1) == 7).all()
    assert drawn.std(axis=0).min() > 0


def test_the_interval_is_that_of_scoring_resampled_videos_one_by_one():
    hits, totals = np.array([3.0, 0, 2, 5]), np.array([4.0, 2, 2, 9])
    generator = np.random.default_rng(5)
    slow = []
    for _ in range(200):
        chosen = generator.integers(4, size=(1, 4))[0]
        slow.append(hits[chosen].sum() / totals[chosen].sum())
    ratio = bootstrap.ratio_statistic(hits, totals)
    fast = percentile_interval(bootstrap_scores({"r": ratio}, draws=200, seed=5)["r"])
    assert fast == pytest.approx(np.percentile(slow, [2.5, 97.5]), abs=0.06)


def test_the_interval_of_a_mean_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(1)
    covered = 0
    for trial in range(200):
        values = (generator.random(60) < 0.3).astype(float)
        mean = {"m": ratio_of(values, np.ones(60))}
        low, high = percentile_interval(bootstrap_scores(mean, draws=300, seed=trial)["m"])
        covered += low <= 0.3 <= high
    assert 0.88 <= covered / 200 <= 0.99


def test_a_seed_decides_the_draws_and_blocks_do_not(monkeypatch):
    made = {"r": ratio_of([1, 0, 1, 1], [1, 1, 1, 2])}
    whole = bootstrap_scores(made, draws=30, seed=3)["r"]
    assert (bootstrap_scores(made, draws=30, seed=3)["r"] == whole).all()
    assert (bootstrap_scores(made, draws=30, seed=4)["r"] != whole).any()
    monkeypatch.setattr(bootstrap, "MAX_WEIGHTS", 8)
    assert (bootstrap_scores(made, draws=30, seed=3)["r"] == whole).all()
