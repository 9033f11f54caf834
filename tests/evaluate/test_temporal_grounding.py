import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from metric_cases import segments, values

from stepline.errors import DatasetError
from stepline.evaluate.benchmarks import evaluate
from stepline.evaluate.span_overlaps import (
    IOU_THRESHOLDS,
    counts_at_least,
    grounding_overlaps,
    is_inside_any,
    span_array,
    temporal_iou,
)

SPANS = [[0, 10], [20, 40], [50, 60]]
REFERENCE = {
    "a": {"duration": 100, "timestamps": SPANS, "sentences": ["cut", "stir", "cut"]},
    "b": {"duration": 50, "timestamps": [[5, 6]], "sentences": ["pour"]},
}
PERFECT = segments(REFERENCE)


@pytest.fixture
def run(tmp_path):
    (tmp_path / "yc2_val.json").write_text(json.dumps(REFERENCE))

    def scored(tree, convention="grounding"):
        (tmp_path / "p.json").write_text(json.dumps(tree))
        files = (tmp_path / "p.json", tmp_path / "yc2_val.json")
        return evaluate("youcook2", *files, convention=convention)

    return scored


@pytest.mark.parametrize("convention", ["grounding", "segmentation"])
def test_perfect_is_1_and_empty_is_0_and_every_missing_id_is_listed(run, convention):
    assert set(values(run(PERFECT, convention)).values()) == {1.0}
    for tree, missing in (({"a": [], "b": []}, ()), ({"a": []}, ("b",)), ({}, ("a", "b"))):
        found = run(tree, convention)
        assert set(values(found).values()) == {0.0}
        assert found.missing == missing


def test_repeated_texts_are_matched_in_order(run):
    swapped = run({"a": [[50, 60, "cut"], [0, 10, "CUT "]], "b": []})
    assert values(swapped)["R@1"] == 0
    assert values(run({"a": [[0, 10, "cut"], [50, 60, "cut"]], "b": []}))["R@1"] == 0.5


def test_the_best_scored_of_several_is_taken(run):
    rows = [
        {"start": 0, "end": 4, "text": "pour", "score": 0.2},
        {"start": 5, "end": 6, "text": "pour", "score": 0.9},
    ]
    assert values(run({"b": rows}))["R@1"] == 0.25


def test_seconds_are_given_by_row(run):
    assert values(run({"a": [5, None, 59], "b": {"0": 5.5}})) == {"R@1": 0.75}
    # with and without PDVC's prefix
    assert values(run({"v_a": [5, 30, 55], "b": [5.5]}))["R@1"] == 1


def test_seconds_for_rows_that_are_not_there_are_reported_and_never_a_silent_zero(run):
    found = run({"a": {"0": 5, "7": 1}, "b": {"0": 5.5}})
    assert "1 of 3 seconds are for rows that the reference does not hold" in found.notes
    assert values(found)["R@1"] == 0.5
    for seconds, said in (
        ({"row 0": 5}, "no key is the id of a row"),
        ([5], "rows of the reference"),
        ([5, 30, 55, 1], "4 values for 3 rows"),
        ({"0": float("nan")}, "finite"),
    ):
        with pytest.raises(DatasetError, match=said):
            run({"a": seconds, "b": []})


def test_segments_whose_text_the_reference_lacks_are_counted(run):
    found = run({"a": [[0, 10, "cut"], [20, 40, "blend"]], "zz": [[0, 1, "x"]]})
    said = "1 of 2 predicted segments repeat no text of the reference, so place nothing"
    assert said in found.notes
    assert run(PERFECT).notes == ()


def test_coins_steps_go_by_their_own_ids(tmp_path):
    rows = [
        {"id": "212", "label": "cut", "segment": [0, 10]},
        {"id": "214", "label": "fry", "segment": [20, 30]},
    ]
    video = {"class": "Cook", "subset": "testing", "duration": 60, "annotation": rows}
    (tmp_path / "COIN.json").write_text(json.dumps({"database": {"a": video}}))
    (tmp_path / "p.json").write_text(json.dumps({"a": {"212": 5, "214": 50}}))
    assert values(evaluate("coin", tmp_path / "p.json", tmp_path))["R@1"] == 0.5
    (tmp_path / "p.json").write_text(json.dumps({"a": [5, 25]}))
    with pytest.raises(DatasetError, match=r"ids of their own; give \{step id: second\}"):
        evaluate("coin", tmp_path / "p.json", tmp_path)


