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

COLUMN_KEYS = (("timestamps", "sentences"), ("start", "end", "text"))

NOT_TIMES = "its start and end are not two times"
NO_END = "has a start but no end"
NO_TEXT = "has no text"
BAD_TEXT = "its text is not valid Unicode"


def collect_tree(collector: PredictionCollector, node: Node, stem: str) -> None:
    """Add what the tree of a whole file holds; stem: the video's id where the tree names none."""
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
        collector.record(from_json(json.dumps(node.value), node.location), node.location)
    except StoreError as error:
        collector.reject_node(node, str(error))


def _holds_segments(value: dict[str, Tree]) -> bool:
    """Tell whether an object is one video, and not a mapping from video ids."""
    has_list = _list_key(value) is not None or _column_keys(value) is not None
    return has_list or is_row(value) or _is_clock(value)


def _list_key(value: dict[str, Tree]) -> str | None:
    """Return the key under which an object holds its segments."""
    return next((key for key in LIST_KEYS if isinstance(value.get(key), list | dict)), None)


def _column_keys(value: dict[str, Tree]) -> tuple[str, ...] | None:
    """Return the keys of the columns in which an object holds its segments."""
    for keys in COLUMN_KEYS:
        if all(isinstance(value.get(key), list) for key in keys):
            return keys
    return None


def is_row(value: Tree) -> bool:
    """Tell whether an object is one segment: a time and a text."""
    if not isinstance(value, dict):
        return False
    has_time = any(key in value for key in START_KEYS + PAIR_KEYS)
    return has_time and any(key in value for key in TEXT_KEYS)


def _is_clock(value: dict[str, Tree]) -> bool:
    return bool(value) and all(
        ":" in key and parse_seconds(key) is not None and isinstance(title, str)
        for key, title in value.items()
    )


def _names_video(row: Tree) -> bool:
    return _own_id(row) is not None and (_is_record(row) or _holds_segments(row))


def _own_id(value: Tree) -> str | None:
    """Return the id of the video that an object names; a bare "id" is a row's own, unless it holds
    a list."""
    if not isinstance(value, dict):
        return None
    keys = VIDEO_KEYS if is_row(value) else (*VIDEO_KEYS, "id")
    ids = (value[key] for key in keys if isinstance(value.get(key), str))
    return next(filter(None, ids), None)


def _add_named_rows(collector: PredictionCollector, node: Node) -> None:
    """Add a list whose items name their video: a row each, or all segments of one video each."""
    rows: dict[str, list[Node]] = defaultdict(list)
    for row in node.rows():
        video = _own_id(row.value) or ""
        if is_row(row.value) and _list_key(row.value) is None:
            rows[video].append(row)
        else:
            collect_video(collector, row, video)
    for video, own in rows.items():
        if collector.open_video(video, own[0].location):
            _add_rows(collector, video, own)


def _add_videos(collector: PredictionCollector, node: Node) -> None:
    for video, own in node.entries():
        collect_video(collector, own, video)


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
        titles = [
            (parse_seconds(start) or 0.0, title.value.strip(), title.location)
            for start, title in node.entries()
        ]
        _add_chapters(collector, video, titles)
    elif value:
        names = ", ".join(LIST_KEYS)
        collector.reject_node(node, f"holds none of {names}, nor timestamps with sentences")


def _add_columns(
    collector: PredictionCollector, video: str, node: Node, keys: tuple[str, ...]
) -> None:
    columns = [list(node[key].rows()) for key in keys]
    if len(set(map(len, columns))) > 1:
        collector.reject_node(node, f"{', '.join(keys)} are not equally long")
        return
    for *times, text in zip(*columns, strict=True):
        values = [time.value for time in times]
        interval = parse_interval(values if len(values) > 1 else values[0])
        _add(collector, video, text.location, interval, text.value)


