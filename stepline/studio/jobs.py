"""Jobs of a library: each video in a process of its own, kept in the store, so that a restart goes
on with them.

A job that ran when the server ended is begun again; what it had finished is found by the main job
itself. Of those that wait, the one of the highest priority comes first, then the oldest.
"""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from pydantic import JsonValue

from stepline.errors import StoreError, error_line
from stepline.limits import parse_json
from stepline.pipeline.request import StepsSettings
from stepline.studio.events import Broadcast
from stepline.studio.store import Job, JobState, Studio, video_id
from stepline.studio.worker import JobOptions, JobTask

log = logging.getLogger(__name__)

PAUSE = 5.0  # s until a job is tried again that the system had no room for
READING = 0.95  # of a job's work is done when its sound and picture are read; a rough share
LEAST = 0.02  # of it must be done until the rest is guessed
SAID = 400  # characters of a worker's last words


@dataclass
class RunningJob:
    """A job that runs. stages: how far each is, in seconds, and of how many."""

    id: int
    process: "subprocess.Popen[str]"
    begun: float = field(default_factory=time.monotonic)
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    records: list[str] = field(default_factory=list)
    error: str | None = None

    def told(self) -> dict[str, JsonValue]:
        """Return the stage that is furthest behind, the share of the job that is done, and the
        seconds left."""
        parts = {name: at / of if of else 0.0 for name, (at, of) in self.stages.items()}
        if not parts:
            return {"stage": None, "done": 0.0, "left_s": None}
        stage = min(parts, key=parts.__getitem__)
        done = READING * min(1.0, parts[stage])
        took = time.monotonic() - self.begun
        left = round(took * (1 - done) / done, 1) if done > LEAST else None
        return {"stage": stage, "done": round(done, 3), "left_s": left}


