"""Videos with their narration, read one at a time: records in JSON or Parquet, or HowTo100M's captions with
its tables.

    FILE.parquet, FILE.json, FILE.jsonl     records of Stepline
    FOLDER                                  such files, sorted by name
    caption.json, raw_caption.json          HowTo100M: {id: {"text": [], "start": [], "end": []}}, streamed
    VIDEO.csv                               HowTo100M: one video's start,end,text
      next to it  HowTo100M_v1.csv          id -> category and task
                  task_ids.csv              task -> title
                  htm_vlen.csv              id -> seconds (vid,vlen)

Only the current video and HowTo100M's tables are in memory. The tables are arrays and not objects.
A video that cannot be read is yielded as a Rejected, it is not raised. VideoFilter excludes
evaluation videos, long videos, and videos of rare categories (section 4.2).
"""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from stepline.datasets.excluded import ExcludedVideos
from stepline.datasets.files import Node, read_csv
from stepline.datasets.howto100m import caption_rows
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder
from stepline.errors import CaptionError, DatasetError, StoreError
from stepline.files.atomic_files import files_below
from stepline.files.parquet import read_text_column
from stepline.limits import MAX_SECOND
from stepline.numeric import parse_number
from stepline.records import Record, Rejected
from stepline.sieve_swap.settings import PairingSettings
from stepline.sieve_swap.text_base.json_stream import JsonFileError, read_json_members
from stepline.speech.caption_formats import parse_csv
from stepline.speech.text_encodings import read_caption_text
from stepline.storage import from_json, read_record

# HowTo100M's tables
VIDEOS_FILE = "HowTo100M_v1.csv"
TITLES_FILE = "task_ids.csv"
LENGTHS_FILE = "htm_vlen.csv"
TABLE_FILES = (VIDEOS_FILE, TITLES_FILE, LENGTHS_FILE)
BLOCK_ROWS = 65_536  # rows held as objects at a time
ID_BYTES = 16  # stored of an id
NUMBER_BYTES = 12  # stored of a number
CATEGORY_BYTES = 48  # stored of a category
VIDEOS_COLUMNS = (("video_id", ID_BYTES), ("category_1", CATEGORY_BYTES), ("task_id", NUMBER_BYTES))
LENGTHS_COLUMNS = (("vid", ID_BYTES), ("vlen", NUMBER_BYTES))


class CsvTable:
    """The columns of a csv file in memory, looked up by the first column.

    A file that does not exist gives an empty table.

    Args:
        path: path of the file.
        columns: name of each column, and how many bytes of each of its cells are stored.
    """

    def __init__(self, path: Path, columns: Sequence[tuple[str, int]]) -> None:
        names = tuple(name for name, _ in columns)
        parts = [[np.empty(0, f"S{width}")] for _, width in columns]  # of each column
        rows = read_csv(path, names) if path.is_file() else iter(())
        while block := [row for _, row in islice(rows, BLOCK_ROWS)]:
            for name, part in zip(names, parts, strict=True):
                part.append(np.array([row[name].encode() for row in block], dtype=part[0].dtype))
        # sorted by the first column
        ids, *others = map(np.concatenate, parts)
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order]
        self._cells = [column[order] for column in others]

    def find(self, key: str) -> list[str] | None:
        """Return the other cells of the first row with a key. None: no row has the key."""
        data = key.encode()
        # The first of equal keys: sorting kept their order.
        row = int(np.searchsorted(self._ids, data))
        if row == len(self._ids) or self._ids[row] != data:
            return None
        return [column[row].decode(errors="replace") for column in self._cells]


class VideoTable:
    """The tables of HowTo100M in a folder: category, task, title and duration of each video.

    Each table may be missing.
    """

    def __init__(self, folder: Path) -> None:
        self._videos = CsvTable(folder / VIDEOS_FILE, VIDEOS_COLUMNS)
        self._lengths = CsvTable(folder / LENGTHS_FILE, LENGTHS_COLUMNS)
        self._titles = read_titles(folder / TITLES_FILE)

    def add_table_fields(self, record: Record) -> Record:
        """Return a record completed from the tables.

        Task, title and duration are set in its `video`, the category in its `settings`.
        """
        id = record.video.id
        facts: dict[str, object] = {}  # of the video
        settings = record.settings
        row = self._videos.find(id)
        if row is not None:
            category, task = row
            if task:
                title = self._titles.get(task, task)
                facts |= {"title": title, "task": title}
            if category:
                settings = settings | {"category": category}
        length_cells = self._lengths.find(id)
        duration = parse_seconds(length_cells[0]) if length_cells is not None else None
        if duration is not None:
            facts["duration"] = duration
        video = record.video.model_copy(update=facts)
        return record.model_copy(update={"video": video, "settings": settings})