def _add_rows(collector: PredictionCollector, video: str, rows: Sequence[Node]) -> None:
    """Add segments; where every row gives a start and none an end they are chapters."""
    if collector.cut == "pdvc" and has_scores(rows):
        collector.cut_videos += 1
        rows = cut_proposals(rows)
    elif is_uncut(rows):
        collector.uncut_videos += 1
    starts = [_start_only(row.value) for row in rows]
    if rows and None not in starts:
        chapters = [
            (start or 0.0, _text(row.value), row.location)
            for start, row in zip(starts, rows, strict=True)
        ]
        _add_chapters(collector, video, chapters)
        return
    for row, start in zip(rows, starts, strict=True):
        value = row.value
        if isinstance(value, dict) and start is not None:
            collector.reject(row.location, _text(value) or value, NO_END)
        elif isinstance(value, dict):
            ends = [_first(value, START_KEYS), _first(value, END_KEYS)]
            times = _first(value, PAIR_KEYS) if ends == [None, None] else ends
            score = _first(value, SCORE_KEYS)
            _add(collector, video, row.location, parse_interval(times), _text(value), score)
        elif isinstance(value, list) and len(value) in (3, 4):
            score = value[3] if len(value) == 4 else None
            _add(collector, video, row.location, parse_interval(value[:2]), value[2], score)
        else:
            collector.reject_node(row, "is not [start, end, sentence]")


def _add_chapters(
    collector: PredictionCollector, video: str, chapters: Iterable[tuple[float, Tree, str]]
) -> None:
    collector.add_chapters(
        video, [chapter for chapter in chapters if _has_text(collector, *chapter[1:])]
    )


def _first(value: dict[str, Tree], keys: Sequence[str]) -> Tree:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _start_only(value: Tree) -> float | None:
    """Return the start of a row that states a start and no end."""
    if not isinstance(value, dict) or _first(value, END_KEYS) is not None:
        return None
    return parse_seconds(_first(value, START_KEYS + PAIR_KEYS))


def _text(value: dict[str, Tree]) -> Tree:
    """Return the first text of a row, "" where all are empty; "step": 3 and "text": "..." give the
    text."""
    texts = [value[key] for key in TEXT_KEYS if isinstance(value.get(key), str)]
    if any(map(str.strip, texts)):
        return next(filter(str.strip, texts))
    if isinstance(value.get("label"), int):
        return str(value["label"])
    return "" if texts else None


def _add(
    collector: PredictionCollector,
    video: str,
    where: str,
    times: tuple[float, float] | None,
    text: Tree,
    score: Tree = None,
) -> None:
    if times is None:
        collector.reject(where, text, NOT_TIMES)
    elif (isinstance(text, str) and not text.strip()) or _has_text(collector, text, where):
        collector.add(video, PredictedSegment(*times, text.strip(), parse_seconds(score)))


def _has_text(collector: PredictionCollector, text: Tree, where: str) -> bool:
    if not isinstance(text, str) or not text.strip():
        collector.reject(where, text, NO_TEXT)
        return False
    if not is_storable(text):
        collector.reject(where, "", BAD_TEXT)
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
# only where a sentence begins: "heat it for 2 - 3 seconds" is no time of the video
_SPOKEN_PATTERN = re.compile(
    rf"(?:^|(?<=[.;!?]\s))({_SECONDS_RE}){_DASH_RE}({_SECONDS_RE})\s?(?:s|secs?|seconds)\b[\s,:]{{0,4}}"
)
_ITEM_PATTERN = re.compile(r"\s{0,8}(?:\d{1,3}[.)]|[-*•])\s+\S")
_LISTED_PATTERN = re.compile(_NUMBER_RE)


class TimedLine(NamedTuple):
    """A text with its start and perhaps its end, as they are written, and its place in the file."""

    start: str
    end: str | None
    text: str
    where: str


