"""Parsers of caption files that hold data: csv and JSON.

csv    HowTo100M's table of one video: the columns start, end, text JSON   YouTube json3, WhisperX
and Whisper segments, HowTo100M's and TAN's lists by video id
"""

import csv
import difflib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import TypeAlias

from stepline.errors import CaptionError
from stepline.limits import MAX_SECOND, parse_json_text
from stepline.records import Word, covering_span
from stepline.speech.shown_captions import Cue, TimedText, interpolate_words, span_of


def parse_seconds(value: object) -> float | None:
    """Return the seconds in a number or its text. None for anything else, NaN and infinity."""
    # To isinstance, JSON's true is an int.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if not math.isfinite(number) else number


def invalid_time_reason(cue: Cue) -> str | None:
    """Return why the cue's times cannot be used, or None when they can."""
    if cue.start is None or cue.end is None:
        return "the caption has no time"
    if cue.end > MAX_SECOND or cue.start > MAX_SECOND:
        return f"its time lies past {MAX_SECOND:.0f} s"
    if cue.end <= max(0.0, cue.start):
        return f"it ends at {cue.end:.2f} s, not after its start at {cue.start:.2f} s"
    return None


# ---------------------------------------------------------------- csv

CSV_COLUMNS = ("start", "end", "text")


def has_csv_header(text: str) -> bool:
    """Return whether the first line names the columns start, end and text."""
    header = text.lstrip("\n").split("\n", 1)[0]
    names = [cell.strip().strip('"').lower() for cell in header.split(",")]
    return set(CSV_COLUMNS) <= set(names)


def parse_csv(text: str, name: str) -> list[Cue]:
    """Return the cues of a csv with the columns start, end (seconds) and text in any order.

    Raises CaptionError for a file in another form.
    """
    rows = csv.reader(io.StringIO(text.lstrip("\n")))
    try:
        first_row = next(rows, [])
        header = [field.strip().lower() for field in first_row]
        if not set(CSV_COLUMNS) <= set(header):
            needs = "needs the columns start,end,text"
            raise CaptionError(f"{name}, line 1: {needs}; it has {','.join(header)[:80]!r}")
        columns = [header.index(column) for column in CSV_COLUMNS]
        cues = []
        # Blank lines have empty cells alone.
        for row in filter(any, rows):
            if len(row) <= max(columns):
                bad_row = f"{name}, line {rows.line_num}: {len(row)} columns"
                raise CaptionError(f"{bad_row}, needs start, end, text; add what is missing")
            start, end, content = [row[column] for column in columns]
            cues.append(_cue(content, start, end))
        return cues
    except csv.Error as error:
        raise CaptionError(
            f"{name}, line {rows.line_num}: no valid csv ({error}); correct that line"
        ) from error


# ---------------------------------------------------------------- JSON

Json: TypeAlias = object  # what json.loads gives; every use checks its type

FIRST_CJK_LETTER = "\u2e80"  # from here on scripts are written without spaces between words
JSON_FORMS = "YouTube json3 (events), WhisperX (segments), or {video: {text, start, end}}"


def parse_json(text: str, name: str, video: str | None) -> list[Cue]:
    """Return the cues of a JSON caption file.

    Args:
        text: content of the file.
        name: of the file, for messages.
        video: id of the video to read from a file that holds many.

    Raises CaptionError for a file in another form.
    """
    try:
        tree: Json = parse_json_text(text)
    except json.JSONDecodeError as error:
        raise CaptionError(
            f"{name}, line {error.lineno}: not valid JSON ({error.msg}); correct that line"
        ) from error
    except ValueError as error:
        raise CaptionError(f"{name}: JSON that is {error}; give {JSON_FORMS}") from error
    # One video, else many by their names.
    cues = _cues_of_form(tree, name)
    if cues is None and isinstance(tree, dict) and tree:
        key = _choose_video(tree, name, video)
        cues = _cues_of_form(tree[key], name)
    if cues is None:
        raise CaptionError(f"{name}: JSON of an unknown form; give {JSON_FORMS}")
    return cues


def _choose_video(tree: Mapping[str, Json], name: str, video: str | None) -> str:
    """Return the key of the wanted video, or of the only one when none is named."""
    if video is not None and video in tree:
        return video
    first = next(iter(tree))
    if video is None and len(tree) == 1:
        return first

    # the message names a video that there is
    keys = [key[:40] for key in islice(tree, 10_000)]
    hint = f"for example {first[:40]!r}"
    close_matches = difflib.get_close_matches(video or "", keys, n=1)
    if close_matches:
        hint = f"did you mean {close_matches[0]!r}?"
    problem = f"no video {video!r} among its" if video is not None else "name one of its"
    raise CaptionError(f"{name}: {problem} {len(tree)} videos; {hint}")


