"""The studio where the machine is against it: a second studio, disks that are read-only or full,
little memory, another user, clocks that jump. It refuses in one line, or loses no answer."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import psutil
import pytest
from studio_process import ROOT, StudioProcess
from studio_server import ended_job, library, serving
from surroundings import NOBODY, JumpingClock, memory_limit, other_user, read_only_disk, small_disk

from stepline.library.corrected_library import video_id
from stepline.storage import read_record

NO_HOME = {"HOME": "/none", "STEPLINE_WEIGHTS": "/none"}
MIN_WORKER_BYTES = 80 * 2**20  # less than the studio has, and less than a job needs
PLACE = f"/api/videos/{video_id('v0.json')}"


@pytest.fixture
def folder(tmp_path, small_video):
    return library(tmp_path / "library", small_video)


def correct(studio, number, text=None):
    """Send a correction, and return the status of the reply and what it says."""
    card = studio.read(PLACE)
    edit = {"do": "change", "step": "a", "text": text or f"text {number}"}
    body = {"by": "Ann", "base": card["revision"], "edits": [edit], "id": f"c{number}"}
    for name in ("stamp", "record"):  # by which a page says which record it shows
        if name in card:
            body[name] = card[name]
    reply, data = studio.ask("POST", f"{PLACE}/corrections", body)
    return reply.status, json.loads(data)


def kept_ids(studio):
    return [one["id"] for one in studio.read(f"{PLACE}/history")["corrections"]]


def assert_refused(studio, *words):
    """It has not started, and says why in one line."""
    studio.process.wait(60)
    code = studio.end()
    text = "".join(studio.lines)
    assert code == 1, text
    assert len(studio.lines) == 1, text
    for word in words:
        assert word in text


def test_of_studios_that_begin_together_one_serves_until_it_is_killed(folder, stepline):
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    started = [StudioProcess.begin(folder, variables=variables) for _ in range(2)]
    try:
        studios = [StudioProcess.of(process) for process in started]
        (first,) = (studio for studio in studios if studio.has_started)
        assert correct(first, 0)[0] == 200
        (other,) = (studio for studio in studios if studio is not first)
        assert_refused(other, "works on it")
        for more in (("--port", "0"), ("--jobs", "2")):
            third = stepline("studio", folder, *more)
            assert (third.exit_code, third.stderr.count("\n")) == (1, 1), third.stderr
            assert f"process {first.process.pid} on" in third.stderr
        assert correct(first, 1)[0] == 200
        assert kept_ids(first) == ["c0", "c1"]
        first.end()
    finally:
        for process in started:
            process.kill()
            process.wait()
            process.stderr.close()
    with serving(folder) as next_one:
        assert kept_ids(next_one) == ["c0", "c1"]
        assert correct(next_one, 2)[0] == 200


def test_a_library_on_a_read_only_disk_is_refused_in_a_line(folder):
    before = sorted(folder.iterdir())
    studio = StudioProcess(folder, prefix=read_only_disk(folder))
    assert_refused(studio, "cannot be written", "take a copy")
    assert sorted(folder.iterdir()) == before


def test_a_cache_and_a_home_that_cannot_be_written_keep_no_one_from_watching(folder, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    variables = {"HOME": str(home), "STEPLINE_CACHE": str(home / "cache")}
    with StudioProcess(folder, prefix=read_only_disk(home), variables=variables) as studio:
        assert studio.status("GET", f"{PLACE}/media") == 200
        assert studio.status("GET", f"{PLACE}/pictures/4.0.jpg") == 200
        assert studio.status("GET", "/api/search?q=slice") == 200
        assert correct(studio, 0)[0] == 200


def test_a_disk_that_fills_up_loses_no_answer_and_says_what_to_do(folder, tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    with StudioProcess(place, prefix=small_disk(600_000, place, folder)) as studio:
        answered = []
        status = 200
        while status == 200:
            assert len(answered) < 2000, "the disk is never full"
            status, said = correct(studio, len(answered), "x" * 1500)
            if status == 200:
                answered.append(f"c{len(answered)}")
        assert status == 503, said
        assert "free some space" in said["error"]
        assert len(answered) > 10
        assert kept_ids(studio) == answered
        begun = {"name": "film.mp4", "size": 1000}
        assert studio.status("POST", "/api/uploads", begun) == 507
        reply, data = studio.ask("GET", "/api/search?q=slice")
        assert reply.status == 200 or b"free some space" in data, data
        assert studio.status("GET", f"{PLACE}/steps?format=srt") == 200
        reply, data = studio.ask("POST", "/api/share", {"ids": [video_id("v0.json")]})
        assert reply.status in (200, 409), data  # it is written where temporary files are
        assert kept_ids(studio) == answered


def test_a_job_that_memory_ends_fails_in_a_line_and_the_studio_lives(folder, small_video):
    """The kernel ends the worker first, also where the studio is the larger of the two."""
    shutil.copyfile(small_video, folder / "job.mp4")
    with memory_limit(2**30) as (prefix, limit), StudioProcess(folder, prefix=prefix) as studio:
        assert correct(studio, 0)[0] == 200
        for path in ("/api/search?q=slice", f"{PLACE}/steps?format=docx", f"{PLACE}/waveform"):
            assert studio.status("GET", path) == 200
        used = psutil.Process(studio.process.pid).memory_info().rss
        limit(used + MIN_WORKER_BYTES)
        reply, data = studio.ask("POST", "/api/videos", {"path": "job.mp4"})
        assert reply.status == 200, data
        job = ended_job(studio, json.loads(data)["job"])
        assert (job["state"], "\n" in job["error"]) == ("failed", False)
        assert correct(studio, 1)[0] == 200
        assert kept_ids(studio) == ["c0", "c1"]
    assert read_record(folder / "v0.json").id == "v0"
    assert not [path for path in folder.glob("job*") if path.suffix == ".json"]


@pytest.mark.parametrize("size", ["900M", "1500M"])
def test_a_limit_of_addresses_ends_in_a_line_or_not_at_all(folder, size):
    if shutil.which("prlimit") is None:
        pytest.skip("no `prlimit` on PATH")
    number = int(size.removesuffix("M")) * 2**20
    studio = StudioProcess(folder, prefix=["prlimit", f"--as={number}"])
    if not studio.has_started:
        assert_refused(studio)
        return
    with studio:
        assert correct(studio, 0)[0] == 200
        reply, data = studio.ask("GET", "/api/search?q=slice")
        assert reply.status in (200, 409), data
        assert kept_ids(studio) == ["c0"]


@pytest.fixture
def open_folder(small_video):
    """A library that every user can reach, as pytest's own folders are not."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    yield library(root / "library", small_video, ("one", "two"))
    shutil.rmtree(root)