def read_titles(path: Path) -> dict[str, str]:
    """Return task id -> title, from a file without a header. Each line is an id, a tab or comma, and
    a title. A file that does not exist gives {}."""
    if not path.is_file():
        return {}
    titles = {}
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for line in file:
            separator = "\t" if "\t" in line else ","
            task, _, title = line.partition(separator)
            if title.strip():
                titles[task.strip()] = title.strip()
    return titles


def parse_seconds(cell: str) -> float | None:
    """Return a csv cell as seconds, or None if the cell states no duration."""
    value = parse_number(cell)
    return value if value is not None and 0 < value <= MAX_SECOND else None


DATA_SUFFIXES = (".parquet", ".json", ".jsonl", ".csv")
HEAD_BYTES = 256  # of a JSON file, in which a record states its version
CAPTION_FILES = ("caption.json", "raw_caption.json")


VideoOrRejected = Record | Rejected


def read_videos(path: Path) -> Iterator[VideoOrRejected]:
    """Yield every video of a file or folder as a record, in a fixed order.

    A video that cannot be read is yielded as a Rejected. Raises DatasetError if there is nothing to
    read.
    """
    if not path.exists():
        raise DatasetError(
            f"{path}: is not there; give records (.parquet, .json) or HowTo100M's captions"
        )
    files = [path] if path.is_file() else _data_files(path)
    table = functools.lru_cache(maxsize=1)(VideoTable)  # files of one folder share its tables
    for file in files:
        if file.suffix == ".parquet":
            yield from _read_parquet_records(file)
        elif file.suffix == ".jsonl":
            yield from _read_json_lines(file)
        elif file.suffix == ".csv":
            yield _read_captions_csv(file, table)
        else:
            yield from _read_json_file(file, table)


def _data_files(folder: Path) -> list[Path]:
    # HowTo100M's captions are one file, and what is next to it are tables.
    for name in CAPTION_FILES:
        captions = folder / name
        if captions.is_file():
            return [captions]
    files = []
    for file in files_below(folder):
        is_data = file.suffix in DATA_SUFFIXES and file.name not in TABLE_FILES
        if is_data and not file.name.startswith("."):
            files.append(file)
    if not files:
        raise DatasetError(
            f"{folder}: holds no {', '.join(DATA_SUFFIXES)} file; `stepline steps --format json` "
            "writes records"
        )
    return files


def _rejected_video(reason: object, location: str) -> Rejected:
    return Rejected("video", str(reason).removeprefix(f"{location}: "), location=location)


def _read_parquet_records(file: Path) -> Iterator[VideoOrRejected]:
    """Yield the records of a Parquet file.

    A cell that is no record is yielded as a Rejected. Reading ends where the file is damaged.
    """
    try:
        for row, cell in enumerate(read_text_column(file, "record")):
            yield _parse_record(cell, f"{file}: row {row}")
    except StoreError as error:
        yield _rejected_video(error, str(file))


def _read_json_lines(file: Path) -> Iterator[VideoOrRejected]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _parse_record(line, f"{file}: line {number}")
    except OSError as error:
        yield _rejected_video(f"cannot be read ({error.strerror})", str(file))


def _parse_record(text: str | bytes, location: str) -> VideoOrRejected:
    try:
        return from_json(text, location)
    except StoreError as error:
        return _rejected_video(error, location)


def _read_captions_csv(file: Path, table: Callable[[Path], VideoTable]) -> VideoOrRejected:
    try:
        text, _ = read_caption_text(file)
        cues = parse_csv(text, str(file))
    except CaptionError as error:
        return _rejected_video(error, str(file))
    rows = [
        (cue.text, cue.start, cue.end)
        for cue in cues
        if cue.start is not None and cue.end is not None
    ]
    return _record_of_sentences(file.stem, rows, str(file), table(file.parent))


