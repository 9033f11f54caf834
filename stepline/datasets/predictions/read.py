"""Predictions in files and folders: which form a file has, and the reader for it."""

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path

from stepline.datasets.files import Node, csv_rows, parse_json, quoted, read_text, stem
from stepline.datasets.predictions.parse import (
    BAD_TEXT,
    END_KEYS,
    NOT_TIMES,
    SCORE_KEYS,
    START_KEYS,
    TEXT_KEYS,
    VIDEO_KEYS,
    collect_prose,
    collect_tree,
)
from stepline.datasets.predictions.pdvc import Cut
from stepline.datasets.predictions.types import (
    PredictedSegment,
    PredictionCollector,
    SegmentPredictions,
    parse_interval,
    parse_seconds,
)
from stepline.errors import DatasetError, StoreError
from stepline.files.atomic_files import files_below
from stepline.limits import is_storable
from stepline.storage import read_parquet

FILE_ENDINGS = (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet", ".csv", ".csv.gz", ".txt")
# no video's id
GENERAL_NAMES = ("chapters", "output_text", "steps", "result", "results", "predictions", "record")
EMPTY_FILES = ("{}", '{"results":{}}')
NO_TIMED_TEXT = "nothing in it looks like texts with times"
EXTRA_DATA = "Extra data"  # json's words for a value that follows a whole one
MAX_LISTED = 3  # rejected rows in an error


def read_predictions(
    path: Path | str, *, durations: Mapping[str, float] | None = None, cut: Cut | None = None
) -> SegmentPredictions:
    """Return the segments in another system's output, or in Stepline's own, and everything that
    could not be read.

    path: a file (densevid results, Vid2Seq, Chapter-Llama, plain lists, a language model's reply,
        CSV, records) or a folder of them. A file may hold one video without naming it. The video is
        the file's name then, or its folder's where the name is a general one (chapters.json).
    durations: video id -> seconds, which only end the last chapter of a list without ends
    cut: "pdvc" ranks and cuts the proposals of PDVC's own results as PDVC does before it scores
        them

    Raises DatasetError when a file cannot be read at all. In a folder it is listed.
    """
    path = Path(path)
    collector = PredictionCollector(durations or {}, cut=cut)
    if path.is_dir():
        _folder(collector, path)
    else:
        _file(collector, path)
    # Where nothing could be read, the first reasons say why.
    if collector.rejected and not collector.segments:
        listed = "; ".join(
            f"{row.location}: {quoted(row.text)} {row.reason}"
            for row in collector.rejected[:MAX_LISTED]
        )
        raise DatasetError(
            f"{path}: no predictions in it that can be read ({listed}); see docs/datasets.md"
        )
    return collector.finish()


def _folder(collector: PredictionCollector, folder: Path) -> None:
    files = [file for file in files_below(folder) if file.name.lower().endswith(FILE_ENDINGS)]
    if not files:
        raise DatasetError(
            f"{folder}: holds no predictions; give a folder of {', '.join(FILE_ENDINGS)} files"
        )
    for file in files:
        try:
            _file(collector, file)
        except DatasetError as error:
            collector.reject(str(file), file.name, str(error))


def _file(collector: PredictionCollector, path: Path) -> None:
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".parquet"):
        try:
            for record in read_parquet(path):
                collector.record(record, str(path))
        except StoreError as error:
            raise DatasetError(str(error)) from error
        return
    text, video = read_text(path), _video(path)
    # What the file adds is known by what there was before.
    before = (len(collector.segments), len(collector.rejected))
    if name.endswith((".csv", ".tsv")):
        _table(collector, text, str(path), video)
    elif name.endswith((".jsonl", ".ndjson")):
        _lines(collector, text, path)
    else:
        _text(collector, text, path, video)
    _replies(collector)
    # A file that adds nothing is reported, unless it is an empty result.
    if (len(collector.segments), len(collector.rejected)) == before and re.sub(
        r"\s", "", text
    ) not in EMPTY_FILES:
        collector.reject(str(path), text[:60].replace("\n", " "), NO_TIMED_TEXT)


def _text(collector: PredictionCollector, text: str, path: Path, video: str) -> None:
    """Add a file that is JSON as a whole, or else holds JSON or lines with times among other
    text."""
    try:
        # JSON as a whole, in any shape that is known.
        tree = parse_json(str(path), text)
    except DatasetError as error:
        if not isinstance(error.__cause__, json.JSONDecodeError):
            raise
        if text.lstrip()[:1] != "{":
            collect_prose(collector, text, str(path), video)
        elif error.__cause__.msg == EXTRA_DATA:
            _lines(collector, text, path)  # an object a line, whatever the file is called
        else:
            raise  # a broken object: which video its parts belong to is lost
        return
    collect_tree(collector, Node(tree, str(path)), video)


def _replies(collector: PredictionCollector) -> None:
    """Read the texts that a mapping gives for its videos, as a language model's replies."""
    for video, text, where in collector.replies:
        before = (len(collector.segments), len(collector.rejected))
        if is_storable(text):
            collect_prose(collector, text, where, video)
        if (len(collector.segments), len(collector.rejected)) == before:
            collector.reject(where, text, NO_TIMED_TEXT)
    collector.replies.clear()


def _video(path: Path) -> str:
    own = stem(path.name)
    return path.absolute().parent.name if own.lower() in GENERAL_NAMES else own


def _lines(collector: PredictionCollector, text: str, path: Path) -> None:
    lines = enumerate(text.split("\n"), start=1)
    trees = [parse_json(f"{path}: line {number}", line) for number, line in lines if line.strip()]
    collect_tree(collector, Node(trees, str(path)), _video(path))


def _table(collector: PredictionCollector, text: str, name: str, video: str) -> None:
    """Add a CSV file with columns for start, end and text, and a video's id where it holds several
    videos."""
    rows = csv_rows(text)
    try:
        # Columns by their role, whatever their capitals.
        header = {(column or "").strip().lower(): column for column in rows.fieldnames or ()}
        columns = {
            role: next((header[name.lower()] for name in names if name.lower() in header), None)
            for role, names in KEYS_BY_ROLE.items()
        }
        missing = [role for role in ("start", "end", "text") if columns[role] is None]
        if missing:
            raise DatasetError(
                f"{name}: line 1 has no column for {', '.join(missing)}; write start,end,text there"
            )
        for row in rows:
            cells = {
                role: (row.get(column or "") or "").strip() for role, column in columns.items()
            }
            _row(collector, cells, f"{name}: line {rows.line_num}", cells["video"] or video)
    except csv.Error as error:
        raise DatasetError(
            f"{name}: line {rows.line_num} is not valid CSV ({error}); write it again"
        ) from error


KEYS_BY_ROLE = {
    "start": START_KEYS,
    "end": END_KEYS,
    "text": TEXT_KEYS,
    "score": SCORE_KEYS,
    "video": VIDEO_KEYS,
}


def _row(collector: PredictionCollector, cells: Mapping[str, str], where: str, video: str) -> None:
    times = parse_interval([cells["start"], cells["end"]])
    if times is None:
        collector.reject(where, cells["text"], NOT_TIMES)
    elif not is_storable(cells["text"]):
        collector.reject(where, "", BAD_TEXT)
    elif video in collector.segments or collector.open_video(video, where):
        collector.add(video, PredictedSegment(*times, cells["text"], parse_seconds(cells["score"])))
