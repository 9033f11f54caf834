"""The main job with a vision-language model, from the command line to the record."""

import base64
import io
import json
from pathlib import Path

import pytest
from llm_fakes import Answers, FakeServer, completion
from option_words import option_words
from PIL import Image

from stepline.settings import current_setting_name, validate
from stepline.storage import read_record
from stepline.vision.settings import VisionSettings

QUICK = "--set vision.vlm.pause=0.0 --set vision.screen_text=false".split()


def says_a(handler):
    """Picture A for every step."""
    count = handler.question["messages"][0]["content"][0]["text"].split("\n\n")[1].count("<step>")
    reply = {str(n): {"after": "done", "shown": "A"} for n in range(1, count + 1)}
    Answers.raw(completion(json.dumps(reply)))(handler)


@pytest.fixture
def run(stepline, small_video, captions_file, tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))

    def call(*options):
        words = option_words(captions=captions_file, format="json", out=tmp_path / "out")
        given = ("steps", small_video, *words)
        return stepline(*given, *QUICK, *options)

    return call


def test_a_named_model_is_shown_pictures_of_the_video_and_the_record_says_which(
    run, small_video, tmp_path
):
    with FakeServer(Answers.says("yes"), says_a) as server:  # the first question is a test
        done = run(
            "--set", f"vision.vlm.base_url={server.url}", "--set", "vision.vlm.picture_size=96"
        )
        assert done.exit_code == 0, done.stderr
        content = server.asked[1]["messages"][0]["content"]
    record = read_record(tmp_path / "out" / f"{small_video.stem}.json")
    report = record.models["witness"]
    urls = [part["image_url"]["url"] for part in content if part["type"] == "image_url"]
    pictures = [Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))) for url in urls]
    assert {picture.size for picture in pictures} == {(128, 96)}
    assert report["requests"] == len(server.asked) - 1
    assert len(report["questions"][0]["pictures"]) == len(pictures)
    assert record.settings["vision"]["witness"]["base_url"] == server.url
    assert "a vision-language model" in " ".join(
        words for step in record.steps for words in step.seen
    ) or any("too little to be believed" in warning for warning in record.warnings)


def test_a_dry_run_says_what_it_would_take_and_asks_no_one(run):
    done = run("--set", "vision.vlm.base_url=http://127.0.0.1:9/v1", "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert "dry run: a vision-language model would be asked at most 10 requests" in done.stderr


def test_a_server_that_fails_leaves_a_result_that_the_next_run_makes_again(run):
    with FakeServer(Answers.says("yes"), Answers.status(503), says_a) as server:
        own = (f"base_url={server.url}", "retries=0", "concurrency=1")
        options = option_words(set=[f"vision.vlm.{setting}" for setting in own])
        first, second = run(*options), run(*options)
        assert len(server.asked) > 1
    assert "provisional: the vision-language model has not answered" in first.stderr
    assert "done before" not in second.stderr
    assert "provisional" not in second.stderr


def test_the_old_name_of_its_settings_works_and_one_line_says_the_new_one(
    stepline, small_video, captions_file, tmp_path, caplog
):
    current_setting_name.cache_clear()
    given = ("steps", small_video, "--captions", captions_file, "--out", tmp_path / "out")
    old = ("--set", "vision.witness.rate=1", "--set", "vision.witness.requests=0")
    done = stepline(*given, *old)
    assert done.exit_code == 1
    assert "unknown setting 'vision.vlm.rate'" in done.stderr
    assert caplog.text.count("vision.witness is now vision.vlm") == 1


def test_settings_stored_by_earlier_releases_are_read():
    stored = {"witness": {"gguf": "m.gguf", "projector": "p.gguf", "machine": None}}
    settings = validate(VisionSettings, stored)
    assert settings.vlm.gguf == Path("m.gguf")
    assert settings.model_dump(mode="json")["witness"]["gguf"] == "m.gguf"
    assert validate(VisionSettings, settings.model_dump(mode="json")) == settings
