"""Jobs and uploads of the studio: each video in a process of its own, through cancels, restarts and
kills."""

import hashlib
import hmac
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import kills as killing
import pytest
from option_words import option_words
from studio_process import StudioProcess
from studio_server import ended_job, library, serving, until

from stepline.errors import SettingsError
from stepline.library.corrected_library import video_id
from stepline.library.corrections import ChangeEdit, Correction
from stepline.media.settings import LinkSettings
from stepline.pipeline.request import StepsSettings
from stepline.records import LinkOrigin
from stepline.settings import load_settings
from stepline.speech.settings import AsrSettings
from stepline.storage import read_record, write_record
from stepline.studio import worker
from stepline.studio.events import Webhook, open_webhook
from stepline.studio.store import Studio
from stepline.studio.uploads import PARTIAL_FOLDER

FAST = load_settings(StepsSettings, None, ["vision.backbone=none"])  # no picture is looked at
# a line to find costs less than writing steps
JOB = {"captions": "words.srt", "texts": ["Slice the lemons"]}
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path, small_video, captions_file):
    """A library without records, with a video and its captions."""
    made = tmp_path / "library"
    made.mkdir()
    shutil.copyfile(small_video, made / "small.mp4")
    shutil.copyfile(captions_file, made / "words.srt")
    return made


def job_of(server, path="small.mp4", **options):
    reply, data = server.ask("POST", "/api/videos", {"path": path, "options": JOB | options})
    assert reply.status == 200, data
    return json.loads(data)["job"]


@pytest.fixture
def sleepy(monkeypatch, tmp_path):
    """Workers that never end, with a child that never does."""
    pids = tmp_path / "pids"
    monkeypatch.setenv("PIDS", str(pids))
    monkeypatch.setattr("stepline.studio.jobs.WORKER", "fake_job_workers:sleep")

    def started(count=1):
        until(lambda: pids.exists() and len(pids.read_text().splitlines()) >= count)
        return [int(pid) for pid in pids.read_text().split()]

    return started


def wait_until_gone(*pids):
    for pid in pids:
        killing.wait_for_end(pid)


def test_a_job_makes_a_record_that_the_library_shows(folder):
    with serving(folder, settings=FAST) as server:
        job = ended_job(server, job_of(server))
        assert (job["state"], job["error"], job["done"]) == ("done", None, 1.0)
        assert job["video"] == video_id("small.json")
        assert [card["steps"] for card in server.read("/api/videos")["videos"]] == [1]
        assert server.status("GET", f"/api/videos/{job['video']}/media") == 200


def test_a_job_of_no_video_fails_in_a_line(folder):
    (folder / "bomb.mp4").write_bytes(b"PK\x03\x04" + b"\x00" * 5000)
    with serving(folder, settings=FAST) as server:
        job = ended_job(server, job_of(server, "bomb.mp4"))
        assert job["state"] == "failed"
        assert "bomb.mp4" in job["error"]
        assert "\n" not in job["error"]


