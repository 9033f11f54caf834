"""Caption files of data to cues, before anything is repaired: csv and JSON.

csv    HowTo100M's table of one video: the columns start, end, text
JSON   YouTube json3, WhisperX and Whisper segments, HowTo100M's and TAN's lists by video id
"""

import csv
import difflib
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from stepline.errors import CaptionError
from stepline.limits import LATEST, parse_json_text
from stepline.records import Span, Word, covering_span

MIN_CUE_SECONDS = 0.2  # a cue shown no longer is an artefact of rolling captions (TAN)
# between two cues up to which the second can be a longer version of the first
MAX_CUE_GAP_SECONDS = 0.5


@dataclass(frozen=True)
class Cue:
    """Text shown from start to end seconds; None where the file gives no usable time.

    text may hold line breaks. words: where the format times them, each with the space before it.
    """

    text: str
    start: float | None
    end: float | None
    words: tuple[Word, ...] = ()


def parse_seconds(value: object) -> float | None:
    """Return a time in seconds from what a file holds: a number or its text; None for anything
    else, NaN, infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def unusable_time_reason(cue: Cue) -> str | None:
    """Return why the cue's times cannot be used, or None when they can."""
    if cue.start is None or cue.end is None:
        return "the caption has no time"
    if cue.end > LATEST or cue.start > LATEST:
        return f"its time lies past {LATEST:.0f} s"
    if cue.end <= max(0.0, cue.start):
        return f"it ends at {cue.end:.2f} s, not after its start at {cue.start:.2f} s"
    return None


def span_of(start: float | None, end: float | None) -> Span | None:
    """Return the span of two times that can be one, else None."""
    if start is None or end is None or not 0.0 <= start < end <= LATEST:
        return None
    return Span(start, end)


# ---------------------------------------------------------------- csv

CSV_COLUMNS = ("start", "end", "text")


def has_csv_header(text: str) -> bool:
    """Tell whether the first line names the columns start, end and text."""
    names = text.lstrip("\n").split("\n", 1)[0].split(",")
    return set(CSV_COLUMNS) <= {name.strip().strip('"').lower() for name in names}


def parse_csv(text: str, name: str) -> list[Cue]:
    """Return the cues of a csv with columns start, end (seconds), text in any order; raises
    CaptionError."""
    rows = csv.reader(io.StringIO(text.lstrip("\n")))
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        if not set(CSV_COLUMNS) <= set(header):
            raise CaptionError(
                f"{name}, line 1: needs the columns start,end,text; it has {','.join(header)[:80]!r}"
            )
        columns = [header.index(column) for column in CSV_COLUMNS]
        cues = []
        for row in filter(any, rows):
            if len(row) <= max(columns):
                wrong = f"{name}, line {rows.line_num}: {len(row)} columns"
                raise CaptionError(f"{wrong}, needs start, end, text; add what is missing")
            start, end, content = (row[column] for column in columns)
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
    """Return the cues of a JSON file; `video` picks one of many. Raises CaptionError."""
    try:
        tree: Json = parse_json_text(text)
    except json.JSONDecodeError as error:
        raise CaptionError(
            f"{name}, line {error.lineno}: not valid JSON ({error.msg}); correct that line"
        ) from error
    except ValueError as error:
        raise CaptionError(f"{name}: JSON that is {error}; give {JSON_FORMS}") from error
    cues = _cues_of_form(tree, name)
    if cues is None and isinstance(tree, dict) and tree:
        cues = _cues_of_form(tree[_choose_video(tree, name, video)], name)
    if cues is None:
        raise CaptionError(f"{name}: JSON of an unknown form; give {JSON_FORMS}")
    return cues


