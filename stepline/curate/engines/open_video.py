"""A video under way: which of its units are done, which may run next, when there is nothing left to do."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from stepline.curate.items import Item
from stepline.curate.ledger.cells import Cells
from stepline.curate.plan import Plan
from stepline.curate.stage import Failure
from stepline.curate.units import Unit, reads

State: TypeAlias = Literal["waiting", "running", "done", "failed"]


class OpenVideo:
    """The units of one video in some stages; those before them are done.

    retry: try again what failed before, as long as its attempts are fewer than the recipe's limit.
    """

    def __init__(self, plan: Plan, cells: Cells, item: Item, stages: Sequence[str], *, retry: bool = False) -> None:
        self.item = item
        self.units = tuple(unit for unit in plan.units(item) if unit.stage in stages)
        self._plan = plan
        self.failures: dict[str, Failure] = {}
        self.states: dict[str, State] = {unit.stage: self._found(cells, unit, retry) for unit in self.units}
        self.worked = False  # a unit of it ran

    def _found(self, cells: Cells, unit: Unit, retry: bool) -> State:
        stage = self._plan.stages[unit.stage]
        if cells.has(stage, unit.key):
            return "done"
        failure = cells.failure(stage, unit.key)
        if failure is None or (retry and may_retry(failure, self._plan.recipe.limits.attempts)):
            return "waiting"
        self.failures[unit.stage] = failure
        return "failed"

    def next_unit(self, *, ahead: bool = False) -> Unit | None:
        """Return the unit that may run now. ahead: also one whose turn has not come, but whose needs are done."""
        for unit in self.units:
            state = self.states[unit.stage]
            if state == "failed" or (state == "running" and not ahead):
                return None
            if state == "waiting" and all(self.states.get(need, "done") == "done" for need in unit.needs):
                return unit
            if state == "waiting" and not ahead:
                return None
        return None

    def start(self, unit: Unit) -> None:
        """Note that a unit runs."""
        self.states[unit.stage] = "running"
        self.worked = True

    def settle(self, unit: Unit, failure: Failure | None) -> None:
        """Note what became of a unit."""
        self.states[unit.stage] = "failed" if failure else "done"
        if failure is not None:
            self.failures[unit.stage] = failure

    @property
    def failure(self) -> Failure | None:
        """The first failure in the recipe's order, once all that stands before it is done."""
        for unit in self.units:
            if self.states[unit.stage] != "done":
                return self.failures.get(unit.stage)
        return None

    @property
    def finished(self) -> bool:
        """Tell whether there is nothing left to do."""
        if "running" in self.states.values():
            return False
        return self.failure is not None or all(state == "done" for state in self.states.values())

    def files(self) -> frozenset[str]:
        """Return what must be at hand for the units that may still run."""
        left = (unit for unit in self.units if self.states[unit.stage] in ("waiting", "running"))
        return frozenset(name for unit in left for name in reads(self._plan.stages[unit.stage], self.item))

    def files_of(self, unit: Unit) -> frozenset[str]:
        """Return which files a unit reads."""
        return reads(self._plan.stages[unit.stage], self.item)


def may_retry(failure: Failure, attempts: int) -> bool:
    """Tell whether a failure may be tried again; what the recipe itself leaves out may not."""
    return failure.kind != "left out" and failure.attempts < attempts


def urls(item: Item) -> Mapping[str, str]:
    """Return where the files of an item are."""
    named = {"media": item.video, "captions": item.captions, "features": item.features}
    return {name: url for name, url in named.items() if url is not None}
