"""Outputs of other systems, and Stepline's own, as segments: (start, end, sentence, score) by
video.

JSON in any of these forms, one tree a file or (.jsonl) one a line:

    {"results": {id: [{"sentence", "timestamp": [s, e]}]}}         densevid, PDVC, VidChapters, Vid2Seq
    {id: {"timestamps": [[s, e]], "sentences": [..]}}              the flat form of annotations
    {id: [[s, e, sentence], ...]}, [[s, e, sentence], ...]         plain lists
    [{"step": .., "start": "01:20", "end": 95.2}, ...]             lists of objects
    {"00:01:20": "title"}, [{"title": .., "start": "00:01:20"}]    chapters (Chapter-Llama), ends by rule
    a Stepline record

Also Parquet of Stepline's records.

PDVC's own results hold all proposals of a video with their scores. PDVC ranks and cuts them before
it scores them:

    joint score = proposal_score + weight * sentence_score / (words^2 + 1e-5)

Of a video the `pred_event_count` best stay, in the order of their times. Source: PDVC's
eval_utils.py. The weight is that of its YouCook2 configurations.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from stepline.datasets.files import Node, Tree, parse_json, quoted, read_node, read_text, stem
from stepline.datasets.record_builder import BAD_TEXT, NO_TEXT, shared_prefix
from stepline.errors import DatasetError, StoreError
from stepline.files.atomic_files import files_below
from stepline.limits import is_storable
from stepline.records import Record, Rejected
from stepline.storage import from_json, read_parquet

FILE_ENDINGS = (".json", ".json.gz", ".jsonl", ".jsonl.gz", ".parquet")
# no video's id
GENERAL_NAMES = ("chapters", "output_text", "steps", "result", "results", "predictions", "record")
MAX_LISTED = 3  # rejected rows in an error

# of the video that a row belongs to
VIDEO_KEYS = ("video_id", "video-id", "videoid", "video_uid", "vid", "video")
# of its words
TEXT_KEYS = (
    "sentence",
    "text",
    "step",
    "caption",
    "description",
    "title",
    "heading",
    "headline",
    "label",
    "name",
)
# of both its times, in one value
PAIR_KEYS = ("timestamp", "timestamps", "segment", "span", "interval", "time", "bounds", "times")
START_KEYS = (
    "start",
    "start_time",
    "start_timestamp",
    "t-start",
    "t_start",
    "begin",
    "from",
    "startTime",
    "start_seconds",
)
END_KEYS = (
    "end",
    "end_time",
    "stop_timestamp",
    "t-end",
    "t_end",
    "stop",
    "to",
    "endTime",
    "end_seconds",
)
SCORE_KEYS = ("score", "confidence", "probability", "proposal_score")
# of the list of a video's rows
LIST_KEYS = (
    "segments",
    "steps",
    "events",
    "predictions",
    "captions",
    "annotations",
    "chapters",
    "results",
    "actions",
)
# of parallel lists, one value per row
COLUMN_KEYS = (("timestamps", "sentences"), ("start", "end", "text"))

NOT_TIMES = "its start and end are not two times"
NO_END = "has a start but no end"
NEXT_START_RULE = "a chapter ends where the next one starts"
UNPREFIXED_RULE = 'the "v_" before every id is left out, as from the annotations'
DURATION_RULE = "the last chapter ends with its video"
UNKNOWN_END = "the last chapter has no end and the video's duration is not known; give durations"


class PredictedSegment(NamedTuple):
    """A predicted text with its times in seconds, as the file gives them: they may be reversed or
    negative."""

    start: float
    end: float
    sentence: str
    score: float | None = None


@dataclass(frozen=True)
class SegmentPredictions:
    """Segments by video id, in the file's order. A video that is named without segments has an
    empty tuple.

    rejected: everything that was left out. rules: how ends were set, ids shortened and empty texts
    counted.
    """

    segments: Mapping[str, tuple[PredictedSegment, ...]]
    rejected: tuple[Rejected, ...] = ()
    rules: tuple[str, ...] = ()


# ---------------------------------------------------------------- PDVC's proposals


Cut: TypeAlias = Literal["pdvc"]

SCORE_FIELDS = frozenset({"proposal_score", "sentence_score", "pred_event_count"})
CAPTION_WEIGHT = 1.0  # of a caption's likelihood next to its proposal's confidence
LENGTH_POWER = 2.0  # of the words by which a likelihood is divided
WORD_EPSILON = 1e-5  # against captions without a word
CUT_RULE = "ranked and cut as PDVC does it"
UNCUT_RULE = (
    "proposals of PDVC, more than its event counts, scored as they are; --cut pdvc ranks and cuts "
    "them as PDVC does before it scores"
)


def is_uncut(rows: Sequence[Node]) -> bool:
    """Return whether a video has more of PDVC's proposals than PDVC counts events in it."""
    first = rows[0].value
    count = first.get("pred_event_count") if isinstance(first, dict) else None
    return isinstance(count, int | float) and len(rows) > count


