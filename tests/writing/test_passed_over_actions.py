"""Actions and phrases that the parser hangs on something else still reach the steps."""

from transcripts import transcript_of

from stepline.writing import write_steps


def steps_of(*texts):
    written = write_steps(transcript_of(*texts, every=8.0, seconds=6.0))
    return [step.text for step in written.steps]


def test_a_long_step_stays_whole():
    words = (
        "make the walnut sauce by adding half a cup of toasted walnuts to a small blender, "
        "along with the zest of one orange and 1/3 a cup of warm milk"
    )
    assert words in steps_of(f"Meanwhile we're gonna {words}.")


def test_orders_side_by_side_without_a_word_between_them_are_steps_of_their_own():
    assert steps_of(
        "Turn it down to low put the cover back on and give it twenty minutes.",
        "I let it rest on the board for ten minutes and then sliced the roast up.",
    ) == [
        "turn it down to low",
        "put the cover back on",
        "give it twenty minutes and let it rest on the board for ten minutes",
        "slice the roast up",
    ]


def test_a_verb_that_belongs_to_another_action_begins_no_step():
    assert steps_of("Pour in the broth and let the whole thing simmer for five minutes.") == [
        "pour in the broth",
        "let the whole thing simmer for five minutes",
    ]
    assert steps_of("Make the glaze by adding half a cup of sugar to a small saucepan.") == [
        "make the glaze by adding half a cup of sugar to a small saucepan"
    ]


def test_an_amount_told_after_its_step_reaches_it():
    assert steps_of(
        "Pour the milk into the pan.",
        "I used about three cups, and whisk it until it thickens.",
        "Then turn the heat off.",
    ) == [
        "pour the milk into the pan, about three cups and whisk until it thickens",
        "turn the heat off",
    ]
