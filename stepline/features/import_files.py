"""Imports feature files of others into a store. Invalid items are dropped with a reason.

How each file is named after its item:

{sub}/{id}.mp4.npy, {id}.webm.npy, {id}.npy        HowTo100M's S3D features, anybody's own
{sub}/{id}.pth.tar, {id}.pth, {id}.pt              InternVideo's and CLIP's features, or a dict with texts
{id}.safetensors, {id}.npz                         what `stepline steps` and others wrote
{id}.npy and the like in a .tar or .tar.gz         WebDataset, Sieve & Swap's features.tar.gz. The id is
                                                   the part before the first dot
any of these that holds {id: (T, D), ...}          VidChapters' one file of all videos
"""

import json
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import StoreError
from stepline.features.files import ARRAY_NAMES, FEATURE_SUFFIXES, parse_rate, read_arrays
from stepline.features.store import (
    BACKBONE_WIDTHS,
    OTHER_ID,
    REPEATED_ID,
    SHARD_BYTES,
    TURNED,
    UNKNOWN_BACKBONE,
    UNREADABLE_FILE,
    FeatureWriter,
    RowTexts,
    is_transposed,
)
from stepline.files.atomic_files import files_below, write_atomic
from stepline.limits import MAX_FEATURES_BYTES, LimitError, TarHeader, parse_json, read_member
from stepline.records import Rejected

DROPPED_NAME = "dropped.jsonl"  # next to the shards
ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz")


@dataclass(frozen=True)
class FeatureFile:
    """A file, or a member of an archive, that holds features.

    Attributes:
        id: id of its item, from the name of the file.
        location: path of the file, or of the archive with the name of the member, for error messages.
        read_content: function that returns the arrays and the metadata of the file, see `read_arrays`.
    """

    id: str
    location: str
    read_content: Callable[[], tuple[Any, Mapping[str, str]]]


@dataclass(frozen=True)
class FeatureItem:
    """The features of one item in a file, before they are checked.

    Attributes:
        id: id of the item, from the name of the file or the key in its dict.
        values: expected to be a (T, D) array of numbers.
        metadata: metadata of the file.
        texts: the texts whose vectors the rows are. None: the rows are features of a video.
        stored_id: id that the file itself states for the item. None: it states none.
    """

    id: str
    values: Any
    metadata: Mapping[str, str]
    texts: RowTexts | None = None
    stored_id: object = None


def find_features(source: Path) -> Iterator[FeatureFile]:
    """Yield the feature files of a source, sorted by name where it is a folder.

    source: a folder, which is searched recursively, a .tar or .tar.gz archive, or one feature file.

    Raises StoreError if there is no feature file, and for several arrays of one id in an archive.
    """
    if not source.exists():
        raise StoreError(
            f"{source}: no such file or folder; give features, a folder of them, or a WebDataset's "
            ".tar"
        )
    is_empty = True
    for path in files_below(source) if source.is_dir() else [source]:
        for file in _features_in(path):
            is_empty = False
            yield file
    if is_empty:
        raise StoreError(
            f"{source}: holds no feature file ({' '.join(FEATURE_SUFFIXES)}, or these in a .tar); "
            "give the folder that does"
        )


def read_items(file: FeatureFile) -> Iterator[FeatureItem]:
    """Yield the items of a file: one item, or one per key of a dict of several items.

    Raises StoreError if the file cannot be read.
    """
    content, metadata = file.read_content()
    if not isinstance(content, Mapping):
        yield FeatureItem(file.id, content, metadata)
        return
    names = list(map(str, content))
    # numpy's own names are as arr_0.
    is_unnamed = len(names) == 1 and not names[0].strip("0123456789arx_")
    array_names = [name for name in ARRAY_NAMES if name in content] or names[:is_unnamed]
    if array_names:
        # A file of one item, under one of the usual names.
        texts = _parse_row_texts(content)
        yield FeatureItem(file.id, content[array_names[0]], metadata, texts, content.get("vid"))
    else:
        # Any other dict is one of items.
        for id, values in content.items():
            yield FeatureItem(str(id), values, metadata)


def item_id(name: str) -> str | None:
    """Return the id of an item from the name of its file. None for a file of another kind."""
    # The longest ending counts: .mp4.npy is more than .npy.
    lengths = [len(suffix) for suffix in FEATURE_SUFFIXES if name.lower().endswith(suffix)]
    id = name[: -max(lengths)] if lengths else ""
    return id or None


def _features_in(path: Path) -> Iterator[FeatureFile]:
    # A .pth.tar is what torch wrote, not an archive.
    if path.name.endswith(ARCHIVE_SUFFIXES) and not path.name.endswith(".pth.tar"):
        yield from _features_in_archive(path)
        return
    id = item_id(path.name)
    if id is not None and not path.name.startswith("."):
        yield FeatureFile(id, str(path), partial(read_arrays, path))


