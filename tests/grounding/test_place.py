"""A user's own lines find their sentences."""

import numpy as np
import pytest

from stepline.errors import ShapeError
from stepline.grounding.speech import steps_from_texts
from stepline.records import Sentence, Span, Transcript

HEARD = Transcript(
    sentences=(
        Sentence(text="hello everyone", span=Span(0.0, 3.0)),
        Sentence(text="now chop the onion", span=Span(4.0, 6.0)),
    )
)
AXES = np.eye(3, dtype=np.float32)


def test_a_line_is_said_where_its_sentence_is():
    (step,) = steps_from_texts(["chop onion"], HEARD, AXES[:2], AXES[1:2])
    assert (step.id, step.said, step.sources, step.score) == ("1", Span(4.0, 6.0), (1,), None)


def test_a_line_that_nobody_speaks_of_is_not_said():
    steps = steps_from_texts(["bake it", "chop onion"], HEARD, AXES[:2], AXES[[2, 1]])
    assert [step.said for step in steps] == [None, Span(4.0, 6.0)]
    assert steps[0].sources == ()


def test_without_speech_every_line_stays_unsaid():
    steps = steps_from_texts(["a", "b"], Transcript(), np.zeros((0, 3), np.float32), AXES[:2])
    assert [(step.id, step.said) for step in steps] == [("1", None), ("2", None)]


def test_vectors_of_another_width_are_refused():
    with pytest.raises(ShapeError, match="must share their width"):
        steps_from_texts(["a"], HEARD, AXES[:2], np.ones((1, 2), np.float32))
