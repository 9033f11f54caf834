"""Steps that a network told from the pictures: the outputs say so, and that its confidence is not calibrated."""

import pytest

from stepline.outputs import step_table
from stepline.outputs.page.view import page_view
from stepline.records import Record, Sentence, Span, Step, Transcript, Video

NETWORK = {"describer": {"network": "0" * 64, "speech": False}}


def record(models, *, said=None, captions=(), sentences=(), steps=1):
    told = Step(id="1", text="fry the bacon", status="shown", spans=(Span(2.0, 8.0),), at=5.0, score=0.31, said=said)
    heard = tuple(Sentence(text=text, span=Span(1.0, 2.0)) for text in sentences)
    return Record(
        id="v", video=Video(id="v", duration=9.0), transcript=Transcript(sentences=heard), steps=(told,) * steps,
        captions=captions, models=models,
    )  # fmt: skip


def test_the_table_names_the_pictures_and_what_the_score_is():
    table = step_table(record(NETWORK))
    assert table.startswith("v: 1 step, 1 shown, from the pictures\n")
    assert "31%  fry the bacon" in table
    assert "confidence, which is not calibrated" in table
    assert step_table(record(NETWORK, steps=0)) == "v: no step found in the pictures\n"
    assert "from the pictures and 1 sentence\n" in step_table(record(NETWORK, sentences=("hello",)))


@pytest.mark.parametrize(
    "other",
    [
        record({}),  # no network
        record(NETWORK, said=Span(1.0, 2.0)),  # told by speech
        record(NETWORK, captions=record(NETWORK).steps),  # the network's stand beside them
    ],
)
def test_other_steps_keep_their_meaning(other):
    assert "from 0 sentences" in step_table(other)
    assert "not calibrated" not in step_table(other)
    assert page_view(other, None, {}).score == (
        "How sure it is that the picture shows this step",
        "sure that it is shown",
    )


def test_the_page_says_whose_the_per_cent_are():
    assert "not calibrated" in page_view(record(NETWORK), None, {}).score[0]
    assert page_view(record(NETWORK), None, {}).steps[0].percent == 31
