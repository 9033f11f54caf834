"""What a hostile page, client, file or record may try against the studio, and the answer to
each."""

import http.client
import io
import json
import math
import socket
import ssl
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from http_client import ask, status_of
from starlette.datastructures import URL
from starlette.exceptions import HTTPException
from starlette.requests import Request
from studio_server import cookie_name, ended_job, library, serving, until

from stepline.errors import SettingsError
from stepline.library.corrected_library import video_id
from stepline.library.database import DATABASE_FILE
from stepline.pages.web.local_server import Certificate
from stepline.storage import read_record, write_record
from stepline.studio.access import Access, Password, client_network, read_password
from stepline.studio.keys import KeyFile
from stepline.studio.uploads import MAX_CHUNK_BYTES

SCRIPT = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
LEMONADE = video_id("v0.json")
PLACE = f"/api/videos/{LEMONADE}"
OWNED = {"by": "a", "base": 0, "edits": [{"do": "delete", "step": "a"}]}


@pytest.fixture(autouse=True, scope="module")
def cheap_hashes():
    """A try of a password takes no 50 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stepline.studio.access.SCRYPT_COST", 2)
        yield


@pytest.fixture(scope="module")
def server(tmp_path_factory, small_video):
    root = tmp_path_factory.mktemp("attacks")
    (root / "secret.txt").write_text("the secret")
    with serving(library(root / "library", small_video)) as running:
        running.secret = root / "secret.txt"
        yield running


VIDEOS, UPLOADS = "/api/videos", "/api/uploads"
CORRECTIONS, MEDIA = f"{PLACE}/corrections", f"{PLACE}/media"


def request(method, path, body=None, **headers):
    return method, path, body, headers


# name: the status that answers it, and the request. {token} is the right one; a header that is None
# is left out. What test_attack_routes.py tries on every route is not repeated here.
def correction(edit):
    return request("POST", CORRECTIONS, body=json.dumps({"by": "a", "base": 0, "edits": [edit]}))


NO_HEADER = {"Authorization": None}
TWO_COOKIES = {"Cookie": "{cookie}={token}; {cookie}=wrong"} | NO_HEADER
WITH_OPTION = {"path": "v0.mp4", "options": {"weights": "/x"}}
TOO_LONG = str(MAX_CHUNK_BYTES + 1)
REQUESTS = {
    "rebinding: an address of another machine": (403, request("GET", VIDEOS, Host="192.0.2.1:80")),
    "a token of other letters": (401, request("GET", VIDEOS, Authorization="Bearer é".encode())),
    "the right token and a wrong one": (401, request("GET", VIDEOS, Cookie="{cookie}=wrong")),
    "two cookies, one of them right": (401, request("GET", VIDEOS, **TWO_COOKIES)),
    "two tokens in the address": (401, request("GET", "/?token={token}&token=x", **NO_HEADER)),
    "a token in the API's address": (401, request("GET", f"{VIDEOS}?token={{token}}", **NO_HEADER)),
    "CORS: a preflight": (403, request("OPTIONS", CORRECTIONS, Origin="http://evil.example")),
    "traversal: a static file": (404, request("GET", "/static/../store.py")),
    "traversal: encoded": (404, request("GET", "/static/%2e%2e%2fstore.py")),
    "traversal: encoded twice": (404, request("GET", "/static/%252e%252e%252fstore.py")),
    "traversal: backslashes": (404, request("GET", "/static/..%5cstore.py")),
    "traversal: a zero byte": (404, request("GET", "/static/login.js%00.css")),
    "traversal: an id": (404, request("GET", "/api/videos/..%2f..%2fsecret/record")),
    "a path outside": (409, request("POST", VIDEOS, body={"path": "../secret.txt"})),
    "a path of the system": (409, request("POST", VIDEOS, body={"path": "/etc/passwd"})),
    "a link that is a file": (400, request("POST", VIDEOS, body={"link": "file:///etc/passwd"})),
    "an option for the decoder": (400, request("POST", VIDEOS, body=WITH_OPTION)),
    "a zip bomb": (415, request("POST", UPLOADS, body={"name": "bomb.zip", "size": 42})),
    "an XML bomb": (415, request("POST", UPLOADS, body={"name": "b.ttml", "size": 42})),
    "a petabyte": (400, request("POST", UPLOADS, body={"name": "a.mp4", "size": 2**50})),
    "a piece that is too long": (400, request("PATCH", "/api/uploads/x", Content_Length=TOO_LONG)),
    "a body that is too long": (400, request("POST", CORRECTIONS, body="x" * (2**20 + 1))),
    "a body that is too deep": (400, request("POST", CORRECTIONS, body="[" * 100_000)),
    "invalid numbers": (400, correction({"do": "change", "step": "a", "at": math.nan})),
    "a time of a thousand years": (400, correction({"do": "change", "step": "a", "at": 3e10})),
    "an unknown revision": (409, request("POST", CORRECTIONS, body=OWNED | {"base": 10**9})),
    "a step of another video": (409, correction({"do": "delete", "step": "zz"})),
    "ranges: beyond the end": (416, request("GET", MEDIA, Range="bytes=99999999999-")),
    "ranges: more digits than fit": (416, request("GET", MEDIA, Range=f"bytes={'9' * 4000}-")),
    "ranges: a thousand at once": (
        200,
        request("GET", MEDIA, Range="bytes=" + "0-9," * 999 + "0-9"),
    ),
    "a picture of no second": (404, request("GET", f"{PLACE}/pictures/1e308.jpg")),
    "a search of nothing": (400, request("GET", "/api/search?q=%00")),
    "a search in the index's language": (200, request("GET", "/api/search?q=%22%20OR%20*%20NEAR(")),
    "a search for more than all": (400, request("GET", f"/api/search?q=a&most={'9' * 21}")),
    "a verb that is none": (405, request("PUT", PLACE, body="")),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_hostile_request_is_answered(server, name):
    status, (method, path, body, headers) = REQUESTS[name]
    known = {"token": server.access.token, "cookie": cookie_name(server)}

    def filled(text):
        for name in ("token", "cookie") if isinstance(text, str) else ():
            text = text.replace(f"{{{name}}}", known[name])
        return text

    reply, data = server.ask(
        method, filled(path), body, **{name: filled(value) for name, value in headers.items()}
    )
    assert reply.status == status, data
    assert "Access-Control-Allow-Origin" not in reply.headers
    assert b"the secret" not in data
    assert b"Traceback" not in data
    assert "frame-ancestors 'none'" in reply.headers["Content-Security-Policy"]
    # nothing was changed, and it still answers
    assert server.read(f"{PLACE}/record")["revision"] == 0


def raw(server, data):
    """All that comes back for bytes sent as they are."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        parts = []
        try:
            connection.sendall(data)
            while part := connection.recv(65536):
                parts.append(part)
        except ConnectionError:
            pass
    return b"".join(parts)


