"""What those who are in may try against a studio, and what a library from elsewhere may have it
give out, wait for or write over."""

import asyncio
import io
import json
import os
import shutil
import sys
import threading
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from starlette.exceptions import HTTPException
from studio_server import library, serving, until

from stepline.files.digests import sha256
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.corrections import ChangeEdit, Correction, RecordChangedError
from stepline.library.database import LibraryDatabase
from stepline.library.file_digests import FileDigests
from stepline.library.mcp_server import LibraryTools
from stepline.outputs.shared_folder import SHARE_MARK
from stepline.pipeline.sources import find_videos
from stepline.storage import read_record, write_record
from stepline.studio import media
from stepline.studio.access import Password
from stepline.studio.live import MAX_READ_BYTES, follow_log

LEMONADE = video_id("v0.json")
PLACE = f"/api/videos/{LEMONADE}"
PRECIOUS = b"what a person wrote\n"
EDIT = {"do": "change", "step": "a", "text": "Cut the lemons"}


@pytest.fixture
def folder(tmp_path, small_video):
    return library(tmp_path / "library", small_video)


@pytest.fixture
def server(folder):
    with serving(folder) as running:
        yield running


def set_path(folder, path, **values):
    """Have the record name another file."""
    record = read_record(folder / "v0.json")
    video = record.video.model_copy(update={"path": str(path)} | values)
    write_record(record.model_copy(update={"video": video}), folder / "v0.json")


@pytest.mark.parametrize("name", [".stepline-studio.sqlite", "v0.json", "secret", "video.mp4"])
def test_a_record_gives_out_no_file_that_is_not_a_video(folder, tmp_path, name):
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "id").write_bytes(PRECIOUS)
    (folder / "secret").write_bytes(PRECIOUS)
    (folder / "video.mp4").symlink_to(keys / "id")
    set_path(folder, name)
    with serving(folder, allowed=[keys]) as running:
        assert running.status("GET", f"{PLACE}/media") in (404, 503)
        body = {"ids": [LEMONADE], "videos": True}
        reply, data = running.ask("POST", "/api/share", body)
    assert reply.status == 200
    assert not [name for name in zipfile.ZipFile(io.BytesIO(data)).namelist() if "videos/" in name]


def test_a_video_of_any_name_is_given_where_the_record_has_its_bytes(folder):
    (folder / "v0.mp4").rename(folder / "film")
    set_path(folder, "film")
    with closing(CorrectedLibrary(folder)) as corrected:
        found = corrected.media_file(LEMONADE, corrected.record(LEMONADE).video)
    assert found == folder / "film"


def test_a_file_elsewhere_that_is_not_a_video_is_not_even_read(folder, tmp_path, monkeypatch):
    (tmp_path / "secret").write_bytes(PRECIOUS)
    set_path(folder, tmp_path / "secret", sha256=sha256(tmp_path / "secret"))
    (folder / "v0.mp4").unlink()
    with closing(CorrectedLibrary(folder)) as corrected:
        corrected.digest_of = lambda path: pytest.fail(f"{path} is read")
        assert corrected.media_file(LEMONADE, corrected.record(LEMONADE).video) is None


def test_a_link_to_a_record_elsewhere_is_not_a_record_of_the_library(folder, tmp_path, small_video):
    other = library(tmp_path / "other", small_video, ("Secret plans",))
    (folder / "link.json").symlink_to(other / "v0.json")
    (folder / "own.json").symlink_to(folder / "v0.json")
    for allowed, titles in (((), 2), ((other,), 3)):
        with closing(CorrectedLibrary(folder, allowed)) as corrected:
            assert len(corrected.videos()) == titles


def test_copies_that_an_earlier_version_shared_are_neither_videos_nor_answers(folder, server):
    shared = folder / "share"
    shared.mkdir()
    for name in ("v0.json", "v0.mp4"):
        shutil.copyfile(folder / name, shared / name)
    (shared / SHARE_MARK).touch()
    assert len(server.read("/api/videos")["videos"]) == 1
    assert {moment["id"] for moment in server.read("/api/search?q=lemons")["moments"]} == {LEMONADE}
    assert find_videos([folder]) == [folder / "v0.mp4"]


