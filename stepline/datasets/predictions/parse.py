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
from collections.abc import Sequence
from typing import NamedTuple

from stepline.datasets.files import Node, Tree
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
OWNER = ("video_id", "video-id", "videoid", "video_uid", "vid", "video")
TEXT = (
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
PAIR = ("timestamp", "timestamps", "segment", "span", "interval", "time", "bounds", "times")
START = (
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
END = (
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
SCORE = ("score", "confidence", "probability", "proposal_score")
LISTS = (
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

NOT_TIMES = "its start and end are not two times"
NO_END = "has a start but no end"
NO_TEXT = "has no text"
BAD_TEXT = "its text is not valid Unicode"


def collect_tree(collector: PredictionCollector, node: Node, stem: str) -> None:
    """Add what the tree of a whole file holds; stem: the video's id where the tree names none."""
    value = node.value
    if _is_record(value):
        _record(collector, node)
    elif isinstance(value, dict) and isinstance(value.get("results"), dict):
        _videos(collector, node["results"])
    elif isinstance(value, dict) and not _holds_segments(value):
        _videos(collector, node)
    elif isinstance(value, list) and value and all(_named(row) for row in value):
        _named_rows(collector, node)
    else:
        collect_video(collector, node, _own_id(value) or stem)


def _is_record(value: Tree) -> bool:
    return isinstance(value, dict) and {"version", "id", "video", "reference"} <= set(value)


def _record(collector: PredictionCollector, node: Node) -> None:
    try:
        collector.record(from_json(json.dumps(node.value), node.location), node.location)
    except StoreError as error:
        collector.reject(node.location, node.value, str(error))


def _holds_segments(value: dict[str, Tree]) -> bool:
    """Tell whether an object is one video, and not a mapping from video ids."""
    listed = any(isinstance(value.get(key), list | dict) for key in LISTS)
    return listed or is_row(value) or _is_columns(value) or _is_clock(value)


def is_row(value: Tree) -> bool:
    """Tell whether an object is one segment: a time beside a text."""
    return (
        isinstance(value, dict)
        and any(key in value for key in START + PAIR)
        and any(key in value for key in TEXT)
    )


def _is_columns(value: Tree) -> bool:
    pairs = (("timestamps", "sentences"), ("start", "end", "text"))
    return any(all(isinstance(value.get(key), list) for key in keys) for keys in pairs)


def _is_clock(value: dict[str, Tree]) -> bool:
    return bool(value) and all(
        ":" in key and parse_seconds(key) is not None and isinstance(title, str)
        for key, title in value.items()
    )


def _named(row: Tree) -> bool:
    return (
        isinstance(row, dict)
        and _own_id(row) is not None
        and (_is_record(row) or _holds_segments(row))
    )


def _own_id(value: Tree) -> str | None:
    """Return the id of the video that an object names; a bare "id" is a row's own, unless it holds
    a list."""
    if not isinstance(value, dict):
        return None
    keys = OWNER if is_row(value) else (*OWNER, "id")
    return next(
        (value[key] for key in keys if isinstance(value.get(key), str) and value[key]), None
    )


def _named_rows(collector: PredictionCollector, node: Node) -> None:
    """Add a list whose items name their video: a row each, or all segments of one video each."""
    rows: dict[str, list[Node]] = {}
    for row in node.rows():
        if is_row(row.value) and not any(
            isinstance(row.value.get(key), list | dict) for key in LISTS
        ):
            rows.setdefault(_own_id(row.value) or "", []).append(row)
        elif _is_record(row.value):
            _record(collector, row)
        else:
            collect_video(collector, row, _own_id(row.value) or "")
    for video, own in rows.items():
        if collector.open_video(video, own[0].location):
            _rows(collector, video, own)


def _videos(collector: PredictionCollector, node: Node) -> None:
    for video, own in node.entries():
        collect_video(collector, own, video)


def collect_video(collector: PredictionCollector, node: Node, video: str) -> None:
    """Add one video's segments."""
    value = node.value
    if not video or not is_storable(video):
        collector.reject(node.location, value, "names no video")
    elif _is_record(value):
        _record(collector, node)
    elif isinstance(value, str):
        collector.replies.append((video, value, node.location))
    elif not isinstance(value, list | dict):
        collector.reject(
            node.location, value, "is neither a list of segments nor an object that holds one"
        )
    elif collector.open_video(video, node.location):
        _segments(collector, video, node)


def _segments(collector: PredictionCollector, video: str, node: Node) -> None:
    value = node.value
    if isinstance(value, list):
        _rows(collector, video, list(node.rows()))
    elif _is_columns(value):
        _columns(collector, video, node)
    elif is_row(value):
        _rows(collector, video, [node])
    elif (
        key := next((key for key in LISTS if isinstance(value.get(key), list | dict)), None)
    ) is not None:
        _segments(collector, video, node[key])
    elif _is_clock(value):
        titles = [
            (float(parse_seconds(start) or 0), title.text().strip(), title.location)
            for start, title in node.entries()
        ]
        collector.add_chapters(
            video, [chapter for chapter in titles if _has_text(collector, chapter[1], chapter[2])]
        )
    elif value:
        collector.reject(
            node.location, value, f"holds none of {', '.join(LISTS)}, nor timestamps with sentences"
        )


def _columns(collector: PredictionCollector, video: str, node: Node) -> None:
    flat = isinstance(node.value.get("timestamps"), list)
    keys = ("timestamps", "sentences") if flat else ("start", "end", "text")
    columns = [list(node[key].rows()) for key in keys]
    if len({len(column) for column in columns}) > 1:
        collector.reject(node.location, node.value, f"{', '.join(keys)} are not equally long")
        return
    for cells in zip(*columns, strict=True):
        values = [cell.value for cell in cells]
        times = values[0] if flat else values[:2]
        _add(collector, video, cells[-1].location, parse_interval(times), values[-1], None)


def _rows(collector: PredictionCollector, video: str, rows: Sequence[Node]) -> None:
    """Add segments; where every row gives a start and none an end they are chapters."""
    if rows and all(_start_only(row.value) is not None for row in rows):
        starts = [(_start_only(row.value) or 0.0, _text(row.value), row.location) for row in rows]
        collector.add_chapters(
            video, [chapter for chapter in starts if _has_text(collector, chapter[1], chapter[2])]
        )
        return
    for row in rows:
        if isinstance(row.value, dict):
            _object(collector, video, row)
        elif isinstance(row.value, list) and len(row.value) in (3, 4):
            start, end, text, *score = row.value
            _add(
                collector,
                video,
                row.location,
                parse_interval([start, end]),
                text,
                score[0] if score else None,
            )
        else:
            collector.reject(row.location, row.value, "is not [start, end, sentence]")


def _first(value: dict[str, Tree], keys: Sequence[str]) -> Tree:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _start_only(value: Tree) -> float | None:
    """Return the start of a row that states a start and no end."""
    if not isinstance(value, dict) or _first(value, END) is not None:
        return None
    start = _first(value, START)
    return parse_seconds(_first(value, PAIR) if start is None else start)


def _text(value: dict[str, Tree]) -> Tree:
    """Return the first text of a row, "" where all are empty; "step": 3 beside "text": "..." is no
    text."""
    texts = [value[key] for key in TEXT if isinstance(value.get(key), str) and value[key].strip()]
    numbers = (str(value[key]) for key in ("label",) if isinstance(value.get(key), int))
    blank = "" if any(_is_blank(value.get(key)) for key in TEXT) else None
    return texts[0] if texts else next(numbers, blank)


def _object(collector: PredictionCollector, video: str, row: Node) -> None:
    value = row.value
    if _start_only(value) is not None:
        collector.reject(row.location, _text(value) or value, NO_END)
        return
    start, end = _first(value, START), _first(value, END)
    times = (
        parse_interval(_first(value, PAIR))
        if start is None and end is None
        else parse_interval([start, end])
    )
    _add(collector, video, row.location, times, _text(value), _first(value, SCORE))


def _add(
    collector: PredictionCollector,
    video: str,
    where: str,
    times: tuple[float, float] | None,
    text: Tree,
    score: Tree,
) -> None:
    if times is None:
        collector.reject(where, text, NOT_TIMES)
    elif _is_blank(text) or _has_text(collector, text, where):
        collector.add(video, PredictedSegment(*times, text.strip(), parse_seconds(score)))


def _is_blank(text: Tree) -> bool:
    return isinstance(text, str) and not text.strip()


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

_TIME = r"(?:\d{1,4}:)?\d{1,5}:\d{2}(?:[.,]\d{1,9})?"
_DASH = r"\s{0,4}(?:-->|–|—|-|to)\s{0,4}"
_NUMBER = r"\W{0,8}(?:\d{1,3}[.)]\W{1,8})?"
_HEAD = re.compile(rf"{_NUMBER}\[?({_TIME})\]?(?:{_DASH}\[?({_TIME})\]?)?[\s\-–—:.,|*)]+(\S.*)")
_TAIL = re.compile(rf"[(\[]({_TIME})(?:{_DASH}({_TIME}))?[)\]]\W{{0,8}}$")
_SECONDS = r"\d{1,7}(?:\.\d{1,6})?"
# only where a sentence begins: "heat it for 2 - 3 seconds" is no time of the video
_SPOKEN = re.compile(
    rf"(?:^|(?<=[.;!?]\s))({_SECONDS}){_DASH}({_SECONDS})\s?(?:s|secs?|seconds)\b[\s,:]{{0,4}}"
)
_ITEM = re.compile(r"\s{0,8}(?:\d{1,3}[.)]|[-*•])\s+\S")
_LISTED = re.compile(_NUMBER)


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
        if not own and _ITEM.match(line):
            bare.append((where, line.strip()))
    if not rows or not collector.open_video(stem, name):
        return
    for where, item in bare:
        collector.reject(where, item, NO_TIMES)
    if any(row.end is not None for row in rows):
        _line_segments(collector, stem, rows)
    else:
        starts = [
            (start, row.text, row.where)
            for row in rows
            if (start := parse_seconds(row.start)) is not None
        ]
        collector.add_chapters(stem, starts)


def _timed_lines(line: str, where: str) -> list[TimedLine]:
    head = _HEAD.match(line)
    if head is not None:
        return [TimedLine(head[1], head[2], head[3].strip(), where)]
    listed = _LISTED.match(line)
    body = line[listed.end() :] if listed else line
    tail = _TAIL.search(body)
    if tail is not None:
        return [TimedLine(tail[1], tail[2], body[: tail.start()].strip(), where)]
    spoken = list(_SPOKEN.finditer(body))
    ends = [match.start() for match in spoken[1:]] + [len(body)]
    return [
        TimedLine(m[1], m[2], body[m.end() : end].strip(), where)
        for m, end in zip(spoken, ends, strict=False)
    ]


def _line_segments(collector: PredictionCollector, video: str, rows: list[TimedLine]) -> None:
    for row in rows:
        start, end = parse_seconds(row.start), parse_seconds(row.end)
        if start is None or end is None:
            collector.reject(row.where, row.text, NO_END_IN_LINE)
        elif not row.text:
            collector.reject(row.where, "", "has times but no text")
        else:
            collector.segments[video].append(PredictedSegment(start, end, row.text))


# ---------------------------------------------------------------- JSON inside text


TRIES = 2000  # brackets at which JSON is looked for; beyond that the rest of a text is not searched
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_BRACKET = re.compile(r"[\[{]")
_BROKEN = re.compile(r"\[\s*\{")


def collect_prose(collector: PredictionCollector, text: str, name: str, stem: str) -> None:
    """Add the segments in a text that is no JSON as a whole: JSON in ``` fences, JSON in prose,
    lines with times."""
    blocks = [
        (match[1], f"{name}: block {index}")
        for index, match in enumerate(_FENCE.finditer(text), start=1)
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
    for _ in range(TRIES):
        bracket = _BRACKET.search(text, position)
        if bracket is None:
            break
        try:
            tree, position = decoder.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            position = bracket.start() + 1
            if _BROKEN.match(text, bracket.start()):
                collector.reject(
                    name,
                    text[bracket.start() :][:40],
                    "a JSON list that breaks off; its whole items are read",
                )
            continue
        if tree and (isinstance(tree, dict) or isinstance(tree[0], list | dict)):
            trees.append(tree)
    return trees
