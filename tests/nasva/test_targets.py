import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.nasva.dataset import label_matrix, labelled_sample
from stepline.records import FeatureSequence, Span


def features(seconds=10, rate=1.0):
    return FeatureSequence(np.ones((int(seconds * rate), 3), np.float32), rate, "test")


def rows(span, rule, **shape):
    return np.flatnonzero(label_matrix([[Span(*span)]], features(**shape), rule)[0]).tolist()


@pytest.mark.parametrize(
    ("span", "covering", "inclusive"),
    [
        ((1.2, 3.7), [1, 2, 3], [2, 3]),
        ((0.4, 0.9), [0], []),
        ((0.0, 8.0), [0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 4, 5, 6, 7, 8]),
        ((8.5, 14.0), [8, 9], [9]),
        ((2.0, 2.0000001), [2], [2]),
        ((12.0, 15.0), [], []),
    ],
)
def test_the_rules_differ_at_the_ends(span, covering, inclusive):
    assert rows(span, "covering") == covering
    assert rows(span, "inclusive") == inclusive


def test_rows_follow_the_rate_of_the_features():
    assert rows((1.0, 2.0), "covering", rate=2.0) == [2, 3]
    assert rows((1.0, 2.0), "inclusive", rate=2.0) == [2, 3, 4]


def test_a_text_shown_twice_has_both_and_one_shown_nowhere_has_none():
    labels = label_matrix([[Span(0.0, 1.0), Span(4.0, 5.0)], []], features(6))
    assert labels.astype(int).tolist() == [[1, 0, 0, 0, 1, 0], [0] * 6]


def test_a_sample_needs_spans_for_every_text():
    made = labelled_sample("v", features(), np.ones((1, 3), np.float32), [[Span(0.0, 2.0)]], ordered=True)
    assert made.positive.sum() == 2
    with pytest.raises(ShapeError, match="v: 2 text vectors need as many lists of spans, not 1"):
        labelled_sample("v", features(), np.ones((2, 3), np.float32), [[]], ordered=True)
