"""Halves of a step are joined to it, amounts that are told after it are put into it."""

import pytest

from stepline.records import Sentence, Span, Step, Transcript
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


def texts(steps, detail="usual"):
    return [item.text for item in join_continuations(steps, detail)[0]]


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


def test_what_acts_on_the_same_thing_is_one_step():
    steps = [
        SentenceStep(step("drain the pasta", 0.0, sources=(0,))),
        SentenceStep(step("rinse it", 3.0, sources=(1,)), antecedents=("pasta",)),
        SentenceStep(step("return it to the pot", 6.0, sources=(1,)), antecedents=("pasta",)),
    ]
    (joined,) = join_continuations(steps, "usual")[0]
    assert joined.text == "drain the pasta, rinse and return to the pot"
    assert joined.said == Span(0.0, 8.0)
    assert joined.sources == (0, 1)


def test_what_acts_on_something_else_stays_a_step():
    steps = [
        SentenceStep(step("unscrew the brass cap", 0.0, sources=(0,))),
        SentenceStep(step("slide it under", 3.0, sources=(1,)), antecedents=("pan",)),
    ]
    assert texts(steps) == ["unscrew the brass cap", "slide it under"]


def test_a_half_in_the_next_sentence_keeps_a_pronoun_without_a_likely_antecedent():
    first = SentenceStep(step("open the jar", 0.0, sources=(0,)))
    half = step("rinse it well", 3.0, sources=(1,))
    assert texts([first, SentenceStep(half)]) == ["open the jar and rinse it well"]
    later = half.model_copy(update={"sources": (2,)})
    assert texts([first, SentenceStep(later)]) == ["open the jar", "rinse it well"]


def test_halves_of_one_long_sentence_without_word_times_are_one_step():
    steps = [
        SentenceStep(step(text, 0.0, end=30.0, sources=(0,))) for text in ("cut it", "fold it")
    ]
    assert texts(steps) == ["cut it and fold"]


def test_more_of_a_list_needs_the_same_verb_or_an_amount():
    more = SentenceStep(step("add two lemons", 2.0, sources=(1,)), list_text="two lemons")
    for text, steps in (
        ("add salt", ["add salt, two lemons"]),
        ("mix three eggs", ["mix three eggs, two lemons"]),
        ("stir the soup", ["stir the soup", "add two lemons"]),
    ):
        assert texts([SentenceStep(step(text, 0.0, sources=(0,))), more]) == steps


def test_a_verb_alone_is_a_step_only_if_it_needs_no_object():
    for text, steps in (("wait", ["wait"]), ("see", [])):
        assert texts([SentenceStep(step(text, 0.0, sources=(0,)))]) == steps


def test_a_half_that_comes_late_stays_a_step():
    steps = [
        SentenceStep(step("drain the pasta", 0.0, sources=(0,))),
        SentenceStep(step("rinse it", 60.0, sources=(9,)), antecedents=("pasta",)),
    ]
    assert texts(steps) == ["drain the pasta", "rinse it"]


def test_full_detail_joins_nothing():
    steps = [
        SentenceStep(step("drain the pasta", 0.0, sources=(0,))),
        SentenceStep(step("rinse it", 3.0, sources=(0,)), antecedents=("pasta",)),
    ]
    assert texts(steps, "full") == ["drain the pasta", "rinse it"]
    assert texts(steps, "usual") == ["drain the pasta and rinse"]


def test_brief_joins_what_is_done_in_the_same_way():
    steps = [
        SentenceStep(step("add a teaspoon of oil", 0.0, sources=(0,))),
        SentenceStep(step("add the garlic", 3.0, sources=(1,))),
    ]
    assert texts(steps, "usual") == ["add a teaspoon of oil", "add the garlic"]
    assert texts(steps, "brief") == ["add a teaspoon of oil and the garlic"]


def test_an_order_not_to_do_something_is_never_joined():
    steps = [
        SentenceStep(step("let the tofu sit", 0.0, sources=(0,))),
        SentenceStep(step("do not disturb it", 3.0, sources=(0,)), antecedents=("tofu",)),
        SentenceStep(step("turn it", 6.0, sources=(0,)), antecedents=("tofu",)),
    ]
    assert texts(steps) == ["let the tofu sit", "do not disturb it", "turn it"]


def test_a_list_goes_on_in_the_next_sentence():
    steps = [
        SentenceStep(step("add two bouillon cubes", 0.0, sources=(0,))),
        SentenceStep(step("add a can of beans", 3.0, sources=(1,)), list_text="a can of beans"),
    ]
    assert texts(steps) == ["add two bouillon cubes, a can of beans"]


def test_things_that_no_list_goes_before_are_refused_where_unsure():
    item = SentenceStep(
        step("add hair clips", 0.0, sources=(0,)), list_text="hair clips", is_sure=False
    )
    joined, rejected = join_continuations([item], "usual")
    assert joined == []
    assert [step.text for step, _ in rejected] == ["add hair clips"]


@pytest.mark.parametrize("detail", ["brief", "usual", "full"])
def test_no_sentence_is_lost_by_joining(detail):
    steps = [
        SentenceStep(step("drain the pasta", 0.0, sources=(0,))),
        SentenceStep(step("rinse it", 3.0, sources=(1,)), antecedents=("pasta",)),
        SentenceStep(step("add the sauce", 6.0, sources=(2,))),
        SentenceStep(step("stir", 9.0, sources=(2,))),
    ]
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
    sentences = []
    for number, line in enumerate(lines):
        sentences.append(Sentence(text=line, span=Span(4.0 * number, 4.0 * number + 3.0)))
    transcript = Transcript(language="en", sentences=tuple(sentences))
    counts = {}
    for detail in ("brief", "usual", "full"):
        steps = write_extractive(transcript, WritingSettings(detail=detail)).steps
        counts[detail] = len(steps)
        assert {source for item in steps for source in item.sources} == {0, 1, 2, 3}
    assert counts["brief"] <= counts["usual"] <= counts["full"] == 4


def test_a_place_without_a_thing_is_no_more_of_a_list():
    list_text = "into a large pan"
    steps = [
        SentenceStep(step("cut the tofu into squares", 0.0, sources=(0,))),
        SentenceStep(step(f"add {list_text}", 3.0, sources=(1,)), list_text, is_sure=False),
    ]
    assert texts(steps) == ["cut the tofu into squares"]
