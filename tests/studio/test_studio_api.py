"""The studio's API as a page or a program uses it."""

import asyncio
import io
import json
import os
import shutil
import socket
import time
import zipfile
from threading import Thread

import pytest
from http_client import ask, free_port, status_of
from studio_server import library, serving

from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.database import DATABASE_FILE
from stepline.library.search import SearchIndex
from stepline.outputs import OUTPUTS
from stepline.pipeline.output_files import extract_keyframes
from stepline.progress import StoppedError
from stepline.records import Step
from stepline.storage import from_json, read_record, write_record
from stepline.studio import video_api
from stepline.studio.api import api_routes
from stepline.studio.search import LibrarySearch
from stepline.studio.sharing import OUTPUT_NAMES
from stepline.writing import WrittenSteps


@pytest.fixture(scope="module")
def server(tmp_path_factory, small_video):
    folder = tmp_path_factory.mktemp("studio") / "library"
    library(folder, small_video, ("Lemonade", "A <b>bench</b>"))
    with serving(folder) as running:
        yield running


@pytest.fixture
def own(tmp_path, small_video):
    """A server that a test may change."""
    with serving(library(tmp_path / "library", small_video)) as running:
        yield running


LEMONADE = video_id("v0.json")
PLACE = f"/api/videos/{LEMONADE}"
CORRECTIONS, RECORD = f"{PLACE}/corrections", f"{PLACE}/record"
INDEX_AGE = "stepline.studio.search.MAX_INDEX_AGE_SECONDS"


def change(base, by="ann", **fields):
    return {"by": by, "base": base, "edits": [{"do": "change", "step": "a", **fields}]}


def test_cards_tell_what_a_list_shows(server):
    cards = server.read("/api/videos")["videos"]
    assert [card["title"] for card in cards] == ["A <b>bench</b>", "Lemonade"]
    card = cards[1]
    fields = [card[name] for name in ("id", "steps", "seen", "said_only", "state", "revision")]
    assert fields == [LEMONADE, 3, 2, 1, "new", 0]
    assert [each["title"] for each in server.read("/api/videos?q=lemon")["videos"]] == ["Lemonade"]
    assert server.read("/api/videos?state=corrected")["videos"] == []
    assert server.status("GET", "/api/videos?sort=size") == 400
    assert server.ask("GET", card["picture"])[1].startswith(b"\xff\xd8")


def test_a_damaged_record_keeps_its_card_and_says_why(tmp_path, own):
    path = tmp_path / "library" / "v0.json"
    path.write_bytes(path.read_bytes()[:100])
    (card,) = own.read("/api/videos")["videos"]
    shown = [card[name] for name in ("id", "file", "title", "steps")]
    assert shown == [LEMONADE, "v0.json", "v0.json", 0]
    assert "v0.json: not valid JSON" in card["damage"]
    assert "put a copy back" in card["damage"]
    reply, data = own.ask("GET", PLACE)
    assert reply.status == 409
    assert "put a copy back" in json.loads(data)["error"]
    # a search in the others, also with a filter that the card meets, and next to a name not UTF-8
    shutil.copyfile(path, path.with_name("\udcff.json"))
    assert len(own.read("/api/videos")["videos"]) == 1
    assert own.read("/api/search?q=lemons&tag=x")["moments"] == []


def test_the_video_is_given_in_ranges(server):
    reply, whole = server.ask("GET", f"{PLACE}/media")
    assert (reply.status, reply.headers["Content-Type"], whole[4:8]) == (200, "video/mp4", b"ftyp")
    reply, part = server.ask("GET", f"{PLACE}/media", Range="bytes=4-7")
    assert (reply.status, part) == (206, b"ftyp")
    reply, data = server.ask("GET", f"{PLACE}/media", Range="bytes=99999999-")
    assert (reply.status, reply.headers["Content-Range"]) == (416, f"bytes */{len(whole)}")
    assert json.loads(data) == {"error": f"no byte of this range; the file has {len(whole)}"}


def test_pictures_are_of_seconds_of_the_video(server):
    none = dict.fromkeys(("17", "-1", "nan", "inf", "x"), 404)
    for second, status in {"0": 200, "15.5": 200, **none}.items():
        assert server.status("GET", f"{PLACE}/pictures/{second}.jpg") == status, second


