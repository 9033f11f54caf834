"""Import of other people's feature files into a store. What cannot be features is left out, with
the reason.

How each file is named after its item:

{sub}/{id}.mp4.npy, {id}.webm.npy, {id}.npy        HowTo100M's S3D features, anybody's own
{sub}/{id}.pth.tar, {id}.pth, {id}.pt              InternVideo's and CLIP's features; a dict with texts
{id}.safetensors, {id}.npz                         what `stepline steps` and others wrote
{key}.{ending} in a .tar or .tar.gz                WebDataset, Sieve & Swap's features.tar.gz: the id stands before
                                                   the first dot
any of these that holds {id: (T, D), ...}          VidChapters' one file of all videos
"""

import itertools
import json
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import StoreError
from stepline.features.files import ARRAY_NAMES, FEATURE_SUFFIXES, read_arrays, stated_rate
from stepline.features.shard_index import RowTexts
from stepline.features.store import (
    OTHER_ID,
    REPEATED_ID,
    SHARD_BYTES,
    UNKNOWN_BACKBONE,
    UNREADABLE_FILE,
    FeatureWriter,
)
from stepline.files.atomic_files import files_below, write_atomic
from stepline.limits import MAX_FEATURES_BYTES, LimitError, TarHeader, parse_json, read_member
from stepline.records import Rejected

DROPPED_NAME = "dropped.jsonl"  # next to the shards
ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class FeatureFile:
    """A file, or a member of an archive, that may hold features. `read_content` returns what is in
    it and its metadata."""

    id: str
    location: str
    read_content: Callable[[], tuple[Any, Mapping[str, str]]]


@dataclass(frozen=True)
class FeatureItem:
    """What a file holds of one item. own_id: the id that it gives itself, None where it gives
    none."""

    id: str
    values: Any
    metadata: Mapping[str, str]
    texts: RowTexts | None = None
    own_id: object = None


def find_features(source: Path, ending: str | None = None) -> Iterator[FeatureFile]:
    """Yield the feature files of a folder (all below it, in name order), of a .tar or .tar.gz, or
    the one file.

    ending: of the names that count, for example .video.npy in a WebDataset that holds several
    arrays a key.
    Raises StoreError when there is no such file, no feature file in it, or several arrays a key and
    no ending.
    """
    if not source.exists():
        cure = "give features, a folder of them, or a WebDataset's .tar"
        raise StoreError(f"{source}: no such file or folder; {cure}")
    paths: Iterable[Path] = files_below(source) if source.is_dir() else [source]
    files = (file for path in paths for file in _in_file(path, ending))
    # Without a first file there is nothing to import.
    first = next(files, None)
    if first is None:
        kind = f"({' '.join(FEATURE_SUFFIXES)}, or these in a .tar)"
        if ending:
            kind = f"that ends with {ending}"
        raise StoreError(f"{source}: holds no feature file {kind}; give the folder that does")
    yield from itertools.chain((first,), files)


def read_items(file: FeatureFile) -> Iterator[FeatureItem]:
    """Yield what a file holds: one item, or each of a dict of items. Raises StoreError when it
    cannot be read."""
    content, metadata = file.read_content()
    if not isinstance(content, Mapping):
        yield FeatureItem(file.id, content, metadata)
        return
    named = [name for name in ARRAY_NAMES if name in content]
    names = list(map(str, content))
    # numpy's own names are as arr_0.
    is_unnamed = len(names) == 1 and not names[0].strip("0123456789arx_")
    if named:
        # A file of one item, under one of the usual names.
        texts = _row_texts(content)
        yield FeatureItem(file.id, content[named[0]], metadata, texts, content.get("vid"))
    elif is_unnamed:
        (values,) = content.values()
        yield FeatureItem(file.id, values, metadata)
    else:
        # Any other dict is one of items.
        for id, values in content.items():
            yield FeatureItem(str(id), values, metadata)