GET = b"GET /api/videos HTTP/1.1\r\n"
POST = f"POST {PLACE}/corrections HTTP/1.1\r\nX-Stepline: studio\r\n".encode()


REFUSED = {
    "two hosts": GET + b"Host: localhost:1\r\nHost: evil.example\r\n\r\n",
    "a zero byte": GET + b"Host: localhost:1\r\nX: a\x00b\r\n\r\n",
    "a proxy's request": b"GET http://evil.example/api/videos HTTP/1.1\r\nHost: evil.example\r\n"
    b"Connection: close\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 600,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a header of a megabyte": GET + b"Host: localhost:1\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
}


@pytest.mark.parametrize("sent", REFUSED.values(), ids=REFUSED)
def test_requests_that_two_servers_would_read_differently_are_refused(server, sent):
    reply = raw(server, sent)
    assert reply.startswith((b"HTTP/1.1 400", b"HTTP/1.1 403", b"HTTP/1.1 401")), reply[:200]
    assert b"200 OK" not in reply


def test_a_client_that_sends_a_byte_now_and_then_is_cut_off(server, monkeypatch):
    monkeypatch.setattr("stepline.pages.web.connections.MAX_READING_SECONDS", 0.8)
    head = POST + f"Host: localhost:1\r\nAuthorization: Bearer {server.access.token}\r\n".encode()
    slow = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    slow.sendall(head + b"Content-Length: 100\r\n\r\n{")
    with ThreadPoolExecutor(4) as threads:
        replies = list(threads.map(lambda _: server.status("GET", "/api/videos"), range(20)))
    assert replies == [200] * 20
    assert b"200 OK" not in slow.recv(65536)
    slow.close()


