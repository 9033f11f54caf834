"""Several videos at the same time, each in a process of its own. What dies is replaced.

    with VideoPool(setup, size=4) as pool:
        for outcome in pool.run(find_sources(["films"], out, settings)):
            ...

Every process has its share of the cores, so that together they take no more than the machine has.
A video ends alone: by an error, or with its process.
"""

import faulthandler
import logging
import os
import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import psutil

from stepline.errors import SteplineError, error_line
from stepline.networks.device import (
    ComputeType,
    core_count,
    cpu_threads,
    current_device,
    set_device,
)
from stepline.pipeline.batch import VideoResult, run_video
from stepline.pipeline.networks import load_networks
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.sources import VideoSource
from stepline.processes import worker_variables
from stepline.workers import Reply, Send, WorkerDeath, WorkerPool, WorkerProcess

WORKER_BYTES = 2**30  # bytes of a process; 731 MB at most were measured with the default settings
MODEL_COPIES = 2  # times the size of a recogniser's file that it takes in memory, at most
POLL_SECONDS = 0.5  # s between two looks while no worker has news
END_SECONDS = 10.0  # s that workers have to clean up after an interrupt
CGROUP_FOLDER = Path("/sys/fs/cgroup")  # where a container sees what memory it may use
LOGGER_NAMES = ("", "faster_whisper")  # whose levels a worker has from the process that started it


@dataclass(frozen=True)
class VideoWorkerSetup:
    """What the main job does with every video.

    Args:
        request_parts: arguments of `VideoSource.open`.
        device: as of `set_device`.
        compute: as of `set_device`.
        log_levels: of `LOGGER_NAMES`.
    """

    settings: StepsSettings
    output: OutputOptions
    request_parts: Mapping[str, Any]
    device: str = "auto"
    compute: ComputeType = "auto"
    log_levels: tuple[int, ...] = (logging.WARNING, logging.ERROR)


@dataclass(frozen=True)
class VideoOutcome:
    """The result of a video, or the error that ended it. label: what messages call the video."""

    label: str
    result: VideoResult | None = None
    error: Exception | None = None


def machine_jobs(settings: StepsSettings) -> int:
    """Return how many videos this machine carries at the same time: each takes a core and memory.

    OMP_NUM_THREADS: cores that each takes instead. One where they would share a GPU, or a local
    language model.
    """
    # What cannot be shared between processes: a GPU, or a model that fills the memory.
    has_local_writer = settings.writing.writer == "llm" and settings.writing.llm.gguf is not None
    is_local_model = has_local_writer or settings.vision.vlm.gguf is not None
    if is_local_model or current_device().kind != "cpu":
        return 1
    cores_per_video = cpu_threads() if os.environ.get("OMP_NUM_THREADS") else 1
    by_memory = available_bytes() // video_bytes(settings)
    return max(1, min(core_count() // cores_per_video, by_memory))


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
    return int(text) if text.isdecimal() else None


class VideoPool(WorkerPool[WorkerProcess]):
    """Worker processes that do the main job, at most `size`."""

    def __init__(self, setup: VideoWorkerSetup, size: int) -> None:
        variables = worker_variables(max(1, core_count() // size))

        def start(_: int) -> WorkerProcess:
            target = f"{__name__}:start_worker"
            return WorkerProcess(target, setup, variables=variables, show_output=True)

        super().__init__(start, size, END_SECONDS)

    def run(self, sources: Sequence[VideoSource]) -> Iterator[VideoOutcome | None]:
        """Yield the outcome of each video, in the order in which they end. None now and then while
        there is no news.

        Raises SteplineError where no worker can start.
        """
        waiting = deque(sources)
        while waiting or any(worker.is_busy for worker in self.workers):
            # Free workers first: a new process has to load its networks.
            for worker in self.workers:
                if waiting and worker.is_free:
                    worker.submit(waiting.popleft())
            # Those that still start will each take a video, so they count as workers to come.
            starting = sum(not worker.is_ready for worker in self.workers)
            self.grow(len(self.workers) + len(waiting) - starting)
            for worker, message in self.wait(POLL_SECONDS):
                outcome = self._outcome(worker, message)
                if outcome is not None:
                    yield outcome
            yield None

    def _outcome(self, worker: WorkerProcess, message: object) -> VideoOutcome | None:
        """Return the outcome of a worker's video, where that is the message. Log what it logs."""
        source: VideoSource | None = worker.task if worker.is_busy else None
        if isinstance(message, Reply):
            outcome: VideoOutcome = message.value
            return outcome
        if isinstance(message, logging.LogRecord):
            # Lines of several videos mix, so each names its own.
            if source is not None:
                message.msg = f"{source.label}: {message.msg}"
            logging.getLogger(message.name).handle(message)
        if isinstance(message, WorkerDeath):
            if source is None:
                what = f"a worker process ended by itself ({message.cause})"
                raise SteplineError(f"{what}; try --jobs 1")
            self.workers.remove(worker)
            worker.close()
            what = f"{source.label}: its process was ended ({message.cause})"
            cure = "try it alone, or fewer --jobs where memory is short"
            return VideoOutcome(source.label, error=SteplineError(f"{what}; {cure}"))
        return None


class MessageHandler(QueueHandler):
    """Sends log records to the parent of this worker process."""

    def __init__(self, send: Send) -> None:
        super().__init__(SimpleQueue())
        self._send = send

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a log record."""
        self._send(record)


def start_worker(setup: VideoWorkerSetup, send: Send) -> Callable[[VideoSource], VideoOutcome]:
    """Load the networks in a worker process, and return what does the main job on a video."""
    faulthandler.enable()
    logging.basicConfig(handlers=[MessageHandler(send)])
    for name, level in zip(LOGGER_NAMES, setup.log_levels, strict=True):
        logging.getLogger(name).setLevel(level)
    set_device(setup.device, setup.compute)
    networks = load_networks(setup.settings, several=True)

    def run(source: VideoSource) -> VideoOutcome:
        try:
            opened = source.open(setup.output.out, setup.settings, **setup.request_parts)
            with opened as request:
                result = run_video(request, setup.settings, setup.output, networks=networks)
        except Exception as error:  # noqa: BLE001   sent to the parent, which prints it
            return VideoOutcome(source.label, error=portable_error(error))
        return VideoOutcome(source.label, result)

    return run


def portable_error(error: Exception) -> Exception:
    """Return the error as it can be sent to another process, its trace in a note. Where it cannot
    be, return a RuntimeError with its name and words."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    try:
        # An error that cannot be copied would break the pipe, so it is tried here.
        copy: object = pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001   whatever a library's own error does when it is copied
        copy = None
    if not isinstance(copy, Exception):
        copy = RuntimeError(error_line(f"{type(error).__name__}: {error}"))
    copy.add_note(trace)
    return copy
