"""A library as tools for assistants, asked by the SDK's own client: in this process, over stdio and
over HTTP."""

import asyncio
import json
import shutil
import sys
import threading
from contextlib import closing
from pathlib import Path

import httpx2
import jsonschema
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

import stepline as package
from stepline.errors import StoreError
from stepline.grounding.correspondence import PICTURES_DO_NOT_FIT
from stepline.library import SearchIndex
from stepline.library import mcp_server as module
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.corrections import ChangeEdit, Correction, DeleteEdit
from stepline.library.mcp_server import LibraryTools, http_application, mcp_server
from stepline.media import probe
from stepline.pages.web.local_server import LocalServer
from stepline.pipeline import batch
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.storage import read_record, write_record

DEMO = Path(__file__).resolve().parents[1] / "golden" / "expected" / "demo" / "demo.json"
FILM = Path(package.__file__).parent / "cli" / "demo" / "demo.mp4"
TOOLS = {"list_videos", "search_moments", "get_steps", "get_frame", "cut_clip", "process_video"}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory):
    """A library whose index is made once; tests work on copies."""
    folder = tmp_path_factory.mktemp("indexed")
    record = read_record(DEMO)
    pancakes = record.video.model_copy(update={"path": str(FILM), "title": "Banana pancakes"})
    write_record(record.model_copy(update={"video": pancakes}), folder / "demo.json")
    said = Sentence(text="sharpen the lawn mower's blade every spring", span=Span(3.0, 6.0))
    sown = Sentence(text="then sow clover seed on the bare soil", span=Span(6.0, 8.0))
    only_said = {"said": said.span, "sources": (0,), "status": "said_only", "score": 0.2}
    placed = {"said": sown.span, "spans": (sown.span,), "sources": (1,), "status": "placed"}
    steps = (
        Step(id="1", text="sharpen the blade", **only_said),
        Step(id="2", text="sow clover seed", doubt=PICTURES_DO_NOT_FIT, **placed),
    )
    video = Video(id="lawn", title="A tidy lawn", duration=9.0, path=str(folder / "gone.mp4"))
    speech = Transcript(sentences=(said, sown))
    told = ("most of the speech is not understood",)
    lawn = Record(id="lawn", video=video, transcript=speech, steps=steps, warnings=told)
    write_record(lawn, folder / "lawn.json")
    (folder / "notes.json").write_text("{}")
    index = SearchIndex(folder)
    index.update()
    index.close()
    return folder


@pytest.fixture
def library(indexed, tmp_path):
    return shutil.copytree(indexed, tmp_path / "library")


@pytest.fixture
def tools(library):
    tools = LibraryTools(library)
    yield tools
    tools.close()


def ask(server, *calls):
    """Return the results of calls, each the name of a tool and its arguments, and what the server
    lists."""

    async def session():
        async with Client(server) as client:
            listed = await client.list_tools()
            return listed.tools, [await client.call_tool(name, given) for name, given in calls]

    return asyncio.run(session())


def call(tools, name, **given):
    """Return what a tool answers: its structured content, checked against the schema that it is
    listed with."""
    listed, (result,) = ask(mcp_server(tools), (name, given))
    assert not result.is_error, result.content
    (tool,) = [tool for tool in listed if tool.name == name]
    jsonschema.validate(given, tool.input_schema)
    jsonschema.validate(result.structured_content, tool.output_schema)
    return result.structured_content


def refused(tools, name, **given):
    """Return the one line with which a tool refuses."""
    _, (result,) = ask(mcp_server(tools), (name, given))
    assert result.is_error
    (content,) = result.content
    return content.text


def test_every_tool_has_a_schema_and_says_what_it_does(tools):
    listed, _ = ask(mcp_server(tools))
    assert {tool.name for tool in listed} == TOOLS
    for tool in listed:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert tool.description
        assert tool.annotations.read_only_hint is (tool.name not in ("cut_clip", "process_video"))
    reason = "unknown argument words; known: query, tag, most"
    assert refused(tools, "list_videos", words="pancakes") == reason


def test_videos_are_listed_with_what_is_shown_of_them(tools, library):
    videos = call(tools, "list_videos")["videos"]
    assert [video["title"] for video in videos] == ["A tidy lawn", "Banana pancakes"]
    found = call(tools, "list_videos", query="pancakes")
    assert found["matching"] == 1
    video = found["videos"][0]
    assert (video["steps"], video["seen"], video["placed"]) == (11, 0, 11)
    assert video["no_steps_reason"] is None
    record = read_record(DEMO).model_copy(update={"steps": (), "warnings": ()})
    write_record(record, library / "demo.json")
    (video,) = call(tools, "list_videos", query="pancakes")["videos"]
    assert video["no_steps_reason"] == f"no step found in {len(record.sentences)} sentences"


def test_where_the_whisk_is_used(tools):
    best = call(tools, "search_moments", query="where is the whisk used")["moments"][0]
    assert best["text"] in ("whisk the batter until it's smooth", "take the whisk")
    assert (best["title"], best["status"], best["kind"]) == ("Banana pancakes", "placed", "step")
    assert best["clock"] in ("0:49 – 0:52", "0:52 – 0:56")
    assert "whisk" in best["sentence"]


