import numpy as np
import pytest

from stepline.grounding.shots import (
    ShotUnits,
    action_log_odds,
    average_linkage,
    expected_inversions,
    matching_marginals,
    move_to_starts,
    split_shot,
)
from stepline.records import Span

APART = np.zeros((2, 2))


def test_one_step_and_one_shot_weigh_against_nothing():
    pairs, never = matching_marginals(np.array([[3.0]]), np.zeros((1, 1)))
    assert pairs[0, 0] == pytest.approx(0.75)  # 3 / (1 + 3)
    assert never[0] == pytest.approx(0.25)


def test_two_steps_share_one_shot_only_by_turns():
    """Weights 1: neither, the first, or the second, each a third."""
    pairs, never = matching_marginals(np.ones((2, 1)), APART)
    assert pairs[:, 0] == pytest.approx([1 / 3, 1 / 3])
    assert never == pytest.approx([2 / 3, 2 / 3])


def test_steps_of_one_sentence_do_not_keep_each_other_out():
    pairs, _ = matching_marginals(np.ones((2, 1)), np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert pairs[:, 0] == pytest.approx([0.5, 0.5])


def test_a_step_goes_elsewhere_when_its_shot_is_wanted_more():
    weight = np.array([[100.0, 0.1], [20.0, 10.0]])
    pairs, _ = matching_marginals(weight, APART)
    assert pairs.argmax(axis=1).tolist() == [0, 1]


def test_a_pair_out_of_order_counts_for_both_steps():
    pairs = np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    assert expected_inversions(pairs).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_the_shot_that_starts_with_the_words_takes_the_mass_near_them():
    units = ShotUnits(
        [slice(0, 10), slice(10, 20), slice(20, 30)], np.array([0.0, 10.0, 20.0]), np.zeros(3)
    )
    mass = np.array([[0.5, 0.4, 0.1]])
    out = move_to_starts(mass, [Span(9.0, 12.0)], units)
    assert out[0, 1] > 0.85  # starts 1 s after the first word, as shots do
    assert out[0, 2] == 0.1  # 8 s after the last word: far, untouched
    assert out.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(("length", "edges"), [(10, [0, 10]), (21, [0, 7, 14, 21])])
def test_long_shots_are_split_shot_of_about_seven_seconds(length, edges):
    parts = split_shot(slice(0, length))
    assert [part.start for part in parts] + [parts[-1].stop] == edges


@pytest.mark.parametrize("count", [2, 3, 30, 90])
@pytest.mark.parametrize("tied", [False, True])
def test_groups_by_average_linkage_are_those_of_scipy(count, tied):
    from scipy.cluster.hierarchy import fcluster, linkage

    points = np.random.default_rng(count).normal(size=(count, 3))
    points = points.round() if tied else points
    distances = np.abs(points[:, None] - points).sum(axis=2)
    for most in (0.0, 1.5, 3.0, 6.0):
        ours = average_linkage(distances, most)
        theirs = fcluster(linkage(points, "average", "cityblock"), most, "distance")
        assert len(set(zip(ours, theirs, strict=True))) == len(set(ours)) == len(set(theirs))


def test_a_face_at_the_camera_and_chat_speak_against_doing():
    seconds = np.zeros(9)
    face, told, chat = seconds.copy(), seconds.copy(), seconds.copy()
    face[:3], chat[1], told[7] = 1.0, 1.0, 1.0
    odds = action_log_odds(face, told, chat)
    # At 1: all three seconds with a face, chat in it, the step e**-1.5 away.
    assert odds[1] == pytest.approx(-3.6 + 1.3 * np.log((np.exp(-1.5) + 1) / 2) + 1.0)
    assert odds[7] == pytest.approx(1.3 * np.log(2 / (np.exp(-1.5) + 1)) + 1.0)
    assert np.isfinite(action_log_odds(np.full(9, np.nan), told, chat)).all()