def _features_in_archive(path: Path) -> Iterator[FeatureFile]:
    """Yield the feature files of an archive.

    Two adjacent members with the same id are an error.
    """
    last_id = last_suffix = ""
    try:
        with tarfile.open(path, tarinfo=TarHeader) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                id, _, suffix = name.partition(".")
                if not (member.isfile() and id and item_id(name)):
                    continue
                if id == last_id and suffix != last_suffix:  # only its user knows which is wanted
                    raise StoreError(
                        f"{path}: {id} holds several arrays, .{last_suffix}, .{suffix}; unpack it "
                        "and give a folder of those that are wanted"
                    )
                last_id, last_suffix = id, suffix
                location = f"{path}:{member.name}"
                try:
                    data = read_member(archive, member, MAX_FEATURES_BYTES)
                except LimitError as error:
                    raise StoreError(
                        f"{location}: {error}, so no features; leave it out"
                    ) from error
                yield FeatureFile(id, location, partial(read_arrays, location, data))
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        reason = " ".join(str(error).split())  # tarfile reports in several lines what it tried
        raise StoreError(f"{path}: a damaged archive ({reason}); download it again") from error


def _parse_row_texts(item: Mapping[str, Any]) -> RowTexts | None:
    """Return the texts in a file of NaSVA, {vid, start, end, text, features}. None without them."""
    if "text" not in item:
        return None
    texts = tuple(str(text) for text in np.atleast_1d(item["text"]))
    try:
        return RowTexts(texts, _parse_times(item.get("start")), _parse_times(item.get("end")))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"its times are not numbers ({error}); extract the text features again"
        ) from error


def _parse_times(column: Any) -> tuple[float, ...]:
    """Return the times in a column, () if the column is missing."""
    if column is None:
        return ()
    return tuple(np.atleast_1d(np.asarray(column, dtype=np.float64)).tolist())


@dataclass(frozen=True)
class ImportReport:
    """The result of importing feature files into a store.

    Attributes:
        added_ids: ids of the items that were added.
        rows: total number of rows of the added items.
        already_stored: number of items that the store held before the import.
        dropped: items that could not be added, and why.
        warnings: what may be wrong with the items that were added or present.
    """

    added_ids: tuple[str, ...]
    rows: int
    already_stored: int
    dropped: tuple[Rejected, ...]
    warnings: tuple[str, ...]


def import_features(
    source: Path,
    folder: Path,
    *,
    rate: float = 1.0,
    backbone: str | None = None,
    width: int | None = None,
    shard_bytes: int = SHARD_BYTES,
    report: Callable[[str], None] | None = None,
) -> ImportReport:
    """Import feature files into a store, and return a report.

    Items that the store holds are not read again, so an import that was killed can be resumed. The
    file `dropped.jsonl` lists the items that this import dropped, with reasons.

    Args:
        source: folder of feature files, .tar archive, or one feature file.
        folder: folder of the store.
        rate: rows per second, for files that state no rate.
        backbone: name of the feature extractor, for files that state none.
        width: required D, the width of a row. None: the width of the first item.
        shard_bytes: size of a shard of the store in bytes.
        report: function that is called with the id of each file. None: no reports.

    Raises StoreError if there is no feature file, or the arrays look turned, (width, rows).
    """
    with FeatureWriter(folder, width=width, shard_bytes=shard_bytes) as writer:
        importer = _Importer(writer, rate, backbone)
        try:
            for file in find_features(source):
                importer.add_file(file)
                if report is not None:
                    report(file.id)
        finally:
            importer.add_first_items()
    lines = []
    for row in importer.dropped:
        fields = {"id": row.id, "place": row.location, "reason": row.reason, "value": row.value}
        lines.append(json.dumps(fields, ensure_ascii=False) + "\n")
    write_atomic(folder / DROPPED_NAME, "".join(lines))
    return ImportReport(
        tuple(importer.added),
        importer.rows,
        importer.already,
        tuple(importer.dropped),
        importer.warnings(),
    )


FIRST_ITEMS = 8  # whose shapes say together whether arrays are turned, before any is stored