def collect_lines(collector: PredictionCollector, text: str, name: str, stem: str) -> None:
    """Add the lines that carry times; listed items without times are noted, other lines are
    prose."""
    rows: list[TimedLine] = []
    bare: list[tuple[str, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        where = f"{name}: line {number}"
        own = _timed_lines(line.strip(), where)
        rows += own
        if not own and _ITEM_PATTERN.match(line):
            bare.append((where, line.strip()))
    if not rows or not collector.open_video(stem, name):
        return
    for where, item in bare:
        collector.reject(where, item, NO_TIMES)
    if all(row.end is None for row in rows):
        chapters = []
        for row in rows:
            start = parse_seconds(row.start)
            if start is not None:
                chapters.append((start, row.text, row.where))
        collector.add_chapters(stem, chapters)
        return
    for row in rows:
        start, end = parse_seconds(row.start), parse_seconds(row.end)
        if start is None or end is None:
            collector.reject(row.where, row.text, NO_END_IN_LINE)
        elif not row.text:
            collector.reject(row.where, "", "has times but no text")
        else:
            collector.segments[stem].append(PredictedSegment(start, end, row.text))


def _timed_lines(line: str, where: str) -> list[TimedLine]:
    head = _HEAD_PATTERN.match(line)
    if head is not None:
        return [TimedLine(head[1], head[2], head[3].strip(), where)]
    listed = _LISTED_PATTERN.match(line)
    body = line[listed.end() :] if listed else line
    tail = _TAIL_PATTERN.search(body)
    if tail is not None:
        return [TimedLine(tail[1], tail[2], body[: tail.start()].strip(), where)]
    spoken = list(_SPOKEN_PATTERN.finditer(body))
    ends = [match.start() for match in spoken[1:]] + [len(body)]
    return [
        TimedLine(m[1], m[2], body[m.end() : end].strip(), where)
        for m, end in zip(spoken, ends, strict=False)
    ]


# ---------------------------------------------------------------- JSON inside text


MAX_BRACKETS = 2000  # at which JSON is looked for; the rest of a text is not searched
_FENCE_PATTERN = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_BRACKET_PATTERN = re.compile(r"[\[{]")
_BROKEN_PATTERN = re.compile(r"\[\s*\{")


def collect_prose(collector: PredictionCollector, text: str, name: str, stem: str) -> None:
    """Add the segments in a text that is no JSON as a whole: JSON in ``` fences, JSON in prose,
    lines with times."""
    blocks = [
        (match[1], f"{name}: block {index}")
        for index, match in enumerate(_FENCE_PATTERN.finditer(text), start=1)
    ]
    parts = [(tree, where) for block, where in blocks for tree in _trees(collector, block, where)]
    parts = parts or [(tree, name) for tree in _trees(collector, text, name)]
    if parts and all(is_row(tree) for tree, _ in parts):
        # the objects of a list that breaks off
        collect_video(collector, Node([tree for tree, _ in parts], name), stem)
        return
    for index, (tree, where) in enumerate(parts):
        if index == 0:
            collect_tree(collector, Node(tree, where), stem)
        else:
            collector.reject(where, tree, "a reply holds one JSON value; this is a further one")
    if not parts:
        collect_lines(collector, text, name, stem)


def _trees(collector: PredictionCollector, text: str, name: str) -> list[Tree]:
    """Return the JSON lists and objects in a text that could hold segments; a list that breaks off
    is noted."""
    decoder, trees, position = json.JSONDecoder(), [], 0
    for _ in range(MAX_BRACKETS):
        bracket = _BRACKET_PATTERN.search(text, position)
        if bracket is None:
            break
        try:
            tree, position = decoder.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            position = bracket.start() + 1
            if _BROKEN_PATTERN.match(text, bracket.start()):
                collector.reject(
                    name,
                    text[bracket.start() :][:40],
                    "a JSON list that breaks off; its whole items are read",
                )
            continue
        if tree and (isinstance(tree, dict) or isinstance(tree[0], list | dict)):
            trees.append(tree)
    return trees
