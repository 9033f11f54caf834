"""What a strong model answered to our prompts of twelve narrations of our own, given back by a server.

The replies are in recorded/. A prompt that changes needs new ones: they answer the prompt whose digest
stands here.
"""

import hashlib
from pathlib import Path

import pytest
from llm_fakes import Answers, FakeServer

from lab.writer_training.marked import read_marked_narrations
from stepline.records import Sentence, Span, Transcript
from stepline.writing.llm.probe import SENTENCES, is_correct_probe_reply
from stepline.writing.llm.replies import parse_reply
from stepline.writing.llm.writer import write_llm
from stepline.writing.quantities import numbers
from stepline.writing.settings import LlmSettings

RECORDED = Path(__file__).with_name("recorded")
NARRATIONS = Path(__file__).parents[2] / "lab" / "narrations" / "texts"
# narration -> first digits of the sha256 of its prompt
PROMPTS = {
    "cookA_02": "519eb2a1eee9d7f8",
    "cookB_03": "35297542eeb2c3b0",
    "cookB_17": "afa73b582754597c",
    "cookC_05": "9d1071d68a08737d",
    "handA_04": "8e8b6f0b3854a0b3",
    "handA_13": "a37636dd1bbdb63f",
    "handA_22": "cff9710fd0433067",
    "handA_31": "06afc071c4576a0a",
    "lifeA_03": "409381b438bf9b4a",
    "lifeA_11": "d2720c3e6e190196",
    "lifeA_20": "46cbb7fc3fca6046",
    "talk_03": "c9c453c2df47472e",
}
TALK = "talk_03"  # it instructs nothing


@pytest.fixture(scope="module")
def narrations():
    return {narration.name: narration for narration in read_marked_narrations(NARRATIONS)}


def write(narration, reply_to):
    """The steps of a narration by the recorded reply to one, and the prompt."""
    sentences = tuple(
        Sentence(text=sentence.text, span=Span(5.0 * number, 5.0 * number + 5.0))
        for number, sentence in enumerate(narration.sentences)
    )
    lines = (NARRATIONS / f"{narration.name}.txt").read_text(encoding="utf-8").splitlines()
    title = next(line.partition(":")[2].strip() for line in lines if line.startswith("# title"))
    reply = (RECORDED / f"{reply_to}.txt").read_text(encoding="utf-8")
    with FakeServer(Answers.says(reply)) as server:
        settings = LlmSettings(base_url=server.url, form="write", cache=False)
        written = write_llm(Transcript(language="en", sentences=sentences), settings, title=title)
        return written, server.asked[0]["messages"][-1]["content"]


def test_the_prompts_are_those_that_the_replies_answer(narrations):
    prompts = {name: write(narrations[name], TALK)[1] for name in PROMPTS}
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in prompts.items()}
    assert {name: digest[:16] for name, digest in digests.items()} == PROMPTS


def test_talk_has_no_steps(narrations):
    assert write(narrations[TALK], TALK)[0].steps == ()


@pytest.mark.parametrize(
    "names",
    [
        ("cookB_17", "handA_22"),
        pytest.param(sorted(set(PROMPTS) - {TALK}), marks=pytest.mark.slow, id="all"),
    ],
)
def test_a_strong_models_steps_are_those_that_people_marked(narrations, names):
    marked_count = found = step_count = on_marked = 0
    for name in names:
        narration = narrations[name]
        written, _ = write(narration, name)
        kinds = enumerate(sentence.kind for sentence in narration.sentences)
        marked = {number for number, kind in kinds if kind in ("step", "warning")}
        cited = [set(step.sources) for step in written.steps]
        assert all(cited), name
        said = numbers(" . ".join(sentence.text for sentence in narration.sentences))
        assert numbers(" . ".join(step.text for step in written.steps)) <= said | {1.0}, name
        marked_count += len(marked)
        found += len(marked.intersection(*[set().union(*cited)]))
        step_count += len(cited)
        on_marked += sum(not marked.isdisjoint(sources) for sources in cited)
    assert found / marked_count > 0.97  # .987 for all as they were recorded
    assert on_marked / step_count > 0.95  # .987, of these two .982


def test_the_probe_tells_a_strong_model():
    reply = (RECORDED / "probe.txt").read_text(encoding="utf-8")
    assert is_correct_probe_reply(parse_reply(reply, sentences=len(SENTENCES), form="cited"))