def test_what_is_only_said_is_reported_as_that(tools, library):
    found = call(tools, "search_moments", query="sharpen the mower's blade")
    assert found["moments"][0]["status"] == "said_only"
    assert found["moments"][0]["clock"] == "0:03 – 0:06"
    assert "does not show" in found["note"]
    lawn = read_record(library / "lawn.json")
    lost = Step(id="1", text="sharpen the blade", status="not_found")
    write_record(lawn.model_copy(update={"steps": (lost, lawn.steps[1])}), library / "lawn.json")
    found = call(tools, "search_moments", query="sharpen the blade")
    assert found["moments"][0]["status"] == "not_found"
    assert found["note"].endswith("a step that its video neither says nor shows")


def test_a_doubt_about_the_best_answer_is_told_and_none_where_there_is_none(tools):
    (lawn,) = call(tools, "list_videos", query="lawn")["videos"]
    assert (lawn["placed"], lawn["doubtful"]) == (1, 1)
    found = call(tools, "search_moments", query="sow clover seed")
    assert found["moments"][0]["doubt"] == PICTURES_DO_NOT_FIT
    assert found["note"].endswith(PICTURES_DO_NOT_FIT)
    assert call(tools, "search_moments", query="slice the banana")["note"] is None


@pytest.fixture
def video(tools):
    """The pancakes, as they are listed."""
    return call(tools, "list_videos", query="pancakes")["videos"][0]


def test_steps_come_in_order_with_their_sentences(tools, video):
    steps = call(tools, "get_steps", video=video["video"])["steps"]
    statuses = [step["status"] for step in steps]
    assert [statuses.count(status) for status in ("seen", "placed", "said_only")] == [0, 11, 0]
    assert all((step["basis"] is not None) == (step["status"] == "seen") for step in steps)
    record = read_record(DEMO)
    assert steps[0]["sentence"] == record.transcript.sentences[record.steps[0].sources[0]].text
    assert "slice the banana" in steps[0]["sentence"]
    assert "no video of this library" in refused(tools, "get_steps", video="../demo")


def test_steps_are_given_by_title_too_and_not_where_several_have_it(tools, library, video):
    by_id = call(tools, "get_steps", video=video["video"])
    for name in ("demo", f" {video['title'].upper()} "):  # of the record, of the video
        assert call(tools, "get_steps", video=name) == by_id
    (lawn,) = call(tools, "list_videos", query="lawn")["videos"]
    warnings = call(tools, "get_steps", video="lawn")["warnings"]
    assert (warnings, lawn["warnings"]) == (["most of the speech is not understood"], 1)
    record = read_record(library / "demo.json")
    write_record(record, library / "copy.json")
    error = refused(tools, "get_steps", video=video["title"])
    (library / "copy.json").unlink()
    assert "2 videos; take an id" in error
    assert video["video"] in error


def test_what_people_corrected_is_what_assistants_hear(tools, library):
    record = read_record(library / "demo.json")
    identity = video_id("demo.json")
    wrong, gone = (
        next(step for step in record.steps if word in step.text)
        for word in ("whisk the", "take the")
    )
    edits = (
        ChangeEdit(do="change", step=wrong.id, text="whisk it well", status="said_only"),
        DeleteEdit(do="delete", step=gone.id),
    )
    new = Correction(id="1", video=identity, by="Ann", when=0.0, base=0, edits=edits)
    with closing(CorrectedLibrary(library)) as corrected:
        corrected.correct(identity, new)
    found = call(tools, "search_moments", query="where is the whisk used")["moments"]
    assert (found[0]["text"], found[0]["status"]) == ("whisk it well", "said_only")
    assert "take the whisk" not in [moment["text"] for moment in found]


def test_a_frame_comes_with_its_citation(tools, video):
    _, (result,) = ask(mcp_server(tools), ("get_frame", {"video": "demo", "second": 10.5}))
    told, picture = result.content
    assert all(
        part in told.text for part in ("Banana pancakes", "0:10", "slice the banana (placed)")
    )
    assert picture.mime_type == "image/jpeg"
    assert "ends before" in refused(tools, "get_frame", video=video["video"], second=5000)
    assert refused(tools, "get_frame", video=video["video"], second=-1)


def test_a_clip_is_cut_into_the_library(tools, library, video):
    # by the name of its record, and by its title to the end of the film
    for name, start, end in (("demo", 9, 11), ("banana pancakes", video["seconds"] - 2, 500)):
        clip = call(tools, "cut_clip", video=name, start=start, end=end)
        assert (clip["video"], clip["end"]) == (video["video"], min(end, video["seconds"]))
        assert probe(library / clip["file"]).duration == pytest.approx(2.0, abs=0.1)
    record = read_record(library / "demo.json")
    film = shutil.copy(FILM, library / "other.mp4")
    other = record.video.model_copy(update={"sha256": "0" * 64, "path": str(film)})
    write_record(record.model_copy(update={"video": other}), library / "demo.json")
    assert call(tools, "cut_clip", video="demo", start=start, end=end)["file"] != clip["file"]
    assert "600 s at most" in refused(tools, "cut_clip", video=video["video"], start=0, end=601)
    assert "before the end" in refused(tools, "cut_clip", video=video["video"], start=3, end=3)


