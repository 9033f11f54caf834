"""Every route of the studio attacked alike: by strangers, by other sites, in framing and size, and
in every text that it takes.

The routes are those of the application: one without an entry in route_table.py fails here.
"""

import http.client
import json
import re
import socket
from urllib.parse import quote

import pytest
import route_table
from attacked_library import OTHER_IDS, OTHER_TITLE, SECRET, library_files, stored_rows
from studio_server import ended_job, serving


def each_route(has=lambda entry: True):
    """Run a test on each route whose entry has what it attacks."""
    routes = [route for route, entry in route_table.ENTRIES.items() if has(entry)]
    return pytest.mark.parametrize("route", routes, ids=" ".join)


ALL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")
REFUSALS = (400, 401, 403, 404, 405, 409, 411, 413, 414, 415, 416, 422, 429)

# Paths as they stand in a request's own path, each where a name belongs.
ENCODED_PATHS = (
    *"..%2fsecret.txt ..%2f..%2fsecret.txt %2e%2e%2fsecret.txt %252e%252e%252fsecret.txt".split(),
    *"..%5csecret.txt %2fetc%2fpasswd ../secret.txt link.mp4 link".split(),
    *".stepline-studio.sqlite a%00b %c0%ae%c0%ae%2fsecret.txt %ff%fe -1 nan".split(),
    "é%e2%80%ae".encode().decode("latin-1"),
    *("9" * 18, "9" * 400, "9" * 5000, "x" * 3000),
)
# Texts within a body or a query, each where a name, a path or a word belongs.
HOSTILE_TEXTS = (
    *"../secret.txt ../../secret.txt {secret} videos/../../secret.txt ..\\secret.txt".split(),
    *"link.mp4 file:///etc/passwd http://[bad/ ~/owned --out=/tmp/owned".split(),
    *("$(touch owned)", "`touch owned`", "' OR 1=1 --"),
    *("a\x00b", "\ud800", "\u202e\x1b[2J", "x" * 20_000, ""),
)


class Client:
    """Requests to the entry of a route, the valid one but for what an attack changes."""

    def __init__(self, studio, attacked, route):
        self.studio, self.attacked, self.names = studio, attacked, attacked.names
        self.method, self.path = route
        self.entry = route_table.ENTRIES[route]

    def send(self, *, method=None, path=None, body=None, **headers):
        """Return the status, headers and body of the reply, in which nothing leaks; of a stream no
        body is read."""
        sent = {"Authorization": f"Bearer {self.studio.token}", "X-Stepline": "studio"}
        sent |= self.entry.headers
        for name, value in headers.items():
            name = name.replace("_", "-")
            sent.pop(name, None)
            if value is not None:
                sent[name] = value
        path = route_table.address(self.path, self.entry, self.names) if path is None else path
        body = self.body() if body is None else body
        line = http.client.HTTPConnection("127.0.0.1", self.studio.port, timeout=60)
        try:
            line.request(method or self.method, path, body, sent)
            reply = line.getresponse()
            is_endless = "event-stream" in reply.headers.get("Content-Type", "")
            data = b"" if is_endless else reply.read()
        finally:
            line.close()
        for text in (SECRET, OTHER_TITLE, "Traceback", "root:x:0"):
            assert text.encode() not in data
        assert "Access-Control-Allow-Origin" not in reply.headers
        assert "frame-ancestors 'none'" in reply.headers["Content-Security-Policy"]
        return reply.status, reply.headers, data

    def body(self):
        """The valid body, as bytes; empty where the route takes none and is no question."""
        if isinstance(self.entry.body, str):
            return self.entry.body.encode()
        if self.entry.body is None:
            return None if self.method in ("GET", "HEAD") else b""
        return json.dumps(route_table.with_names(self.entry.body, self.names)).encode()

    def raw(self, *lines, rest=b"", only_head=False):
        """All that comes back for a head of these lines, after the request's line and those that
        let a guest in, and the bytes that follow. only_head: do not wait for the end."""
        target = route_table.address(self.path, self.entry, self.names)
        head = [
            f"{self.method} {target} HTTP/1.1",
            f"Host: 127.0.0.1:{self.studio.port}",
            f"Authorization: Bearer {self.studio.token}",
            "X-Stepline: studio",
            *(f"{name}: {value}" for name, value in self.entry.headers.items()),
            *lines,
        ]
        parts = []
        with socket.create_connection(("127.0.0.1", self.studio.port), timeout=60) as line:
            try:
                line.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + rest)
                while part := line.recv(65536):
                    parts.append(part)
                    if b"event-stream" in part or only_head:
                        break
            except ConnectionError:
                pass
        return b"".join(parts)


@pytest.fixture
def client(guest, attacked, route):
    return Client(guest, attacked, route)


