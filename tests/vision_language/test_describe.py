"""Steps of silent videos in a vision-language model's words, each with its seconds, over the
wire."""

import json

import pytest
from llm_fakes import Answers, FakeServer, completion
from option_words import option_words
from small_video import draw_video

from stepline.grounding.vision_language.describe import SEEN_BY_VLM, describe_silent_video
from stepline.grounding.vision_language.questions import description_prompt, description_schema
from stepline.llm.pictures import PICTURE_LETTERS, with_pictures
from stepline.records import Span
from stepline.storage import read_record
from stepline.vision.settings import VisionLanguageSettings

pytestmark = pytest.mark.usefixtures("own_cache")
SHOTS = [slice(start, start + 6) for start in range(0, 60, 6)]


def words(*texts):
    """A behaviour: these words for the pictures of one request after another, by their order."""

    def act(handler):
        content = handler.question["messages"][0]["content"]
        count = sum(part["type"] == "image_url" for part in content)
        first = 0 if len(handler.server.seen) == 0 else 8
        handler.server.seen.append(count)
        said = dict(zip(PICTURE_LETTERS, texts[first : first + count], strict=False))
        Answers.raw(completion(json.dumps(said)))(handler)

    return act


def describe(behaviour, **settings):
    with FakeServer(behaviour) as server:
        server._http.seen = []
        quick = {"pause": 0.0, "timeout": 5.0, "concurrency": 1, **settings}
        settings = VisionLanguageSettings(base_url=server.url, **quick)

        def pictures(seconds):
            return {second: str(second).encode() for second in seconds}

        told = describe_silent_video(SHOTS, pictures, duration=59.5, settings=settings)
        return told.steps, told.report, told.notes, server.asked


TEXTS = (
    "none, Tie a knot, tie a knot, Pull the ends at 0:14, none, Tie a knot, none, Trim the ends, "
    "none, Show the knot"
).split(", ")


def test_neighbouring_places_of_the_same_words_are_one_step_with_its_seconds():
    steps, report, notes, asked = describe(words(*TEXTS))
    assert [(step.text, step.spans) for step in steps] == [
        ("Tie a knot", (Span(6.0, 18.0),)),
        ("Pull the ends", (Span(18.0, 24.0),)),
        ("Tie a knot", (Span(30.0, 36.0),)),
        ("Trim the ends", (Span(42.0, 48.0),)),
        ("Show the knot", (Span(54.0, 59.5),)),
    ]
    assert {step.seen for step in steps} == {(SEEN_BY_VLM,)}
    assert all(step.sources == () and step.said is None and step.status == "seen" for step in steps)
    assert {step.score for step in steps} == {0.8}
    assert notes == ()
    assert len(report["pictures"]) == len(report["described"]) == 10
    assert len(asked) == report["requests"] == 2


def test_a_single_request_holds_evenly_spread_pictures():
    *_, asked = describe(words(*TEXTS), requests=1)
    (body,) = asked
    # evenly spread ones, for the requests allow no more
    seconds = [(n * 10 // 8) * 6 + 3.5 for n in range(8)]
    pictures = [str(second).encode() for second in seconds]
    assert body["messages"][0]["content"] == with_pictures(description_prompt(8), pictures)
    assert body["response_format"]["json_schema"]["schema"] == description_schema(8)


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (Answers.says("A knot is tied."), "not a JSON object"),
        (Answers.says('{"A": "x", "time": "0:14"}'), "more than was asked for"),
        (Answers.says('{"A": "See http://evil.example/now"}'), "a link"),
        (Answers.status(503), "answered 503"),
    ],
)
def test_what_cannot_be_used_is_not_a_step_and_is_noted(behaviour, reason):
    steps, _, notes, _ = describe(behaviour, retries=0)
    assert steps == ()
    assert notes[0].startswith("provisional")
    assert reason in notes[0]


def test_a_dry_run_says_how_many_pictures():
    steps, _, notes, asked = describe(words(*TEXTS), dry_run=True)
    assert (steps, asked) == ((), [])
    assert "10 pictures in 2 requests" in notes[0]


def test_a_silent_video_gets_steps_from_its_pictures(stepline, tmp_path):
    video = draw_video(tmp_path / "silent.mp4", sound=False)
    seen = words("Move the square", *["none"] * 7)
    with FakeServer(Answers.says("yes"), seen) as server:  # the first question is a test
        server._http.seen = []
        sets = [f"vision.vlm.base_url={server.url}", "vision.screen_text=false"]
        given = option_words(format="json", out=tmp_path / "out", set=sets)
        done = stepline("steps", video, *given)
    assert done.exit_code == 0, done.stderr
    assert "a vision-language model describes the steps from the pictures" in done.stderr
    record = read_record(tmp_path / "out" / "silent.json")
    assert [step.text for step in record.steps] == ["Move the square"]
    assert record.models["describer"]["witness"]["described"][0] == "Move the square"
