"""Videos that go in, one at a time: records in JSON or Parquet, or HowTo100M's captions with its
table of videos.

    FILE.parquet, FILE.json, FILE.jsonl     records of Stepline
    FOLDER                                  such files, sorted by name
    caption.json, raw_caption.json          HowTo100M: {id: {"text": [], "start": [], "end": []}}, streamed
    VIDEO.csv                               HowTo100M: one video's start,end,text
      beside them HowTo100M_v1.csv          id -> category and task
                  task_ids.csv              task -> title
                  htm_vlen.csv              id -> seconds (vid,vlen)

Nothing is held but the video at hand and HowTo100M's tables, which are arrays and not objects. What
cannot be read comes as a Rejected, it is not raised. VideoFilter says which videos are taken at
all: not the evaluation sets', not too long, not alone in their category (section 4.2).
"""

import csv
import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.asr.caption_formats import decode_file, parse_csv
from stepline.atomic_files import files_below
from stepline.datasets.excluded import ExcludedVideos
from stepline.datasets.files import Node
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder
from stepline.errors import CaptionError, DatasetError, StoreError
from stepline.limits import LATEST
from stepline.parquet import read_text_column
from stepline.records import Record, Rejected
from stepline.sieve_swap.settings import PairingSettings
from stepline.storage import from_json, read_record
from stepline.text_base.json_stream import JsonDamage, json_members

VIDEOS, TITLES, LENGTHS = "HowTo100M_v1.csv", "task_ids.csv", "htm_vlen.csv"
TABLES = (VIDEOS, TITLES, LENGTHS)
BLOCK = 65_536  # rows held as objects at once
ID, NUMBER, WORDS = 16, 12, 48  # bytes kept of an id, a number and a category

Cells = npt.NDArray[np.bytes_]


class CsvTable:
    """Columns of a csv file, looked up by its first: sorted ids (N,) and each other column (N,), as
    bytes."""

    def __init__(self, path: Path, columns: Sequence[tuple[str, int]]) -> None:
        blocks: list[list[Cells]] = [[] for _ in columns]
        for rows in _blocks(path, [name for name, _ in columns]):
            for place, (_, width) in enumerate(columns):
                blocks[place].append(
                    np.array([row[place].encode() for row in rows], dtype=f"S{width}")
                )
        whole = [
            np.concatenate([np.empty(0, f"S{width}"), *parts])
            for parts, (_, width) in zip(blocks, columns, strict=True)
        ]
        order = np.argsort(whole[0], kind="stable")
        self._ids, *self._cells = (column[order] for column in whole)

    def find(self, key: str) -> list[str] | None:
        """Return the other cells of a row; None where the key is not there. The first row of a key
        counts."""
        wanted = key.encode()
        place = int(np.searchsorted(self._ids, wanted))
        if place == len(self._ids) or self._ids[place] != wanted:
            return None
        return [column[place].decode(errors="replace") for column in self._cells]


def _blocks(path: Path, columns: Sequence[str]) -> Iterator[list[list[str]]]:
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            rows = csv.DictReader(file)
            lacking = [column for column in columns if column not in (rows.fieldnames or ())]
            if lacking:
                raise DatasetError(
                    f"{path}: line 1 lacks the column {lacking[0]!r}; it needs {', '.join(columns)}"
                )
            while block := [
                [row[column] or "" for column in columns] for row in islice(rows, BLOCK)
            ]:
                yield block
    except (OSError, csv.Error) as error:
        raise DatasetError(f"{path}: cannot be read ({error}); download it again") from error


