"""Answers weigh what they have proved to be worth, by numbers worked out by hand where there are
any."""

import numpy as np
import pytest

from stepline.grounding.vision_language.reliability import (
    RELIABILITY_GRID,
    ChoiceAnswer,
    answer_likelihood,
    expected_gain,
    highest_density,
    infer,
    most_likely_segments,
    sharpen,
)

SEGMENTS = 8


def sure(*best, sureness=0.8):
    """Return beliefs (K, M + 1) of steps that are each surely in one segment."""
    rows = np.full((len(best), SEGMENTS + 1), (1 - sureness) / SEGMENTS)
    for row, segment in zip(rows, best, strict=True):
        row[segment] = sureness
    return rows


def choice_answers(*answers, choices=tuple(range(SEGMENTS))):
    return [ChoiceAnswer(step, choices, answer) for step, answer in enumerate(answers)]


def test_the_likelihood_of_a_right_answer_is_r_and_what_guessing_adds():
    choice_answer = ChoiceAnswer(0, (2, 5, 7), 1)
    table = answer_likelihood(choice_answer, sure(0, 1), 3)  # (P + 1, R, G)
    r, even = int(np.abs(RELIABILITY_GRID - 0.5).argmin()), 0
    guess = 0.99 / 4 + 0.01 / 4
    assert table[5, r, even] == pytest.approx(
        RELIABILITY_GRID[r] + (1 - RELIABILITY_GRID[r]) * guess
    )
    assert (
        table[2, r, even] == table[-1, r, even] == pytest.approx((1 - RELIABILITY_GRID[r]) * guess)
    )


def test_none_is_right_of_what_is_not_shown_and_of_what_was_not_offered():
    table = answer_likelihood(ChoiceAnswer(0, (2, 5, 7), None), sure(0, 1), 3)[:, -1, 0]
    assert table[-1] == table[0] == table[1] > table[2] == table[5] == table[7]


def test_answers_are_a_distribution_whatever_the_truth_and_the_behaviour():
    choices = (4, 0, 6)
    answers = [ChoiceAnswer(1, choices, answer) for answer in (0, 1, 2, None)]
    total = sum(answer_likelihood(answer, sure(0, 1, 2), 3) for answer in answers)
    assert total == pytest.approx(np.ones_like(total), abs=1e-9)


def test_a_model_that_agrees_with_sure_steps_is_believed_on_open_ones():
    prior = np.concatenate([sure(0, 1, 2, 3), sure(4, sureness=1 / 9)])
    inference = infer(prior, choice_answers(0, 1, 2, 3, 6), 4.0, 1.0)
    assert inference.useless_probability < 0.02
    assert inference.segments[4].argmax() == 6
    assert inference.segments[4, 6] > 0.8
    assert inference.segments.sum(axis=1) == pytest.approx(np.ones(5))


@pytest.mark.parametrize(
    "answers",
    [(5, 6, 7, 0, 4, 6), (0, 0, 0, 0, 0, 0), (None,) * 6, (1, 2, 3, 4, 5, 0)],
    ids=["random", "always A", "always none", "the next step"],
)
def test_a_model_whose_answers_do_not_follow_the_steps_weighs_nothing(answers):
    prior = sure(0, 1, 2, 3, 4, 5)
    inference = infer(prior, choice_answers(*answers), 4.0, 1.0)
    assert inference.useless_probability > 0.9
    assert (inference.segments.argmax(axis=1) == prior.argmax(axis=1)).all()


def test_steps_that_were_not_asked_about_stay_where_they_were():
    prior = sure(0, 1, 2)
    inference = infer(prior, choice_answers(0, 1), 4.0, 1.0)
    assert inference.segments[2].argmax() == 2
    assert inference.segments[2, -1] == pytest.approx(prior[2, -1])


