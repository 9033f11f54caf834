"""The prompt for strong models: numbered sentences of long parts, steps that cite them."""

import pytest
from llm_fakes import Answers, FakeServer
from pydantic import ValidationError

from stepline.records import Sentence, Span, Transcript
from stepline.writing.llm.replies import parse_reply
from stepline.writing.llm.writer import write_llm
from stepline.writing.quantities import numbers
from stepline.writing.settings import LlmSettings

SAID = (
    "Hello and welcome back.",
    "First peel two onions.",
    "Cut them into thin rings.",
    "My aunt always cried.",
    "Fry them in butter for about half an hour.",
    "Until they are golden, you know.",
)


def talk(*texts):
    spans = [Span(10.0 * n, 10.0 * n + 9.0) for n in range(len(texts))]
    rows = zip(texts, spans, strict=True)
    return Transcript(
        language="en", sentences=tuple(Sentence(text=text, span=span) for text, span in rows)
    )


def write(reply, *texts, **settings):
    with FakeServer(Answers.says(reply)) as server:
        options = {"base_url": server.url, "prompt": "whole", "cache": False, **settings}
        written = write_llm(talk(*(texts or SAID)), LlmSettings(**options))
        return written, server.asked


def test_each_step_cites_the_sentences_that_the_model_names():
    reply = (
        "2: Peel two onions\n"
        "3: Cut the onions into thin rings\n"
        "5, 6: Fry the onion rings in butter for half an hour until they are golden"
    )
    written, asked = write(reply)
    assert [step.sources for step in written.steps] == [(1,), (2,), (4, 5)]
    assert written.steps[2].said == Span(40.0, 59.0)
    question = asked[0]["messages"][-1]["content"]
    assert "\n2: First peel two onions.\n3: Cut them into thin rings.\n" in question
    assert asked[0]["max_tokens"] == 6000
    assert written.dropped == ()


@pytest.mark.parametrize("cited", ["1", "99", "0"])
def test_a_sentence_that_does_not_support_its_step_is_replaced_by_one_that_does(cited):
    written, _ = write(f"{cited}: Peel two onions")
    assert [step.sources for step in written.steps] == [(1,)]


def test_a_number_that_nobody_says_there_drops_the_step():
    written, _ = write("2: Peel two onions\n5: Fry the onions in butter at 180 degrees")
    assert "180" not in "".join(step.text for step in written.steps)
    assert written.dropped[-1].reason == "names 180, which is not said there"
    # The extractive writer's step of the same sentence takes its place.
    assert [step.sources for step in written.steps] == [(1,), (4,)]
    assert "half an hour" in written.steps[1].text


def test_what_the_model_says_already_is_not_said_twice():
    reply = (
        "5: Fry the onion rings in butter for about half an hour\n5: Heat the butter to 180 degrees"
    )
    written, _ = write(reply)
    assert [step.sources for step in written.steps] == [(4,)]
    assert len(written.dropped) == 1


def test_a_number_may_be_written_in_another_form_or_said_nearby():
    written, _ = write("5: Fry the 2 onions in butter for 1/2 hour")
    assert len(written.steps) == 1
    assert numbers("2½ cups, 2 to 3 spoons, twenty five") == {2.5, 2.0, 3.0, 25.0}


@pytest.mark.parametrize(
    ("line", "cited", "text"),
    [
        ("12, 13: Whisk it", (12, 13), "Whisk it"),
        ("12-14: Whisk it", (12, 13, 14), "Whisk it"),
        ("- [3]: Whisk it", (3,), "Whisk it"),
        ("**3 and 5.** Whisk it", (3, 5), "Whisk it"),
        ("7) Whisk 2 eggs", (7,), "Whisk 2 eggs"),
        ("1-99999: Whisk it", tuple(range(1, 41)), "Whisk it"),
    ],
)
def test_numbers_before_a_step_are_read_in_the_forms_that_models_use(line, cited, text):
    parsed = parse_reply(line, cites=True)
    assert (parsed.texts, parsed.cited) == ((text,), (cited,))


def test_a_reply_without_numbers_is_read_as_a_list_or_refused():
    assert parse_reply("none", cites=True).texts == ()
    assert parse_reply("I will whisk the eggs.", cites=True).refusal is not None


def test_the_last_step_of_a_reply_that_was_cut_off_is_dropped():
    parsed = parse_reply("1: Peel the onion\n2: Cut the on", cites=True, complete=False)
    assert (parsed.texts, parsed.cited) == (("Peel the onion",), ((1,),))
    assert "cut off" in parsed.dropped[0].reason


def test_long_speech_is_asked_about_in_parts_of_2500_words():
    sentence = "Now fold the paper along this line and press it down with a thumb."  # 14 words
    _, asked = write("none", *[sentence] * 357)  # 4,998 words
    assert len(asked) == 2
    assert "Said just before:" in asked[1]["messages"][-1]["content"]


def test_limits_that_are_given_stay():
    assert LlmSettings(prompt="whole").timeout == 300.0
    assert LlmSettings(prompt="whole", max_tokens=100).max_tokens == 100
    assert LlmSettings().max_tokens == 512
    with pytest.raises(ValidationError):
        LlmSettings(prompt="parts")


def test_a_step_that_is_told_again_much_later_is_said_where_it_is_told_first():
    texts = ("Peel the onions.", *["The weather is lovely this week."] * 8, "So peel the onions.")
    written, _ = write("1, 10: Peel the onions", *texts)
    assert written.steps[0].sources == (0, 9)
    assert written.steps[0].said == Span(0.0, 9.0)
