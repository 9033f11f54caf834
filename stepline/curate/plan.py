"""What is to be done: for each video its units with their keys, and which of them may run next.

A video's units run in the recipe's order; one that fails ends what comes after it. Which failure a video has is thus
the same whatever ran first.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from pydantic import JsonValue

from stepline.curate.stage import Item, Recipe, Stage, StageFailure, StageTask, key, stage_inputs
from stepline.curate.store.results import ResultStore

DIGEST = 32  # bytes of a sha256


@dataclass(frozen=True)
class Plan:
    """A recipe's stages with what decides each, and the keys of the dataset stages that are done already."""

    recipe: Recipe
    stages: Mapping[str, Stage]
    settings: Mapping[str, JsonValue]
    dataset_keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Recipe, stages: Sequence[Stage]) -> "Plan":
        """Ask each stage once what of the recipe decides it."""
        settings = {stage.name: stage.settings(recipe) for stage in stages}
        return cls(recipe, {stage.name: stage for stage in stages}, settings)

    def phases(self) -> Iterator[tuple[Stage, ...]]:
        """Yield runs of stages of one kind, in the recipe's order."""
        for _, stages in groupby(self.stages.values(), key=lambda stage: stage.kind):
            yield tuple(stages)

    def units(self, item: Item) -> tuple[StageTask, ...]:
        """Return a video's units in the recipe's order, as far as the dataset stages that they need are done."""
        keys = dict(self.dataset_keys)
        units = []
        for stage in self.stages.values():
            if stage.kind != "video" or any(need not in keys for need in stage.needs):
                continue
            needs = {need: keys[need] for need in stage.needs}
            keys[stage.name] = key(stage, item, self.settings[stage.name], needs)
            units.append(StageTask(item, stage.name, keys[stage.name], needs))
        return tuple(units)

    def before(self, stage: Stage) -> tuple[str, ...]:
        """Return the video stages that stand before a stage in the recipe."""
        names = list(self.stages)
        return tuple(name for name in names[: names.index(stage.name)] if self.stages[name].kind == "video")

    def needs_met(self, stage: Stage) -> bool:
        """Tell whether the dataset stages that a stage needs are done."""
        return all(need in self.dataset_keys for need in stage.needs if self.stages[need].kind == "dataset")

    def dataset_key(self, stage: Stage, fates: Sequence["VideoStatus"], refused: JsonValue) -> str:
        """Return the name of a dataset stage's folder: a sha256 of what it is, reads and needs."""
        digest = hashlib.sha256()
        needs = {need: self.dataset_keys[need] for need in stage.needs if need in self.dataset_keys}
        about = [stage.name, stage.version, self.settings[stage.name], self.recipe.threads]
        digest.update(json.dumps([about, sorted(needs.items()), refused], sort_keys=True, allow_nan=False).encode())
        for status in fates:
            known = [status.item.id, stage_inputs(stage, status.item)]
            why = [status.failure.stage, status.failure.kind, status.failure.reason] if status.failure else None
            keys = (
                [status.key(need) for need in stage.needs if need in status.stages] if status.failure is None else None
            )
            digest.update(json.dumps([known, keys, why], sort_keys=True, allow_nan=False).encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class VideoStatus:
    """What has become of a video in some stages: the key of each result, or the first failure.

    digests: the keys as bytes, in the order of `stages`: a million videos of these are held at once.
    """

    item: Item
    stages: tuple[str, ...]
    digests: bytes
    failure: StageFailure | None

    def key(self, stage: str) -> str:
        """Return the key of a stage's result."""
        at = self.stages.index(stage) * DIGEST
        return self.digests[at : at + DIGEST].hex()


def video_status(plan: Plan, cells: ResultStore, item: Item, stages: tuple[str, ...]) -> VideoStatus | None:
    """Return what became of a video in some stages; None where a result is missing without a failure."""
    digests = []
    for unit in plan.units(item):
        if unit.stage not in stages:
            continue
        stage = plan.stages[unit.stage]
        if not cells.has(stage, unit.key):
            failure = cells.failure(stage, unit.key)
            return None if failure is None else VideoStatus(item, stages, b"", failure)
        digests.append(bytes.fromhex(unit.key))
    return VideoStatus(item, stages, b"".join(digests), None) if len(digests) == len(stages) else None
