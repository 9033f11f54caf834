"""A model looks at some of a video's sentences: which, what it says of them, and how well people
and judge agree."""

import base64
import json
import re

import pytest
from llm_fakes import Answers, FakeServer, completion
from made_records import record

from stepline.curate.audit.sample import narration_texts, sample_sentences
from stepline.curate.audit.sentences import check_sentences, read_people
from stepline.errors import DatasetError, StoreError
from stepline.llm.pictures import PICTURE_LETTERS, VideoPictures
from stepline.review.answers import Answer, AnswerLog
from stepline.vision.settings import VisionLanguageSettings

SENTENCES = [
    ("hello all", 1.0, 0.1),
    ("cut the onion", 10.0, 0.9),
    ("fry it", 20.0, 0.8),
    ("thank you", 50.0, 0.7),
]
RECORD = record("v", [("Cut the onion", 10.0, 0.9)], SENTENCES)
SHOWN = {"cut the onion": 11.0, "fry it": 40.0}  # text -> second


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def knows(handler):
    content = handler.question["messages"][0]["content"]
    asked = re.findall(r"<step>(.*)</step>", content[0]["text"].split("\n\n")[1])
    seconds = seconds_of(content)
    said = {}
    for n, text in enumerate(asked, start=1):
        away, letter = min(
            (abs(s - SHOWN.get(text, -99)), x)
            for x, s in zip(PICTURE_LETTERS, seconds, strict=False)
        )
        said[str(n)] = {"after": "done", "shown": letter if away <= 3 else "none"}
    Answers.raw(completion(json.dumps(said)))(handler)


def seconds_of(content):
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    return [float(base64.b64decode(url.partition(",")[2])) for url in urls]


def check(count, *, people=(), start=0.0, **settings):
    read = VideoPictures(lambda seconds: {s: str(s).encode() for s in seconds}, 60.0 - start, start)
    with FakeServer(knows) as server:
        given = VisionLanguageSettings(
            base_url=server.url, **({"choices": 20, "pause": 0.0} | settings)
        )
        return check_sentences(RECORD, count, read, given, people=people), server.asked


def test_each_sentence_is_shown_while_it_is_said_or_elsewhere_or_nowhere():
    found, asked = check(10)
    assert found.answers == {0: "not shown", 1: "aligned", 2: "misplaced", 3: "not shown"}
    assert len(asked) == found.asking.requests == 2
    pictures = sorted(
        {second for body in asked for second in seconds_of(body["messages"][0]["content"])}
    )
    assert list(found.asking.pictures["v"]) == pictures
    # The judge says yes to three (P of .9, .8, .7), the model to one: chance 3/4 * 1/4 + 1/4 * 3/4,
    # agreement 2/4.
    (row,) = found.agreements
    assert (row.people, row.texts, row.same) == (("judge", "model default"), 4, 0.5)
    assert row.kappa == pytest.approx((0.5 - 0.375) / (1 - 0.375))
    assert row.low < row.kappa < row.high  # sentences of one video are drawn one by one


def test_the_asked_number_of_sentences_is_drawn_at_random_and_the_same_each_time():
    drawn = [sample_sentences(RECORD, 2, seed=seed).texts for seed in range(8)]
    assert {len(texts) for texts in drawn} == {2}
    assert len({frozenset(text.id for text in texts) for texts in drawn}) > 1
    assert drawn[3] == sample_sentences(RECORD, 2, seed=3).texts