def cut_proposals(rows: Sequence[Node]) -> list[Node]:
    """Return the proposals of a video that PDVC scores, in the order of their times.

    Raises DatasetError for a row without PDVC's scores.
    """
    scores = [joint_score(row) for row in rows]
    ranking = sorted(range(len(rows)), key=scores.__getitem__, reverse=True)
    # How many stay is what the best proposal says.
    event_count = rows[ranking[0]]["pred_event_count"]
    number = event_count.number()
    if not math.isfinite(number):
        raise event_count.error("a number of events")
    size = max(0, int(number))
    best = [rows[index] for index in ranking[:size]]
    return sorted(best, key=lambda row: row["timestamp"].pair())


def joint_score(row: Node) -> float:
    """Return what PDVC ranks a proposal by: its confidence and its caption's likelihood."""
    words = len(row["sentence"].text().split())
    length = math.pow(words, LENGTH_POWER) + WORD_EPSILON
    likelihood = row["sentence_score"].number() / length
    return row["proposal_score"].number() + CAPTION_WEIGHT * likelihood


# ---------------------------------------------------------------- files


def read_predictions(
    path: Path | str, *, durations: Mapping[str, float] | None = None, cut: Cut | None = None
) -> SegmentPredictions:
    """Return the segments in another system's output, or in Stepline's own, and everything that
    could not be read.

    Args:
        path: a file or a folder of them. A file may hold one video without naming it. The video is
            the file's name then, or its folder's where the name is a general one (chapters.json).
        durations: video id -> seconds, which only end the last chapter of a list without ends.
        cut: "pdvc" ranks and cuts the proposals of PDVC's own results as PDVC does before it scores
            them.

    Raises DatasetError when a file cannot be read at all. In a folder it is listed.
    """
    path = Path(path)
    reader = PredictionReader(durations or {}, cut)
    if path.is_dir():
        files = [file for file in files_below(path) if file.name.lower().endswith(FILE_ENDINGS)]
        if not files:
            endings = ", ".join(FILE_ENDINGS)
            raise DatasetError(f"{path}: holds no predictions; give a folder of {endings} files")
        for file in files:
            try:
                reader.read_file(file)
            except DatasetError as error:
                reader.reject(str(file), file.name, str(error))
    else:
        reader.read_file(path)
    # Where nothing could be read, the first reasons say why.
    if reader.rejected and not reader.segments:
        listed = "; ".join(
            f"{row.location}: {quoted(row.text)} {row.reason}"
            for row in reader.rejected[:MAX_LISTED]
        )
        raise DatasetError(
            f"{path}: no predictions in it that can be read ({listed}); see docs/datasets.md"
        )
    return reader.predictions()