def test_the_waveform_is_read_once(server, monkeypatch):
    first = server.read(f"{PLACE}/waveform")
    assert (len(first["peaks"]), first["duration"]) == (2000, 16.0)
    assert 0 < max(first["peaks"]) < 20  # a quiet hum
    monkeypatch.setattr(
        "stepline.studio.media.waveform_peaks", lambda *_: pytest.fail("read again")
    )
    assert server.read(f"{PLACE}/waveform") == first


@pytest.mark.parametrize("name", OUTPUT_NAMES)
def test_every_output_is_given_of_the_corrected_record(server, name):
    reply, data = server.ask("GET", f"{PLACE}/steps?format={name}")
    if name in ("chapters", "mp4", "recipe") and reply.status == 409:
        reason = (
            "no chapters: 16 s of video; 3" if name == "chapters" else "cannot hold this record"
        )
        assert reason in json.loads(data)["error"]
        return
    assert reply.status == 200
    assert reply.headers["Content-Disposition"].startswith("attachment")
    assert data


def test_the_formats_of_a_video_are_those_that_can_be_given(own, monkeypatch):
    formats = own.read(PLACE)["formats"]
    assert set(OUTPUTS) - set(formats) <= {"alignment", "docx"}
    assert "alignment" not in formats
    monkeypatch.setattr(video_api, "find_spec", lambda _: None)
    (own.studio.library.folder / "v0.mp4").unlink()
    without = own.read(PLACE)["formats"]
    assert set(OUTPUTS) - set(without) == {"alignment", "docx", "mp4", "mkv"}
    assert ("clips" in formats, "clips" in without) == (True, False)


def test_clips_are_cut_of_the_corrected_steps(own):
    own.ask("POST", CORRECTIONS, change(0, text="Cut the lemons"))
    reply, data = own.ask("GET", f"{PLACE}/steps?format=clips")
    assert 'filename="v0.clips.zip"' in reply.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist()[0] == "v0.clips/01-cut-the-lemons.mp4"
        assert archive.read("v0.clips/01-cut-the-lemons.mp4")[4:8] == b"ftyp"
    (own.studio.library.folder / "v0.mp4").unlink()
    reply, data = own.ask("GET", f"{PLACE}/steps?format=clips")
    assert reply.status == 409
    assert "they need the video" in json.loads(data)["error"]


def test_a_correction_changes_what_is_given_and_not_the_records_file(own):
    before = (own.studio.library.folder / "v0.json").read_bytes()
    reply, data = own.ask("POST", CORRECTIONS, change(0, text="Cut the lemons"))
    assert (reply.status, json.loads(data)["revision"]) == (200, 1)
    found = own.read(RECORD)
    assert found["record"]["steps"][0]["text"] == "Cut the lemons"
    assert (found["machine"], found["revision"]) == ({"a": {"text": "Slice the lemons"}}, 1)
    assert b"Cut the lemons" in own.ask("GET", f"{PLACE}/steps?format=srt")[1]
    assert own.read("/api/videos")["videos"][0]["state"] == "corrected"
    assert (own.studio.library.folder / "v0.json").read_bytes() == before
    (kept,) = own.read(f"{PLACE}/history")["corrections"]
    assert (kept["by"], kept["edits"][0]["text"]) == ("ann", "Cut the lemons")
    undone = {"by": "ann", "base": 1, "undoes": kept["id"]}
    reply, data = own.ask("POST", CORRECTIONS, undone)
    assert json.loads(data)["revision"] == 2
    assert own.read(RECORD)["machine"] == {}
    card = own.read(PLACE)
    assert (card["state"], card["corrections"], card["revision"]) == ("new", 0, 2)


@pytest.mark.parametrize("status", ["placed", "unclear"])  # the second is of release 0.1.0
def test_a_step_that_a_person_calls_placed_is_not_counted_as_seen(own, status):
    own.ask("POST", CORRECTIONS, change(0, status=status))
    (card,) = own.read("/api/videos")["videos"]
    assert (card["steps"], card["seen"], card["placed"]) == (3, 1, 1)


