"""The form for small models: the extractive writer's steps, and a model that names their pronouns."""

import pytest
from llm_fakes import DOUBTFUL_SPEECH as SPEECH
from llm_fakes import Answers, FakeServer, talk

from stepline.errors import ModelError
from stepline.llm.checked_requests import DEADLINE_PASSED
from stepline.writing import WritingSettings, check_writer
from stepline.writing.extractive.narration import parse_narration
from stepline.writing.extractive.writer import write_extractive
from stepline.writing.llm.editing import (
    OTHER_WORDS_FAULT,
    OTHER_WORDS_REASON,
    conversation_start,
    find_doubtful_steps,
)
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings

pytestmark = pytest.mark.usefixtures("own_cache")
PROVISIONAL = "1 of 1 doubtful steps: provisional, from the extractive writer, because {}"
OWN_TEXTS = [
    "put the flour in a big bowl",
    "take the lid from the shelf",
    "wash your hands with soap",
    "put it on the bowl and press it down",
    "heat the oven to 200 degrees",
]
DOUBTFUL = 3  # index of the step with the doubtful pronoun
NAMED = "Put the lid on the bowl and press it down"


def edit(*answers, speech=SPEECH, progress=None, **settings):
    """Write the steps of a speech with a model that gives these answers, and return what it was asked."""
    with FakeServer(*(Answers.says(answer) for answer in answers)) as server:
        options = {"base_url": server.url, "form": "edit", "cache": False, **settings}
        return write_llm(speech, LlmSettings(**options), progress=progress), server.asked


def test_the_model_names_a_doubtful_pronoun_and_every_other_step_stays():
    reports = []
    written, asked = edit(f"{NAMED}.", progress=lambda *report: reports.append(report))
    texts = [step.text for step in written.steps]
    assert texts == [*OWN_TEXTS[:DOUBTFUL], NAMED.lower(), *OWN_TEXTS[DOUBTFUL + 1 :]]
    assert [step.sources for step in written.steps] == [(n,) for n in range(5)]
    assert written.notes == ()
    assert reports == [("writing", SPEECH.sentences[3].span.end, SPEECH.sentences[4].span.end)]
    (question,) = asked
    assert question["messages"][:-1] == list(conversation_start())
    assert question["messages"][-1]["content"] == (
        'Said: "First put the flour in a big bowl. Then take the lid from the shelf. Now wash your '
        'hands with soap. Then put it on the bowl and press it down."\n'
        "Step: Put it on the bowl and press it down"
    )
    assert "grammar" not in question  # of a model on this machine alone


def test_an_answer_may_leave_the_pronoun():
    written, asked = edit(f"{OWN_TEXTS[DOUBTFUL].capitalize()}.")
    assert [step.text for step in written.steps] == OWN_TEXTS
    assert len(asked) == 1
    assert written.notes == ()


@pytest.mark.parametrize(
    "answer",
    [
        "Put the pan on the bowl and press it down.",
        "Put the lid on the bowl.",
        "Put the lid on the bowl and press it down for 5 minutes.",
        "Do not put the lid on the bowl and press it down.",
        "none",
    ],
)
def test_an_answer_with_other_words_is_asked_for_again_and_then_the_step_stays(answer):
    written, asked = edit(answer, answer)
    assert [step.text for step in written.steps] == OWN_TEXTS
    assert asked[1]["messages"][-1]["content"].endswith(f"\nMind: {OTHER_WORDS_FAULT}")
    assert written.notes == (PROVISIONAL.format(OTHER_WORDS_REASON),)
    written, _ = edit(answer, f"{NAMED}.")
    assert written.steps[DOUBTFUL].text == NAMED.lower()


def test_what_misses_the_deadline_is_one_note():
    written, asked = edit(deadline=0.001)
    assert not asked
    assert [step.text for step in written.steps] == OWN_TEXTS
    assert written.notes == (PROVISIONAL.format(DEADLINE_PASSED),)


def test_a_model_on_this_machine_can_only_choose_a_name():
    narration = parse_narration(SPEECH)
    (step,) = find_doubtful_steps(write_extractive(SPEECH).steps, narration)
    assert step.grammar.startswith('root ::= ("Put") " " ("it" | "the lid" | ')
    assert step.grammar.endswith(' ("down") "."')
    assert "the bowl" not in step.parts[1]  # the step names it already
    assert step.accepts(NAMED)
    assert not step.accepts(f"{NAMED} now")


def test_the_model_is_not_shown_what_is_withheld():
    narration = parse_narration(SPEECH)
    (step,) = find_doubtful_steps(write_extractive(SPEECH).steps, narration, withheld=[2])
    assert "soap" not in step.said
    assert "take the lid" in step.said


def test_another_language_is_asked_for_a_list():
    speech = talk("Schneide zuerst die Zwiebeln in dünne Ringe.", "Brate sie in Butter an.")
    speech = speech.model_copy(update={"language": "de"})
    with FakeServer(Answers.says("1. Zwiebeln schneiden")) as server:
        settings = LlmSettings(base_url=server.url, form="edit", cache=False)
        assert write_llm(speech, settings).steps
        assert "<transcript>" in server.asked[0]["messages"][-1]["content"]


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