def test_a_video_outside_of_the_library_is_read_again_with_other_options(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video)
    film = tmp_path / "v0.mp4"
    (folder / "v0.mp4").rename(film)
    record = read_record(folder / "v0.json")
    origin = LinkOrigin(url="https://example.org/v0.mp4", licence="CC BY")
    # of `--title Lemonade --from 2 --to 9.5`
    given = {"path": str(film), "origin": origin, "title_source": "user"}
    of = record.video.model_copy(update=given)
    lines = ("Slice the lemons", "Pour the juice")
    part = {"inputs": {"part": [2.0, 9.5]}}
    changed = record.model_copy(update={"video": of, "recipe": lines, "settings": part})
    write_record(changed, folder / "v0.json")
    id = video_id("v0.json")
    with serving(folder, settings=FAST) as server:

        def read_again(**options):
            reply, data = server.ask("POST", f"/api/videos/{id}/jobs", options)
            return reply.status, json.loads(data)

        choices = server.read("/api/choices")
        assert choices["recognisers"][0] == "whisper-tiny.en"
        hears_more = len(choices["recognisers"]) > 1
        assert (choices["languages"] == ["en"]) != hears_more
        unheard = {"path": "v0.mp4", "options": {"language": "zu"}}
        assert server.status("POST", "/api/videos", unheard) == 400
        status, reply = read_again(recogniser="/etc/passwd")
        assert status == 400
        assert "not installed here; give whisper-tiny.en" in reply["error"]
        assert read_again(writer="nobody")[0] == 400
        status, reply = read_again(language="xx")
        assert (status, "give one of ISO 639, such as en" in reply["error"]) == (400, True)

        until(lambda: server.read(f"/api/videos/{id}")["media"])  # compared with its record
        status, reply = read_again(recogniser="whisper-tiny.en")
        assert status == 200
        job = ended_job(server, reply["job"])
        assert (job["error"], job["video"]) == (None, id)
        again = read_record(folder / "v0.json")
        assert again.transcript.recogniser == "whisper-tiny.en"
        assert tuple(step.text for step in again.steps) == again.recipe == lines
        assert again.video.origin == origin
        assert (again.video.title, again.video.title_source) == ("Lemonade", "user")
        assert again.settings["inputs"]["part"] == [2.0, 9.5]
        assert server.read("/api/videos")["total"] == 1

        # with the same options too, as something else may have changed
        modified = (folder / "v0.json").stat().st_mtime_ns
        job = ended_job(server, read_again(recogniser="whisper-tiny.en")[1]["job"])
        assert job["error"] is None
        assert (folder / "v0.json").stat().st_mtime_ns > modified

        # a stranger's job names a file that is of no record
        (tmp_path / "other.mp4").write_bytes(b"other")
        stranger = server.studio.jobs.add(str(tmp_path / "other.mp4"), {"video": id})
        server.jobs.notify(stranger.id)
        assert "neither in the library" in ended_job(server, stranger.id, ("failed",))["error"]
        gone = server.studio.jobs.add(str(film), {"video": "gone"})
        server.jobs.notify(gone.id)
        assert ended_job(server, gone.id, ("failed",))["error"] == "no such video"

        # corrected steps stay
        edit = {"do": "change", "step": again.steps[0].id, "text": "Cut the lemons"}
        body = {"by": "ann", "base": 0, "edits": [edit], "id": "cut"}
        assert server.status("POST", f"/api/videos/{id}/corrections", body) == 200
        status, reply = read_again()
        assert status == 409
        assert "undo them, or delete the video here and add it again" in reply["error"]
        undo = {"by": "ann", "base": 1, "undoes": "cut"}
        assert server.status("POST", f"/api/videos/{id}/corrections", undo) == 200
        assert ended_job(server, read_again()[1]["job"])["error"] is None


def test_a_video_whose_file_was_moved_is_not_read_again(tmp_path, small_video):
    folder = library(tmp_path / "library", small_video)
    (folder / "films").mkdir()
    (folder / "v0.mp4").rename(folder / "films" / "v0.mp4")
    record = read_record(folder / "v0.json")
    of = record.video.model_copy(update={"path": "films/v0.mp4"})
    write_record(record.model_copy(update={"video": of}), folder / "v0.json")
    with serving(folder, settings=FAST, at_once=0) as server:
        reply, data = server.ask("POST", f"/api/videos/{video_id('v0.json')}/jobs", {})
        assert reply.status == 409
        assert b"moved" in data
        assert server.read("/api/jobs")["total"] == 0


def test_a_worker_that_is_killed_is_reported(folder, sleepy):
    with serving(folder) as server:
        id = job_of(server)
        os.kill(sleepy()[0], signal.SIGKILL)
        job = ended_job(server, id, ("failed",))
        assert "signal SIGKILL" in job["error"]


def test_a_job_for_which_there_is_no_room_waits_for_it(folder, sleepy, monkeypatch, caplog):
    from stepline.studio import jobs

    start, refused = jobs.WorkerProcess, [OSError("no memory"), OSError("no memory")]

    def start_later(target):
        if refused:
            raise refused.pop()
        return start(target)

    monkeypatch.setattr(jobs, "RETRY_SECONDS", 0.05)
    monkeypatch.setattr(jobs, "WorkerProcess", start_later)
    with serving(folder) as server:
        id = job_of(server)
        sleepy()
        ended_job(server, id, ("running",))
    assert "no memory" in caplog.text


def test_a_message_that_a_kill_cut_short_reports_nothing(folder, monkeypatch):
    monkeypatch.setattr("stepline.studio.jobs.WORKER", "fake_job_workers:cut_a_message_short")
    with serving(folder) as server:
        assert "signal SIGKILL" in ended_job(server, job_of(server), ("failed",))["error"]


