"""The studio under load: viewers and jobs together, and a large file with random reads.

    python lab/studio.py --viewers 50 --jobs 5 --seconds 120
    python lab/studio.py --scrub 5
    python lab/studio.py --records 2000

The first serves a library of copies of the demo, in a process of its own. Each viewer holds an open
line of events. In turn, with a second between, it lists the videos, loads one, reads a range of it,
fetches a picture, searches and corrects a step. At the same time, that many jobs run the whole main
job on the demo, again and again. Any reply but 200, 206 and 409 (two
viewers who change the same) counts as an error.

The second makes a sparse file of that many GiB in a library. It asks for ranges of it at random,
open-ended as a browser's player does, and measures the time to the first 64 KiB.

The third makes that many records. In order, it asks for a page of the list, for videos
with a word in the title, for corrected ones, and for a search. It measures ms at the client, and
CPU ms of the server.
"""

import argparse
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

import stepline
from stepline.records import Record, Span, Step, Video
from stepline.storage import write_record

DEMO_PATH = Path(stepline.__file__).parent / "cli" / "demo" / "demo.mp4"
REPLY_TIMEOUT_SECONDS = 600.0  # for a reply, for the first search makes the index
THOUGHT_SECONDS = 1.0  # between two requests of a viewer
VIDEO_COUNT = 20  # of the library
PART_BYTES = 65536  # that are read of a range
FINE_STATUSES = (200, 206, 409)  # 409: two viewers change the same


