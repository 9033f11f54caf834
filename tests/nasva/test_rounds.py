import math

import numpy as np
import pytest

from stepline.nasva.pseudo_labels import (
    alignable_fraction,
    fraction_inside,
    label_shift,
    labelled_fraction,
    teacher_agreement,
)
from stepline.records import Span

BEFORE = ((Span(0.0, 4.0), None, Span(10.0, 14.0)),)
AFTER = ((Span(2.0, 6.0), Span(0.0, 1.0), Span(10.0, 14.0)),)


def test_kept_is_the_share_of_texts_with_a_label():
    assert labelled_fraction(BEFORE) == pytest.approx(2 / 3)
    assert labelled_fraction(()) == 0.0


def test_moved_is_told_of_texts_with_both_labels():
    seconds, iou = label_shift(BEFORE, AFTER)
    assert seconds == 1.0  # the median of 2 and 0
    assert iou == pytest.approx((2 / 6 + 1) / 2)
    assert label_shift(BEFORE, ((None, Span(0.0, 1.0), None),)) == (None, None)


def test_two_rounds_agree_where_their_best_seconds_are_near():
    one, other = np.eye(6, dtype=np.float32)[[0, 1, 2]], np.eye(6, dtype=np.float32)[[0, 3, 5]]
    empty = np.zeros((0, 6), dtype=np.float32)
    assert teacher_agreement([one, empty], [other, empty], [2.0, 2.0]) == pytest.approx(2 / 3)
    assert teacher_agreement([empty], [empty], [2.0]) is None


def test_alignable_are_those_that_score_above_foreign_texts():
    null = np.linspace(0.0, 0.2, 101, dtype=np.float32)[:, None]  # median 0.1
    half_shown = np.concatenate([null[::2], np.full((51, 1), 0.9, np.float32)])  # half of the texts score as null ones
    assert alignable_fraction([half_shown], [null]) == pytest.approx(0.5, abs=0.02)
    assert alignable_fraction([null], [null]) == pytest.approx(0.0, abs=0.02)
    assert alignable_fraction([null + 1], [null]) == 1.0
    assert alignable_fraction([], []) is None


def test_a_label_is_inside_when_half_of_it_is():
    truth = np.zeros((3, 10), dtype=bool)
    truth[0, 2:6] = True
    truth[1, 9] = True
    inside, shown = fraction_inside([(Span(0.0, 4.0), Span(0.0, 4.0), Span(0.0, 4.0))], [truth], [1.0])
    assert (inside, shown) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
    assert math.isnan(fraction_inside([(None, None, None)], [truth], [1.0])[0])
