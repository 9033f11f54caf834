"""The job queue of a library. Each job is the main job on a video, in a process of its own.

Jobs are stored in the database, so a restart continues them. A job that ran when the server ended
begins again, and the main job finds what was finished. The oldest job runs first.
"""

import contextlib
import json
import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pydantic import JsonValue, ValidationError

from stepline.errors import NotFoundError, SettingsError, StoreError, first_line, format_error_line
from stepline.files.digests import sha256
from stepline.files.remote.addresses import display_url
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.sources import VIDEO_SUFFIXES, is_link
from stepline.records import Span
from stepline.studio.events import Broadcast
from stepline.studio.store import Job, Studio
from stepline.studio.worker import (
    FinishedRecord,
    JobOptions,
    JobTask,
    StageProgress,
    heard_languages,
)
from stepline.workers import Reply, WorkerDeath, WorkerProcess

log = logging.getLogger(__name__)

RETRY_SECONDS = 5.0  # s before the next try of a job that the system had no room for
READING_SHARE = 0.95  # of a job is done when its sound and picture are read. A rough guess
MIN_SHARE_DONE = 0.02  # of a job, before the time that is left is estimated
PUBLISHED_FIELDS = {"id", "state", "stage", "done", "left_s", "error", "video"}

WORKER = "stepline.studio.worker:start_worker"


class JobStatus(Job):
    """A job with its progress.

    Attributes:
        stage: the stage with the smallest done fraction of the video. None before the first.
        done: the fraction of the job that is done, in [0, 1].
        left_s: estimated time left in seconds. None while it is too early to estimate.
    """

    stage: str | None = None
    done: float
    left_s: float | None = None


@dataclass
class RunningJob:
    """A job that runs now in a worker process.

    Attributes:
        id: the id of the job.
        worker: the worker process.
        start_time: time of the start, in seconds of the monotonic clock.
        stage_progress: stage name -> (second of the video that was reached, duration of the video in s).
        record_names: file names of the records that the job wrote.
        error: why the job failed. None if it has not failed.
    """

    id: int
    worker: WorkerProcess
    start_time: float = field(default_factory=time.monotonic)
    stage_progress: dict[str, tuple[float, float]] = field(default_factory=dict)
    record_names: list[str] = field(default_factory=list)
    error: str | None = None

    def progress(self) -> dict[str, JsonValue]:
        """Return the progress, as the fields stage, done and left_s of JobStatus."""
        # Sound and picture are read side by side, and the job is as far as the one behind.
        shares = {
            name: second / seconds if seconds else 0.0
            for name, (second, seconds) in self.stage_progress.items()
        }
        if not shares:
            return {"stage": None, "done": 0.0, "left_s": None}
        stage = min(shares, key=shares.__getitem__)
        share = READING_SHARE * min(1.0, shares[stage])
        # Too early, an estimate would jump about.
        seconds_left = None
        if share > MIN_SHARE_DONE:
            seconds_left = round((time.monotonic() - self.start_time) * (1 - share) / share, 1)
        return {"stage": stage, "done": round(share, 3), "left_s": seconds_left}


