import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from metric_cases import case, needs_cases, values

from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.bootstrap import grouped_ratio_statistic, point_estimate
from stepline.evaluate.crosstask import (
    count_hits,
    ordered_assignment,
    random_test_sets,
    shown_mask,
    step_costs,
)


def ordered_rows(cost):
    return ordered_assignment(cost).argmax(axis=0)


def cheapest_rows(cost):
    return cost.argmin(axis=0)


@needs_cases
@pytest.mark.parametrize(
    "row", [row for row in case("crosstask").get("dp", []) if row["exactly_one"]]
)
def test_the_ordered_way_equals_the_official_program(row):
    found = ordered_assignment(np.array(row["cost"]))
    assert found.astype(int).tolist() == row["assignment"]


@needs_cases
def test_annotations_become_the_official_rows():
    for row in case("crosstask")["read_assignment"]:
        lines = [line.split(",") for line in row["csv"].split()]
        spans = [[float(a), float(b)] for _, a, b in lines]
        shown = shown_mask(spans, [int(step) - 1 for step, _, _ in lines], row["T"], row["K"])
        assert shown.astype(int).tolist() == row["assignment"]


@needs_cases
@pytest.mark.parametrize("row", case("discretisation"))
def test_rows_are_floor_to_ceil_without_the_last(row):
    shown = shown_mask([[row["start"], row["end"]]], [0], row["T"], 1)[:, 0]
    assert shown.astype(int).tolist() == row["crosstask_mask(floor:ceil half-open)"]


@needs_cases
@pytest.mark.parametrize(("place", "name"), [(ordered_rows, "dp"), (cheapest_rows, "argmin")])
def test_recall_equals_the_official_one(place, name):
    facts = case("crosstask")["recall"]
    videos = [(task, video) for task, found in facts["videos"].items() for video in found.values()]
    rows = [
        count_hits(place(np.array(v["cost"])).astype(float), np.array(v["y_true"], bool))
        for _, v in videos
    ]
    tasks = list(facts["videos"])
    group = np.array([tasks.index(task) for task, _ in videos])
    numbers = (*np.array(rows).T, group)
    whole = grouped_ratio_statistic(*numbers, np.ones((1, len(videos)), dtype=bool))
    assert point_estimate(whole) == pytest.approx(facts[f"avg_recall_{name}"], abs=1e-12)
    for index, wanted in enumerate(facts[f"per_task_recall_{name}"].values()):
        of_task = grouped_ratio_statistic(*numbers, (group == index)[None])
        assert point_estimate(of_task) == pytest.approx(wanted, abs=1e-12)


@given(
    arrays.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=st.integers(-4, 4)
    )
)
def test_the_ordered_way_is_the_cheapest_of_all(cost):
    seconds, count = cost.shape
    if seconds < count:
        with pytest.raises(DatasetError, match="cannot be in order"):
            ordered_rows(cost)
        return
    rows = ordered_rows(cost)
    assert (np.diff(rows) > 0).all()
    ways = itertools.combinations(range(seconds), count)
    cheapest = min(sum(cost[t, k] for k, t in enumerate(way)) for way in ways)
    assert cost[rows, np.arange(count)].sum() == cheapest


def test_a_step_counts_once_and_unplaced_or_outside_seconds_are_wrong():
    shown = np.array([[1, 0, 1], [1, 0, 0], [0, 1, 0]], dtype=bool)
    assert count_hits(np.array([1.0, 0, np.nan]), shown) == (1, 3)
    assert count_hits(np.array([-1.0, 99, 0]), shown) == (1, 3)


def test_costs_are_minus_log_softmax_over_steps():
    assert step_costs(np.array([[0.0, np.log(3)]]))[0] == pytest.approx([np.log(4), np.log(4 / 3)])
    assert np.isfinite(step_costs(np.array([[1e5, -1e5]]))).all()