def test_two_windows_that_change_the_same_hear_who_and_what(own):
    assert own.status("POST", CORRECTIONS, change(0, text="Cut the lemons")) == 200
    # another field
    assert own.status("POST", CORRECTIONS, change(0, by="bob", kind="avoid")) == 200
    reply, data = own.ask("POST", CORRECTIONS, change(0, by="bob", text="Slice them"))
    told = json.loads(data)
    assert (reply.status, told["by"], told["revision"]) == (409, "ann", 2)
    assert told["edits"][0]["text"] == "Cut the lemons"
    assert own.status("POST", CORRECTIONS, change(2, by="bob", text="Slice them")) == 200


def test_a_correction_that_is_sent_twice_counts_once(own):
    body = change(0, text="Cut the lemons") | {"id": "mine"}
    replies = [json.loads(own.ask("POST", CORRECTIONS, body)[1]) for _ in range(2)]
    assert [reply["revision"] for reply in replies] == [1, 1]
    assert own.status("POST", CORRECTIONS, change(1, text="Other") | {"id": "mine"}) == 409


def test_a_record_that_is_made_again_keeps_what_people_corrected(own):
    own.ask("POST", CORRECTIONS, change(0, text="Cut the lemons"))
    path = own.studio.library.folder / "v0.json"
    path.write_text(path.read_text().replace('"id": "a"', '"id": "z"'))
    assert own.read(RECORD)["record"]["steps"][0]["text"] == "Cut the lemons"


def words(base, sentence, text, **more):
    edit = {"do": "words", "sentence": sentence, "text": text}
    return {"by": "ann", "base": base, "edits": [edit], **more}


def test_corrected_words_are_those_of_the_record_the_captions_the_search_and_the_card(own):
    reply, data = own.ask("POST", CORRECTIONS, words(0, 1, "Pour the lime juice."))
    assert (reply.status, json.loads(data)["kept"], json.loads(data)["written"]) == (200, {}, [])
    found = own.read(RECORD)
    said = [sentence["text"] for sentence in found["record"]["transcript"]["sentences"]]
    assert said == ["Slice the lemons.", "Pour the lime juice.", "Whisk the sugar."]
    assert found["sentences"] == [0, 1, 2]
    for name, suffix in (("captions-vtt", "vtt"), ("captions-srt", "srt")):
        reply, data = own.ask("GET", f"{PLACE}/steps?format={name}")
        assert f'filename="v0.captions.{suffix}"' in reply.headers["Content-Disposition"]
        assert b"Pour the lime juice." in data
    assert {"captions-vtt", "captions-srt"} <= set(own.read(PLACE)["formats"])
    assert own.read("/api/search?q=lime")["moments"][0]["text"] == "Pour the juice"
    assert own.read("/api/videos")["videos"][0]["state"] == "corrected"


def test_a_step_is_written_again_with_the_words_in_one_correction_that_is_sent_twice(
    own, monkeypatch
):
    path = own.studio.library.folder / "v0.json"
    record = read_record(path).model_copy(update={"models": {"writer": "extractive"}})
    write_record(record, path)
    asked = []

    def write(transcript, settings, *, title):
        asked.append(transcript)
        steps = [
            Step(id=str(n), text=f"new {n}", sources=(n,)) for n in range(len(transcript.sentences))
        ]
        return WrittenSteps(tuple(steps))

    monkeypatch.setattr("stepline.library.rewriting.write_steps", write)
    body = words(0, 1, "Pour the lime juice.", id="mine")
    replies = [json.loads(own.ask("POST", CORRECTIONS, body)[1]) for _ in range(2)]
    assert replies[0] == {"revision": 1, "id": "mine", "written": ["b"], "kept": {}}
    assert (replies[1]["revision"], len(asked)) == (1, 1)
    steps = own.read(RECORD)["record"]["steps"]
    assert [step["text"] for step in steps] == ["Slice the lemons", "new 1", "Whisk the sugar"]
    own.ask("POST", CORRECTIONS, {"by": "ann", "base": 1, "undoes": "mine"})
    found = own.read(RECORD)
    assert found["machine"] == {}
    assert found["record"]["transcript"]["sentences"][1]["text"] == "Pour the juice."


