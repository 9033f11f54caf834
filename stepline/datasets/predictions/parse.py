"""Segments in text: a JSON tree of any known shape, lines with times, JSON inside a language
model's reply.

JSON trees:

    {"results": {id: [{"sentence", "timestamp": [s, e]}]}}         densevid, PDVC, VidChapters, Vid2Seq
    {id: {"timestamps": [[s, e]], "sentences": [..]}}              the flat form of annotations
    {id: [[s, e, sentence], ...]}, [[s, e, sentence], ...]         plain lists
    [{"step": .., "start": "01:20", "end": 95.2}, ...]             a language model's reply
    {"00:01:20": "title"}, [{"title": .., "start": "00:01:20"}]    chapters (Chapter-Llama), ends by rule
    a Stepline record

Lines with times, as language models and descriptions of videos write them:

    00:01:20 - title                                     a chapter: its end is set by rule
    1. 01:20 - 01:35: mix        - mix (01:20 - 01:35)   a segment
    80.0 - 95.5 seconds, mix. 97.0 - 101.0 seconds, ...  several segments on a line (TimeChat)
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stepline.datasets.files import Node, Tree
from stepline.datasets.predictions.pdvc import cut_proposals, has_scores, is_uncut
from stepline.datasets.predictions.types import (
    PredictedSegment,
    PredictionCollector,
    parse_interval,
    parse_seconds,
)
from stepline.errors import StoreError
from stepline.limits import is_storable
from stepline.storage import from_json

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
NO_TEXT = "has no text"
BAD_TEXT = "its text is not valid Unicode"


def collect_tree(collector: PredictionCollector, node: Node, stem: str) -> None:
    """Add what the tree of a whole file holds. stem: the video's id where the tree names none."""
    value = node.value
    if _is_record(value):
        _add_record(collector, node)
    elif isinstance(value, dict) and isinstance(value.get("results"), dict):
        _add_videos(collector, node["results"])
    elif isinstance(value, dict) and not _holds_segments(value):
        _add_videos(collector, node)
    elif isinstance(value, list) and value and all(map(_names_video, value)):
        _add_named_rows(collector, node)
    else:
        collect_video(collector, node, _own_id(value) or stem)


def _is_record(value: Tree) -> bool:
    return isinstance(value, dict) and {"version", "id", "video", "reference"} <= set(value)


def _add_record(collector: PredictionCollector, node: Node) -> None:
    try:
        record = from_json(json.dumps(node.value), node.location)
        collector.record(record, node.location)
    except StoreError as error:
        collector.reject_node(node, str(error))


def _holds_segments(value: dict[str, Tree]) -> bool:
    """Return whether an object is one video, and not a mapping from video ids."""
    has_list = _list_key(value) is not None or _column_keys(value) is not None
    return has_list or is_row(value) or _is_clock(value)


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


def is_row(value: Tree) -> bool:
    """Return whether an object is one segment: a time and a text."""
    if not isinstance(value, dict):
        return False
    has_time = any(key in value for key in START_KEYS + PAIR_KEYS)
    return has_time and any(key in value for key in TEXT_KEYS)


def _is_clock(value: dict[str, Tree]) -> bool:
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
    keys = VIDEO_KEYS if is_row(value) else (*VIDEO_KEYS, "id")
    for key in keys:
        id = value.get(key)
        if isinstance(id, str) and id:
            return id
    return None


def _add_named_rows(collector: PredictionCollector, node: Node) -> None:
    """Add a list whose items name their video: an item is a segment, or all segments of a video."""
    rows: dict[str, list[Node]] = defaultdict(list)
    for row in node.rows():
        video = _own_id(row.value) or ""
        if is_row(row.value) and _list_key(row.value) is None:
            rows[video].append(row)
        else:
            collect_video(collector, row, video)
    for video, video_rows in rows.items():
        if collector.open_video(video, video_rows[0].location):
            _add_rows(collector, video, video_rows)


def _add_videos(collector: PredictionCollector, node: Node) -> None:
    for video, video_node in node.entries():
        collect_video(collector, video_node, video)


def collect_video(collector: PredictionCollector, node: Node, video: str) -> None:
    """Add one video's segments."""
    value = node.value
    if not video or not is_storable(video):
        collector.reject_node(node, "names no video")
    elif _is_record(value):
        _add_record(collector, node)
    elif isinstance(value, str):
        collector.replies.append((video, value, node.location))
    elif not isinstance(value, list | dict):
        collector.reject_node(node, "is neither a list of segments nor an object that holds one")
    elif collector.open_video(video, node.location):
        _add_segments(collector, video, node)


