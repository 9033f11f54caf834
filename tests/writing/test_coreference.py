import pytest

from stepline.writing.extractive.coreference import resolve_pronouns


@pytest.mark.parametrize(
    ("sentences", "wanted"),
    [
        (["Peel the banana.", "Cut it into slices."], ["Peel the banana.", "Cut the banana into slices."]),
        (["Wash the carrots.", "Then chop them."], ["Wash the carrots.", "Then chop the carrots."]),
        (["Hello everybody.", "Cut it."], ["Hello everybody.", "Cut it."]),  # nothing that it could be
        ([], []),
    ],
)
def test_a_pronoun_is_named_where_one_thing_can_be_meant(sentences, wanted):
    assert resolve_pronouns(sentences) == wanted


def test_two_things_that_it_could_be_leave_the_pronoun():
    given = ["Put the onion into the pot.", "Stir it."]
    assert resolve_pronouns(given) == given


def test_spaces_and_case_of_all_else_stay():
    given = ["So,  hi THERE (again)!"]
    assert resolve_pronouns(given) == given