class PredictionReader:
    """Reads the segments of one file after the other. durations: video id -> seconds, where they
    are known."""

    def __init__(self, durations: Mapping[str, float], cut: Cut | None) -> None:
        self.segments: dict[str, list[PredictedSegment]] = {}
        self.rejected: list[Rejected] = []
        self._durations = durations
        self._cut = cut
        self._locations: dict[str, str] = {}  # of the videos
        self._rules: dict[str, None] = {}
        self._empty_texts = 0
        self._cut_videos = 0
        self._uncut_videos = 0  # that look as if they were to be cut

    def predictions(self) -> SegmentPredictions:
        """Return the segments of all files that were read."""
        rules = list(self._rules)
        prefix = shared_prefix(self.segments)
        if prefix:
            rules.append(UNPREFIXED_RULE)
        if self._cut_videos:
            rules.append(f"{self._cut_videos} videos: {CUT_RULE}")
        if self._uncut_videos:
            rules.append(f"{self._uncut_videos} videos: {UNCUT_RULE}")
        if self._empty_texts:
            rules.append(f"{self._empty_texts} segments have an empty text and stay as they are")
        segments = {}
        for video, rows in self.segments.items():
            segments[video.removeprefix(prefix)] = tuple(rows)
        return SegmentPredictions(segments, tuple(self.rejected), tuple(rules))

    def reject(self, location: str, value: Tree, reason: str) -> None:
        """Note something that cannot be read."""
        text = value if isinstance(value, str) else quoted(value)
        self.rejected.append(Rejected("prediction", reason, text=text, location=location))

    def read_file(self, path: Path) -> None:
        """Add the segments of a file."""
        name = path.name.lower().removesuffix(".gz")
        if name.endswith(".parquet"):
            try:
                for record in read_parquet(path):
                    self._add_record(record, str(path))
            except StoreError as error:
                raise DatasetError(str(error)) from error
            return
        if name.endswith(".jsonl"):
            lines = enumerate(read_text(path).split("\n"), start=1)
            trees = [
                parse_json(f"{path}: line {number}", line) for number, line in lines if line.strip()
            ]
            node = Node(trees, str(path))
        else:
            node = read_node(path)
        video = stem(path.name)
        if video.lower() in GENERAL_NAMES:
            video = path.absolute().parent.name
        self._add_tree(node, video)

    def _add_tree(self, node: Node, stem: str) -> None:
        """Add what the tree of a whole file holds. stem: the video's id where the tree names
        none."""
        value = node.value
        if isinstance(value, dict) and isinstance(value.get("results"), dict):
            node = node["results"]
        elif isinstance(value, list) and value and all(map(_names_video, value)):
            self._add_named_rows(node)
            return
        elif not isinstance(value, dict) or _is_record(value) or _holds_segments(value):
            self._add_video(node, _own_id(value) or stem)
            return
        for video, video_node in node.entries():
            self._add_video(video_node, video)

    def _add_named_rows(self, node: Node) -> None:
        """Add a list whose items name their video: an item is a segment, or all segments of a
        video."""
        rows: dict[str, list[Node]] = defaultdict(list)
        for row in node.rows():
            video = _own_id(row.value) or ""
            if _is_row(row.value) and _list_key(row.value) is None:
                rows[video].append(row)
            else:
                self._add_video(row, video)
        for video, video_rows in rows.items():
            if self._open_video(video, video_rows[0].location):
                self._add_rows(video, video_rows)

    def _add_video(self, node: Node, video: str) -> None:
        value = node.value
        location = node.location
        if not video or not is_storable(video):
            self.reject(location, value, "names no video")
        elif _is_record(value):
            try:
                self._add_record(from_json(json.dumps(value), location), location)
            except StoreError as error:
                self.reject(location, value, str(error))
        elif not isinstance(value, list | dict):
            self.reject(
                location, value, "is neither a list of segments nor an object that holds one"
            )
        elif self._open_video(video, location):
            self._add_segments(video, node)

    def _open_video(self, video: str, location: str) -> bool:
        """Return whether a video is new. One that was read before is rejected."""
        if video in self.segments:
            reason = f"this video was read before, in {self._locations[video]}"
            self.reject(location, video, reason)
            return False
        self.segments[video] = []
        self._locations[video] = location
        return True

    def _add_record(self, record: Record, location: str) -> None:
        """Add a record's placed steps, each with its best span. A record without steps gives its
        captions."""
        if not self._open_video(record.id, location):
            return
        for step in record.steps or record.captions:
            if step.spans:
                best = step.spans[0]
                segment = PredictedSegment(best.start, best.end, step.text, step.score)
                self.segments[record.id].append(segment)
            else:
                reason = f"has no span (status {step.status or 'not set'})"
                self.reject(f"{location}: step {step.id}", step.text, reason)

    def _add_segments(self, video: str, node: Node) -> None:
        value = node.value
        if isinstance(value, list):
            self._add_rows(video, list(node.rows()))
        elif (columns := _column_keys(value)) is not None:
            self._add_columns(video, node, columns)
        elif _is_row(value):
            self._add_rows(video, [node])
        elif (key := _list_key(value)) is not None:
            self._add_segments(video, node[key])
        elif _is_clock(value):
            chapters = []
            for clock, title in node.entries():
                start = parse_seconds(clock) or 0.0
                chapters.append((start, title.value.strip(), title.location))
            self._add_chapters(video, chapters)
        elif value:
            names = ", ".join(LIST_KEYS)
            reason = f"holds none of {names}, nor timestamps with sentences"
            self.reject(node.location, value, reason)

    def _add_columns(self, video: str, node: Node, keys: tuple[str, ...]) -> None:
        columns = [list(node[key].rows()) for key in keys]
        if len(set(map(len, columns))) > 1:
            self.reject(node.location, node.value, f"{', '.join(keys)} are not equally long")
            return
        for *times, text in zip(*columns, strict=True):
            values = [time.value for time in times]
            interval = values if len(values) > 1 else values[0]
            self._add(video, text.location, interval, text.value)

    def _add_rows(self, video: str, rows: Sequence[Node]) -> None:
        """Add segments. Where every row states a start and no row an end, they are chapters."""
        if any(isinstance(row.value, dict) and row.value.keys() >= SCORE_FIELDS for row in rows):
            if self._cut == "pdvc":
                self._cut_videos += 1
                rows = cut_proposals(rows)
            elif is_uncut(rows):
                self._uncut_videos += 1
        # chapters, where no row has an end
        starts = [_start_only(row.value) for row in rows]
        if rows and None not in starts:
            chapters = []
            for start, row in zip(starts, rows, strict=True):
                chapters.append((start or 0.0, _text(row.value), row.location))
            self._add_chapters(video, chapters)
            return
        # else segments. A row without an end is rejected.
        for row, start_only in zip(rows, starts, strict=True):
            value = row.value
            if start_only is not None:
                self.reject(row.location, _text(value) or value, NO_END)
            elif isinstance(value, dict):
                times = [_first(value, START_KEYS), _first(value, END_KEYS)]
                if times == [None, None]:
                    times = _first(value, PAIR_KEYS)
                self._add(video, row.location, times, _text(value), _first(value, SCORE_KEYS))
            elif isinstance(value, list) and len(value) in (3, 4):
                start, end, text, score = [*value, None][:4]
                self._add(video, row.location, [start, end], text, score)
            else:
                self.reject(row.location, value, "is not [start, end, sentence]")

    def _add(
        self, video: str, location: str, interval: Tree, text: Tree, score: Tree = None
    ) -> None:
        """Add a segment. One whose text is empty stays a prediction, as for the official scorers,
        and is counted."""
        times = parse_interval(interval)
        if times is None:
            self.reject(location, text, NOT_TIMES)
            return
        is_empty = isinstance(text, str) and not text.strip()
        if is_empty or self._has_text(text, location):
            segment = PredictedSegment(*times, text.strip(), parse_seconds(score))
            self.segments[video].append(segment)
            self._empty_texts += is_empty

    def _has_text(self, text: Tree, location: str) -> bool:
        if not isinstance(text, str) or not text.strip():
            self.reject(location, text, NO_TEXT)
            return False
        if not is_storable(text):
            self.reject(location, "", BAD_TEXT)
            return False
        return True

    def _add_chapters(self, video: str, rows: Iterable[tuple[float, Tree, str]]) -> None:
        """Add chapters (start, title, location): each ends where the next starts, the last with the
        video if known."""
        with_text = [row for row in rows if self._has_text(row[1], row[2])]
        chapters = sorted(with_text, key=itemgetter(0))
        ends: list[float | None] = [start for start, _, _ in chapters[1:]]
        ends.append(self._durations.get(video))
        for index, (start, title, location) in enumerate(chapters):
            end = ends[index]
            is_last = index == len(chapters) - 1
            if end is None:
                self.reject(location, title, UNKNOWN_END)
            elif end <= start and is_last:
                self.reject(location, title, "the chapter starts after the video's end")
            elif end <= start:
                self.reject(location, title, "the chapter starts at the same second as the next")
            else:
                self._rules[DURATION_RULE if is_last else NEXT_START_RULE] = None
                self.segments[video].append(PredictedSegment(start, end, title))