def _add_segments(collector: PredictionCollector, video: str, node: Node) -> None:
    value = node.value
    if isinstance(value, list):
        _add_rows(collector, video, list(node.rows()))
    elif (columns := _column_keys(value)) is not None:
        _add_columns(collector, video, node, columns)
    elif is_row(value):
        _add_rows(collector, video, [node])
    elif (key := _list_key(value)) is not None:
        _add_segments(collector, video, node[key])
    elif _is_clock(value):
        chapters = []
        for clock, title in node.entries():
            start = parse_seconds(clock) or 0.0
            chapters.append((start, title.value.strip(), title.location))
        _add_chapters(collector, video, chapters)
    elif value:
        names = ", ".join(LIST_KEYS)
        collector.reject_node(node, f"holds none of {names}, nor timestamps with sentences")


def _add_columns(
    collector: PredictionCollector, video: str, node: Node, keys: tuple[str, ...]
) -> None:
    columns = [list(node[key].rows()) for key in keys]
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        collector.reject_node(node, f"{', '.join(keys)} are not equally long")
        return
    for *times, text in zip(*columns, strict=True):
        values = [time.value for time in times]
        interval = parse_interval(values if len(values) > 1 else values[0])
        _add(collector, video, text.location, interval, text.value)


def _add_rows(collector: PredictionCollector, video: str, rows: Sequence[Node]) -> None:
    """Add segments. Where every row states a start and no row an end, they are chapters."""
    if collector.cut == "pdvc" and has_scores(rows):
        collector.cut_videos += 1
        rows = cut_proposals(rows)
    elif is_uncut(rows):
        collector.uncut_videos += 1
    # chapters, where no row has an end
    starts = [_start_only(row.value) for row in rows]
    if rows and None not in starts:
        chapters = []
        for start, row in zip(starts, rows, strict=True):
            chapters.append((start or 0.0, _text(row.value), row.location))
        _add_chapters(collector, video, chapters)
        return
    # else segments. A row without an end is rejected.
    for row, start_only in zip(rows, starts, strict=True):
        value = row.value
        if isinstance(value, dict) and start_only is not None:
            collector.reject(row.location, _text(value) or value, NO_END)
        elif isinstance(value, dict):
            times = [_first(value, START_KEYS), _first(value, END_KEYS)]
            if times == [None, None]:
                times = _first(value, PAIR_KEYS)
            score = _first(value, SCORE_KEYS)
            _add(collector, video, row.location, parse_interval(times), _text(value), score)
        elif isinstance(value, list) and len(value) in (3, 4):
            start, end, text, score = [*value, None][:4]
            _add(collector, video, row.location, parse_interval([start, end]), text, score)
        else:
            collector.reject_node(row, "is not [start, end, sentence]")


def _add_chapters(
    collector: PredictionCollector, video: str, chapters: Iterable[tuple[float, Tree, str]]
) -> None:
    with_text = []
    for start, text, location in chapters:
        if _has_text(collector, text, location):
            with_text.append((start, text, location))
    collector.add_chapters(video, with_text)


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


def _add(
    collector: PredictionCollector,
    video: str,
    location: str,
    times: tuple[float, float] | None,
    text: Tree,
    score: Tree = None,
) -> None:
    if times is None:
        collector.reject(location, text, NOT_TIMES)
        return
    if (isinstance(text, str) and not text.strip()) or _has_text(collector, text, location):
        start, end = times
        segment = PredictedSegment(start, end, text.strip(), parse_seconds(score))
        collector.add(video, segment)


def _has_text(collector: PredictionCollector, text: Tree, location: str) -> bool:
    if not isinstance(text, str) or not text.strip():
        collector.reject(location, text, NO_TEXT)
        return False
    if not is_storable(text):
        collector.reject(location, "", BAD_TEXT)
        return False
    return True


# ---------------------------------------------------------------- lines with times


NO_TIMES = "a listed item without times"
NO_END_IN_LINE = "has a start but no end, where others have one"

_TIME_RE = r"(?:\d{1,4}:)?\d{1,5}:\d{2}(?:[.,]\d{1,9})?"
_DASH_RE = r"\s{0,4}(?:-->|–|—|-|to)\s{0,4}"
_NUMBER_RE = r"\W{0,8}(?:\d{1,3}[.)]\W{1,8})?"
_HEAD_PATTERN = re.compile(
    rf"{_NUMBER_RE}\[?({_TIME_RE})\]?(?:{_DASH_RE}\[?({_TIME_RE})\]?)?[\s\-–—:.,|*)]+(\S.*)"
)
_TAIL_PATTERN = re.compile(rf"[(\[]({_TIME_RE})(?:{_DASH_RE}({_TIME_RE}))?[)\]]\W{{0,8}}$")
_SECONDS_RE = r"\d{1,7}(?:\.\d{1,6})?"
# only where a sentence begins: "heat it for 2 - 3 seconds" is not a time of the video
_SPOKEN_PATTERN = re.compile(
    rf"(?:^|(?<=[.;!?]\s))({_SECONDS_RE}){_DASH_RE}({_SECONDS_RE})\s?"
    r"(?:s|secs?|seconds)\b[\s,:]{0,4}"
)
_ITEM_PATTERN = re.compile(r"\s{0,8}(?:\d{1,3}[.)]|[-*•])\s+\S")
_LISTED_PATTERN = re.compile(_NUMBER_RE)