def test_a_found_span_may_serve_several_and_precision_shows_the_rest(run):
    found = values(run({"a": [[0, 40, "x"], [90, 95, "y"]]}, convention="segmentation"))
    assert found["Recall@IoU 0.1"] == 0.5
    assert found["Recall@IoU 0.5"] == 0.25
    assert found["Precision@IoU 0.5"] == 0.5
    assert found["mean IoU"] == pytest.approx((0.25 + 0.5) / 4)

    with pytest.raises(DatasetError, match="no id is in the reference"):
        run({"x": [[0, 1, "cut"]]})


SECOND = st.one_of(st.floats(-1e3, 1e3), st.integers(-5, 200), st.sampled_from([-1.0, 0.0, 1e9]))
TEXT = st.sampled_from(["cut", "stir", "", "  CUT", "\u2028", "é" * 200])


FIXTURE_FITS = [HealthCheck.function_scoped_fixture]


@settings(suppress_health_check=FIXTURE_FITS, max_examples=60, deadline=None)
@given(
    rows=st.dictionaries(
        st.sampled_from(["a", "b", "zz"]), st.lists(st.tuples(SECOND, SECOND, TEXT), max_size=6)
    ),
    convention=st.sampled_from(["grounding", "segmentation"]),
)
def test_odd_segments_give_a_defined_score_or_a_clear_error(run, rows, convention):
    try:
        found = run(rows, convention=convention)
    except DatasetError as error:
        assert "\n" not in str(error)
        return
    assert all(0 <= value <= 1 for value in values(found).values())


SECONDS = st.floats(-1e6, 1e6)
ODD = st.one_of(SECONDS, st.just(float("nan")), st.just(float("inf")), st.just(-1.0))


def test_overlap_is_intersection_over_union_and_spans_that_cover_nothing_overlap_nothing():
    first, second = np.array([[0.0, 10], [20, 30]]), np.array([[5.0, 15]])
    assert temporal_iou(first, second).tolist() == [[1 / 3], [0.0]]
    odd = np.array([[5.0, 5], [9, 2]])
    assert temporal_iou(odd, np.array([[0.0, 10], [5, 5]])).tolist() == [[0, 0], [0, 0]]


@given(st.lists(st.tuples(ODD, ODD), max_size=6), st.lists(st.tuples(SECONDS, SECONDS), max_size=6))
def test_any_numbers_give_an_overlap_in_0_to_1_or_an_error(first, second):
    try:
        table = temporal_iou(span_array(first), span_array(second))
    except DatasetError as error:
        assert "NaN or infinity" in str(error)
        assert not np.isfinite(np.array(first)).all()
        return
    assert table.shape == (len(first), len(second))
    assert ((table >= 0) & (table <= 1)).all()


def test_any_instance_counts_and_a_text_that_was_not_placed_is_wrong():
    instances = [[[50, 60], [0, 10]], [[0, 5]], [[100, 120]]]
    fit = grounding_overlaps([[0, 10], None, [100, 110]], [*map(np.array, instances)])
    assert fit.tolist() == [1.0, 0.0, 0.5]
    assert [counts_at_least(threshold, [fit]) for threshold in IOU_THRESHOLDS] == [2, 2, 2, 1]


def test_a_second_hits_the_start_of_an_instance_and_its_end_only_when_closed():
    spans = np.array([[2.0, 4], [8, 9]])
    seconds = (1.99, 2, 4, 5, 9)
    for closed, inside in ((False, {2}), (True, {2, 4, 9})):
        assert {t for t in seconds if is_inside_any(t, spans, closed=closed)} == inside
