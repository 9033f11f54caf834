import numpy as np
import pytest

from lab.nasva.matrices import relabel
from stepline.errors import ShapeError
from stepline.models.nasva.pseudo_labels import (
    compute_labelled_fraction,
    compute_threshold,
    find_agreement,
    find_best_scores,
    measure_label_shift,
    place_label,
)
from stepline.models.nasva.settings import RefineSettings
from stepline.numeric import cosine_matrix
from stepline.records import Span

ROW = np.array([0.1, 0.2, 0.6, 0.8, 0.6, 0.5, 0.1, 0.0], dtype=np.float32)  # its best second is 3


def peaks(*seconds, height=0.5, length=10):
    """Cosines of texts that each stand out at one second."""
    matrix = np.zeros((len(seconds), length), dtype=np.float32)
    matrix[np.arange(len(seconds)), seconds] = height
    return matrix


def test_the_best_second_starts_a_label_or_is_its_middle():
    at_start = RefineSettings(position="start", seconds=4.0)
    assert place_label(ROW, 1.0, at_start) == Span(3.0, 7.0)
    centered = at_start.model_copy(update={"position": "center"})
    assert place_label(ROW, 1.0, centered) == Span(1.5, 5.5)
    assert place_label(ROW, 2.0, at_start) == Span(1.5, 4.0)  # 8 rows at 2 a second are 4 s


def test_a_label_ends_with_the_video():
    last = np.array([0.0, 0.0, 0.0, 0.9], dtype=np.float32)
    assert place_label(last, 1.0, RefineSettings(position="start")) == Span(3.0, 4.0)
    assert place_label(last[::-1], 1.0, RefineSettings(position="center")) == Span(0.0, 4.0)


def test_a_label_grows_while_the_score_is_seven_tenths_of_the_peak():
    grown = RefineSettings(seconds=None)
    assert place_label(ROW, 1.0, grown) == Span(2.0, 5.0)  # 0.56 and more
    assert place_label(ROW, 1.0, grown.model_copy(update={"grow": 0.6})) == Span(2.0, 6.0)
    # a share of a score below 0 means nothing
    assert place_label(ROW - 1, 1.0, grown) == Span(3.0, 4.0)


def test_a_cosine_drops_texts_below_it_and_a_quantile_drops_a_share():
    matrix = peaks(1, 2, 3, 4) * np.array([[0.2], [0.4], [0.6], [0.8]], dtype=np.float32) * 2
    cosine = relabel([[matrix]], [1.0], RefineSettings(threshold=0.5, threshold_kind="cosine"))
    assert [span is not None for span in cosine[0]] == [False, False, True, True]
    share = relabel([[matrix]], [1.0], RefineSettings(threshold=0.25))
    assert [span is not None for span in share[0]] == [False, True, True, True]
    assert compute_threshold([find_best_scores(matrix)], RefineSettings(threshold=0.0)) == -np.inf


def test_teachers_are_averaged_and_may_have_to_agree():
    first, second = peaks(1, 8, height=0.5), peaks(3, 2, height=0.9)
    assert find_agreement([first, second], 2.0).tolist() == [True, False]
    both = RefineSettings(position="start", seconds=1.0, agree=None)
    assert relabel([[first], [second]], [1.0], both) == ((Span(3.0, 4.0), Span(2.0, 3.0)),)
    agreed = relabel([[first], [second]], [1.0], both.model_copy(update={"agree": 2.0}))
    assert agreed == ((Span(3.0, 4.0), None),)


def test_a_threshold_that_keeps_nothing_is_an_error_and_little_a_warning(caplog):
    high = RefineSettings(threshold=0.8, threshold_kind="cosine")
    with pytest.raises(ShapeError, match=r"0 of 2 texts keep a label.*threshold_kind=quantile"):
        relabel([[peaks(1, 2)]], [1.0], high)
    apart = RefineSettings(agree=2.0)
    with pytest.raises(ShapeError, match=r"0 of 2.*disagree about 2: raise rounds.refine.agree"):
        relabel([[peaks(1, 2)], [peaks(8, 9)]], [1.0], apart)
    with pytest.raises(ShapeError, match="0 of 0 texts"):
        relabel([[]], [], RefineSettings())
    with pytest.raises(ShapeError, match="at least one teacher"):
        relabel([], [1.0])
    # hardly anything is kept
    matrix = np.vstack([peaks(*[1] * 24, height=0.1), peaks(2, height=0.9)])
    kept = relabel([[matrix]], [1.0], RefineSettings(threshold=0.8, threshold_kind="cosine"))
    assert sum(span is not None for span in kept[0]) == 1
    assert "only 1 of 25 texts keep a label" in caplog.text


def test_a_video_without_texts_has_no_labels():
    labels = relabel([[np.zeros((0, 5), np.float32), peaks(1)]], [1.0, 1.0])
    assert labels == ((), (Span(0.0, 5.5),))


def test_likeness_is_the_cosine_and_0_of_nothing():
    video = np.array([[2.0, 0.0], [3.0, 4.0], [0.0, 0.0]], dtype=np.float32)
    found = cosine_matrix(np.array([[5.0, 0.0]], np.float32), video)
    np.testing.assert_allclose(found, [[1.0, 0.6, 0.0]], atol=1e-6)


BEFORE = ((Span(0.0, 4.0), None, Span(10.0, 14.0)),)
AFTER = ((Span(2.0, 6.0), Span(0.0, 1.0), Span(10.0, 14.0)),)


def test_kept_is_the_share_of_texts_with_a_label():
    assert compute_labelled_fraction(BEFORE) == pytest.approx(2 / 3)
    assert compute_labelled_fraction(()) == 0.0


def test_moved_is_reported_for_texts_with_both_labels():
    seconds, iou = measure_label_shift(BEFORE, AFTER)
    assert seconds == 1.0  # the median of 2 and 0
    assert iou == pytest.approx((2 / 6 + 1) / 2)
    assert measure_label_shift(BEFORE, ((None, Span(0.0, 1.0), None),)) == (None, None)