class TimedLine(NamedTuple):
    """A text with its start and perhaps its end, as they are written, and where it is in the
    file."""

    start: str
    end: str | None
    text: str
    location: str


def collect_lines(collector: PredictionCollector, text: str, name: str, stem: str) -> None:
    """Add the lines that carry times. Listed items without times are noted, other lines are
    prose."""
    rows: list[TimedLine] = []
    items_without_times: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        location = f"{name}: line {number}"
        line_rows = _timed_lines(line.strip(), location)
        rows += line_rows
        if not line_rows and _ITEM_PATTERN.match(line):
            items_without_times.append((location, line.strip()))
    if not rows or not collector.open_video(stem, name):
        return
    for location, item in items_without_times:
        collector.reject(location, item, NO_TIMES)
    # chapters, where no row has an end
    if all(row.end is None for row in rows):
        chapters = []
        for row in rows:
            start = parse_seconds(row.start)
            if start is not None:
                chapters.append((start, row.text, row.location))
        collector.add_chapters(stem, chapters)
        return
    for row in rows:
        start = parse_seconds(row.start)
        end = parse_seconds(row.end)
        if start is None or end is None:
            collector.reject(row.location, row.text, NO_END_IN_LINE)
        elif not row.text:
            collector.reject(row.location, "", "has times but no text")
        else:
            collector.segments[stem].append(PredictedSegment(start, end, row.text))


def _timed_lines(line: str, location: str) -> list[TimedLine]:
    # times before the text
    if head := _HEAD_PATTERN.match(line):
        start, end, text = head.groups()
        return [TimedLine(start, end, text.strip(), location)]
    # times in brackets after the text
    body = line
    if mark := _LISTED_PATTERN.match(line):
        body = line[mark.end() :]
    if tail := _TAIL_PATTERN.search(body):
        start, end = tail.groups()
        text = body[: tail.start()]
        return [TimedLine(start, end, text.strip(), location)]
    # several sentences, each after its times
    matches = list(_SPOKEN_PATTERN.finditer(body))
    text_ends = [match.start() for match in matches[1:]]
    text_ends.append(len(body))
    rows = []
    for match, text_end in zip(matches, text_ends, strict=False):
        start, end = match.groups()
        text = body[match.end() : text_end]
        rows.append(TimedLine(start, end, text.strip(), location))
    return rows


# ---------------------------------------------------------------- JSON inside text


BROKEN_LIST = "a JSON list that breaks off; its whole items are read"
MAX_BRACKETS = 2000  # at which JSON is looked for; the rest of a text is not searched
MAX_QUOTED_CHARS = 40  # of a list that breaks off
_FENCE_PATTERN = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_BRACKET_PATTERN = re.compile(r"[\[{]")
_BROKEN_PATTERN = re.compile(r"\[\s*\{")


def collect_prose(collector: PredictionCollector, text: str, name: str, stem: str) -> None:
    """Add the segments in a text that is not JSON as a whole: JSON in ``` fences, JSON in prose,
    lines with times."""
    # JSON in fences, or else anywhere
    parts: list[tuple[Tree, str]] = []
    for index, match in enumerate(_FENCE_PATTERN.finditer(text), start=1):
        location = f"{name}: block {index}"
        for tree in _trees(collector, match[1], location):
            parts.append((tree, location))
    if not parts:
        parts = [(tree, name) for tree in _trees(collector, text, name)]
    if not parts:
        collect_lines(collector, text, name, stem)
        return
    trees = [tree for tree, _ in parts]
    if all(map(is_row, trees)):
        # the objects of a list that breaks off
        collect_video(collector, Node(trees, name), stem)
        return
    (first_tree, first_location), *others = parts
    collect_tree(collector, Node(first_tree, first_location), stem)
    for tree, location in others:
        collector.reject(location, tree, "a reply holds one JSON value; this is a further one")


def _trees(collector: PredictionCollector, text: str, name: str) -> list[Tree]:
    """Return the JSON lists and objects in a text that could hold segments. A list that breaks off
    is noted."""
    decoder = json.JSONDecoder()
    trees = []
    position = 0
    for _ in range(MAX_BRACKETS):
        bracket = _BRACKET_PATTERN.search(text, position)
        if bracket is None:
            break
        start = bracket.start()
        try:
            tree, position = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            position = start + 1
            if _BROKEN_PATTERN.match(text, start):
                collector.reject(name, text[start : start + MAX_QUOTED_CHARS], BROKEN_LIST)
            continue
        if tree and (isinstance(tree, dict) or isinstance(tree[0], list | dict)):
            trees.append(tree)
    return trees
