"""HowTo100M as it is published: a table of ids, categories and tasks, captions and features by id.

FOLDER/HowTo100M_v1.csv            video_id, category_1, category_2, rank, task_id
FOLDER/task_ids.csv, htm_vlen.csv  titles of tasks, lengths of videos; where they are
FOLDER/caption.json or raw_caption.json, or a folder `captions` of ID.csv     unless source.captions names them
source.features, source.videos     folders of ID.mp4.npy and of ID.mp4; where they are
"""

import csv
import io
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stepline.curate.settings import SourceSettings
from stepline.curate.sources.files import SideFolders, read_text_lines
from stepline.curate.sources.select import SourceFilter
from stepline.curate.stage import SourceEntry, VideoItem
from stepline.errors import DatasetError
from stepline.files.remote import RemotePath
from stepline.files.remote.settings import RemoteSettings
from stepline.sieve_swap.videos import (
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
    table = source / VIDEOS_FILE if not source.name.endswith(".csv") else source
    parent, _, _ = table.url.rpartition("/")
    folder = RemotePath(parent or ".", remote)
    nearby = ((folder / name) for name in CAPTIONS_NAMES)
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
        length = lengths.find(id) if lengths is not None else None
        duration = parse_seconds(length[0]) if length else None
        item = VideoItem(id, title=task, task=task, category=category, duration=duration)
        yield side_folders.make_entry(item, NO_FILE)


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


def _read_tables(folder: RemotePath) -> tuple[CsvTable | None, dict[str, str]]:
    """Return the video lengths by id, None without them, and the task titles by task id."""
    with tempfile.TemporaryDirectory(prefix="stepline-tables-") as scratch:
        for name in (LENGTHS_FILE, TITLES_FILE):
            if (folder / name).exists():
                (folder / name).fetch(Path(scratch) / name)
        table = None
        lengths = Path(scratch) / LENGTHS_FILE
        if lengths.is_file():
            table = CsvTable(lengths, (("vid", 16), ("vlen", 12)))
        return table, read_titles(Path(scratch) / TITLES_FILE)
