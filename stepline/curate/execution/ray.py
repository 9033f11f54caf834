"""The Ray engine: the videos of a run spread over the actors of a cluster.

Each actor has a scheduler and a worker process of the kind that the local engine has. So a video
that hangs or crashes takes no actor with it (actors.py). Results go to OUT, which every node must
reach. What the engine is leaves no trace in a dataset.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from stepline.curate.execution.actors import Actor, ActorGroup, last_error_line
from stepline.curate.execution.scheduler import FinishedVideo, Phase, VideoInProgress
from stepline.curate.plan import Plan
from stepline.curate.stage import VideoItem
from stepline.curate.store.results import remove_partials
from stepline.errors import ModelError, SettingsError, SteplineError, first_line
from stepline.files.remote.settings import BYTES_PER_MIB
from stepline.networks.device import core_count
from stepline.processes import import_folders

log = logging.getLogger(__name__)

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
        _start_ray(
            ray,
            address,
            num_cpus=engine.workers or core_count(),
            include_dashboard=False,
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
            with _shared_module_folders():
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


@contextlib.contextmanager
def _shared_module_folders() -> Iterator[None]:
    """Let new processes import modules from the folders of this process, in a `with` block."""
    # Processes of Ray read it when they start.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(import_folders())
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
