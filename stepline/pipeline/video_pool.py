"""Several videos at the same time, each in a process of its own. What dies is replaced.

    with VideoPool(setup, size=4) as pool:
        for outcome in pool.run(find_sources(["films"], out, settings)):
            ...

Every process has its share of the cores, so that together they take no more than the machine has.
A video ends alone: by an error, or with its process.
"""

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from stepline.errors import SteplineError
from stepline.networks.device import core_count, cpu_threads, current_device
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.sources import VideoSource
from stepline.pipeline.video_messages import VideoOutcome, VideoWorkerReady, VideoWorkerSetup
from stepline.processes import kill_group, start_module, worker_variables

WORKER_BYTES = 2**30  # bytes of a process; 731 MB at most were measured with the default settings
MODEL_COPIES = 2  # times the size of a recogniser's file that it takes in memory, at most
POLL_SECONDS = 0.5  # s between two looks while no worker has news
END_SECONDS = 10.0  # s that workers have to clean up after an interrupt
CGROUP_FOLDER = Path("/sys/fs/cgroup")  # where a container sees what memory it may use


def machine_jobs(settings: StepsSettings) -> int:
    """Return how many videos this machine carries at the same time: each takes a core and memory.

    OMP_NUM_THREADS: cores that each takes instead. One where they would share a GPU, or a local
    language model.
    """
    # What cannot be shared between processes: a GPU, or a model that fills the memory.
    is_local_model = settings.vision.vlm.gguf is not None
    if settings.writing.writer == "llm":
        is_local_model = is_local_model or settings.writing.llm.gguf is not None
    if is_local_model or current_device().kind != "cpu":
        return 1
    by_cores = core_count()
    if os.environ.get("OMP_NUM_THREADS"):
        by_cores = core_count() // cpu_threads()
    by_memory = available_bytes() // video_bytes(settings)
    return max(1, min(by_cores, by_memory))


def video_bytes(settings: StepsSettings) -> int:
    """Return the memory that the main job takes on a video, with room to spare.

    A recogniser that the settings name is fetched here where it is missing, once for all processes.
    """
    if settings.asr.model is None or settings.asr.recogniser != "whisper":
        return WORKER_BYTES
    from stepline.speech.whisper import find_model

    # WORKER_BYTES was measured with the default model. A named one may be far larger.
    files = find_model(settings.asr.model).glob("*.bin")
    return WORKER_BYTES + MODEL_COPIES * sum(file.stat().st_size for file in files)


def available_bytes(cgroup: Path = CGROUP_FOLDER) -> int:
    """Return the memory that can still be used: of the machine, or of the container's limit.

    cgroup: folder of the container's numbers.
    """
    # A container's limit counts as well, and psutil reports the machine's memory.
    free = int(psutil.virtual_memory().available)
    limit, usage = (_cgroup_number(cgroup / f"memory.{name}") for name in ("max", "current"))
    if limit is None or usage is None:
        return free
    return min(free, max(0, limit - usage))


def _cgroup_number(file: Path) -> int | None:
    """Return the number in a file of a cgroup. None where it is "max" or missing."""
    text = file.read_text().strip() if file.is_file() else ""
    if text.isdecimal():
        return int(text)
    return None


