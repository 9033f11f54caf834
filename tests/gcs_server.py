"""Google Cloud Storage in a thread of this process, that can be told to fail: gcp-storage-emulator,
and what it lacks.

It lacks conditions and pages, which are here as Google documents them: with `ifGenerationMatch=0`
an object is written where none is, else the answer is 412; a listing has `maxResults` objects at
most and names where the next one begins.
"""

import contextlib
import json
import threading
from http.server import HTTPServer
from urllib.parse import parse_qs, urlsplit

from gcp_storage_emulator import server as emulator
from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import buckets
from gcp_storage_emulator.storage import Storage


class Faults:
    """What goes wrong: each n-th request answers a 503 (0: never), or all one status. refused:
    conditions not met."""

    def __init__(self):
        self.requests = self.failed = self.refused = self.every = 0
        self.only = None


class ConditionNotMet(Exception):
    """The object is there."""


class OnlyNew:
    """A storage as a request with `ifGenerationMatch=0` sees it."""

    def __init__(self, storage):
        self.storage = storage

    def __getattr__(self, name):
        return getattr(self.storage, name)

    def create_file(self, bucket, name, *rest):
        with contextlib.suppress(NotFound):
            self.storage.get_file_obj(bucket, name)
            raise ConditionNotMet
        self.storage.create_file(bucket, name, *rest)


class Handler(emulator.RequestHandler):
    """The emulator's answers, one request after another."""

    faults: Faults

    def do_GET(self):
        self.answer("GET")

    def do_POST(self):
        self.answer("POST")

    def do_DELETE(self):
        self.answer("DELETE")

    def answer(self, verb):
        faults = self.faults
        faults.requests += 1
        if faults.only or (faults.every and faults.requests % faults.every == 0):
            faults.failed += 1
            self.refuse(faults.only or 503)
            return
        address = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        if verb == "GET" and address.path.endswith("/o") and "delimiter" not in query:
            self.list_page(address.path.split("/")[-2], query)
            return
        if query.get("ifGenerationMatch") == "0":
            self.storage = OnlyNew(self.storage)
        try:
            emulator.Router(self).handle(verb)
        except ConditionNotMet:
            faults.refused += 1
            self.reply(412, {"error": {"code": 412, "message": "a pre-condition did not hold"}})

    def refuse(self, status):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.reply(status, {"error": {"code": status, "message": "told to fail"}})

    def list_page(self, bucket, query):
        try:
            found, _ = self.storage.get_file_list(bucket, query.get("prefix"))
        except NotFound:
            missing = "The specified bucket does not exist."
            self.reply(404, {"error": {"code": 404, "message": missing}})
            return
        start = int(query.get("pageToken", 0))
        end = start + int(query.get("maxResults", 1000))
        more = {"nextPageToken": str(end)} if end < len(found) else {}
        self.reply(200, {"kind": "storage#objects", "items": found[start:end], **more})

    def reply(self, status, about):
        body = json.dumps(about).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(HTTPServer):
    """One request at a time, so that a condition and what it lets through are one step; who goes
    away may."""

    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass


@contextlib.contextmanager
def gcs_server(monkeypatch, folder):
    """Serve Google Cloud Storage with the bucket `bucket`, name it in the environment, and yield
    its `Faults`.

    folder: where credentials are looked for, and none are.
    """
    read = emulator._read_data

    # the emulator takes an upload of JSON for a request, an empty one for none
    def read_data(handler, query):
        media = query.get("uploadType") == ["media"]
        return emulator._read_raw_data(handler) or b"" if media else read(handler, query)

    monkeypatch.setattr(emulator, "_read_data", read_data)
    storage, faults = Storage(use_memory_fs=True), Faults()
    buckets.create_bucket("bucket", storage)
    handler = type("Handler", (Handler,), {"faults": faults})
    server = Server(("127.0.0.1", 0), lambda *rest: handler(storage, *rest))
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    ).start()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(folder))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    try:
        yield faults
    finally:
        server.shutdown()
        server.server_close()
