"""Actions and phrases that the parser hangs on something else still reach the steps."""

import pytest

from stepline.records import Sentence, Span, Transcript
from stepline.writing import write_steps


def steps_of(*texts):
    sentences = []
    for number, text in enumerate(texts):
        span = Span(start=8.0 * number, end=8.0 * number + 6)
        sentences.append(Sentence(text=text, span=span))
    transcript = Transcript(sentences=tuple(sentences), language="en", recogniser="made")
    return [step.text for step in write_steps(transcript).steps]


@pytest.mark.parametrize(
    ("sentence", "step"),
    [
        (
            "Meanwhile we're gonna make the cashew cream by adding half a cup of raw cashews "
            "to a food processor, along with the juice of one lime and 1/3 a cup of boiling water.",
            "add half a cup of raw cashews to a food processor, with the juice of one lime "
            "and 1/3 a cup of boiling water",
        ),
        (
            "I start by putting half of my hair into a bun, and I begin by cutting off "
            "the desired amount, from the bottom.",
            "cut off the desired amount from the bottom",
        ),
        (
            "Comb it up with tension fingers, parallel to the floor, and then point cut in.",
            "comb it up with tension fingers parallel to the floor",
        ),
    ],
)
def test_what_the_parser_hung_elsewhere_is_part_of_the_steps(sentence, step):
    assert step in steps_of(sentence)