def test_a_chosen_picture_is_that_of_the_card_and_of_the_outputs(own):
    assert own.status("POST", CORRECTIONS, change(0, at=9.5)) == 200  # outside of the step
    step = own.read(RECORD)["record"]["steps"][0]
    assert (step["at"], step["start"], step["end"]) == (9.5, 3.5, 6.0)
    assert own.read(RECORD)["pictures"]["a"] == 9.5
    (card,) = own.read("/api/videos")["videos"]
    assert card["picture"].endswith("/pictures/9.5.jpg")
    record = own.studio.library.corrected(LEMONADE).record
    before = own.studio.library.record(LEMONADE)
    film = own.studio.library.folder / "v0.mp4"
    chosen, machine = extract_keyframes(record, film), extract_keyframes(before, film)
    assert chosen["a"] != machine["a"]
    assert chosen["b"] == machine["b"]


def test_a_video_outside_is_given_only_with_the_bytes_of_the_record(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video)
    outside = tmp_path / "outside.mp4"
    (folder / "v0.mp4").rename(outside)
    path = folder / "v0.json"
    path.write_text(path.read_text().replace(str(folder / "v0.mp4"), str(outside)))
    with serving(folder) as running:
        ends = time.monotonic() + 60
        while running.status("GET", f"{PLACE}/media") == 503:
            assert time.monotonic() < ends  # it is compared by then
        assert running.read(PLACE)["media"]
        outside.write_bytes(b"a secret")
        while running.status("GET", f"{PLACE}/media") == 503:
            assert time.monotonic() < ends
        assert running.status("GET", f"{PLACE}/media") == 404
    with serving(folder, allowed=[tmp_path]) as running:
        assert running.ask("GET", f"{PLACE}/media")[1] == b"a secret"


def test_events_tell_of_corrections(own):
    import http.client

    line = http.client.HTTPConnection("127.0.0.1", own.port, timeout=60)
    line.request("GET", "/api/events", headers={"Authorization": f"Bearer {own.access.token}"})
    reply = line.getresponse()
    assert reply.headers["Content-Type"].startswith("text/event-stream")
    assert reply.readline().startswith(b"retry:")
    own.ask("POST", CORRECTIONS, change(0, text="Cut the lemons"))
    assert reply.readline() == b"\n"
    assert reply.readline() == b"event: video\n"
    assert json.loads(reply.readline().removeprefix(b"data: ")) == {"id": LEMONADE, "revision": 1}
    reply.close()
    line.close()


def test_a_search_gives_the_text_second_and_link_of_a_moment(server):
    (first, *_) = server.read("/api/search?q=slice+lemons")["moments"]
    assert (first["text"], first["start"], first["link"]) in [
        ("Slice the lemons", 3.5, f"/video/{video_id(name)}#t=3.5")
        for name in ("v0.json", "v1.json")
    ]


def test_a_search_that_is_closed_reads_no_further_record(tmp_path, small_video, monkeypatch):
    search = LibrarySearch(CorrectedLibrary(library(tmp_path / "library", small_video, "a" * 20)))
    closing = Thread(target=search.close)
    names = []

    def add(_index, name, _stamp):
        names.append(name)
        if len(names) == 1:
            closing.start()
        time.sleep(0.1)

    monkeypatch.setattr(SearchIndex, "_add", add)
    with pytest.raises(StoppedError):
        asyncio.run(search.search("slice", 1, None))
    closing.join()
    assert 1 <= len(names) < 20


def test_what_people_corrected_is_found_by_every_door(own, stepline, monkeypatch):
    from stepline.library.mcp_server import LibraryTools

    assert "Grate the zest" not in str(own.read("/api/search?q=zest"))
    zest = change(0, text="Grate the zest") | {"id": "zest"}
    own.ask("POST", CORRECTIONS, zest)
    monkeypatch.setattr(INDEX_AGE, -1.0)  # as if some seconds had gone by
    found = own.read("/api/search?q=zest")["moments"][0]
    assert (found["text"], found["file"]) == ("Grate the zest", "v0.json")
    shown = stepline("search", own.studio.library.folder, "zest", "--json")
    assert json.loads(shown.stdout)[0]["text"] == "Grate the zest"
    assert "1 correction is not in these pages and files; `stepline studio" in shown.stderr
    tools = LibraryTools(own.studio.library.folder)
    assert tools.search_moments("zest").moments[0].text == "Grate the zest"
    assert tools.get_steps(LEMONADE).steps[0].text == "Grate the zest"
    tools.close()
    own.ask("POST", CORRECTIONS, change(1) | {"edits": [], "undoes": "zest"})
    assert "correction" not in stepline("search", own.studio.library.folder, "juice").stderr


