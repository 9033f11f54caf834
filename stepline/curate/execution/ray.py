"""The Ray engine: the videos of a run spread over the actors of a cluster.

Each actor has a scheduler and a worker process of the kind that the local engine has, so that a
video that hangs or crashes takes no actor with it (actors.py). Results go to OUT, which every node
must reach. What the engine is leaves no trace in a dataset.
"""

import contextlib
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, islice
from typing import Any

from stepline.curate.execution.actors import Actor, ActorGroup
from stepline.curate.execution.messages import LONGEST_REASON
from stepline.curate.execution.scheduler import FinishedVideo, OpenVideo, Phase
from stepline.curate.plan import Plan
from stepline.curate.stage import Recipe, Stage, VideoItem
from stepline.curate.store.results import remove_partials
from stepline.device import core_count
from stepline.errors import ModelError, SettingsError, SteplineError, first_line
from stepline.remote.settings import MIB

log = logging.getLogger(__name__)

ENVIRONMENT = {"RAY_BACKEND_LOG_LEVEL": "fatal", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
# Of a cluster that is started here: its servers, which run whatever they are sent, listen to this
# machine alone. Read when Ray is imported; the name is that of the systems where it is Ray's own
# choice. Actors get the processors as the local engine's workers do: Ray's own choice is 15, behind
# its servers and everything else.
ON_THIS_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_worker_niceness": "0"}
OBJECT_STORE = 80 * MIB  # bytes, near the least that Ray takes: nothing lies in it
MOST_LOOKED_AT = 256  # videos whose state is asked for between two looks at the replies
REPLY_SECONDS = 1.0  # to wait for the first reply
GATHER_SECONDS = 0.02  # to wait for more, so that a thousand actors are not asked for each


def run_on_ray(phase: Phase, items: Iterable[VideoItem]) -> None:
    """Take all items through a phase on a Ray cluster: the one named, else one that is started
    here.

    Raises ModelError where Ray is not installed, SteplineError where the run must end.
    """
    unfinished = _unfinished(phase, items)
    first = next((item for item in unfinished if item is not None), None)
    if first is None:
        return
    with cluster(phase.plan) as ray, _ray_errors_in_one_line(ray):
        groups = _actor_groups(ray, phase)
        try:
            for video in _finished_videos(ray, groups, chain([first], unfinished)):
                _finish(phase, video)
        finally:
            for group in groups:
                group.close()
            if any(group.left_work for group in groups):
                remove_partials(phase.results.out)


def _unfinished(phase: Phase, items: Iterable[VideoItem]) -> Iterator[VideoItem | None]:
    """Yield each video that something is left to do for, and None for each of the others, which
    need no actor."""
    for item in items:
        video = OpenVideo(phase.plan, phase.results, item, phase.stages, retry=phase.retry)
        if video.finished:
            phase.on_finished(FinishedVideo(item, video.failure, worked=False))
        yield None if video.finished else item


def _finished_videos(
    ray: Any, groups: Sequence[ActorGroup], items: Iterator[VideoItem | None]
) -> Iterator[FinishedVideo]:
    """Yield videos as they have gone through all groups, or failed in one; no others are held than
    the groups'."""
    worked: set[str] = set()  # ids of what an earlier group has worked on
    following = dict(zip(groups, [*groups[1:], None], strict=True))
    more = True
    while more or any(group.is_busy for group in groups):
        asked = min(MOST_LOOKED_AT, groups[0].room) if more else 0
        if asked > 0:
            looked_at = list(islice(items, asked))
            more = len(looked_at) == asked
            for item in looked_at:
                if item is not None:
                    groups[0].add(item)
        comes = more
        for group, later in following.items():
            group.hand_out(None if later is None else max(0, later.room), more=comes)
            comes = comes or group.is_busy
        for group, call in _replied(
            ray, groups, 0.0 if more and groups[0].room > 0 else REPLY_SECONDS
        ):
            video, later = group.take(call), following[group]
            if video is not None and video.failure is None and later is not None:
                later.add(video.item)
                worked |= {video.item.id} if video.worked else set()
            elif video is not None:
                yield replace(video, worked=video.worked or video.item.id in worked)
                worked.discard(video.item.id)


def _replied(
    ray: Any, groups: Sequence[ActorGroup], seconds: float
) -> list[tuple[ActorGroup, Any]]:
    """Return the calls that came to an end within some seconds, with the groups that made them."""
    calls = {call: group for group in groups for call in group.calls}
    if not calls:
        return []
    if seconds and ray.wait(list(calls), timeout=seconds)[0]:
        time.sleep(GATHER_SECONDS)
    return [
        (calls[call], call) for call in ray.wait(list(calls), num_returns=len(calls), timeout=0)[0]
    ]


def _finish(phase: Phase, video: FinishedVideo) -> None:
    """Tell of a video that other machines have worked on. Raises SteplineError where too many
    failed in a row."""
    for task in phase.plan.tasks(video.item):
        if task.stage not in phase.stages:
            continue
        failed = video.failure is not None and video.failure.stage == task.stage
        phase.count_in_a_row(task.stage, video.failure if failed else None)
        if failed:
            break
        phase.results.mark_done(phase.plan.stages[task.stage], task.key)
    phase.on_finished(video)


@contextlib.contextmanager
def _ray_errors_in_one_line(ray: Any) -> Iterator[None]:
    """Raise what Ray itself cannot go on after as a SteplineError."""
    try:
        yield
    except ray.exceptions.RayError as error:
        said = next((line for line in reversed(str(error).splitlines()) if line.strip()), "")
        what = f"Ray ended the work ({type(error).__name__}: {said.strip()[:LONGEST_REASON]})"
        raise SteplineError(f"{what}; what is done stays done, run again") from error


def _actor_groups(ray: Any, phase: Phase) -> list[ActorGroup]:
    """Return the groups of actors that a phase's videos go through, one after another; the fewest
    are started."""
    engine = phase.plan.recipe.engine
    most = engine.workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    groups = []
    for stages, gpus in stages_by_actor(
        [phase.plan.stages[name] for name in phase.stages], phase.plan.recipe
    ):
        # `do` takes a thread for each video, `withdraw` and `close` one.
        threads = engine.ahead + 2
        kind = ray.remote(Actor).options(
            num_cpus=1, num_gpus=gpus or None, max_concurrency=threads, max_restarts=0
        )
        device = "cuda" if gpus else None
        start = partial(kind.remote, phase.plan, phase.results.out.url, stages, phase.retry, device)
        groups.append(ActorGroup(ray, start, most=most, fewest=engine.fewest, ahead=engine.ahead))
    return groups


def stages_by_actor(stages: Sequence[Stage], recipe: Recipe) -> list[tuple[tuple[str, ...], float]]:
    """Return runs of stages that one actor does, with the GPUs it takes: all stages in one where
    there are no GPUs."""
    gpus = recipe.engine.gpus
    runs = groupby(stages, key=lambda stage: bool(gpus) and stage.gpu(recipe))
    return [(tuple(stage.name for stage in run), gpus if uses else 0.0) for uses, run in runs]


@contextlib.contextmanager
def cluster(plan: Plan) -> Iterator[Any]:
    """Yield `ray`, connected to a cluster: one that is there already stays, one that is started
    here ends."""
    engine = plan.recipe.engine
    address = engine.address or os.environ.get("RAY_ADDRESS") or "local"
    wanted = ENVIRONMENT | (ON_THIS_MACHINE if address == "local" else {})
    try:
        os.environ.update({name: value for name, value in wanted.items() if name not in os.environ})
        import ray
    except ImportError as error:
        raise ModelError(
            "engine.name=ray needs Ray, which is not here; pip install 'stepline[ray]'"
        ) from error
    ours = not ray.is_initialized()
    if ours:
        # As many as groups at least: where one got no actor, those before it would wait for it.
        groups = len(
            stages_by_actor(
                [stage for stage in plan.stages.values() if stage.kind == "video"], plan.recipe
            )
        )
        cpus = max(engine.workers or core_count(), groups)
        local = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
        _start(ray, address, local if address == "local" else {})
        there = ray.cluster_resources().get("GPU", 0.0)
        if address == "local" and engine.gpus > there:  # it would wait for them for ever
            ray.shutdown()
            what = f"Ray finds {there:g} GPUs on this machine"
            raise SettingsError(
                f"engine.gpus={engine.gpus:g}: {what}; set engine.gpus=0, or --device cpu"
            )
    try:
        with _notices_in_log():
            yield ray
    finally:
        if ours:
            ray.shutdown()


@contextlib.contextmanager
def _notices_in_log() -> Iterator[None]:
    """Have Ray's notices of lost processes go to the log; it prints them on stdout, among what is
    data."""
    from ray._private import worker

    usual = worker.print_to_stdstream
    worker.print_to_stdstream = lambda notice, **_: log.info("Ray: %s", " ".join(notice["lines"]))
    try:
        yield
    finally:
        worker.print_to_stdstream = usual


def _start(ray: Any, address: str, options: dict[str, Any]) -> None:
    """Connect to a cluster or start one here, which a busy machine may need a second try for."""
    for last in (False, True):
        try:
            with _importable(), _without_watchers():
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
        except Exception as error:
            ray.shutdown()
            if last or address != "local":
                reason = first_line(error)
                raise SteplineError(
                    f"Ray at {address!r} cannot be reached ({reason}); see engine.address"
                ) from error
        else:
            return


@contextlib.contextmanager
def _without_watchers() -> Iterator[None]:
    """Have Ray start no dashboard, log monitor and autoscaler, which cost seconds and do nothing on
    one machine.

    The dashboard asks the metadata servers of three clouds, also where it is to report nothing;
    include_dashboard=False leaves out its pages alone. Ray goes on without them, as where they
    cannot be started.
    """
    from ray._private import node, services

    watchers: dict[tuple[Any, str], Any] = {(services, "start_api_server"): (None, None)}
    watchers |= {(node.Node, name): None for name in ("start_log_monitor", "start_monitor")}
    usual = {place: getattr(*place) for place in watchers}
    for place, started in watchers.items():
        setattr(*place, lambda *_, started=started, **__: started)
    try:
        yield
    finally:
        for place, start in usual.items():
            setattr(*place, start)


@contextlib.contextmanager
def _importable() -> Iterator[None]:
    """Have processes that are started meanwhile find modules where this one does."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)
