"""The studio in use for half an hour: its memory, threads, descriptors and files stay what they
were.

    python benchmarks/soak_studio.py --minutes 30 --out soak_studio.json

A studio with a library of copies of the demo is used in rounds. It is asked for every output of a
video, pictures, its waveform, a range of its file, searches and corrections. Also for an upload in
pieces, a share folder, lines of events that come and go, and one job of the whole main job. After
each round no one asks anything for `REST_SECONDS`. Then its process is looked at. Rounds of the
first `WARM_SHARE` of the time fill caches and are not a measure. Exit code 1: the memory of the
others differs by more than `MAX_GROWTH_MIB`, or a temporary file was left behind. Or a thread,
descriptor or child process is more at the end.
"""

import argparse
import http.client
import itertools
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
from studio import DEMO_PATH, VIDEO_COUNT, Server, made_library

from stepline.outputs import OUTPUTS

MAX_GROWTH_MIB = 30.0
WARM_SHARE = 0.2  # of the time
REST_SECONDS = 3.0  # after a round, in which connections close
ROUND_SECONDS = 60.0
THOUGHT_SECONDS = 0.2  # between two requests of a client
UPLOAD_REST_SECONDS = 5.0  # between two uploads. Each stays on the disk
PIECE_BYTES = 100_000
PICTURES_PER_VIDEO = 55  # of 20 videos: more than the 1000 that are kept in memory
PICTURE_STEP_SECONDS = 0.5
FINE_STATUSES = (200, 201, 206, 409)  # 409: two people change the same


@dataclass(frozen=True)
class Sample:
    """The server's process at rest. files: temporary ones. requests: answered so far."""

    seconds: float
    mib: float
    threads: int
    descriptors: int
    children: int
    files: int
    requests: int


