"""A dataset on disk from records, features and reasons; then copied to where it is published."""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.atomic_files import remove_file, write_atomic
from stepline.curate.export.card import (
    DatasetFacts,
    dataset_card,
    describe_dataset,
    stage_losses,
    without_folders,
)
from stepline.curate.export.croissant import croissant
from stepline.curate.export.shards import (
    LEFT_OUT,
    TRAIN,
    DatasetRow,
    copy_features,
    write_shards,
    write_tars,
)
from stepline.curate.settings import ExportSettings
from stepline.curate.stage import StageFailure, VideoItem
from stepline.records import Record, Rejected, Video
from stepline.remote import RemotePath

if TYPE_CHECKING:
    from stepline.features import FeatureStore

MIB = 2**20
README, METADATA = "README.md", "croissant.json"
LAST = "dataset.json"  # written last: it lists every other file with its sha256


@dataclass(frozen=True)
class DatasetContents:
    """What goes into a dataset.

    records: yields the records sorted by id, as often as it is called. left_out: id -> why. items:
    id -> where its video lies and what its source tells of it. stages: of the recipe, in its order;
    settings: what decides each.
    media: the videos, by id, where they go along.
    """

    records: Callable[[], Iterable[Record]]
    left_out: Mapping[str, StageFailure]
    items: Mapping[str, VideoItem] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    settings: JsonValue = None
    features: "FeatureStore | None" = None
    media: Mapping[str, RemotePath] | None = None


def export_dataset(
    contents: DatasetContents, folder: Path, settings: ExportSettings
) -> dict[str, JsonValue]:
    """Write a dataset into an empty folder and return its `dataset.json`, which lists every file.

    Nothing but the contents and settings decides a byte. Raises StoreError where the disk does not
    take it.
    """
    facts = DatasetFacts()
    files = write_shards(_counted(contents, facts), TRAIN, folder, settings.rows)
    if contents.left_out:
        files += write_shards(_left_out(contents), LEFT_OUT, folder, settings.rows)
    if (store := contents.features) is not None and settings.features:
        ids = [record.id for record in contents.records() if record.id in store]
        facts.featured = len(ids)
        files += copy_features(ids, store, folder, settings.shard * MIB) if ids else []
    if settings.webdataset:
        media = contents.media if settings.media else None
        files += write_tars(_published(contents), folder, settings.shard * MIB, media)
    losses = stage_losses(contents.left_out.values(), facts.counts.kept, contents.stages)
    tree = describe_dataset(facts, losses, files, settings, without_folders(contents.settings))
    write_atomic(folder / README, dataset_card(tree, settings, contents.stages))
    write_atomic(folder / METADATA, croissant(tree, files, settings))
    write_atomic(folder / LAST, json.dumps(tree, indent=1, ensure_ascii=False) + "\n")
    return tree


def _published(contents: DatasetContents) -> Iterator[Record]:
    """Yield the records as others may see them: their videos by the address in the source."""
    for record in contents.records():
        item = contents.items.get(record.id)
        video = record.video.model_copy(update={"path": item.path if item is not None else None})
        yield record.model_copy(update={"video": video})


def _counted(contents: DatasetContents, facts: DatasetFacts) -> Iterator[DatasetRow]:
    for record in _published(contents):
        facts.add(record)
        yield DatasetRow(record)


def _left_out(contents: DatasetContents) -> Iterator[DatasetRow]:
    for id in sorted(contents.left_out):
        item = contents.items.get(id, VideoItem(id))
        video = Video(
            id=id or "none",
            path=item.path,
            duration=item.duration or None,
            title=item.title,
            task=item.task,
        )
        failure = contents.left_out[id]
        dropped = Rejected("video", f"{failure.stage}: {failure.reason}", text=failure.stage)
        yield DatasetRow(Record(id=id, video=video, dropped=(dropped,)), failure)


LARGE = (".parquet", ".safetensors", ".tar")  # may share their bytes with the stage's folder
OURS = (
    "data/train-",
    "data/left_out-",
    "features/shard-",
    "webdataset/train-",
    "webdataset/README.md",
)


def publish(folder: Path, target: RemotePath) -> None:
    """Copy a dataset's files to a target, and remove those of an earlier dataset that this one
    lacks.

    What belongs to no dataset stays. Doing it again, or after it was stopped, is harmless:
    `dataset.json`, which lists every file, comes last.
    """
    names = sorted(
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
    )
    sizes = (
        {entry.name: entry.size for entry in target.list()}
        if target.local is None or target.exists()
        else {}
    )
    same = LAST in sizes and (target / LAST).read() == (folder / LAST).read_bytes()
    for name in (*(name for name in names if name != LAST), LAST):
        if not (same and sizes.get(name) == (folder / name).stat().st_size):
            _copy(folder / name, target / name)
    for name in sorted(set(sizes) - set(names)):
        if name.startswith(OURS):
            (target / name).remove()


def publish_features(folder: Path, target: RemotePath) -> None:
    """Copy a feature store to a target, of each shard first the rows; shards of an earlier store
    that it lacks go."""
    names = sorted(
        (file.name for file in folder.glob("shard-*")),
        key=lambda name: (name.endswith(".parquet"), name),
    )
    for entry in target.list() if target.local is None or target.exists() else ():
        if entry.name.startswith("shard-") and entry.name not in names:
            (target / entry.name).remove()
    for name in names:
        _copy(folder / name, target / name)


def _copy(source: Path, target: RemotePath) -> None:
    """Copy a file; on the same disk large ones share their bytes."""
    path = target.local
    if path is not None and source.name.endswith(LARGE):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another disk, or one without links, is copied to below.
        with contextlib.suppress(OSError):
            remove_file(path)
            os.link(source, path)
            return
    target.put(source)