def test_a_cancelled_job_leaves_no_process_and_can_be_tried_again(folder, sleepy):
    with serving(folder) as server:
        id, waits = job_of(server), job_of(server)
        worker, child = sleepy()
        assert server.status("POST", f"/api/jobs/{id}/cancel", "") == 200
        assert server.status("POST", f"/api/jobs/{id}/cancel", "") == 409
        sleepy(2)  # the next one runs
        wait_until_gone(worker, child)
        assert server.status("POST", f"/api/jobs/{id}/retry", "") == 200
        assert [job["id"] for job in server.read("/api/jobs")["jobs"]] == [waits, id]
        assert server.status("POST", "/api/jobs/99/retry", "") == 404
        pids = sleepy(2)
    wait_until_gone(*pids)  # the server's end is theirs


def test_a_job_that_is_removed_before_its_process_ends_stops_no_other(folder, sleepy):
    with serving(folder) as server:
        id = job_of(server)
        sleepy()
        with server.jobs.paused():
            assert server.jobs.cancel(id)
            assert server.studio.jobs.remove(id)
        job_of(server)
        sleepy(2)


def test_the_languages_are_those_that_a_recogniser_hears(monkeypatch):
    monkeypatch.setattr(worker, "installed_recognisers", lambda: ("whisper-tiny.en",))
    assert worker.heard_languages(AsrSettings()) == ("en",)
    assert "es" in worker.heard_languages(AsrSettings(model="/models/own"))
    monkeypatch.setattr(
        worker, "installed_recognisers", lambda: ("whisper-tiny.en", "whisper-base")
    )
    assert "es" in worker.heard_languages(AsrSettings())


def test_a_video_that_is_not_there_is_not_a_job(folder):
    with serving(folder, settings=FAST) as server:
        for path in ("none.mp4", "x" * 3000):
            reply, data = server.ask("POST", "/api/videos", {"path": path})
            assert reply.status == 404
            assert json.loads(data)["error"] == f"{path}: no such file; correct its path"
        assert server.read("/api/jobs")["total"] == 0


def test_a_path_outside_of_the_library_is_not_a_job(folder, tmp_path, small_video):
    shutil.copyfile(small_video, tmp_path / "outside.mp4")
    (folder / "link.mp4").symlink_to(tmp_path / "outside.mp4")
    with serving(folder, settings=FAST) as server:
        outside = ("../outside.mp4", str(tmp_path / "outside.mp4"), "link.mp4", "/etc/passwd")
        for path in (*outside, "a\x00b"):
            assert server.status("POST", "/api/videos", {"path": path}) == 409, path
        both = {"path": "small.mp4", "link": "http://a/b"}
        for body in ({}, both, {"link": "file:///etc/passwd"}, {"link": "-x"}):
            assert server.status("POST", "/api/videos", body) == 400, body
        told = {"path": "small.mp4", "options": {"captions": "../outside.srt"}}
        assert server.status("POST", "/api/videos", told) == 409


def upload(server, data, name="film.mp4", piece=20_000, offset=0, id=None):
    """Send a file in pieces and return the reply to the last."""
    if id is None:
        reply, said = server.ask("POST", "/api/uploads", {"name": name, "size": len(data)})
        assert reply.status == 201, said
        id = json.loads(said)["upload"]
    told = None
    while offset < len(data):
        sent = data[offset : offset + piece]
        reply, said = server.ask("PATCH", f"/api/uploads/{id}", sent, Upload_Offset=str(offset))
        assert reply.status == 200, said
        told = json.loads(said)
        offset = told["offset"]
    return told


def test_an_upload_in_pieces_becomes_a_job(folder, small_video, sleepy):
    data = small_video.read_bytes()
    with serving(folder) as server:
        told = upload(server, data)
        assert (folder / "videos" / "film.mp4").read_bytes() == data
        job = next(job for job in server.read("/api/jobs")["jobs"] if job["id"] == told["job"])
        assert job["source"] == str(folder / "videos" / "film.mp4")
        assert upload(server, data)["job"] != told["job"]
        assert (folder / "videos" / "film-2.mp4").read_bytes() == data
        # a name keeps all that file systems take
        names = {
            "Safe (v2) [a], 50%.mp4": "Safe (v2) [a], 50%.mp4",
            "../../<b>e\u0301\u202e.MP4": "b é.mp4",
            "\\a\nb.mov": "a b.mov",
            "x" * 250 + ".mp4": "x" * 120 + ".mp4",
            "लेमन.webm": "लेमन.webm",
            "...mp4": "video.mp4",
        }
        for name in names:
            upload(server, data, name=name)
        assert len(list((folder / "videos").iterdir())) == 2 + len(names)
        assert all((folder / "videos" / name).is_file() for name in names.values())


