"""The annotation page as an annotator uses it, and what its server refuses."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from http_client import ask, status_of

from stepline.records import Span
from stepline.review import AnnotationClip, AnnotationQueue, AnswerLog, write_clips
from stepline.review.server import serve_annotation_page


@pytest.fixture
def server(tmp_path, small_video):
    def one(id, start, **more):
        span, text = Span(start, start + 1.0), f"<b>{id}</b>"
        return AnnotationClip(id=id, video=str(small_video), span=span, text=text, **more)

    answers = AnswerLog(tmp_path / "answers.jsonl")
    qualifying = {"qualifying": [one("q", 0.0, shown=True)], "right": 1}
    queue = AnnotationQueue([one("a", 0.5)], answers, **qualifying, annotators=1)
    running = serve_annotation_page(queue, tmp_path / "clips")
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
    for range in ("bytes=-0", f"bytes={'9' * 5000}-"):
        assert status_of(server, "GET", "/clip/1.mp4", Range=range) == 416
    ignored = ("lines=0-5", "bytes=5-2", "bytes=-", "bytes=0-1,4-7", "bytes=²-³".encode())
    for range in (*ignored, "bytes=0-" + "x" * 5000):
        reply, data = ask(server, "GET", "/clip/1.mp4", Range=range)
        assert (reply.status, data) == (200, whole), range


@pytest.mark.parametrize(
    "name", ["7", "-1", "²", "٣", "1_0", "../page.html", "9" * 5000, "", "1.mp4/../1"]
)
def test_an_invalid_clip_is_refused_before_any_work(server, monkeypatch, name):
    monkeypatch.setattr("stepline.media.cut_clip", lambda *_: pytest.fail("cut"))
    assert status_of(server, "GET", f"/clip/{quote(name)}.mp4") == 400


def connected(server, data=b""):
    """A connection of one's own, with what was sent on it."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=120)
    connection.sendall(data)
    return connection


def received(connection):
    """All that comes until the server ends the connection."""
    parts = []
    with connection:
        try:
            while part := connection.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            pass
    return b"".join(parts)


WELCOME = b"Host: localhost:1\r\nX-Stepline: annotate\r\n"


GET = b"GET / HTTP/1.1\r\n"
PARTS = {
    "nothing": b"",
    "half a line": b"GET /pa",
    "half a header": GET + b"Host: localhost:1\r\nX-A: b",
    "half a body": b"POST /begin HTTP/1.1\r\nContent-Length: 9\r\n" + WELCOME + b"\r\n{",
    "a body without end": GET + b"Content-Length: 1000000000000\r\n" + WELCOME + b"\r\nxxxx",
    "chunks without end": GET + b"Transfer-Encoding: chunked\r\n" + WELCOME + b"\r\n5\r\nxxxxx\r\n",
}


@pytest.mark.parametrize("begun", PARTS.values(), ids=PARTS)
def test_a_request_that_never_comes_whole_is_ended(server, monkeypatch, begun):
    monkeypatch.setattr("stepline.pages.web.connections.MAX_READING_SECONDS", 0.8)
    slow = [connected(server, begun) for _ in range(3)]
    assert status_of(server, "GET", "/") == 200
    for connection in slow:
        received(connection)  # returns, for the server ends it


def test_a_second_request_on_a_connection_has_its_own_time(server, monkeypatch):
    monkeypatch.setattr("stepline.pages.web.connections.MAX_READING_SECONDS", 0.8)
    whole = b"GET /page.css HTTP/1.1\r\n" + WELCOME + b"\r\n"
    assert received(connected(server, whole + whole + b"GET /ha")).count(b"200 OK") == 2


def test_idle_connections_keep_no_one_out(server, monkeypatch):
    monkeypatch.setattr("stepline.pages.web.connections.MAX_CONNECTIONS", 5)
    idle = [connected(server) for _ in range(40)]
    assert status_of(server, "GET", "/") == 200
    # ended for those that came after them
    assert [received(connection) for connection in idle[:35]] == [b""] * 35
    for connection in idle[35:]:
        connection.close()


def test_many_simultaneous_requests_are_answered_next_to_idle_connections(server, monkeypatch):
    monkeypatch.setattr("stepline.pages.web.connections.MAX_CONNECTIONS", 12)
    idle = [connected(server) for _ in range(30)]
    with ThreadPoolExecutor(4) as threads:
        replies = list(
            threads.map(lambda _: status_of(server, "GET", "/next?annotator=ann"), range(120))
        )
    assert replies == [200] * 120
    for connection in idle:
        connection.close()


