"""Segments in a JSON tree, whichever of the known shapes it has.

{"results": {id: [{"sentence", "timestamp": [s, e]}]}}        densevid, PDVC, VidChapters, Vid2Seq
{id: {"timestamps": [[s, e]], "sentences": [..]}}              the flat form of annotations
{id: [[s, e, sentence], ...]}, [[s, e, sentence], ...]         plain lists
[{"step": .., "start": "01:20", "end": 95.2}, ...]             a language model's reply
{"00:01:20": "title"}, [{"title": .., "start": "00:01:20"}]    chapters (Chapter-Llama), ends by rule
a Stepline record
"""

import json
from collections.abc import Sequence

from stepline.datasets.draft import usable
from stepline.datasets.node import Node
from stepline.datasets.predictions.clock import interval, seconds
from stepline.datasets.predictions.found import Found, Segment
from stepline.datasets.source import Tree
from stepline.errors import StoreError
from stepline.store import from_json

OWNER = ("video_id", "video-id", "videoid", "video_uid", "vid", "video")  # of the video that a row belongs to
TEXT = ("sentence", "text", "step", "caption", "description", "title", "heading", "headline", "label", "name")
PAIR = ("timestamp", "timestamps", "segment", "span", "interval", "time", "bounds", "times")
START = ("start", "start_time", "start_timestamp", "t-start", "t_start", "begin", "from", "startTime", "start_seconds")
END = ("end", "end_time", "stop_timestamp", "t-end", "t_end", "stop", "to", "endTime", "end_seconds")
SCORE = ("score", "confidence", "probability", "proposal_score")
LISTS = ("segments", "steps", "events", "predictions", "captions", "annotations", "chapters", "results", "actions")

NOT_TIMES = "its start and end are not two times"
NO_END = "has a start but no end"
NO_TEXT = "has no text"
BAD_TEXT = "its text is not valid Unicode"


def read_tree(found: Found, node: Node, stem: str) -> None:
    """Add what the tree of a whole file holds; stem: the video's id where the tree names none."""
    value = node.value
    if _is_record(value):
        _record(found, node)
    elif isinstance(value, dict) and isinstance(value.get("results"), dict):
        _videos(found, node["results"])
    elif isinstance(value, dict) and not _holds_segments(value):
        _videos(found, node)
    elif isinstance(value, list) and value and all(_named(row) for row in value):
        _named_rows(found, node)
    else:
        read_video(found, node, _own_id(value) or stem)


def _is_record(value: Tree) -> bool:
    return isinstance(value, dict) and {"version", "id", "video", "reference"} <= set(value)


def _record(found: Found, node: Node) -> None:
    try:
        found.record(from_json(json.dumps(node.value), node.place), node.place)
    except StoreError as error:
        found.skip(node.place, node.value, str(error))


def _holds_segments(value: dict[str, Tree]) -> bool:
    """Tell whether an object is one video, and not a mapping from video ids."""
    listed = any(isinstance(value.get(key), list | dict) for key in LISTS)
    return listed or is_row(value) or _is_columns(value) or _is_clock(value)


def is_row(value: Tree) -> bool:
    """Tell whether an object is one segment: a time beside a text."""
    return isinstance(value, dict) and any(key in value for key in START + PAIR) and any(key in value for key in TEXT)


def _is_columns(value: Tree) -> bool:
    pairs = (("timestamps", "sentences"), ("start", "end", "text"))
    return any(all(isinstance(value.get(key), list) for key in keys) for keys in pairs)


def _is_clock(value: dict[str, Tree]) -> bool:
    return bool(value) and all(
        ":" in key and seconds(key) is not None and isinstance(title, str) for key, title in value.items()
    )


def _named(row: Tree) -> bool:
    return isinstance(row, dict) and _own_id(row) is not None and (_is_record(row) or _holds_segments(row))


def _own_id(value: Tree) -> str | None:
    """Return the id of the video that an object names; a bare "id" is a row's own, unless it holds a list."""
    if not isinstance(value, dict):
        return None
    keys = OWNER if is_row(value) else (*OWNER, "id")
    return next((value[key] for key in keys if isinstance(value.get(key), str) and value[key]), None)


def _named_rows(found: Found, node: Node) -> None:
    """Add a list whose items name their video: a row each, or all segments of one video each."""
    rows: dict[str, list[Node]] = {}
    for row in node.rows():
        if is_row(row.value) and not any(isinstance(row.value.get(key), list | dict) for key in LISTS):
            rows.setdefault(_own_id(row.value) or "", []).append(row)
        elif _is_record(row.value):
            _record(found, row)
        else:
            read_video(found, row, _own_id(row.value) or "")
    for video, own in rows.items():
        if found.opens(video, own[0].place):
            _rows(found, video, own)


