"""The Ray engine: the videos of a run spread over the actors of a cluster by Ray Data.

Only items and what became of them go through Ray, a few hundred bytes a video; results go to OUT, which every node must
reach. Each actor has a scheduler and a worker process of the kind that the local engine has, so that a video that hangs
or crashes takes no actor with it. What the engine is leaves no trace in a dataset.
"""

import contextlib
import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby, islice
from typing import Any

from stepline.curate.execution.local import scratch_folder
from stepline.curate.execution.messages import LONGEST_REASON
from stepline.curate.execution.scheduler import FinishedVideo, OpenVideo, Phase, Scheduler
from stepline.curate.plan import Plan
from stepline.curate.stage import Recipe, Stage, StageFailure, VideoItem
from stepline.curate.store.results import ResultStore
from stepline.curate.store.run_log import RunLog, from_json_line, to_json_line
from stepline.device import core_count
from stepline.errors import ModelError, SettingsError, SteplineError, first_line
from stepline.remote import RemotePath

ENVIRONMENT = {
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
# Of a cluster that is started here: its servers, which run whatever they are sent, listen to this machine alone. Read
# when Ray is imported; the name is that of the systems where it is Ray's own choice.
ON_THIS_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
BATCHES_PER_ACTOR = 16  # at least, so that no actor waits long for the last one
LARGEST_BATCH = 32  # videos
MOST_ROWS = 100_000  # videos that the driver and Ray's store hold at once, 600 bytes each


class Actor:
    """Does some stages of the videos that Ray gives it. Its models stay loaded between batches."""

    def __init__(self, plan: Plan, url: str, stages: tuple[str, ...], retry: bool, device: str | None = None) -> None:
        """device: for stages that use a GPU, of which Ray shows an actor its own alone; None: it asked for none."""
        self._until_end = contextlib.ExitStack()
        out = RemotePath(url, plan.recipe.places)
        scratch = self._until_end.enter_context(scratch_folder())
        self._run_log = RunLog(out)
        self._finished: list[FinishedVideo] = []
        phase = Phase(plan, ResultStore(out, listed=False), stages, retry, self._finished.append)
        self._scheduler = Scheduler(phase, 1, scratch, self._run_log, [device] if device else [])

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[str]]:
        """Return a batch with what became of each video; rows that an earlier group could not do pass through."""
        rows = [json.loads(line) for line in batch["row"]]
        left = [row["item"] for row in rows if row["failure"] is None and row["ends"] is None]
        try:
            self._scheduler.run([from_json_line(VideoItem, line) for line in left])
        except SteplineError as error:  # it ends the run; the driver says so
            return {"row": [json.dumps({**row, "ends": str(error)}) for row in rows]}
        self._run_log.copy()
        finished = {video.item.id: video for video in self._finished}
        self._finished.clear()
        for row in rows:
            video = finished.get(json.loads(row["item"])["id"])
            if video is not None:
                failure = asdict(video.failure) if video.failure else None
                row.update(failure=failure, worked=row["worked"] or video.worked)
        return {"row": [json.dumps(row) for row in rows]}


def run_on_ray(phase: Phase, items: Iterable[VideoItem]) -> None:
    """Take all items through a phase on a Ray cluster: the one named, else one that is started here.

    Raises ModelError where Ray is not installed, SteplineError where the run must end.
    """
    rows = _unfinished_rows(phase, items)
    held = list(islice(rows, MOST_ROWS))
    if not held:
        return
    with cluster(phase.plan) as ray, _ray_errors_in_one_line(ray):
        while held:
            for row in _mapped_dataset(ray, phase, held).iter_rows():
                _finish(phase, json.loads(row["row"]))
            held = list(islice(rows, MOST_ROWS))


def _finish(phase: Phase, known: Mapping[str, Any]) -> None:
    """Tell of a video that comes back from Ray. Raises SteplineError where it ends the run."""
    if known["ends"] is not None:
        raise SteplineError(known["ends"])
    failure = StageFailure(**known["failure"]) if known["failure"] else None
    item = from_json_line(VideoItem, known["item"])
    for task in phase.plan.tasks(item):
        if failure is not None and task.stage == failure.stage:
            break
        if task.stage in phase.stages:  # other machines have written it
            phase.results.mark_done(phase.plan.stages[task.stage], task.key)
    phase.on_finished(FinishedVideo(item, failure, known["worked"]))