class JobRunner:
    """Runs the jobs of a library, so many at once, from `start` to `stop`. settings: of the main
    job."""

    def __init__(
        self,
        studio: Studio,
        broadcast: Broadcast,
        *,
        at_once: int = 1,
        settings: StepsSettings | None = None,
    ) -> None:
        self._studio, self._broadcast, self._at_once = studio, broadcast, at_once
        self._settings = settings or StepsSettings()
        self._running: dict[int, RunningJob] = {}
        self._changed = threading.Condition()
        self._stops = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Take up the jobs of the store."""
        for job in self._studio.jobs():
            self._studio.change_job(job.id, expected=("running",), state="waiting", begun=None)
        self._threads = [
            threading.Thread(target=self._work, name=f"job-{n}", daemon=True)
            for n in range(self._at_once)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the processes; their jobs are begun again by the next `start`."""
        with self._changed:
            self._stops = True
            for running in self._running.values():
                _kill(running.process)
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def add(self, source: str, options: JobOptions, priority: int = 0) -> Job:
        """Keep a job, and run it in its turn."""
        job = self._studio.add_job(source, options.model_dump(mode="json"), priority)
        self.wake(job.id)
        return job

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Have no job begin meanwhile."""
        with self._changed:
            yield

    def wake(self, id: int) -> None:
        """Have a job that came to the store looked at."""
        with self._changed:
            self._changed.notify_all()
        self._publish(id)

    def cancel(self, id: int) -> bool:
        """End a job that waits or runs, and tell whether it did."""
        now = time.time()
        cancelled = self._studio.change_job(
            id, expected=("waiting", "running"), state="cancelled", ended=now
        )
        with self._changed:
            if (running := self._running.get(id)) is not None:
                _kill(running.process)
        self._publish(id)
        return cancelled

    def retry(self, id: int) -> bool:
        """Have a job that ended wait again, and tell whether it had."""
        ended: tuple[JobState, ...] = ("done", "failed", "cancelled")
        again = self._studio.change_job(
            id, expected=ended, state="waiting", begun=None, ended=None, error=None
        )
        self.wake(id)
        return again

    def prioritise(self, id: int, priority: int) -> bool:
        """Change the priority of a job that waits, and tell whether it did."""
        changed = self._studio.change_job(id, expected=("waiting",), priority=priority)
        self._publish(id)
        return changed

    def told(self, job: Job) -> dict[str, JsonValue]:
        """Return a job as pages show it, with how far it is."""
        running = self._running.get(job.id)
        far: dict[str, JsonValue] = {
            "stage": None,
            "done": float(job.state == "done"),
            "left_s": None,
        }
        if running is not None and job.state == "running":
            far = running.told()
        return job.model_dump(mode="json") | far

    def _work(self) -> None:
        """Do one job after the other; where the system has no room for one, wait, and try that one
        again."""
        while not self._stops:
            job = None
            try:
                if (job := self._next()) is not None:
                    self._run(job)
            except (OSError, StoreError) as error:
                log.warning("jobs wait for %g s: %s", PAUSE, error)
                time.sleep(PAUSE)
                if job is not None:
                    # else the next start takes it up
                    with self._changed, contextlib.suppress(StoreError):
                        self._running.pop(job.id, None)
                        self._studio.change_job(
                            job.id, expected=("running",), state="waiting", begun=None
                        )

    def _next(self) -> Job | None:
        """Wait for the next job and mark it as running; None at the end."""
        with self._changed:
            while not self._stops:
                # in their turn
                waiting = [job for job in self._studio.jobs() if job.state == "waiting"]
                for job in waiting:
                    if job.id not in self._running and self._studio.change_job(
                        job.id, expected=("waiting",), state="running", begun=time.time()
                    ):
                        return job
                self._changed.wait()
        return None

    def _run(self, job: Job) -> None:
        options = JobOptions.model_validate_json(json.dumps(job.options))
        task = JobTask(
            source=job.source,
            out=str(self._studio.folder),
            options=options,
            settings=self._settings,
        )
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said,
            _start_worker(said) as process,
        ):
            running = RunningJob(job.id, process)
            with self._changed:
                self._running[job.id] = running
                # ended before it began
                if self._stops or self._studio.job(job.id).state != "running":
                    _kill(process)
            self._publish(job.id)
            with contextlib.suppress(BrokenPipeError):
                _give(process, task.model_dump_json())
            # What a worker started may outlive it, and hold its output open.
            threading.Thread(target=_end_group, args=(process,), daemon=True).start()
            for line in process.stdout or ():
                if line.endswith("\n"):  # one that a kill cut short tells nothing
                    self._take_line(running, parse_json(line))
            code = process.wait()
            if code and running.error is None:
                running.error = f"the worker ended with {_exit_words(code)}{_last_line(said)}"
        with self._changed:
            del self._running[job.id]
            stops = self._stops
        videos = [video_id(name) for name in running.records]
        for video in videos:
            with contextlib.suppress(LookupError):  # removed meanwhile
                revision = self._studio.card(video).revision
                self._studio.keep_video_event(video, revision)
                self._broadcast.publish("video", {"id": video, "revision": revision})
        if not (stops and code):
            state = "failed" if running.error is not None else "done"
            last = videos[-1] if videos else None
            self._studio.change_job(
                job.id,
                expected=("running",),
                state=state,
                ended=time.time(),
                error=running.error,
                video=last,
            )
        self._publish(job.id)

    def _take_line(self, running: RunningJob, line: dict[str, Any]) -> None:
        if "record" in line:
            running.records.append(line["record"])
            running.stages.clear()
        elif "error" in line:
            running.error = line["error"]
        else:
            running.stages[line["stage"]] = (line["second"], line["duration"])
            self._broadcast.publish("job", {"id": running.id, "state": "running"} | running.told())

    def _publish(self, id: int) -> None:
        told = self.told(self._studio.job(id))
        names = ("id", "state", "stage", "done", "left_s", "error", "video")
        self._broadcast.publish("job", {name: told[name] for name in names})


def _start_worker(said: IO[str]) -> "subprocess.Popen[str]":
    """Start a worker in a process group of its own, which what it starts belongs to."""
    return subprocess.Popen(
        [sys.executable, "-m", "stepline.studio.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=said,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )


def _give(process: "subprocess.Popen[str]", line: str) -> None:
    if process.stdin is None:
        raise StoreError("a worker without input; start it with a pipe")
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _kill(process: "subprocess.Popen[str]") -> None:
    """End a worker that has not ended, and with it what it started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


def _end_group(process: "subprocess.Popen[str]") -> None:
    """Wait for a worker's end, and end what it leaves behind."""
    process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)


def _exit_words(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _last_line(said: IO[str]) -> str:
    said.seek(0)
    lines = said.read().strip().splitlines()
    return f": {error_line(lines[-1])[:SAID]}" if lines else ""
