"""The title of a record, and where it is from."""

import json

import pytest
from small_video import draw_video

from stepline.media import probe
from stepline.media.probe import parse_date
from stepline.pipeline.request import Request
from stepline.pipeline.understand import (
    choose_title,
    find_author,
    find_publication_date,
    title_from_file_name,
)
from stepline.records import LinkOrigin, Record, Video
from stepline.storage import from_json, read_record, to_json

SAID = """WEBVTT

00:00.500 --> 00:03.000
Hello everyone and welcome back.

00:03.500 --> 00:06.000
Today I'm going to show you how to make lemonade.

00:07.000 --> 00:10.000
First slice the lemons.

00:11.000 --> 00:14.000
Then pour the juice into the bowl.
"""


@pytest.mark.parametrize(
    ("stem", "title"),
    [
        *(("my_lemonade-v2", "My lemonade v2"), ("talk.en", "Talk en"), ("__", "")),
        *(("2024-05-06_oil change", "2024-05-06 oil change"), ("Übung_3.5mm", "Übung 3.5mm")),
    ],
)
def test_a_file_name_is_made_readable(stem, title):
    assert title_from_file_name(stem) == title


def test_the_title_of_the_user_comes_first_and_the_file_name_last(tmp_path):
    path = draw_video(tmp_path / "my_lemonade.mp4", seconds=1, sound=False)
    info = probe(path)
    origin = LinkOrigin(url="https://example.org/v", title="Lemonade by Ann")
    assert info.title is None
    assert choose_title(Request(path, "x"), info, None) == ("My lemonade", "name")
    linked = Request(path, "x", origin=origin)
    assert choose_title(linked, info, None) == ("Lemonade by Ann", "link")
    named = Request(path, "x", origin=origin, title="Mine")
    assert choose_title(named, info, None) == ("Mine", "user")


def test_the_metadata_of_a_file_give_its_title(tmp_path):
    import av

    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w") as out:
        out.metadata["title"] = "  Iced\nlemonade "
        out.metadata["artist"] = "Ann  Lemon"
        out.metadata["date"] = "20240506"
        picture = out.add_stream("libx264", rate=5, width=64, height=48, pix_fmt="yuv420p")
        for _ in range(5):
            out.mux(picture.encode(av.VideoFrame(64, 48, "yuv420p")))
        out.mux(picture.encode(None))
    info = probe(path)
    assert info.title == "Iced lemonade"
    assert choose_title(Request(path, "clip"), info, None) == ("Iced lemonade", "file")
    request = Request(path, "clip")
    assert find_author(request, info) == "Ann Lemon"
    assert find_publication_date(request, info) == "2024-05-06"
    origin = LinkOrigin(url="https://example.org/v", uploader="A kitchen", upload_date="2023-01-02")
    linked = Request(path, "clip", origin=origin)
    assert find_author(linked, info) == "A kitchen"
    assert find_publication_date(linked, info) == "2023-01-02"


@pytest.mark.parametrize(
    ("text", "day"),
    [
        *(("20240506", "2024-05-06"), ("2024-05-06T12:00:00Z", "2024-05-06")),
        *((text, None) for text in ("2024", "2024-13-06", "2024-W01-1", "")),
    ],
)
def test_a_day_is_read_where_it_is_a_whole_one(text, day):
    assert parse_date(text) == day


def test_how_long_and_how_much_is_in_the_record_and_the_recipe(tmp_path, stepline, caplog):
    captions = tmp_path / "talk.vtt"
    numbers = "00:12.000 --> 00:16.000\nThis recipe takes 20 minutes in total and serves four.\n"
    captions.write_text(f"{SAID}\n{numbers}")
    web = ("--base-url", "https://example.org/out", "--format", "recipe")
    result = stepline("steps", captions, "--out", tmp_path / "out", *web)
    assert result.exit_code == 0, result.stderr
    assert "talk.recipe.jsonld: Google asks for more of a Recipe: image" in caplog.text
    record = read_record(tmp_path / "out" / "talk.json")
    assert [(time.kind, time.high, time.sources) for time in record.times] == [
        ("total", 1200.0, (4,))
    ]
    assert [(thing.name, thing.amounts[0].low) for thing in record.yields] == [("servings", 4.0)]
    recipe = json.loads((tmp_path / "out" / "talk.recipe.jsonld").read_text())
    assert (recipe["totalTime"], recipe["recipeYield"]) == ("PT20M", "4 servings")
    refused = stepline("steps", captions, "--out", tmp_path / "out", "--base-url", "example.org")
    assert refused.exit_code == 1
    assert "--base-url 'example.org': is not an http(s) address" in refused.stderr


def test_what_is_said_gives_the_title_and_the_outputs_bear_it(tmp_path, stepline):
    captions = tmp_path / "talk_1.vtt"
    captions.write_text(SAID)
    formats = [part for name in ("html", "markdown", "recipe") for part in ("--format", name)]
    result = stepline("steps", captions, "--out", tmp_path / "out", *formats)
    assert result.exit_code == 0, result.stderr
    video = read_record(tmp_path / "out" / "talk_1.json").video
    assert (video.title, video.title_source) == ("How to make lemonade", "speech")
    assert "# How to make lemonade\n" in (tmp_path / "out" / "talk_1.md").read_text()
    recipe = json.loads((tmp_path / "out" / "talk_1.recipe.jsonld").read_text())
    assert recipe["name"] == "How to make lemonade"
    assert "<title>How to make lemonade" in (tmp_path / "out" / "talk_1.html").read_text()


def test_the_option_title_is_taken_and_counts_as_another_result(tmp_path, stepline):
    captions = tmp_path / "talk.vtt"
    captions.write_text(SAID)
    run = ("steps", captions, "--out", tmp_path / "out", "--format", "json")
    for title in ("Sour water", "Sweet water"):
        result = stepline(*run, "--title", title)
        assert result.exit_code == 0, result.stderr
        video = read_record(tmp_path / "out" / "talk.json").video
        assert (video.title, video.title_source) == (title, "user")


def test_a_title_for_several_videos_or_without_a_word_is_refused(tmp_path, stepline):
    files = [tmp_path / name for name in ("a.vtt", "b.vtt")]
    for file in files:
        file.write_text(SAID)
    several = stepline("steps", *files, "--out", tmp_path / "out", "--title", "Both")
    assert several.exit_code == 1
    assert "--title is for one video" in several.stderr
    empty = stepline("steps", files[0], "--out", tmp_path / "out", "--title", " ")
    assert empty.exit_code == 1
    assert "--title: holds no word" in empty.stderr


def test_a_record_without_a_source_of_its_title_is_stored_as_before():
    old = Record(id="r", video=Video(id="v", title="T"))
    assert "title_source" not in to_json(old)
    assert from_json(to_json(old)) == old
    new = Record(id="r", video=Video(id="v", title="T", title_source="speech"))
    assert from_json(to_json(new)) == new
