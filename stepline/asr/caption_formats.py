"""Caption files to cues, in every format, before anything is repaired: SubRip, WebVTT, csv and
JSON.

SubRip and WebVTT   also the rolling two-line cues and word times of YouTube's automatic captions
csv                 HowTo100M's table of one video: the columns start, end, text
JSON                YouTube json3, WhisperX and Whisper segments, HowTo100M's and TAN's lists by video id
"""

import codecs
import csv
import difflib
import html
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from stepline.errors import CaptionError
from stepline.limits import CAPTIONS, LATEST, LimitError, parse_json_text, read_limited
from stepline.records import Span, Word


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


def _span(start: float | None, end: float | None) -> Span | None:
    """Return the span of two times that can be one, else None."""
    return (
        Span(start, end)
        if start is not None and end is not None and 0.0 <= start < end <= LATEST
        else None
    )


# ---------------------------------------------------------------- bytes to text, a cue's text to
# what is said

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark is its beginning
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# <i>, <v Anna>, <c.red>, <00:01.000>, {\an8}
TAG = re.compile(r"</?[A-Za-z0-9][^<>]{0,200}>|\{\\[^{}]{0,80}\}")
SQUARE = re.compile(r"\[[^\[\]]{0,120}\]|♪[^♪]{0,200}♪|[♪♫]")
ROUND = re.compile(
    r"\((?:[^()]{0,40}\b)?(?:music|applause|laugh\w*|cheer\w*|sigh\w*|cough\w*|silence|inaudible|beep\w*)\b[^()]{0,40}\)",
    re.IGNORECASE,
)
SPEAKER = re.compile(r"^(?:\s*(?:>>+|-|–|—)\s+)+", re.MULTILINE)


