"""The second pass of the model writer: it chooses, joins and orders, and whatever else a model
answers leaves the first pass as it is."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llm_fakes import Answers, FakeServer, bag_of_words, talk

from stepline.records import Step
from stepline.writing import WritingSettings, write_steps
from stepline.writing.llm.second_pass import LEFT_OUT, build_question, join_steps, read_order
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings
from stepline.writing.types import WrittenSteps

SPEECH = talk("Cut the onion.", "Fry the onion in butter.", "Buy a big pan.", "Add some salt.")
LIST = '{"steps": ["Cut the onion", "Fry the onion in butter", "Buy a big pan", "Add salt"]}'
FIRST = ["Cut the onion", "Fry the onion in butter", "Buy a big pan", "Add salt"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def write(*answers: Any, **named: Any) -> WrittenSteps:
    with FakeServer(Answers.says(LIST), *answers) as server:
        options = {"pause": 0.0, "retries": 0, "timeout": 2.0} | named
        return write_llm(
            SPEECH,
            LlmSettings(base_url=server.url, **options),
            embed=bag_of_words,
            second_pass=True,
        )


def texts(written: WrittenSteps) -> list[str]:
    return [step.text for step in written.steps]


def test_steps_are_chosen_joined_and_ordered_as_the_model_says() -> None:
    written = write(Answers.says('{"steps": [[4], [1, 2]]}'))
    assert texts(written) == ["Add salt", "Cut the onion and fry the onion in butter"]
    assert [step.id for step in written.steps] == ["1", "2"]
    assert [step.sources for step in written.steps] == [(3,), (0, 1)]
    assert [(one.text, one.reason) for one in written.dropped] == [("Buy a big pan", LEFT_OUT)]
    assert written.notes == ()


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("1, 2, 3 and 4", "not a JSON object of numbers"),
        ('{"steps": ["Cut the onion"]}', "something else than numbers"),
        ('{"steps": [[1], [2], [3], [9]]}', "a step 9 of 4"),
        ('{"steps": [[0], [1], [2]]}', "a step 0 of 4"),
        ('{"steps": [[1], [2], [2, 3]]}', "a step twice"),
        ('{"steps": [[1]]}', "leaves out 3 of 4 steps"),
        ('{"steps": []}', "leaves out 4 of 4 steps"),
        ('{"steps": [[1, 2, 3, 4]]}', "joins steps 1, 2, 3, 4, more than 3"),
        ('{"steps": [[true], [2], [3]]}', "something else than numbers"),
        ('{"steps": [[1], [2', "not a JSON object of numbers"),
    ],
)
def test_an_answer_that_does_not_fit_leaves_the_first_pass_and_a_note(
    reply: str, reason: str
) -> None:
    written = write(Answers.says(reply))
    assert texts(written) == FIRST
    (note,) = written.notes
    assert note.startswith("the second pass was not used, because ")
    assert note.endswith("the steps are those of the first")
    assert reason in note


def test_a_server_that_fails_in_the_second_pass_leaves_the_first() -> None:
    written = write(Answers.status(500))
    assert texts(written) == FIRST
    assert "answered 500" in written.notes[0]


def test_a_second_answer_that_fits_is_taken() -> None:
    written = write(Answers.says("Sure!"), Answers.says('{"steps": [[1], [2], [4]]}'))
    assert texts(written) == ["Cut the onion", "Fry the onion in butter", "Add salt"]


def test_nothing_that_stays_apart_is_joined() -> None:
    far = [Step(id="1", text="Cut it", sources=(0,)), Step(id="2", text="Fry it", sources=(30,))]
    assert "far apart" in (read_order('{"steps": [[1, 2]]}', far).refusal or "")
    silent = [far[0], Step(id="2", text="Fry it", at=3.0)]
    assert "is not said" in (read_order('{"steps": [[1, 2]]}', silent).refusal or "")
    avoid = [far[0], Step(id="2", text="Don't burn it", sources=(1,))]
    assert "what to avoid" in (read_order('{"steps": [[1, 2]]}', avoid).refusal or "")


def test_two_tellings_of_one_step_are_joined_to_one_and_two_steps_to_both() -> None:
    from stepline.text import embed

    def joined(*lines: str) -> str:
        steps = [Step(id=str(n), text=text, sources=(n,)) for n, text in enumerate(lines)]
        return join_steps(steps, embed).text

    assert joined("Put the pan on the stove", "Place the pan on the stove") == (
        "Place the pan on the stove"
    )
    both = joined("Turn the left screw", "Turn the right screw", "Lift the lid")
    assert both == "Turn the left screw, turn the right screw and lift the lid"


def test_the_question_quotes_steps_and_speech_and_nothing_closes_it() -> None:
    speech = talk("Cut </steps> it.")
    question = build_question([Step(id="1", text="Cut <it>", sources=(0,))], speech, "Soup")
    assert '1. Cut (it) (said: "Cut (/steps) it.")' in question
    assert question.count("</steps>") == 2  # in the rules, and where the record ends
    assert "Title of the video: Soup" in question


def test_it_is_asked_once_and_read_from_the_cache_then() -> None:
    answers = [Answers.says(LIST), Answers.says('{"steps": [[1], [2], [4]]}')]
    with FakeServer(*answers, Answers.status(500)) as server:
        named = WritingSettings(writer="llm", second_pass=True, llm={"base_url": server.url})
        first, second = write_steps(SPEECH, named), write_steps(SPEECH, named)
        assert len(server.asked) == 2
    assert first == second
    assert len(first.steps) == 3


def test_the_second_pass_is_off_by_default() -> None:
    with FakeServer(Answers.says(LIST)) as server:
        write_steps(SPEECH, WritingSettings(writer="llm", llm={"base_url": server.url}))
        assert len(server.asked) == 1


STEPS = [Step(id=str(n), text=f"Cut part {n}", sources=(n,)) for n in range(6)]
NUMBERS = st.lists(st.lists(st.integers(-2, 9), max_size=4), max_size=8)
REPLIES = st.one_of(st.text(), NUMBERS.map(lambda groups: json.dumps({"steps": groups})))


@given(REPLIES)
@settings(max_examples=300, deadline=None)
def test_any_text_is_an_order_of_the_steps_or_refused(reply: str) -> None:
    order = read_order(reply, STEPS)
    chosen = [index for group in order.groups for index in group]
    assert bool(order.groups) != bool(order.refusal)
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(range(6))
