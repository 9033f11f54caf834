"""What a run has come to, from its files alone: anybody may ask while it works, or after it was killed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.curate.plan import Plan, VideoStatus, video_status
from stepline.curate.stage import Item, Refused, Stage, StageFailure, StageTable, resolve_stages
from stepline.curate.store.lock import lock_owner
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.curate.store.run_log import read_items, read_recipe, read_refused, read_timings

if TYPE_CHECKING:
    from stepline.curate.remote import RemotePath


@dataclass
class StageState:
    """One stage. done, waiting: its units, of which a dataset stage has one; failed: units by kind of failure.

    never: units that will not run, because their video failed before. cpu: seconds that it took in all runs.
    """

    name: str
    done: int = 0
    waiting: int = 0
    never: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    cpu: float = 0.0


@dataclass(frozen=True)
class Status:
    """A run. worker: who works on it now, None = nobody. rate: units an hour in the last run; left: seconds at it.

    others: folders of stages that the last run does not use, by their name below OUT, with their bytes.
    """

    videos: int
    refused: int
    stages: tuple[StageState, ...]
    failures: tuple[StageFailure, ...]
    worker: str | None
    rate: float | None
    left: float | None
    others: Mapping[str, int]


def status(out: "RemotePath", stages: StageTable) -> Status:
    """Return what the last run on OUT has come to. Raises StoreError where there was none."""
    recipe = read_recipe(out)
    plan = Plan.of(recipe, resolve_stages(recipe, stages))
    items, refused, cells = tuple(read_items(out)), tuple(read_refused(out)), ResultStore(out)
    states = {name: StageState(name) for name in plan.stages}
    failures: dict[str, StageFailure] = {}
    for stage in plan.stages.values():
        if stage.kind == "video":
            _count_units(stage, plan, cells, items, states[stage.name], failures)
        else:
            plan = _count_whole(stage, plan, cells, items, refused, states[stage.name])
    rate = _took(read_timings(out), states)
    waiting = sum(state.waiting for state in states.values())
    left = waiting / rate * 3600 if rate and waiting else None
    listed = tuple(failures[identity] for identity in sorted(failures))
    others = StageFolders(out).others(plan.dataset_keys)
    return Status(len(items), len(refused), tuple(states.values()), listed, lock_owner(out), rate, left, others)


def _count_units(
    stage: Stage,
    plan: Plan,
    cells: ResultStore,
    items: Sequence[Item],
    state: StageState,
    failures: dict[str, StageFailure],
) -> None:
    """Count what became of a stage's units, and note the videos that it failed for."""
    for item in items:
        if item.id in failures:
            state.never += 1
            continue
        unit = next((unit for unit in plan.units(item) if unit.stage == stage.name), None)
        if unit is not None and cells.has(stage, unit.key):
            state.done += 1
            continue
        failure = cells.failure(stage, unit.key) if unit is not None else None
        if failure is None:
            state.waiting += 1
        else:
            state.failed[failure.kind] = state.failed.get(failure.kind, 0) + 1
            failures[item.id] = failure


def _count_whole(
    stage: Stage, plan: Plan, cells: ResultStore, items: Sequence[Item], refused: Sequence[Refused], state: StageState
) -> Plan:
    """Tell whether a dataset stage is done, and return the plan that knows of it."""
    fates: list[VideoStatus] = []
    for item in items:
        found = video_status(plan, cells, item, plan.before(stage))
        if found is not None:
            fates.append(found)
    known: JsonValue = [[one.id, one.reason] for one in refused]
    able = len(fates) == len(items) and plan.needs_met(stage)
    key = plan.dataset_key(stage, fates, known) if able else ""
    if not able or not StageFolders(cells.place).done(stage.name, key):
        state.waiting = 1
        return plan
    state.done = 1
    return replace(plan, dataset_keys={**plan.dataset_keys, stage.name: key})


def _took(lines: Iterable[Mapping[str, JsonValue]], states: Mapping[str, StageState]) -> float | None:
    """Add up what stages took; return the units an hour of the last run, None where it has finished none."""
    begun, last, units = 0.0, 0.0, 0
    timed = [(_number(line, "at"), line) for line in lines]
    for at, line in sorted(timed, key=lambda pair: pair[0]):
        event, name = line.get("event"), str(line.get("stage"))
        if event == "run":
            begun, units = at, 0
        if event in ("end", "dataset") and name in states:
            states[name].cpu += _number(line, "cpu")
            units += 1
            last = at
    return units / max(last - begun, 1e-9) * 3600 if units else None


def _number(line: Mapping[str, JsonValue], name: str) -> float:
    value = line.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0
