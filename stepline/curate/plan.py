"""What is to be done: each video's tasks, known by keys, and what has become of a video.

For instance, `Plan.tasks_of` of a video without captions, of three stages. P, T and W are their keys:

    stage         key    needs                another media file    other settings of `write`
    probe         P      {}                   new key               P
    transcribe    T      {}                   new key               T
    write         W      {"transcribe": T}    new key               new key

A task is one stage of one video. Its key is a hash of all that decides its result. So a result that
is there is never made again, and one that a changed setting or file decides is. A video's tasks run
in the recipe's order. One that fails ends what comes after it. Which failure a video has is thus
the same whatever ran first.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pydantic import JsonValue

from stepline.curate.stage import Recipe, Stage, StageFailure, VideoItem, input_files
from stepline.curate.store.results import ResultStore
from stepline.errors import StoreError
from stepline.records import Rejected
from stepline.version import minor_version, package_version

# major.minor of the libraries that keys without any stand for. They are those of the day when
# libraries came into keys, so that all results from before are still known. A patch release changes
# no key.
KEYED_VERSIONS = {
    "ctranslate2": "4.8",
    "faster-whisper": "1.2",
    "onnxruntime": "1.31",
    "spacy": "3.8",
    "torch": "2.13",
}


@dataclass(frozen=True)
class StageTask:
    """One stage of one video.

    Attributes:
        item: the video.
        stage: name of the stage.
        key: key of its result.
        needs: key of each result that the stage reads, by name of the earlier stage.
    """

    item: VideoItem
    stage: str
    key: str
    needs: Mapping[str, str]


def task_key(
    stage: Stage,
    item: VideoItem,
    settings: JsonValue,
    needs: Mapping[str, str],
    libraries: Mapping[str, str] | None = None,
) -> str:
    """Return the key of the result of a task: a sha256 of everything that decides the result.

    Args:
        stage: the stage.
        item: the video.
        settings: settings that decide the result (`Stage.result_settings`).
        needs: key of each result that the stage reads, by name of the earlier stage.
        libraries: versions of libraries that differ from KEYED_VERSIONS. They do not count if the
            stage only reads ready captions or features. None: all are those.
    """
    # All that decides the result, in a fixed order.
    parts = [stage.name, stage.version, item.id, stage_inputs(stage, item), settings]
    parts.append(sorted(needs.items()))
    # A stage that only reads captions or features computes nothing with these libraries.
    only_reads = input_files(stage, item) & {"captions", "features"}
    if libraries and not only_reads:
        parts.append(sorted(libraries.items()))
    return hashlib.sha256(_encode_json(parts)).hexdigest()


def stage_inputs(stage: Stage, item: VideoItem) -> list[JsonValue]:
    """Return what decides the result of a stage for a video: stamps of its files, and metadata."""
    # A stamp stands for a file's content, so that no file is read for a key.
    stamps = {"media": item.stamp, "captions": item.captions_stamp, "features": item.features_stamp}
    inputs: list[JsonValue] = [f"{n} {stamps[n]}" for n in sorted(input_files(stage, item))]
    about: list[JsonValue] = [item.title, item.task, item.category, item.duration]
    inputs.append(about if "about" in stage.reads else [])
    if "where" in stage.reads:
        inputs.append([item.path, item.video, item.captions, item.features])
    return inputs


def _encode_json(parts: object) -> bytes:
    # Sorted keys, and no NaN, give one text for equal values.
    return json.dumps(parts, sort_keys=True, allow_nan=False).encode()


@dataclass(frozen=True)
class Plan:
    """The stages of a recipe with everything that decides their results.

    Attributes:
        recipe: stages and settings.
        stages: the stages by name, in the order of the recipe.
        settings: stage -> settings that decide its result.
        libraries: stage -> versions of its libraries that differ from KEYED_VERSIONS.
        dataset_keys: keys of the finished stages of kind "dataset", by stage.
    """

    recipe: Recipe
    stages: Mapping[str, Stage]
    settings: Mapping[str, JsonValue]
    # by stage: as `task_key` takes them
    libraries: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    dataset_keys: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_recipe(cls, recipe: Recipe, stages: Sequence[Stage]) -> "Plan":
        """Return the plan of a recipe, before any stage of kind "dataset" is done.

        stages: the stages of the recipe in its order (`resolve_stages`).
        """
        libraries = {}
        for stage in stages:
            versions = {name: minor_version(name) for name in stage.library_names(recipe)}
            # Only versions that keys do not stand for anyway.
            libraries[stage.name] = dict(versions.items() - KEYED_VERSIONS.items())
        return cls(
            recipe,
            {stage.name: stage for stage in stages},
            {stage.name: stage.result_settings(recipe) for stage in stages},
            libraries,
        )

    @cached_property
    def video_stages(self) -> tuple[Stage, ...]:
        """The stages of kind "video", in the order of the recipe."""
        return tuple(stage for stage in self.stages.values() if stage.kind == "video")

    def library_versions(self) -> dict[str, JsonValue]:
        """Return the full versions of the libraries that results depend on, "" if not installed."""
        names = {n for stage in self.stages.values() for n in stage.library_names(self.recipe)}
        return {name: package_version(name) for name in sorted(names)}

    def phases(self) -> list[tuple[Stage, ...]]:
        """Return runs of consecutive stages of the same kind, in the order of the recipe."""
        runs = itertools.groupby(self.stages.values(), key=lambda stage: stage.kind)
        return [tuple(run) for _, run in runs]

    def tasks_of(self, item: VideoItem) -> tuple[StageTask, ...]:
        """Return the tasks of a video in the order of the recipe.

        Stages that read an unfinished stage of kind "dataset" have no task yet.
        """
        # Each stage's key is one of the needs of those behind it.
        keys = dict(self.dataset_keys)
        tasks = []
        for stage in self.video_stages:
            name = stage.name
            # A dataset stage that it needs has not run, so its key is not known yet.
            if not keys.keys() >= set(stage.needs):
                continue
            needs = {need: keys[need] for need in stage.needs}
            libraries = self.libraries.get(name)
            keys[name] = task_key(stage, item, self.settings[name], needs, libraries)
            tasks.append(StageTask(item, name, keys[name], needs))
        return tuple(tasks)

    def video_stages_before(self, stage: Stage) -> tuple[str, ...]:
        """Return the names of the stages of kind "video" before a stage in the recipe."""
        before = itertools.takewhile(lambda other: other.name != stage.name, self.stages.values())
        return tuple(other.name for other in before if other.kind == "video")

    def with_dataset_key(self, stage: Stage, key: str) -> "Plan":
        """Return the plan in which a stage of kind "dataset" is done.

        Args:
            stage: the finished stage.
            key: key of its result.
        """
        return replace(self, dataset_keys={**self.dataset_keys, stage.name: key})

    def has_needs_done(self, stage: Stage) -> bool:
        """Return whether all stages of kind "dataset" that a stage reads are done."""
        # Stages of each video are always there. A dataset stage has to be done.
        return all(
            need in self.dataset_keys or self.stages[need].kind == "video" for need in stage.needs
        )

    def dataset_key(
        self, stage: Stage, statuses: Iterable["VideoStatus"], refused: Sequence[Rejected]
    ) -> str:
        """Return the key of the result of a stage of kind "dataset".

        It is a sha256 of the settings, of the results that the stage reads, and of all videos.

        Args:
            stage: the stage.
            statuses: state of each video before the stage, sorted by id.
            refused: entries that the source refused.
        """
        # What the stage is, the dataset stages that it needs, and what was refused.
        about = [stage.name, stage.version, self.settings[stage.name], self.recipe.threads]
        needs = sorted(item for item in self.dataset_keys.items() if item[0] in stage.needs)
        refusals = [[entry.id, entry.reason] for entry in refused]
        digest = hashlib.sha256(_encode_json([about, needs, refusals]))

        # Each video, with the results that the stage reads or the reason why it has none.
        for status in statuses:
            keys = reason = None
            if status.failure is None:
                keys = [status.keys[need] for need in stage.needs if need in status.keys]
            else:
                reason = [status.failure.stage, status.failure.kind, status.failure.reason]
            video = [status.item.id, stage_inputs(stage, status.item)]
            digest.update(_encode_json([video, keys, reason]))
        return digest.hexdigest()


@dataclass(frozen=True)
class VideoStatus:
    """The state of a video after some stages.

    Attributes:
        item: the video.
        keys: keys of its stored results by stage.
        failure: its first failure, None without one.
    """

    item: VideoItem
    keys: Mapping[str, str]
    failure: StageFailure | None


def video_status(
    plan: Plan, results: ResultStore, item: VideoItem, stages: Sequence[str]
) -> VideoStatus | None:
    """Return the state of a video after some stages.

    None if a stage has neither result nor failure.

    Args:
        plan: stages, settings and keys.
        results: stored results and failures.
        item: the video.
        stages: names of the stages.
    """
    # Results in the order of the stages, up to the first failure.
    keys: dict[str, str] = {}
    for task in plan.tasks_of(item):
        if task.stage not in stages:
            continue
        stage = plan.stages[task.stage]
        if not results.has_result(stage, task.key):
            failure = results.find_failure(stage, task.key)
            return None if failure is None else VideoStatus(item, keys, failure)
        keys[task.stage] = task.key
    # A stage has no task yet where a dataset stage before it is not done.
    return VideoStatus(item, keys, None) if len(keys) == len(stages) else None


def iterate_statuses_before(
    stage: Stage, plan: Plan, results: ResultStore, items: Iterable[VideoItem]
) -> Iterator[VideoStatus]:
    """Yield the state of each video before a stage of kind "dataset".

    Args:
        stage: the stage.
        plan: stages, settings and keys.
        results: stored results and failures.
        items: the videos.

    Raises StoreError if a result is missing although its stage has run.
    """
    before = plan.video_stages_before(stage)
    for item in items:
        status = video_status(plan, results, item, before)
        if status is None:
            raise StoreError(
                f"{item.id}: a result of its stages was removed while the run went on; run it again"
            )
        yield status
