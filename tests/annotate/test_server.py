"""The annotation page as an annotator uses it, and what its server refuses."""

import json
import signal
import subprocess
import sys
import threading
import urllib.request

import pytest
from browser import CHROMIUM, Browser
from http_client import ask

from stepline.annotate import AnnotationClip, AnnotationQueue, Answers, write_clips
from stepline.annotate.server import serve
from stepline.records import Span


@pytest.fixture
def server(tmp_path, small_video):
    def one(name, start, **more):
        return AnnotationClip(
            id=name, video=str(small_video), span=Span(start, start + 1.0), text=f"<b>{name}</b>", **more
        )

    answers = Answers(tmp_path / "answers.jsonl")
    queue = AnnotationQueue([one("a", 0.5)], answers, qualifying=[one("q", 0.0, shown=True)], right=1, asked=1)
    running = serve(queue, tmp_path / "clips")
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    running.answers = answers
    yield running
    running.stop()
    thread.join()


def test_clips_are_given_whole_and_in_ranges(server):
    reply, whole = ask(server, "GET", "/clip/1.mp4")
    assert (reply.status, reply.headers["Content-Type"], whole[4:8]) == (200, "video/mp4", b"ftyp")
    reply, part = ask(server, "GET", "/clip/1.mp4", Range="bytes=4-7")
    assert (reply.status, part) == (206, b"ftyp")
    assert reply.headers["Content-Range"] == f"bytes 4-7/{len(whole)}"
    assert ask(server, "GET", "/clip/1.mp4", Range="bytes=-3")[1] == whole[-3:]
    for range in ("bytes=99999999-", f"bytes={len(whole)}-{len(whole)}"):
        reply, _ = ask(server, "GET", "/clip/1.mp4", Range=range)
        assert (reply.status, reply.headers["Content-Range"]) == (416, f"bytes */{len(whole)}")
    assert ask(server, "GET", "/clip/7.mp4")[0].status == 400
    assert ask(server, "GET", "/clip/-1.mp4")[0].status == 400
    assert ask(server, "GET", "/clip/../page.html")[0].status == 400


def test_other_names_and_other_sites_are_refused(server):
    assert ask(server, "GET", "/", Host="evil.example:80")[0].status == 403
    told = json.dumps({"annotator": "ann", "clip": "q"})
    assert ask(server, "POST", "/begin", told)[0].status == 400  # a form of another site cannot send the header
    assert ask(server, "POST", "/begin", told, X_Stepline="annotate")[0].status == 200
    assert ask(server, "POST", "/begin", "x" * 5000, X_Stepline="annotate")[0].status == 400
    assert ask(server, "POST", "/answer", "{}", X_Stepline="annotate")[0].status == 400
    assert ask(server, "POST", "/answer", "[" * 4000, X_Stepline="annotate")[0].status == 400
    assert ask(server, "POST", "/begin", "[" * 4000, X_Stepline="annotate")[0].status == 400
    for length in ("²".encode(), b"9" * 5000, b"-1"):
        assert ask(server, "POST", "/begin", None, X_Stepline="annotate", Content_Length=length)[0].status == 400
    reply, data = ask(server, "GET", "/next?annotator=%3Cscript%3E")
    assert (reply.status, b"script" in data) == (400, False)


def test_an_answer_that_comes_at_once_is_refused(server):
    told = {"clip": "q", "annotator": "ann", "shown": True, "confidence": "very"}
    reply, data = ask(server, "POST", "/answer", json.dumps(told), X_Stepline="annotate")
    assert (reply.status, "watched to its end" in json.loads(data)["error"]) == (409, True)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="no `chromium` on PATH; Debian: apt install chromium")
def test_an_annotator_watches_answers_and_goes_on(server, tmp_path):
    browser = Browser(tmp_path / "profile")
    try:
        page = browser.open(f"http://127.0.0.1:{server.port}/")
        page.run("document.getElementById('name').value = 'ann'")
        page.click("#who button")
        for name in ("q", "a"):
            page.wait_until(f"document.getElementById('text').textContent === '<b>{name}</b>'")
            assert page.run("document.getElementById('questions').disabled")
            page.wait_until("!document.getElementById('questions').disabled")
            page.click("input[value=yes]")
            page.click("input[value=somewhat]")
            if name == "q":
                page.screenshot(tmp_path / "page.png")
            page.click("#questions button")
        page.wait_until("!document.getElementById('end').hidden")
        assert "That was all" in page.run("document.getElementById('end').textContent")
        assert not page.complaints()
    finally:
        browser.close()
    assert [(answer.clip, answer.shown, answer.confidence) for answer in server.answers] == [
        ("q", True, "somewhat"),
        ("a", True, "somewhat"),
    ]


def test_ctrl_c_ends_the_server_and_keeps_the_answers(tmp_path, small_video):
    write_clips(
        [AnnotationClip(id="a", video=str(small_video), span=Span(0.0, 1.0), text="a")], tmp_path / "clips.json"
    )
    command = [sys.executable, "-m", "stepline", "annotate", "vnd", "clips.json", "--out", "vnd"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        address = running.stderr.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address, timeout=30) as page:  # it serves, so that Ctrl-C is its own
            assert page.status == 200
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=30)[1].splitlines()
    assert (running.returncode, said[0]) == (0, "stopped; every answer is kept")
