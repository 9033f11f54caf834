"""The distance between words and pictures."""

import numpy as np
import pytest

from stepline.grounding.said_to_shown import ShownPrior, load_prior, signed_distance
from stepline.records import Span

# before: (1 + d)^-1, after: (1 + d / 2)^-1
SIMPLE = ShownPrior(1.0, 1.0, 2.0, 1.0, words=3.0, shown_median=8.0, shown_rate=0.3)


def test_distance_is_zero_inside_and_signed_outside():
    t = np.array([1.0, 3.0, 4.5, 6.0, 8.0])
    distances = signed_distance(t, np.float64(3.0), np.float64(6.0))
    assert distances.tolist() == [-2.0, 0.0, 0.0, 0.0, 2.0]


def test_the_curve_falls_as_a_power_of_the_distance():
    density = SIMPLE.density(np.array([0.0, -1.0, 2.0, -3.0]))
    np.testing.assert_allclose(density, [1, 1 / 2, 1 / 2, 1 / 4])


def test_a_sentence_gives_its_curve_normalised_over_the_video():
    # words at [1, 3) of four seconds; middles .5 1.5 2.5 3.5 lie at -.5 0 0 +.5: 2/3, 1, 1, 4/5
    p = SIMPLE.distribution([Span(1.0, 3.0)], 4)
    np.testing.assert_allclose(p, np.array([2 / 3, 1, 1, 4 / 5]) / (2 / 3 + 2 + 4 / 5))


def test_a_long_passage_averages_over_the_places_of_its_words():
    # 6 s hold two places of 3 s: starts at 1/4 and 3/4 of the 3 s to spare
    places = [Span(10.75, 13.75), Span(12.25, 15.25)]
    expected = np.mean([SIMPLE.distribution([place], 30) for place in places], axis=0)
    np.testing.assert_allclose(SIMPLE.distribution([Span(10.0, 16.0)], 30), expected)


def test_words_said_twice_count_both_times():
    first, second = Span(2.0, 4.0), Span(20.0, 22.0)
    mean = (SIMPLE.distribution([first], 30) + SIMPLE.distribution([second], 30)) / 2
    np.testing.assert_allclose(SIMPLE.distribution([first, second], 30), mean)


@pytest.mark.parametrize(
    "said", [Span(0.0, 0.2), Span(50.0, 60.0), Span(0.0, 60.0), Span(59.9, 60.0)]
)
def test_the_shipped_curve_is_a_distribution_with_heavy_tails(said):
    p = load_prior().distribution([said], 60)
    assert p.sum() == pytest.approx(1.0)
    # a Gaussian of the data's spread (12 s) would give less than 1e-6 at 50 s
    assert p.min() > 1e-3


def test_passages_count_as_likely_as_they_are_and_the_rest_is_anywhere():
    np.testing.assert_allclose(SIMPLE.distribution([], 4), [0.25] * 4)
    first, second = Span(2.0, 4.0), Span(20.0, 22.0)
    curves = [SIMPLE.distribution([span], 30) for span in (first, second)]
    expected = 0.6 * curves[0] + 0.1 * curves[1] + 0.3 / 30
    p = SIMPLE.distribution([first, second], 30, weights=np.array([0.6, 0.1]))
    np.testing.assert_allclose(p, expected)
    assert p.sum() == pytest.approx(1.0)
