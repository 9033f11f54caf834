"""Whoever asks a language model does it in one way: cache, ask, check, ask once more."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from stepline.grounding.vision_language.questions import VisionRequests
from stepline.llm.requests import RequestLimits, open_cache
from stepline.llm.servers import Answer, RequestError
from stepline.records import Sentence, Span, Transcript
from stepline.vision.settings import VisionLanguageSettings
from stepline.writing.llm.prompts import nasva_prompt, split_into_chunks
from stepline.writing.llm.writer import ChunkWriter
from stepline.writing.settings import LlmSettings

PICTURES = (b"one", b"two")
QUICK = {"pause": 0.0, "retries": 2}


class ScriptedServer:
    """Answers one text or fault after another, the last one for ever."""

    name = "http://a/v1 seer"
    workers = 1

    def __init__(self, *answers):
        self.answers = list(answers)
        self.seeds: list[int] = []
        self.questions: list[str] = []

    def ask(self, question, *, seed, until, schema=None):
        """Return the next answer of the script."""
        self.seeds.append(seed)
        self.questions.append(question if isinstance(question, str) else question[0]["text"])
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Answer) else Answer(answer)

    def close(self):
        """Do nothing."""


def write(server, **settings):
    sentence = Sentence(text="Cut the onion.", span=Span(0, 4))
    (chunk,) = split_into_chunks(Transcript(sentences=(sentence,)), 10)
    named = LlmSettings(**QUICK, **settings)
    limits = (RequestLimits(), time.monotonic() + 60)
    writer = ChunkWriter(server, named, open_cache(named.cache), *limits, nasva_prompt())
    return bool(writer.write(chunk).steps)


def choose(server, **settings):
    runner = VisionRequests.start(server, VisionLanguageSettings(**QUICK, **settings))
    return not runner.choose(["cut it"], PICTURES)[0].refusal


def describe(server, **settings):
    runner = VisionRequests.start(server, VisionLanguageSettings(**QUICK, **settings))
    return not runner.describe(PICTURES)[0].refusal


@dataclass(frozen=True)
class User:
    """One that asks. key: the file of a good reply in the cache, which must stay what it is."""

    ask: Callable[..., bool]
    good: str
    reminder: str
    key: str


CHOICE = '{"1": {"after": "x", "shown": "none"}}'
OBJECT = "Answer with one JSON object"
# name of the file in the cache
KEYS = """39b3d07140b7ea97c4a9f2adb360ea4832dda2b328119da60b3e63c4683a2097
d9a894ebbf3cf9a274dc7cd22533d36cedbe7a475ed235ded6d7d8d4d0886354
370860d55089d4176d63480f7cfad040a20698425300449d092e9d1343f51c14""".split()
USERS = [
    User(write, "1. Cut the onion", "Answer with a numbered list", KEYS[0]),
    User(choose, CHOICE, OBJECT, KEYS[1]),
    User(describe, '{"A": "Cut it", "B": "none"}', OBJECT, KEYS[2]),
]
every_user = pytest.mark.parametrize("user", USERS, ids=lambda user: user.ask.__name__)
BUSY = RequestError("the server answered 503", is_transient=True)


@pytest.fixture(autouse=True)
def replies(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "replies"


def entries(replies):
    return {path.stem: path.read_text() for path in replies.glob("*.json")}


@every_user
def test_a_good_reply_is_asked_for_once_and_is_under_the_same_key_as_ever(user, replies):
    server = ScriptedServer(user.good)
    assert user.ask(server)
    assert entries(replies) == {user.key: json.dumps({"version": 1, "reply": user.good})}
    assert user.ask(server)
    assert server.seeds == [2023]
    # another seed is another question
    for seed in (1, 2, 1):
        assert user.ask(server, seed=seed)
    assert server.seeds == [2023, 1, 2]


@every_user
def test_a_refused_reply_is_asked_for_once_more_with_the_next_seed_and_a_reminder(user, replies):
    server = ScriptedServer("Sure, I can help!", user.good)
    assert user.ask(server)
    assert server.seeds == [2023, 2024]
    first, second = server.questions
    assert second.startswith(first)
    assert user.reminder in second[len(first) :]
    assert list(entries(replies)) == [user.key]


@every_user
def test_a_reply_that_is_refused_twice_or_was_cut_off_is_not_kept(user, replies):
    server = ScriptedServer("Sure, I can help!")
    assert not user.ask(server)
    assert server.seeds == [2023, 2024]
    lines = "1. Cut the onion\n2. Fry i" if user.good.startswith("1.") else user.good
    server = ScriptedServer(Answer(lines, complete=False))
    assert user.ask(server)
    assert server.seeds == [2023]
    assert entries(replies) == {}


@every_user
def test_a_fault_that_may_pass_is_tried_again_as_often_as_the_settings_say(user):
    assert user.ask(server := ScriptedServer(BUSY, BUSY, user.good), cache=False)
    assert server.seeds == [2023] * 3
    assert not user.ask(server := ScriptedServer(BUSY), cache=False)
    assert server.seeds == [2023] * 3
    # one that stays ends the asking, and any other error is raised
    server = ScriptedServer(RequestError("the server answered 400", is_transient=False))
    assert not user.ask(server, cache=False)
    assert server.seeds == [2023]
    with pytest.raises(ZeroDivisionError):
        user.ask(ScriptedServer(ZeroDivisionError()))
