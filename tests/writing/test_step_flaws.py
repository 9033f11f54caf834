"""What is an order by its words alone, and none by its grammar."""

import pytest

from stepline.writing.extractive.english import parse
from stepline.writing.extractive.off_topic import flaw_in_sentence, flaw_of_step


def doc_of(text):
    (doc,) = parse([text])
    return doc


def verb_of(text, word):
    return next(token for token in doc_of(text) if token.text == word)


@pytest.mark.parametrize(
    ("sentence", "verb", "flaw"),
    [
        ("Before we unscrew the brass cap, get a bucket.", "unscrew", "what case"),
        ("Cut to the guide without cutting the guide itself.", "cutting", "not to be done"),
        ("Instead of pushing it to the side, shift it.", "pushing", "not to be done"),
        ("Now we have the correct oil filter.", "have", "a state"),
        ("It tells you exactly how to jack the car up.", "jack", "how something is done"),
        ("If we keep sanding the edge, it gets thinner.", "sanding", "what case"),
        ("Don't use a lever, you'll pinch the tube.", "pinch", "would come of it"),
    ],
)
def test_a_clause_that_only_reports_is_not_an_order(sentence, verb, flaw):
    assert flaw in flaw_in_sentence(verb_of(sentence, verb))


@pytest.mark.parametrize(
    ("sentence", "verb"),
    [
        ("Remove the drain plug.", "Remove"),
        ("Have a bowl of ice water ready.", "Have"),
        ("If it is dry, sand it again.", "sand"),
        ("After that we're going to slice the onion.", "slice"),
        ("Loosen it by turning the wrench.", "turning"),
        ("See how thick the dough is.", "See"),
        ("Now I'm adding the eggs that I need to whisk.", "adding"),
        ("Turn the wrench to loosen it.", "Turn"),
        ("Don't rush, and you'll sand it again.", "rush"),
        ("Then you'll sand it again.", "sand"),
    ],
)
def test_an_action_that_is_stated_has_no_flaw(sentence, verb):
    assert flaw_in_sentence(verb_of(sentence, verb)) is None


def test_a_verb_that_no_one_said_has_no_flaw():
    assert flaw_in_sentence(None) is None


@pytest.mark.parametrize(
    ("step", "flaw"),
    [
        ("show you how to jack the car up", "speaks to the viewer"),
        ("make sure your fingers", "its end was lost"),
        ("make sure the hot glue", "its end was lost"),
        ("if an automatic, make sure", "its end was lost"),
    ],
)
def test_what_describes_no_work_is_not_a_step(step, flaw):
    assert flaw in flaw_of_step(doc_of(step))


@pytest.mark.parametrize(
    "step",
    ["make sure the lid is closed", "make sure to stir the sauce", "show the ring to the camera"],
)
def test_what_describes_work_is_a_step(step):
    assert flaw_of_step(doc_of(step)) is None