def made_again(folder):
    """Give the record other steps by the same ids, as a new run may."""
    record = read_record(folder / "v0.json")
    texts = [step.text for step in record.steps][::-1]
    pairs = zip(record.steps, texts, strict=True)
    steps = tuple(step.model_copy(update={"text": text}) for step, text in pairs)
    write_record(record.model_copy(update={"steps": steps}), folder / "v0.json")


def test_an_edit_of_a_record_that_was_made_again_is_a_conflict(folder, server):
    stamp = server.read(f"{PLACE}/record")["stamp"]
    body = {"by": "a", "base": 0, "edits": [EDIT], "record": stamp}
    made_again(folder)
    reply, data = server.ask("POST", f"{PLACE}/corrections", body)
    assert reply.status == 409
    assert "processed again" in json.loads(data)["error"]
    current = server.read(f"{PLACE}/record")
    assert current["revision"] == 0
    body |= {"record": current["stamp"], "id": "x"}
    assert server.status("POST", f"{PLACE}/corrections", body) == 200
    # what people corrected stays what it was, and so does its stamp
    made_again(folder)
    assert server.read(f"{PLACE}/record")["stamp"] == current["stamp"]
    # the answer was lost, and the page sends it again
    assert server.status("POST", f"{PLACE}/corrections", body) == 200
    assert server.read(f"{PLACE}/record")["revision"] == 1
    os.utime(folder / "v0.json", (1, 1))  # written again the same
    assert server.read(f"{PLACE}/record")["stamp"] == current["stamp"]


def test_two_first_corrections_of_two_records_are_a_conflict(folder):
    edit = ChangeEdit(do="change", step="b", text="Pour")
    mine, theirs = CorrectedLibrary(folder), CorrectedLibrary(folder)
    both = mine.current(LEMONADE)
    made_again(folder)
    first = Correction(id="1", video=LEMONADE, by="a", when=0.0, base=0, edits=(edit,))
    theirs.correct(LEMONADE, first)
    mine.current = lambda _: both  # it was read just before the file changed
    second = first.model_copy(update={"id": "2", "base": 1})
    with pytest.raises(RecordChangedError):
        mine.correct(LEMONADE, second)
    mine.close()
    theirs.close()


def test_no_one_waits_while_a_video_is_hashed(folder, tmp_path, monkeypatch):
    outside = tmp_path / "outside.mp4"
    shutil.move(folder / "v0.mp4", outside)
    set_path(folder, outside)
    may_go_on = threading.Event()
    digest = FileDigests._digest

    def wait(self, path):
        may_go_on.wait(60)
        return digest(self, path)

    monkeypatch.setattr(FileDigests, "_digest", wait)
    with serving(folder) as running, ThreadPoolExecutor(60) as clients:
        asked = [clients.submit(running.read, PLACE) for _ in range(60)]
        assert [each.result(60)["media"] for each in asked] == [False] * 60
        reply, data = running.ask("GET", f"{PLACE}/media")
        assert (reply.status, b"compared" in data) == (503, True)
        may_go_on.set()
        until(lambda: running.read(PLACE)["media"])


def test_no_one_waits_for_those_who_read_long_videos(server, monkeypatch):
    may_go_on = threading.Event()

    def wait(path):
        may_go_on.wait(60)
        return b""

    monkeypatch.setattr(media, "waveform_peaks", wait)
    with ThreadPoolExecutor(60) as clients:
        asked = [clients.submit(server.read, f"{PLACE}/waveform") for _ in range(60)]
        until(lambda: sum(each.running() for each in asked) == 60)
        time.sleep(0.5)  # so that they are at the server
        for _ in range(5):
            assert len(server.read("/api/videos")["videos"]) == 1
        may_go_on.set()
        assert all(each.result(60)["peaks"] == [] for each in asked)