def test_an_upload_goes_on_where_it_broke_off(folder, small_video, sleepy):
    data = small_video.read_bytes()
    with serving(folder) as server:
        id = json.loads(
            server.ask("POST", "/api/uploads", {"name": "f.mp4", "size": len(data)})[1]
        )["upload"]
        server.ask("PATCH", f"/api/uploads/{id}", data[:1000], Upload_Offset="0")
    with serving(folder) as server:
        reply, _ = server.ask("HEAD", f"/api/uploads/{id}")
        lengths = [reply.headers[f"Upload-{name}"] for name in ("Offset", "Length")]
        assert lengths == ["1000", str(len(data))]
        for offset, piece in (("0", b"x"), ("999", b"x"), ("1001", b"x")):
            reply, _ = server.ask("PATCH", f"/api/uploads/{id}", piece, Upload_Offset=offset)
            assert reply.status == 409
        for offset in ("", "-1", "x", "²", None):
            reply, _ = server.ask(
                "PATCH", f"/api/uploads/{id}", b"x", Upload_Offset=offset and offset.encode()
            )
            assert reply.status == 400, offset
        assert server.status("PATCH", f"/api/uploads/{id}", data, Upload_Offset="1000") == 413
        told = upload(server, data, offset=1000, id=id)
        assert (folder / "videos" / "f.mp4").read_bytes() == data
        # the reply to the last piece did not arrive
        last = server.ask("PATCH", f"/api/uploads/{id}", b"", Upload_Offset=str(len(data)))[1]
        assert json.loads(last) == told
        assert len(list((folder / "videos").iterdir())) == server.read("/api/jobs")["total"] == 1


def test_a_whole_upload_that_was_not_in_its_place_is_put_there(folder, small_video, sleepy):
    data = small_video.read_bytes()
    with serving(folder) as server:
        _, said = server.ask("POST", "/api/uploads", {"name": "film.mp4", "size": len(data)})
        id = json.loads(said)["upload"]
        told = upload(server, data, id=id)
    # as a kill before the move leaves it
    (folder / "videos" / "film.mp4").replace(folder / PARTIAL_FOLDER / id)
    with serving(folder) as server:
        assert (folder / "videos" / "film.mp4").read_bytes() == data
        assert told["job"] in [job["id"] for job in server.read("/api/jobs")["jobs"]]


def test_what_is_not_an_upload_is_refused(folder, monkeypatch):
    with serving(folder) as server:
        for name in ("bomb.zip", "bomb.xml", "page.html", "film", ".mp4.exe"):
            assert server.status("POST", "/api/uploads", {"name": name, "size": 5}) == 415, name
        for size in (0, -1, 2**60, "x"):
            assert server.status("POST", "/api/uploads", {"name": "a.mp4", "size": size}) == 400, (
                size
            )
        assert server.status("POST", "/api/uploads", {"name": "a.mp4", "size": 2**40}) == 507
        assert server.status("HEAD", "/api/uploads/none") == 404
        monkeypatch.setattr("stepline.studio.uploads.MAX_OPEN_UPLOADS", 1)
        assert server.status("POST", "/api/uploads", {"name": "a.mp4", "size": 5}) == 201
        assert server.status("POST", "/api/uploads", {"name": "a.mp4", "size": 5}) == 429


@pytest.fixture
def receiver():
    """A server that keeps what is posted to it; it refuses the first."""

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.told.append((dict(self.headers), body))
            self.send_response(500 if len(self.server.told) == 1 else 200)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    server.told = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def hook_to(receiver, **more):
    url = f"http://127.0.0.1:{receiver.server_port}/told"
    return Webhook(url, b"0123456789abcdef", LinkSettings(private=True), **{"pause": 0.01} | more)


