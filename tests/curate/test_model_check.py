"""A vision-language model checks the audit's sample: what it is shown, what its answers become, how
well it agrees."""

import base64
import json
import re

import numpy as np
import pytest
from llm_fakes import Answers, FakeServer, completion
from made_records import record

from stepline.curate.audit.model_check import annotator_name, check_by_model, model_agreements
from stepline.curate.audit.sample import AuditSampler
from stepline.llm.pictures import PICTURE_LETTERS, VideoPictures
from stepline.review.answers import Answer, AnswerLog
from stepline.vision.settings import VisionLanguageSettings

# text -> second; nothing else is shown
SHOWN = {"Chop the onion": 10.0, "Fry it": 30.0, "serve it": 50.0}
RECORD = record(
    "v1",
    [("Chop the onion", 10.0, 0.9), ("Fry it", 20.0, 0.9), ("Season it", 40.0, 0.9)],
    [("hello all", 1.0, 0.1), ("serve it", 50.0, 0.8)],
)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def sample():
    sampler = AuditSampler()
    sampler.add(RECORD)
    return sampler.sample()


def knows(handler):
    """The letter of a picture within 2 s of where a text is shown."""
    content = handler.question["messages"][0]["content"]
    asked = re.findall(r"<step>(.*)</step>", content[0]["text"].split("\n\n")[1])
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    seconds = [float(base64.b64decode(url.partition(",")[2])) for url in urls]
    said = {}
    for n, text in enumerate(asked, start=1):
        away, letter = min(
            (abs(s - SHOWN.get(text, -99)), x)
            for x, s in zip(PICTURE_LETTERS, seconds, strict=False)
        )
        said[str(n)] = {"after": "done", "shown": letter if away <= 3 else "none"}
    Answers.raw(completion(json.dumps(said)))(handler)


def check(sample, tmp_path, *behaviours, **settings):
    pictures = VideoPictures(
        lambda seconds: {second: str(second).encode() for second in seconds}, 60.0
    )
    verdicts = AnswerLog(tmp_path / "model_verdicts.jsonl")
    with FakeServer(*behaviours) as server:
        quick = {"pause": 0.0, "retries": 0, "choices": 20, "model": "org/seer:7b"} | settings
        named = VisionLanguageSettings(base_url=server.url, **quick)
        checked = check_by_model(sample, lambda video: pictures, verdicts, named)
        return (
            checked,
            {text.text: v.answer for v in verdicts for text in sample.texts if text.id == v.item},
            server.asked,
        )


def test_answers_become_verdicts_by_the_seconds_of_their_pictures(sample, tmp_path):
    checked, said, asked = check(sample, tmp_path, knows)
    assert said == {
        "Chop the onion": "aligned",
        "Fry it": "misplaced",
        "Season it": "not shown",
        "hello all": "not shown",
        "serve it": "aligned",
    }
    assert (checked.answered, checked.texts, checked.requests, len(asked)) == (5, 5, 2, 2)
    assert checked.notes == ()


def test_a_budget_leaves_texts_out_and_says_so(sample, tmp_path):
    checked, said, asked = check(sample, tmp_path, knows, requests=1, concurrency=1)
    assert len(asked) == checked.requests == 1
    assert len(said) == checked.answered == 3
    assert "has not answered on 2 of 5 texts" in checked.notes[0]


def test_folders_of_corrected_videos_are_said_to_decide_nothing(sample, tmp_path):
    checked, _, _ = check(sample, tmp_path, knows, machine=tmp_path, corrected=tmp_path)
    assert "decide nothing here" in checked.notes[0]


def test_what_is_not_an_answer_is_not_a_verdict(sample, tmp_path):
    checked, said, _ = check(sample, tmp_path, Answers.says("They are all shown."))
    assert said == {}
    assert checked.answered == 0


def test_a_video_that_is_not_here_is_named(sample, tmp_path):
    with FakeServer(knows) as server:
        settings = VisionLanguageSettings(base_url=server.url)
        checked = check_by_model(
            sample, lambda video: None, AnswerLog(tmp_path / "v.jsonl"), settings
        )
        assert server.asked == []
    assert checked.notes == ("v1: not asked about, its file is not on this machine",)


def test_agreement_with_people_and_with_the_judge_by_hand(sample):
    ids = {text.text: text.id for text in sample.texts}
    people = [
        Answer(item=ids[text], annotator=who, answer=said)
        for text, who, said in (
            ("Chop the onion", "ann", "aligned"),
            ("Chop the onion", "bob", "aligned"),
            ("Fry it", "ann", "misplaced"),
            ("Season it", "ann", "aligned"),
            ("hello all", "bob", "not shown"),
        )
    ]
    told = {
        "Chop the onion": "aligned",
        "Fry it": "misplaced",
        "Season it": "not shown",
        "hello all": "not shown",
        "serve it": "aligned",
    }
    by_model = [
        Answer(item=ids[text], annotator="model seer", answer=said) for text, said in told.items()
    ]
    rows = {(row.question, row.people): row for row in model_agreements(sample, people, by_model)}
    aligned = rows["well aligned", ("model seer", "people")]
    # Four texts, people yes on two, the model on one of them: chance 2/4 * 1/4 + 2/4 * 3/4 = 1/2,
    # agreement 3/4.
    assert (aligned.texts, aligned.kappa, aligned.same) == (4, pytest.approx(0.5), 0.75)
    judge = rows["well aligned", ("judge", "model seer")]
    assert (judge.texts, judge.kappa) == (2, 1.0)
    assert ("alignable", ("judge", "model seer")) not in rows
    assert np.isclose(rows["alignable", ("model seer", "people")].kappa, 0.5)


def test_a_model_has_a_name_that_no_person_is_likely_to_take():
    assert (
        annotator_name(VisionLanguageSettings(base_url="http://a/v1", model="org/seer:7b"))
        == "model org-seer-7b"
    )
