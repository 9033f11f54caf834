"""A studio that runs in this process, on a small library, and a client that has its token."""

import contextlib
import json
import shutil
import threading
import time

from http_client import ask

from stepline.files.digests import sha256
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.storage import write_record
from stepline.studio.server import StudioServer
from stepline.studio.store import Studio


def library(folder, video, titles=("Lemonade",)):
    """Write a record a title, each with its video beside it, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, title in enumerate(titles):
        name = f"v{number}"
        copy = folder / f"{name}.mp4"
        shutil.copyfile(video, copy)
        seen = {"status": "seen", "basis": "network"}
        slice = {"text": "Slice the lemons", "spans": (Span(3.5, 6.0),), "at": 4.0} | seen
        pour = {"text": "Pour the juice", "spans": (Span(7.0, 10.0),), "at": 8.0} | seen
        whisk = {"text": "Whisk the sugar", "said": Span(11.0, 14.0), "status": "said_only"}
        fields = zip("abc", (slice, pour, whisk), strict=True)
        steps = tuple(Step(id=id, sources=(n,), **each) for n, (id, each) in enumerate(fields))
        said = [Sentence(text=f"{step.text}.", span=step.said or step.spans[0]) for step in steps]
        of = Video(id=name, path=str(copy), duration=16.0, title=title, sha256=sha256(copy))
        transcript = Transcript(language="en", sentences=tuple(said))
        record = Record(id=name, video=of, transcript=transcript, steps=steps)
        write_record(record, folder / f"{name}.json")
    return folder


def until(is_true, seconds=60.0):
    """Wait until a function returns something true, and return that."""
    ends = time.monotonic() + seconds
    while not (value := is_true()):
        assert time.monotonic() < ends
        time.sleep(0.02)
    return value


def ended_job(server, id=1, states=("done", "failed", "cancelled")):
    """Return a job once it is in one of some states."""

    def job():
        jobs = server.read("/api/jobs")["jobs"]
        return next((job for job in jobs if job["id"] == id and job["state"] in states), None)

    return until(job, 120.0)


def cookie_name(server):
    """Return the name of the cookie that a browser gets where it opens the server's link."""
    reply, _ = ask(server, "GET", f"/?token={server.access.token}")
    return reply.headers["Set-Cookie"].partition("=")[0]


def let_in(browser, server):
    """Give a browser the cookie that it gets where it opens the server's link; there is no page to
    load for that."""
    cookie = {"name": cookie_name(server), "value": server.access.token, "url": server.address}
    browser.send("Storage.setCookies", cookies=[cookie | {"httpOnly": True, "sameSite": "Strict"}])


@contextlib.contextmanager
def serving(folder, **options):
    """Yield a StudioServer that runs; `server.ask` sends its token."""
    server = StudioServer(Studio(folder, options.pop("allowed", ())), **options)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()

    def call(method, path, body=None, **headers):
        sent = {"Authorization": f"Bearer {server.access.token}"}
        sent |= ({"X_Stepline": "studio"} if method != "GET" else {}) | headers
        data = json.dumps(body) if isinstance(body, (dict, list)) else body
        return ask(server, method, path, data, **{k: v for k, v in sent.items() if v is not None})

    def read(path):
        reply, data = call("GET", path)
        assert reply.status == 200, data
        return json.loads(data)

    server.ask, server.read = call, read
    server.status = lambda *request, **headers: call(*request, **headers)[0].status
    try:
        yield server
    finally:
        server.stop()
        thread.join()
        server.studio.close()