def test_agreement_with_people_is_of_the_sentences_that_they_answered_on(tmp_path):
    log = AnswerLog(tmp_path / "answers.jsonl")
    for number, who, shown in (
        (1, "ann", True),
        (1, "bob", True),
        (2, "ann", True),
        (0, "bob", False),
    ):
        log.add(Answer(clip=f"v:{number}", annotator=who, shown=shown, confidence="very"))
    log.add(Answer(clip="other:1", annotator="ann", shown=True, confidence="very"))
    people = read_people(tmp_path / "answers.jsonl", RECORD)
    assert len(people) == 4
    found, _ = check(10, people=people)
    assert set(found.answers) == {0, 1, 2}
    rows = {(row.question, row.people): row for row in found.agreements}
    assert rows["well aligned", ("model default", "people")].same == pytest.approx(2 / 3)
    assert rows["well aligned", ("judge", "people")].kappa == 1.0
    assert rows["well aligned", ("judge", "model default")].texts == 3


def test_verdicts_of_an_audit_count_as_people_s_answers(tmp_path):
    texts = narration_texts(RECORD)
    AnswerLog(tmp_path / "verdicts.jsonl").add(
        Answer(item=texts[2].id, annotator="ann", answer="misplaced")
    )
    (only,) = read_people(tmp_path / "verdicts.jsonl", RECORD)
    found, _ = check(10, people=[only])
    assert found.answers == {2: "misplaced"}


@pytest.mark.parametrize(
    ("content", "error", "words"),
    [
        (None, StoreError, "no such file"),
        (
            '{"clip": "w:1", "annotator": "a", "shown": true, "confidence": "very"}\n',
            DatasetError,
            "no one has answered",
        ),
        ("{}\n", StoreError, "not an answer"),
    ],
)
def test_a_file_of_no_use_is_refused_with_its_cure(tmp_path, content, error, words):
    file = tmp_path / "answers.jsonl"
    if content is not None:
        file.write_text(content)
    with pytest.raises(error, match=words):
        read_people(file, RECORD)


def test_a_part_of_a_video_is_asked_about_on_its_own_clock():
    found, asked = check(10, start=0.5)
    assert min(found.asking.pictures["v"]) >= 0.5
    seconds = {second for body in asked for second in seconds_of(body["messages"][0]["content"])}
    assert {round(second + 0.5, 1) for second in seconds} == set(found.asking.pictures["v"])


def test_a_dry_run_counts_and_asks_no_one():
    found, asked = check(10, dry_run=True)
    assert asked == []
    assert found.answers == {}
    (note,) = found.asking.notes
    assert re.match(
        r"dry run: a vision-language model would be asked at most 2 requests and \d{4,} tokens",
        note,
    )
    (one,) = check(10, dry_run=True, requests=1)[0].asking.notes
    assert "at most 1 requests" in one


def test_the_command_says_what_a_model_sees_and_leaves_the_judge_alone(
    stepline, small_video, captions_file, tmp_path
):
    given = (
        "judge",
        small_video,
        "--captions",
        captions_file,
        "--out",
        tmp_path / "out",
        "--set",
        "vision.screen_text=false",
        "--set",
        "vision.faces=false",
    )
    before = json.loads(stepline(*given, "--json").stdout)
    letters = {str(n): {"after": "done", "shown": "none"} for n in (1, 2, 3)}
    with FakeServer(Answers.says(json.dumps(letters))) as server:
        named = ("--set", f"vision.witness.base_url={server.url}")
        done = stepline(*given, *named, "--ask", "3")
        asked = len(server.asked)
        told = json.loads(stepline(*given, *named, "--ask", "3", "--json").stdout)
        assert len(server.asked) == asked == 1  # the second one is answered by the cache
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("not shown") == 3
    assert "3 of 3 sentences looked at in 1 requests" in done.stderr
    assert f"pictures went to {server.url} default: those at" in done.stderr
    assert told["sentences"] == before["sentences"]
    assert list(told["witness"]["said"].values()) == ["not shown"] * 3
    assert told["agreement"][0]["people"] == ["judge", "model default"]
    for options, cure in (
        (("--ask", "3"), "vision.witness.base_url"),
        (("--people", captions_file), "add --ask N"),
    ):
        refused = stepline(*given, *options)
        assert refused.exit_code == 1
        assert cure in refused.stderr
