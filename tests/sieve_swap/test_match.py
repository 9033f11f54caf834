"""Monotone matching: worked by hand, and against every assignment there is."""

import itertools

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.sieve_swap.match import IDLE_SENTENCE, align_in_order


def test_the_best_order_wins_over_each_sentence_s_nearest():
    # Nearest alone: steps 1, 0, 2. In order, sentence 1 must not go back: idle (0) is worth more
    # than step 1 (-0.1).
    similarity = np.array([[0.2, 0.9, 0.1], [0.8, 0.5, 0.1], [0.1, 0.3, 0.9]], np.float32)
    assigned, gain = align_in_order(similarity, 0.6)
    assert assigned.tolist() == [1, IDLE_SENTENCE, 2]
    assert gain == pytest.approx(0.3 + 0.3)


def test_a_sentence_below_the_floor_is_idle():
    assert align_in_order(np.array([[0.5], [0.7]], np.float32), 0.6)[0].tolist() == [
        IDLE_SENTENCE,
        0,
    ]


def test_two_sentences_may_tell_one_step_and_steps_may_be_left_out():
    similarity = np.array([[0.9, 0.1, 0.1], [0.9, 0.1, 0.1], [0.1, 0.1, 0.9]], np.float32)
    assert align_in_order(similarity, 0.6)[0].tolist() == [0, 0, 2]


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_nothing_to_match_gains_nothing(shape):
    assigned, gain = align_in_order(np.zeros(shape, np.float32), 0.5)
    assert (assigned.tolist(), gain) == ([IDLE_SENTENCE] * shape[0], 0.0)


def test_a_vector_is_refused():
    with pytest.raises(ShapeError, match=r"\(sentences, steps\)"):
        align_in_order(np.zeros(3, np.float32), 0.5)


def test_no_assignment_in_order_gains_more():
    chance = np.random.default_rng(3)
    for _ in range(60):
        sentences, steps = chance.integers(1, 6), chance.integers(1, 5)
        similarity = chance.random((sentences, steps)).astype(np.float32)
        assigned, gain = align_in_order(similarity, 0.5)
        told = [step for step in assigned if step != IDLE_SENTENCE]
        assert told == sorted(told)
        assert gain == pytest.approx(worth(similarity, assigned))
        orders = itertools.product(range(IDLE_SENTENCE, steps), repeat=sentences)
        allowed = [
            order
            for order in orders
            if (told := [k for k in order if k != IDLE_SENTENCE]) == sorted(told)
        ]
        assert gain == pytest.approx(max(worth(similarity, order) for order in allowed))


def worth(similarity, assigned):
    return sum(
        float(similarity[row, step]) - 0.5
        for row, step in enumerate(assigned)
        if step != IDLE_SENTENCE
    )
