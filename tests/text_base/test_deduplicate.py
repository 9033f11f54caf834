"""Steps of the same normalised words have one key. Numbers, units and all other words keep them
apart."""

import pytest

from stepline.sieve_swap.text_base.build import hash_step_words, normalised_words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Preheat the oven to 350 degrees F.", "preheat oven to 350°F"),
        ("Add 2 tablespoons of sugar.", "Add 2 tbsp. of sugar"),
        ("Bake for 1½ hours!", "Bake for 1 1/2 hrs."),
    ],
)
def test_lines_of_the_same_normal_words_have_one_key(one, other):
    assert normalised_words(one) == normalised_words(other)
    assert hash_step_words(one) == hash_step_words(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Add 1 tbsp salt", "Add 1 tsp salt"),
        ("Simmer 10 minutes", "Simmer 15 minutes"),
        ("Season the meat", "Do not season the meat"),
        ("Turn the left screw, then the right one", "Turn the right screw, then the left one"),
    ],
)
def test_lines_that_say_something_else_have_another_key(one, other):
    assert hash_step_words(one) != hash_step_words(other)
