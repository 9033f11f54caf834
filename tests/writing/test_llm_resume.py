"""A writing that was stopped and is started again: what was answered is not asked for again."""

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from llm_fakes import Answers, FakeServer, talk

from stepline.writing.llm.writer import write_llm
from stepline.writing.settings import LlmSettings

SPEECH = talk(
    "First put the flour in a big bowl.",
    "My grandmother always did this by hand.",
    "Now pour 200 grams of milk into the flour.",
    "I love how that looks.",
    "Then cover the bowl with a towel.",
)
# form -> what the model answers to the part with the word
REPLIES = {
    "edit": {
        "flour in a": "Put the flour in a big bowl.",
        "milk": "Pour 200 grams of milk into the flour.",
        "towel": "Cover the bowl with a towel.",
    },
    "write": {
        "flour in a": "1: Put the flour in a big bowl",
        "milk": "1: Pour 200 grams of milk into the flour",
        "towel": "1: Cover the bowl with a towel",
    },
}


@pytest.mark.parametrize("form", ["edit", "write"])
def test_an_interrupted_writing_asks_again_only_for_what_was_not_answered(
    form, tmp_path, monkeypatch
):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path))
    monkeypatch.setattr("stepline.writing.llm.prompts.WRITE_WORDS", 13)
    asked: list[str] = []
    stored_at_interrupt: list[Path] = []

    def serve(handler: Any) -> None:
        question = handler.question["messages"][-1]["content"]
        part = question.rpartition("Write up:" if form == "edit" else "<transcript>")[2]
        word = next(word for word in REPLIES[form] if word in part)
        asked.append(word)
        if asked.count("milk") == 1 and word == "milk":
            # a kill would leave what is stored now
            stored_at_interrupt.extend(tmp_path.rglob("*.json"))
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
            Answers.stalls(handler)
        Answers.says(REPLIES[form][word])(handler)

    with FakeServer(serve) as server:
        settings = LlmSettings(base_url=server.url, form=form, timeout=300.0)
        with pytest.raises(KeyboardInterrupt):
            write_llm(SPEECH, settings)
        assert asked == ["flour in a", "milk"]
        assert len(stored_at_interrupt) == 1
        written = write_llm(SPEECH, settings)
        assert asked == ["flour in a", "milk", "milk", "towel"]
        assert write_llm(SPEECH, settings) == written
        assert len(asked) == 4
    assert [step.text for step in written.steps] == [
        "Put the flour in a big bowl",
        "Pour 200 grams of milk into the flour",
        "Cover the bowl with a towel",
    ]
