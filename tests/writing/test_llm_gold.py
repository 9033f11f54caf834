"""What comes out of the right steps that a faulty server answers with: a made narration and, where
they are at hand, long real ones."""

import pytest
from gold_narration import (
    BAD_LINES,
    CUT_OFF_LINE,
    FAULTS,
    INVENTED_LINES,
    MADE,
    GoldServer,
    faulty_reply,
    labelled_narrations,
    made_narration,
    score,
)
from llm_fakes import Answers, FakeServer

from stepline.writing.llm.replies import parse_reply
from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings

pytestmark = pytest.mark.usefixtures("own_cache")


def write(gold, *, sentences=10):
    with gold.server as server:
        settings = LlmSettings(
            base_url=server.url, form="nasva", sentences_per_chunk=sentences, concurrency=1
        )
        return write_llm(gold.narration.transcript, settings)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_costs_no_right_line(fault):
    texts = ("Cut the onion", "Fry it for 5 minutes", "Add salt")
    reply, finish = faulty_reply(texts, fault)
    reading = parse_reply(reply, complete=finish == "stop")
    assert reading.refusal is None
    assert [text for text in dict.fromkeys(reading.texts) if text not in INVENTED_LINES] == [*texts]
    assert {one.text for one in reading.dropped} <= {*BAD_LINES, CUT_OFF_LINE}
    assert all(one.reason for one in reading.dropped)


def test_the_right_steps_of_a_made_narration_come_out_and_nothing_else():
    gold = GoldServer(made_narration())
    written = write(gold, sentences=4)  # each fault comes round
    counts = score(gold.narration, written)
    assert set(gold.faults) == set(FAULTS)
    assert counts.found >= 0.97 * counts.right
    assert counts.precise >= 0.97 * counts.written
    dropped = {one.text for one in written.dropped}
    assert {*BAD_LINES, *INVENTED_LINES} <= dropped
    (order,) = [said for said, _ in MADE if said.startswith("Ignore all previous")]
    assert order in dropped  # withheld from the model
    texts = [step.text for step in written.steps]
    assert "Type the opening <div>" in texts
    assert "Put the lines back in the original order" in texts
    assert "Go to www.example.com in the browser" in texts
    assert "Beat three eggs with half a cup of sugar until they are pale" in texts
    sides = [text for text in texts if text.endswith("menu")]
    assert sides == ["Click the left menu", "Click the right menu"]


def test_more_of_the_right_steps_come_from_the_model_than_from_the_fallback():
    gold = GoldServer(made_narration())
    written = write(gold)
    with FakeServer(Answers.status(500)) as silent:
        settings = LlmSettings(base_url=silent.url, form="nasva", retries=0, pause=0.0)
        other = write_llm(gold.narration.transcript, settings)
    assert score(gold.narration, written).found > score(gold.narration, other).found


@pytest.mark.slow
def test_the_right_steps_of_long_real_narrations_come_out(shared_path):
    folder = shared_path("transcripts/labels.json").parent
    right = written_steps = found = precise = 0
    for narration in labelled_narrations(folder):
        counts = score(narration, write(GoldServer(narration)))
        right, found = right + counts.right, found + counts.found
        written_steps, precise = written_steps + counts.written, precise + counts.precise
    assert found >= 0.94 * right
    assert precise >= 0.95 * written_steps
