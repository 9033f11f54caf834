"""Halves of a step are joined to it, amounts that are told after it are put into it."""

import pytest
from transcripts import transcript_of

from stepline.records import Span, Step
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.granularity import (
    SentenceStep,
    drop_object_pronouns,
    join_continuations,
    stated_amounts,
    with_amount,
)
from stepline.writing.extractive.writer import write_extractive
from stepline.writing.settings import WritingSettings


def doc_of(text):
    (doc,) = parse([text])
    return doc


def step(text, start, *, sources, end=None):
    return Step(id="0", text=text, said=Span(start, end or start + 2.0), sources=sources)


def said(text, start, source, *antecedents, end=None, list_text=None, is_sure=True):
    """A step that one sentence says."""
    told = step(text, start, sources=(source,), end=end)
    return SentenceStep(told, list_text, antecedents=antecedents, is_sure=is_sure)


@pytest.mark.parametrize(
    ("text", "half"),
    [
        ("rinse it", "rinse"),
        ("return it to the pot", "return to the pot"),
        ("let it cool", "let cool"),
        ("stir gently", "stir gently"),
        ("peel the apple", None),
        ("make sure it's full", None),
        ("make sure the lid is closed", None),
    ],
)
def test_a_half_names_nothing_that_it_acts_on(text, half):
    assert drop_object_pronouns(doc_of(text)) == half


DRAIN = said("drain the pasta", 0.0, 0)
RINSE = said("rinse it", 3.0, 1, "pasta")
LEMONS = said("add two lemons", 2.0, 1, list_text="two lemons")
PLACE = said("add into a pan", 3.0, 1, list_text="into a pan", is_sure=False)
TOFU = said("let the tofu sit", 0.0, 0)
JOINED = {
    "what acts on something else stays a step": (
        [said("unscrew the cap", 0.0, 0), said("slide it under", 3.0, 1, "pan")],
        ["unscrew the cap", "slide it under"],
    ),
    "late": ([DRAIN, said("rinse it", 60.0, 9, "pasta")], ["drain the pasta", "rinse it"]),
    "a pronoun without a likely antecedent, next sentence": (
        [said("open the jar", 0.0, 0), said("rinse it", 3.0, 1)],
        ["open the jar and rinse it"],
    ),
    "a pronoun without a likely antecedent, sentence after it": (
        [said("open the jar", 0.0, 0), said("rinse it", 3.0, 2)],
        ["open the jar", "rinse it"],
    ),
    "halves of one long sentence without times of words": (
        [said(text, 0.0, 0, end=30.0) for text in ("cut it", "fold it")],
        ["cut it and fold"],
    ),
    "more of a list, same verb": ([said("add salt", 0.0, 0), LEMONS], ["add salt, two lemons"]),
    "more of a list, an amount": (
        [said("mix three eggs", 0.0, 0), LEMONS],
        ["mix three eggs, two lemons"],
    ),
    "no list": ([said("stir the soup", 0.0, 0), LEMONS], ["stir the soup", "add two lemons"]),
    "a place without a thing": ([said("cut the tofu", 0.0, 0), PLACE], ["cut the tofu"]),
    "a verb that needs no object": ([said("wait", 0.0, 0)], ["wait"]),
    "a verb that needs an object": ([said("see", 0.0, 0)], []),
    "an order not to do something": (
        [TOFU, said("do not disturb it", 3.0, 0, "tofu"), said("turn it", 6.0, 0, "tofu")],
        ["let the tofu sit", "do not disturb it", "turn it"],
    ),
}


@pytest.mark.parametrize("rule", JOINED)
def test_a_half_is_joined_to_the_step_it_belongs_to(rule):
    steps, joined = JOINED[rule]
    assert [item.text for item in join_continuations(steps, "usual")[0]] == joined


