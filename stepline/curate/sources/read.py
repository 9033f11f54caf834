"""Any source to entries: what kind it is, what is wanted of it, in the order of ids.

Here too the plainest kind: a folder or bucket of videos, with their captions in it or in a folder
of their own.

Lists of videos are Parquet, csv, tsv or JSON lines: one row per video, its columns as the settings
name them. HowTo100M as it is published: a table of ids, categories and tasks, captions and features by id.

FOLDER/HowTo100M_v1.csv            video_id, category_1, category_2, rank, task_id
FOLDER/task_ids.csv, htm_vlen.csv  titles of tasks, lengths of videos; where they are
FOLDER/caption.json or raw_caption.json, or a folder `captions` of ID.csv     unless source.captions names them
source.features, source.videos     folders of ID.mp4.npy and of ID.mp4; where they are
"""

import csv
import difflib
import gzip
import io
import tempfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import BinaryIO, TextIO, TypeVar, cast

from stepline.curate.settings import ColumnsSettings, SourceSettings
from stepline.curate.sources.addresses import (
    absolute_path,
    is_list,
    make_absolute_address,
    refusal_reason,
    relative_address,
    source_root,
)
from stepline.curate.sources.files import (
    STAMP_FIELDS,
    AmbiguousCaptionsError,
    CaptionsFiles,
    FileIndex,
    SideFolders,
    StampedFile,
    captions_id,
    file_stamp,
    read_text_lines,
    video_id,
    with_file,
)
from stepline.curate.sources.select import SourceFilter
from stepline.curate.stage import SourceEntry, VideoItem, reject_video
from stepline.errors import DatasetError, first_line
from stepline.files.parquet import ParquetError, ParquetReader
from stepline.files.remote import DEFAULT_SETTINGS as REMOTE_DEFAULTS
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings
from stepline.limits import parse_json_text
from stepline.records import Rejected
from stepline.sieve_swap.videos import (
    LENGTHS_COLUMNS,
    LENGTHS_FILE,
    TITLES_FILE,
    VIDEOS_FILE,
    CsvTable,
    parse_seconds,
    read_titles,
)

TABLE_COLUMNS = ("video_id", "category_1", "task_id")
CAPTIONS_NAMES = ("caption.json", "raw_caption.json", "captions")  # the first that is there is used
NO_FILE = "neither its video nor captions nor features of it are here"


def read_howto100m(
    source: RemotePath,
    settings: SourceSettings,
    source_filter: SourceFilter,
    remote: RemoteSettings,
) -> Iterator[SourceEntry]:
    """Yield the selected videos of HowTo100M's table, and those that are refused.

    Args:
        source: the table HowTo100M_v1.csv, or its folder.
        settings: folders of captions, features and videos.
        source_filter: selects videos by id and category.
        remote: limits and retries of remote files.

    Raises DatasetError if the table is missing or has other columns.
    """
    # A folder, or the table in it.
    table = source if source.name.endswith(".csv") else source / VIDEOS_FILE
    folder = RemotePath(table.url.rpartition("/")[0] or ".", remote)
    nearby = (folder / name for name in CAPTIONS_NAMES)
    captions = settings.captions or next((path.url for path in nearby if path.exists()), None)
    settings = settings.model_copy(update={"captions": captions})
    side_folders = SideFolders(settings, remote)
    # The rows of the table, one video each.
    lengths, titles = _read_tables(folder)
    for row in _read_rows(table):
        id = row["video_id"]
        category = row["category_1"] or None
        if not source_filter.accepts(id, category):
            continue
        task_id = row["task_id"]
        task = titles.get(task_id, task_id) or None
        length = lengths.find(id)
        duration = parse_seconds(length[0]) if length else None
        yield side_folders.make_entry(
            VideoItem(id, title=task, task=task, category=category, duration=duration), NO_FILE
        )


def _read_rows(table: RemotePath) -> Iterator[dict[str, str]]:
    try:
        with table.open() as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
            rows = csv.DictReader(read_text_lines(table, text))
            for column in TABLE_COLUMNS:
                if column not in (rows.fieldnames or ()):
                    raise DatasetError(
                        f"{table.display_url}: it lacks the column {column!r}; "
                        "give HowTo100M_v1.csv, or source.kind=list for a list of your own"
                    )
            for row in rows:
                yield {column: (row[column] or "").strip() for column in TABLE_COLUMNS}
    except csv.Error as error:
        raise DatasetError(
            f"{table.display_url}: not valid csv ({error}); download it again"
        ) from error


