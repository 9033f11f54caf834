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