# ---------------------------------------------------------------- forms


def _is_record(value: Tree) -> bool:
    return isinstance(value, dict) and {"version", "id", "video", "reference"} <= set(value)


def _holds_segments(value: dict[str, Tree]) -> bool:
    """Return whether an object is one video, and not a mapping from video ids."""
    has_list = _list_key(value) is not None or _column_keys(value) is not None
    return has_list or _is_row(value) or _is_clock(value)


def _list_key(value: dict[str, Tree]) -> str | None:
    """Return the key under which an object holds its segments."""
    for key in LIST_KEYS:
        if isinstance(value.get(key), list | dict):
            return key
    return None


def _column_keys(value: dict[str, Tree]) -> tuple[str, ...] | None:
    """Return the keys of the columns in which an object holds its segments."""
    for keys in COLUMN_KEYS:
        if all(isinstance(value.get(key), list) for key in keys):
            return keys
    return None


def _is_row(value: Tree) -> bool:
    """Return whether an object is one segment: a time and a text."""
    if not isinstance(value, dict):
        return False
    has_time = any(key in value for key in START_KEYS + PAIR_KEYS)
    return has_time and any(key in value for key in TEXT_KEYS)


def _is_clock(value: dict[str, Tree]) -> bool:
    """Return whether an object maps clock times to titles."""
    for key, title in value.items():
        is_time = ":" in key and parse_seconds(key) is not None
        if not is_time or not isinstance(title, str):
            return False
    return bool(value)