def _read_tables(folder: RemotePath) -> tuple[CsvTable, dict[str, str]]:
    """Return the video lengths by id, and the task titles by task id. Each table may be missing."""
    with tempfile.TemporaryDirectory(prefix="stepline-tables-") as scratch:
        for name in (LENGTHS_FILE, TITLES_FILE):
            if (folder / name).exists():
                (folder / name).fetch(Path(scratch) / name)
        lengths = CsvTable(Path(scratch) / LENGTHS_FILE, LENGTHS_COLUMNS)
        return lengths, read_titles(Path(scratch) / TITLES_FILE)


T = TypeVar("T")
Row = Mapping[str, object]
Rows = Iterator[Row]

BATCH_ROWS = 10_000  # of a Parquet file, held together
MAX_QUOTED_CHARS = 200  # of what an error repeats
DAMAGE_ERRORS = (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError)


def read_list(
    source: RemotePath,
    settings: SourceSettings,
    source_filter: SourceFilter,
    side_folders: SideFolders,
) -> Iterator[SourceEntry]:
    """Yield the selected videos of a list, one per row. A row whose file does not exist is refused.

    Args:
        source: the list (.parquet, .csv, .tsv, .jsonl).
        settings: column names, and whether files are checked.
        source_filter: selects videos by id and category.
        side_folders: folders with further files of the videos (captions, features), found by video
            id.

    Raises DatasetError for an unreadable list or a missing column.
    """
    columns = settings.columns.model_dump()
    with ExitStack() as exit_stack:
        names, rows = _open_list(source, exit_stack, columns.values())
        _check_columns(source, names, settings.columns)
        # A list from elsewhere may have no end.
        for number, row in enumerate(_limit_count(source, rows, "rows"), start=1):
            # An empty cell counts as one that is not there. A JSON object may lack any key.
            cells = {}
            for field, column in columns.items():
                cell = row.get(column)
                cells[field] = "" if cell is None else str(cell).strip()
            # Without an id of its own, a row is named by its video's file.
            id = cells.get("id") or PurePosixPath(cells.get("video", "")).name.rpartition(".")[0]
            if not id:
                reason = "its row has neither an id nor a video's address"
                yield reject_video(f"row {number}", reason)
            elif source_filter.accepts(id, cells.get("category") or None):
                yield _make_entry(id, cells, source, side_folders, has_stamps=settings.stamps)


def _make_entry(
    id: str,
    cells: Mapping[str, str],
    source: RemotePath,
    side_folders: SideFolders,
    *,
    has_stamps: bool,
) -> SourceEntry:
    item = VideoItem(
        id,
        title=cells.get("title") or None,
        task=cells.get("task") or None,
        category=cells.get("category") or None,
        duration=parse_seconds(cells.get("duration", "")),
    )
    # Every address is checked before a file is looked at.
    urls = {
        field: make_absolute_address(cells[field], source_root(source.url))
        for field in STAMP_FIELDS
        if cells.get(field)
    }
    for url in urls.values():
        reason = refusal_reason(url, source)
        if reason is not None:
            return reject_video(id, reason)
    for field, url in urls.items():
        stamp = file_stamp(url, source.settings) if has_stamps else ""
        if stamp is None:
            what = "video" if field == "video" else f"file of {field}"
            return reject_video(id, f"its {what} is not there")
        item = with_file(item, field, StampedFile(url, stamp))
    # The settings' folders complete what the row does not name.
    return side_folders.make_entry(
        item, "its row names no file, and none of its id is in the folders of the settings"
    )


def _check_columns(source: RemotePath, names: Sequence[str], columns: ColumnsSettings) -> None:
    """Raise DatasetError if a column is missing that the settings rename, or if there is neither an
    id nor a video.
    """
    usual = ColumnsSettings().model_dump()
    # A column that the settings rename has to be there. Others may be missing.
    required = [
        (field, column)
        for field, column in columns.model_dump().items()
        if column not in names and column != usual[field]
    ]
    if not required and not {columns.id, columns.video} & {*names}:
        required.append(("video", columns.video))
    if required:
        field, column = required[0]
        matches = difflib.get_close_matches(column, names, n=1, cutoff=0.5)
        cure = f"it has {', '.join(names)[:MAX_QUOTED_CHARS]}"
        if matches:
            cure = f"did you mean source.columns.{field}={matches[0]}?"
        raise DatasetError(f"{source.display_url}: it lacks the column {column!r}; {cure}")