@pytest.fixture
def unchanged(attacked, untouched):
    """What people and programs have put into the library is the same after the test, and what lies
    around it."""
    before = stored_rows(attacked.folder)
    yield
    assert stored_rows(attacked.folder) == before


@pytest.fixture
def untouched(attacked):
    """What lies around the library is the same after the test."""
    before = attacked.surroundings()
    yield
    assert attacked.surroundings() == before


def test_every_route_has_an_entry_and_every_text_of_it_is_attacked(attacked):
    with serving(attacked.folder_of_table()) as server:
        routes = route_table.routes_of(server)
        parameters = route_table.parameters_of(server)
        models = route_table.models_of(server)
    assert routes == set(route_table.ENTRIES), "give each route an entry in route_table.py"
    for route, entry in route_table.ENTRIES.items():
        assert set(route_table.PARAMETER.findall(route[1])) == set(entry.names), route
        assert parameters.get(route, set()) <= set(entry.query), route
        assert models.get(route) in (None, entry.model), route
    assert len(route_table.text_fields(route_table.ENTRIES["POST", "/api/videos"].model)) >= 5


@each_route()
def test_the_valid_request_is_answered(client):
    """So what is refused below is refused for what is wrong with it."""
    status, _, data = client.send()
    assert status in client.entry.statuses, data


@each_route()
def test_a_stranger_gets_nothing(stranger, attacked, guest, route):
    """Without the token, with a wrong one, with another studio's, and with one in the wrong
    place."""
    client = Client(stranger, attacked, route)
    if not client.entry.needs_token:
        status, _, _ = client.send(Authorization=None)
        assert status in client.entry.statuses
        return
    before = stored_rows(attacked.root / "open")
    path = route_table.address(client.path, client.entry, client.names)
    joint = "&" if "?" in path else "?"
    tries = (
        {"Authorization": None},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer wrong"},
        {"Authorization": f"Bearer {guest.token}"},
        {"Authorization": f"Basic {stranger.token}"},
        {"Authorization": None, "Cookie": f"stepline_00000000={stranger.token}"},
        {"Authorization": None, "Cookie": f"token={stranger.token}", "X_Forwarded_For": "::1"},
        {"Authorization": None, "path": f"{path}{joint}token={guest.token}"},
        {"Authorization": None, "X_HTTP_Method_Override": "GET"},
    )
    for attempt in tries:
        status, headers, data = client.send(**attempt)
        is_sent_to_login = status == 303 and headers["Location"] == "/login"
        assert status == 401 or is_sent_to_login, (attempt, data)
        assert "Set-Cookie" not in headers
        assert str(attacked.root).encode() not in data
    assert stored_rows(attacked.root / "open") == before


