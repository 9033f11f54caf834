"""What is to be done: each video's tasks, known by keys, and what has become of a video.

A task is one stage of one video. Its key is a hash of all that decides its result, so that a result
that is there is never made again, and one that a changed setting or file decides is. A video's
tasks run in the recipe's order; one that fails ends what comes after it. Which failure a video has
is thus the same whatever ran first.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from pydantic import JsonValue

from stepline.curate.stage import Recipe, Stage, StageFailure, VideoItem, files_read
from stepline.curate.store.results import ResultStore
from stepline.records import Rejected
from stepline.version import minor_version, package_version

DIGEST = 32  # bytes of a sha256
NONE: Mapping[str, str] = {}
# major.minor of the libraries that keys without any stand for: those of the day when libraries came
# into keys, so that all results from before are still known. A patch release changes no key.
KEYED_VERSIONS = {
    "ctranslate2": "4.8",
    "faster-whisper": "1.2",
    "onnxruntime": "1.31",
    "spacy": "3.8",
    "torch": "2.13",
}


@dataclass(frozen=True)
class StageTask:
    """One stage of one video. needs: key of each stage whose result it reads."""

    item: VideoItem
    stage: str
    key: str
    needs: Mapping[str, str]


def task_key(
    stage: Stage,
    item: VideoItem,
    settings: JsonValue,
    needs: Mapping[str, str],
    libraries: Mapping[str, str] = NONE,
) -> str:
    """Return the key of a task's result: a sha256 of the stage, what it reads of the item, settings
    and needs.

    settings: `stage.settings(recipe)`, asked once a run. needs: stage -> key. libraries: those of
    other versions than `KEYED_VERSIONS`; they count where the result is computed, not read.
    """
    parts = [
        stage.name,
        stage.version,
        item.id,
        stage_inputs(stage, item),
        settings,
        sorted(needs.items()),
    ]
    if libraries and not files_read(stage, item) & {"captions", "features"}:
        parts.append(sorted(libraries.items()))
    return hashlib.sha256(json.dumps(parts, sort_keys=True, allow_nan=False).encode()).hexdigest()


def stage_inputs(stage: Stage, item: VideoItem) -> list[JsonValue]:
    """Return what of an item decides a stage's result: the stamps of the files it reads, what is
    known about it."""
    stamps = {"media": item.stamp, "captions": item.captions_stamp, "features": item.features_stamp}
    about: list[JsonValue] = (
        [item.title, item.task, item.category, item.duration] if "about" in stage.reads else []
    )
    read: list[JsonValue] = [f"{name} {stamps[name]}" for name in sorted(files_read(stage, item))]
    addresses: list[JsonValue] = [item.path, item.video, item.captions, item.features]
    return [*read, about, *([addresses] if "where" in stage.reads else [])]


@dataclass(frozen=True)
class Plan:
    """A recipe's stages with what decides each, and the keys of the dataset stages that are done
    already."""

    recipe: Recipe
    stages: Mapping[str, Stage]
    settings: Mapping[str, JsonValue]
    # by stage: as `task_key` takes them
    libraries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dataset_keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, recipe: Recipe, stages: Sequence[Stage]) -> "Plan":
        """Ask each stage once what of the recipe decides it."""
        settings = {stage.name: stage.settings(recipe) for stage in stages}
        versions = {
            stage.name: {name: minor_version(name) for name in stage.libraries(recipe)}
            for stage in stages
        }
        libraries = {
            stage: {
                name: found for name, found in each.items() if found != KEYED_VERSIONS.get(name)
            }
            for stage, each in versions.items()
        }
        return cls(recipe, {stage.name: stage for stage in stages}, settings, libraries)

    def versions(self) -> dict[str, str]:
        """Return the whole version of each library that its stages' results depend on, "" of one
        that is lacking."""
        names = {name for stage in self.stages.values() for name in stage.libraries(self.recipe)}
        return {name: package_version(name) for name in sorted(names)}

    def phases(self) -> list[tuple[Stage, ...]]:
        """Return runs of stages of one kind, in the recipe's order."""
        return [
            tuple(stages)
            for _, stages in groupby(self.stages.values(), key=lambda stage: stage.kind)
        ]

    def tasks(self, item: VideoItem) -> tuple[StageTask, ...]:
        """Return a video's tasks in the recipe's order, as far as the dataset stages that they need
        are done."""
        keys = dict(self.dataset_keys)
        tasks = []
        for stage in self.stages.values():
            if stage.kind != "video" or any(need not in keys for need in stage.needs):
                continue
            needs = {need: keys[need] for need in stage.needs}
            keys[stage.name] = task_key(
                stage, item, self.settings[stage.name], needs, self.libraries.get(stage.name, NONE)
            )
            tasks.append(StageTask(item, stage.name, keys[stage.name], needs))
        return tuple(tasks)

    def video_stages_before(self, stage: Stage) -> tuple[str, ...]:
        """Return the video stages that stand before a stage in the recipe."""
        names = list(self.stages)
        return tuple(
            name for name in names[: names.index(stage.name)] if self.stages[name].kind == "video"
        )

    def with_dataset_key(self, stage: Stage, key: str) -> "Plan":
        """Return the plan that knows a dataset stage is done."""
        return replace(self, dataset_keys={**self.dataset_keys, stage.name: key})

    def needs_met(self, stage: Stage) -> bool:
        """Tell whether the dataset stages that a stage needs are done."""
        return all(
            need in self.dataset_keys for need in stage.needs if self.stages[need].kind == "dataset"
        )

    def dataset_key(
        self, stage: Stage, statuses: Sequence["VideoStatus"], refused: Sequence[Rejected]
    ) -> str:
        """Return the key of a dataset stage's folder: a sha256 of what it is, reads and needs."""
        digest = hashlib.sha256()
        left_out: JsonValue = [[entry.id, entry.reason] for entry in refused]
        needs = {need: self.dataset_keys[need] for need in stage.needs if need in self.dataset_keys}
        about = [stage.name, stage.version, self.settings[stage.name], self.recipe.threads]
        digest.update(
            json.dumps(
                [about, sorted(needs.items()), left_out], sort_keys=True, allow_nan=False
            ).encode()
        )
        for status in statuses:
            known = [status.item.id, stage_inputs(stage, status.item)]
            failure, keys, why = status.failure, None, None
            if failure is None:
                keys = [status.key(need) for need in stage.needs if need in status.stages]
            else:
                why = [failure.stage, failure.kind, failure.reason]
            digest.update(json.dumps([known, keys, why], sort_keys=True, allow_nan=False).encode())
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class VideoStatus:
    """What has become of a video in some stages: the key of each result, or the first failure.

    digests: the keys as bytes, in the order of `stages`: a million videos of these are held at
    once.
    """

    item: VideoItem
    stages: tuple[str, ...]
    digests: bytes
    failure: StageFailure | None

    def key(self, stage: str) -> str:
        """Return the key of a stage's result."""
        start = self.stages.index(stage) * DIGEST
        return self.digests[start : start + DIGEST].hex()


def video_status(
    plan: Plan, results: ResultStore, item: VideoItem, stages: tuple[str, ...]
) -> VideoStatus | None:
    """Return what became of a video in some stages; None where a result is missing without a
    failure."""
    digests = []
    for task in plan.tasks(item):
        if task.stage not in stages:
            continue
        stage = plan.stages[task.stage]
        if not results.has(stage, task.key):
            failure = results.failure(stage, task.key)
            return None if failure is None else VideoStatus(item, stages, b"", failure)
        digests.append(bytes.fromhex(task.key))
    return (
        VideoStatus(item, stages, b"".join(digests), None) if len(digests) == len(stages) else None
    )