def _choose_video(tree: Mapping[str, Json], name: str, video: str | None) -> str:
    """Return the key of the wanted video; the only one when none is named."""
    if video is not None and video in tree:
        return video
    if video is None and len(tree) == 1:
        return next(iter(tree))
    near = difflib.get_close_matches(video or "", [key[:40] for key in list(tree)[:10_000]], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"for example {next(iter(tree))[:40]!r}"
    problem = f"no video {video!r} among its" if video is not None else "name one of its"
    raise CaptionError(f"{name}: {problem} {len(tree)} videos; {hint}")


def _cues_of_form(tree: Json, name: str) -> list[Cue] | None:
    """Return the cues of one video in any of the forms; None for a form that is not known."""
    if isinstance(tree, list):
        parts = [part for part in tree if isinstance(part, dict) and "text" in part]
        return [_cue_of_segment(part) for part in parts] if len(parts) == len(tree) else None
    if not isinstance(tree, dict):
        return None
    events, segments = tree.get("events"), tree.get("segments")
    if isinstance(events, list):
        return _cues_of_events(events)
    if isinstance(segments, list):
        return [_cue_of_segment(part) for part in segments if isinstance(part, dict)]
    columns = [tree.get(key) for key in ("text", "start", "end")]
    texts, starts, ends = columns
    if not (isinstance(texts, list) and isinstance(starts, list) and isinstance(ends, list)):
        return None
    if not len(texts) == len(starts) == len(ends):
        sizes = f"{len(texts)}, {len(starts)}, {len(ends)}"
        raise CaptionError(
            f"{name}: text, start and end must be equally long lists, not {sizes}; write them again"
        )
    return [_cue(*row) for row in zip(texts, starts, ends, strict=True)]


def _cue(text: Json, start: Json, end: Json, words: tuple[Word, ...] = ()) -> Cue:
    content = text if isinstance(text, str) else ""
    return Cue(content, parse_seconds(start), parse_seconds(end), words)


def _cue_of_segment(part: Mapping[str, Json]) -> Cue:
    """Return one WhisperX segment; where it has no time of its own its words give it."""
    items = part.get("words")
    words: list[Word] = []
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            words += _word(item)
    cue = _cue(part.get("text"), part.get("start"), part.get("end"), tuple(words))
    span = covering_span(word.span for word in words)
    if span is None:
        return replace(cue, words=())
    start = span.start if cue.start is None else cue.start
    end = span.end if cue.end is None else cue.end
    return replace(cue, start=start, end=end)


def _word(item: Mapping[str, Json]) -> list[Word]:
    """Return the word, if any, of a WhisperX item."""
    text = item.get("word", item.get("text"))
    if not isinstance(text, str) or not text.strip():
        return []
    score = parse_seconds(item.get("score", item.get("probability")))
    confidence = None if score is None else min(1.0, max(0.0, score))
    span = span_of(parse_seconds(item.get("start")), parse_seconds(item.get("end")))
    space = "" if text.strip()[0] >= FIRST_CJK_LETTER else " "
    return [Word(text=f"{space}{text.strip()}", span=span, confidence=confidence)]


def _cues_of_events(events: list[Json]) -> list[Cue]:
    """Return the cues of YouTube json3: times in milliseconds, words with offsets, each event until
    the next begins."""
    spoken = []
    for event in events:
        if isinstance(event, dict) and (pieces := _pieces(event)):
            spoken.append((event, pieces))
    starts = [parse_seconds(event.get("tStartMs")) for event, _ in spoken]
    cues = []
    for (event, pieces), (start, after) in zip(spoken, pairwise([*starts, None]), strict=True):
        text = "".join(piece for piece, _ in pieces)
        length = parse_seconds(event.get("dDurationMs"))
        end = start + length if start is not None and length is not None else after
        if start is None or end is None:
            cues.append(Cue(text, None, None))
            continue
        if after is not None and start < after < end:
            end = after
        words = []
        edges = [(start + (offset or 0.0)) / 1000 for _, offset in pieces]
        for (piece, _), (begin, following) in zip(
            pieces, pairwise([*edges, end / 1000]), strict=True
        ):
            if piece.strip():
                span = span_of(begin, min(following, end / 1000))
                words.append(Word(text=f" {piece.strip()}", span=span))
        if len(pieces) == 1 or all(offset is None for _, offset in pieces):
            words = []
        cues.append(Cue(text, start / 1000, end / 1000, tuple(words)))
    return cues


def _pieces(event: Mapping[str, Json]) -> list[tuple[str, float | None]]:
    """Return the event's pieces of text with their offsets in milliseconds."""
    pieces = event.get("segs")
    parts = [part for part in pieces if isinstance(part, dict)] if isinstance(pieces, list) else []
    texts = [(str(part.get("utf8", "")), parse_seconds(part.get("tOffsetMs"))) for part in parts]
    return texts if "".join(text for text, _ in texts).strip() else []