def item_id(name: str, ending: str | None = None) -> str | None:
    """Return the id that a file's name gives, or None where it is not a feature file."""
    endings = (ending,) if ending else FEATURE_SUFFIXES
    # The longest ending counts: .mp4.npy is more than .npy.
    lengths = [len(suffix) for suffix in endings if name.lower().endswith(suffix.lower())]
    longest = max(lengths, default=len(name))
    return None if len(name) <= longest else name[:-longest]


def _in_file(path: Path, ending: str | None) -> Iterator[FeatureFile]:
    # A .pth.tar is what torch wrote, not an archive.
    if path.name.endswith(ARCHIVE_SUFFIXES) and not path.name.endswith(".pth.tar"):
        yield from _in_tar(path, ending)
        return
    id = item_id(path.name, ending)
    if id is not None and not path.name.startswith("."):
        yield FeatureFile(id, str(path), partial(read_arrays, path))


def _in_tar(path: Path, ending: str | None) -> Iterator[FeatureFile]:
    """Yield a WebDataset's members. The members of a key follow each other, and all are seen before
    one is read."""
    try:
        with tarfile.open(path, tarinfo=TarHeader) as archive:
            for key, group in itertools.groupby(_members(archive, ending), _key):
                members = list(group)
                endings = sorted({_ending(member) for member in members})
                if len(endings) > 1:  # which of them is wanted, only its user knows
                    cure = f"give the one that is wanted, for example --ending {endings[-1]}"
                    raise StoreError(
                        f"{path}: {key} holds several arrays, {', '.join(endings)}; {cure}"
                    )
                for member in members:
                    location = f"{path}:{member.name}"
                    try:
                        data = read_member(archive, member, MAX_FEATURES_BYTES)
                    except LimitError as error:
                        raise StoreError(
                            f"{location}: {error}, so no features; leave it out"
                        ) from error
                    yield FeatureFile(key, location, partial(read_arrays, location, data))
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())  # tarfile reports in several lines what it tried
        raise StoreError(f"{path}: a damaged archive ({reason}); download it again") from error


def _members(archive: tarfile.TarFile, ending: str | None) -> Iterator[tarfile.TarInfo]:
    """Yield the members that may hold features. `ending` is all that follows the key."""
    for member in archive:
        key = _key(member)
        own_ending = _ending(member)
        if not member.isfile() or not key:
            continue
        is_wanted = not ending or own_ending.lower() == ending.lower()
        if is_wanted and item_id(f"{key}{own_ending}", ending):
            yield member


def _key(member: tarfile.TarInfo) -> str:
    """Return what precedes the first dot of a member's name, without folders."""
    return member.name.rpartition("/")[2].partition(".")[0]


def _ending(member: tarfile.TarInfo) -> str:
    """Return what follows a member's key, from its first dot on."""
    return member.name.rpartition("/")[2].removeprefix(_key(member))


def _row_texts(item: Mapping[str, Any]) -> RowTexts | None:
    """Return the texts next to the features, as NaSVA's loader takes them: {vid, start, end, text,
    features}."""
    if "text" not in item:
        return None
    texts = tuple(str(text) for text in np.atleast_1d(item["text"]))
    try:
        return RowTexts(texts, _times(item.get("start")), _times(item.get("end")))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"its times are not numbers ({error}); extract the text features again"
        ) from error


def _times(column: Any) -> tuple[float, ...]:
    """Return the times of a column, or none where there is no column."""
    if column is None:
        return ()
    return tuple(np.atleast_1d(np.asarray(column, dtype=np.float64)).tolist())


@dataclass(frozen=True)
class ImportReport:
    """What an import did. added: ids. rows: of them. already: items that the store held before."""

    added: tuple[str, ...]
    rows: int
    already: int
    dropped: tuple[Rejected, ...]


