"""Servers that Stepline asks, and that answer to harm it: whatever the status, an answer ends
within limits of bytes, memory and time.

Each behaviour is tried against every user of the one client: a language model, a webhook, a link.
"""

import contextlib
import functools
import gzip
import socket
import threading
import time
import tracemalloc
import zlib

import pytest
from web_server import serve

from stepline.errors import MediaError, SettingsError, WriterError
from stepline.llm.servers import OpenAiServer, RequestError
from stepline.llm.settings import ChatSettings
from stepline.media.http import MAX_WHOLE_BYTES, LinkLimits, TransferLimits, open_url
from stepline.media.links import fetch_link, find_links
from stepline.media.settings import LinkSettings
from stepline.studio.events import Webhook, open_webhook
from stepline.studio.store import Studio

MIB = 2**20
MAX_GROWTH_BYTES = 100 * MIB  # of memory, by any answer
OK = b"HTTP/1.1 200 OK\r\n"
# Statuses of an answer, an error and a fault that may pass.
STATUSES = (b"200 OK", b"400 Bad Request", b"404 Not Found", b"429 Busy", b"500 Fault")


@functools.cache
def bomb():
    """Return the gzip of a page of 256 MiB."""
    packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    parts = [packer.compress(b"<html>")]
    for _ in range(256):
        parts.append(packer.compress(b" " * MIB))
    return b"".join([*parts, packer.flush()])


def endless(head, piece):
    def answer():
        yield head
        while True:
            yield piece

    return answer


def packed(coding, body):
    def answer(status):
        data = body()
        yield b"HTTP/1.1 " + status + b"\r\n"
        yield f"Content-Encoding: {coding}\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        yield data

    return answer


def lie(head, piece):
    """What comes after the line of the status: a head, and a piece again and again."""
    return lambda status: endless(b"HTTP/1.1 " + status + b"\r\n" + head, piece)()


CHUNKS, MUCH = b"Transfer-Encoding: chunked\r\n\r\n", b"x" * 65536
# name: what comes after the request, from its status; each is more than any honest server sends.
LIES = {
    "a body without end": lie(b"\r\n<html>", MUCH),
    "chunks without end": lie(CHUNKS + b"6\r\n<html>\r\n", b"10000\r\n" + MUCH + b"\r\n"),
    "a chunk's length without end": lie(CHUNKS + b"1;", MUCH),
    "trailers without end": lie(CHUNKS + b"0\r\n", b"X: " + b"x" * 60000 + b"\r\n"),
    "a gzip bomb": packed("gzip", bomb),
    "a bomb in a bomb": packed("gzip, gzip", lambda: gzip.compress(bomb())),
    "a status line without end": lambda _: endless(b"HTTP/1.1 200 ", MUCH)(),
    "headers without end": lie(b"", b"X: " + b"x" * 1000 + b"\r\n"),
    "a header without end": lie(b"X: ", MUCH),
    "interim answers without end": lambda _: endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 999)(),
}


class LyingServer:
    """Sends the same bytes to whoever connects, however many there are, until nobody reads."""

    def __init__(self, answer):
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.connections = 0
        self.requests = []

    def __enter__(self):
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._socket.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._socket.accept()
                self.connections += 1
                threading.Thread(target=self._send, args=(line,), daemon=True).start()

    def _send(self, line):
        with line, contextlib.suppress(OSError):
            self.requests.append(line.recv(65536))
            for piece in self._answer():
                line.sendall(piece)