LABELS = ({"do": "tag", "tag": "Safety"}, {"do": "metadata", "name": "Course", "value": "A1"})


def label(server, id, *edits, base=0):
    body = {"by": "ann", "base": base, "edits": list(edits)}
    return server.ask("POST", f"/api/videos/{id}/corrections", body)


@pytest.fixture
def two(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video, ("Lemonade", "Lime <b>juice</b>"))
    with serving(folder) as running:
        yield running


def titles(server, query):
    return [card["title"] for card in server.read(f"/api/videos?{query}")["videos"]]


def test_tags_and_metadata_filter_the_list_the_search_and_the_other_doors(
    two, stepline, monkeypatch
):
    from stepline.library.mcp_server import LibraryTools

    assert two.read("/api/search?q=pour&tag=safety")["moments"] == []
    assert label(two, video_id("v1.json"), *LABELS)[0].status == 200
    (card,) = two.read("/api/videos?tag=safety")["videos"]
    assert (card["tags"], card["metadata"]) == (["Safety"], {"Course": "A1"})
    assert (card["state"], card["revision"]) == ("new", 1)
    for query in ("tag=safety", "metadata=course:a1", "metadata=Course", "q=a1+lime", "q=safe"):
        assert titles(two, query) == ["Lime <b>juice</b>"]
    for query in ("tag=safety&tag=x", "metadata=course:b2", "q=b2"):
        assert titles(two, query) == []
    assert two.read("/api/labels") == {"tags": {"Safety": 1}, "metadata": {"Course": 1}}
    monkeypatch.setattr(INDEX_AGE, -1.0)  # as if some seconds had gone by
    for query in ("q=pour&tag=SAFETY", "q=pour&metadata=Course:A1"):
        moments = two.read(f"/api/search?{query}")["moments"]
        assert {moment["file"] for moment in moments} == {"v1.json"}
    folder = two.studio.library.folder
    for tag, files in (("safety", {"v1.json"}), ("other", set())):
        shown = stepline("search", folder, "pour", "--tag", tag, "--json")
        assert {moment["file"] for moment in json.loads(shown.stdout)} == files
    tools = LibraryTools(folder)
    (summary,) = tools.list_videos(tag="safety").videos
    assert (summary.tags, summary.metadata) == (["Safety"], {"Course": "A1"})
    assert tools.list_videos("course a1").matching == 1
    moments = tools.search_moments("pour", tag="safety").moments
    assert {moment.video for moment in moments} == {video_id("v1.json")}
    tools.close()


def test_labels_are_those_of_the_list_and_the_outputs_and_not_in_the_records_file(own):
    label(own, LEMONADE, {"do": "title", "title": "Pink lemonade"}, *LABELS)
    (card,) = own.read("/api/videos?q=pink")["videos"]
    assert card["title"] == "Pink lemonade"
    video = own.read(RECORD)["record"]["video"]
    assert own.read(f"{RECORD}?part=steps")["record"]["video"] == video
    assert (video["title"], video["tags"]) == ("Pink lemonade", ["Safety"])
    assert video["metadata"] == {"Course": "A1"}
    data = own.ask("GET", f"{PLACE}/steps?format=json")[1]
    assert json.loads(data)["video"] == video
    for name in ("html", "markdown", "jsonld", "recipe"):
        data = own.ask("GET", f"{PLACE}/steps?format={name}")[1]
        assert b"Pink lemonade" in data
    file = (own.studio.library.folder / "v0.json").read_text()
    assert "Safety" not in file
    assert "Pink" not in file