def test_a_long_body_may_take_its_time(server, monkeypatch):
    monkeypatch.setattr("stepline.pages.web.connections.MAX_READING_SECONDS", 0.5)
    monkeypatch.setattr("stepline.pages.web.connections.MIN_READ_BYTES", 1)
    id = json.loads(server.ask("POST", "/api/uploads", {"name": "a.mp4", "size": 40})[1])["upload"]
    lines = (
        f"PATCH /api/uploads/{id} HTTP/1.1\r\nHost: localhost:1\r\nUpload-Offset: 0",
        f"Authorization: Bearer {server.access.token}\r\nContent-Length: 30\r\n\r\n",
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as slow:
        slow.sendall("\r\n".join(lines).encode())
        for _ in range(30):
            slow.sendall(b"x")
            time.sleep(0.05)
        assert b"200 OK" in slow.recv(65536)


def test_a_request_without_a_body_has_length_zero(tmp_path, small_video):
    keys = KeyFile(tmp_path / "keys.json")
    reader = keys.add("reader", "read")
    with serving(library(tmp_path / "library", small_video), keys=keys) as running:
        id = running.studio.jobs.add("none.mp4", {}).id
        running.jobs.cancel(id)

        def send(method, path, secret):
            bearer = f"Authorization: Bearer {secret}"
            lines = (f"{method} {path} HTTP/1.1", "Host: localhost:1", bearer, "Connection: close")
            return raw(running, "\r\n".join((*lines, "", "")).encode())[:12]

        assert send("DELETE", f"/api/jobs/{id}", reader) == b"HTTP/1.1 403"  # the role comes first
        assert send("POST", f"/api/jobs/{id}/retry", running.access.token) == b"HTTP/1.1 200"
        assert send("DELETE", PLACE, running.access.token) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    "range", ["bytes=x", "bytes=9-1", "bytes=999999999-", "pages=1-2", "bytes=0-0,5-", "bytes=0-3"]
)
def test_a_range_of_a_download_leaves_no_file_behind(server, tmp_path, monkeypatch, range):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for method, path, body in (
        ("GET", f"{PLACE}/steps?format=srt", None),
        ("POST", "/api/share", {"ids": [LEMONADE]}),
    ):
        reply, data = server.ask(method, path, body, Range=range)
        assert reply.status == 200
        assert len(data) == int(reply.headers["Content-Length"])
    until(lambda: not list(tmp_path.iterdir()))


def test_a_key_file_that_turns_bad_stops_the_keys_alone(tmp_path, small_video, caplog):
    keys = KeyFile(tmp_path / "keys.json")
    secret = keys.add("reader", "read")

    def status(server):
        return status_of(server, "GET", "/api/videos", Authorization=f"Bearer {secret}")

    with serving(library(tmp_path / "library", small_video), keys=keys) as running:
        assert status(running) == 200
        keys.path.chmod(0o644)
        assert [status(running), status(running)] == [503, 503]
        assert caplog.text.count("chmod 600") == 1
        keys.path.chmod(0o600)
        assert status(running) == 200
        keys.path.write_text("{")
        assert status(running) == 503
        assert running.status("GET", "/api/videos") == 200


def test_a_job_shows_no_password_of_its_link(server):
    link = "http://user:S3CR3T@127.0.0.1:9/v.mp4?X-Amz-Signature=abc"
    assert server.status("POST", "/api/videos", {"link": link}) == 200
    job = server.read("/api/jobs")["jobs"][0]
    assert job["source"] == "http://127.0.0.1:9/v.mp4"
    assert "S3CR3T" not in json.dumps(job)


def test_a_name_that_is_too_long_is_told_in_a_line(tmp_path, small_video):
    with serving(library(tmp_path / "library", small_video)) as running:
        id = running.studio.jobs.add("x" * 3000, {}).id
        running.jobs.notify(id)
        error = ended_job(running, id, ("failed",))["error"]
    assert "File name too long" in error
    assert "fault of Stepline" not in error


