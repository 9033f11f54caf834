"""form="auto": what a model answers to a short narration decides what it is asked for."""

import pytest
from llm_fakes import DOUBTFUL_SPEECH, Answers, FakeServer, talk

from stepline.writing.llm.probe import SENTENCES, is_correct_probe_reply
from stepline.writing.llm.replies import parse_reply
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings

pytestmark = pytest.mark.usefixtures("own_cache")
RIGHT = {
    "3": "Take the seat off by its four screws",
    "5": "Keep the screws in a jar",
    "6": "Sand the legs with 120 grit paper",
    "7": "Wipe the legs down and let them dry for twenty minutes",
}
FORM_NOTE = "writing.llm.form=auto took {}: the model {} the test narration"
SPEECH = talk("Hello and welcome back.", "Now cut the onion into thin rings.")


def reply_of(steps):
    return "\n".join(f"{numbers}: {text}" for numbers, text in steps.items())


def finds(steps):
    return is_correct_probe_reply(
        parse_reply(reply_of(steps), sentences=len(SENTENCES), form="cited")
    )


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"7": "Wipe the legs down, then dry the legs for 20 minutes"},
        {"7": "Wipe the legs down", "7, 8": "Let the legs dry for twenty minutes"},
        {"2, 3": "Take off the seat", "4, 5": "Keep the four screws in a jar"},
    ],
    ids=["as we write it", "a number in digits", "two steps of a sentence", "talk cited too"],
)
def test_the_right_steps_are_those_of_a_strong_model(changed):
    assert finds({**RIGHT, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"2": "Buy a chair at a flea market"},
        {"8": "Take a trip to the sea"},
        {"5": "Keep them in a jar"},
        {"7": "Wipe them down and let them dry for twenty minutes"},
        {"6": "Sand the legs with grit paper"},
        {"7": "Wipe the legs down and let them dry"},
        {"5": ""},
    ],
    ids=(
        "a story is a step, talk is a step, a pronoun for the screws, a pronoun for the legs, "
        "no grit, no minutes, a step is missing"
    ).split(", "),
)
def test_another_step_a_pronoun_or_a_lost_number_is_that_of_a_weak_model(changed):
    steps = {**RIGHT, **changed}
    assert not finds({numbers: text for numbers, text in steps.items() if text})


@pytest.mark.parametrize("reply", ["none", "", "I take off the seat.", "1. Take off the seat"])
def test_a_reply_of_another_form_is_that_of_a_weak_model(reply):
    assert not is_correct_probe_reply(parse_reply(reply, sentences=len(SENTENCES), form="cited"))


def test_a_strong_model_chooses_the_steps_itself():
    answers = (Answers.says(reply_of(RIGHT)), Answers.says("2: Cut the onion into thin rings"))
    with FakeServer(*answers) as server:
        written = write_llm(SPEECH, LlmSettings(base_url=server.url))
        probe, question = server.questions()
        assert [body["max_tokens"] for body in server.asked] == [512, 6000]
    assert f"\n1: {SENTENCES[0]}\n2: {SENTENCES[1]}\n" in probe
    assert "\n2: Now cut the onion into thin rings.\n" in question
    assert [(step.text, step.sources) for step in written.steps] == [
        ("Cut the onion into thin rings", (1,))
    ]
    assert written.notes == (FORM_NOTE.format("write", "passed"),)


def test_limits_that_are_given_are_those_of_a_strong_model_too():
    with FakeServer(Answers.says(reply_of(RIGHT)), Answers.says("none")) as server:
        write_llm(SPEECH, LlmSettings(base_url=server.url, max_tokens=99))
        assert [body["max_tokens"] for body in server.asked] == [99, 99]


@pytest.mark.parametrize(
    "probed", [Answers.says("none"), Answers.says("Sure!"), Answers.status(400, "too long")]
)
def test_another_model_names_the_pronouns_of_the_extractive_writer_s_steps(probed):
    named = "Put the lid on the bowl and press it down"
    with FakeServer(probed, Answers.says(f"{named}.")) as server:
        written = write_llm(DOUBTFUL_SPEECH, LlmSettings(base_url=server.url))
        roles = [[message["role"] for message in body["messages"]] for body in server.asked]
    assert [each[0] for each in roles] == ["user", "system"]
    assert roles[1][-2:] == ["assistant", "user"]  # an example before the question
    assert written.notes == (FORM_NOTE.format("edit", "did not pass"),)
    assert written.steps[3].text == named.lower()


def test_a_model_is_probed_once():
    answers = (Answers.says("none"), Answers.says("Put the lid on the bowl and press it down"))
    with FakeServer(*answers, Answers.status(500)) as server:
        settings = LlmSettings(base_url=server.url)
        assert write_llm(DOUBTFUL_SPEECH, settings) == write_llm(DOUBTFUL_SPEECH, settings)
        assert len(server.asked) == 2