def decode_file(path: Path) -> str:
    """Return a caption file as text: UTF-8, UTF-16 or UTF-32 by their mark, else UTF-8, else
    Windows-1252.

    Raises CaptionError for what cannot be read, is too large or is no text.
    """
    try:
        data = read_limited(path, CAPTIONS)
    except LimitError as error:
        raise CaptionError(f"{path}: {error}; cut this video's part out of it") from error
    except OSError as error:
        raise CaptionError(
            f"{path}: cannot be read ({error.strerror}); give a caption file"
        ) from error
    marked = next((name for mark, name in MARKS if data.startswith(mark)), None)
    try:
        text = data.decode(marked or "utf-8")
    except UnicodeDecodeError as error:
        if marked is not None:
            damage = f"begins as {marked} but is damaged at byte {error.start}"
            raise CaptionError(f"{path}: {damage}; save it as UTF-8") from error
        text = data.decode("cp1252", errors="replace")
    if "\0" in text:
        raise CaptionError(
            f"{path}: holds zero bytes, so it is no caption text; give srt, vtt, csv or json"
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def strip_tags(text: str) -> str:
    """Return the text of a subtitle without its markup, entities resolved, speaker dashes left
    out."""
    return SPEAKER.sub("", html.unescape(TAG.sub("", text)))


def strip_sounds(text: str) -> str:
    """Return the text without "[Music]", "(applause)" and notes; line breaks stay."""
    return ROUND.sub(" ", SQUARE.sub(" ", text))


# ---------------------------------------------------------------- SubRip and WebVTT

CLOCK = r"(?:(\d{1,6}):)?(\d{1,4}):(\d{1,2})(?:[.,](\d{1,9}))?"
TIMING = re.compile(rf"\s*{CLOCK}\s*-->\s*{CLOCK}(?:\s.*)?$")
INLINE = re.compile(rf"<{CLOCK}>")
COMMENTS = ("NOTE", "STYLE", "REGION")  # WebVTT blocks that hold no cue


def parse_subtitles(text: str, name: str) -> list[Cue]:
    """Return the cues of an srt or vtt file; raises CaptionError with the line of a timing that
    cannot be read."""
    blocks = list(_blocks(text.split("\n"), name))
    if not blocks and not text.lstrip().startswith("WEBVTT"):
        raise CaptionError(
            f"{name}: holds no cue; write 00:00:01,000 --> 00:00:02,500 and the text below it"
        )
    if any(INLINE.search(body) for _, _, body in blocks):
        return _cues_with_word_times(blocks)
    return [Cue(strip_tags(body), start, end) for start, end, body in blocks]


def _blocks(lines: list[str], name: str) -> Iterator[tuple[float, float, str]]:
    """Yield start, end and raw text of each cue."""
    index = 0
    while index < len(lines):
        line = lines[index]
        index += 1
        if line.startswith(COMMENTS) and "-->" not in line:
            while index < len(lines) and lines[index].strip():
                index += 1
        elif "-->" in line:
            timing = TIMING.match(line)
            if not timing:
                wrong = f"{name}, line {index}: {line.strip()[:60]!r} is no timing"
                raise CaptionError(f"{wrong}; write 00:00:01,000 --> 00:00:02,500")
            start, end = _clock_seconds(timing.groups()[:4]), _clock_seconds(timing.groups()[4:])
            first = index
            # YouTube has lines of one space
            while index < len(lines) and lines[index] and "-->" not in lines[index]:
                index += 1
            body = lines[first:index]
            if index < len(lines) and "-->" in lines[index] and body and body[-1].strip().isdigit():
                body.pop()  # the number of the next cue, where the empty line before it is missing
            yield start, end, "\n".join(body)


def _clock_seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")


def _cues_with_word_times(blocks: list[tuple[float, float, str]]) -> list[Cue]:
    """Return cues from captions with word times: a line that the cue before ended with is only
    shown again."""
    found: list[Cue] = []
    before = ""
    for start, end, body in blocks:
        lines = [line for line in body.split("\n") if line.strip()]
        fresh = [line for line in lines if _plain(line) != before]
        before = _plain(lines[-1]) if lines else ""
        words = _timed_words("\n".join(fresh), start, end)
        if words:
            found.append(Cue("".join(word.text for word in words).strip(), start, end, words))
    return _end_at_next_words(found)


def _plain(line: str) -> str:
    return " ".join(strip_tags(line).split())


def _timed_words(body: str, start: float, end: float) -> tuple[Word, ...]:
    """Return the words of a cue; a word lasts to the next time in the cue."""
    pieces = INLINE.split(body)  # text, then four clock parts and text again and again
    starts = [
        start,
        *(_clock_seconds(tuple(pieces[i : i + 4])) for i in range(1, len(pieces) - 3, 5)),
    ]
    words: list[Word] = []
    for text, begin, after in zip(pieces[::5], starts, [*starts[1:], end], strict=True):
        tokens = html.unescape(strip_tags(text)).split()
        step = (after - begin) / max(1, len(tokens))
        for position, token in enumerate(tokens):
            words.append(
                Word(
                    text=f" {token}",
                    span=_span(begin + position * step, begin + (position + 1) * step),
                )
            )
    return tuple(words)


def _end_at_next_words(cues: list[Cue]) -> list[Cue]:
    """End each cue where the next one's words begin: rolling cues stay on the screen longer than
    they are spoken."""
    found = []
    for cue, after in zip(cues, [*(following.start for following in cues[1:]), None], strict=False):
        if (
            after is not None
            and cue.start is not None
            and cue.end is not None
            and cue.start < after < cue.end
        ):
            words = [
                word.model_copy(update={"span": _span(word.span.start, after)})
                if word.span is not None and word.span.end > after
                else word
                for word in cue.words
            ]
            cue = replace(cue, end=after, words=tuple(words))
        found.append(cue)
    return found


# ---------------------------------------------------------------- csv

COLUMNS = ("start", "end", "text")


def has_csv_header(text: str) -> bool:
    """Tell whether the first line names the columns start, end and text."""
    names = text.lstrip("\n").split("\n", 1)[0].split(",")
    return set(COLUMNS) <= {name.strip().strip('"').lower() for name in names}


def parse_csv(text: str, name: str) -> list[Cue]:
    """Return the cues of a csv with columns start, end (seconds), text in any order; raises
    CaptionError."""
    rows = csv.reader(io.StringIO(text.lstrip("\n")))
    try:
        header = [column.strip().lower() for column in next(rows, [])]
        if not set(COLUMNS) <= set(header):
            raise CaptionError(
                f"{name}, line 1: needs the columns start,end,text; it has {','.join(header)[:80]!r}"
            )
        columns = [header.index(column) for column in COLUMNS]
        cues = []
        for row in filter(any, rows):
            if len(row) <= max(columns):
                found = f"{name}, line {rows.line_num}: {len(row)} columns"
                raise CaptionError(f"{found}, needs start, end, text; add what is missing")
            start, end, text = (row[column] for column in columns)
            cues.append(Cue(text, parse_seconds(start), parse_seconds(end)))
        return cues
    except csv.Error as error:
        raise CaptionError(
            f"{name}, line {rows.line_num}: no valid csv ({error}); correct that line"
        ) from error


# ---------------------------------------------------------------- JSON

Json: TypeAlias = object  # what json.loads gives; every use checks its type

CJK = "\u2e80"  # from here on scripts are written without spaces between words
FORMS = "YouTube json3 (events), WhisperX (segments), or {video: {text, start, end}}"


def parse_json(text: str, name: str, video: str | None) -> list[Cue]:
    """Return the cues of a JSON file; `video` picks one of many. Raises CaptionError."""
    try:
        tree: Json = parse_json_text(text)
    except json.JSONDecodeError as error:
        raise CaptionError(
            f"{name}, line {error.lineno}: not valid JSON ({error.msg}); correct that line"
        ) from error
    except ValueError as error:
        raise CaptionError(f"{name}: JSON that is {error}; give {FORMS}") from error
    cues = _cues_of_form(tree, name)
    if cues is None and isinstance(tree, dict) and tree:
        cues = _cues_of_form(tree[_choose_video(tree, name, video)], name)
    if cues is None:
        raise CaptionError(f"{name}: JSON of an unknown form; give {FORMS}")
    return cues


def _choose_video(tree: Mapping[str, Json], name: str, video: str | None) -> str:
    """Return the key of the wanted video; the only one when none is named."""
    if video is not None and video in tree:
        return video
    if video is None and len(tree) == 1:
        return next(iter(tree))
    near = difflib.get_close_matches(video or "", [key[:40] for key in list(tree)[:10_000]], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"for example {next(iter(tree))[:40]!r}"
    asked = f"no video {video!r} among its" if video is not None else "name one of its"
    raise CaptionError(f"{name}: {asked} {len(tree)} videos; {hint}")


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
    columns = [
        column for key in ("text", "start", "end") if isinstance(column := tree.get(key), list)
    ]
    if len(columns) < 3:
        return None
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(str(len(column)) for column in columns)
        raise CaptionError(
            f"{name}: text, start and end must be equally long lists, not {sizes}; write them again"
        )
    return [
        Cue(text if isinstance(text, str) else "", parse_seconds(start), parse_seconds(end))
        for text, start, end in zip(*columns, strict=True)
    ]


def _cue_of_segment(part: Mapping[str, Json]) -> Cue:
    """Return one WhisperX segment; where it has no time of its own its words give it."""
    given = part.get("words")
    words = tuple(
        word
        for item in (given if isinstance(given, list) else [])
        if isinstance(item, dict)
        for word in _word(item)
    )
    text = part.get("text")
    spans = [word.span for word in words if word.span]
    start, end = parse_seconds(part.get("start")), parse_seconds(part.get("end"))
    if spans:
        start = min(span.start for span in spans) if start is None else start
        end = max(span.end for span in spans) if end is None else end
    return Cue(text if isinstance(text, str) else "", start, end, words if spans else ())


def _word(item: Mapping[str, Json]) -> list[Word]:
    text = item.get("word", item.get("text"))
    if not isinstance(text, str) or not text.strip():
        return []
    score = parse_seconds(item.get("score", item.get("probability")))
    confidence = None if score is None else min(1.0, max(0.0, score))
    span = _span(parse_seconds(item.get("start")), parse_seconds(item.get("end")))
    space = "" if text.strip()[0] >= CJK else " "
    return [Word(text=f"{space}{text.strip()}", span=span, confidence=confidence)]


def _cues_of_events(events: list[Json]) -> list[Cue]:
    """Return the cues of YouTube json3: times in milliseconds, words with offsets, each event until
    the next begins."""
    shown = [
        (event, pieces)
        for event in events
        if isinstance(event, dict) and (pieces := _pieces(event))
    ]
    starts = [parse_seconds(event.get("tStartMs")) for event, _ in shown]
    found = []
    for (event, pieces), start, after in zip(shown, starts, [*starts[1:], None], strict=False):
        length = parse_seconds(event.get("dDurationMs"))
        end = start + length if start is not None and length is not None else after
        if start is not None and end is not None and after is not None and start < after < end:
            end = after
        text = "".join(piece for piece, _ in pieces)
        if start is None or end is None:
            found.append(Cue(text, None, None))
            continue
        edges = [*((start + (offset or 0.0)) / 1000 for _, offset in pieces), end / 1000]
        words = tuple(
            Word(text=f" {piece.strip()}", span=_span(begin, min(following, end / 1000)))
            for (piece, _), begin, following in zip(pieces, edges, edges[1:], strict=False)
            if piece.strip()
        )
        timed = len(pieces) > 1 and any(offset is not None for _, offset in pieces)
        found.append(Cue(text, start / 1000, end / 1000, words if timed else ()))
    return found


def _pieces(event: Mapping[str, Json]) -> list[tuple[str, float | None]]:
    """Return the event's pieces of text with their offsets in milliseconds."""
    pieces = event.get("segs")
    parts = [part for part in pieces if isinstance(part, dict)] if isinstance(pieces, list) else []
    texts = [(str(part.get("utf8", "")), parse_seconds(part.get("tOffsetMs"))) for part in parts]
    return texts if "".join(text for text, _ in texts).strip() else []
