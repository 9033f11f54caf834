"""Places that are described once for all steps, before questions are asked."""

import base64
import json
import zlib

import numpy as np
import pytest
from known_steps import NAMES, SHOT, SHOWN, grounded, grounded_video, knows, right, unchanged
from llm_fakes import Answers, FakeServer, completion

from research.vision_language.descriptions import ask_after_descriptions
from stepline.grounding.vision_language.questions import NONE_ANSWER
from stepline.llm.pictures import PICTURE_LETTERS
from stepline.vision.settings import VisionLanguageSettings


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def ask(server, grounding=None, **settings):
    quick = {"pause": 0.0, "timeout": 5.0, "deadline": 20.0} | settings
    named = VisionLanguageSettings(base_url=server.url, **quick)
    return ask_after_descriptions(grounded_video(grounding or grounded()), named)


def knows_words(r=1.0):
    """Descriptions by the words of the step that each picture shows, right with probability r;
    letters by the truth."""

    def act(handler):
        content = handler.question["messages"][0]["content"]
        if "<step>" in content[0]["text"]:
            knows(r)(handler)
            return
        urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
        said = {}
        for letter, url in zip(PICTURE_LETTERS, urls, strict=False):
            second = float(base64.b64decode(url.partition(",")[2]))
            rng = np.random.default_rng(zlib.crc32(f"{second}".encode()))
            shown = [NAMES[k] for k, at in SHOWN.items() if int(second) // SHOT == at // SHOT] or [
                NONE_ANSWER
            ]
            said[letter] = shown[0] if rng.random() < r else str(rng.choice(NAMES))
        Answers.raw(completion(json.dumps(said)))(handler)

    return act


def descriptions(server):
    return sum("<step>" not in body["messages"][0]["content"][0]["text"] for body in server.asked)


def test_places_are_described_once_and_serve_all_steps():
    before = right(grounded().steps)
    with FakeServer(knows_words()) as server:
        answers = ask(server, requests=6)
        assert descriptions(server) == 3  # 20 places, 8 a request
        assert len(server.asked) <= 6
    told = answers.report["descriptions"]
    assert (len(told["pictures"]), told["words"].count("")) == (20, 13)
    assert set(right(answers.steps)) > set(before)


def test_descriptions_alone_move_steps_only_where_they_have_earned_it():
    with FakeServer(knows_words(0.0)) as server:
        before = grounded()
        answers = ask(server, before, requests=12)
        assert descriptions(server) == 3
    assert not answers.report["trusted"]
    assert unchanged(answers, before)


def test_descriptions_that_would_take_more_than_half_of_the_requests_are_not_asked_for():
    with FakeServer(knows_words()) as server:
        answers = ask(server, requests=5)
        assert descriptions(server) == 0
    assert "descriptions" not in answers.report