def test_test_sets_leave_30_videos_a_task_out_and_are_always_the_same():
    tasks = {"1": [f"v{n}" for n in range(50)], "2": [f"w{n}" for n in range(30)]}
    sets = random_test_sets(tasks)
    assert len(sets) == 20
    assert {len(chosen) for chosen in sets} == {20}  # task 2 has no more than 30 videos
    assert len(set(sets)) == 20
    assert random_test_sets(tasks) == sets
    assert random_test_sets({task: videos[::-1] for task, videos in tasks.items()}) == sets


@pytest.fixture
def release(tmp_path):
    """Two tasks; the second video of the first is kept for validation."""
    (tmp_path / "annotations").mkdir()
    tasks = "11\nMake A\nurl\n2\ncut,stir\n\n22\nMake B\nurl\n1\npour\n\n"
    (tmp_path / "tasks_primary.txt").write_text(tasks)
    (tmp_path / "videos_val.csv").write_text("11,bb,url\n")
    for name, rows in {
        "11_a_a": "1,2.5,3.5\n2,5,9\n",
        "11_bb": "1,0,9\n",
        "22_c": "1,7.2,7.8\n",
    }.items():
        (tmp_path / "annotations" / f"{name}.csv").write_text(rows)
    return tmp_path


def add_videos(release, task, count=40, rows="1,0,2\n"):
    for n in range(count):
        (release / "annotations" / f"{task}_n{n}.csv").write_text(rows)


def scored(release, tree, **options):
    (release / "p.json").write_text(json.dumps(tree))
    return evaluate("crosstask", release / "p.json", release, **options)


def test_perfect_is_1_and_empty_is_0(release):
    perfect = scored(release, {"11_a_a": [2.9, 8.99], "22": {"c": [7]}}, convention="each-all")
    assert perfect.videos == ("11_a_a", "22_c")
    assert values(perfect)["average R@1"] == 1
    empty = scored(release, {}, convention="each-all")
    assert values(empty)["average R@1"] == 0
    assert empty.missing == ("11_a_a", "22_c")


def test_scores_are_placed_by_themselves_or_in_order(release):
    rows = np.full((10, 2), -5.0)
    rows[8, 0], rows[3, 0], rows[5, 1], rows[9, 1] = 5, 4, 5, -5
    tree = {"11_a_a": rows.tolist(), "22_c": np.eye(10)[:, [7]].tolist()}
    found = values(scored(release, tree, convention="each-all"))
    assert found["average R@1"] == (0.5 + 1) / 2
    with pytest.raises(DatasetError, match="each-all"):
        scored(release, tree)  # no task has more than 30 videos


def test_seconds_cannot_be_put_in_order(release):
    for task in ("11", "22"):
        add_videos(release, task)
    with pytest.raises(DatasetError, match="scores, one row per second"):
        scored(release, {"22_c": [7]}, convention="ordered")


def test_officially_missing_videos_are_left_out(release):
    add_videos(release, 22)
    tree = {f"22_n{n}": [[1.0], [0.0]] for n in range(40)}
    official = scored(release, tree, convention="official")
    assert values(official)["average R@1, in order"] == 1
    assert len(official.missing) == 2
    assert values(scored(release, tree))["average R@1"] < 1


def test_the_wrong_number_of_steps_is_an_error(release):
    with pytest.raises(DatasetError, match="11_a_a"):
        scored(release, {"11_a_a": [1]}, convention="each-all")
    with pytest.raises(DatasetError, match="columns"):
        scored(release, {"11_a_a": [[1.0]]}, convention="each-all")


def test_steps_after_the_last_row_of_the_scores_are_missed_and_only_officially_left_out(release):
    add_videos(release, 11, rows="1,0,2\n2,5,9\n")
    tree = {f"11_n{n}": [[1.0, 0.0], [0.0, 1.0]] for n in range(40)}  # two rows of nine
    each = scored(release, tree, convention="each-all")
    assert each.statistics["average R@1"].items == 2 * 40 + 2 + 1
    assert values(each)["average R@1"] == pytest.approx((40 / 82 + 0) / 2)
    official = scored(release, tree, convention="official")
    assert values(official)["average R@1, in order"] == 1