# What a correction says, the status that answers it, and a part of the reason.
LABEL_REFUSALS = (
    ({"do": "tag", "tag": "x" * 61}, 400, "at most 60"),
    ({"do": "tag", "tag": ""}, 400, "edits.0.tag.tag"),
    ({"do": "tag", "tag": "\u200b"}, 409, "holds no visible character"),
    ({"do": "metadata", "name": "x", "value": "x" * 301}, 400, "at most 300"),
    ({"do": "metadata", "name": 1, "value": "x"}, 400, "edits.0.metadata.name"),
    ({"do": "tag", "tag": "x", "more": 1}, 400, "edits.0.tag.more"),
    ({"do": "join", "sentences": [2, 1]}, 400, "joined with a later one"),
    ({"do": "add", "id": "n"}, 400, "needs a text, or the sentence"),
    ({"do": "change", "step": "a", "span": {"start": 5, "end": 90}}, 409, "end of the video, 16 s"),
    ({"do": "drop", "sentence": 9}, 409, "sentence 10"),
    ({"do": "explode"}, 400, "edits.0"),
)
REFUSALS = (
    (words(0, 3, "More."), 409, "sentence 4 is not in the transcript"),
    (words(0, -1, "More."), 400, "edits.0.words.sentence"),
    (words(0, "1", "More."), 400, "edits.0.words.sentence"),
    (words(0, 1, "  "), 400, "edits.0.words.text"),
    (words(0, 1, ["Pour", "it"]), 400, "edits.0.words.text"),
    (words(0, 1, "x" * 2001), 400, "edits.0.words.text"),
    (words(7, 1, "More."), 409, "revision 7 is not known"),
    (words(0, 1, "More.", record="other"), 409, "processed again"),
    ({"by": "ann", "base": 0}, 400, "edits"),
    ({"by": "", "base": 0, "edits": []}, 400, "by"),
    ({"by": "ann", "base": -1, "undoes": "x"}, 400, "base"),
    ("{", 400, "body"),
    ("[" * 5000, 400, "body"),
    *(({"by": "ann", "base": 0, "edits": [edit]}, *reply) for edit, *reply in LABEL_REFUSALS),
)


@pytest.mark.parametrize(("body", "status", "said"), REFUSALS)
def test_what_does_not_fit_is_refused_by_its_field_and_nothing_is_stored(
    server, body, status, said
):
    reply, data = server.ask("POST", CORRECTIONS, body)
    error = json.loads(data)["error"]
    assert (reply.status, said in error, "\n" in error) == (status, True, False), data
    assert "Value error" not in error
    assert server.read(RECORD)["revision"] == 0


def test_an_invalid_state_or_format_is_refused(server):
    states = "query.state: Input should be 'new', 'corrected' or '', not 'old'"
    for path, status, said in (
        ("/api/videos?state=old", 400, f"{states}; /api/docs shows what it takes"),
        (f"{PLACE}/steps?format=exe", 400, "unknown output format 'exe'; known: vtt,"),
        ("/api/search", 400, "no word in it; say what is done"),
    ):
        reply, data = server.ask("GET", path)
        assert (reply.status, said in json.loads(data)["error"]) == (status, True), data


def test_what_a_removal_takes_is_said_before_it(own):
    label(own, LEMONADE, *LABELS)  # said by their names
    own.ask("POST", CORRECTIONS, change(1, text="Cut the lemons") | {"id": "cut"})
    assert own.read(f"{PLACE}/removal") == {"files": ["v0.json"], "corrections": 1}
    own.ask("POST", CORRECTIONS, {"by": "ann", "base": 2, "undoes": "cut"})
    assert own.read(f"{PLACE}/removal")["corrections"] == 0
    assert own.status("GET", "/api/videos/none/removal") == 404


def test_a_removed_video_that_comes_again_has_no_labels_of_before(own):
    from stepline.library.corrected_library import CorrectedLibrary

    path = own.studio.library.folder / "v0.json"
    data = path.read_bytes()
    other = CorrectedLibrary(own.studio.library.folder)
    label(own, LEMONADE, *LABELS)
    assert other.card(LEMONADE).tags == ("Safety",)
    assert own.status("DELETE", PLACE, "") == 200
    path.write_bytes(data)
    assert own.read(PLACE)["tags"] == []
    assert label(own, LEMONADE, {"do": "tag", "tag": "New"})[0].status == 200
    for each in (own.studio.library, other):
        assert each.card(LEMONADE).tags == ("New",)
    other.close()


