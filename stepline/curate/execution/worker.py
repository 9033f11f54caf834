"""What a worker process of curate does: tasks, each one stage of one video.

It reads what a task needs, runs the stage and stores the result, and keeps the models between
tasks. It may hang, crash or be killed: the pool waits for it no longer than its limits.
"""

import contextlib
import errno
import logging
import re
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, cast

from stepline.curate.plan import StageTask
from stepline.curate.stage import FailureKind, LeftOutError, Recipe, Stage, VideoContext
from stepline.curate.store.results import ResultStore
from stepline.errors import ModelError, SettingsError, SteplineError, first_line
from stepline.files.remote import RemotePath
from stepline.files.remote.retry import causes
from stepline.networks.device import current_device, is_gpu_error, set_device
from stepline.numeric import limit_blas_to_one_thread
from stepline.version import minor_version
from stepline.workers import Send

log = logging.getLogger(__name__)

ReplyKind = Literal["done", "run"] | FailureKind

DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
MAX_REASON_CHARS = 400
# Paths of two parts or more. Those of a URL stay.
PATH_PATTERN = re.compile(r"(?<![\w:/.<])(?:/[^\s/'\":;,()\[\]<>]+){2,}/?")
ADDRESS_PATTERN = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")  # of an object in memory


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker process gets at its start.

    Attributes:
        recipe: stages and settings.
        stages: the video stages by name.
        out: URL or path of the output folder of the run.
        folders: local result folders of finished dataset stages, by stage.
        device: torch device of the stages that use a GPU. All other stages run on the CPU.
        versions: "major.minor" versions of the driver's libraries, which the worker must have too.
    """

    recipe: Recipe
    stages: Mapping[str, Stage]
    out: str
    folders: Mapping[str, Path] = field(default_factory=dict)
    device: str = "cpu"
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskRequest:
    """A task for a worker process.

    Attributes:
        task: the stage and the video.
        files: local paths of the files that the stage reads, by kind: "media", "captions",
            "features".
        uses_gpu: whether the task runs on the GPU of the worker. False: on the CPU.
    """

    task: StageTask
    files: Mapping[str, Path] = field(default_factory=dict)
    uses_gpu: bool = False


@dataclass(frozen=True)
class TaskReply:
    """The outcome of a task in a worker process.

    Attributes:
        kind: "done" (the result is stored), "run" (the whole run must end) or the kind of failure.
        reason: error message in one line.
        cpu_seconds: CPU time of the task.
        wall_seconds: elapsed time of the task.
        peak_rss: peak memory of the process in bytes.
        result_bytes: size of the result.
        is_first_run: whether the process ran this stage for the first time, so that it loaded models.
        notes: further numbers for the log, by name.
    """

    kind: ReplyKind
    reason: str = ""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    peak_rss: int = 0
    result_bytes: int = 0
    is_first_run: bool = False
    notes: Mapping[str, float] = field(default_factory=dict)


def start_worker(
    setup: WorkerSetup,
    send: Send,  # noqa: ARG001
) -> Callable[[TaskRequest], TaskReply]:
    """Return the function that runs the tasks of this worker process.

    Args:
        setup: recipe, stages and output folder.
        send: sends a message to the parent process. It is not used.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's
    return TaskRunner(setup).run