def _open_list(
    source: RemotePath, exit_stack: ExitStack, columns: Collection[str]
) -> tuple[Sequence[str], Rows]:
    """Return the column names of a list and an iterator over its rows.

    Args:
        source: the list.
        exit_stack: stack that closes the file.
        columns: names of the columns that are read from a Parquet file.
    """
    # The name says the form. Packed text is known by its first bytes.
    name = source.name.lower().removesuffix(".gz")
    file = exit_stack.enter_context(source.open())
    if name.endswith(".parquet"):
        return _open_parquet(source, file, columns)
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    plain = gzip.GzipFile(fileobj=file) if is_packed else file
    text = exit_stack.enter_context(io.TextIOWrapper(plain, encoding="utf-8-sig", newline=""))
    if name.endswith((".jsonl", ".ndjson")):
        return _open_json_lines(source, text)
    return _open_table(source, text)


def _open_parquet(
    source: RemotePath, file: BinaryIO, columns: Collection[str]
) -> tuple[Sequence[str], Rows]:
    """Return the column names and the rows, with only the columns in `columns`."""

    def rows() -> Rows:
        names = [name for name in table.columns if name in columns]
        with _convert_read_errors(source, ParquetError):
            yield from table.rows(names, BATCH_ROWS)

    with _convert_read_errors(source, ParquetError):
        table = ParquetReader(file)
        return table.columns, rows()


def _open_table(source: RemotePath, text: TextIO) -> tuple[Sequence[str], Rows]:
    with _convert_read_errors(source, *DAMAGE_ERRORS):
        lines = read_text_lines(source, text)
        head = next(lines, "")
        # A tab in the first line is that of a table. Commas may be within its cells.
        delimiter = "\t" if "\t" in head else ","
        names = [name.strip() for name in next(csv.reader([head], delimiter=delimiter), [])]
        rows = csv.DictReader(lines, names, delimiter=delimiter)
        return names, _check_rows(source, rows, len(names))


def _check_rows(source: RemotePath, rows: "csv.DictReader[str]", cells: int) -> Rows:
    with _convert_read_errors(source, *DAMAGE_ERRORS):
        for row in rows:
            # Too many cells come under None, and cells that are missing are None.
            if None in row or None in row.values():
                raise DatasetError(
                    f"{source.display_url}: line {rows.line_num + 1} does not hold {cells} cells; "
                    "correct it"
                )
            yield cast(Row, row)


def _open_json_lines(source: RemotePath, text: TextIO) -> tuple[Sequence[str], Rows]:
    """Return the keys of the first BATCH_ROWS objects as columns, and all rows."""
    rows = _read_json_lines(source, text)
    head = list(islice(rows, BATCH_ROWS))
    return list(dict.fromkeys(chain.from_iterable(head))), chain(head, rows)


def _read_json_lines(source: RemotePath, text: TextIO) -> Rows:
    with _convert_read_errors(source, *DAMAGE_ERRORS, ValueError):
        for number, line in enumerate(read_text_lines(source, text), start=1):
            if not line.strip():
                continue
            row = parse_json_text(line)
            if not isinstance(row, dict):
                raise DatasetError(
                    f"{source.display_url}: line {number} is not a JSON object; give one per line"
                )
            yield row


@contextmanager
def _convert_read_errors(source: RemotePath, *damage: type[Exception]) -> Iterator[None]:
    """Convert errors of the types `damage` to DatasetError."""
    try:
        yield
    except damage as error:
        raise DatasetError(
            f"{source.display_url}: cannot be read ({first_line(error)[:MAX_QUOTED_CHARS]}); "
            "write the list again"
        ) from error


def read_folder(source: RemotePath, side_folders: SideFolders) -> Iterator[SourceEntry]:
    """Yield the videos below a folder, and what is refused. The id of a video is its file stem.

    Captions without a video are entries of their own. Unreadable folders and ambiguous captions are
    refused.

    Args:
        source: the folder.
        side_folders: further files by id.

    Raises DatasetError if the folder has neither videos nor captions.
    """
    # The videos below the folder, and what of it cannot be read.
    skipped: list[tuple[str, str]] = []
    videos = FileIndex(source, source.list(skipped), video_id)
    yield from (reject_video(name, reason) for name, reason in skipped)
    # Captions are next to the videos, unless the settings name a folder of them.
    captions = None
    alone = []
    if not side_folders.has_captions:
        captions = CaptionsFiles(FileIndex(source, source.list([]), captions_id), videos)
        alone = captions.ids_without_video()
    if not len(videos) and not alone:
        raise DatasetError(
            f"{source.display_url}: no video in it; give the folder of videos or captions, or a list of them"
        )
    # Captions without a video are an entry of their own.
    with_video = (with_file(VideoItem(id), "video", video) for id, video in videos)
    for item in chain(with_video, map(VideoItem, alone)):
        try:
            if captions is not None and (file := captions.find(item.id)) is not None:
                item = with_file(item, "captions", file)
            yield side_folders.add_files(item)
        except AmbiguousCaptionsError as error:
            yield reject_video(item.id, str(error))