def test_a_file_that_cannot_be_read_has_no_digest(tmp_path, caplog):
    digests = FileDigests()
    path = tmp_path / "file"
    path.write_bytes(PRECIOUS)
    done = threading.Event()
    digests.on_done = done.set
    assert digests.get(path) is None
    assert done.wait(60)
    assert digests.get(path) == sha256(path)
    digests.close()
    assert digests.get(tmp_path) is None  # nobody begins any more


def begin(server, size=100):
    reply, data = server.ask("POST", "/api/uploads", {"name": "a.mp4", "size": size})
    return reply.status, json.loads(data).get("upload")


def test_an_upload_can_be_ended(server):
    _, id = begin(server)
    server.ask("PATCH", f"/api/uploads/{id}", b"x" * 10, Upload_Offset="0")
    listed = server.read("/api/uploads")["uploads"]
    assert listed == [{"upload": id, "name": "a.mp4", "size": 100, "offset": 10}]
    pieces = server.studio.library.folder / ".stepline-uploads"
    assert len(list(pieces.iterdir())) == 1
    assert server.status("DELETE", f"/api/uploads/{id}", "") == 200
    assert list(pieces.iterdir()) == []
    assert server.status("DELETE", f"/api/uploads/{id}", "") == 404
    assert server.status("PATCH", f"/api/uploads/{id}", b"x", Upload_Offset="10") == 404


def test_a_whole_upload_is_not_ended(server, monkeypatch):
    monkeypatch.setattr(server.studio.jobs, "list_in_state", lambda *_: [])  # no job is begun
    _, id = begin(server, 5)
    assert server.status("PATCH", f"/api/uploads/{id}", b"12345", Upload_Offset="0") == 200
    assert server.status("DELETE", f"/api/uploads/{id}", "") == 409
    assert server.read("/api/uploads")["uploads"] == []


def test_uploads_that_no_one_goes_on_with_keep_no_one_out(server, monkeypatch):
    monkeypatch.setattr("stepline.studio.uploads.MAX_OPEN_UPLOADS", 3)
    ids = [begin(server)[1] for _ in range(3)]
    assert begin(server)[0] == 429
    monkeypatch.setattr("stepline.studio.uploads.MAX_IDLE_SECONDS_IF_FULL", 0.0)
    assert begin(server)[0] == 201
    assert [server.status("HEAD", f"/api/uploads/{id}") for id in ids] == [404] * 3


def test_an_upload_that_can_never_be_whole_is_ended(server):
    _, id = begin(server, 100)
    pieces = server.studio.library.folder / ".stepline-uploads" / id
    pieces.parent.mkdir()
    pieces.write_bytes(b"x" * 101)
    assert server.status("PATCH", f"/api/uploads/{id}", b"", Upload_Offset="100") == 410
    assert not pieces.exists()
    assert server.status("HEAD", f"/api/uploads/{id}") == 404


def test_simultaneous_uploads_have_room_together(server, monkeypatch):
    free = shutil.disk_usage(server.studio.library.folder).free
    size = (free - 2**30) // 3
    monkeypatch.setattr("shutil.disk_usage", lambda _: shutil._ntuple_diskusage(free, 0, free))
    assert [begin(server, size)[0] for _ in range(4)] == [201, 201, 201, 507]


def test_a_correction_and_an_upload_read_nothing_of_those_before(folder, monkeypatch):
    rows_read = []
    read_rows = LibraryDatabase.rows

    def rows(self, query, *values):
        found = read_rows(self, query, *values)
        rows_read.append(len(found))
        return found

    monkeypatch.setattr(LibraryDatabase, "rows", rows)
    with serving(folder) as running:
        monkeypatch.setattr(running.studio.jobs, "list_in_state", lambda *_: [])  # no job is begun
        counts = []
        for number in range(30):
            rows_read.clear()
            body = {"by": "a", "base": number, "edits": [EDIT | {"text": f"t{number}"}]}
            assert running.status("POST", f"{PLACE}/corrections", body) == 200
            running.read(f"{PLACE}/record")
            assert len(running.read(f"{PLACE}/history?from={number}")["corrections"]) == 1
            _, id = begin(running, 5)
            reply, _ = running.ask("PATCH", f"/api/uploads/{id}", b"12345", Upload_Offset="0")
            assert reply.status == 200
            counts.append(sum(rows_read))
        assert counts[-1] <= counts[2], counts


