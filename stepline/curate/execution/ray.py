"""The Ray engine: the videos of a run spread over the actors of a cluster.

Each actor has a scheduler and a worker process of the kind that the local engine has. So a video
that hangs or crashes takes no actor with it. Results go to OUT, which every node must
reach. What the engine is leaves no trace in a dataset.

The driver gives each actor a few videos at a time. Items and outcomes travel inside the call, a few
hundred bytes each. So Ray's object store stays empty. Results go to OUT. Videos whose actor is lost
are given to another one, which finds there what was finished of them.
"""

import contextlib
import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

from stepline.curate.execution.local import scratch_folder
from stepline.curate.execution.scheduler import FinishedVideo, Phase, Scheduler, VideoInProgress
from stepline.curate.execution.worker import MAX_REASON_CHARS
from stepline.curate.plan import Plan
from stepline.curate.stage import VideoItem
from stepline.curate.store.results import ResultStore, remove_partials
from stepline.curate.store.run_log import RunLog
from stepline.errors import ModelError, SettingsError, SteplineError, first_line
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import BYTES_PER_MIB
from stepline.networks.device import core_count
from stepline.processes import end_with_parent, import_folders, set_variables

MAX_FAILED_STARTS = 5  # actors in a row that may end before they are ready
MAX_LOSSES = 10  # actors that may be lost with the same video before the run ends
END_SECONDS = 10.0  # to wait for actors that end their workers and their log