def _read_json_file(file: Path, table: Callable[[Path], VideoTable]) -> Iterator[VideoOrRejected]:
    """Yield the record in a JSON file, or one record per video of a HowTo100M caption file."""
    try:
        with file.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
        # A record states its version near its start. Captions have none.
        if b'"version"' in head:
            yield read_record(file)
            return
        tables = table(file.parent)
    except (OSError, StoreError) as error:
        yield _rejected_video(error, str(file))
        return
    for key, value in read_json_members(file):
        if isinstance(value, JsonFileError):
            yield _rejected_video(value.reason, f"{file}: {key}".removesuffix(": "))
        else:
            yield _caption_record(key, value, file, tables)


def _caption_record(video: str, value: object, file: Path, table: VideoTable) -> VideoOrRejected:
    """Return the captions of a HowTo100M video as a record."""
    node = Node(value, f"{file}: {video}")
    try:
        rows = list(caption_rows(node))
    except (DatasetError, ValueError) as error:
        return _rejected_video(error, node.location)
    return _record_of_sentences(video, rows, node.location, table)


def _record_of_sentences(
    video: str, rows: Sequence[tuple[str, float, float]], location: str, table: VideoTable
) -> VideoOrRejected:
    """Return a record of sentences, with the fields from HowTo100M's tables.

    rows: (text, start, end) of each sentence, in seconds.
    """
    try:
        builder = RecordBuilder(video)
        for text, start, end in rows:
            builder.add_sentence(text, start, end)
        entry: DatasetEntry = builder.build_entry()
    except ValueError as error:
        return _rejected_video(error, location)
    if entry.record is None:
        reasons = "; ".join(row.reason for row in entry.rejected)
        return _rejected_video(reasons or "holds nothing", location)
    return table.add_table_fields(entry.record)


ID_HASH_BYTES = 8  # of an id that was read

# why a video stays out
UNREADABLE_VIDEO = "it cannot be read"
EVALUATION_VIDEO = "it is an evaluation video"
REPEATED_ID = "its id was read before"
TOO_LONG = "it is too long"
RARE_CATEGORY = "its category has too few videos"
OTHER_CATEGORY = "it is of another category"
SILENT_VIDEO = "nothing is said in it"


def video_seconds(record: Record) -> float:
    """Return the duration of a video in seconds. If it is unknown, return the end of its speech."""
    ends = [sentence.span.end for sentence in record.sentences]
    return record.video.duration or max(ends, default=0.0)


@dataclass
class VideoFilter:
    """Decides which videos of a collection are excluded, and why.

    Attributes:
        settings: limits on duration and category.
        excluded: videos of evaluation sets.
        task_counts: task -> number of its videos, without those excluded for another reason.
        has_categories: whether any counted video states its category.
        seen_ids: hashes of the ids that were read, to find repeated ids.
    """

    settings: PairingSettings
    excluded: ExcludedVideos
    task_counts: Counter[str] = field(default_factory=Counter)
    has_categories: bool = False
    # ID_HASH_BYTES of each id that was read: 60 bytes of memory per video
    seen_ids: set[bytes] = field(default_factory=set)

    def count_tasks(self, videos: Iterable[VideoOrRejected]) -> int:
        """Count the videos of each task, and return the number of all videos.

        `rejection_reason` needs these counts.
        """
        number = 0
        for video in videos:
            number += 1
            if isinstance(video, Rejected):
                continue
            if video.settings.get("category"):
                self.has_categories = True
            task = video.video.task
            if self._exclusion_reason(video) is None and task:
                self.task_counts[task] += 1
        # The ids are noted again when each video is asked about.
        self.seen_ids.clear()
        return number

    def rejection_reason(self, video: VideoOrRejected) -> str | None:
        """Return why a video is excluded, or None if it is included.

        It must be called once per video, in order.
        """
        if isinstance(video, Rejected):
            return UNREADABLE_VIDEO
        reason = self._exclusion_reason(video)
        task = video.video.task
        if reason is None and task and self.task_counts[task] < self.settings.smallest_category:
            return RARE_CATEGORY
        return reason

    def _exclusion_reason(self, record: Record) -> str | None:
        id_bytes = record.id.encode(errors="replace")
        key = hashlib.blake2b(id_bytes, digest_size=ID_HASH_BYTES).digest()
        if key in self.seen_ids:
            return REPEATED_ID
        self.seen_ids.add(key)
        if record.video.id in self.excluded:
            return EVALUATION_VIDEO
        category = self.settings.category
        if category and record.settings.get("category") != category:
            return OTHER_CATEGORY
        if video_seconds(record) > self.settings.longest_video:
            return TOO_LONG
        if not any(sentence.text.strip() for sentence in record.sentences):
            return SILENT_VIDEO
        return None
