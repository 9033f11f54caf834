"""Amounts that a model takes from a picture: said, read on screen there, or told to be its
claim."""

import pytest

from stepline.grounding.vision_language.describe import SEEN_BY_VLM as DESCRIBED
from stepline.pipeline.describe import check_amounts
from stepline.records import Sentence, Span, Step, Transcript
from stepline.vision.on_screen_text import ScreenText
from stepline.writing.llm.citing import PICTURE_REMARK, PICTURE_STEP_REMARK

SPEECH = Transcript(
    language="en", sentences=(Sentence(text="Add two cups of flour.", span=Span(8.0, 10.0)),)
)
LINES = (
    ScreenText("200g sugar", Span(10.0, 14.0), 0.1),
    ScreenText("350 ml milk", Span(40.0, 44.0), 0.1),
    ScreenText("Step 3", Span(10.0, 14.0), 0.1),
)


def remarks(text, *, second=12.0, sources=(), start=0.0, words=PICTURE_STEP_REMARK, **more):
    step = Step(id="1", text=text, sources=sources, seen=(words.format(second),), **more)
    return check_amounts(step, SPEECH, LINES, start).seen[1:]


UNREAD = "against: no one says the amount {}, and it is not read in the picture: the model's claim"


@pytest.mark.parametrize(
    ("text", "sources", "told"),
    [
        ("Add 2 cups of flour", (0,), ()),  # the voice says it
        ("Add 200 g of sugar", (), ("for: the amount 200 g is on screen: 200g sugar",)),
        ("Add 0.2 kg of sugar", (), ("for: the amount 0.2 kg is on screen: 200g sugar",)),
        ("Add 250 g of sugar", (), (UNREAD.format("250 g"),)),
        ("Add 200 g of salt", (), (UNREAD.format("200 g"),)),  # of another thing
        ("Add 350 ml of milk", (), (UNREAD.format("350 ml"),)),  # on screen at another time
        ("Add 3 eggs", (), (UNREAD.format("3"),)),  # "Step 3" counts no eggs
        ("Add the eggs", (), ()),
        ("Add 3 cups of flour", (0,), (UNREAD.format("3 cup"),)),
    ],
)
def test_an_amount_is_said_or_read_or_the_model_s_claim(text, sources, told):
    assert (
        remarks(text, sources=sources, words=PICTURE_REMARK if sources else PICTURE_STEP_REMARK)
        == told
    )


def test_seconds_of_a_part_are_told_apart_from_those_of_the_video():
    assert remarks("Add 200 g of sugar", second=112.0, start=100.0)[0].startswith("for: ")
    assert remarks("Add 200 g of sugar", second=112.0)[0].startswith("against: ")


def test_a_described_place_is_read_in_its_own_seconds():
    words = remarks("Add 350 ml of milk", words=DESCRIBED, spans=(Span(39.0, 46.0),))
    assert words == ("for: the amount 350 ml is on screen: 350 ml milk",)


def test_a_step_that_no_model_saw_is_left_alone():
    step = Step(
        id="1",
        text="Add 5 cups of milk",
        sources=(0,),
        seen=("for: a new shot begins with its sentence",),
    )
    assert check_amounts(step, SPEECH, LINES) is step