@contextlib.contextmanager
def little_memory():
    """Fail where Python's objects of this process grow by more than `MAX_GROWTH_BYTES`."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_GROWTH_BYTES, peak


@pytest.mark.parametrize("status", STATUSES, ids=lambda status: status.decode().split()[0])
@pytest.mark.parametrize("lie", LIES)
def test_a_language_model_that_lies_ends_in_one_fault(lie, status):
    with LyingServer(lambda: LIES[lie](status)) as server, little_memory():
        model = OpenAiServer(ChatSettings(base_url=f"{server.url}/v1", timeout=300.0))
        with pytest.raises((RequestError, WriterError)) as caught:
            model.ask("Which step?", seed=1, until=time.monotonic() + 300.0)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert "in time" not in str(caught.value)  # a limit of bytes ends it, not the clock


@pytest.mark.parametrize("lie", LIES)
def test_a_link_that_lies_ends_in_one_line(lie, tmp_path):
    settings = LinkSettings(private=True, pause=0.001, attempts=2, largest=8)

    def page(status):
        pieces = LIES[lie](status)
        yield next(pieces).replace(b"\r\n", b"\r\nContent-Type: text/html\r\n", 1)
        yield from pieces

    lying = LyingServer(lambda: page(b"200 OK"))
    with lying as server, little_memory(), pytest.raises(MediaError) as caught:
        for link in find_links(f"{server.url}/page", tmp_path, settings):
            fetch_link(link, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_page_is_not_read_whole_beyond_its_limit():
    """However much a video may have."""
    limits = LinkLimits(LinkSettings(private=True))
    endless_page = LyingServer(endless(OK + b"\r\n", b"x" * 65536))
    refused = pytest.raises(MediaError, match="more than 64 MiB for one page")
    with endless_page as server, open_url(server.url, limits) as answer, refused:
        answer.read()
    assert MAX_WHOLE_BYTES == 64 * MIB


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
def test_a_compressed_answer_is_refused_and_none_is_asked_for(coding):
    head = f"Content-Encoding: {coding}\r\nContent-Length: 4\r\n\r\n".encode()
    limits = LinkLimits(LinkSettings(private=True))
    with LyingServer(lambda: iter([OK + head, b"junk"])) as server:
        with pytest.raises(MediaError, match=f"compression '{coding}' is not supported"):
            open_url(server.url, limits)
        assert b"Accept-Encoding: identity" in server.requests[0]


def test_a_server_that_drips_headers_is_left_in_time():
    def dripping():
        yield OK
        while True:
            time.sleep(0.02)
            yield b"X"

    limits = TransferLimits(max_bytes=1000, seconds=0.5, silence=30.0, private=True)
    with LyingServer(dripping) as server, pytest.raises(MediaError, match="takes too long"):
        open_url(server.url, limits)


QUICK = LinkSettings(private=True, seconds=5.0)


@pytest.fixture
def outbox(tmp_path):
    (tmp_path / "library").mkdir()
    studio = Studio(tmp_path / "library")
    studio.events.on_event = lambda: None
    studio.events.store_video_event("v", 1)
    yield studio.events
    studio.close()


def told(outbox, url):
    """Try once to send the event that waits, and return the fault."""
    webhook = Webhook(url, b"k" * 16, QUICK)
    return webhook._send_or_give_up(outbox, outbox.read_oldest())


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_a_receipt_of_a_webhook(outbox, code):
    with serve() as elsewhere, serve() as server:
        elsewhere.pages["/"] = b"thanks"
        place = f"Location: {elsewhere.url}/\r\nContent-Length: 0\r\n\r\n"
        head = f"HTTP/1.1 {code} Elsewhere\r\n{place}".encode()
        with LyingServer(lambda: iter([head])) as hook:
            fault = told(outbox, hook.url)
        assert elsewhere.asked == []
        assert server.asked == []
    assert "leads elsewhere" in fault
    assert outbox.read_oldest().refusals == 1


@pytest.mark.parametrize("lie", LIES)
def test_a_webhook_that_lies_holds_nothing_up(outbox, lie):
    with LyingServer(lambda: LIES[lie](b"500 Fault")) as hook, little_memory():
        begun = time.monotonic()
        fault = told(outbox, hook.url)
        assert time.monotonic() < begun + 30.0
    assert fault
    assert len(fault) <= 200
    assert outbox.read_oldest() is not None


@pytest.mark.parametrize("url", ["http://[bad/", "http://a:b/", "http://a:99999/"])
def test_a_webhook_at_no_address_is_refused_at_the_start(url, tmp_path):
    with pytest.raises(SettingsError, match="correct the address"):
        open_webhook(url, tmp_path / "key", QUICK)