def test_a_body_too_long_is_refused_unread(server):
    for length in (b"Content-Length: 1000000000000", b"Transfer-Encoding: chunked"):
        connection = connected(
            server, b"POST /begin HTTP/1.1\r\n" + length + b"\r\n" + WELCOME + b"\r\n"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 400")
        connection.close()


def test_other_names_and_other_sites_are_refused(server):
    assert status_of(server, "GET", "/", Host="evil.example:80") == 403
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    for kind, status in (("document", 200), ("iframe", 403)):  # somebody followed a link, or not
        assert status_of(server, "GET", "/", **link, Sec_Fetch_Dest=kind) == status
    # a video element on a page of another site, or of another port
    for site in ("cross-site", "same-site"):
        element = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": "no-cors"}
        assert status_of(server, "GET", "/clip/1.mp4", **element) == 403
    own = f"http://127.0.0.1:{server.port}"
    others = dict.fromkeys(("http://evil.example", "null", f"{own}0"), 403)
    for origin, status in {own: 200, **others}.items():
        assert status_of(server, "GET", "/next?annotator=ann", Origin=origin) == status
    assert "frame-ancestors 'none'" in ask(server, "GET", "/")[0].headers["Content-Security-Policy"]
    told = json.dumps({"annotator": "ann", "clip": "q"})
    for path, body, headers, status in (
        ("/begin", told, {"X_Stepline": "annotate", "Origin": "http://evil.example"}, 403),
        ("/begin", told, {}, 400),  # a form of another site cannot send the header
        ("/begin", told, {"X_Stepline": "annotate"}, 200),
        ("/begin", "x" * 5000, {"X_Stepline": "annotate"}, 400),
        ("/answer", "{}", {"X_Stepline": "annotate"}, 400),
        *((path, "[" * 4000, {"X_Stepline": "annotate"}, 400) for path in ("/answer", "/begin")),
    ):
        assert status_of(server, "POST", path, body, **headers) == status, (path, body[:9])
    for length in ("²".encode(), b"9" * 5000, b"-1"):
        headers = {"X_Stepline": "annotate", "Content_Length": length}
        assert status_of(server, "POST", "/begin", None, **headers) == 400
    for name in ("Zo%C3%AB%20O%27Brien,%20Jr.", "%E0%A4%A8%E0%A5%80%E0%A4%A4%E0%A4%BE"):
        assert status_of(server, "GET", f"/next?annotator={name}") == 200
    reply, data = ask(server, "GET", "/next?annotator=%3Cscript%3E")
    assert (reply.status, b"script" in data) == (400, False)


def test_an_answer_that_comes_too_early_is_refused(server):
    told = {"clip": "q", "annotator": "ann", "shown": True, "confidence": "very"}
    reply, data = ask(server, "POST", "/answer", json.dumps(told), X_Stepline="annotate")
    assert (reply.status, "watched to its end" in json.loads(data)["error"]) == (409, True)


@pytest.mark.browser
def test_an_annotator_watches_answers_and_goes_on(server, browser, tmp_path):
    page = browser.open(f"http://127.0.0.1:{server.port}/")
    # a clip begins when this test says so
    page.run(
        "{ const clip = $('#clip'), { play } = clip; clip.play = async () => { "
        "await new Promise((go) => { window.begin = go; }); await play.call(clip); }; }"
    )
    page.run("$('#name').value = 'ann'")
    page.click("#who button")
    assert "Keys" in page.run("$('#how').textContent")
    for name, turn in (("q", 0), ("q", 1), ("a", 2)):
        page.wait_until(f"$('#text').textContent === '<b>{name}</b>'")
        assert page.unreadable() == []
        assert page.run("$('#questions').disabled")
        page.wait_until("window.begin")
        page.run("begin(), window.begin = null")
        page.wait_until("!$('#questions').disabled")
        if turn == 0:
            page.click("input[value=no]")
            page.click("input[value=very]")
            page.screenshot(tmp_path / "page.png")
            page.click("#questions button")
            page.wait_until("!$('#undo').hidden")
            # a wrong first answer
            assert "Too few" in page.run("$('#end').textContent")
            page.click("#undo")
            page.wait_until("$('#end').hidden")
        else:
            for key in ("y", "2", "Enter"):
                page.run(
                    f"document.body.dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', bubbles: true}}))"
                )
    page.wait_until("!$('#end').hidden")
    assert "That was all" in page.run("$('#end').textContent")
    assert not page.complaints()
    assert [(answer.item, answer.shown, answer.confidence) for answer in server.answers] == [
        ("q", True, "somewhat"),
        ("a", True, "somewhat"),
    ]


def test_the_command_needs_the_videos_and_ctrl_c_keeps_the_answers(tmp_path, small_video):
    clip = AnnotationClip(id="a", video="film.mp4", span=Span(0.0, 1.0), text="a")
    write_clips([clip], tmp_path / "clips.json")
    command = [sys.executable, "-m", "stepline", "annotate", "vnd", "clips.json", "--out", "vnd"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("stepline: film.mp4: no such file")
    assert refused.stderr.endswith(
        "run this in the folder of the videos, or of their list, from which paths count\n"
    )
    shutil.copyfile(small_video, tmp_path / "film.mp4")
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        address = running.stderr.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        # it serves, so that Ctrl-C is its own
        with urllib.request.urlopen(address, timeout=120) as page:
            assert page.status == 200
            page.read()  # to its end: a request still in work adds a line of the server's
        running.send_signal(signal.SIGINT)
        lines = running.communicate(timeout=120)[1].splitlines()
    assert running.returncode == 0
    # On a busy machine a warning of the server may come before them, never between them.
    assert lines[-2:] == [
        "stopped; every answer is kept",
        "no clip has 7 answers that agree yet; run this again to go on",
    ]
