"""Records, features and reasons into one dataset on disk.

A finished dataset to where it is published: what is there already stays, what belongs to no dataset stays, too.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.curate.export.card import Facts, card, falls, told, without_folders
from stepline.curate.export.croissant import croissant
from stepline.curate.export.shards import LEFT_OUT, TRAIN, Row, Written, copy_features, left_out_row, write_shards
from stepline.curate.export.webdataset import write_tars
from stepline.curate.remote import RemotePath
from stepline.curate.settings import ExportSettings
from stepline.curate.stage import Item, StageFailure
from stepline.records import Record, Video
from stepline.storage import remove_file, write_atomic

if TYPE_CHECKING:
    from stepline.features import FeatureStore

MIB = 2**20
README, METADATA, TOLD = "README.md", "croissant.json", "dataset.json"


@dataclass(frozen=True)
class Contents:
    """What goes into a dataset.

    records: yields the records sorted by id, as often as it is called. left_out: id -> why. items: id -> where its
    video lies and what its source tells of it. stages: of the recipe, in its order; settings: what decides each.
    media: the videos, by id, where they go along.
    """

    records: Callable[[], Iterable[Record]]
    left_out: Mapping[str, StageFailure]
    items: Mapping[str, Item] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    settings: JsonValue = None
    features: "FeatureStore | None" = None
    media: Mapping[str, RemotePath] | None = None


def export_dataset(contents: Contents, folder: Path, settings: ExportSettings) -> dict[str, JsonValue]:
    """Write a dataset into an empty folder and return its `dataset.json`, which lists every file.

    Nothing but the contents and settings decides a byte. Raises StoreError where the disk does not take it.
    """
    facts = Facts()
    files = write_shards(_counted(contents, facts), TRAIN, folder, settings.rows)
    if contents.left_out:
        files += write_shards(_left_out(contents), LEFT_OUT, folder, settings.rows)
    files += _features(contents, facts, folder, settings)
    if settings.webdataset:
        media = contents.media if settings.media else None
        files += write_tars(_published(contents), folder, settings.shard * MIB, media)
    fallen = falls(contents.left_out.values(), facts.counts.kept, contents.stages)
    tree = told(facts, fallen, files, settings, without_folders(contents.settings))
    _write(folder, tree, files, settings, contents.stages)
    return tree


def _write(
    folder: Path, tree: dict[str, JsonValue], files: list[Written], settings: ExportSettings, stages: tuple[str, ...]
) -> None:
    write_atomic(folder / README, card(tree, settings, stages))
    write_atomic(folder / METADATA, croissant(tree, files, settings))
    write_atomic(folder / TOLD, json.dumps(tree, indent=1, ensure_ascii=False) + "\n")


def _published(contents: Contents) -> Iterator[Record]:
    """Yield the records as others may see them: their videos by the address in the source."""
    for record in contents.records():
        item = contents.items.get(record.id)
        video = record.video.model_copy(update={"path": item.path if item is not None else None})
        yield record.model_copy(update={"video": video})


def _counted(contents: Contents, facts: Facts) -> Iterator[Row]:
    for record in _published(contents):
        facts.add(record)
        yield Row(record)


def _left_out(contents: Contents) -> Iterator[Row]:
    for id in sorted(contents.left_out):
        item = contents.items.get(id, Item(id))
        duration = item.duration if item.duration else None
        video = Video(id=id or "none", path=item.path, duration=duration, title=item.title, task=item.task)
        yield left_out_row(contents.left_out[id], video)


def _features(contents: Contents, facts: Facts, folder: Path, settings: ExportSettings) -> list[Written]:
    store = contents.features
    if store is None or not settings.features:
        return []
    ids = [record.id for record in contents.records() if record.id in store]
    facts.featured = len(ids)
    return copy_features(ids, store, folder, settings.shard * MIB) if ids else []


LAST = "dataset.json"  # written last: it lists every other file with its sha256
LARGE = (".parquet", ".safetensors", ".tar")  # may share their bytes with the stage's folder
OURS = ("data/train-", "data/left_out-", "features/shard-", "webdataset/train-")


def publish(folder: Path, place: RemotePath) -> None:
    """Copy a dataset's files to a place, and remove those of an earlier dataset that this one lacks.

    Doing it again, or after it was stopped, is harmless: `dataset.json`, which lists every file, comes last.
    """
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    known = {found.name: found.size for found in place.list()} if place.local is None or place.exists() else {}
    same = LAST in known and (place / LAST).read() == (folder / LAST).read_bytes()
    for name in (*(name for name in names if name != LAST), LAST):
        if not (same and known.get(name) == (folder / name).stat().st_size):
            _copy(folder / name, place / name)
    for name in sorted(set(known) - set(names)):
        if name.startswith(OURS):
            (place / name).remove()


def _copy(source: Path, target: RemotePath) -> None:
    """Copy a file; on the same disk large ones share their bytes."""
    path = target.local
    if path is not None and source.name.endswith(LARGE):
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # another disk, or one without links: copied below
            remove_file(path)
            os.link(source, path)
            return
    target.put(source)