def test_a_library_that_cannot_be_written_is_searched_as_corrected_and_that_is_said(
    own, stepline, tmp_path, monkeypatch
):
    from stepline.library.mcp_server import LibraryTools

    own.ask("POST", CORRECTIONS, change(0, text="Grate the zest"))  # in the log, not the store
    folder = own.studio.library.folder
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)  # a folder that others own
    before = sorted(path.name for path in folder.iterdir())
    shown = stepline("search", folder, "zest", "--json")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout)[0]["text"] == "Grate the zest"
    assert (
        f"warning: {folder} cannot be written; the index is in {tmp_path / 'cache'}" in shown.stderr
    )
    tools = LibraryTools(folder)
    assert tools.search_moments("zest").moments[0].text == "Grate the zest"
    tools.close()
    assert sorted(path.name for path in folder.iterdir()) == before
    refused = stepline("studio", folder)
    assert (refused.exit_code, "take a copy of it" in refused.stderr) == (1, True)


def test_a_share_of_one_video_is_one_page_and_of_several_a_zip(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video, ("Lemonade", "Bread"))
    ids = [video_id(f"v{number}.json") for number in range(2)]
    with serving(folder) as running:
        reply, data = running.ask("POST", "/api/share", {"ids": ids[:1]})
        assert "Lemonade.html" in reply.headers["Content-Disposition"]
        assert b"Slice the lemons" in data
        assert b"<video" not in data
        reply, data = running.ask("POST", "/api/share", {"ids": ids})
        assert "videos-and-steps.zip" in reply.headers["Content-Disposition"]
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
            index = archive.read("videos-and-steps/index.html").decode()
        assert sum(name.endswith(".html") for name in names) == 3
        assert not [name for name in names if name.endswith(".mp4")]  # nobody asked for them
        assert "--shown: #0d6e67" in index  # the page's own design
        _, data = running.ask("POST", "/api/share", {"ids": ids, "videos": True})
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert sum(name.endswith(".mp4") for name in archive.namelist()) == 2
        assert len(running.read("/api/videos")["videos"]) == 2


def test_each_operation_is_described(server):
    told = server.read("/api/openapi.json")
    described = {(method, path) for path, rows in told["paths"].items() for method in rows}
    assert described == {(route.method.lower(), route.path_format) for route in api_routes()}


def test_the_address_that_is_opened_lets_a_browser_in(server):
    assert status_of(server, "GET", "/api/videos") == 401
    reply, _ = ask(server, "GET", f"/?token={server.access.token}")
    cookie = reply.headers["Set-Cookie"]
    assert (reply.status, reply.headers["Location"]) == (303, "/")
    assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
    assert status_of(server, "GET", "/api/videos", Cookie=cookie.partition(";")[0]) == 200


def test_a_library_is_served_where_it_was_the_last_time_unless_that_is_taken(
    tmp_path, small_video, caplog
):
    folder = library(tmp_path / "library", small_video)
    with serving(folder, port=free_port()) as first:
        pass
    with serving(folder) as again:
        assert again.port == first.port
        with serving(library(tmp_path / "other", small_video), port=0) as other:
            assert other.port != first.port
    with socket.create_server(("127.0.0.1", first.port)), serving(folder) as elsewhere:
        assert elsewhere.port != first.port
    assert f"port {first.port}, of the last time, is taken" in caplog.text


def test_records_of_the_api_read_back(server):
    found, folder = server.read(RECORD), server.studio.library.folder
    assert from_json(json.dumps(found["record"])) == read_record(folder / "v0.json")
    assert (folder / DATABASE_FILE).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("page", ["video", "follow", "live"])
def test_a_page_of_no_video_is_a_404_with_a_way_back(server, page):
    reply, data = server.ask(
        "GET", f"/{page}/nosuch", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document"
    )
    assert reply.status == 404
    assert (b"no such live run" if page == "live" else b"no such video") in data.lower()
    assert b'href="/"' in data


@pytest.mark.parametrize("path", ["/", f"/video/{LEMONADE}"])
def test_a_browser_without_the_token_gets_a_page_and_a_program_json(server, path):
    reply, data = ask(server, "GET", path, Sec_Fetch_Dest="document")
    assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert reply.headers["Content-Type"].startswith("text/html")
    assert b"open the address that `stepline studio` printed" in data
    reply, data = ask(server, "GET", path)
    assert reply.status == 401
    assert json.loads(data)["error"].startswith("open the address")