def test_the_same_question_again_counts_half():
    prior = sure(0, 1, 2, 3, 3, sureness=0.5)
    once = [*choice_answers(0, 1, 2, 3), ChoiceAnswer(4, tuple(range(SEGMENTS)), 6)]
    twice = [*once, ChoiceAnswer(4, tuple(range(SEGMENTS)), 6, is_repeat=True)]
    other = [*once, ChoiceAnswer(4, tuple(range(SEGMENTS)), 6)]
    told = [infer(prior, asked, 4.0, 1.0).segments[4, 6] for asked in (once, twice, other)]
    assert told[0] < told[1] < told[2]


def test_answers_say_how_sure_the_prior_may_be_of_itself():
    vague = sure(0, 1, 2, 3, 4, 5, sureness=0.3)
    agreed = infer(vague, choice_answers(0, 1, 2, 3, 4), 4.0, 1.0).segments[5]
    apart = infer(vague, choice_answers(0, 1, 7, 6, 5), 4.0, 1.0).segments[5]
    assert agreed[5] > apart[5]


def test_a_power_sharpens_places_and_leaves_what_is_not_shown():
    row = sharpen(np.array([[0.3, 0.1, 0.6]]), 2.0)[0]
    assert row == pytest.approx([0.4 * 0.9, 0.4 * 0.1, 0.6])


def test_the_value_of_a_question_by_hand():
    # Sure of nothing among two segments: a perfect answer turns 1/2 into 1; one of a coin is worth
    # nothing.
    row = np.array([0.5, 0.5, 0.0])
    assert expected_gain(row, (0, 1), 1.0) == pytest.approx(0.5)
    assert expected_gain(row, (0, 1), 0.0) == pytest.approx(0.0)
    assert expected_gain(np.array([1.0, 0.0, 0.0]), (0, 1), 1.0) == pytest.approx(0.0)
    assert 0 < expected_gain(row, (0, 1), 0.6, is_repeat=True) < expected_gain(row, (0, 1), 0.6)


def test_most_likely_places_leave_not_shown_out_and_keep_ties_in_order():
    assert most_likely_segments(np.array([0.1, 0.3, 0.1, 0.5]), 2) == (1, 0)


def test_the_region_of_highest_density_by_hand():
    mask = highest_density(np.array([[0.1, 0.4], [0.3, 0.2]]), 0.7)
    assert mask.tolist() == [[False, True], [True, False]]
    assert highest_density(np.array([0.4, 0.4, 0.2]), 0.8).tolist() == [True, True, False]


def test_a_step_moves_only_where_all_plausible_readings_move_it():
    vague = sure(0, 1, 2, 3, 4, sureness=0.3)
    once = infer(vague, choice_answers(0, 1, 2, 6), 4.0, 1.0)
    assert once.segments[3].argmax() == 6
    assert once.agreed[3].argmax() == 3  # a weak model beside a good prior would have said the same
    assert once.adverse[3].argmax() == 3
    third = ChoiceAnswer(3, (6, 7, 3, 5, 0), 0), ChoiceAnswer(3, (1, 2, 6, 3), 2)
    twice = infer(vague, [*choice_answers(0, 1, 2, 6, 4), *third], 4.0, 1.0)
    assert twice.agreed[3].argmax() == 6
    assert once.agreed.sum(axis=1) == pytest.approx(np.ones(5))


def test_a_middling_model_costs_a_good_but_unsure_grounder_next_to_nothing():
    # The grounder is right on all eight steps and says so with P = .3: each step that moves is a
    # loss.
    steps, prior = 8, sure(*range(8), sureness=0.3)
    rng = np.random.default_rng(0)
    lost = {"segments": 0, "agreed": 0}
    for r in (0.3, 0.5, 0.7):
        for _ in range(12):
            said = [k if rng.random() < r else int(rng.integers(SEGMENTS)) for k in range(steps)]
            inference = infer(prior, choice_answers(*said), 4.0, 1.0)
            for name in lost:
                rows = prior if inference.useless_probability > 0.1 else getattr(inference, name)
                lost[name] += int((rows.argmax(axis=1) != np.arange(steps)).sum())
    assert lost["segments"] > 20
    assert lost["agreed"] <= 0.01 * 3 * 12 * steps