def _cues_of_form(tree: Json, name: str) -> list[Cue] | None:
    """Return the cues of one video in any known form, or None for an unknown form."""
    # a list of segments
    if isinstance(tree, list):
        parts = [part for part in tree if isinstance(part, dict) and "text" in part]
        if len(parts) < len(tree):
            return None
        return [_cue_of_segment(part) for part in parts]
    if not isinstance(tree, dict):
        return None

    # json3, WhisperX
    events = tree.get("events")
    if isinstance(events, list):
        return _cues_of_events(events)
    segments = tree.get("segments")
    if isinstance(segments, list):
        return [_cue_of_segment(part) for part in _dicts(segments)]

    # three lists, one row of them per cue
    columns = [tree.get(key) for key in ("text", "start", "end")]
    lists = [column for column in columns if isinstance(column, list)]
    if len(lists) < len(columns):
        return None
    lengths = [len(column) for column in lists]
    if min(lengths) != max(lengths):
        rule = "text, start and end must be equally long lists"
        raise CaptionError(f"{name}: {rule}, not {lengths}; write them again")
    return [_cue(*row) for row in zip(*lists, strict=True)]


def _cue(text: Json, start: Json, end: Json) -> Cue:
    content = text if isinstance(text, str) else ""
    return Cue(content, parse_seconds(start), parse_seconds(end))


def _cue_of_segment(part: Mapping[str, Json]) -> Cue:
    """Return the cue of a WhisperX segment, timed by its words where it has no time itself."""
    words: list[Word] = []
    for item in _dicts(part.get("words")):
        words += _word(item)
    cue = _cue(part.get("text"), part.get("start"), part.get("end"))
    span = covering_span(word.span for word in words)
    if span is None:
        return cue
    start = span.start if cue.start is None else cue.start
    end = span.end if cue.end is None else cue.end
    return replace(cue, start=start, end=end, words=tuple(words))


def _dicts(items: Json) -> list[dict[str, Json]]:
    """Return the objects of a JSON list, or an empty list for any other value."""
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, dict)]


def _word(item: Mapping[str, Json]) -> list[Word]:
    """Return the word of a WhisperX item, or None for an item without a word."""
    text = item.get("word", item.get("text"))
    if not isinstance(text, str) or not text.strip():
        return []
    text = text.strip()
    # A word carries the space before it, but for scripts without spaces.
    if text[0] < FIRST_CJK_LETTER:
        text = f" {text}"
    confidence = parse_seconds(item.get("score", item.get("probability")))
    if confidence is not None:
        confidence = min(1.0, max(0.0, confidence))
    span = span_of(parse_seconds(item.get("start")), parse_seconds(item.get("end")))
    return [Word(text=text, span=span, confidence=confidence)]


def _cues_of_events(events: list[Json]) -> list[Cue]:
    """Return the cues of YouTube json3. An event lasts until the next one starts."""
    spoken = []
    for event in _dicts(events):
        parts = _dicts(event.get("segs"))
        text = "".join(str(part.get("utf8", "")) for part in parts)
        if text.strip():
            spoken.append((event, parts, text, _milliseconds(event.get("tStartMs"))))
    cues = []
    for number, (event, parts, text, start) in enumerate(spoken):
        after = spoken[number + 1][3] if number + 1 < len(spoken) else None
        length = _milliseconds(event.get("dDurationMs"))
        end = start + length if start is not None and length is not None else after
        if start is None or end is None:
            cues.append(Cue(text, None, None))
            continue
        if after is not None and start < after < end:
            end = after

        # words, where the event times more than one
        pieces = []
        for part in parts:
            offset = _milliseconds(part.get("tOffsetMs"))
            second = None if offset is None else min(start + offset, end)
            pieces.append(TimedText(str(part.get("utf8", "")), second))
        words: list[Word] = []
        if len(pieces) > 1 and any(piece.start is not None for piece in pieces):
            words = interpolate_words(pieces, start, end)
        cues.append(Cue(text, start, end, tuple(words)))
    return cues


def _milliseconds(value: Json) -> float | None:
    milliseconds = parse_seconds(value)
    return None if milliseconds is None else milliseconds / 1000
