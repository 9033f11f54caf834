"""The conversation in which a small model writes up the sentences that were chosen."""

import re

import pytest
from llm_fakes import Answers, FakeServer, talk

from stepline.errors import ModelError
from stepline.text.narration.words import word_set
from stepline.writing import WritingSettings, check_writer
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.narration import parse_narration
from stepline.writing.llm.editing import (
    BANNED_TOKENS,
    NOT_A_STEP_REASON,
    NOT_IMPERATIVE_REASON,
    REPEATED_REASON,
    UNSAID_VERB_REASON,
    choose_passages,
    conversation_start,
    line_fault,
    to_imperative,
)
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings

SPEECH = talk(
    "Hi everybody, welcome back to my kitchen.",
    "First put the flour in a big bowl.",
    "My grandmother always did this by hand.",
    "Now pour 200 grams of milk into it.",
    "I love how that looks.",
    "Then cover the bowl with a towel.",
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def edit(answers, progress=None, **settings):
    """Write up SPEECH. answers: a word of the passage -> what the model says, try by try."""

    def serve(handler):
        question = handler.question["messages"][-1]["content"]
        said = question.split("Write up: ")[1]
        word = next((word for word in answers if word in said), None)
        if word is None:
            Answers.says("none")(handler)
            return
        tries = answers[word]
        Answers.says(tries.pop(0) if len(tries) > 1 else tries[0])(handler)

    with FakeServer(serve) as server:
        options = {"base_url": server.url, "form": "edit", "cache": False, **settings}
        return write_llm(SPEECH, LlmSettings(**options), progress=progress), server.asked


RIGHT = {
    "flour": ["Put the flour in a big bowl."],
    "milk": ["Pour 200 grams of milk into the flour."],
    "towel": ["Cover the bowl with a towel."],
}


def test_progress_is_told_passage_by_passage():
    reports = []
    edit(RIGHT, progress=lambda *report: reports.append(report))
    ends = [SPEECH.sentences[index].span.end for index in (1, 3, 5)]
    assert reports == [("writing", end, ends[-1]) for end in ends]


def test_each_passage_is_a_turn_that_holds_what_came_before():
    written, asked = edit(RIGHT)
    texts = [f"{step.text}." for step in written.steps]
    assert texts == [text for right in RIGHT.values() for text in right]
    assert [step.sources for step in written.steps] == [(1,), (3,), (5,)]
    first, second, third = (body["messages"] for body in asked)
    start = list(conversation_start())
    assert first[: len(start)] == start
    assert first[-1]["content"].startswith("Said before: Hi everybody")
    # the turns before, with the lines that were kept
    assert second[len(start) :][:2] == [
        first[-1],
        {"role": "assistant", "content": "Put the flour in a big bowl"},
    ]
    assert second[-1]["content"] == (
        "Said before: My grandmother always did this by hand.\n"
        "Write up: Now pour 200 grams of milk into it."
    )
    assert len(third) == len(start) + 5
    assert "logit_bias" not in asked[0]  # other servers count tokens in their own way


def test_a_fault_is_named_and_asked_for_once_more():
    pronoun = "Pour 200 grams of milk into it."
    written, asked = edit({**RIGHT, "milk": [pronoun, *RIGHT["milk"]]})
    assert written.steps[1].text == RIGHT["milk"][0][:-1]
    assert asked[2]["messages"][-1]["content"].endswith('\nMind: name the thing for "it"')
    assert len(asked) == 4


def test_what_fails_twice_is_told_by_the_extractive_writer():
    written, asked = edit({**RIGHT, "milk": ["What a lovely dough!"]})
    assert len(asked) == 4
    assert [step.sources for step in written.steps] == [(1,), (3,), (5,)]
    assert written.steps[1].text.startswith("Pour 200 grams of milk into")
    assert ("What a lovely dough!", NOT_IMPERATIVE_REASON) in {
        (dropped.text, dropped.reason) for dropped in written.dropped
    }


def test_an_amount_that_the_model_loses_or_invents_is_told_by_the_extractive_writer():
    for line in ("Pour the milk into the flour.", "Pour 300 grams of milk into the flour."):
        written, _ = edit({**RIGHT, "milk": [line]})
        assert len(written.steps) == 3
        assert "200 grams of milk" in written.steps[1].text
        assert not any("300" in step.text for step in written.steps)


def test_an_order_that_only_chats_is_no_step():
    written, _ = edit({**RIGHT, "towel": ["Cover the bowl with a towel.\nLook at the kitchen."]})
    assert [step.text for step in written.steps][2:] == ["Cover the bowl with a towel"]
    assert ("Look at the kitchen", NOT_A_STEP_REASON) in {
        (dropped.text, dropped.reason) for dropped in written.dropped
    }


def test_a_verb_that_nobody_says_gives_way_to_the_step_of_the_extractive_writer():
    written, _ = edit({**RIGHT, "towel": ["Fold the bowl with a towel."]})
    assert [step.text for step in written.steps][2:] == ["Cover the bowl with a towel"]
    assert ("Fold the bowl with a towel", UNSAID_VERB_REASON) in {
        (dropped.text, dropped.reason) for dropped in written.dropped
    }


def test_a_line_of_before_that_is_not_told_here_is_no_step():
    repeated = "Put the flour in a big bowl.\nCover the bowl with a towel."
    written, _ = edit({**RIGHT, "towel": [repeated]})
    assert [step.text for step in written.steps].count("Put the flour in a big bowl") == 1
    assert REPEATED_REASON in {dropped.reason for dropped in written.dropped}


def test_what_misses_the_deadline_is_one_note():
    written, asked = edit(RIGHT, deadline=0.001)
    assert not asked
    assert len(written.steps) == 3
    provisional = [note for note in written.notes if "provisional" in note]
    assert len(provisional) == 1
    assert re.match(r"sentences 2-6: provisional", provisional[0])


def test_another_language_is_asked_for_a_list():
    speech = talk("Schneide zuerst die Zwiebeln in dünne Ringe.", "Brate sie in Butter an.")
    speech = speech.model_copy(update={"language": "de"})
    with FakeServer(Answers.says("1. Zwiebeln schneiden")) as server:
        settings = LlmSettings(base_url=server.url, form="edit", cache=False)
        assert write_llm(speech, settings).steps
        assert "<transcript>" in server.asked[0]["messages"][-1]["content"]


def test_sentences_that_follow_each_other_are_one_passage_up_to_its_length():
    order = "Now put the chopped onions into the hot pan and stir them for two minutes."
    narration = parse_narration(talk(*[order] * 4, "Thanks for watching my video.", order))
    passages = choose_passages(narration)
    assert [passage.chunk.indices for passage in passages] == [(0, 1), (2, 3), (5,)]
    assert [passage.before for passage in passages] == ["", "", "Thanks for watching my video."]
    withheld = choose_passages(narration, withheld=[1])
    assert all(1 not in passage.chunk.indices for passage in withheld)


@pytest.mark.parametrize(
    ("line", "order"),
    [
        ("And holding it flat.", "Hold it flat"),
        ("Now gently stirring the sauce", "Gently stir the sauce"),
        ("apply the primer", "Apply the primer"),
        ("Then bring water to a boil.", "Bring water to a boil"),
        ("Until golden, fry the onions", "Until golden, fry the onions"),
    ],
)
def test_a_line_becomes_an_order(line, order):
    assert to_imperative(line) == order


@pytest.mark.parametrize(
    ("line", "is_step"),
    [
        ("Apply the primer", True),
        ("Gently multiply the width", True),
        ("If needed, add water", True),
        ("Do not open the lid", True),
        ("The paint dries quickly", False),
        ("Show the result", False),
        ("Need some scissors", False),
        ("Use my favorite knife", False),
        ("Add frankincense and lavender", False),
    ],
)
def test_lines_that_are_no_orders_or_name_what_nobody_said_fail(line, is_step):
    said = set(word_set("primer width water lid paint result scissor knife favorite"))
    assert (line_fault(parse([line])[0], said) is None) is is_step


def test_a_model_on_this_machine_cannot_write_pronouns():
    assert {" it", "It", " them", " I"} <= set(BANNED_TOKENS)
    assert not {" her", " the", "Put"} & set(BANNED_TOKENS)


def test_without_a_named_model_the_fetched_one_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_WEIGHTS", str(tmp_path))
    with pytest.raises(ModelError, match=r"stepline weights get qwen2\.5-coder-1\.5b.*base_url"):
        check_writer(WritingSettings(writer="llm"))
    path = tmp_path / "qwen2.5-coder-1.5b" / "model.gguf"
    monkeypatch.setattr("stepline.writing.settings.weights_fetched", lambda name: True)
    monkeypatch.setattr("stepline.writing.settings.find_weights", lambda name: path)
    assert LlmSettings().with_model().gguf == path
    named = LlmSettings(base_url="http://127.0.0.1:9/v1")
    assert named.with_model() is named