class Server:
    """`stepline studio` on a folder, in a process of its own."""

    def __init__(self, folder: Path, *more: str) -> None:
        command = [sys.executable, "-m", "stepline", "studio", str(folder), *more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = next(line for line in self.process.stderr or () if line.startswith("open http"))
        address, _, self.token = line.split()[1].partition("/?token=")
        self.port = int(address.rpartition(":")[2])
        threading.Thread(target=self._read_messages, daemon=True).start()

    def _read_messages(self) -> None:
        # a full pipe would stop the server
        for _ in self.process.stderr or ():
            pass

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        """Return the status of a reply and up to PART_BYTES bytes of it."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=REPLY_TIMEOUT_SECONDS)
        content = None if body is None else json.dumps(body)
        own_headers = {"Authorization": f"Bearer {self.token}", "X-Stepline": "studio"}
        try:
            line.request(method, path, content, own_headers | headers)
            reply = line.getresponse()
            is_json = "json" in reply.headers["Content-Type"]
            return reply.status, reply.read(None if is_json else PART_BYTES)
        finally:
            line.close()

    def ask_json(self, path: str) -> dict[str, Any]:
        """Return the JSON at a path."""
        _, data = self.ask("GET", path)
        return json.loads(data)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the server has used, in seconds, as Linux counts it."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text()
        user, system = stat.rpartition(")")[2].split()[11:13]  # behind the name of the program
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End it as Ctrl-C does."""
        self.process.send_signal(2)
        self.process.wait(60)


def made_library(folder: Path, count: int) -> None:
    """Write records of three steps each, next to copies of the demo that share its bytes."""
    shutil.copyfile(DEMO_PATH, folder / "v0.mp4")
    for number in range(count):
        film = folder / f"v{number}.mp4"
        if number:
            os.link(folder / "v0.mp4", film)
        steps = []
        texts = ("fold the strip", "press the edge", f"turn page {number}")
        for index, text in enumerate(texts):
            start = 5.0 * index
            span = Span(start, start + 4)
            step = Step(id=f"{index}", text=text, spans=(span,), at=start + 1, status="placed")
            steps.append(step)
        video = Video(id=f"v{number}", path=film.name, duration=30.0, title=f"Film {number}")
        record = Record(id=f"v{number}", video=video, steps=tuple(steps))
        write_record(record, folder / f"v{number}.json")


class Load:
    """What viewers and jobs did: seconds of each kind of request, and what went wrong."""

    def __init__(self, server: Server, seconds: float) -> None:
        self.server = server
        self.ends = time.monotonic() + seconds
        self.times: dict[str, list[float]] = defaultdict(list)
        self.errors: Counter[str] = Counter()
        self.events = 0

    def timed(
        self, kind: str, method: str, path: str, body: object = None, **headers: str
    ) -> bytes:
        """Send a request, and note how long it took and whether it went wrong."""
        begun = time.perf_counter()
        try:
            status, data = self.server.ask(method, path, body, **headers)
        except (OSError, http.client.HTTPException) as error:
            self.errors[f"{kind}: {type(error).__name__}"] += 1
            return b""
        self.times[kind].append(time.perf_counter() - begun)
        if status not in FINE_STATUSES:
            self.errors[f"{kind}: {status}"] += 1
        return data

    def view(self, number: int) -> None:
        """Be a viewer until the end."""
        rng = random.Random(number)
        threading.Thread(target=self._listen, daemon=True).start()
        time.sleep(rng.random() * THOUGHT_SECONDS)
        while time.monotonic() < self.ends:
            listing = self.timed("list", "GET", "/api/videos")
            cards = json.loads(listing or '{"videos": []}')["videos"]
            if not cards:
                continue
            card = rng.choice(cards)
            place = f"/api/videos/{card['id']}"
            first = rng.randrange(100_000)
            edit = {"do": "change", "step": rng.choice("012"), "text": f"step {rng.random():.6f}"}
            correction = {"by": f"v{number}", "base": card["revision"], "edits": [edit]}
            picture = f"{place}/pictures/{rng.randrange(28)}.jpg"
            search = f"/api/search?q=turn+page+{rng.randrange(VIDEO_COUNT)}"
            turns: tuple[tuple[str, str, str, object, dict[str, str]], ...] = (
                ("record", "GET", f"{place}/record", None, {}),
                ("range", "GET", f"{place}/media", None, {"Range": f"bytes={first}-"}),
                ("picture", "GET", picture, None, {}),
                ("search", "GET", search, None, {}),
                ("correct", "POST", f"{place}/corrections", correction, {}),
            )
            for kind, method, path, body, headers in turns:
                if time.monotonic() < self.ends:
                    self.timed(kind, method, path, body, **headers)
                    time.sleep(THOUGHT_SECONDS)

    def _listen(self) -> None:
        line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.server.token}"}
        try:
            line.request("GET", "/api/events", headers=headers)
            reply = line.getresponse()
            while time.monotonic() < self.ends and reply.readline():
                self.events += 1
            if time.monotonic() < self.ends:
                self.errors["events: ended"] += 1
        except OSError as error:
            if time.monotonic() < self.ends:
                self.errors[f"events: {type(error).__name__}"] += 1
        finally:
            line.close()

    def keep_jobs(self, count: int) -> int:
        """Let that many jobs run until the end, and return how many ended."""
        ended: set[int] = set()
        begun = 0
        while time.monotonic() < self.ends:
            listing = self.timed("jobs", "GET", "/api/jobs")
            jobs = json.loads(listing or '{"jobs": []}')["jobs"]
            ended |= {job["id"] for job in jobs if job["state"] == "done"}
            failed = [job["error"] for job in jobs if job["state"] == "failed"]
            self.errors.update({f"job: {error}": 1 for error in failed})
            running = begun - len(ended) - len(failed)
            for _ in range(count - running):
                body = {"path": f"job{begun % count}.mp4", "options": {"force": True}}
                self.timed("begin", "POST", "/api/videos", body)
                begun += 1
            time.sleep(THOUGHT_SECONDS)
        return len(ended)


