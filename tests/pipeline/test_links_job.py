"""Commands that are given links: the same result as of the file, what is kept, what is told."""

import json

import pytest
from web_server import serve

import stepline as package
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.sources import find_sources
from stepline.storage import read_record

PRIVATE = ("--set", "links.private=true")


@pytest.fixture
def server(small_video):
    with serve() as running:
        running.pages["/small.mp4"] = small_video.read_bytes()
        running.pages["/page"] = '<html><title>Small</title><video src="/small.mp4"></video></html>'
        yield running


def test_a_link_gives_what_its_file_gives(server, small_video, captions_file, tmp_path, stepline):
    given = ("--captions", captions_file, "--backbone", "none")
    found = stepline(
        "steps", f"{server.url}/small.mp4", *given, *PRIVATE, "--out", tmp_path / "link"
    )
    assert found.exit_code == 0, found.stderr
    assert found.stderr.startswith(f"fetching {server.url}/small.mp4\n")
    assert stepline("steps", small_video, *given, "--out", tmp_path / "file").exit_code == 0
    by_link, by_file = (read_record(tmp_path / name / "small.json") for name in ("link", "file"))
    assert by_link.steps == by_file.steps
    assert by_link.settings == by_file.settings
    assert by_link.video.origin.url == f"{server.url}/small.mp4"
    assert "origin" not in json.loads((tmp_path / "file" / "small.json").read_text())["video"]
    (kept,) = (tmp_path / "link" / "downloads").glob("*/small.mp4")
    assert by_link.video.path == str(kept)
    page = (tmp_path / "link" / "small.html").read_text()
    assert f'src="downloads/{kept.parent.name}/small.mp4"' in page
    server.asked.clear()
    again = stepline(
        "steps", f"{server.url}/small.mp4", *given, *PRIVATE, "--out", tmp_path / "link"
    )
    assert (again.exit_code, server.asked) == (0, [])
    assert "done before with the same settings" in again.stderr


def test_what_is_not_kept_is_gone_and_no_page_names_it(server, captions_file, tmp_path, stepline):
    given = ("--captions", captions_file, "--backbone", "none", "--no-keep", *PRIVATE)
    assert stepline("steps", f"{server.url}/page", *given, "--out", tmp_path).exit_code == 0
    assert not (tmp_path / "downloads").exists()
    (page,) = tmp_path.glob("*.html")
    assert "<video" not in page.read_text()


def test_one_link_that_fails_ends_no_other(server, captions_file, tmp_path, stepline):
    urls = (f"{server.url}/none.mp4", f"{server.url}/small.mp4")
    server.pages["/none.mp4"] = b"no video"
    options = ("--backbone", "none", "--jobs", "1", *PRIVATE)
    found = stepline("steps", *urls, *options, "--out", tmp_path)
    assert found.exit_code == 1
    assert "1 of 2 videos done, 1 failed" in found.stderr
    assert "none.mp4: not a video that can be read" in found.stderr


@pytest.mark.parametrize("verb", ["transcribe", "judge"])
def test_verbs_of_one_video_take_a_link(
    server, captions_file, tmp_path, stepline, verb, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    more = () if verb == "transcribe" else ("--out", tmp_path)
    given = ("--captions", captions_file, "--set", "vision.backbone=none", *PRIVATE)
    found = stepline(verb, f"{server.url}/small.mp4", *given, *more)
    assert found.exit_code == 0, found.stderr
    assert bool(list(tmp_path.glob("downloads/*/small.mp4"))) == (verb != "transcribe")


@pytest.mark.parametrize("option", ["--captions", "--texts"])
def test_what_only_a_page_has_is_refused_of_a_file(server, small_video, tmp_path, stepline, option):
    for name in (small_video, f"{server.url}/small.mp4"):
        found = stepline("steps", name, option, "site", *PRIVATE, "--out", tmp_path)
        assert found.exit_code == 1
        cures = ("give captions and texts as files", "leave --captions out")
        cures += ("names no chapters; give --texts a file",)
        assert found.stderr.splitlines()[-1].endswith(cures)


@pytest.mark.parametrize("kind", ["subtitles", "automatic_captions"])
def test_the_captions_and_chapters_of_a_page_are_taken_when_asked(
    kind, server, captions_file, tmp_path, monkeypatch
):
    """As yt-dlp tells them, of a site that this test stands for."""
    from stepline.media import links

    track = {"ext": "srt", "data": captions_file.read_text()}
    chapters = [
        {"start_time": 0.0, "end_time": 7.0, "title": "Slice"},
        {"start_time": 7.0, "title": "Pour"},
    ]
    other = {"de": [track | {"data": "none"}]}
    told = {"subtitles": other, "chapters": chapters, "license": "CC BY"}
    told[kind] = other | {"en-GB": [track]}
    extract = links.extract_info
    monkeypatch.setattr(links, "extract_info", lambda url, limits: extract(url, limits) | told)
    settings = StepsSettings.model_validate({"links": {"private": True}})
    (source,) = find_sources([f"{server.url}/page"], tmp_path, settings)
    from stepline.pipeline.sources import LINK_PAGE_PATH

    with source.open(tmp_path, settings, captions=LINK_PAGE_PATH, texts=None) as request:
        assert request.captions.read_text() == captions_file.read_text()
        assert request.captions.name.endswith(".en-GB.srt")
        assert request.texts == ("Slice", "Pour")
        assert [chapter.start for chapter in request.origin.chapters] == [0.0, 7.0]
        assert request.origin.licence == "CC BY"


def test_python_takes_links_too(server, captions_file):
    settings = StepsSettings.model_validate(
        {"links": {"private": True}, "vision": {"backbone": "none"}}
    )
    record = package.steps(f"{server.url}/small.mp4", captions=captions_file, settings=settings)
    assert (record.id, len(record.steps)) == ("small", 3)
