"""What a run has come to, from its files alone: anybody may ask while it works, or after it was killed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.curate.plan import Plan, video_status
from stepline.curate.stage import Stage, StageFailure, StageTable, VideoItem, resolve_stages
from stepline.curate.store.lock import lock_owner
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import read_items, read_recipe, read_refused, read_timings

if TYPE_CHECKING:
    from stepline.curate.remote import RemotePath


@dataclass
class StageStatus:
    """One stage. done, waiting: its tasks, of which a dataset stage has one; failed: tasks by kind of failure.

    never: tasks that will not run, because their video failed before. cpu: seconds that it took in all runs.
    """

    name: str
    done: int = 0
    waiting: int = 0
    never: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    cpu: float = 0.0


@dataclass(frozen=True)
class RunStatus:
    """A run. worker: who works on it now, None = nobody. rate: tasks an hour in the last run; left: seconds at it.

    others: folders of stages that the last run does not use, by their name below OUT, with their bytes.
    """

    videos: int
    refused: int
    stages: tuple[StageStatus, ...]
    failures: tuple[StageFailure, ...]
    worker: str | None
    rate: float | None
    left: float | None
    others: Mapping[str, int]


def run_status(out: "RemotePath", stages: StageTable) -> RunStatus:
    """Return what the last run on OUT has come to. Raises StoreError where there was none."""
    recipe = read_recipe(out)
    plan = Plan.of(recipe, resolve_stages(recipe, stages))
    items, refused, results = tuple(read_items(out)), tuple(read_refused(out)), ResultStore(out)
    statuses = {name: StageStatus(name) for name in plan.stages}
    failures: dict[str, StageFailure] = {}
    for stage in plan.stages.values():
        status = statuses[stage.name]
        if stage.kind == "video":
            _count_tasks(stage, plan, results, items, status, failures)
            continue
        before = plan.video_stages_before(stage)
        known = (video_status(plan, results, item, before) for item in items)
        videos = [video for video in known if video is not None]
        ready = len(videos) == len(items) and plan.needs_met(stage)
        key = plan.dataset_key(stage, videos, refused) if ready else ""
        if ready and StageFolders(out).is_complete(stage.name, key):
            status.done, plan = 1, plan.with_dataset_key(stage, key)
        else:
            status.waiting = 1
    rate = _add_timings(read_timings(out), statuses)
    waiting = sum(status.waiting for status in statuses.values())
    left = waiting / rate * 3600 if rate and waiting else None
    listed = tuple(failures[identity] for identity in sorted(failures))
    others, owner = StageFolders(out).unused(plan.dataset_keys), lock_owner(out)
    return RunStatus(len(items), len(refused), tuple(statuses.values()), listed, owner, rate, left, others)


def _count_tasks(
    stage: Stage,
    plan: Plan,
    results: ResultStore,
    items: Sequence[VideoItem],
    status: StageStatus,
    failures: dict[str, StageFailure],
) -> None:
    """Count what became of a stage's tasks, and note the videos that it failed for."""
    for item in items:
        if item.id in failures:
            status.never += 1
            continue
        task = next((task for task in plan.tasks(item) if task.stage == stage.name), None)
        if task is not None and results.has(stage, task.key):
            status.done += 1
            continue
        failure = results.failure(stage, task.key) if task is not None else None
        if failure is None:
            status.waiting += 1
        else:
            status.failed[failure.kind] = status.failed.get(failure.kind, 0) + 1
            failures[item.id] = failure


def _add_timings(lines: Iterable[Mapping[str, JsonValue]], statuses: Mapping[str, StageStatus]) -> float | None:
    """Add up what stages took; return the tasks an hour of the last run, None where it has finished none."""
    began, last, tasks = 0.0, 0.0, 0
    timed = [(_number(line, "at"), line) for line in lines]
    for at, line in sorted(timed, key=lambda pair: pair[0]):
        event, name = line.get("event"), str(line.get("stage"))
        if event == "run":
            began, tasks = at, 0
        if event in ("end", "dataset") and name in statuses:
            statuses[name].cpu += _number(line, "cpu")
            tasks += 1
            last = at
    return tasks / max(last - began, 1e-9) * 3600 if tasks else None


def _number(line: Mapping[str, JsonValue], name: str) -> float:
    value = line.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0
