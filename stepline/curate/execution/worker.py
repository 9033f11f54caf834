"""The process that does tasks: `python -m stepline.curate.execution.worker FD`, started by
the pool.

It reads what a task needs, runs the stage and stores the result. It holds models between tasks and
dies with its parent. It may itself hang, crash or be killed: the pool waits for it no longer than
its limits.
"""

import errno
import faulthandler
import logging
import pickle
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from stepline.curate.execution.gpu_usage import GpuUsage
from stepline.curate.execution.messages import (
    ReplyKind,
    TaskReply,
    TaskRequest,
    WorkerReady,
    WorkerSetup,
    portable_reason,
)
from stepline.curate.stage import LeftOutError, Stage, VideoContext
from stepline.curate.store.results import ResultStore
from stepline.errors import ModelError, SettingsError, SteplineError, first_line
from stepline.files.remote import RemotePath
from stepline.files.remote.retry import causes
from stepline.networks.device import current_device, is_gpu_error, set_device
from stepline.numeric import one_blas_thread
from stepline.version import minor_version

log = logging.getLogger(__name__)

DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def main(pipe: int) -> None:
    """Do the tasks that come through a pipe until it ends."""
    began = time.monotonic()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    connection = Connection(pipe)
    try:
        runner = TaskRunner(pickle.loads(connection.recv_bytes()))
        # The parent waits for this message before it sends tasks.
        connection.send(WorkerReady(time.monotonic() - began, time.process_time()))
        while True:
            connection.send(runner.run(connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


class TaskRunner:
    """Does one task after another, and remembers which stages have loaded their models."""

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._results = ResultStore(RemotePath(setup.out, setup.recipe.remote))
        self._loaded: set[str] = set()
        self._usage: GpuUsage | None = None
        if setup.device.startswith("cuda"):
            self._usage = GpuUsage(setup.device)

    @one_blas_thread()
    def run(self, requests: Sequence[TaskRequest]) -> list[TaskReply]:
        """Return what became of each of some tasks of one stage, whose results are stored where it
        went well.

        Each has an equal share of the time that they took together.
        """
        stage = self._setup.stages[requests[0].task.stage]
        # Its cost includes the loading of models, which the log marks.
        first = stage.name not in self._loaded
        self._loaded.add(stage.name)
        reset_peak_memory()
        notes: list[dict[str, float]] = [{} for _ in requests]
        cpu = time.process_time()
        wall = time.monotonic()
        results = self._run_many(stage, requests, notes)
        replies = []
        for request, note, result in zip(requests, notes, results, strict=True):
            replies.append(self._store_result(stage, request, note, result))
        cpu = (time.process_time() - cpu) / len(requests)
        wall = (time.monotonic() - wall) / len(requests)

        # What it took, in equal shares.
        if requests[0].gpu and self._usage is not None:
            notes[0] |= self._usage.take()
        memory = peak_memory()
        measured_replies = []
        for reply, note in zip(replies, notes, strict=True):
            measured_replies.append(
                replace(reply, cpu=cpu, wall=wall, peak_rss=memory, first=first, notes=note)
            )
        return measured_replies

    def _run_many(
        self, stage: Stage, requests: Sequence[TaskRequest], notes: Sequence[dict[str, float]]
    ) -> Sequence[bytes | None]:
        """Return what a stage makes of several videos together. None for each that is to be done by
        itself.

        That is all of them where one fails, so that each fails or succeeds alone.
        """
        if len(requests) > 1 and stage.run_many is not None:
            try:
                pairs = zip(requests, notes, strict=True)
                contexts = [self._context(request, note) for request, note in pairs]
                return stage.run_many(contexts)
            # Whatever it is, the video that has it raises it again.
            except Exception as error:  # noqa: BLE001
                log.warning("%s: each by itself (%s)", stage.name, first_line(error))
            for note in notes:
                note.clear()
        return [None] * len(requests)

    def _store_result(
        self, stage: Stage, request: TaskRequest, notes: dict[str, float], data: bytes | None
    ) -> TaskReply:
        """Return what became of a task. data: the result, where it is there."""
        if data is None:
            # Results that came together are stored one by one, and others are made now.
            kind, reason, data = self._run(stage, request, notes)
        if data is not None:
            try:
                self._results.write(stage, request.task.key, data)
            except SteplineError as error:
                return TaskReply("run", str(error))
            return TaskReply("done", bytes=len(data))
        if kind == "run":  # for the owner of the run, with all paths
            one_line = " ".join(reason.split())
            return TaskReply(kind, one_line)
        files = map(str, request.files.values())
        own_reason = portable_reason(reason, files, request.task.item.id)
        return TaskReply(kind, own_reason)

    def _run(
        self, stage: Stage, request: TaskRequest, notes: dict[str, float]
    ) -> tuple[ReplyKind, str, bytes | None]:
        """Return the bytes that a stage makes of a task's video, or how it failed and why."""
        try:
            context = self._context(request, notes)
        # A lost GPU, a result that cannot be read: no fault of the video.
        except SteplineError as error:
            return "run", str(error), None
        run = cast(Callable[[VideoContext], bytes], stage.run)
        return try_stage(run, context)

    def _check_versions(self) -> None:
        """Raise SettingsError where this machine would compute something else than the driver has
        named."""
        for library, version in self._setup.versions.items():
            installed = minor_version(library)
            if installed != version:
                here = f"{socket.gethostname()} has {library} {installed or 'not at all'}"
                what = f"{here}, the driver {version or 'none'}"
                raise SettingsError(f"{what}; install the same version on every machine")

    def _context(self, request: TaskRequest, notes: dict[str, float]) -> VideoContext:
        """Return what the stage gets, once this process is on the device of the task. Raises
        SteplineError."""
        self._check_versions()
        device = "cpu"
        if request.gpu:
            device = self._setup.device
        set_device(device)
        results = {}
        folders = {}
        # What it needs: results from the store, and folders on this machine.
        for need, key in request.task.needs.items():
            if need in self._setup.stages:
                stage = self._setup.stages[need]
                results[need] = self._results.read(stage, key)
            if need in self._setup.folders:
                folders[need] = self._setup.folders[need]
        return VideoContext(
            request.task.item,
            self._setup.recipe,
            **request.files,
            results=results,
            folders=folders,
            notes=notes,
        )


def try_stage(
    run: Callable[[VideoContext], bytes], context: VideoContext
) -> tuple[ReplyKind, str, bytes | None]:
    """Return the bytes that a stage makes of a video, or how it failed and why."""
    try:
        data = run_on_gpu_or_cpu(run, context)
    except LeftOutError as error:
        return "left out", str(error), None
    # No fault of the video: each would fail alike.
    except (SettingsError, ModelError, ImportError) as error:
        return "run", str(error), None
    except MemoryError:
        return "memory", "there was no memory for it", None
    # A video may break anything. Its reason is kept and the run goes on.
    except Exception as error:  # noqa: BLE001
        if disk_is_full(error):
            return "run", f"{error}; free some space", None
        if isinstance(error, SteplineError):
            return "error", str(error), None
        return "error", f"{type(error).__name__}: {error}", None
    if not isinstance(data, bytes):
        what = f"{run.__qualname__} gave {type(data).__name__}"
        return "run", f"{what}; a stage of kind video gives bytes", None
    return "done", "", data


def run_on_gpu_or_cpu(run: Callable[[VideoContext], bytes], context: VideoContext) -> bytes:
    """Return what a stage makes of a video: on the CPU where its GPU is short of memory or lost,
    which a note records."""
    try:
        return run(context)
    except Exception as error:
        # Only a GPU that gave out is worth another try.
        lost_gpu = any(map(is_gpu_error, causes(error)))
        if current_device().kind == "cpu" or not lost_gpu:
            raise
        what = "%s: done on the CPU, as the GPU gave out (%s)"
        log.warning(what, context.item.id, first_line(error))
    # Not while the error is held, whose frames hold what is on the GPU.
    set_device("cpu")
    context.notes["gpu_fallbacks"] = 1.0
    return run(context)


def disk_is_full(error: BaseException) -> bool:
    """Return whether a full disk is behind an error."""
    for cause in causes(error):
        number = getattr(cause, "errno", None)
        if isinstance(cause, OSError) and number in DISK_FULL_ERRORS:
            return True
    return False


def reset_peak_memory() -> None:
    """Start again to measure the peak of memory, where the system can (Linux)."""
    if sys.platform == "linux":
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:  # not allowed in some containers; the peak is then the process's
            return


def peak_memory() -> int:
    """Return the most bytes of main memory held since `reset_peak_memory`, which psutil does not
    know."""
    # The kernel's own peak, which is reset for each task.
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    usage = resource.getrusage(resource.RUSAGE_SELF)
    if sys.platform == "darwin":
        return usage.ru_maxrss
    return usage.ru_maxrss * 1024


if __name__ == "__main__":
    main(int(sys.argv[1]))