class Soak:
    """What clients do to a server, and what went wrong."""

    def __init__(self, server: Server, temporary: Path) -> None:
        self.server = server
        self.errors: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self._temporary = temporary
        self._process = psutil.Process(server.process.pid)
        self._begun = time.monotonic()
        self._cards = server.ask_json("/api/videos")["videos"]
        self._numbers = itertools.count()

    def ask(self, kind: str, method: str, path: str, body: object = None, **headers: str) -> bytes:
        """Send a request, and count it and what was wrong with its reply."""
        self.kinds[kind] += 1
        try:
            status, data = self.server.ask(method, path, body, **headers)
        except (OSError, http.client.HTTPException) as error:
            self.errors[f"{kind}: {type(error).__name__}"] += 1
            return b"{}"
        if status not in FINE_STATUSES:
            self.errors[f"{kind}: {status} {data[:100]!r}"] += 1
        time.sleep(THOUGHT_SECONDS)
        return data

    def fill_caches(self) -> None:
        """Ask for as many pictures as the studio keeps, so that their number is not growth."""
        for card in self._cards:
            for number in range(PICTURES_PER_VIDEO):
                second = number * PICTURE_STEP_SECONDS
                place = f"/api/videos/{card['id']}/pictures/{second:.1f}.jpg"
                self.server.ask("GET", place)

    def outputs(self, rng: random.Random) -> None:
        """Ask for every output of one video."""
        place = self._place(rng)
        for name in OUTPUTS:
            self.ask(name, "GET", f"{place}/steps?format={name}")

    def views(self, rng: random.Random) -> None:
        """Watch, search and correct as a person does."""
        place = self._place(rng)
        self.ask("list", "GET", "/api/videos")
        self.ask("record", "GET", f"{place}/record")
        self.ask("history", "GET", f"{place}/history")
        self.ask("waveform", "GET", f"{place}/waveform")
        picture = f"{place}/pictures/{rng.uniform(0, 28):.1f}.jpg"
        self.ask("picture", "GET", picture)
        first = rng.randrange(100_000)
        self.ask("range", "GET", f"{place}/media", Range=f"bytes={first}-")
        page = rng.randrange(VIDEO_COUNT)
        self.ask("search", "GET", f"/api/search?q=turn+page+{page}")
        card = json.loads(self.ask("card", "GET", place))
        edit = {"do": "change", "step": rng.choice("012"), "text": f"step {rng.random():.6f}"}
        body = {"by": "ann", "base": card.get("revision", 0), "edits": [edit]}
        self.ask("correct", "POST", f"{place}/corrections", body)

    def adds(self, rng: random.Random) -> None:
        """Upload the demo in pieces, share two videos, and end the job that the upload began."""
        data = DEMO_PATH.read_bytes()
        name = f"upload{next(self._numbers)}.mp4"
        begun = self.ask("upload", "POST", "/api/uploads", {"name": name, "size": len(data)})
        place = f"/api/uploads/{json.loads(begun).get('upload')}"
        job = None
        for offset in range(0, len(data), PIECE_BYTES):
            reply = self._piece(place, offset, data[offset : offset + PIECE_BYTES])
            job = json.loads(reply).get("job")
        self.ask("cancel", "POST", f"/api/jobs/{job}/cancel", {})
        ids = [card["id"] for card in rng.sample(self._cards, 2)]
        self.ask("share", "POST", "/api/share", {"ids": ids, "out": "share"})
        time.sleep(UPLOAD_REST_SECONDS)

    def listens(self, rng: random.Random) -> None:
        """Open a line of events and leave it, read to its first lines or not at all."""
        line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        self.kinds["events"] += 1
        try:
            sent = {"Authorization": f"Bearer {self.server.token}"}
            line.request("GET", "/api/events", headers=sent)
            if rng.random() < 0.5:
                line.getresponse().readline()
        except (OSError, http.client.HTTPException) as error:
            self.errors[f"events: {type(error).__name__}"] += 1
        finally:
            line.close()
        time.sleep(THOUGHT_SECONDS)

    def round(self, number: int, seconds: float) -> Sample:
        """Let four clients use the server for so long, and one job run. Return how it rests."""
        ends = time.monotonic() + seconds
        body = {"path": "job.mp4", "options": {"force": True}}
        begun = self.ask("job", "POST", "/api/videos", body)

        def client(act: Callable[[random.Random], None]) -> None:
            rng = random.Random(f"{act.__name__} {number}")
            while time.monotonic() < ends:
                act(rng)

        acts = (self.outputs, self.views, self.adds, self.listens)
        threads = [threading.Thread(target=client, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._wait_for_job(json.loads(begun).get("job"))
        time.sleep(REST_SECONDS)
        return self.sample()

    def sample(self) -> Sample:
        """Return what the server's process holds now."""
        with self._process.oneshot():
            return Sample(
                seconds=round(time.monotonic() - self._begun, 1),
                mib=round(self._process.memory_info().rss / 2**20, 1),
                threads=self._process.num_threads(),
                descriptors=self._process.num_fds(),
                children=len(self._process.children(recursive=True)),
                files=sum(1 for _ in self._temporary.rglob("*")),
                requests=sum(self.kinds.values()),
            )

    def _wait_for_job(self, id: int) -> None:
        while True:
            jobs = self.server.ask_json("/api/jobs")["jobs"]
            states = {job["id"]: job["state"] for job in jobs}
            if not {"waiting", "running"} & set(states.values()):
                break
            time.sleep(1.0)
        if states[id] != "done":
            self.errors[f"job: {states[id]}"] += 1

    def _piece(self, place: str, offset: int, piece: bytes) -> bytes:
        self.kinds["piece"] += 1
        line = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        headers = {
            "Authorization": f"Bearer {self.server.token}",
            "X-Stepline": "studio",
            "Upload-Offset": str(offset),
        }
        try:
            line.request("PATCH", place, piece, headers)
            reply = line.getresponse()
            data = reply.read()
            if reply.status not in FINE_STATUSES:
                self.errors[f"piece: {reply.status} {data[:100]!r}"] += 1
            return data
        except (OSError, http.client.HTTPException) as error:
            self.errors[f"piece: {type(error).__name__}"] += 1
            return b"{}"
        finally:
            line.close()

    def _place(self, rng: random.Random) -> str:
        return f"/api/videos/{rng.choice(self._cards)['id']}"


def soak(minutes: float, round_seconds: float) -> dict[str, Any]:
    """Return the samples of a soak, and what they say."""
    root = Path(tempfile.mkdtemp())
    temporary = root / "tmp"
    folder = root / "library"
    samples: list[Sample] = []
    try:
        temporary.mkdir()
        folder.mkdir()
        made_library(folder, VIDEO_COUNT)
        os.link(folder / "v0.mp4", folder / "job.mp4")
        os.environ["TMPDIR"] = str(temporary)  # the server's
        server = Server(folder)
        run = Soak(server, temporary)
        try:
            run.fill_caches()
            ends = time.monotonic() + 60 * minutes
            for number in itertools.count():
                samples.append(run.round(number, round_seconds))
                print(json.dumps(asdict(samples[-1])), file=sys.stderr, flush=True)
                if time.monotonic() > ends:
                    break
        finally:
            server.end()
        left_files = [path.name for path in temporary.rglob("*")]
    finally:
        shutil.rmtree(root)
    return findings(samples, minutes) | {
        "temporary files left at the end": left_files,
        "errors": dict(run.errors),
        "requests": dict(sorted(run.kinds.items())),
        "samples": [asdict(sample) for sample in samples],
    }


def findings(samples: list[Sample], minutes: float) -> dict[str, object]:
    """Return what samples say of memory, threads and descriptors, without the first ones."""
    measured = [sample for sample in samples if sample.seconds >= 60 * minutes * WARM_SHARE]
    first = measured[0]
    last = measured[-1]
    memory = [sample.mib for sample in measured]
    return {
        "minutes": minutes,
        "rounds measured": len(measured),
        "MiB, first, last, least, most": [first.mib, last.mib, min(memory), max(memory)],
        "MiB grown": round(last.mib - first.mib, 1),
        "MiB from least to most": round(max(memory) - min(memory), 1),
        # Threads wait for requests. Those that wait too long end when others begin.
        "threads, most of each half": _most_of_halves([sample.threads for sample in measured]),
        "descriptors, first and last": [first.descriptors, last.descriptors],
        "children, last": last.children,
        "temporary files, last": last.files,
    }


def _most_of_halves(numbers: list[int]) -> list[int]:
    half = max(1, len(numbers) // 2)
    return [max(numbers[:half]), max(numbers[-half:])]


def faults(figures: dict[str, Any], samples: list[dict[str, float]]) -> list[str]:
    """Return what went wrong in a soak, a line each."""
    lines = []
    growth = figures["MiB from least to most"]
    if growth > MAX_GROWTH_MIB:
        lines.append(f"memory moved by {growth} MiB, and {MAX_GROWTH_MIB:g} are allowed")
    for name in ("threads, most of each half", "descriptors, first and last"):
        before, after = figures[name]
        if after > before:
            lines.append(f"{name}: {before}, then {after}")
    if samples[-1]["children"]:
        lines.append(f"{samples[-1]['children']} child processes are left")
    left_files = figures["temporary files left at the end"]
    if left_files:
        lines.append(f"temporary files are left: {left_files}")
    if figures["errors"]:
        lines.append(f"requests went wrong: {figures['errors']}")
    return lines


def main() -> None:
    """Print the figures as JSON, or write them. Exit with 1 where something leaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--round", type=float, default=ROUND_SECONDS, help="seconds")
    parser.add_argument("--out", type=Path, help="a JSON file (default: it is printed)")
    options = parser.parse_args()
    figures = soak(options.minutes, options.round)
    lines = faults(figures, figures["samples"])
    text = json.dumps(figures | {"faults": lines}, indent=1)
    if options.out is None:
        print(text)
    else:
        options.out.write_text(text + "\n")
    sys.exit("\n".join(lines) if lines else 0)


if __name__ == "__main__":
    main()