class _Importer:
    """One running import: it counts the items that were added, present or dropped."""

    def __init__(self, writer: FeatureWriter, rate: float, backbone: str | None) -> None:
        self._writer = writer
        self._rate = rate
        self._backbone = backbone
        self._locations: dict[str, str] = {}  # id -> where it was first found, in this run
        self.added: dict[str, None] = {}  # in order
        self.rows = 0
        self.already = 0
        self.dropped: list[Rejected] = []
        self._first_items: list[tuple[FeatureItem, str]] | None = []  # None: they are checked
        self._other_backbones: Counter[str] = Counter()  # of items that were there already
        self._other_widths: Counter[tuple[str, int]] = Counter()  # (backbone, width) of items
        self._note = ""

    def warnings(self) -> tuple[str, ...]:
        """Return a line for each thing that may be wrong with the items of the store."""
        lines = [self._note] if self._note else []
        for name, count in self._other_backbones.items():
            lines.append(
                f"{count} items that were there already are stored as of {name!r}, not of "
                f"{self._backbone!r}; import them into a new --out to name them"
            )
        for (name, width), count in self._other_widths.items():
            usual = " or ".join(map(str, BACKBONE_WIDTHS[name]))
            lines.append(
                f"{count} items are {width} wide, and rows of {name} {usual}; check --backbone"
            )
        return tuple(lines)

    def add_first_items(self) -> None:
        """Check the shapes of the first items together, and add these to the store.

        Raises StoreError if the arrays look turned.
        """
        items, self._first_items = self._first_items, None
        if not items:
            return
        if self._writer.width is None:
            self._check_shapes(items)
        for item, location in items:
            self._add_item(item, location)

    def _check_shapes(self, items: Sequence[tuple[FeatureItem, str]]) -> None:
        """Set the width of the store to the most frequent one of the first items.

        Raises StoreError if the arrays look turned: all have one number of rows, and either other
        widths, or as many rows as a known backbone has numbers per row, which the width is not.
        """
        shapes = []
        for item, _ in items:
            if isinstance(item.values, np.ndarray) and item.values.ndim == 2:
                shapes.append(item.values.shape)
        if not shapes:
            return
        counts = Counter(width for _, width in shapes)
        width = counts.most_common(1)[0][0]
        row_counts = {rows for rows, _ in shapes}
        rows = max(row_counts)
        known = {width for widths in BACKBONE_WIDTHS.values() for width in widths}
        if len(row_counts) == 1 and (len(counts) > 1 or (rows in known and width not in known)):
            raise StoreError(
                f"{items[0][1]}: {rows} rows of {width} look turned, (width, rows); transpose the "
                f"arrays, or give --width {width} if a row has that many numbers"
            )
        if len(shapes) > len(row_counts) == 1 and rows > width:
            self._note = f"all arrays have {rows} rows of {width}; if {rows} is their width"
            self._note += ", transpose them"
        if width:
            self._writer.width = width

    def add_file(self, file: FeatureFile) -> None:
        """Add the items of a file to the store, or record why they are dropped."""
        if file.id in self._writer and file.id not in self._locations:
            self._locations[file.id] = file.location
            self._count_present(file.id)
            return
        try:
            items = list(read_items(file))
        except StoreError as error:
            self._drop(UNREADABLE_FILE, str(error), file.id, file.location)
            return
        for item in items:
            if self._first_items is None:
                self._add_item(item, file.location)
                continue
            self._first_items.append((item, file.location))
            if len(self._first_items) == FIRST_ITEMS:
                self.add_first_items()

    def _add_item(self, item: FeatureItem, location: str) -> None:
        # What an earlier run stored from this file is counted, not added.
        first = self._locations.setdefault(item.id, location)
        if item.id in self._writer and item.id not in self.added and first == location:
            self._count_present(item.id)
            return
        rejection = self._writer.rejection_reason(item.id, item.values, item.texts)
        if item.stored_id is not None and str(item.stored_id) != item.id:
            rejection = OTHER_ID, str(item.stored_id)
        backbone = self._backbone or item.metadata.get("backbone", UNKNOWN_BACKBONE)
        if rejection is None and is_transposed(item.values, backbone):
            rejection = TURNED, f"{item.values.shape} of {backbone}"
        if rejection is not None:
            reason, value = rejection
            self._drop(reason, first if reason == REPEATED_ID else value, item.id, location)
            return
        # The rate is the file's own where it states one, the backbone the call's.
        try:
            rate = parse_rate(item.id, item.metadata, self._rate)
        except StoreError as error:
            self._drop(UNREADABLE_FILE, str(error), item.id, location)
            return
        width = item.values.shape[1]
        if width not in BACKBONE_WIDTHS.get(backbone, (width,)):
            self._other_widths[backbone, width] += 1
        self._writer.add(item.id, item.values, rate=rate, backbone=backbone, texts=item.texts)
        self.added[item.id] = None
        self.rows += len(item.values)

    def _count_present(self, id: str) -> None:
        self.already += 1
        stored = self._writer.backbone_of(id)
        if self._backbone not in (None, stored):
            self._other_backbones[stored] += 1

    def _drop(self, reason: str, value: str, id: str, location: str) -> None:
        row = Rejected("features", reason, id=id, value=value, location=location)
        self.dropped.append(row)


def read_dropped(path: Path) -> tuple[Rejected, ...]:
    """Return the items listed in the `dropped.jsonl` of an import, () if the file is missing."""
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