class TaskRunner:
    """Runs tasks one after another in a worker process, and stores their results.

    setup: recipe, stages and output folder.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self._setup = setup
        self._results = ResultStore(RemotePath(setup.out, setup.recipe.remote), listed=False)
        self._loaded: set[str] = set()

    @limit_blas_to_one_thread()
    def run(self, request: TaskRequest) -> TaskReply:
        """Run a task, store its result, and return the outcome with its time and memory."""
        stage = self._setup.stages[request.task.stage]
        # Its cost includes the loading of models, which the log marks.
        first = stage.name not in self._loaded
        self._loaded.add(stage.name)
        reset_peak_memory()
        notes: dict[str, float] = {}
        cpu_start = time.process_time()
        wall_start = time.monotonic()
        reply = self._run_and_store(stage, request, notes)
        return replace(
            reply,
            cpu_seconds=time.process_time() - cpu_start,
            wall_seconds=time.monotonic() - wall_start,
            peak_rss=peak_memory(),
            is_first_run=first,
            notes=notes,
        )

    def _run_and_store(
        self, stage: Stage, request: TaskRequest, notes: dict[str, float]
    ) -> TaskReply:
        try:
            context = self._make_context(request, notes)
        # A lost GPU, a result that cannot be read: no fault of the video.
        except SteplineError as error:
            return TaskReply("run", " ".join(str(error).split()))
        kind, reason, data = try_stage(cast(Callable[[VideoContext], bytes], stage.run), context)
        if kind == "run":  # for the owner of the run, with all paths
            return TaskReply(kind, " ".join(reason.split()))
        if data is None:
            files = map(str, request.files.values())
            return TaskReply(kind, remove_paths_from_reason(reason, files, request.task.item.id))
        try:
            self._results.write_result(stage, request.task.key, data)
        except SteplineError as error:
            return TaskReply("run", str(error))
        return TaskReply("done", result_bytes=len(data))

    def _make_context(self, request: TaskRequest, notes: dict[str, float]) -> VideoContext:
        """Return the inputs of a task, and select its device.

        Raises SettingsError if the version of a library differs from that of the driver.

        Args:
            request: the task and its files.
            notes: dict to which the stage may add numbers for the log.
        """
        # This machine must compute what the driver has named.
        for library, version in self._setup.versions.items():
            installed = minor_version(library)
            if installed != version:
                raise SettingsError(
                    f"{socket.gethostname()} has {library} {installed or 'not at all'}, "
                    f"the driver {version or 'none'}; "
                    "install the same version on every machine"
                )
        set_device(self._setup.device if request.uses_gpu else "cpu")
        # What it needs: results from the store, and folders on this machine.
        results = {}
        for need, key in request.task.needs.items():
            if need in self._setup.stages:
                results[need] = self._results.read_result(self._setup.stages[need], key)
        return VideoContext(
            request.task.item,
            self._setup.recipe,
            **request.files,
            results=results,
            folders=self._setup.folders,
            notes=notes,
        )


def try_stage(
    run: Callable[[VideoContext], bytes], context: VideoContext
) -> tuple[ReplyKind, str, bytes | None]:
    """Run a stage for a video, and convert its errors to an outcome.

    Return (kind of outcome, error message, bytes of the result). The bytes are None after an error.

    Args:
        run: the function of the stage.
        context: its inputs.
    """
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
        return (
            "run",
            f"{run.__qualname__} gave {type(data).__name__}; a stage of kind video gives bytes",
            None,
        )
    return "done", "", data


def run_on_gpu_or_cpu(run: Callable[[VideoContext], bytes], context: VideoContext) -> bytes:
    """Run a stage for a video and return its result.

    If the GPU is lost or out of memory, the stage runs again on the CPU, and `context.notes` says
    so.
    """
    try:
        return run(context)
    except Exception as error:
        # Only a GPU that gave out is worth another try.
        if current_device().device_type == "cpu" or not any(map(is_gpu_error, causes(error))):
            raise
        what = "%s: done on the CPU, as the GPU gave out (%s)"
        log.warning(what, context.item.id, first_line(error))
    # Not while the error is held, whose frames hold what is on the GPU.
    set_device("cpu")
    context.notes["gpu_fallbacks"] = 1.0
    return run(context)


def disk_is_full(error: BaseException) -> bool:
    """Return whether a full disk caused an error."""
    return any(
        isinstance(cause, OSError) and cause.errno in DISK_FULL_ERRORS for cause in causes(error)
    )


def reset_peak_memory() -> None:
    """Reset the peak memory of this process, if the system allows it (Linux)."""
    # Some containers do not allow it. The peak is then that of the whole process.
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> int:
    """Return the peak memory of this process in bytes.

    On Linux, the peak is that since the last `reset_peak_memory`.
    """
    # The kernel's own peak, which is reset for each task.
    if sys.platform == "linux":
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_maxrss if sys.platform == "darwin" else usage.ru_maxrss * 1024


def remove_paths_from_reason(reason: str, files: Iterable[str], video_id: str) -> str:
    """Return an error message as one line without paths and memory addresses of this machine.

    Failure reasons are part of the dataset, so they must be equal on all machines.

    Args:
        reason: error message.
        files: paths of the files of the video, which are replaced by its id. All other paths become
            `(a path)`.
        video_id: id of the video.
    """
    # Longest first, since one path may begin with another.
    for name in sorted(files, key=len, reverse=True):
        reason = reason.replace(name, video_id)
    line = PATH_PATTERN.sub("(a path)", " ".join(reason.split()))
    line = ADDRESS_PATTERN.sub("0x...", line)
    return line if len(line) <= MAX_REASON_CHARS else line[:MAX_REASON_CHARS] + "..."