def import_features(
    source: Path,
    folder: Path,
    *,
    rate: float = 1.0,
    backbone: str | None = None,
    width: int | None = None,
    ending: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    report: Callable[[str], None] | None = None,
) -> ImportReport:
    """Add the feature files of a folder, a .tar or one file to the store in `folder`, and return
    what was done.

    rate: rows per second, and backbone: who made them, for files that do not say so themselves.
    width: what all must be, else the first to be stored decides. Items that the store holds are not
    read again, so that an import that was killed goes on. What was dropped is in `dropped.jsonl`,
    with its reason. Raises StoreError without any feature file.
    """
    with FeatureWriter(folder, width=width, shard_bytes=shard_bytes) as writer:
        importer = _Importer(writer, rate, backbone)
        for file in find_features(source, ending):
            importer.add_file(file)
            if report is not None:
                report(file.id)
    # What was dropped of other sources before, and was not added since, is dropped still.
    dropped = []
    below = (f"{source}/", f"{source}:")
    for row in read_dropped(folder / DROPPED_NAME):
        of_source = row.location == str(source) or row.location.startswith(below)
        if row.id not in writer and not of_source:
            dropped.append(row)
    dropped += importer.dropped
    write_dropped(dropped, folder / DROPPED_NAME)
    return ImportReport(
        tuple(importer.added), importer.rows, importer.already, tuple(importer.dropped)
    )


class _Importer:
    """One import: what was added, what was there already, what was left out."""

    def __init__(self, writer: FeatureWriter, rate: float, backbone: str | None) -> None:
        self._writer = writer
        self._rate = rate
        self._backbone = backbone
        self._locations: dict[str, str] = {}  # id -> where it was first found, in this run
        self.added: dict[str, None] = {}  # in order
        self.rows = 0
        self.already = 0
        self.dropped: list[Rejected] = []

    def add_file(self, file: FeatureFile) -> None:
        """Add what a file holds, or note why not."""
        if file.id in self._writer and file.id not in self._locations:
            self._locations[file.id] = file.location
            self.already += 1
            return
        try:
            for item in read_items(file):
                self._add_item(item, file.location)
        except StoreError as error:
            self._drop(UNREADABLE_FILE, str(error), file.id, file.location)

    def _add_item(self, item: FeatureItem, location: str) -> None:
        # What an earlier run stored from this file is counted, not added.
        first = self._locations.setdefault(item.id, location)
        if item.id in self._writer and item.id not in self.added and first == location:
            self.already += 1
            return
        # What cannot be added is noted with its reason.
        rejection = self._writer.rejection_reason(item.id, item.values, item.texts)
        if item.own_id is not None and str(item.own_id) != item.id:
            rejection = OTHER_ID, str(item.own_id)
        if rejection is not None:
            reason, value = rejection
            if reason == REPEATED_ID:
                value = first
            self._drop(reason, value, item.id, location)
            return
        # The rate is the file's own where it states one, the backbone the call's.
        rate = stated_rate(item.id, item.metadata, self._rate)
        backbone = self._backbone or item.metadata.get("backbone", UNKNOWN_BACKBONE)
        self._writer.add(item.id, item.values, rate=rate, backbone=backbone, texts=item.texts)
        self.added[item.id] = None
        self.rows += len(item.values)

    def _drop(self, reason: str, value: str, id: str, location: str) -> None:
        row = Rejected("features", reason, id=id, value=value, location=location)
        self.dropped.append(row)


def write_dropped(dropped: Iterable[Rejected], path: Path) -> None:
    """Write what was dropped, a JSON line each."""
    lines = []
    for row in dropped:
        fields = {"id": row.id, "place": row.location, "reason": row.reason, "value": row.value}
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    write_atomic(path, "".join(lines))


def read_dropped(path: Path) -> tuple[Rejected, ...]:
    """Return what `write_dropped` wrote, or nothing where there is no such file."""
    if not path.exists():
        return ()
    try:
        rows = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return tuple(
            Rejected(
                "features",
                row["reason"],
                id=row["id"],
                value=row.get("value", ""),
                location=row["place"],
            )
            for row in rows
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{path}: not a list of dropped items ({error}); remove it") from error