class VideoTable:
    """What the tables beside a captions file say of its videos; a table that is not there says
    nothing."""

    def __init__(self, folder: Path) -> None:
        def table(name: str, columns: Sequence[tuple[str, int]]) -> CsvTable | None:
            return CsvTable(folder / name, columns) if (folder / name).is_file() else None

        self._videos = table(VIDEOS, (("video_id", ID), ("category_1", WORDS), ("task_id", NUMBER)))
        self._lengths = table(LENGTHS, (("vid", ID), ("vlen", NUMBER)))
        self._titles = read_titles(folder / TITLES)

    def with_table_facts(self, record: Record) -> Record:
        """Return a record with its video's task, title and duration, and its category in
        `settings`."""
        category, task = (self._videos.find(record.video.id) if self._videos else None) or (
            None,
            None,
        )
        length = self._lengths.find(record.video.id) if self._lengths else None
        title = self._titles.get(task, task) if task else None
        known = {
            "title": title,
            "task": title,
            "duration": seconds_of(length[0]) if length else None,
        }
        video = record.video.model_copy(
            update={name: value for name, value in known.items() if value is not None}
        )
        settings = record.settings | ({"category": category} if category else {})
        return record.model_copy(update={"video": video, "settings": settings})


def read_titles(path: Path) -> dict[str, str]:
    """Return task -> title of a file of "id<tab>title" lines, without a header."""
    if not path.is_file():
        return {}
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        lines = (
            line.rstrip("\r\n").replace(",", "\t", "\t" not in line).partition("\t")
            for line in file
        )
        return {task.strip(): title.strip() for task, _, title in lines if title.strip()}


def seconds_of(cell: str) -> float | None:
    """Return the seconds in a cell; None where it holds no length."""
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if 0 < value <= LATEST else None


SUFFIXES = (".parquet", ".json", ".jsonl", ".csv")
CAPTIONS = ("caption.json", "raw_caption.json")


VideoOrRejected: TypeAlias = Record | Rejected


def read_videos(path: Path) -> Iterator[VideoOrRejected]:
    """Yield every video of a file or folder, in a fixed order. Raises DatasetError where there is
    nothing to read."""
    if not path.exists():
        raise DatasetError(
            f"{path}: is not there; give records (.parquet, .json) or HowTo100M's captions"
        )
    files = [path] if path.is_file() else _files(path)
    table = functools.lru_cache(maxsize=1)(VideoTable)  # files of one folder share its tables
    for file in files:
        if file.suffix == ".parquet":
            yield from _parquet(file)
        elif file.suffix == ".jsonl":
            yield from _lines(file)
        elif file.suffix == ".csv":
            yield _of_csv(file, table)
        else:
            yield from _json(file, table)


def _files(folder: Path) -> list[Path]:
    captions = [folder / name for name in CAPTIONS if (folder / name).is_file()]
    files = captions[:1] or [
        file
        for file in files_below(folder)
        if file.suffix in SUFFIXES and not file.name.startswith(".") and file.name not in TABLES
    ]
    if not files:
        raise DatasetError(
            f"{folder}: holds no {', '.join(SUFFIXES)} file; `stepline transcribe --out` writes records"
        )
    return files


def _parquet(file: Path) -> Iterator[VideoOrRejected]:
    """Yield the records of a Parquet file; a cell that is no record is told, damage ends the
    file."""
    try:
        for row, cell in enumerate(read_text_column(file, "record")):
            yield _record(cell, f"{file}: row {row}")
    except StoreError as error:
        yield Rejected("video", str(error).removeprefix(f"{file}: "), location=str(file))


def _lines(file: Path) -> Iterator[VideoOrRejected]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _record(line, f"{file}: line {number}")
    except OSError as error:
        yield Rejected("video", f"cannot be read ({error.strerror})", location=str(file))


def _record(text: str | bytes, place: str) -> VideoOrRejected:
    try:
        return from_json(text, place)
    except StoreError as error:
        return Rejected("video", str(error).removeprefix(f"{place}: "), location=place)


def _of_csv(file: Path, table: Callable[[Path], VideoTable]) -> VideoOrRejected:
    try:
        cues = parse_csv(decode_file(file), str(file))
    except CaptionError as error:
        return Rejected("video", str(error).removeprefix(f"{file}: "), location=str(file))
    timed = [
        (cue.text, cue.start, cue.end)
        for cue in cues
        if cue.start is not None and cue.end is not None
    ]
    return _video(file.stem, timed, str(file), table(file.parent))