@each_route()
@pytest.mark.usefixtures("unchanged")
def test_a_page_of_another_site_gets_nothing(guest, client):
    """Even where the browser sent the token along."""
    tries = [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"http://127.0.0.1:{guest.port + 1}"},
        {"Origin": f"https://127.0.0.1:{guest.port}"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"},
        {"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
        {"Host": "evil.example"},
        {"Host": f"localhost.evil.example:{guest.port}"},
        {"Host": f"127.0.0.1:{guest.port}@evil.example"},
    ]
    for attempt in tries:
        status, _, data = client.send(**attempt)
        assert status == 403, (attempt, data)
    if client.method not in ("GET", "HEAD"):
        opening = {"method": "GET", "path": f"/?token={guest.token}", "body": b""}
        _, headers, _ = client.send(**opening, Authorization=None)
        cookie = headers["Set-Cookie"].partition(";")[0]
        for word in (None, "", "annotate", "Studio"):
            status, _, data = client.send(X_Stepline=word, Authorization=None, Cookie=cookie)
            assert status == 400, (word, data)


def _methods_at(path):
    """The methods of every route that a request for an entry's path may reach."""
    methods = set()
    for method, other in route_table.ENTRIES:
        pattern = re.escape(other).replace(r"\{", "{").replace(r"\}", "}")
        if re.fullmatch(route_table.PARAMETER.sub(".+", pattern), path):
            methods.add(method)
    return methods | ({"HEAD"} if "GET" in methods else set())


@each_route()
@pytest.mark.usefixtures("unchanged")
def test_a_wrong_method_does_nothing(client):
    for method in set(ALL_METHODS) - _methods_at(client.path):
        status, _, data = client.send(method=method, body=b"{}")
        assert status in REFUSALS, (method, data)


@each_route()
def test_a_body_that_is_too_long_is_refused_unread(client):
    """By its length alone: no byte of it is sent, and the answer comes nevertheless."""
    for length in (2**24 + 1, 2**50, "9" * 30, "-1", "²"):
        reply = client.raw(f"Content-Length: {length}", only_head=True)
        if reply == b"":  # the connection was closed
            continue
        if client.method in ("GET", "HEAD") and b" 200 " in reply[:20]:
            continue  # it answers without its body
        assert reply[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 303"), reply[:200]


@each_route(lambda entry: entry.model)
@pytest.mark.usefixtures("unchanged")
def test_a_body_that_makes_no_sense_is_refused(client):
    tries = (
        *(b"", b"null", b"[]", b"{", b'"a"', b"NaN", b"\xff\xfe{}", b'{"by": "a", "by": "b"}'),
        *(b"[" * 100_000, b'{"a":' * 5000, b"1" * 10_000, b"x" * (2**20)),
    )
    for body in tries:
        status, _, data = client.send(body=body)
        assert status in REFUSALS, (body[:20], data)
        assert b"\n" not in data


@each_route(lambda entry: entry.names)
@pytest.mark.usefixtures("unchanged")
def test_no_name_in_the_path_leads_elsewhere(client):
    valid = client.send(method="GET")[2] if client.method == "GET" else None
    for parameter in client.entry.names:
        for name in ENCODED_PATHS:
            path = route_table.address(client.path, client.entry, client.names, **{parameter: name})
            status, _, data = client.send(path=quote(path, safe="/%?=&.~-+{}"))
            # A page of the studio is the same whatever video it is to show.
            is_the_page = status == 200 and data == valid and client.path.count("/") == 2
            assert status in REFUSALS or is_the_page, (name, status, data[:200])


@each_route(lambda entry: entry.query)
@pytest.mark.usefixtures("unchanged")
def test_no_text_of_a_query_leads_elsewhere(attacked, client):
    for name in client.entry.query:
        for text in HOSTILE_TEXTS:
            text = text.replace("{secret}", str(attacked.secret))
            query = client.entry.query | {name: text.encode("utf-8", "replace").decode()}
            path = route_table.address(client.path, client.entry, client.names, query=query)
            status, _, data = client.send(path=path)
            assert status in (200, *REFUSALS), (name, text[:40], data)


@each_route(lambda entry: entry.model)
def test_no_text_of_a_body_leads_elsewhere(guest, attacked, client, untouched):
    """Each text of the body's model in turn; what is taken in changes nothing but the library."""
    valid = route_table.with_names(client.entry.body, client.names)
    for place in route_table.text_fields(client.entry.model):
        for text in HOSTILE_TEXTS:
            text = text.replace("{secret}", str(attacked.secret))
            body = json.dumps(route_table.with_value(valid, place, text)).encode()
            status, _, data = client.send(body=body)
            assert status in (*client.entry.statuses, *REFUSALS), (place, text[:40], data)
            reply = json.loads(data) if status in (200, 201) and data else {}
            if isinstance(reply.get("job"), int):  # its words are tried below, in one job
                guest.ask("POST", f"/api/jobs/{reply['job']}/cancel", "")
    for job in guest.read("/api/jobs")["jobs"]:  # what the test has begun, as far as the API has it
        if job["state"] in ("waiting", "running"):
            guest.ask("POST", f"/api/jobs/{job['id']}/cancel", "")


@each_route(lambda entry: set(entry.names.values()) & OTHER_IDS)
def test_ids_of_another_library_are_unknown_here(attacked, client, untouched):
    client.names = attacked.names | attacked.other_names
    status, _, data = client.send()
    assert status in (400, 404), data


def test_a_job_takes_hostile_words_for_words(guest, attacked, untouched):
    """In the worker, where they become lines to find."""
    words = [text.replace("{secret}", str(attacked.secret)) for text in HOSTILE_TEXTS if text]
    lines = [word for word in words if "\ud800" not in word and len(word) < 1000]
    options = {"language": "en", "texts": lines}
    reply, data = guest.ask("POST", "/api/videos", {"path": "v0.mp4", "options": options})
    assert reply.status == 200, data
    job = ended_job(guest, json.loads(data)["job"])
    assert SECRET not in json.dumps(job)
    assert "\n" not in (job["error"] or "")


def test_a_share_of_another_librarys_video_is_refused(guest, attacked, untouched):
    other = attacked.other_names["video"]
    before = library_files(attacked.folder)
    reply, data = guest.ask("POST", "/api/share", {"ids": [other]})
    assert reply.status == 404, data
    assert library_files(attacked.folder) == before


def test_nothing_is_left_outside_after_all_of_it(guest, attacked):
    """No shell has run a text, no ~ was taken for the home, and no answer has left its files."""
    assert not [path for path in attacked.root.rglob("owned") if path.is_file()]
    assert [*(attacked.root / "home").iterdir()] == []
    assert [*(attacked.root / "tmp").iterdir()] == []