def last_error_line(error: Exception) -> str:
    """Return the last line of an error of Ray, which names the cause. "" without a message."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip()[:MAX_REASON_CHARS] if lines else ""


class Actor:
    """Ray actor that runs video stages in its own worker process.

    Args:
        plan: stages, settings and keys.
        url: URL or path of the output folder of the run.
        stages: names of the stages to run.
        retry: whether failed tasks are tried again.
        device: torch device of the stages that use a GPU. None: all stages run on the CPU.
    """

    def __init__(
        self, plan: Plan, url: str, stages: tuple[str, ...], retry: bool, device: str | None = None
    ) -> None:
        # The node's own process. One that Ray forgets would go on for a while.
        end_with_parent(os.getppid())
        self._until_end = contextlib.ExitStack()
        out = RemotePath(url, plan.recipe.remote)
        scratch = self._until_end.enter_context(scratch_folder())
        run_log = self._until_end.enter_context(contextlib.closing(RunLog(out)))
        self._finished: list[FinishedVideo] = []
        # Results that other actors write are not in a listing made here.
        phase = Phase(plan, ResultStore(out, listed=False), stages, retry, self._finished.append)
        self._scheduler = Scheduler(phase, 1, scratch, run_log, [device] if device else [])
        self._until_end.callback(self._scheduler.close)

    def is_ready(self) -> bool:
        """Return True. A call returns once the actor has started."""
        return True

    def run_videos(self, items: list[VideoItem]) -> list[FinishedVideo]:
        """Run all stages of some videos and return each with its first failure.

        Raises SteplineError if the run cannot continue.
        """
        self._finished.clear()
        self._scheduler.run(items)
        return list(self._finished)

    def close(self) -> None:
        """End the worker process and close the log."""
        self._until_end.close()


class ActorGroup:
    """Starts the Ray actors of a run and assigns videos to them.

    Args:
        ray: the module `ray`, connected to a cluster.
        start: starts an actor and returns its handle.
        max_actors: maximal number of actors.
        videos_per_call: number of videos that are sent to an actor in one call.
    """

    def __init__(
        self, ray: Any, start: Callable[[], Any], *, max_actors: int, videos_per_call: int
    ) -> None:
        self._ray = ray
        self._start = start
        self._max_actors = max_actors
        self._videos_per_call = videos_per_call
        self._actors: set[Any] = set()
        self._idle: list[Any] = []
        self._waiting: deque[list[VideoItem]] = deque()
        # By Ray's reference: the actor and its videos, none while it starts.
        self._calls: dict[Any, tuple[Any, list[VideoItem]]] = {}
        self._failed_starts = 0
        self._losses: Counter[str] = Counter()  # by id of the video

    def finished_videos(self, items: Iterator[VideoItem]) -> Iterator[FinishedVideo]:
        """Yield videos as actors finish them.

        Only the videos that actors work on are in memory. The videos of a lost actor are given to
        another.

        Raises SteplineError if the run cannot continue.
        """
        more = True
        while more or self._calls or self._waiting:
            # As many videos as there are actors for, and as many actors as there are videos for.
            while more and len(self._waiting) < self._max_actors:
                videos = list(islice(items, self._videos_per_call))
                more = len(videos) == self._videos_per_call
                if videos:
                    self._waiting.append(videos)
            while self._waiting and self._idle:
                actor, videos = self._idle.pop(), self._waiting.popleft()
                self._calls[actor.run_videos.remote(videos)] = (actor, videos)
            busy = sum(bool(videos) for _, videos in self._calls.values())
            while len(self._actors) < min(self._max_actors, busy + len(self._waiting)):
                actor = self._start()
                self._actors.add(actor)
                self._calls[actor.is_ready.remote()] = (actor, [])
            if self._calls:
                replied, _ = self._ray.wait(list(self._calls))
                for call in replied:
                    yield from self._handle_reply(call)

    def close(self) -> None:
        """End all actors."""
        # What they write at their end is worth a short wait.
        calls = [actor.close.remote() for actor in self._actors]
        if calls:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.wait(calls, num_returns=len(calls), timeout=END_SECONDS)
        for actor in self._actors:
            self._ray.kill(actor)

    def _handle_reply(self, call: Any) -> list[FinishedVideo]:
        """Return the videos that an actor has finished.

        call: Ray's reference to a call of the actor that has ended.
        """
        actor, videos = self._calls.pop(call)
        try:
            reply = self._ray.get(call)
        except self._ray.exceptions.RayActorError as error:
            self._drop_lost_actor(actor, videos, last_error_line(error))
            return []
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, SteplineError):
                raise SteplineError(str(error.cause)) from error
            raise
        self._idle.append(actor)
        if videos:
            return list(reply)
        self._failed_starts = 0
        return []

    def _drop_lost_actor(self, actor: Any, videos: list[VideoItem], reason: str) -> None:
        """Kill an actor that is lost, and queue its videos again.

        Raises SteplineError if too many actors were lost at their start, or with the same video.

        Args:
            actor: handle of the actor.
            videos: the videos that it worked on. Empty if it was starting.
            reason: error message, for the exception.
        """
        self._actors.remove(actor)
        self._ray.kill(actor)
        if not videos:
            self._failed_starts += 1
            if self._failed_starts == MAX_FAILED_STARTS:
                raise SteplineError(
                    f"{MAX_FAILED_STARTS} actors in a row did not start"
                    f", the last one: {reason}; see Ray's log"
                )
            return
        # Another actor does them, before the rest.
        self._waiting.appendleft(videos)
        for video in videos:
            self._losses[video.id] += 1
            if self._losses[video.id] == MAX_LOSSES:
                raise SteplineError(
                    f"{video.id}: {MAX_LOSSES} actors were lost with it, the last one: {reason}; "
                    "check the memory of their nodes, or leave it out"
                )


# Of every process of Ray: its servers log nothing on stderr, an actor without a GPU sees what
# CUDA_VISIBLE_DEVICES says, and nothing is reported to Ray's makers.
RAY_ENVIRONMENT = {
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Of a cluster that is started here: its servers, which run whatever they are sent, listen to this
# machine alone. Read when Ray is imported. The name is that of the systems where it is Ray's own
# choice. Actors get the processors as the local engine's workers do: Ray's own choice is 15, behind
# its servers and everything else.
LOCAL_ENVIRONMENT = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
OBJECT_STORE_BYTES = 80 * BYTES_PER_MIB  # near the least that Ray takes: nothing is stored in it


def run_on_ray(phase: Phase, items: Iterable[VideoItem]) -> None:
    """Run video stages over all videos on a Ray cluster. Without an address, one is started here.

    Args:
        phase: the stages, and where their results are stored.
        items: the videos.

    Raises ModelError if Ray is not installed, SteplineError if the run cannot continue.
    """
    # Actors are started only where there is something to do.
    unfinished = _select_unfinished(phase, items)
    first = next(unfinished, None)
    if first is None:
        return
    plan = phase.plan
    engine = plan.recipe.engine
    stages = tuple(phase.stages)
    out = phase.results.out
    uses_gpu = any(plan.stages[name].uses_gpu(plan.recipe) for name in stages)
    gpus = engine.gpus if uses_gpu else 0.0
    with connect_cluster(plan) as ray, _ray_errors_in_one_line(ray):
        kind = ray.remote(Actor).options(num_cpus=1, num_gpus=gpus or None, max_restarts=0)
        device = "cuda" if gpus else None
        start = partial(kind.remote, plan, out.url, stages, phase.retry, device)
        max_actors = engine.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
        group = ActorGroup(ray, start, max_actors=max_actors, videos_per_call=engine.ahead)
        try:
            for video in group.finished_videos(chain([first], unfinished)):
                phase.on_finished(video)
        finally:
            group.close()
            remove_partials(out)


def _select_unfinished(phase: Phase, items: Iterable[VideoItem]) -> Iterator[VideoItem]:
    """Yield the videos with tasks to run. The others are reported as finished."""
    for item in items:
        video = VideoInProgress(phase.plan, phase.results, item, phase.stages, retry=phase.retry)
        if not video.tasks:
            phase.on_finished(FinishedVideo(item, video.failure, ran_any_task=False))
        else:
            yield item


@contextlib.contextmanager
def _ray_errors_in_one_line(ray: Any) -> Iterator[None]:
    """Convert errors of Ray in a `with` block to SteplineError, with a message of one line."""
    try:
        yield
    except ray.exceptions.RayError as error:
        raise SteplineError(
            f"Ray ended the work ({type(error).__name__}: {last_error_line(error)}); "
            "what is done stays done, run again"
        ) from error


@contextlib.contextmanager
def connect_cluster(plan: Plan) -> Iterator[Any]:
    """Yield the module `ray`, connected to the cluster that the recipe names.

    Without a name, a cluster is started on this machine, and shut down at the end.

    Raises ModelError if Ray is not installed, SettingsError if this machine has too few GPUs.
    """
    engine = plan.recipe.engine
    address = engine.address or os.environ.get("RAY_ADDRESS") or "local"
    is_local = address == "local"
    ray = _import_ray(RAY_ENVIRONMENT | (LOCAL_ENVIRONMENT if is_local else {}))
    ours = not ray.is_initialized()
    if ours and is_local:
        with _without_dashboard(ray):
            _start_ray(
                ray,
                address,
                num_cpus=engine.workers or core_count(),
                object_store_memory=OBJECT_STORE_BYTES,
            )
        gpus = ray.cluster_resources().get("GPU", 0.0)
        if engine.gpus > gpus:  # it would wait for them without end
            ray.shutdown()
            raise SettingsError(
                f"engine.gpus={engine.gpus:g}: Ray finds {gpus:g} GPUs on this machine; "
                "set engine.gpus=0, or --device cpu"
            )
    elif ours:
        _start_ray(ray, address)
    try:
        # Ray prints notices of lost processes, which must not get among the data on stdout.
        with contextlib.redirect_stdout(sys.stderr):
            yield ray
    finally:
        if ours:
            ray.shutdown()


@contextlib.contextmanager
def _without_dashboard(ray: Any) -> Iterator[None]:
    """Start clusters without the server of Ray's dashboard, in a `with` block."""
    # Ray has no setting for it. With `include_dashboard=False` the server still starts, and asks
    # for the metadata of three clouds, also where nothing is reported.
    services = ray._private.services
    start = services.start_api_server
    services.start_api_server = lambda *_, **__: ("", None)  # URL, process
    try:
        yield
    finally:
        services.start_api_server = start


def _import_ray(environment: dict[str, str]) -> Any:
    """Return the module `ray`. Raises ModelError if it is not installed.

    environment: environment variables to set before the import, unless they are set already.
    """
    for name, value in environment.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        raise ModelError(
            "engine.name=ray needs Ray, which is not here; pip install -c constraints.txt 'stepline[ray]'"
        ) from error
    return ray


def _start_ray(ray: Any, address: str, **options: Any) -> None:
    """Connect to a Ray cluster, or start one on this machine, which is tried twice.

    Args:
        ray: the module `ray`.
        address: address of the cluster, or "local" to start one.
        options: further arguments of `ray.init`.
    """
    # A second try only for a cluster that is started here.
    for last in (False, True):
        try:
            # Processes of Ray import from the folders of this process.
            with set_variables({"PYTHONPATH": os.pathsep.join(import_folders())}):
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
        except Exception as error:
            ray.shutdown()
            if last or address != "local":
                raise SteplineError(
                    f"Ray at {address!r} cannot be reached ({first_line(error)}); "
                    "see engine.address"
                ) from error
        else:
            return
