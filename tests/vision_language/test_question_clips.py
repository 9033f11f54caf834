"""Clips in place of pictures: what they hold, the bytes that go to a server, and what they cost."""

import base64
import io
import json

import av
import pytest
from llm_fakes import Answers, FakeServer
from pydantic import ValidationError
from small_video import draw_video

from stepline.grounding.vision_language import GroundedVideo, ask_about_steps
from stepline.grounding.vision_language.describe import describe_places
from stepline.grounding.vision_language.places import clip_times, question_pictures
from stepline.grounding.vision_language.questions import (
    CHOICE_QUESTION,
    choice_question,
    tokens_at_most,
)
from stepline.llm.pictures import with_pictures
from stepline.records import Alignment, Step
from stepline.vision.settings import VisionLanguageSettings, VisionSettings

SHOTS = [slice(0, 4), slice(4, 8), slice(8, 12), slice(12, 16)]
CLIPS = {"video": "video_url", "clip_seconds": 2.0, "clip_rate": 2.0}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))


def ask(url, pictures=None, **settings):
    """What comes of asking about one open step of 16 s; each clip's bytes are its second."""
    import numpy as np

    given = VisionLanguageSettings(
        base_url=url, **({"pause": 0.0, "retries": 0, "requests": 1} | CLIPS | settings)
    )
    alignment = Alignment(("cut",), np.full((1, 16), 0.5, np.float32), 1.0, "probability")
    read = pictures or (lambda seconds: {second: str(second).encode() for second in seconds})
    steps = (Step(id="1", text="cut", score=0.5),)
    return ask_about_steps(GroundedVideo(steps, alignment, SHOTS, read, 16.0), given)


def test_the_part_of_a_clip_is_held_to_the_byte():
    text, letter, clip = with_pictures("Which?", [b"\x00\x01mp4"], video="video_url")
    assert [text, letter] == [{"type": "text", "text": "Which?"}, {"type": "text", "text": "A:"}]
    assert (
        json.dumps(clip)
        == '{"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAFtcDQ="}}'
    )
    other = with_pictures("Which?", [b"\x00\x01mp4"], video="input_video")[2]
    assert json.dumps(other) == '{"type": "input_video", "input_video": {"data": "AAFtcDQ="}}'


def test_the_request_is_held_to_the_byte_and_speaks_of_clips():
    with FakeServer(Answers.says('{"1": {"after": "it is cut", "shown": "B"}}')) as server:
        answers = ask(server.url)
        (body,) = server.asked
    content = body["messages"][0]["content"]
    seconds = [
        base64.b64decode(part["video_url"]["url"].partition(",")[2]) for part in content[2::2]
    ]
    assert sorted(map(float, seconds)) == [2.5, 6.5, 10.5, 14.5]
    assert json.dumps(content) == json.dumps(choice_question(["cut"], seconds, video="video_url"))
    assert content[0]["text"].startswith("These clips come from one how-to video")
    assert "picture" not in content[0]["text"]
    (question,) = answers.report["questions"]
    assert question["pictures"] == [float(second) for second in seconds]
    assert answers.report["clips"] == {"seconds": 2.0, "pictures": 4}


def test_a_place_in_silence_is_described_from_its_clip():
    with FakeServer(
        Answers.says('{"A": "Tie a knot", "B": "none", "C": "none", "D": "none"}')
    ) as server:
        settings = VisionLanguageSettings(base_url=server.url, **CLIPS)
        found = describe_places(
            SHOTS, lambda seconds: dict.fromkeys(seconds, b"mp4"), duration=16.0, settings=settings
        )
        content = server.asked[0]["messages"][0]["content"]
    assert [part["type"] for part in content] == ["text", *["text", "video_url"] * 4]
    assert "For each say what is being done in it" in content[0]["text"]
    assert [step.text for step in found.steps] == ["Tie a knot"]
    assert found.report["clips"]["pictures"] == 4


def test_a_clip_holds_the_pictures_around_its_second_and_no_sound(tmp_path):
    video = draw_video(tmp_path / "steady.mp4", steady_light=True)
    settings = VisionLanguageSettings(picture_size=64, **CLIPS)
    read = question_pictures(video, settings, duration=16.0)
    clips = read([5.0, 15.9])
    assert list(clips) == [5.0, 15.9]
    assert read([5.0]) == {5.0: clips[5.0]}  # the same bytes each time: answers are kept by them
    with av.open(io.BytesIO(clips[5.0])) as clip:
        assert [stream.type for stream in clip.streams] == ["video"]
        frames = list(clip.decode(video=0))
    assert [round(frame.time, 3) for frame in frames] == [0.0, 0.5, 1.0, 1.5]
    assert (frames[0].width, frames[0].height) == (86, 64)
    # The video's grey changes after each fourth second: 30, 90 from 4 s on.
    grey = [int(frame.to_ndarray(format="rgb24")[5, 5].mean()) for frame in frames]
    assert all(abs(value - 90) < 8 for value in grey)
    before = next(iter(read([4.0]).values()))
    with av.open(io.BytesIO(before)) as clip:
        changed = [
            int(frame.to_ndarray(format="rgb24")[5, 5].mean()) for frame in clip.decode(video=0)
        ]
    assert changed[0] < 45
    assert changed[-1] > 75


def test_the_seconds_of_a_clip_stay_within_the_video():
    settings = VisionLanguageSettings(**CLIPS)
    assert clip_times(5.0, settings, 16.0) == [4.25, 4.75, 5.25, 5.75]
    assert clip_times(0.2, settings, 16.0) == [0.0, 0.5, 1.0, 1.5]
    assert clip_times(15.9, settings, 16.0) == [14.4, 14.9, 15.4, 15.9]
    assert clip_times(0.5, settings, 1.0) == [0.0, 0.5]
    assert clip_times(0.05, settings, 0.05) == [0.0]


def test_a_clip_costs_as_much_as_its_pictures():
    pictures, clips = VisionLanguageSettings(), VisionLanguageSettings(**CLIPS)
    words = [CHOICE_QUESTION, "cut"]
    alone = tokens_at_most(words, 0, pictures)
    assert tokens_at_most(words, 8, clips) - alone == pytest.approx(
        4 * (tokens_at_most(words, 8, pictures) - alone), 1
    )


def test_a_dry_run_counts_clips_and_asks_no_one():
    still = ask("http://127.0.0.1:9/v1", video=None, dry_run=True)
    moving = ask("http://127.0.0.1:9/v1", dry_run=True)
    assert moving.report["clips"] == {"seconds": 2.0, "pictures": 4}
    assert moving.report["tokens"] > 3 * still.report["tokens"]
    assert "sets of clips" in moving.notes[0]
    assert "clips" not in still.report


def test_a_server_that_takes_no_video_is_noted_and_changes_nothing():
    with FakeServer(Answers.status(400, "Unknown part type: video_url")) as server:
        answers = ask(server.url)
    assert "Unknown part type: video_url" in answers.notes[0]
    assert answers.steps[0].at is None


def test_clips_are_stored_only_where_some_are_shown():
    named = VisionSettings(vlm=VisionLanguageSettings(base_url="http://127.0.0.1:9/v1"))
    assert not {"video", "clip_seconds", "clip_rate"} & set(
        named.model_dump(mode="json")["witness"]
    )
    moving = VisionSettings(vlm=VisionLanguageSettings(base_url="http://127.0.0.1:9/v1", **CLIPS))
    assert VisionSettings.model_validate_json(moving.model_dump_json()) == moving
    with pytest.raises(ValidationError, match="leave it off if video shows clips"):
        VisionLanguageSettings(together=True, **CLIPS)