def test_simultaneous_right_passwords_all_let_in():
    password = Password("open sesame")
    with ThreadPoolExecutor(8) as threads:  # more than the wrong ones that it bears
        asked = list(threads.map(lambda _: password.check("open sesame", "a"), range(8)))
    assert asked == [True] * 8


def test_simultaneous_wrong_passwords_are_counted():
    password = Password("open sesame")

    def wrong(_):
        try:
            return password.check("wrong", "a")
        except HTTPException as error:
            return error.status_code

    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(wrong, range(20)))
    assert sorted(answers) == [False] * 5 + [429] * 15


def test_a_long_line_of_a_log_does_not_stop_the_stream(tmp_path, caplog):
    log = tmp_path / "run.events.jsonl"
    first = b'{"event": "begun"}\n'
    long = b'"' + b"x" * (3 * MAX_READ_BYTES) + b'"\n'
    log.write_bytes(first + long + b'{"event": "step"}\n{"event": "st')
    told = []

    async def follow():
        async for event in follow_log(log, lambda: len(told) > 2):
            told.append(event)

    asyncio.run(asyncio.wait_for(follow(), 60))
    events = (f'data: {{"event": "{name}"}}\n\n' for name in ("begun", "step"))
    assert told == ["retry: 2000\n\n", *events]
    assert caplog.text.count("is left out") == 1


def test_a_line_of_a_log_that_is_still_written_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("stepline.studio.live.POLL_SECONDS", 0.01)
    log = tmp_path / "run.events.jsonl"
    log.write_bytes(b"1\n" + b"x" * (MAX_READ_BYTES + 5))
    told = []

    async def follow():
        async for event in follow_log(log, lambda: len(told) > 2):
            told.append(event)
            if len(told) == 2:
                with log.open("ab") as file:
                    file.write(b"x\rx\n2\r3\n")

    asyncio.run(asyncio.wait_for(follow(), 60))
    assert told[1:] == ["data: 1\n\n", "data: 2 3\n\n"]


@pytest.fixture
def opened_files():
    """The paths of all files that are opened meanwhile."""
    paths = []

    def hear(event, arguments):
        if event == "open" and is_heard:
            paths.append(str(arguments[0]))

    is_heard = [True]
    sys.addaudithook(hear)
    yield paths
    is_heard.clear()


def test_no_settings_are_read_from_a_library(folder, opened_files, monkeypatch, stepline):
    names = ("learned.toml", "stepline.toml", "settings.toml", "config.toml")
    for name in names:
        (folder / name).write_text('[writing]\nwriter = "llm"\n[links]\nprivate = true\n')
    opened_files.clear()
    monkeypatch.chdir(folder)
    with serving(folder) as running:
        assert running.read("/api/search?q=lemons")["moments"]
    with closing(LibraryTools(folder)) as tools:
        assert tools.search_moments("lemons").moments
    stepline("search", folder, "lemons")
    stepline("curate", "corrections", folder, "--export", folder / "out")
    assert any(path.endswith("v0.json") for path in opened_files)
    assert [path for path in opened_files if path.endswith(names)] == []


def test_a_waveform_of_a_stranger_is_made_again(server, folder):
    for peaks in (10**12, "text", b"x" * 10**6):
        server.read(f"{PLACE}/waveform")
        with server.studio.database.write_transaction() as connection:
            connection.execute("UPDATE waveform SET peaks = ?", (peaks,))
        assert len(server.read(f"{PLACE}/waveform")["peaks"]) == media.PEAK_COUNT