def _unfinished_rows(phase: Phase, items: Iterable[VideoItem]) -> Iterator[dict[str, str]]:
    """Yield a row for each video that something is left to do for; the others need no actor."""
    fresh = {"failure": None, "worked": False, "ends": None}
    for item in items:
        video = OpenVideo(phase.plan, phase.results, item, phase.stages, retry=phase.retry)
        if video.finished:
            phase.on_finished(FinishedVideo(item, video.failure, worked=False))
        else:
            yield {"row": json.dumps({"item": to_json_line(item), **fresh})}


@contextlib.contextmanager
def _ray_errors_in_one_line(ray: Any) -> Iterator[None]:
    """Raise what Ray itself cannot go on after as a SteplineError."""
    try:
        yield
    except ray.exceptions.RayError as error:
        said = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
        what = f"Ray ended the work ({type(error).__name__}: {said.strip()[:LONGEST_REASON]})"
        raise SteplineError(f"{what}; what is done stays done, run again") from error


def _mapped_dataset(ray: Any, phase: Phase, rows: Sequence[dict[str, str]]) -> Any:
    """Return the lazy dataset: a pool of actors for each group of stages, one after another, streaming."""
    engine = phase.plan.recipe.engine
    most = engine.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    batch = min(LARGEST_BATCH, max(1, len(rows) // (most * BATCHES_PER_ACTOR)))
    data = ray.data.from_items(list(rows), override_num_blocks=-(-len(rows) // batch))
    for stages, gpus in actor_groups([phase.plan.stages[name] for name in phase.stages], phase.plan.recipe):
        data = data.map_batches(
            Actor,
            fn_constructor_args=(phase.plan, phase.results.out.url, stages, phase.retry, "cuda" if gpus else None),
            batch_size=batch,
            num_cpus=1,
            num_gpus=gpus or None,
            compute=ray.data.ActorPoolStrategy(min_size=min(engine.fewest, most), max_size=most),
        )
    return data


def actor_groups(stages: Sequence[Stage], recipe: Recipe) -> list[tuple[tuple[str, ...], float]]:
    """Return runs of stages that one actor does, with the GPUs it takes: all stages in one where there are no GPUs."""
    gpus = recipe.engine.gpus
    runs = groupby(stages, key=lambda stage: bool(gpus) and stage.gpu(recipe))
    return [(tuple(stage.name for stage in run), gpus if uses else 0.0) for uses, run in runs]


@contextlib.contextmanager
def cluster(plan: Plan) -> Iterator[Any]:
    """Yield `ray`, connected to a cluster: one that is there already stays, one that is started here ends."""
    engine = plan.recipe.engine
    address = engine.address or os.environ.get("RAY_ADDRESS") or "local"
    wanted = ENVIRONMENT | (ON_THIS_MACHINE if address == "local" else {})
    try:
        os.environ.update({name: value for name, value in wanted.items() if name not in os.environ})
        import ray
        import ray.data
    except ImportError as error:
        raise ModelError("engine.name=ray needs Ray, which is not here; pip install 'stepline[ray]'") from error
    ours = not ray.is_initialized()
    if ours:
        local = {"num_cpus": engine.workers or core_count(), "include_dashboard": False}
        _start(ray, address, local if address == "local" else {})
        there = ray.cluster_resources().get("GPU", 0.0)
        if address == "local" and engine.gpus > there:  # it would wait for them for ever
            ray.shutdown()
            what = f"Ray finds {there:g} GPUs on this machine"
            raise SettingsError(f"engine.gpus={engine.gpus:g}: {what}; set engine.gpus=0, or --device cpu")
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _start(ray: Any, address: str, options: dict[str, Any]) -> None:
    """Connect to a cluster or start one here, which a busy machine may need a second try for."""
    for last in (False, True):
        try:
            with _importable(), _without_dashboard():
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
        except Exception as error:
            ray.shutdown()
            if last or address != "local":
                reason = first_line(error)
                raise SteplineError(f"Ray at {address!r} cannot be reached ({reason}); see engine.address") from error
        else:
            return


@contextlib.contextmanager
def _without_dashboard() -> Iterator[None]:
    """Have Ray start no dashboard: it asks the metadata servers of three clouds, also where it is to report nothing.

    include_dashboard=False leaves out its pages alone. Ray goes on without one, as where it cannot be started.
    """
    from ray._private import services

    start = services.start_api_server
    services.start_api_server = lambda *_, **__: (None, None)
    try:
        yield
    finally:
        services.start_api_server = start


@contextlib.contextmanager
def _importable() -> Iterator[None]:
    """Have processes that are started meanwhile find modules where this one does."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