class JobRunner:
    """Runs the jobs of a library, between the calls of `start` and `stop`.

    Attributes:
        settings: settings of all stages of finding steps.

    Attributes:
        settings: the same, or the defaults.
    """

    def __init__(
        self,
        studio: Studio,
        broadcast: Broadcast,
        *,
        at_once: int = 1,
        settings: StepsSettings | None = None,
    ) -> None:
        """Start no job yet.

        Args:
            studio: the library.
            broadcast: receives the progress of the jobs.
            at_once: number of jobs that run at the same time.
            settings: settings of all stages of finding steps. None: the defaults.
        """
        self._studio = studio
        self._jobs = studio.jobs
        self._broadcast = broadcast
        self.settings = settings or StepsSettings()
        self._running: dict[int, RunningJob] = {}
        self._changed = threading.Condition()
        self._is_stopping = False
        self._threads = [
            threading.Thread(target=self._run_jobs, name=f"job-{number}", daemon=True)
            for number in range(at_once)
        ]

    def start(self) -> None:
        """Start the threads. They run the jobs that wait in the database."""
        # Jobs that ran when the last server ended or was killed.
        for job in self._jobs.list_in_state("running"):
            self._requeue(job)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Kill the processes. The next `start` begins their jobs again."""
        with self._changed:
            self._is_stopping = True
            for running in self._running.values():
                running.worker.kill()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def add(self, source: str, options: JobOptions) -> Job:
        """Add a job to the queue, and return the job.

        Args:
            source: path or http(s) address of the video.
            options: options of the job.
        """
        job = self._jobs.add(source, options.model_dump(mode="json"))
        self.notify(job.id)
        return job

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Start no job inside this context."""
        # `_take_next_job` needs the same lock to take a job.
        with self._changed:
            yield

    def notify(self, id: int) -> None:
        """Wake a waiting thread after a job was added to the database."""
        with self._changed:
            self._changed.notify_all()
        self._publish(id)

    def cancel(self, id: int) -> bool:
        """Cancel a job that waits or runs. Return whether it did."""
        # The state first: a job that is about to start sees it, and one that runs is killed.
        is_cancelled = self._jobs.change(
            id, expected=("waiting", "running"), state="cancelled", ended=time.time()
        )
        # Its process may be there already.
        with self._changed:
            if id in self._running:
                self._running[id].worker.kill()
        self._publish(id)
        return is_cancelled

    def retry(self, id: int) -> bool:
        """Queue a job that has ended again. Return whether it had ended."""
        is_waiting = self._jobs.change(
            id,
            expected=("done", "failed", "cancelled"),
            state="waiting",
            begun=None,
            ended=None,
            error=None,
        )
        self.notify(id)
        return is_waiting

    def status(self, job: Job) -> JobStatus:
        """Return a job with its progress."""
        running = self._running.get(job.id)
        progress: dict[str, JsonValue] = {"done": float(job.state == "done")}
        if running is not None and job.state == "running":
            progress = running.progress()
        # A link may hold a password or a signature, which stay in the database.
        source = display_url(job.source) if is_link(job.source) else job.source
        return JobStatus(**dict(job) | {"source": source} | progress)

    def _requeue(self, job: Job) -> None:
        self._jobs.change(job.id, expected=("running",), state="waiting", begun=None)

    def _run_jobs(self) -> None:
        """Run jobs one after another. A job for which the system has no room is tried again."""
        while not self._is_stopping:
            job = None
            try:
                job = self._take_next_job()
                if job is not None:
                    self._run_job(job)
            except (LookupError, OSError, StoreError) as error:
                # A cancelled job may be removed before its process has ended.
                if not isinstance(error, LookupError):
                    log.warning("jobs wait for %g s: %s", RETRY_SECONDS, error)
                    time.sleep(RETRY_SECONDS)
                if job is not None:
                    # Where the database cannot be written either, the next start puts it back.
                    with self._changed, contextlib.suppress(StoreError):
                        self._running.pop(job.id, None)
                        self._requeue(job)

    def _take_next_job(self) -> Job | None:
        """Wait for a job and mark it as running. None when the runner stops."""
        with self._changed:
            while not self._is_stopping:
                # Those that run may have been put back, and wait until their processes end.
                for job in self._jobs.list_in_state("waiting", len(self._running) + 1):
                    if job.id in self._running:
                        continue
                    if self._jobs.change(
                        job.id, expected=("waiting",), state="running", begun=time.time()
                    ):
                        return job
                self._changed.wait()
        return None

    def _make_task(self, job: Job) -> JobTask:
        """Return the task of a worker for a job.

        The job comes from a file that may be a stranger's. Raises StoreError if its paths are not
        allowed, ValidationError if its options are not valid.
        """
        library = self._studio.library
        # A row is read as strictly as a request, since the library may be a stranger's.
        options = JobOptions.model_validate_json(json.dumps(job.options))
        source = job.source
        allowed = library.allowed
        title = part = origin = None
        if options.video is not None:
            record = library.record(options.video)
            video = record.video
            origin = video.origin
            # What the user gave with the video holds for every reading of it.
            if video.title_source == "user":
                title = video.title
            match record.settings:
                case {"inputs": {"part": [float(start), float(end)]}}:
                    part = Span(start, end)
            # The file of a record may lie elsewhere, as its pages show.
            path = Path(source)
            with contextlib.suppress(OSError):
                if path.suffix.lower() in VIDEO_SUFFIXES and sha256(path) == video.sha256:
                    allowed += (path,)
        if not is_link(source) and Path(source) not in allowed:
            source = str(library.resolve_allowed(Path(source)))
        return JobTask(
            source=source,
            out=str(library.folder),
            allowed_folders=tuple(map(str, allowed)),
            origin=origin,
            title=title,
            part=part,
            options=resolve_job_options(library, options, self.settings),
            settings=self.settings,
        )

    def _run_job(self, job: Job) -> None:
        try:
            task = self._make_task(job)
        except (SettingsError, StoreError, NotFoundError, ValidationError) as error:
            self._jobs.change(
                job.id,
                expected=("running",),
                state="failed",
                ended=time.time(),
                error=format_error_line(first_line(error)),
            )
            self._publish(job.id)
            return
        with contextlib.closing(WorkerProcess(WORKER)) as worker:
            running = RunningJob(job.id, worker)
            with self._changed:
                self._running[job.id] = running
                # It may have been cancelled before its process began.
                if self._is_stopping or self._jobs.get(job.id).state != "running":
                    worker.kill()
            self._publish(job.id)
            end = worker.run(task, on_message=partial(self._handle_message, running))
        running.error = (
            end.value if isinstance(end, Reply) else f"the worker ended with {end.message}"
        )
        with self._changed:
            del self._running[job.id]
            is_stopping = self._is_stopping
        self._finish(running, is_killed=is_stopping and isinstance(end, WorkerDeath))

    def _handle_message(self, running: RunningJob, message: object) -> None:
        if isinstance(message, FinishedRecord):
            # A playlist has several videos, and each begins with its first stage again.
            running.record_names.append(message.name)
            running.stage_progress.clear()
        elif isinstance(message, StageProgress):
            running.stage_progress[message.stage] = (message.second, message.duration)
            state = {"id": running.id, "state": "running"}
            self._broadcast.publish("job", state | running.progress())

    def _finish(self, running: RunningJob, *, is_killed: bool) -> None:
        """Publish the videos of a job and store how it ended. A killed job begins again later."""
        # videos that were finished count, also of a job that failed
        videos = [video_id(name) for name in running.record_names]
        for video in videos:
            with contextlib.suppress(LookupError):  # its record was removed since
                revision = self._studio.library.card(video).revision
                self._studio.events.store_video_event(video, revision)
                self._broadcast.publish("video", {"id": video, "revision": revision})
        if not is_killed:
            self._jobs.change(
                running.id,
                expected=("running",),
                state="done" if running.error is None else "failed",
                ended=time.time(),
                error=running.error,
                video=videos[-1] if videos else None,
            )
        self._publish(running.id)

    def _publish(self, id: int) -> None:
        status = self.status(self._jobs.get(id))
        # The pages get the fields that change while a job runs, not its options.
        self._broadcast.publish("job", status.model_dump(mode="json", include=PUBLISHED_FIELDS))


def resolve_job_options(
    library: CorrectedLibrary, options: JobOptions, settings: StepsSettings
) -> JobOptions:
    """Return the options with an absolute path of the captions.

    Raises StoreError if it is not allowed, SettingsError for a language that no recogniser hears.
    """
    if options.captions is None:
        if options.language not in (None, *heard_languages(settings.asr)):
            raise SettingsError(
                f"options.language: no recogniser here hears {options.language!r}; "
                "take one of GET /api/choices"
            )
        return options
    captions = library.resolve_allowed(Path(options.captions))
    return options.model_copy(update={"captions": str(captions)})
