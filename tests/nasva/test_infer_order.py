import itertools

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.nasva.align import compete, ordered_posterior, posterior, prefer_order, window_sums
from stepline.nasva.settings import AlignerSettings

PLAIN = AlignerSettings(compete=0.0)


def drawn(texts=3, rows=4, seed=0):
    chance = np.random.default_rng(seed)
    at = chance.dirichlet(np.ones(rows), size=texts)
    return at, chance.uniform(0.2, 0.9, texts)


def by_hand(at, shown, cost):
    """P(x_k = t) and P(none), over every way to place all texts."""
    texts, rows = at.shape
    held, none = np.zeros((texts, rows)), np.zeros(texts)
    for ways in itertools.product(range(rows + 1), repeat=texts):
        weight, last = 1.0, -1
        for k, t in enumerate(ways):
            weight *= 1 - shown[k] if t == rows else shown[k] * at[k, t]
            if t < rows:
                weight *= np.exp(-cost) if t < last else 1.0
                last = t
        for k, t in enumerate(ways):
            if t == rows:
                none[k] += weight
            else:
                held[k, t] += weight
    whole = held.sum(axis=1) + none
    return held / whole[:, None], none / whole


def test_the_chain_gives_the_sums_over_all_ways():
    at, shown = drawn()
    held, none = by_hand(at, shown, 1.5)
    found = ordered_posterior(at, shown, 1.5)
    np.testing.assert_allclose(found.at, held / held.sum(axis=1, keepdims=True), atol=1e-9)
    _, alike = by_hand(np.full(at.shape, 1 / 4), shown, 1.5)
    odds = (1 - none) / none / ((1 - alike) / alike) * shown / (1 - shown)
    np.testing.assert_allclose(found.shown, odds / (1 + odds), atol=1e-9)


def test_order_settles_what_the_pictures_leave_open():
    scores = np.full((2, 9), -0.5, np.float32)
    scores[0, 2] = scores[1, [1, 6]] = 0.5
    assert posterior(scores, np.full(2, 0.9), PLAIN).best.tolist() == [2, 1]
    ordered = PLAIN.model_copy(update={"order": "given"})
    assert posterior(scores, np.full(2, 0.9), ordered).best.tolist() == [2, 6]
    scores[1, 1] = 0.9  # what is clearly seen is believed
    assert posterior(scores, np.full(2, 0.9), ordered).best.tolist() == [2, 1]


def test_with_nothing_seen_the_order_takes_nothing_from_shown():
    shown = np.array([0.3, 0.8, 0.6, 0.5])
    found = posterior(np.zeros((4, 30), np.float32), shown, PLAIN.model_copy(update={"order": "given"}))
    np.testing.assert_allclose(found.shown, shown, atol=1e-6)


def test_rivals_keep_apart_and_the_surer_one_stays():
    scores = np.full((2, 30), -0.5, np.float32)
    scores[0, 5], scores[1, 5], scores[1, 20] = 0.9, 0.55, 0.5
    assert posterior(scores, np.array([0.9, 0.9]), PLAIN).best.tolist() == [5, 5]
    found = posterior(scores, np.array([0.9, 0.9]), AlignerSettings())
    assert found.best.tolist() == [5, 20]
    assert found.shown.tolist() == [0.9, 0.9]


def test_a_dependency_moves_what_must_come_later():
    scores = np.full((3, 20), -0.5, np.float32)
    scores[0, 10] = 0.9
    scores[1, [4, 15]] = 0.5, 0.45
    scores[2, [4, 15]] = 0.5, 0.45
    before = np.full((3, 3), 0.5)
    before[0, 1], before[1, 0] = 0.99, 0.01
    assert posterior(scores, np.full(3, 0.9), PLAIN).best.tolist() == [10, 4, 4]
    assert posterior(scores, np.full(3, 0.9), PLAIN, before=before).best.tolist() == [10, 15, 4]


def test_when_it_is_said_settles_what_looks_alike():
    scores = np.full((1, 20), -0.5, np.float32)
    scores[0, [3, 15]] = 0.5
    prior = np.full((1, 20), 0.02)
    prior[0, 14] = prior[0, 15] = 0.3
    assert posterior(scores, np.array([0.5]), prior=prior).best.tolist() == [15]
    assert posterior(scores, np.array([0.5]), AlignerSettings(speech=0.0), prior=prior).best.tolist() == [3]


def test_texts_in_no_order_may_stand_in_any():
    chance = np.random.default_rng(2)
    scores = chance.uniform(-0.5, 0.5, (5, 40)).astype(np.float32)
    shown = chance.uniform(0.2, 0.9, 5)
    turn = [3, 0, 4, 1, 2]
    np.testing.assert_allclose(posterior(scores[turn], shown[turn]).at, posterior(scores, shown).at[turn], atol=1e-12)


def test_chances_stay_chances():
    at, shown = drawn(6, 25)
    for rows in (
        compete(at, shown, 2.0, 8),
        prefer_order(at, shown, np.full((6, 6), 0.9), 1.5),
        ordered_posterior(at, shown, 3.0).at,
    ):
        assert (rows >= 0).all()
        np.testing.assert_allclose(rows.sum(axis=1), 1.0)


def test_sums_stop_at_the_ends():
    assert window_sums(np.array([[1.0, 2.0, 3.0, 4.0]]), 3).tolist() == [[3.0, 6.0, 9.0, 7.0]]
    assert window_sums(np.array([[1.0, 2.0]]), 8).tolist() == [[3.0, 3.0]]


def test_no_text_and_one_text_are_fine():
    ordered = AlignerSettings(order="given")
    assert posterior(np.zeros((0, 5), np.float32), np.zeros(0), ordered).at.shape == (0, 5)
    assert posterior(np.zeros((1, 1), np.float32), np.ones(1), ordered).best.tolist() == [0]


@pytest.mark.parametrize(
    ("scores", "shown", "before", "reason"),
    [
        (np.zeros((2, 0)), np.zeros(2), None, "with a row at least"),
        (np.full((2, 3), np.nan), np.zeros(2), None, "scores hold NaN"),
        (np.zeros((2, 3)), np.zeros(3), None, "shown must be"),
        (np.zeros((2, 3)), np.array([0.5, np.nan]), None, "shown holds chances outside"),
        (np.zeros((2, 3)), np.zeros(2), np.zeros((2, 3)), "before must be"),
        (np.zeros((2, 3)), np.zeros(2), np.full((2, 2), 2.0), "before holds chances outside"),
    ],
)
def test_what_does_not_fit_is_named(scores, shown, before, reason):
    with pytest.raises(ShapeError, match=reason):
        posterior(scores, shown, before=before)