class VideoWorker:
    """The parent's end of one worker process, with at most one video at a time."""

    def __init__(self, setup: VideoWorkerSetup, threads: int) -> None:
        self.source: VideoSource | None = None  # that it works on
        self.is_ready = False
        self.connection, child_end = Pipe()
        self._process = start_module(
            "stepline.pipeline.video_worker",
            [str(child_end.fileno())],
            stdout=subprocess.DEVNULL,
            variables=worker_variables(threads),
            pass_fds=(child_end.fileno(),),
        )
        # While this copy of the child's end is open, its death would go unnoticed.
        child_end.close()
        self._send(setup)

    @property
    def is_free(self) -> bool:
        """Whether it can take a video."""
        return self.is_ready and self.source is None

    def submit(self, source: VideoSource) -> None:
        """Give a video to a free worker."""
        self.source = source
        self._send(source)

    def receive(self) -> VideoOutcome | None:
        """Return what became of its video, where that is the news. Log what it logs.

        Raises SteplineError where the process cannot start.
        """
        try:
            message: object = self.connection.recv()
        except (EOFError, ConnectionResetError):
            return self._death()

        # an outcome, a line of its log, or that it is ready
        if isinstance(message, VideoOutcome):
            self.source = None
            return message
        if isinstance(message, logging.LogRecord):
            # Lines of several videos mix, so each names its own.
            if self.source is not None:
                message.msg = f"{self.source.label}: {message.msg}"
            logging.getLogger(message.name).handle(message)
        elif isinstance(message, VideoWorkerReady):
            self.is_ready = True
        return None

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def interrupt(self) -> None:
        """Ask the process to leave nothing half-written and end."""
        if self.is_ready and self.is_alive:
            self._process.send_signal(signal.SIGINT)

    def close(self, seconds: float = 0.0) -> None:
        """End the process and all it started, after some seconds at most."""
        self.connection.close()
        if self.is_ready:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
        kill_group(self._process)

    def _send(self, message: object) -> None:
        # one that has died is noticed at `receive`
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.send(message)

    def _death(self) -> VideoOutcome:
        """Return what a dead process means for its video."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # it closed its pipe and went on
            self._process.wait(END_SECONDS)
        kill_group(self._process)
        code = self._process.returncode
        if self.source is None:
            raise SteplineError(f"a worker process ended by itself (code {code}); try --jobs 1")
        end = f"signal {-code}" if code < 0 else f"code {code}"
        cure = "try it alone, or fewer --jobs where memory is short"
        error = SteplineError(f"{self.source.label}: its process was ended ({end}); {cure}")
        return VideoOutcome(self.source.label, error=error)


class VideoPool:
    """Worker processes that do the main job. Started when there is work for them."""

    def __init__(self, setup: VideoWorkerSetup, size: int) -> None:
        self._setup = setup
        self._size = size
        self._threads = max(1, core_count() // size)
        self._workers: list[VideoWorker] = []

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """End every process."""
        self.close()

    def run(self, sources: Sequence[VideoSource]) -> Iterator[VideoOutcome | None]:
        """Yield what became of each video, in the order in which they end. None now and then while
        there is no news.

        Raises SteplineError where no worker can start.
        """
        waiting = deque(sources)
        while waiting or any(worker.source for worker in self._workers):
            self._hand_out(waiting)
            connections = [worker.connection for worker in self._workers]
            # A worker that dies closes its end, which wakes this wait as a message does.
            news = wait(connections, POLL_SECONDS)
            if not news:
                yield None

            # news of those that work, and the end of those that died
            for worker in [*self._workers]:
                if worker.connection not in news:
                    continue
                outcome = worker.receive()
                if outcome is not None:
                    if worker.source is not None:  # it died with the video
                        self._workers.remove(worker)
                        worker.close()
                    yield outcome

    def _hand_out(self, waiting: deque[VideoSource]) -> None:
        """Give videos to free workers, and start more where there are too few."""
        # Free workers first: a new process has to load its networks.
        for worker in self._workers:
            if waiting and worker.is_free:
                worker.submit(waiting.popleft())
        # Those that still start will each take a video, so they count as workers to come.
        starting = sum(not worker.is_ready for worker in self._workers)
        useful = min(self._size - len(self._workers), len(waiting) - starting)
        for _ in range(useful):
            self._workers.append(VideoWorker(self._setup, self._threads))

    def close(self) -> None:
        """End every process. One that works on a video has some seconds to leave nothing
        half-written."""
        # All share one deadline, so that ten workers do not take ten times as long.
        end = time.monotonic() + END_SECONDS
        try:
            for worker in self._workers:
                if worker.source is not None:
                    worker.interrupt()
        finally:
            while self._workers:
                worker = self._workers.pop()
                worker.close(max(0.0, end - time.monotonic()))
