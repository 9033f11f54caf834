"""Amounts in what a vision-language model describes: read on screen there, or called its claim."""

import pytest

from stepline.grounding.vision_language.describe import SEEN_BY_VLM
from stepline.pipeline.describe import check_amounts
from stepline.records import Span, Step
from stepline.vision.on_screen_text import ScreenText

LINES = (
    ScreenText("200g sugar", Span(10.0, 14.0), 0.1),
    ScreenText("350 ml milk", Span(40.0, 44.0), 0.1),
    ScreenText("Step 3", Span(10.0, 14.0), 0.1),
)
UNREAD = "against: no one says the amount {}, and it is not read in the picture: the model's claim"


@pytest.mark.parametrize(
    ("text", "remarks"),
    [
        ("Add 200 g of sugar", ("for: the amount 200 g is on screen: 200g sugar",)),
        ("Add 0.2 kg of sugar", ("for: the amount 0.2 kg is on screen: 200g sugar",)),
        ("Add 250 g of sugar", (UNREAD.format("250 g"),)),
        ("Add 200 g of salt", (UNREAD.format("200 g"),)),  # of another thing
        ("Add 350 ml of milk", (UNREAD.format("350 ml"),)),  # on screen at another time
        ("Add 3 eggs", (UNREAD.format("3"),)),  # "Step 3" counts no eggs
        ("Add the eggs", ()),
    ],
)
def test_an_amount_is_read_on_screen_or_the_model_s_claim(text, remarks):
    step = Step(id="1", text=text, seen=(SEEN_BY_VLM,), spans=(Span(11.0, 13.0),))
    assert check_amounts(step, LINES).seen == (SEEN_BY_VLM, *remarks)


def test_a_step_that_no_model_saw_keeps_its_remarks():
    seen = ("for: a new shot begins with its sentence",)
    step = Step(id="1", text="Add 5 cups of milk", sources=(0,), seen=seen)
    assert check_amounts(step, LINES) is step
