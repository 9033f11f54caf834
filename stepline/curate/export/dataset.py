"""A dataset on disk from records, features and reasons, then copied to where it is published."""

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from stepline.curate.export.card import (
    DatasetFacts,
    dataset_card,
    describe_dataset,
    remove_folders_from_paths,
)
from stepline.curate.export.shards import (
    LEFT_OUT_SPLIT,
    TRAIN_SPLIT,
    DatasetRow,
    copy_features,
    write_shards,
)
from stepline.curate.report.counts import count_stage_losses
from stepline.curate.settings import ExportSettings
from stepline.curate.stage import StageFailure, VideoItem
from stepline.curate.store.results import list_files
from stepline.files.atomic_files import remove_file, write_atomic
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import BYTES_PER_MIB
from stepline.records import Record, Rejected, Video

if TYPE_CHECKING:
    from stepline.features import FeatureStore

CARD_NAME = "README.md"
INDEX_NAME = "dataset.json"  # written last: it lists every other file with its sha256


@dataclass(frozen=True)
class DatasetContents:
    """The contents of a dataset.

    Attributes:
        records: returns an iterator over the records, sorted by id.
        left_out: the failure of each video that is left out, by id.
        items: videos of the source by id.
        stages: names of the stages of the recipe, in its order.
        settings: stage -> settings that decide its result.
        features: store of the visual features, None without one.
    """

    records: Callable[[], Iterable[Record]]
    left_out: Mapping[str, StageFailure]
    items: Mapping[str, VideoItem] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    settings: JsonValue = None
    features: "FeatureStore | None" = None


def export_dataset(
    contents: DatasetContents, folder: Path, settings: ExportSettings
) -> dict[str, JsonValue]:
    """Write a dataset with its card, and return its `dataset.json`, which lists every file.

    Equal contents and settings give equal bytes.

    Args:
        contents: records, left-out videos and features.
        folder: an empty folder.
        settings: name, licence and file sizes of the dataset.

    Raises StoreError if the folder cannot be written.
    """
    # Records, which are counted as they are written.
    facts = DatasetFacts()
    rows = _make_rows(contents, facts)
    files = write_shards(rows, TRAIN_SPLIT, folder, settings.rows)
    if contents.left_out:
        rows = _make_left_out_rows(contents)
        files += write_shards(rows, LEFT_OUT_SPLIT, folder, settings.rows)

    store = contents.features
    if store is not None and settings.features:
        ids = [record.id for record in contents.records() if record.id in store]
        facts.videos_with_features = len(ids)
        if ids:
            files += copy_features(ids, store, folder, settings.shard * BYTES_PER_MIB)

    # Two texts about all of these, the list of files last.
    losses = count_stage_losses(
        contents.left_out.values(), facts.counts.kept_videos, contents.stages
    )
    tree = describe_dataset(
        facts, losses, files, settings, remove_folders_from_paths(contents.settings)
    )
    write_atomic(folder / CARD_NAME, dataset_card(tree, settings, contents.stages))
    write_atomic(folder / INDEX_NAME, json.dumps(tree, indent=1, ensure_ascii=False) + "\n")
    return tree


def _make_rows(contents: DatasetContents, facts: DatasetFacts) -> Iterator[DatasetRow]:
    for record in contents.records():
        facts.add(record)
        # What is published of a video's address is its path in the source.
        item = contents.items.get(record.id, VideoItem(record.id))
        video = record.video.model_copy(update={"path": item.path})
        yield DatasetRow(record.model_copy(update={"video": video}))


def _make_left_out_rows(contents: DatasetContents) -> Iterator[DatasetRow]:
    # A video that is left out has no record of its own, so it gets one with its reason.
    for id, failure in sorted(contents.left_out.items()):
        item = contents.items.get(id, VideoItem(id))
        video = Video(
            id=id or "none",
            path=item.path,
            duration=item.duration or None,
            title=item.title,
            task=item.task,
        )
        dropped = Rejected("video", f"{failure.stage}: {failure.reason}", text=failure.stage)
        yield DatasetRow(Record(id=id, video=video, dropped=(dropped,)), failure)


LARGE_SUFFIXES = (".parquet", ".safetensors")  # may share their bytes with the stage's folder
# What names of a dataset's own files begin with, apart from its two texts. Earlier releases wrote
# tars and croissant.json.
OWN_PREFIXES = (
    "data/train-",
    "data/left_out-",
    "features/shard-",
    "webdataset/train-",
    "webdataset/README.md",
    "croissant.json",
)


def publish_folder(folder: Path, target: RemotePath) -> None:
    """Copy a dataset to a target folder, and delete the files of an earlier dataset there.

    Other files stay. An interrupted copy can be repeated: `dataset.json`, which lists every file,
    is copied last.

    Args:
        folder: local folder of the dataset.
        target: folder that is published, local or remote.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix() for path in files} - {INDEX_NAME}
    sizes = {entry.name: entry.size for entry in list_files(target)}
    # The index lists every file with its sha256, so an equal index means equal files.
    index = (folder / INDEX_NAME).read_bytes()
    same = INDEX_NAME in sizes and (target / INDEX_NAME).read() == index
    for name in [*sorted(names), INDEX_NAME]:
        if not same or sizes.get(name) != (folder / name).stat().st_size:
            _copy_file(folder / name, target / name)
    # What an earlier dataset had, and this one has not. Files of the user stay.
    for name in sorted(sizes.keys() - names):
        if name.startswith(OWN_PREFIXES):
            (target / name).remove()


def publish_features(folder: Path, target: RemotePath) -> None:
    """Copy a feature store to a target folder, and delete the shards of an earlier store there.

    Args:
        folder: local folder of the store.
        target: folder that is published, local or remote.
    """
    # Shards of two stores must not be read together, so the old ones go first.
    names = sorted(file.name for file in folder.glob("shard-*"))
    for entry in list_files(target):
        if entry.name.startswith("shard-") and entry.name not in names:
            (target / entry.name).remove()
    # The rows of a shard come before the index that names them.
    for name in sorted(names, key=lambda name: name.endswith(".parquet")):
        _copy_file(folder / name, target / name)


def _copy_file(source: Path, target: RemotePath) -> None:
    """Copy a file. On the same disk, a large file becomes a hard link."""
    path = target.local
    if path is not None and source.name.endswith(LARGE_SUFFIXES):
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another disk, or one without links, is copied to below.
        with contextlib.suppress(OSError):
            remove_file(path)
            os.link(source, path)
            return
    target.put(source)
