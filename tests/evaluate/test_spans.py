import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepline.errors import DatasetError
from stepline.evaluate.temporal_grounding import THRESHOLDS, as_spans, grounding_fit, hit, overlap, segmentation_fit

SECONDS = st.floats(-1e6, 1e6)
ODD = st.one_of(SECONDS, st.just(float("nan")), st.just(float("inf")), st.just(-1.0))


def test_overlap_is_intersection_over_union():
    assert overlap(np.array([[0.0, 10], [20, 30]]), np.array([[5.0, 15]])).tolist() == [[1 / 3], [0.0]]


def test_spans_that_cover_nothing_overlap_nothing():
    odd = np.array([[5.0, 5], [9, 2]])
    assert overlap(odd, np.array([[0.0, 10], [5, 5]])).tolist() == [[0, 0], [0, 0]]


@given(st.lists(st.tuples(ODD, ODD), max_size=6), st.lists(st.tuples(SECONDS, SECONDS), max_size=6))
def test_any_numbers_give_an_overlap_in_0_to_1_or_an_error(first, second):
    try:
        table = overlap(as_spans(first), as_spans(second))
    except DatasetError as error:
        assert "NaN or infinity" in str(error)
        assert not np.isfinite(np.array(first)).all()
        return
    assert table.shape == (len(first), len(second))
    assert ((table >= 0) & (table <= 1)).all()


def test_any_instance_counts_and_a_text_that_was_not_placed_is_wrong():
    fit = grounding_fit([[0, 10], None, [100, 110]], [[[50, 60], [0, 10]], [[0, 5]], [[100, 120]]])
    assert fit.overlaps.tolist() == [1.0, 0.0, 0.5]
    assert fit.placed == 2
    assert [fit.found(threshold) for threshold in THRESHOLDS] == [2, 2, 2, 1]


def test_one_found_span_may_serve_several_references():
    fit = segmentation_fit([[0, 10]], [[0, 5], [5, 10], [20, 30]])
    assert fit.overlaps.tolist() == [0.5, 0.5, 0.0]


def test_perfect_spans_score_1_and_none_score_0():
    truth = [[0.0, 4.5], [7, 9]]
    assert segmentation_fit(truth, truth).overlaps.tolist() == [1, 1]
    assert segmentation_fit([], truth).overlaps.tolist() == [0, 0]


def test_a_second_hits_the_start_of_an_instance_and_its_end_only_when_closed():
    spans = np.array([[2.0, 4], [8, 9]])
    seconds = (1.99, 2, 4, 5, 9)
    assert [hit(t, spans) for t in seconds] == [False, True, False, False, False]
    assert [hit(t, spans, closed=True) for t in seconds] == [False, True, True, False, True]


@pytest.mark.parametrize("spans", [[[1]], [1, 2], [["a", "b"]], [[1, 2, 3]], [[1, 2], [3]], [[None, 1]]])
def test_what_is_no_pair_of_seconds_is_an_error(spans):
    with pytest.raises(DatasetError):
        as_spans(spans)


def test_lengths_that_differ_are_an_error():
    with pytest.raises(DatasetError, match="one, or null, a text"):
        grounding_fit([[0, 1]], [])
    with pytest.raises(DatasetError, match="no reference instance"):
        grounding_fit([[0, 1]], [[]])