def _videos(found: Found, node: Node) -> None:
    for video, own in node.entries():
        read_video(found, own, video)


def read_video(found: Found, node: Node, video: str) -> None:
    """Add one video's segments."""
    value = node.value
    if not video or not usable(video):
        found.skip(node.place, value, "names no video")
    elif _is_record(value):
        _record(found, node)
    elif isinstance(value, str):
        found.replies.append((video, value, node.place))
    elif not isinstance(value, list | dict):
        found.skip(node.place, value, "is neither a list of segments nor an object that holds one")
    elif found.opens(video, node.place):
        _segments(found, video, node)


def _segments(found: Found, video: str, node: Node) -> None:
    value = node.value
    if isinstance(value, list):
        _rows(found, video, list(node.rows()))
    elif _is_columns(value):
        _columns(found, video, node)
    elif is_row(value):
        _rows(found, video, [node])
    elif (key := next((key for key in LISTS if isinstance(value.get(key), list | dict)), None)) is not None:
        _segments(found, video, node[key])
    elif _is_clock(value):
        titles = [(float(seconds(start) or 0), title.text().strip(), title.place) for start, title in node.entries()]
        found.chapters(video, [chapter for chapter in titles if _speaks(found, chapter[1], chapter[2])])
    elif value:
        found.skip(node.place, value, f"holds none of {', '.join(LISTS)}, nor timestamps with sentences")


def _columns(found: Found, video: str, node: Node) -> None:
    flat = isinstance(node.value.get("timestamps"), list)
    keys = ("timestamps", "sentences") if flat else ("start", "end", "text")
    columns = [list(node[key].rows()) for key in keys]
    if len({len(column) for column in columns}) > 1:
        found.skip(node.place, node.value, f"{', '.join(keys)} are not equally long")
        return
    for cells in zip(*columns, strict=True):
        values = [cell.value for cell in cells]
        times = values[0] if flat else values[:2]
        _add(found, video, cells[-1].place, interval(times), values[-1], None)


def _rows(found: Found, video: str, rows: Sequence[Node]) -> None:
    """Add segments; where every row gives a start and none an end they are chapters."""
    if rows and all(_starts(row.value) is not None for row in rows):
        starts = [(_starts(row.value) or 0.0, _text(row.value), row.place) for row in rows]
        found.chapters(video, [chapter for chapter in starts if _speaks(found, chapter[1], chapter[2])])
        return
    for row in rows:
        if isinstance(row.value, dict):
            _object(found, video, row)
        elif isinstance(row.value, list) and len(row.value) in (3, 4):
            start, end, text, *score = row.value
            _add(found, video, row.place, interval([start, end]), text, score[0] if score else None)
        else:
            found.skip(row.place, row.value, "is not [start, end, sentence]")


def _first(value: dict[str, Tree], keys: Sequence[str]) -> Tree:
    return next((value[key] for key in keys if value.get(key) is not None), None)


def _starts(value: Tree) -> float | None:
    """Return the start of a row that states a start and no end."""
    if not isinstance(value, dict) or _first(value, END) is not None:
        return None
    start = _first(value, START)
    return seconds(_first(value, PAIR) if start is None else start)


def _text(value: dict[str, Tree]) -> Tree:
    """Return the first text of a row, "" where all are empty; "step": 3 beside "text": "..." is no text."""
    texts = [value[key] for key in TEXT if isinstance(value.get(key), str) and value[key].strip()]
    numbers = (str(value[key]) for key in ("label",) if isinstance(value.get(key), int))
    blank = "" if any(_is_blank(value.get(key)) for key in TEXT) else None
    return texts[0] if texts else next(numbers, blank)


def _object(found: Found, video: str, row: Node) -> None:
    value = row.value
    if _starts(value) is not None:
        found.skip(row.place, _text(value) or value, NO_END)
        return
    start, end = _first(value, START), _first(value, END)
    times = interval(_first(value, PAIR)) if start is None and end is None else interval([start, end])
    _add(found, video, row.place, times, _text(value), _first(value, SCORE))


def _add(
    found: Found, video: str, where: str, times: tuple[float, float] | None, text: Tree, score: Tree
) -> None:  # fmt: skip
    if times is None:
        found.skip(where, text, NOT_TIMES)
    elif _is_blank(text) or _speaks(found, text, where):
        found.add(video, Segment(*times, text.strip(), seconds(score)))


def _is_blank(text: Tree) -> bool:
    return isinstance(text, str) and not text.strip()


def _speaks(found: Found, text: Tree, where: str) -> bool:
    if not isinstance(text, str) or not text.strip():
        found.skip(where, text, NO_TEXT)
        return False
    if not usable(text):
        found.skip(where, "", BAD_TEXT)
        return False
    return True
