"""Where a spoken sentence is cut into clauses."""

import pytest

from stepline.text.narration.words import clauses_of_speech


@pytest.mark.parametrize(
    "marked",  # with | where one clause ends
    [
        *("Cut the onion.", "", "Peel it, and chop it."),
        "So cut the onion,| and then fry it in oil",
        "We take the pan| because the pot is small",
    ],
)
def test_clauses_begin_behind_commas_and_before_joining_words(marked):
    assert clauses_of_speech(marked.replace("|", "")) == marked.split("| ")


def test_no_word_is_lost():
    text = "Salt, pepper and oil go in, but not so much, and then we stir it well because it burns"
    assert " ".join(clauses_of_speech(text)) == text