def load(viewers: int, jobs: int, seconds: float) -> dict[str, object]:
    """Return the figures of a load."""
    folder = Path(tempfile.mkdtemp())
    try:
        made_library(folder, VIDEO_COUNT)
        for number in range(jobs):
            os.link(folder / "v0.mp4", folder / f"job{number}.mp4")
        server = Server(folder, "--jobs", str(max(jobs, 1)))
        server.ask("GET", "/api/search?q=warm")  # loads MiniLM
        run = Load(server, seconds)
        threads = [threading.Thread(target=run.view, args=(number,)) for number in range(viewers)]
        for thread in threads:
            thread.start()
        ended = run.keep_jobs(jobs)
        for thread in threads:
            thread.join()
        server.end()
    finally:
        shutil.rmtree(folder)
    milliseconds = {}
    for kind, times in run.times.items():
        median, high = np.percentile(times, (50, 95))
        milliseconds[kind] = [round(1000 * float(median)), round(1000 * float(high))]
    return {
        "viewers": viewers,
        "jobs at once": jobs,
        "seconds": seconds,
        "jobs that ended": ended,
        "requests": sum(map(len, run.times.values())),
        "events": run.events,
        "errors": dict(run.errors),
        "ms, median and 95th": milliseconds,
    }


def scrub(size: float, count: int = 200) -> dict[str, object]:
    """Return the milliseconds to the first bytes of ranges of a sparse file of `size` GiB."""
    folder = Path(tempfile.mkdtemp())
    try:
        made_library(folder, 1)
        film = folder / "v0.mp4"
        film.unlink()
        with film.open("wb") as file:
            file.truncate(int(size * 2**30))
        server = Server(folder)
        (card,) = server.ask_json("/api/videos")["videos"]
        path = f"/api/videos/{card['id']}/media"
        rng = random.Random(0)
        times = []
        for _ in range(count):
            first = rng.randrange(int(size * 2**30) - PART_BYTES)
            begun = time.perf_counter()
            status, data = server.ask("GET", path, Range=f"bytes={first}-")
            times.append(1000 * (time.perf_counter() - begun))
            if (status, len(data)) != (206, PART_BYTES):
                raise SystemExit(f"range {first}-: {status}, {len(data)} bytes")
        server.end()
    finally:
        shutil.rmtree(folder)
    median, high = np.percentile(times, (50, 95))
    return {
        "GiB": size,
        "ranges": count,
        "ms, median": round(float(median), 1),
        "95th": round(float(high), 1),
        "slowest": round(max(times), 1),
    }


QUESTION_PATHS = {
    "list, a page of 50": "/api/videos?most=50",
    "list, all": "/api/videos",
    "filter by title": "/api/videos?q=film+7&most=50",
    "filter by state": "/api/videos?state=corrected&most=50",
    "search": "/api/search?q=press+the+edge",
}


def lists(records: int, count: int = 30) -> dict[str, object]:
    """Return the milliseconds of each question to a library of that many records, and the server's
    CPU."""
    folder = Path(tempfile.mkdtemp())
    figures: dict[str, object] = {"records": records, "asked": count}
    try:
        made_library(folder, records)
        server = Server(folder)
    except BaseException:
        shutil.rmtree(folder)
        raise
    try:
        for name, path in QUESTION_PATHS.items():
            server.ask("GET", path)  # the first one reads the records, or makes the index
            times = []
            used = server.cpu_seconds()
            for _ in range(count):
                begun = time.perf_counter()
                status, _ = server.ask("GET", path)
                times.append(1000 * (time.perf_counter() - begun))
                if status != 200:
                    raise SystemExit(f"{path}: {status}")
            cpu = 1000 * (server.cpu_seconds() - used) / count
            median, high = np.percentile(times, (50, 95))
            row = {"ms, median": round(float(median), 1), "95th": round(float(high), 1)}
            figures[name] = row | {"CPU ms": round(cpu, 1)}
    finally:
        server.end()
        shutil.rmtree(folder)
    return figures


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--scrub", type=float, help="GiB")
    parser.add_argument("--records", type=int, help="of a library whose lists are asked for")
    args = parser.parse_args()
    if args.scrub:
        figures = scrub(args.scrub)
    elif args.records:
        figures = lists(args.records)
    else:
        figures = load(args.viewers, args.jobs, args.seconds)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
