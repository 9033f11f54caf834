"""The progress of a run, from its files alone: anyone may ask while it works, or after it was
killed."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepline.curate.plan import Plan, iterate_statuses_before
from stepline.curate.stage import Stage, StageFailure, StageTable, VideoItem, resolve_stages
from stepline.curate.store.lock import lock_owner
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import (
    read_items,
    read_number,
    read_recipe,
    read_refused,
    read_timings,
)
from stepline.files.remote import RemotePath

SECONDS_PER_HOUR = 3600


@dataclass
class StageStatus:
    """Progress of a stage.

    Attributes:
        name: name of the stage.
        done: number of finished tasks. A stage of kind "dataset" has one task.
        waiting: number of tasks that are still to run.
        unreachable: number of tasks that will not run, as an earlier task of their video failed.
        failed: number of failed tasks by kind of failure.
        cpu_seconds: CPU seconds of all runs.
    """

    name: str
    done: int = 0
    waiting: int = 0
    unreachable: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class RunStatus:
    """Progress of a run.

    Attributes:
        videos: number of videos.
        refused: number of entries of the source list that cannot be used.
        stages: progress of each stage.
        failures: first failure of each video that failed or was left out, by any stage.
        worker: name of the process that works on the run now, None without one.
        tasks_per_hour: finished tasks per hour in the last run, None without any.
        seconds_left: estimated seconds to the end at this rate. None if nothing waits or no rate is known.
        unused_results: by folder, size in bytes of stored results of other recipes, which may be deleted.
        gpu_fallbacks: number of tasks of the last run that moved from the GPU to the CPU.
    """

    videos: int
    refused: int
    stages: tuple[StageStatus, ...]
    failures: tuple[StageFailure, ...]
    worker: str | None
    tasks_per_hour: float | None
    seconds_left: float | None
    unused_results: Mapping[str, int]
    gpu_fallbacks: int


def run_status(out: RemotePath, stages: StageTable) -> RunStatus:
    """Return the progress of the last run in an output folder.

    Args:
        out: output folder of the run.
        stages: all known stages by name.

    Raises StoreError if no run has begun there.
    """
    recipe = read_recipe(out)
    plan = Plan.from_recipe(recipe, resolve_stages(recipe, stages))
    items = list(read_items(out))
    refused = list(read_refused(out))
    results = ResultStore(out)
    folders = StageFolders(out)
    statuses = {name: StageStatus(name) for name in plan.stages}
    failures: dict[str, StageFailure] = {}  # by id of the video

    # The stages, in the recipe's order.
    for phase in plan.phases():
        if phase[0].kind == "video":
            for item in items:
                _count_tasks(plan, results, item, phase, statuses, failures)
            continue
        for stage in phase:
            status = statuses[stage.name]
            status.waiting = 1
            before = plan.video_stages_before(stage)
            if any(statuses[name].waiting for name in before) or not plan.has_needs_done(stage):
                continue
            videos = iterate_statuses_before(stage, plan, results, items)
            key = plan.dataset_key(stage, videos, refused)
            if folders.is_complete(stage.name, key):
                status.waiting = 0
                status.done = 1
                plan = plan.with_dataset_key(stage, key)

    # The stages over all videos name those that only they leave out.
    failures = folders.read_failures(plan.dataset_keys) | failures

    # The time that it took, from the log of this run and of earlier ones.
    began = 0.0
    # when tasks ended, and those for which a GPU gave out. There may be ten million
    ends, fallbacks = array("d"), array("d")
    for line in read_timings(out):
        at = read_number(line, "at")
        event = line.get("event")
        status_of_line = statuses.get(str(line.get("stage")))
        if event == "run":
            began = max(began, at)
        # Only stages of the recipe: another one on OUT may have had others.
        elif event in ("end", "dataset") and status_of_line is not None:
            status_of_line.cpu_seconds += read_number(line, "cpu")
            ends.append(at)
            if line.get("gpu_fallbacks"):
                fallbacks.append(at)
    count = sum(at >= began for at in ends)
    rate = count / max(max(ends) - began, 1e-9) * SECONDS_PER_HOUR if count else None
    waiting = sum(status.waiting for status in statuses.values())
    return RunStatus(
        videos=len(items),
        refused=len(refused),
        stages=tuple(statuses.values()),
        failures=tuple(each for _, each in sorted(failures.items()) if each.stage in statuses),
        worker=lock_owner(out),
        tasks_per_hour=rate,
        seconds_left=waiting / rate * SECONDS_PER_HOUR if rate and waiting else None,
        unused_results=folders.unused_folders(plan.dataset_keys),
        gpu_fallbacks=sum(at >= began for at in fallbacks),
    )


def _count_tasks(
    plan: Plan,
    results: ResultStore,
    item: VideoItem,
    stages: Sequence[Stage],
    statuses: Mapping[str, StageStatus],
    failures: dict[str, StageFailure],
) -> None:
    """Count the tasks of a video by state, and note its first failure.

    Args:
        plan: stages, settings and keys.
        results: stored results and failures.
        item: the video.
        stages: consecutive stages of kind "video".
        statuses: progress of each stage, to which the tasks are added.
        failures: first failures by id of the video, to which this video's is added.
    """
    keys = {task.stage: task.key for task in plan.tasks_of(item)}
    for stage in stages:
        status = statuses[stage.name]
        key = keys.get(stage.name)
        if item.id in failures:
            status.unreachable += 1
        # A dataset stage that it needs may not be done, so there is no key.
        elif key is not None and results.has_result(stage, key):
            status.done += 1
        elif key is not None and (failure := results.find_failure(stage, key)):
            status.failed[failure.kind] = status.failed.get(failure.kind, 0) + 1
            failures[item.id] = failure
        else:
            status.waiting += 1
