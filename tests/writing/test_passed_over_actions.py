"""Actions and phrases that the parser hangs on something else still reach the steps."""

from stepline.records import Sentence, Span, Transcript
from stepline.writing import write_steps


def steps_of(*texts):
    sentences = []
    for number, text in enumerate(texts):
        span = Span(start=8.0 * number, end=8.0 * number + 6)
        sentences.append(Sentence(text=text, span=span))
    transcript = Transcript(sentences=tuple(sentences), language="en", recogniser="made")
    return [step.text for step in write_steps(transcript).steps]


def test_a_long_step_stays_whole():
    words = (
        "make the walnut sauce by adding half a cup of toasted walnuts to a small blender, "
        "along with the zest of one orange and 1/3 a cup of warm milk"
    )
    assert words in steps_of(f"Meanwhile we're gonna {words}.")


def test_orders_side_by_side_without_a_word_between_them_are_steps_of_their_own():
    assert steps_of(
        "Turn it up to high put the lid back on and give it fifteen minutes.",
        "I let it sit on the side for ten minutes and then sliced the chicken up.",
    ) == [
        "turn it up to high",
        "put the lid back on",
        "give it fifteen minutes",
        "let it sit on the side for ten minutes",
        "slice the chicken up",
    ]


def test_a_verb_that_belongs_to_another_action_begins_no_step():
    assert steps_of("Crack in the eggs and let the whole thing cook for two minutes.") == [
        "crack in the eggs and let the whole thing cook for two minutes"
    ]
    assert steps_of("Make the cream by adding half a cup of cashews to a small blender.") == [
        "make the cream by adding half a cup of cashews to a small blender"
    ]