@pytest.mark.parametrize(
    ("detail", "second", "joined"),
    [
        ("full", RINSE, ["drain the pasta", "rinse it"]),
        ("usual", RINSE, ["drain the pasta and rinse"]),
        ("usual", said("drain the beans", 3.0, 1), ["drain the pasta", "drain the beans"]),
        ("brief", said("drain the beans", 3.0, 1), ["drain the pasta and the beans"]),
    ],
)
def test_full_detail_joins_nothing_and_brief_what_is_done_in_the_same_way(detail, second, joined):
    assert [item.text for item in join_continuations([DRAIN, second], detail)[0]] == joined


def test_what_acts_on_the_same_thing_is_one_step():
    steps = [DRAIN, RINSE, said("return it to the pot", 6.0, 1, "pasta")]
    (joined,) = join_continuations(steps, "usual")[0]
    assert joined.text == "drain the pasta, rinse and return to the pot"
    assert joined.said == Span(0.0, 8.0)
    assert joined.sources == (0, 1)


def test_things_that_no_list_goes_before_are_refused_where_unsure():
    item = said("add hair clips", 0.0, 0, list_text="hair clips", is_sure=False)
    joined, rejected = join_continuations([item], "usual")
    assert joined == []
    assert [step.text for step, _ in rejected] == ["add hair clips"]


@pytest.mark.parametrize("detail", ["brief", "usual", "full"])
def test_no_sentence_is_lost_by_joining(detail):
    steps = [DRAIN, RINSE, said("add the sauce", 6.0, 2), said("stir", 9.0, 2)]
    joined = join_continuations(steps, detail)[0]
    assert sorted({source for item in joined for source in item.sources}) == [0, 1, 2]
    assert [item.said.start for item in joined] == sorted(item.said.start for item in joined)


@pytest.mark.parametrize(
    ("sentence", "amounts"),
    [
        ("I used about 125 grams worth.", ["about 125 grams"]),
        ("So this takes roughly six litres.", ["roughly six litres"]),
        ("Around 350 degrees.", ["around 350 degrees"]),
        ("I used about 80 grams, and shake the tray.", ["about 80 grams"]),
        ("Close the valve, so it takes two litres.", ["two litres"]),
        ("It's half an inch, and push it down.", ["half an inch"]),
        # a time may go on
        ("Twelve minutes on the lowest shelf.", ["twelve minutes on the lowest shelf"]),
        (
            "Ten fifteen minutes until it's dry, and no longer.",
            ["ten fifteen minutes until it's dry"],
        ),
        # of what comes next, when, or not
        ("Half a cup, all purpose glue.", []),
        ("In five minutes, come back.", []),
        ("I have never waited ten minutes.", []),
        ("It's been an hour.", []),
        ("It took 5 minutes to get there with my mother.", []),
        ("I used three of them on the 31st.", []),
        ("That is all.", []),
    ],
)
def test_a_clause_may_tell_an_amount_and_nothing_else(sentence, amounts):
    assert [amount for _, amount in stated_amounts(doc_of(sentence))] == amounts


def test_an_amount_is_put_to_the_step_before_it():
    noodles = step("add the noodles", 0.0, sources=(4,))
    told = with_amount(noodles, "about 125 grams", 5)
    assert told.text == "add the noodles, about 125 grams"
    assert told.sources == (4, 5)


def test_a_step_with_an_amount_of_its_own_takes_no_other():
    noodles = step("add 200 grams of noodles", 0.0, sources=(4,))
    assert with_amount(noodles, "about 125 grams", 5) is None
    assert with_amount(step("add the noodles", 0.0, sources=(4,)), "125 grams", 9) is None
    assert with_amount(step("don't add noodles", 0.0, sources=(4,)), "125 grams", 5) is None


def test_the_writer_joins_as_its_setting_says():
    lines = (
        "First you want to peel the onion.",
        "Then chop it finely.",
        "Next, heat a tablespoon of oil in a pan.",
        "Add the onion to the pan.",
    )
    transcript = transcript_of(*lines, every=4.0, seconds=3.0)
    counts = {}
    for detail in ("brief", "usual", "full"):
        steps = write_extractive(transcript, WritingSettings(detail=detail)).steps
        counts[detail] = len(steps)
        assert {source for item in steps for source in item.sources} == {0, 1, 2, 3}
    assert counts["brief"] <= counts["usual"] <= counts["full"] == 4