def test_a_webhook_sends_jobs_and_corrections_with_a_signature(receiver, tmp_path, small_video):
    with serving(library(tmp_path / "library", small_video), webhook=hook_to(receiver)) as server:
        place = f"/api/videos/{video_id('v0.json')}/corrections"
        server.ask("POST", place, {"by": "a", "base": 0, "edits": [{"do": "delete", "step": "b"}]})
        until(lambda: server.studio.events.read_oldest() is None)
    (refused, _), (headers, body) = receiver.told
    # by which a receiver knows what it has
    assert headers["X-Stepline-Id"] == refused["X-Stepline-Id"]
    signed = headers["X-Stepline-Time"].encode() + b"." + body
    right = hmac.new(b"0123456789abcdef", signed, hashlib.sha256).hexdigest()
    assert headers["X-Stepline-Signature"] == f"sha256={right}"
    assert json.loads(body) == {"event": "video", "id": video_id("v0.json"), "revision": 1}


def correct(studio, count):
    """Have a person correct the video so many times more."""
    id = video_id("v0.json")
    library = studio.library
    for base in range(library.revision(id), library.revision(id) + count):
        edit = ChangeEdit(do="change", step="a", text=f"Cut {base}")
        library.correct(
            id, Correction(id=f"c{base}", video=id, by="ann", when=0.0, base=base, edits=(edit,))
        )


def revisions(receiver):
    told = [json.loads(body) for _, body in list(receiver.told)]
    return [each["revision"] for each in told if each["event"] == "video"]


def test_what_was_not_sent_when_a_server_was_killed_is_sent_by_the_next(
    receiver, tmp_path, small_video
):
    folder = library(tmp_path / "library", small_video)
    killed = Studio(folder)
    deaf = Webhook("http://127.0.0.1:1/", b"k" * 16, LinkSettings(private=True))
    deaf.start(killed.events)
    correct(killed, 3)
    deaf.close(60)
    killed.close()
    with serving(folder, webhook=hook_to(receiver)) as server:
        correct(server.studio, 1)
        until(lambda: server.studio.events.read_oldest() is None)
    assert revisions(receiver) == [1, 1, 2, 3, 4]  # in their order; the first was refused once
    silent = Studio(folder)
    correct(silent, 1)
    assert silent.events.read_oldest() is None  # nobody wants it
    silent.close()


def test_an_event_that_is_refused_again_and_again_holds_the_others_up_no_longer(
    receiver, tmp_path, small_video, monkeypatch, caplog
):
    monkeypatch.setattr("stepline.studio.events.MAX_REFUSALS", 1)
    with serving(library(tmp_path / "library", small_video), webhook=hook_to(receiver)) as server:
        correct(server.studio, 2)
        until(lambda: server.studio.events.read_oldest() is None)
    assert revisions(receiver) == [1, 2]
    assert "never gets a video" in caplog.text


def test_an_event_that_no_one_answers_for_a_day_is_given_up(
    tmp_path, small_video, monkeypatch, caplog
):
    studio = Studio(library(tmp_path / "library", small_video))
    monkeypatch.setattr("stepline.studio.events.MAX_EVENT_AGE_SECONDS", -1.0)
    hook = Webhook("http://127.0.0.1:1/", b"k" * 16, LinkSettings(private=True))
    hook.start(studio.events)
    correct(studio, 1)
    until(lambda: studio.events.read_oldest() is None)
    hook.close(60)
    studio.close()
    assert "never gets a video" in caplog.text


def test_a_webhook_to_a_private_address_gets_nothing_unless_trusted(
    receiver, tmp_path, small_video, caplog
):
    studio = Studio(library(tmp_path / "library", small_video))
    hook = Webhook(
        f"http://127.0.0.1:{receiver.server_port}/", b"k" * 16, LinkSettings(), pause=0.001
    )
    hook.start(studio.events)
    correct(studio, 1)
    hook.close(60)
    assert studio.events.read_oldest() is not None
    studio.close()
    assert receiver.told == []
    assert "private address" in caplog.text


def test_a_webhook_needs_an_address_and_a_key(tmp_path):
    short = tmp_path / "key"
    short.write_text("short\n")
    assert open_webhook(None, None, LinkSettings()) is None
    wrong = [("http://a/b", secret) for secret in (None, short, tmp_path)]
    for url, secret in (("ftp://a/b", short), *wrong):
        with pytest.raises(SettingsError, match="--webhook"):
            open_webhook(url, secret, LinkSettings())


