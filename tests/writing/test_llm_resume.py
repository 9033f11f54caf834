"""A writing that was stopped and is started again: what was answered is not asked for again."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from llm_fakes import Answers, FakeServer, talk

from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings, WritingSettings
from stepline.writing.types import WrittenSteps

SPEECH = talk(
    "First put the flour in a big bowl.",
    "Then take the lid from the shelf.",
    "Now wash your hands with soap.",
    "Then put it on the bowl and press it down.",
    "Next put the milk in a small jar.",
    "Then take the cork from the drawer.",
    "Now dry your hands with paper.",
    "Then put it on the jar and press it down.",
    "Next put the butter on a white plate.",
    "Then take the cover from the box.",
    "Now clean your hands with water.",
    "Then put it on the plate and press it down.",
)
# form -> what the model answers to the part that ends so
REPLIES = {
    "edit": {
        "Put it on the bowl": "Put the lid on the bowl",
        "Put it on the jar": "Put the cork on the jar",
        "Put it on the plate and press it down": "Put the cover on the plate and press it down",
    },
    "write": {
        "Put it on the bowl": "4: Put the lid on the bowl",
        "Put it on the jar": "4: Put the cork on the jar",
        "Put it on the plate and press it down": "4: Put the cover on the plate and press it down",
    },
}


@pytest.mark.parametrize("form", ["edit", "write"])
def test_an_interrupted_writing_asks_again_only_for_what_was_not_answered(
    form, tmp_path, monkeypatch
):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path))
    monkeypatch.setattr("stepline.writing.llm.prompts.WRITE_WORDS", 32)
    asked: list[str] = []
    stored_at_interrupt: list[Path] = []
    first, second, third = REPLIES[form]

    def serve(handler: Any) -> None:
        question = handler.question["messages"][-1]["content"]
        part = question.rpartition("Step: " if form == "edit" else "<transcript>")[2]
        part = next(end for end in REPLIES[form] if end.lower() in part.lower())
        asked.append(part)
        if asked.count(second) == 1 and part == second:
            # a kill would leave what is stored now
            stored_at_interrupt.extend(tmp_path.rglob("*.json"))
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
            Answers.stalls(handler)
        Answers.says(REPLIES[form][part])(handler)

    def write() -> WrittenSteps:
        # each sentence gives a step of its own
        return write_llm(SPEECH, settings, writing=WritingSettings(detail="full"))

    with FakeServer(serve) as server:
        settings = LlmSettings(base_url=server.url, form=form, timeout=300.0)
        with pytest.raises(KeyboardInterrupt):
            write()
        assert asked == [first, second]
        assert len(stored_at_interrupt) == 1
        written = write()
        assert asked == [first, second, second, third]
        assert write() == written
        assert len(asked) == 4
    texts = {step.text.lower() for step in written.steps}
    assert texts >= {reply.removeprefix("4: ").lower() for reply in REPLIES[form].values()}
