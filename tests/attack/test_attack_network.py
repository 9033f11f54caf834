"""What a stranger on the network sends to a local server, and what becomes of it.

Each request of two meanings is sent with the real token, so that it is refused for what it is.
"""

import contextlib
import json
import logging
import os
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from stepline.pages.web.connections import LimitedProtocol, check_framing

sys.path.insert(0, str(Path(__file__).parents[1] / "studio"))

from route_table import web_server_of
from studio_server import library, serving, until

from stepline.cli.studio import _write_login_page
from stepline.studio.access import Password

TIMEOUT_SECONDS = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory, small_video):
    folder = tmp_path_factory.mktemp("network")
    with serving(library(folder / "library", small_video)) as running:
        yield running


def send(server, data, *, host="127.0.0.1", tls=None):
    """Return all that comes back for bytes that are sent as they are."""
    line = socket.create_connection((host, server.port), timeout=TIMEOUT_SECONDS)
    if tls is not None:
        line = tls.wrap_socket(line)
    parts = []
    with line, contextlib.suppress(ConnectionError):
        line.sendall(data)
        while part := line.recv(65536):
            parts.append(part)
    return b"".join(parts)


def statuses(reply):
    """Return the status of each reply that came over a connection."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", reply)]


def token(server):
    return f"Authorization: Bearer {server.access.token}\r\n".encode()


def get(server):
    """A request that is answered."""
    return b"GET /api/library HTTP/1.1\r\nHost: localhost:1\r\n" + token(server) + b"\r\n"


def post(server):
    """The head of a request, without its length."""
    head = b"POST /api/share HTTP/1.1\r\nHost: localhost:1\r\nX-Stepline: studio\r\n"
    return head + token(server)


# Headers that frame a body of 4 bytes in two ways, or in one that servers read differently.
FRAMINGS = {
    "a length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
    "chunks and a length": b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    "chunks alone": b"Transfer-Encoding: chunked\r\n",
    "chunks in capitals": b"Content-Length: 4\r\nTRANSFER-ENCODING: CHUNKED\r\n",
    "identity": b"Content-Length: 4\r\nTransfer-Encoding: identity\r\n",
    "a coding that is none": b"Content-Length: 4\r\nTransfer-Encoding: xchunked\r\n",
    "two codings": b"Content-Length: 4\r\nTransfer-Encoding: gzip, chunked\r\n",
    "two lines of codings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
    "a coding with a tab": b"Content-Length: 4\r\nTransfer-Encoding:\tchunked\r\n",
    "a coding after a blank": b"Content-Length: 4\r\nTransfer-Encoding : chunked\r\n",
    "a coding after a vertical tab": b"Content-Length: 4\r\nTransfer-Encoding: \x0bchunked\r\n",
    "a coding with an underscore": b"Content-Length: 4\r\nTransfer_Encoding: chunked\r\n",
    "a folded coding": b"Content-Length: 4\r\nTransfer-Encoding:\r\n chunked\r\n",
    "a coding in a folded line": b"Content-Length: 4\r\nX: a\r\n Transfer-Encoding: chunked\r\n",
    "a coding after a bare CR": b"Content-Length: 4\r\nX: a\rTransfer-Encoding: chunked\r\n",
    "a coding after a bare LF": b"Content-Length: 4\r\nX: a\nTransfer-Encoding: chunked\r\n",
    "two equal lengths": b"Content-Length: 4\r\nContent-Length: 4\r\n",
    "two lengths": b"Content-Length: 4\r\nContent-Length: 40\r\n",
    "two lengths, one with an underscore": b"Content-Length: 4\r\nContent_Length: 40\r\n",
    "equal lengths in a line": b"Content-Length: 4, 4\r\n",
    "lengths in a line": b"Content-Length: 4, 40\r\n",
    "a length with a sign": b"Content-Length: +4\r\n",
    "a negative length": b"Content-Length: -4\r\n",
    "a length in hexadecimal": b"Content-Length: 0x4\r\n",
    "a length with an underscore in it": b"Content-Length: 0_4\r\n",
    "a length in other digits": b"Content-Length: \xb2\r\n",
    "a length of nothing": b"Content-Length: \r\n",
    "a length before a blank and a colon": b"Content-Length : 4\r\n",
    "chunks within another coding": b"Transfer-Encoding: chunked, gzip\r\n",
}
# Of every kind of request: a page, the API, what needs no token, a path that is not there.
REQUESTS = (
    *(b"POST /login", b"POST /api/videos", b"PATCH /api/uploads/x", b"GET /"),
    *(b"GET /api/videos", b"HEAD /static/login.js", b"OPTIONS /nothing"),
)


@pytest.mark.parametrize("name", FRAMINGS)
def test_a_request_with_two_framings_is_refused_on_every_path_and_as_a_second_one(server, name):
    """The one before the second is answered, on the same connection and with the same token."""
    for request in REQUESTS:
        head = request + b" HTTP/1.1\r\nHost: localhost:1\r\nX-Stepline: studio\r\n" + token(server)
        reply = send(server, head + FRAMINGS[name] + b"\r\n0\r\n\r\n" + get(server))
        assert statuses(reply) == [400], (request, reply[:400])
    first = get(server)
    reply = send(server, first + post(server) + FRAMINGS[name] + b"\r\n0\r\n\r\n" + first)
    assert statuses(reply) == [200, 400], reply[:600]


def test_requests_with_one_framing_are_answered(server):
    """So that the refusals above are none of everything."""
    body = json.dumps({"ids": ["none"]}).encode()
    length = f"Content-Length: {len(body)}\r\n\r\n".encode()
    last = get(server).replace(b"Host", b"Connection: close\r\nHost")
    answers = statuses(send(server, get(server) + post(server) + length + body + last))
    assert answers[0] == answers[2] == 200
    assert answers[1] in (404, 409)


def test_a_get_with_a_body_is_refused(server):
    head = get(server).removesuffix(b"\r\n")
    for length, status in ((4, 400), (0, 200)):
        framing = f"Content-Length: {length}\r\nConnection: close\r\n\r\n".encode()
        assert statuses(send(server, head + framing + b"{}{}"[:length])) == [status]


def test_login_takes_no_endless_body(tmp_path, small_video):
    """The length says 4 bytes, the chunks never end."""
    made = library(tmp_path / "library", small_video)
    with serving(made, password=Password("open sesame")) as running:
        head = b"POST /login HTTP/1.1\r\nHost: localhost:1\r\nX-Stepline: studio\r\n"
        framing = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        line = socket.create_connection(("127.0.0.1", running.port), timeout=TIMEOUT_SECONDS)
        taken = 0
        with line, contextlib.suppress(ConnectionError):
            line.sendall(head + framing)
            piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
            while taken < 64 * 2**20:
                line.sendall(piece)
                taken += len(piece)
        assert taken < 32 * 2**20
        large = head + b"Connection: close\r\nContent-Length: 4097\r\n\r\n" + b"x" * 4097
        assert statuses(send(running, large)) == [400]


def test_a_request_with_one_clear_length_passes():
    for lengths in (
        b"",
        b"\r\nContent-Length: 12",
        b"\r\nX-Content-Length: 4\r\nContent-Length: 0",
    ):
        check_framing(b"GET / HTTP/1.1\r\nHost: a" + lengths)


@pytest.fixture
def encrypted(tmp_path, small_video, certificate):
    folder = library(tmp_path / "library", small_video)
    with serving(folder, password=Password("open sesame"), certificate=certificate) as running:
        yield running


def answers_over_tls(server, certificate):
    trust = ssl.create_default_context(cafile=certificate.certfile)
    trust.check_hostname = False
    head = get(server).replace(b"Host: localhost:1", b"Host: 127.0.0.1\r\nConnection: close")
    return statuses(send(server, head, tls=trust))


def is_closed(line):
    """Return whether the other side has ended a connection, without waiting for it."""
    readable, _, _ = select.select([line], [], [], 0)
    if not readable:
        return False
    try:
        return line.recv(4096) == b""
    except ConnectionError:
        return True


def test_silent_handshakes_are_counted(encrypted, certificate, monkeypatch):
    limited = web_server_of(encrypted).config.http
    assert issubclass(limited, LimitedProtocol)
    monkeypatch.setattr(limited, "max_connections", 8)
    address = ("127.0.0.1", encrypted.port)
    silent = [socket.create_connection(address, timeout=TIMEOUT_SECONDS) for _ in range(60)]
    assert answers_over_tls(encrypted, certificate) == [200]
    until(lambda: sum(map(is_closed, silent)) >= 52)
    for line in silent:
        line.close()


@pytest.mark.parametrize(
    "sent", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 99]
)
def test_a_handshake_that_never_ends_is_ended(encrypted, certificate, monkeypatch, caplog, sent):
    address = ("127.0.0.1", encrypted.port)
    with caplog.at_level(logging.INFO):
        with monkeypatch.context() as patch:
            patch.setattr("stepline.pages.web.connections.MAX_READING_SECONDS", 0.8)
            lines = [socket.create_connection(address, timeout=TIMEOUT_SECONDS) for _ in range(20)]
            for line in lines:
                with contextlib.suppress(ConnectionError):
                    line.sendall(sent)
            until(lambda: all(map(is_closed, lines)))
        assert answers_over_tls(encrypted, certificate) == [200]
    assert len(caplog.text) < 2000, caplog.text[:2000]
    connections = web_server_of(encrypted).server_state.connections
    until(lambda: not [other for other in connections if other.cycle is None])
    for line in lines:
        line.close()


def test_a_burst_of_connections_neither_fills_the_log_nor_ends_the_server(
    tmp_path, small_video, certificate
):
    """A process with few descriptors, as most have."""
    folder = library(tmp_path / "library", small_video)
    (tmp_path / "password").write_text("open sesame\n")
    script = (
        "import resource, sys\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (700, 700))\n"
        "from stepline.cli import main\n"
        "main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", script, "studio", str(folder), "--port", "0", "-v"]
    command += ["--password-file", str(tmp_path / "password")]
    command += ["--certfile", str(certificate.certfile), "--keyfile", str(certificate.keyfile)]
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stderr=file, stdout=subprocess.DEVNULL)
    try:
        until(lambda: "open https://" in log.read_text() and "serving at" in log.read_text())
        port = int(re.search(r"serving at https://127.0.0.1:(\d+)/", log.read_text())[1])
        lines = []
        for _ in range(900):
            line = socket.socket()
            line.setblocking(False)
            line.connect_ex(("127.0.0.1", port))
            lines.append(line)
        trust = ssl.create_default_context(cafile=certificate.certfile)
        trust.check_hostname = False
        line = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        with trust.wrap_socket(line) as spoken:
            spoken.sendall(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert spoken.recv(4096).startswith(b"HTTP/1.1 200")
        for line in lines:
            line.close()
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert len(log.read_text()) < 20_000, log.read_text()[:4000]


@pytest.mark.browser
def test_a_file_that_leads_to_the_studio_lets_the_browser_in(server, browser, tmp_path):
    """As --open gives one to the browser: the strict cookie survives the way from a file."""
    page = _write_login_page(server.link, tmp_path)
    shown = browser.open(page.as_uri())
    shown.wait_until("document.body && document.body.innerText.includes('Lemonade')")
    assert "token" not in shown.run("location.href")


def test_the_token_is_neither_in_the_verbose_log_nor_in_a_process_list(
    tmp_path, small_video, monkeypatch
):
    folder = library(tmp_path / "library", small_video)
    shown = tmp_path / "shown"
    programs = tmp_path / "bin"
    programs.mkdir()
    # A browser that keeps its arguments, as a process list shows them.
    for name in ("xdg-open", "browser"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "$@" >> {shown}\n')
        program.chmod(0o755)
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    environment["BROWSER"] = str(programs / "browser")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "stepline", "studio", str(folder), "--port", "0", "-v"]
    with log.open("w") as file:
        output = {"stderr": file, "stdout": subprocess.DEVNULL, "env": environment}
        process = subprocess.Popen([*command, "--open"], **output)
    try:
        until(lambda: "serving at" in log.read_text() and shown.exists() and shown.read_text())
        link = re.search(r"open (http://127\.0\.0\.1:(\d+)/\?token=([\w-]+))", log.read_text())
        address = ("127.0.0.1", int(link[2]))
        token = link[3]
        for path in (f"/?token={token}", "/api/library"):
            asked = f"GET {path} HTTP/1.1\r\nHost: localhost:1\r\nConnection: close\r\n\r\n"
            with socket.create_connection(address, timeout=TIMEOUT_SECONDS) as line:
                line.sendall(asked.encode())
                assert line.recv(4096)
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode()
        # what the browser is given leads there all the same
        opened = Path(shown.read_text().split()[-1].removeprefix("file://"))
        page = opened.read_text()
        mode = opened.stat().st_mode & 0o077
        process.send_signal(signal.SIGINT)
        process.wait(TIMEOUT_SECONDS)
    finally:
        process.kill()
        process.wait()
    assert token not in arguments
    assert token not in shown.read_text()
    assert token in page
    assert mode == 0
    assert not opened.exists()
    # once: the line that says what to open
    assert log.read_text().count(token) == 1
