"""Lines of one meaning become one; numbers, units, negations and content words keep lines apart."""

import numpy as np
import pytest

from stepline.sieve_swap.text_base.deduplicate import first_occurrences, near_duplicates
from stepline.sieve_swap.text_base.near_duplicates import (
    jaccard,
    line_key,
    normalised_words,
    sketch,
)

MEMORY = 1 << 20


def merged(*lines, threshold=0.7, known=0):
    return near_duplicates([sketch(lines)], known, threshold, MEMORY).tolist()


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
    assert line_key(one) == line_key(other)


def test_a_tablespoon_is_not_a_teaspoon():
    assert line_key("Add 1 tbsp salt") != line_key("Add 1 tsp salt")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (
            "Reduce heat to medium, and simmer 10 minutes.",
            "Reduce heat to medium and simmer for 10 minutes.",
            True,
        ),
        (
            "Transfer steak to a board and let stand 5 min.",
            "Transfer steaks to a board, let stand 5 min.",
            True,
        ),
        (
            "Reduce heat to medium and simmer 10 minutes.",
            "Reduce heat to medium and simmer 15 minutes.",
            False,
        ),
        (
            "Season the meat with salt and put it in a pan",
            "Do not season the meat with salt, put it in a pan",
            False,
        ),
        (
            "Stir in the garlic and cook it on low heat",
            "Stir in the onion and cook it on low heat",
            False,
        ),
        (
            "Turn the left screw till the right one is loose",
            "Turn the right screw till the left one is loose",
            False,
        ),
    ],
)
def test_near_duplicates_differ_in_light_words_only(one, other, same):
    assert merged(one, other) == [0, 0 if same else 1]


def test_a_threshold_of_one_merges_nothing():
    assert merged("Mix and bake it for long", "Mix, bake it for long", threshold=1.0) == [0, 1]


def test_the_likeness_of_word_pairs_is_shared_over_all():
    one, other = sketch(["mix salt pepper"]).pairs, sketch(["mix salt sugar"]).pairs
    assert jaccard(one, other) == pytest.approx(2 / 6)  # start-mix, mix-salt of six different pairs


def test_a_line_known_before_never_gives_way():
    lines = (
        "Simmer 10 minutes over low heat in pot",
        "Bake it.",
        "Simmer for 10 minutes over low heat in the pot",
    )
    assert merged(*lines, known=2) == [0, 1, 0]


def test_a_chain_of_likeness_does_not_carry_a_line_far():
    far = [f"mix the {'and ' * n}flour butter sugar eggs" for n in (0, 1, 2, 3, 4)]
    stands = merged(*far, threshold=0.6)
    pairs = [sketch([line]).pairs for line in far]
    assert all(jaccard(pairs[row], pairs[leader]) >= 0.6 for row, leader in enumerate(stands))


@pytest.mark.parametrize("memory", [1 << 30, 640, 64])
def test_the_first_of_equal_keys_is_found_in_any_memory(memory):
    keys = np.random.default_rng(0).integers(0, 50, size=300, dtype=np.uint64) * np.uint64(
        0x9E3779B97F4A7C15
    )
    first = {}
    expected = [first.setdefault(int(key), place) for place, key in enumerate(keys)]
    assert first_occurrences([keys[:120], keys[120:120], keys[120:]], memory).tolist() == expected


def test_no_lines_have_no_sketch_and_no_duplicates():
    assert sketch([]).bands.shape == (0, 6)
    assert first_occurrences([], MEMORY).tolist() == merged() == []
