"""Content words: nouns, verbs, adverbs, adjectives as lemmas; generic words pair no titles."""

import pytest

from stepline.sieve_swap.content_words import content_words, generic_words, title_words


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("How To Make The BEST Chicken Noodle Soup!! | Easy Recipe", ["chicken", "noodle", "soup"]),
        ("Baked Stuffed Green Peppers", ["stuff", "green", "pepper"]),
        ("", []),
        ("!!! 123 ???", []),
    ],
)
def test_a_title_keeps_its_content_words_that_are_not_generic(title, words):
    assert list(title_words([title])) == [words]


def test_numerals_and_units_count_only_on_demand():
    text = ["add two eggs and 5 ml of oil"]
    assert list(content_words(text)) == [["add", "egg", "ml", "oil"]]
    assert list(content_words(text, numerals=True)) == [["add", "two", "egg", "5", "ml", "oil"]]


def test_every_generic_word_stands_once_and_in_lower_case():
    assert {"make", "prepare", "bake"} <= generic_words()
    assert all(word == word.lower().strip() for word in generic_words())


def test_words_come_in_the_order_of_the_texts_with_repeats():
    first, second = content_words(["stir, then stir again", "chop the onions"])
    assert (first, second) == (["stir", "then", "stir", "again"], ["chop", "onion"])
