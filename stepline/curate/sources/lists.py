"""A list of videos in Parquet, csv, tsv or JSON lines: a row a video, its columns as the settings
name them."""

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

from stepline.curate.settings import ColumnsSettings
from stepline.curate.sources.files import (
    STAMPS,
    FileStamps,
    SideFolders,
    StampedFile,
    refusal_reason,
    root_of,
    text_lines,
    whole_address,
    with_file,
)
from stepline.curate.sources.select import Entry, SourceFilter
from stepline.curate.stage import VideoItem, rejected_video
from stepline.errors import DatasetError, first_line
from stepline.limits import parse_json_text
from stepline.parquet import ParquetError, ParquetReader
from stepline.remote import RemotePath
from stepline.sieve_swap.videos import seconds_of

Row: TypeAlias = Mapping[str, object]
Rows: TypeAlias = Iterator[Row]

ROWS = 10_000  # of a Parquet file held at once
DAMAGE = (OSError, EOFError, zlib.error, csv.Error, UnicodeDecodeError)


def read_list(
    source: RemotePath,
    columns: ColumnsSettings,
    source_filter: SourceFilter,
    side_folders: SideFolders,
    stamps: FileStamps,
) -> Iterator[Entry]:
    """Yield a row's video each, of those that are wanted; a row whose file is not there is refused.

    Raises DatasetError for a file that cannot be read, or that lacks a column that is needed, with
    the nearest name.
    """
    with ExitStack() as opened:
        names, rows = _opened(source, opened, columns.model_dump().values())
        known = _known(source, names, columns)
        for number, row in enumerate(rows, start=1):
            cells = {
                field: str(cell).strip()
                for field, column in known.items()
                if (cell := row.get(column)) is not None
            }
            id = cells.get("id") or PurePosixPath(cells.get("video", "")).name.rpartition(".")[0]
            if not id:
                yield rejected_video(
                    f"row {number}", "its row has neither an id nor a video's address"
                )
            elif source_filter.accepts(id, cells.get("category") or None):
                yield _entry(id, cells, source, side_folders, stamps)
            if number == source.settings.most and source.local is None:
                raise DatasetError(
                    f"{source.display_url}: it has more rows than places.most={number}; raise that"
                )


def _entry(
    id: str,
    cells: Mapping[str, str],
    source: RemotePath,
    side_folders: SideFolders,
    stamps: FileStamps,
) -> Entry:
    root = root_of(source.url)
    urls = {field: whole_address(cells[field], root) for field in STAMPS if cells.get(field)}
    for url in urls.values():
        if (reason := refusal_reason(url, source)) is not None:
            return rejected_video(id, reason)
    item = side_folders.completed(
        VideoItem(
            id,
            urls.get("video"),
            "",
            urls.get("captions"),
            "",
            urls.get("features"),
            "",
            cells.get("title") or None,
            cells.get("task") or None,
            cells.get("category") or None,
            seconds_of(cells.get("duration", "")),
        )
    )
    for field in urls:
        stamp = stamps.of(urls[field])
        if stamp is None:
            return rejected_video(id, f"its {'file of ' * (field != 'video')}{field} is not there")
        item = with_file(item, field, StampedFile(urls[field], stamp))
    if item.video is None and item.captions is None and item.features is None:
        return rejected_video(
            id, "its row names no file, and none of its id is in the folders of the settings"
        )
    return item


def _known(source: RemotePath, names: Sequence[str], columns: ColumnsSettings) -> dict[str, str]:
    """Return field -> column of those that the list has. Raises DatasetError for one that it must
    have."""
    wanted = columns.model_dump()
    known = {field: column for field, column in wanted.items() if column in names}
    default = ColumnsSettings().model_dump()
    renamed = [field for field in wanted if wanted[field] != default[field]]
    lacking = next((field for field in renamed if field not in known), None)
    if lacking is None and not {"id", "video"} & set(known):
        lacking = "video"
    if lacking is not None:
        near = difflib.get_close_matches(wanted[lacking], names, n=1, cutoff=0.5)
        cure = (
            f"did you mean source.columns.{lacking}={near[0]}?"
            if near
            else f"it has {', '.join(names)[:200]}"
        )
        raise DatasetError(f"{source.display_url}: it lacks the column {wanted[lacking]!r}; {cure}")
    return known


def _opened(
    source: RemotePath, opened: ExitStack, wanted: Collection[str]
) -> tuple[Sequence[str], Rows]:
    """Return the columns of a list and its rows; its file is closed with `opened`."""
    name = source.name.lower().removesuffix(".gz")
    file = opened.enter_context(source.open())
    if name.endswith(".parquet"):
        return _parquet(source, file, wanted)
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    plain = gzip.GzipFile(fileobj=file) if packed else file
    text = opened.enter_context(io.TextIOWrapper(plain, encoding="utf-8-sig", newline=""))
    return _lines(source, text) if name.endswith((".jsonl", ".ndjson")) else _table(source, text)


def _parquet(
    source: RemotePath, opened: BinaryIO, wanted: Collection[str]
) -> tuple[Sequence[str], Rows]:
    """Return the columns of a list, and its rows, of which only the columns that are wanted are
    read."""

    def rows() -> Rows:
        with _reading(source, ParquetError):
            yield from table.rows([name for name in table.columns if name in wanted], ROWS)

    with _reading(source, ParquetError):
        table = ParquetReader(opened)
        return table.columns, rows()


def _table(source: RemotePath, text: TextIO) -> tuple[Sequence[str], Rows]:
    with _reading(source, *DAMAGE):
        lines = text_lines(source, text)
        head = next(lines, "")
        names = next(csv.reader([head], delimiter="\t" if "\t" in head else ","), [])
        rows = csv.DictReader(lines, names, delimiter="\t" if "\t" in head else ",")
        return [name.strip() for name in names], _checked(source, rows, len(names))


def _checked(source: RemotePath, rows: "csv.DictReader[str]", cells: int) -> Rows:
    with _reading(source, *DAMAGE):
        for row in rows:
            if None in row or None in row.values():
                where = f"{source.display_url}: line {rows.line_num + 1}"
                raise DatasetError(f"{where} does not hold {cells} cells; correct it")
            yield cast(Row, row)


def _lines(source: RemotePath, text: TextIO) -> tuple[Sequence[str], Rows]:
    """Return the columns of the first line; later lines may have others."""
    rows = _objects(source, text)
    first = next(rows, {})
    return list(first), chain([first] if first else [], rows)


def _objects(source: RemotePath, text: TextIO) -> Rows:
    with _reading(source, *DAMAGE, ValueError):
        for number, line in enumerate(text_lines(source, text), start=1):
            if line.strip():
                row = parse_json_text(line)
                if not isinstance(row, dict):
                    raise DatasetError(
                        f"{source.display_url}: line {number} is no JSON object; give one a line"
                    )
                yield row


@contextmanager
def _reading(source: RemotePath, *damage: type[Exception]) -> Iterator[None]:
    """Make one line of what a damaged list raises."""
    try:
        yield
    except damage as error:
        what = first_line(error)[:200]
        raise DatasetError(
            f"{source.display_url}: cannot be read ({what}); write the list again"
        ) from error
