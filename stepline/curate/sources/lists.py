"""A list of videos in Parquet, csv, tsv or JSON lines: one row per video, its columns as the
settings name them."""

import csv
import difflib
import gzip
import io
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import PurePosixPath
from typing import BinaryIO, TextIO, TypeAlias, cast

from stepline.curate.settings import ColumnsSettings, SourceSettings
from stepline.curate.sources.addresses import make_absolute_address, refusal_reason, source_root
from stepline.curate.sources.files import (
    STAMP_FIELDS,
    SideFolders,
    StampedFile,
    file_stamp,
    read_text_lines,
    with_file,
)
from stepline.curate.sources.select import SourceFilter
from stepline.curate.stage import SourceEntry, VideoItem, reject_video
from stepline.errors import DatasetError, first_line
from stepline.files.parquet import ParquetError, ParquetReader
from stepline.files.remote import RemotePath
from stepline.limits import parse_json_text
from stepline.sieve_swap.videos import parse_seconds

Row: TypeAlias = Mapping[str, object]
Rows: TypeAlias = Iterator[Row]

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
    with ExitStack() as opened:
        # The columns that the settings name, as far as the list has them.
        names, rows = _open_list(source, opened, settings.columns.model_dump().values())
        fields = _find_columns(source, names, settings.columns)
        for number, row in enumerate(rows, start=1):
            # An empty cell counts as one that is not there.
            cells = {}
            for field, column in fields.items():
                cell = row.get(column)
                cells[field] = "" if cell is None else str(cell).strip()
            # Without an id of its own, a row is named by its video's file.
            id = cells.get("id") or PurePosixPath(cells.get("video", "")).name.rpartition(".")[0]
            if not id:
                reason = "its row has neither an id nor a video's address"
                yield reject_video(f"row {number}", reason)
            elif source_filter.accepts(id, cells.get("category") or None):
                yield _make_entry(id, cells, source, side_folders, has_stamps=settings.stamps)
            # A list from elsewhere may have no end.
            if number == source.settings.most and source.local is None:
                raise DatasetError(
                    f"{source.display_url}: it has more rows than places.most={number}; raise that"
                )


def _make_entry(
    id: str,
    cells: Mapping[str, str],
    source: RemotePath,
    side_folders: SideFolders,
    *,
    has_stamps: bool,
) -> SourceEntry:
    root = source_root(source.url)
    item = VideoItem(
        id,
        title=cells.get("title") or None,
        task=cells.get("task") or None,
        category=cells.get("category") or None,
        duration=parse_seconds(cells.get("duration", "")),
    )
    # Every address is checked before a file is looked at.
    urls = {
        field: make_absolute_address(cells[field], root)
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
    no_file = "its row names no file, and none of its id is in the folders of the settings"
    return side_folders.make_entry(item, no_file)


def _find_columns(
    source: RemotePath, names: Sequence[str], columns: ColumnsSettings
) -> dict[str, str]:
    """Return the columns that the list has, as field of ColumnsSettings -> column name.

    Raises DatasetError if a column is missing that the settings rename, or if there is neither an
    id nor a video.
    """
    usual = ColumnsSettings().model_dump()
    present = {}
    required = []
    for field, column in columns.model_dump().items():
        # A column that the settings rename has to be there. Others may be missing.
        if column in names:
            present[field] = column
        elif column != usual[field]:
            required.append((field, column))
    if not required and not {"id", "video"} & present.keys():
        required.append(("video", columns.video))
    if required:
        field, column = required[0]
        matches = difflib.get_close_matches(column, names, n=1, cutoff=0.5)
        cure = f"it has {', '.join(names)[:MAX_QUOTED_CHARS]}"
        if matches:
            cure = f"did you mean source.columns.{field}={matches[0]}?"
        raise DatasetError(f"{source.display_url}: it lacks the column {column!r}; {cure}")
    return present


def _open_list(
    source: RemotePath, opened: ExitStack, columns: Collection[str]
) -> tuple[Sequence[str], Rows]:
    """Return the column names of a list and an iterator over its rows.

    Args:
        source: the list.
        opened: stack that closes the file.
        columns: names of the columns that are read from a Parquet file.
    """
    # The name says the form. Packed text is known by its first bytes.
    name = source.name.lower().removesuffix(".gz")
    file = opened.enter_context(source.open())
    if name.endswith(".parquet"):
        return _open_parquet(source, file, columns)
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    plain = gzip.GzipFile(fileobj=file) if is_packed else file
    text = opened.enter_context(io.TextIOWrapper(plain, encoding="utf-8-sig", newline=""))
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
        delimiter = ","
        # A tab in the first line is that of a table. Commas may be within its cells.
        if "\t" in head:
            delimiter = "\t"
        names = next(csv.reader([head], delimiter=delimiter), [])
        rows = csv.DictReader(lines, names, delimiter=delimiter)
        return [name.strip() for name in names], _check_rows(source, rows, len(names))


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
    """Return the keys of the first object as columns, and the rows."""
    rows = _read_json_lines(source, text)
    first = next(rows, {})
    return (list(first), chain([first], rows)) if first else ([], rows)


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