def test_a_record_gives_out_no_other_file(server, tmp_path, small_video):
    folder = library(tmp_path / "library", small_video, ("one", "two", "three"))
    (folder / "link.mp4").symlink_to(server.secret)
    for number, path in enumerate((str(server.secret), "link.mp4", "../../attacks0/secret.txt")):
        record = read_record(folder / f"v{number}.json")
        video = record.video.model_copy(update={"path": path})
        write_record(record.model_copy(update={"video": video}), folder / f"v{number}.json")
    with serving(folder) as running:
        for number in range(3):
            place = f"/api/videos/{video_id(f'v{number}.json')}"
            assert running.status("GET", f"{place}/media") in (404, 503)
            assert b"the secret" not in running.ask("GET", f"{place}/steps?format=html")[1]


def test_the_store_is_neither_a_video_nor_a_page(server):
    assert server.status("GET", f"/static/{DATABASE_FILE}") == 404
    assert server.status("GET", f"/{DATABASE_FILE}") == 404
    assert server.status("GET", f"/api/videos/{video_id(DATABASE_FILE)}/media") == 404


def test_jobs_that_are_traps_fail_in_a_line(server, tmp_path, small_video):
    folder = library(tmp_path / "library", small_video)
    (folder / "zip.mp4").write_bytes(b"PK\x03\x04" + b"\x00" * 4096)
    (folder / "list.mp4").write_bytes(b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n")
    with serving(folder, at_once=2) as running:
        own = f"http://127.0.0.1:{running.port}/api/videos"  # what only this machine can reach
        for told in ({"path": "zip.mp4"}, {"path": "list.mp4"}, {"link": own}):
            assert running.status("POST", "/api/videos", told) == 200
        errors = [ended_job(running, id, ("failed",))["error"] for id in (1, 2, 3)]
    assert all("not a video that can be read" in error for error in errors[:2]), errors
    assert "127.0.0.1 is a private address" in errors[2]
    assert not any("\n" in error or "root:" in error for error in errors)


@pytest.mark.browser
def test_script_in_titles_and_captions_does_not_run(browser, tmp_path, small_video):
    folder = library(tmp_path / "library", small_video, (SCRIPT,))
    record = read_record(folder / "v0.json")
    steps = tuple(
        step.model_copy(update={"text": SCRIPT, "seen": (SCRIPT,)}) for step in record.steps
    )
    said = tuple(sentence.model_copy(update={"text": SCRIPT}) for sentence in record.sentences)
    transcript = record.transcript.model_copy(update={"sentences": said})
    write_record(
        record.model_copy(update={"steps": steps, "transcript": transcript}), folder / "v0.json"
    )
    with serving(folder) as running:
        places = (f"{running.address}{place}/{LEMONADE}" for place in ("video", "follow"))
        for address in (running.link, *places):
            page = browser.open(address)
            page.wait_until("document.body.innerText.includes('onerror')")
            assert page.run("document.title") != "owned"
            assert page.run("$$('img[src=x]').length") == 0
            page.close()
        shared = running.ask("POST", "/api/share", {"ids": [LEMONADE], "videos": True})[1]
        with zipfile.ZipFile(io.BytesIO(shared)) as archive:
            index = archive.read("videos-and-steps/index.html")
        assert b"<script>document" not in index


def test_a_host_that_others_reach_needs_a_password(tmp_path):
    with pytest.raises(SettingsError, match="--password-file"):
        Access("0.0.0.0", None)
    file = tmp_path / "password"
    for text, said in (("", "too short"), ("1234567\n", "too short")):
        file.write_text(text)
        with pytest.raises(SettingsError, match=said):
            read_password(file)
    with pytest.raises(SettingsError, match="cannot be read"):
        read_password(tmp_path / "none")


@pytest.fixture
def guarded(tmp_path, small_video):
    own, password = library(tmp_path / "library", small_video), Password("open sesame")
    with serving(own, host="127.0.0.1", password=password) as it:
        yield it


def login(server, password, **headers):
    return ask(
        server, "POST", "/login", json.dumps({"password": password}), X_Stepline="studio", **headers
    )


def test_the_password_lets_in_and_nothing_else_does(guarded):
    reply, _ = ask(guarded, "GET", "/")
    assert (reply.status, reply.headers["Location"]) == (303, "/login")
    assert status_of(guarded, "GET", "/login") == 200
    assert status_of(guarded, "GET", "/api/videos") == 401
    assert login(guarded, "wrong")[0].status == 403
    reply, _ = login(guarded, "open sesame")
    cookie = reply.headers["Set-Cookie"].partition(";")[0]
    assert status_of(guarded, "GET", "/api/videos", Cookie=cookie) == 200
    assert login(guarded, "open sesame", Origin="http://evil.example")[0].status == 403
    own = dict.fromkeys(("192.0.2.7:99", "localhost:1", "[::1]:5"), 200)
    for host, status in {"evil.example": 403, **own}.items():
        assert status_of(guarded, "GET", "/login", Host=host) == status, host


def test_over_https_all_is_encrypted_and_other_origins_stay_out(tmp_path, small_video, certificate):
    folder = library(tmp_path / "library", small_video)
    with serving(folder, password=Password("open sesame"), certificate=certificate) as running:
        assert running.link.startswith("https://")
        trust = ssl.create_default_context(cafile=certificate.certfile)

        def ask_over_tls(method, path, body=None, **headers):
            line = http.client.HTTPSConnection("127.0.0.1", running.port, timeout=60, context=trust)
            line.request(method, path, body, {"X-Stepline": "studio", **headers})
            reply = line.getresponse()
            data = reply.read()
            line.close()
            return reply, data

        entry, own = json.dumps({"password": "open sesame"}), f"https://127.0.0.1:{running.port}"
        reply, data = ask_over_tls("POST", "/login", entry, Origin=own)
        assert reply.status == 200, data
        assert "Secure" in reply.headers["Set-Cookie"].split("; ")
        token = {"Authorization": f"Bearer {running.access.token}"}
        assert ask_over_tls("GET", "/api/videos", Host="studio.example", **token)[0].status == 200
        for origin in (own.replace("https", "http"), "https://evil.example"):
            asked = ("POST", f"{PLACE}/corrections", json.dumps(OWNED))
            assert ask_over_tls(*asked, Origin=origin, **token)[0].status == 403
        assert raw(running, GET + b"Host: localhost:1\r\n\r\n") == b""  # plain http is not heard


ODD_HOSTS = (
    "x/login?",
    "x/health?",
    "x/static/a.js#",
    "/login?",
    "x@y",
    "a b",
    "x:1/login",
    "[::1",
)


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_over_https_no_host_header_leads_past_the_login(https_server, host):
    trust = ssl.create_default_context(cafile=https_server.certfile)
    for method, path in (("GET", "/api/videos"), ("DELETE", PLACE), ("GET", f"{PLACE}/record")):
        line = http.client.HTTPSConnection(
            "127.0.0.1", https_server.port, timeout=60, context=trust
        )
        line.request(method, path, headers={"X-Stepline": "studio", "Host": host})
        assert line.getresponse().status in (400, 403), (method, path)
        line.close()
    assert https_server.read_record()


@pytest.fixture(scope="module")
def https_server(tmp_path_factory, small_video, certificate):
    folder = library(tmp_path_factory.mktemp("https") / "library", small_video)
    with serving(folder, password=Password("open sesame"), certificate=certificate) as running:
        running.certfile = certificate.certfile
        running.read_record = lambda: read_record(folder / "v0.json")
        yield running


def test_access_is_decided_by_the_path_that_the_router_uses():
    """Starlette up to 1.0.0 takes `request.url.path` from the Host header."""
    access = Access("127.0.0.1", Password("open sesame"), https=True)
    scope = {"type": "http", "method": "GET", "path": VIDEOS, "query_string": b"", "state": {}}
    scope |= {"scheme": "https", "server": ("127.0.0.1", 443), "headers": [(b"host", b"x/login?")]}
    request = Request(scope)
    request._url = URL("https://x/login?/api/videos")  # what those versions make of it
    assert access.refuse(request).status_code == 401


def test_an_invalid_certificate_is_reported_with_its_cure(tmp_path, certificate):
    (tmp_path / "text").write_text("no certificate")
    none, text = tmp_path / "none", tmp_path / "text"
    for files in ((none,), (text,), (certificate.certfile,), (text, certificate.keyfile)):
        with pytest.raises(SettingsError, match="give --certfile a PEM"):
            Certificate(*files)


def test_passwords_cannot_be_tried_often(guarded):
    assert [login(guarded, f"wrong {n}")[0].status for n in range(5)] == [403] * 5
    # who says to be another is the same
    reply, _ = login(guarded, "open sesame", X_Forwarded_For="192.0.2.9")
    assert (reply.status, reply.headers["Retry-After"]) == (429, "60")


def test_wrong_passwords_are_forgotten_after_a_while():
    now = [0.0]
    password = Password("open sesame", clock=lambda: now[0])
    for _ in range(5):
        assert not password.check("wrong", "a")
    with pytest.raises(HTTPException):
        password.check("open sesame", "a")
    assert password.check("open sesame", "b")  # another address is not kept out
    now[0] = 61.0
    assert password.check("open sesame", "a")


def test_tries_of_strangers_keep_no_one_else_out():
    password = Password("open sesame", clock=lambda: 0.0)
    assert password.check("open sesame", "198.51.100.1")
    for number in range(12):
        for _ in range(5):
            assert not password.check("wrong", f"192.0.2.{number}")
    assert password.check("open sesame", "203.0.113.1")  # not wrong yet
    for _ in range(5):  # one that got in before has all its tries
        assert not password.check("wrong", "198.51.100.1")
    assert not password.check("wrong", "203.0.113.2")
    with pytest.raises(HTTPException):  # a new one has only one
        password.check("wrong", "203.0.113.2")


@pytest.mark.parametrize(
    ("addresses", "network"),
    [
        (("2001:db8::1", "2001:db8::ffff:1", "2001:db8::2%eth0"), "2001:db8::/64"),
        (("127.0.0.1", "127.9.9.9", "::1"), "127.0.0.1"),
        (("192.0.2.1", "::ffff:192.0.2.1"), "192.0.2.1"),
        (("",), ""),
    ],
)
def test_wrong_passwords_are_counted_per_network(addresses, network):
    assert {client_network(address) for address in addresses} == {network}


def test_a_server_without_a_password_takes_none(server):
    assert login(server, "anything")[0].status == 403


def test_event_streams_of_one_program_keep_no_one_out(tmp_path, small_video, monkeypatch):
    monkeypatch.setattr("stepline.studio.events.MAX_STREAMS", 20)
    keys = KeyFile(tmp_path / "keys.json")
    secret = keys.add("greedy", "read")
    own = library(tmp_path / "library", small_video)
    with serving(own, keys=keys) as running, ExitStack() as ends:

        def stream(key):
            line = socket.create_connection(("127.0.0.1", running.port), timeout=120)
            ends.callback(line.close)
            head = f"GET /api/events HTTP/1.1\r\nHost: localhost:1\r\nAuthorization: Bearer {key}\r\n\r\n"
            line.sendall(head.encode())
            return line

        own = stream(running.access.token)
        for _ in range(30):
            stream(secret)
        until(lambda: len(running.api.streams._streams) == 20, 120)
        assert [running.status("GET", "/api/videos") for _ in range(6)] == [200] * 6
        assert status_of(running, "GET", "/health") == 200
        # the stream of the owner goes on
        running.broadcast.publish("probe", {})
        received = b""
        while b"event: probe" not in received:
            data = own.recv(65536)
            assert data
            received += data


def test_many_windows_of_a_hostile_page_keep_no_one_out(server):
    lines = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(450)]
    assert server.status("GET", "/api/videos") == 200
    for line in lines:
        line.close()


def test_a_full_disk_loses_no_answer(tmp_path, small_video, limited_file_size):
    with serving(library(tmp_path / "library", small_video)) as running:
        place = f"{PLACE}/corrections"
        told = {"by": "a", "base": 0, "edits": [{"do": "change", "step": "a", "text": "x" * 1500}]}
        statuses = []
        with limited_file_size(400_000):
            while len(statuses) < 400 and (not statuses or statuses[-1] == 200):
                reply, data = running.ask("POST", place, told | {"base": len(statuses)})
                statuses.append(reply.status)
        assert statuses[-1] == 503, data
        assert "free some space" in json.loads(data)["error"]
        assert running.read(f"{PLACE}/record")["revision"] == len(statuses) - 1
        assert running.status("POST", place, told | {"base": len(statuses) - 1}) == 200