def test_a_record_gives_away_no_other_file(tools, library, tmp_path):
    """A record may come from elsewhere: the path that it names is read where it is the very video,
    or allowed."""
    secret = tmp_path / "secret.mp4"
    shutil.copy(FILM, secret)
    secret.write_bytes(secret.read_bytes() + b"other")
    record = read_record(library / "demo.json")
    (library / "linked.mp4").symlink_to(secret)
    for number, path in enumerate((secret, library / "linked.mp4")):
        changed = record.video.model_copy(update={"path": str(path), "title": f"changed {number}"})
        moved = record.model_copy(update={"video": changed})
        write_record(moved, library / f"changed{number}.json")
        (video,) = call(tools, "list_videos", query=f"changed {number}")["videos"]
        assert "is another file now" in refused(tools, "get_frame", video=video["video"], second=1)
        with closing(LibraryTools(library, allow=[tmp_path])) as allowing:
            assert call(allowing, "cut_clip", video=video["video"], start=0, end=1)
    (lawn,) = call(tools, "list_videos", query="lawn")["videos"]
    assert "was moved" in refused(tools, "get_frame", video=lawn["video"], second=1)


def test_a_video_is_processed_only_where_that_is_allowed(tools, library, tmp_path, monkeypatch):
    let_go, started, faults = threading.Event(), threading.Event(), ["no room left"]

    def run_video(request, settings, output, *, progress):
        progress("listening", 2.0, 9.0)
        started.set()
        assert let_go.wait(60)
        if faults:
            raise StoreError(faults.pop())
        made = Record(id=request.id, video=Video(id=request.id))
        write_record(made, output.out / f"{request.id}.json")

    monkeypatch.setattr(batch, "run_video", run_video)
    monkeypatch.setattr(module, "REPLY_TIMEOUT_SECONDS", 0.01)
    outside = tmp_path / "new.mp4"
    shutil.copy(FILM, outside)
    for path in (str(outside), "../new.mp4"):
        assert "neither in the library" in refused(tools, "process_video", path=path)
    assert "no such file" in refused(tools, "process_video", path="new.mp4")
    shutil.copy(FILM, library / "new.mp4")
    assert call(tools, "process_video", path="new.mp4")["state"] == "running"
    assert started.wait(60)
    running = call(tools, "process_video", path="new.mp4")
    assert (running["stage"], running["second"], running["seconds"]) == ("listening", 2.0, 9.0)
    let_go.set()
    monkeypatch.setattr(module, "REPLY_TIMEOUT_SECONDS", 60.0)
    shutil.copy(FILM, library / "next.mp4")
    assert call(tools, "process_video", path="next.mp4")["state"] == "done"
    # the other run failed meanwhile, which is reported before it begins again
    assert "no room left" in refused(tools, "process_video", path="new.mp4")
    done = call(tools, "process_video", path="new.mp4")
    assert done["state"] == "done"
    assert call(tools, "get_steps", video=done["video"])["steps"] == []
    with closing(LibraryTools(library, allow=[tmp_path])) as allowing:
        assert call(allowing, "process_video", path=str(outside))["state"] == "done"
    (library / "new.json").unlink()
    assert call(tools, "process_video", path="new.mp4")["video"] == done["video"]
    assert (library / "new.json").is_file()


def test_the_command_answers_over_stdio(library):
    args = ["-m", "stepline", "mcp", str(library)]
    command = StdioServerParameters(command=sys.executable, args=args)
    asked = {"query": "where is the whisk used", "most": 1}
    listed, (found,) = ask(command, ("search_moments", asked))
    assert {tool.name for tool in listed} == TOOLS
    assert "whisk" in found.structured_content["moments"][0]["text"]


def test_over_http_only_the_token_opens_and_only_by_this_machine_s_name(tools):
    server = LocalServer(http_application(tools, "right"), lifespan="on")
    thread = threading.Thread(target=server.run)
    thread.start()
    address = f"{server.address}mcp"

    async def videos(**headers):
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            return (await client.call_tool("list_videos", {})).structured_content["matching"]

    def status(**headers):
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        accepted = "application/json, text/event-stream"
        given = {"Accept": accepted, "Content-Type": "application/json", **headers}
        return httpx2.post(address, content=body, headers=given).status_code

    try:
        assert asyncio.run(videos(Authorization="Bearer right")) == 2
        assert status() == status(Authorization="Bearer wrong") == 401
        assert status(Authorization="Bearer right", Host="evil.example") in (403, 421)
        assert status(Authorization="Bearer right", Origin="http://evil.example") == 403
    finally:
        server.stop()
        thread.join(60)


def test_an_invalid_folder_is_one_line(stepline, tmp_path):
    result = stepline("mcp", tmp_path / "none")
    assert result.exit_code == 1
    assert "no such folder" in result.stderr