def test_one_who_owns_the_library_needs_no_other_right(open_folder):
    prefix = other_user()
    for path in (open_folder, *open_folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    (open_folder / "v1.mp4").chmod(0)
    with StudioProcess(open_folder, prefix=prefix, variables=NO_HOME) as studio:
        assert correct(studio, 0)[0] == 200
        assert studio.status("GET", f"{PLACE}/media") == 200
        other = f"/api/videos/{video_id('v1.json')}"
        reply, data = studio.ask("GET", f"{other}/media")
        assert reply.status in (404, 409), data
        assert studio.read("/api/videos")["videos"] != []
        assert kept_ids(studio) == ["c0"]
    for name in (".stepline-studio.sqlite", ".stepline-studio.sqlite-wal"):
        path = open_folder / name
        assert not path.exists() or path.stat().st_mode & 0o077 == 0


def test_one_who_may_only_read_the_library_is_refused_in_a_line(open_folder):
    studio = StudioProcess(open_folder, prefix=other_user(), variables=NO_HOME)
    assert_refused(studio, "cannot be written", "take a copy")


def test_a_clock_that_jumps_loses_no_edit_no_upload_and_no_job(folder, tmp_path, small_video):
    shutil.copyfile(small_video, folder / "job.mp4")
    clock = JumpingClock(tmp_path / "clock", ROOT)
    film = small_video.read_bytes()
    jumps = (0.0, 3600.0, -3600.0, 1e9, -1e9, 4e9, 0.0)
    with StudioProcess(folder, variables=clock.variables) as studio:
        begun = {"name": "film.mp4", "size": len(film)}
        upload = json.loads(studio.ask("POST", "/api/uploads", begun)[1])["upload"]
        for number, jump in enumerate(jumps):
            clock.jump(jump)
            status, reply = correct(studio, number)
            assert (status, reply["revision"], reply["id"]) == (200, number + 1, f"c{number}")
            assert studio.status("GET", f"{PLACE}/pictures/4.0.jpg") == 200
            piece = film[100 * number : 100 * number + 100]
            headers = {"Upload_Offset": str(100 * number)}
            reply, data = studio.ask("PATCH", f"/api/uploads/{upload}", piece, **headers)
            assert reply.status == 200, data
            for path in ("/api/jobs", "/api/live", "/api/search?q=slice", "/api/library"):
                assert studio.status("GET", path) == 200
        clock.jump(-1e9)
        body = {"path": "job.mp4", "options": {"texts": ["Slice the lemons"]}}
        reply, data = studio.ask("POST", "/api/videos", body)
        job = json.loads(data)["job"]
        clock.jump(1e9)
        assert ended_job(studio, job)["state"] == "done"
    clock.jump(-1e9)  # a machine without a battery wakes up in the past
    with StudioProcess(folder, variables=clock.variables) as studio:
        assert kept_ids(studio) == [f"c{number}" for number in range(len(jumps))]
        reply, _ = studio.ask("HEAD", f"/api/uploads/{upload}")
        assert reply.headers["Upload-Offset"] == str(100 * len(jumps))
        times = [one["when"] for one in studio.read(f"{PLACE}/history")["corrections"]]
        assert len(times) == len(jumps)


def test_a_studio_that_cannot_take_its_port_says_so(folder, stepline):
    other = library(folder.parent / "other", folder / "v0.mp4")
    with serving(folder) as first:
        done = stepline("studio", other, "--port", first.port)
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert str(first.port) in done.stderr