def _names_video(row: Tree) -> bool:
    return _own_id(row) is not None and (_is_record(row) or _holds_segments(row))


def _own_id(value: Tree) -> str | None:
    """Return the id of the video that an object names. A bare "id" is a row's own, unless it holds
    a list."""
    if not isinstance(value, dict):
        return None
    keys = VIDEO_KEYS if _is_row(value) else (*VIDEO_KEYS, "id")
    for key in keys:
        id = value.get(key)
        if isinstance(id, str) and id:
            return id
    return None


def _first(value: dict[str, Tree], keys: Sequence[str]) -> Tree:
    for key in keys:
        if value.get(key) is not None:
            return value[key]
    return None


def _start_only(value: Tree) -> float | None:
    """Return the start of a row that states a start and no end."""
    if not isinstance(value, dict) or _first(value, END_KEYS) is not None:
        return None
    return parse_seconds(_first(value, START_KEYS + PAIR_KEYS))


def _text(value: dict[str, Tree]) -> Tree:
    """Return the first text of a row, "" where all are empty; "step": 3 and "text": "..." give the
    text."""
    texts = [value[key] for key in TEXT_KEYS if isinstance(value.get(key), str)]
    for text in texts:
        if text.strip():
            return text
    if isinstance(value.get("label"), int):
        return str(value["label"])
    return "" if texts else None


# ---------------------------------------------------------------- times


_CLOCK_PATTERN = re.compile(r"(?:(\d{1,4}):)?(\d{1,5}):(\d{1,2}(?:[.,]\d{1,9})?)")
# as Python, NumPy and pandas write a float: up to 17 digits after the point, or an exponent
_PLAIN_PATTERN = re.compile(
    r"(-?\d{1,20}(?:\.\d{0,30})?(?:e[+-]?\d{1,3})?)\s*(?:s|sec|secs|seconds?)?", re.IGNORECASE
)
SECONDS_PER_MINUTE = 60
MINUTES_PER_HOUR = 60


def parse_seconds(value: Tree) -> float | None:
    """Return the seconds of a number, "95.2", "95.2 s", "01:20", "1:02:03.5", None for anything
    else."""
    if isinstance(value, str):
        text = value.strip().strip("[]()<>")
        plain = _PLAIN_PATTERN.fullmatch(text)
        if plain is None:
            return _parse_clock(text)
        value = plain[1]
    elif isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _parse_clock(text: str) -> float | None:
    match = _CLOCK_PATTERN.fullmatch(text)
    if match is None:
        return None
    hour_text, minute_text, second_text = match.groups()
    minutes = int(minute_text)
    # A clock has no 60th second.
    seconds = float(second_text.replace(",", "."))
    if seconds >= SECONDS_PER_MINUTE:
        return None
    # without hours, minutes may be more than an hour
    if hour_text is not None and minutes >= MINUTES_PER_HOUR:
        return None
    return SECONDS_PER_MINUTE * (MINUTES_PER_HOUR * int(hour_text or 0) + minutes) + seconds


def parse_interval(value: Tree) -> tuple[float, float] | None:
    """Return the two times of a list of two, None for anything else."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    start, end = map(parse_seconds, value)
    return None if start is None or end is None else (start, end)