def _json(file: Path, table: Callable[[Path], VideoTable]) -> Iterator[VideoOrRejected]:
    """Yield one record, or the videos of HowTo100M's captions, whichever the file holds."""
    try:
        with file.open("rb") as opened:
            head = opened.read(256)
        if b'"version"' in head:
            yield read_record(file)
            return
        tables = table(file.parent)
    except (OSError, StoreError) as error:
        yield Rejected("video", str(error), location=str(file))
        return
    for key, value in json_members(file):
        if isinstance(value, JsonDamage):
            yield Rejected("video", value.reason, location=f"{file}: {key}".removesuffix(": "))
        else:
            yield _captioned(key, value, file, tables)


def _captioned(video: str, value: object, file: Path, table: VideoTable) -> VideoOrRejected:
    """Return a video of HowTo100M's captions as a record; cues that do not fit are left out as the
    readers do."""
    node = Node(value, f"{file}: {video}")
    try:
        starts, ends, texts = (list(node[column].rows()) for column in ("start", "end", "text"))
        if not len(starts) == len(ends) == len(texts):
            return Rejected(
                "video",
                f"{len(starts)} starts, {len(ends)} ends and {len(texts)} texts",
                location=node.location,
            )
        rows = [
            (text.text(), start.number(), end.number())
            for start, end, text in zip(starts, ends, texts, strict=True)
        ]
    except (DatasetError, ValueError) as error:
        return Rejected("video", str(error), location=node.location)
    return _video(video, rows, node.location, table)


def _video(
    video: str, rows: Sequence[tuple[str, float, float]], place: str, table: VideoTable
) -> VideoOrRejected:
    """Return a record of what is said, (text, start, end) a row, with what the tables know of its
    video."""
    try:
        builder = RecordBuilder(video)
        for text, start, end in rows:
            builder.add_sentence(text, start, end)
        entry: DatasetEntry = builder.entry()
    except ValueError as error:
        return Rejected("video", str(error), location=place)
    if entry.record is None:
        return Rejected(
            "video",
            "; ".join(row.reason for row in entry.rejected) or "holds nothing",
            location=place,
        )
    return table.with_table_facts(entry.record)


UNREADABLE = "it cannot be read"
EVALUATION = "it is an evaluation video"
TWICE = "its id was read before"
LONG = "it is too long"
RARE = "its category has too few videos"
OTHER = "it is of another category"
SILENT = "nothing is said in it"


def length(record: Record) -> float:
    """Return a video's seconds: its duration, or where that is not known the end of its speech."""
    ends = (
        [sentence.span.end for sentence in record.transcript.sentences] if record.transcript else []
    )
    return record.video.duration or max(ends, default=0.0)


@dataclass
class VideoFilter:
    """Says of each video in turn why it stays out. tasks: how many videos of each task could come
    in."""

    settings: PairingSettings
    excluded: ExcludedVideos
    tasks: Counter[str] = field(default_factory=Counter)
    seen: set[int] = field(default_factory=set)  # 8 bytes of an id each: 60 bytes of memory a video

    def count(self, videos: Iterable[VideoOrRejected]) -> int:
        """Go through all videos once, counting tasks; return how many there are. Then each can be
        asked for."""
        number = 0
        for video in videos:
            number += 1
            if isinstance(video, Record) and self._refused(video) is None and video.video.task:
                self.tasks[video.video.task] += 1
        self.seen.clear()
        return number

    def rejection_reason(self, video: VideoOrRejected) -> str | None:
        """Return why a video stays out; None where it comes in. Each video is to be asked for once,
        in order."""
        if isinstance(video, Rejected):
            return UNREADABLE
        reason = self._refused(video)
        if (
            reason is None
            and video.video.task
            and self.tasks[video.video.task] < self.settings.smallest_category
        ):
            return RARE
        return reason

    def _refused(self, record: Record) -> str | None:
        key = int.from_bytes(
            hashlib.blake2b(record.id.encode(errors="replace"), digest_size=8).digest(), "big"
        )
        if key in self.seen:
            return TWICE
        self.seen.add(key)
        if record.video.id in self.excluded:
            return EVALUATION
        if self.settings.category and record.settings.get("category") != self.settings.category:
            return OTHER
        if length(record) > self.settings.longest_video:
            return LONG
        if not record.transcript or not any(
            sentence.text.strip() for sentence in record.transcript.sentences
        ):
            return SILENT
        return None