@pytest.mark.parametrize("host", ["127.0.0.1:8799", "localhost:8799", "[::1]:8799", "192.168.1.4"])
def test_a_webhook_to_a_private_address_is_refused_at_the_start_unless_trusted(host, tmp_path):
    key = tmp_path / "key"
    key.write_text("0123456789abcdef")
    url = f"http://{host}/x"
    with pytest.raises(SettingsError, match=r"private address; .* --set links\.private=true"):
        open_webhook(url, key, LinkSettings())
    assert open_webhook(url, key, LinkSettings(private=True)) is not None
    for named in ("http://hooks.example/x", "http://93.184.215.14/x"):
        assert open_webhook(named, key, LinkSettings()) is not None


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_lose_nothing_that_was_answered(
    kills, receiver, tmp_path, small_video, captions_file
):
    folder = library(tmp_path / "library", small_video)
    shutil.copyfile(small_video, folder / "small.mp4")
    shutil.copyfile(captions_file, folder / "words.srt")
    id, rng = video_id("v0.json"), random.Random(17)
    (tmp_path / "key").write_text("0123456789abcdef")
    secret = {"webhook_secret": tmp_path / "key", "set": "links.private=true"}
    hook = option_words(webhook=f"http://127.0.0.1:{receiver.server_port}/", **secret)
    film = small_video.read_bytes()
    answered, jobs, uploaded, upload_id = [], [], 0, None
    for _ in range(kills):
        server = StudioProcess(folder, *hook)
        threading.Timer(rng.uniform(0.05, 1.5), server.process.kill).start()
        try:
            while True:
                name = f"c{len(answered)}-{rng.random()}"
                edit = {"do": "change", "step": rng.choice("abc"), "text": name}
                told = {"by": "ann", "base": len(answered), "edits": [edit], "id": name}
                reply, data = server.ask("POST", f"/api/videos/{id}/corrections", told)
                if reply.status == 409:  # the one before came in, and its answer did not
                    history = server.read(f"/api/videos/{id}/history")["corrections"]
                    answered = [each["id"] for each in history]
                    continue
                assert reply.status == 200, data
                answered.append(name)
                if len(jobs) < max(1, kills // 3) and rng.random() < 0.2:
                    jobs.append(job_of(server, force=True))
                if upload_id is None:
                    begun = {"name": "up.mp4", "size": len(film)}
                    upload_id = json.loads(server.ask("POST", "/api/uploads", begun)[1])["upload"]
                elif uploaded < len(film) - 100:
                    there = int(
                        server.ask("HEAD", f"/api/uploads/{upload_id}")[0].headers["Upload-Offset"]
                    )
                    assert there >= uploaded
                    piece = film[there : min(there + 500, len(film) - 50)]
                    reply, data = server.ask(
                        "PATCH", f"/api/uploads/{upload_id}", piece, Upload_Offset=str(there)
                    )
                    assert reply.status == 200, data
                    uploaded = json.loads(data)["offset"]
        except (OSError, http.client.HTTPException):  # killed
            pass
        finally:
            server.end()
        studio = Studio(folder)  # as the kill left it
        kept = [each.id for each in studio.library.corrections(id)]
        assert kept[: len(answered)] == answered
        assert len(kept) <= len(answered) + 1
        answered = kept
        assert {job.id for job in studio.jobs.list_jobs()} >= set(jobs)
        studio.close()
    server = StudioProcess(folder, *hook)
    try:
        until(lambda: set(range(1, len(answered) + 1)) <= set(revisions(receiver)))
        for job in jobs:
            assert ended_job(server, job)["state"] == "done"
        if upload_id is not None:
            there = int(server.ask("HEAD", f"/api/uploads/{upload_id}")[0].headers["Upload-Offset"])
            assert there >= uploaded
            assert (folder / ".stepline-uploads" / upload_id).read_bytes() == film[:there]
    finally:
        server.end()


@pytest.mark.slow
def test_many_simultaneous_viewers_and_jobs_see_no_error():
    command = [sys.executable, "lab/studio.py", "--viewers", "50", "--jobs", "2", "--seconds", "20"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["errors"] == {}
    assert told["requests"] > 50


@pytest.mark.slow
def test_a_large_file_is_given_in_ranges():
    command = [sys.executable, "lab/studio.py", "--scrub", "5"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranges"] == 200