SOURCE_DEFAULTS = SourceSettings()


def read_source(
    url: str, settings: SourceSettings = SOURCE_DEFAULTS, remote: RemoteSettings = REMOTE_DEFAULTS
) -> Iterator[SourceEntry]:
    """Yield the videos of a source and its refused entries, sorted by id.

    Args:
        url: folder, list or HowTo100M table: a path, s3://, gs:// or http(s)://.
        settings: which videos are selected, and where their other files are.
        remote: limits and retries of remote files.

    Raises DatasetError or StoreError if the source cannot be read.
    """
    source = absolute_path(RemotePath(url, remote))
    source_filter = SourceFilter(settings)
    entries = _read_entries(source, settings, source_filter, remote)
    entries = _limit_count(source, entries, "videos")
    for entry in sort_by_id(source_filter.filter_entries(entries)):
        # What a dataset says of its place, without a path of this machine.
        if isinstance(entry, VideoItem) and entry.video is not None:
            entry = replace(entry, path=relative_address(entry.video, source.url))
        yield entry


MAX_ID_CHARS = 200  # an id names files
# reasons of refused entries
REPEATED_ID = (
    "its id came before in the source; ids must be unique, "
    "so give the videos other names or a list with ids"
)
INVALID_ID = (
    "its id is not a plain name "
    "(empty, over 200 letters, or with a slash, a line break or a control character)"
)


def sort_by_id(entries: Iterable[SourceEntry]) -> Iterator[SourceEntry]:
    """Yield entries sorted by id. Repeated ids, and ids that cannot name a file, are refused.

    A repeated id is refused under a name of its own, "ID (item N)".
    """
    last: str | None = None
    for number, entry in sorted(enumerate(entries, start=1), key=lambda row: row[1].id):
        id = entry.id
        if isinstance(entry, Rejected):
            reason = entry.reason
        elif id == last:
            reason = REPEATED_ID
            id = f"{id} (item {number})"  # as the first may be left out too, for another reason
        elif _is_valid_id(id):
            last = id
            yield entry
            continue
        else:
            reason = INVALID_ID
        yield reject_video(id[:MAX_ID_CHARS] or f"item {number}", reason)


def _is_valid_id(id: str) -> bool:
    if not 0 < len(id) <= MAX_ID_CHARS:
        return False
    return id.isprintable() and not {"/", "\\"} & set(id)


def _limit_count(source: RemotePath, entries: Iterator[T], noun: str) -> Iterator[T]:
    """Yield the entries. Raises DatasetError if a remote source has more than places.most.

    noun: what an entry is, in the plural.
    """
    for number, entry in enumerate(entries):
        if number == source.settings.most and source.local is None:
            raise DatasetError(
                f"{source.display_url}: it has more {noun} than places.most={number}; raise that"
            )
        yield entry


def _read_entries(
    source: RemotePath,
    settings: SourceSettings,
    source_filter: SourceFilter,
    remote: RemoteSettings,
) -> Iterator[SourceEntry]:
    kind: str = settings.kind
    if kind == "auto":
        kind = _detect_kind(source)
    if kind == "howto100m":
        return read_howto100m(source, settings, source_filter, remote)
    side_folders = SideFolders(settings, remote)
    if kind == "list":
        return read_list(source, settings, source_filter, side_folders)
    return read_folder(source, side_folders)


def _detect_kind(source: RemotePath) -> str:
    """Return the kind of a source from its name or contents: "howto100m", "list" or "folder"."""
    if source.name == VIDEOS_FILE:
        return "howto100m"
    if source.name.endswith(".tar"):
        raise DatasetError(f"{source.display_url}: tars are not read; unpack them into a folder")
    if is_list(source.name):
        return "list"
    if source.local is not None and not source.exists():
        raise DatasetError(
            f"{source.display_url}: is not there; give a folder of videos, a list of them or HowTo100M"
        )
    if source.local is not None and source.local.is_file():
        raise DatasetError(
            f"{source.display_url}: one file is not a source; give its folder, or `stepline steps` for one video"
        )
    return "howto100m" if (source / VIDEOS_FILE).exists() else "folder"
