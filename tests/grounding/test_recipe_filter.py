"""Lines of a recipe are followed as they are shown: in order, skipped, repeated, out of order where
that is usual."""

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.grounding.recipe_filter import (
    RecipeFilter,
    begin_evidence,
    line_evidence,
    order_from_videos,
    standardised,
)
from stepline.grounding.settings import GroundSettings

RATE = np.full(5, 0.6)


def shown(order: list[int | None], seconds: int = 12, strength: float = 1.5) -> np.ndarray:
    """Return evidence (5, T): each entry is shown for so many seconds, None is a pause."""
    evidence = np.full((5, seconds * len(order)), -strength)
    for place, line in enumerate(order):
        if line is not None:
            evidence[line, place * seconds : (place + 1) * seconds] = strength
    return evidence


def follow(evidence: np.ndarray, **options: object) -> RecipeFilter:
    recipe = RecipeFilter(5, lag=30, **options)
    recipe.update(evidence, RATE)
    return recipe


def test_the_current_line_is_followed_and_the_next_one_reported():
    recipe = follow(shown([0, 1, 2]))
    state = recipe.state()
    assert state.line == 2
    assert state.next.argmax() == 3
    assert state.p_done.round(1).tolist() == [1, 1, 0, 0, 0]
    assert recipe.state(18).line == 1


def test_a_skipped_line_is_found():
    state = follow(shown([0, 1, 3])).state()
    assert state.line == 3
    assert state.skipped == (2,)


def test_a_line_that_is_done_again_is_followed_back():
    recipe = follow(shown([0, 1, None, 0]))
    assert recipe.state(18).line is None
    assert recipe.state().line == 0
    assert recipe.state().p_done[1] > 0.9


def test_a_pause_is_not_a_line_and_nothing_seen_shows_none():
    assert follow(shown([0, None])).state().line is None
    assert follow(np.zeros((5, 3))).state().line is None


def test_what_other_videos_show_decides_what_comes_next():
    usual = order_from_videos([[0, 3, 1, 2, 4]] * 20, 5)
    given, learned = follow(shown([0])), follow(shown([0]), before=usual)
    assert given.state().next.argmax() == 1
    assert learned.state().next.argmax() == 3
    assert follow(shown([0, 3]), before=usual).state().skipped == ()
    assert follow(shown([0, 3])).state().skipped == (1, 2)


def test_two_lines_that_look_alike_are_told_apart_by_their_order():
    evidence = shown([0, 1, 2])
    evidence[4] = np.maximum(evidence[4], evidence[2])  # the last line looks like the third
    assert follow(evidence).state().line == 2


@pytest.mark.parametrize("lag", [0, 3, 10])
def test_what_comes_later_than_the_lag_changes_no_answer(lag):
    evidence = shown([0, 1, 2])
    other = evidence.copy()
    other[:, 24:] = 0.0
    first, second = follow(evidence[:, :24]), follow(other)
    second.update(other[:, 20:24], RATE, start=20)
    assert np.allclose(first.state(lag).now, second.state(lag).now)


def test_the_smoothed_answer_is_that_of_all_paths():
    # Two lines in three seconds: every path is counted by hand, one state a second.
    settings = GroundSettings(typical=2.0)
    evidence = np.array([[1.0, -1.0, 0.5], [0.0, 2.0, -0.5]])
    recipe = RecipeFilter(2, settings, before=np.full((2, 2), 0.5), lag=3)
    recipe.update(evidence, np.ones(2))
    total = np.zeros((3, 3))
    for path in np.ndindex(3, 3, 3):
        chance, done, last = 1.0, set(), 2
        for second, line in enumerate(path):
            begun = done | {last} - {2}
            odds = [0.2 if k in begun else 1.0 for k in range(2)]
            leave, begin = (0.5, 0.5 * 0.3) if last < 2 else (1 / 25, 1 / 25)
            step = leave * 0.7 if last < 2 else 1 - 1 / 25
            step = begin * odds[line] / sum(odds) if line < 2 else step
            step += 0.5 if line == last < 2 else 0.0
            chance *= step * (np.exp(evidence[line, second]) if line < 2 else 1.0)
            done = done | ({last} if last < 2 and line != last else set())
            last = line
        for second, line in enumerate(path):
            total[line, second] += chance
    expected = total / total.sum(axis=0)
    found = np.stack([recipe.state(2 - second).now for second in range(3)], axis=1)
    assert np.allclose(found, expected[:2])


def test_seconds_that_are_no_longer_kept_cannot_be_taken_again():
    recipe = follow(shown([0, 1, 2, 3]))
    with pytest.raises(ShapeError, match="30 s kept"):
        recipe.update(np.zeros((5, 40)), RATE, start=8)
    with pytest.raises(ShapeError, match=r"must be \(5, 5\)"):
        RecipeFilter(5, before=np.zeros((4, 5)))
    with pytest.raises(ShapeError, match="at most 50"):
        RecipeFilter(51)


def test_a_line_that_is_said_begins_half_a_showing_before_its_middle():
    prior = np.full((2, 60), 1 / 60)
    prior[0] = np.exp(-np.abs(np.arange(60) - 20.0))
    prior[0] /= prior[0].sum()
    begins = begin_evidence(prior, np.array([True, False]))
    assert begins[0].argmax() == 18
    assert begins[0, 0] == -3
    assert not begins[1].any()
    recipe = RecipeFilter(2, before=np.full((2, 2), 0.5), lag=5)
    recipe.update(np.zeros((2, 20)), np.array([0.9, 0.3]), begins[:, :20])
    assert recipe.state().line == 0


def test_likeness_weighs_nothing_where_the_words_do_not_bear_it_out():
    prior, said = np.full((2, 40), 1e-3), np.array([True, True])
    prior[:, 10:14] = 0.24
    cosine = np.zeros((2, 40))
    cosine[:, 11:13] = 1.0
    assert line_evidence(prior, cosine, said, 0.5, GroundSettings())[0, 11] > 1
    assert not line_evidence(prior, cosine[:, ::-1], said, 0.5, GroundSettings()).any()
    assert not line_evidence(prior, cosine * np.nan, said, 0.5, GroundSettings()).any()


def test_similarity_is_given_in_deviations_from_the_usual_one():
    row = np.array([[0.1, 0.1, 0.3, np.nan]])
    assert standardised(row)[0].round(2).tolist() == [-0.71, -0.71, 1.41, 0.0]
    assert standardised(row, (0.1, 0.1))[0].round(1).tolist() == [0.0, 0.0, 2.0, 0.0]
    assert not standardised(np.ones((2, 5))).any()
