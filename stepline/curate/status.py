"""What a run has come to, from its files alone: anybody may ask while it works, or after it was
killed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.curate.plan import Plan, video_status
from stepline.curate.stage import Stage, StageFailure, StageTable, resolve_stages
from stepline.curate.store.lock import driver_name, lock_owner
from stepline.curate.store.manifests import (
    MANIFESTS,
    Keys,
    are_among,
    dataset_digest,
    disk_keys,
    read_json,
    stage_failures,
    store_keys,
    task_keys,
)
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import (
    inventory,
    log_totals,
    read_items,
    read_recipe,
    read_refused,
)

if TYPE_CHECKING:
    from stepline.remote import RemotePath


@dataclass
class StageStatus:
    """One stage. done, waiting: its tasks, of which a dataset stage has one; failed: tasks by kind
    of failure.

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
    """A run. worker: who works on it now, None = nobody. rate: tasks an hour in the last run; left:
    seconds at it.

    others: folders of stages that the last run does not use, by their name below OUT, with their
    bytes. gpu_busy: share of the time in the last run in which the workers' GPUs computed; None:
    there were none, or no driver told.
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
    """Return what the last run on OUT has come to. Raises StoreError where there was none.

    Neither videos nor results are looked at one by one: both are known as arrays of keys
    (store/manifests.py).
    """
    recipe = read_recipe(out)
    plan = Plan.of(recipe, resolve_stages(recipe, stages))
    counts, owner = inventory(out), driver_name(out) if out.local is None else ""
    content = counts.content
    statuses = {name: StageStatus(name) for name in plan.stages}
    failures: list[StageFailure] = []
    going = np.ones(counts.items, dtype=np.bool_)  # videos that no stage has failed for
    for phase in plan.phases():
        if phase[0].kind == "dataset":
            for stage in phase:
                key = _dataset_key(out, plan, stage, statuses, failures, content)
                if key is not None and StageFolders(out).is_complete(stage.name, key):
                    statuses[stage.name].done, plan = 1, plan.with_dataset_key(stage, key)
                else:
                    statuses[stage.name].waiting = 1
            continue
        keys = task_keys(
            out, plan, tuple(stage.name for stage in phase), content, lambda: read_items(out)
        )
        for stage in phase:
            failures += _count_tasks(out, statuses[stage.name], keys.get(stage.name), going, owner)
    totals = log_totals(out)
    for name, status in statuses.items():
        status.cpu = sum(log.cpu.get(name, 0.0) for log in totals)
    began = max((log.began for log in totals), default=0.0)
    latest = [log for log in totals if log.first >= began]
    tasks = sum(count for log in latest for name, count in log.tasks.items() if name in statuses)
    rate = tasks / max(max(log.last for log in latest) - began, 1e-9) * 3600 if tasks else None
    waiting = sum(status.waiting for status in statuses.values())
    left = waiting / rate * 3600 if rate and waiting else None
    listed = tuple(sorted(failures, key=lambda failure: failure.id))
    others, worker = StageFolders(out).unused(plan.dataset_keys), lock_owner(out)
    looks, busy = sum(log.gpu_looks for log in latest), sum(log.gpu_busy for log in latest)
    return RunStatus(
        len(going),
        counts.refused,
        tuple(statuses.values()),
        listed,
        worker,
        rate,
        left,
        others,
        busy / looks if looks else None,
        int(sum(log.gpu_fallbacks for log in latest)),
    )


def _count_tasks(
    out: "RemotePath",
    status: StageStatus,
    keys: Keys | None,
    going: "npt.NDArray[np.bool_]",
    owner: str,
) -> list[StageFailure]:
    """Count what became of a stage's tasks; return its failures, whose videos are no longer going
    on."""
    status.never = int((~going).sum())
    if keys is None:  # a stage over all videos that they need is not done
        status.waiting = int(going.sum())
        return []
    done = (
        disk_keys(out, status.name)
        if out.local is not None
        else store_keys(out, status.name, owner)
    )
    known = stage_failures(out, status.name)
    undone = np.flatnonzero(going & ~are_among(keys, done))
    failed = [row for row in undone.tolist() if int(keys[row]) in known]
    failures = [known[int(keys[row])] for row in failed]
    going[failed] = False
    status.done, status.waiting = len(going) - status.never - len(undone), len(undone) - len(failed)
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
    """Return the key of a dataset stage, as its run wrote it down; None while what it needs is not
    done."""
    before = plan.video_stages_before(stage)
    if any(statuses[name].waiting for name in before) or not plan.needs_met(stage):
        return None
    known = read_json(out / f"{MANIFESTS}/{stage.name}.json")
    if known.get("of") == dataset_digest(plan, stage.name, failures, content):
        return str(known["key"])
    results = ResultStore(out)
    videos = [video_status(plan, results, item, before) for item in read_items(out)]
    found = [video for video in videos if video is not None]
    # one may have gone since it was counted
    return (
        plan.dataset_key(stage, found, tuple(read_refused(out)))
        if len(found) == len(videos)
        else None
    )
