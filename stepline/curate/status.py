"""The progress of a run, from its files alone: anyone may ask while it works, or after it was
killed."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.curate.plan import Plan, video_status
from stepline.curate.stage import Stage, StageFailure, StageTable, resolve_stages
from stepline.curate.store.lock import driver_name, lock_owner
from stepline.curate.store.manifests import (
    MANIFESTS_FOLDER,
    Keys,
    are_among,
    disk_keys,
    read_json,
    stage_failures,
    store_keys,
)
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import (
    LogTotals,
    inventory,
    log_totals,
    read_items,
    read_recipe,
    read_refused,
)

if TYPE_CHECKING:
    from stepline.files.remote import RemotePath

SECONDS_PER_HOUR = 3600


@dataclass
class StageStatus:
    """One stage. done, waiting: its tasks (a dataset stage has one). failed: tasks by kind of
    failure.

    never: tasks that will not run, because their video failed before. cpu: seconds that it took in
    all runs.
    """

    name: str
    done: int = 0
    waiting: int = 0
    never: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    cpu: float = 0.0


@dataclass(frozen=True)
class RunStatus:
    """A run. worker: who works on it now, None = no one. rate: tasks per hour in the last run.
    left: seconds at it.

    others: folders of stages that the last run does not use, by their name below OUT, with their
    bytes.
    gpu_busy: share of the time in the last run in which the workers' GPUs computed. None: they had
    no GPU, or no driver answered.
    gpu_fallbacks: tasks of the last run that were done on the CPU, as their GPU was short of memory
    or lost.
    """

    videos: int
    refused: int
    stages: tuple[StageStatus, ...]
    failures: tuple[StageFailure, ...]
    worker: str | None
    rate: float | None
    left: float | None
    others: Mapping[str, int]
    gpu_busy: float | None = None
    gpu_fallbacks: int = 0


def run_status(out: "RemotePath", stages: StageTable) -> RunStatus:
    """Return what the last run on OUT has come to. Raises StoreError where OUT has had no run.

    Neither videos nor results are looked at one by one: both are known as arrays of keys
    (store/manifests.py).
    """
    recipe = read_recipe(out)
    plan = Plan.from_recipe(recipe, resolve_stages(recipe, stages))
    counts = inventory(out)
    statuses = {name: StageStatus(name) for name in plan.stages}
    failures: list[StageFailure] = []
    owner = driver_name(out) if out.local is None else None
    folders = StageFolders(out)

    # The stages, in the recipe's order.
    going = np.ones(counts.items, dtype=np.bool_)  # videos that no stage has failed for
    for phase in plan.phases():
        if phase[0].kind == "video":
            names = tuple(stage.name for stage in phase)
            keys = plan.task_keys(out, names, counts.content, lambda: read_items(out))
            for name in names:
                failures += _count_tasks(out, owner, statuses[name], keys.get(name), going)
            continue
        for stage in phase:
            key = _dataset_key(out, plan, stage, statuses, failures, counts.content)
            if key is not None and folders.is_complete(stage.name, key):
                statuses[stage.name].done = 1
                plan = plan.with_dataset_key(stage, key)
            else:
                statuses[stage.name].waiting = 1

    # The time that it took, from the logs: those of the last run begin with it.
    totals = log_totals(out)
    for name, status in statuses.items():
        status.cpu = sum(log.cpu.get(name, 0.0) for log in totals)
    began = max((log.began for log in totals), default=0.0)
    latest = [log for log in totals if log.first >= began]
    rate = _tasks_an_hour(latest, began, plan.stages)
    waiting = sum(status.waiting for status in statuses.values())
    looks = sum(log.gpu_looks for log in latest)
    return RunStatus(
        videos=counts.items,
        refused=counts.refused,
        stages=tuple(statuses.values()),
        failures=tuple(sorted(failures, key=lambda failure: failure.id)),
        worker=lock_owner(out),
        rate=rate,
        left=waiting / rate * SECONDS_PER_HOUR if rate and waiting else None,
        others=folders.unused(plan.dataset_keys),
        gpu_busy=sum(log.gpu_busy for log in latest) / looks if looks else None,
        gpu_fallbacks=int(sum(log.gpu_fallbacks for log in latest)),
    )


def _tasks_an_hour(
    logs: Sequence[LogTotals], began: float, stages: Collection[str]
) -> float | None:
    """Return the rate of a run that began at a time, or None before its first task."""
    # Only stages of the recipe: another one on OUT may have had others.
    counts = [log.tasks.get(stage, 0) for log in logs for stage in stages]
    if not any(counts):
        return None
    seconds = max(log.last for log in logs) - began
    return sum(counts) / max(seconds, 1e-9) * SECONDS_PER_HOUR


def _count_tasks(
    out: "RemotePath",
    owner: str | None,
    status: StageStatus,
    keys: Keys | None,
    going: "npt.NDArray[np.bool_]",
) -> list[StageFailure]:
    """Count what became of a stage's tasks. Return its failures, whose videos are no longer going
    on.

    owner: the driver that works on an object store. None on a disk.
    """
    status.never = int((~going).sum())
    if keys is None:  # a stage over all videos that they need is not done
        status.waiting = int(going.sum())
        return []
    name = status.name
    # The keys that are done, by the listings of folders or of the store.
    finished = disk_keys(out, name) if owner is None else store_keys(out, name, owner)
    reasons = stage_failures(out, name)
    # What is neither done nor failed waits.
    rows = np.flatnonzero(going & ~are_among(keys, finished))
    failed_rows = [row for row in rows.tolist() if int(keys[row]) in reasons]
    failures = [reasons[int(keys[row])] for row in failed_rows]
    going[failed_rows] = False
    status.done = len(going) - status.never - len(rows)
    status.waiting = len(rows) - len(failures)
    status.failed = dict(Counter(failure.kind for failure in failures))
    return failures


def _dataset_key(
    out: "RemotePath",
    plan: Plan,
    stage: Stage,
    statuses: Mapping[str, StageStatus],
    failures: Sequence[StageFailure],
    content: str,
) -> str | None:
    """Return the key of a dataset stage, as its run wrote it down, or None while what it needs is
    not done."""
    before = plan.video_stages_before(stage)
    if any(statuses[name].waiting for name in before) or not plan.needs_met(stage):
        return None
    # The run wrote the key down. Else it is worked out from each video.
    manifest = read_json(out / f"{MANIFESTS_FOLDER}/{stage.name}.json")
    if manifest.get("of") == plan.dataset_digest(stage, failures, content):
        return str(manifest["key"])
    results = ResultStore(out)
    videos = []
    for item in read_items(out):
        video = video_status(plan, results, item, before)
        if video is None:  # a result was removed since it was counted
            return None
        videos.append(video)
    return plan.dataset_key(stage, videos, tuple(read_refused(out)))
