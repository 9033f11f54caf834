"""Parsers of caption files that hold data: csv and JSON.

csv    HowTo100M's table of one video: the columns start, end, text
JSON   YouTube json3, WhisperX and Whisper segments, the lists of youtube-transcript-api,
       chunks of Hugging Face's pipeline, whisper.cpp's transcription, HowTo100M's and TAN's lists
       by video id
"""

import csv
import difflib
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice

from stepline.errors import CaptionError
from stepline.limits import MAX_SECOND, parse_json_text
from stepline.numeric import parse_number
from stepline.records import Word, covering_span
from stepline.speech.shown_captions import Cue, TimedText, interpolate_words, span_of

CSV_COLUMNS = ("start", "end", "text")
FIRST_CJK_LETTER = "\u2e80"  # from here on scripts are written without spaces between words
JSON_FORMS = (
    "YouTube json3 (events), WhisperX (segments), whisper.cpp (transcription), Hugging Face "
    "(chunks), [{text, start, end or duration}], or {video: {text, start, end}}"
)
# lists of texts with times, of WhisperX, whisper.cpp, Hugging Face, youtube-transcript-api, OpenAI
SEGMENT_KEYS = ("segments", "transcription", "chunks", "snippets", "words")
# Words per second below which whole numbers are milliseconds. In seconds, speech has 2 to 5; in
# milliseconds that are taken for seconds, 0.002 to 0.005.
MIN_WORDS_PER_SECOND = 0.01
SECONDS_PER_WORD = 0.4  # of speech, where a file does not say when the last words end
MAX_WORD_SECONDS = 1.0  # mean length of segments that are single words
WORDS_PER_CUE = 100  # of a file that has words alone
MAX_COMPARED_IDS = 10_000  # of the videos in a file, for a hint in a message

Json = object  # any JSON value; every use checks its type


def invalid_time_reason(cue: Cue) -> str | None:
    """Return why the start and end of a cue are invalid. None if they are valid."""
    if cue.start is None or cue.end is None:
        return "the caption has no time"
    if cue.end > MAX_SECOND or cue.start > MAX_SECOND:
        return f"its time lies past {MAX_SECOND:.0f} s"
    if cue.end <= 0 and cue.start < 0:
        return f"it ends at {cue.end:.2f} s, before the video begins"
    if cue.end <= cue.start:
        return f"it ends at {cue.end:.2f} s, not after its start at {cue.start:.2f} s"
    return None


def milliseconds_as_seconds(cues: Sequence[Cue]) -> list[Cue] | None:
    """Return the cues with their times divided by 1000. None if the times are seconds already.

    Milliseconds are whole numbers, and as seconds they would leave speech next to no words.
    """
    times = [time for cue in cues for time in (cue.start, cue.end) if time is not None]
    if not all(time.is_integer() for time in times) or any(cue.words for cue in cues):
        return None
    rates = [
        len(cue.text.split()) / (cue.end - cue.start)
        for cue in cues
        if cue.start is not None and cue.end is not None and cue.start < cue.end
    ]
    if not rates or statistics.median(rates) >= MIN_WORDS_PER_SECOND:
        return None
    return [
        replace(
            cue, start=_seconds_of_milliseconds(cue.start), end=_seconds_of_milliseconds(cue.end)
        )
        for cue in cues
    ]


# ---------------------------------------------------------------- csv


def has_csv_header(text: str) -> bool:
    """Return whether the first line of a csv names the columns start, end and text."""
    header = text.lstrip("\n").split("\n", 1)[0]
    return set(CSV_COLUMNS) <= {cell.strip().strip('"').lower() for cell in header.split(",")}


def parse_csv(text: str, file_name: str) -> list[Cue]:
    """Return the cues in a csv text with the columns start, end (seconds) and text, in any order.

    Args:
        text: content of the file.
        file_name: name of the file in messages.

    Raises CaptionError for a text in another format.
    """
    rows = csv.reader(io.StringIO(text.lstrip("\n")))
    try:
        header = [cell.strip().lower() for cell in next(rows, [])]
        if not set(CSV_COLUMNS) <= set(header):
            problem = "needs the columns start,end,text"
            raise CaptionError(f"{file_name}, line 1: {problem}; it has {','.join(header)[:80]!r}")
        columns = [header.index(column) for column in CSV_COLUMNS]
        cues = []
        for row in filter(any, rows):  # Blank lines have empty cells only.
            if len(row) <= max(columns):
                problem = f"{file_name}, line {rows.line_num}: {len(row)} columns"
                raise CaptionError(f"{problem}, needs start, end, text; add what is missing")
            start, end, content = [row[column] for column in columns]
            cues.append(_make_cue(content, start, end))
        return cues
    except csv.Error as error:
        raise CaptionError(
            f"{file_name}, line {rows.line_num}: no valid csv ({error}); correct that line"
        ) from error


# ---------------------------------------------------------------- JSON


def parse_json(text: str, file_name: str, video_id: str | None) -> list[Cue]:
    """Return the cues in a JSON caption file.

    Args:
        text: content of the file.
        file_name: name of the file in messages.
        video_id: id of the video to read from a file with many videos. None if it has one.

    Raises CaptionError for a text in another format.
    """
    try:
        tree: Json = parse_json_text(text)
    except json.JSONDecodeError as error:
        raise CaptionError(
            f"{file_name}, line {error.lineno}: not valid JSON ({error.msg}); correct that line"
        ) from error
    except ValueError as error:
        raise CaptionError(f"{file_name}: JSON that is {error}; give {JSON_FORMS}") from error
    if isinstance(tree, dict) and {"version", "video", "transcript", "steps"} <= tree.keys():
        cure = "give its video, or write its outputs with stepline.write_outputs in Python"
        raise CaptionError(f"{file_name}: a record of `stepline steps`, not captions; {cure}")
    # one video, else many by their ids
    cues = _cues_of_video(tree, file_name)
    if cues is None and isinstance(tree, dict) and any(map(_is_video, tree.values())):
        cues = _cues_of_video(tree[_choose_video(tree, file_name, video_id)], file_name)
    if cues is None:
        raise CaptionError(f"{file_name}: JSON of an unknown form; give {JSON_FORMS}")
    return cues


def _is_video(value: Json) -> bool:
    """Return whether a JSON value can hold the captions of one video."""
    if isinstance(value, list):
        return bool(_json_objects(value[:1]))
    lists = ("text", "events", *SEGMENT_KEYS)
    return isinstance(value, dict) and any(isinstance(value.get(key), list) for key in lists)


def _choose_video(tree: Mapping[str, Json], file_name: str, video_id: str | None) -> str:
    """Return the key of the wanted video in a JSON object of videos.

    Args:
        tree: video id -> captions.
        file_name: name of the file in messages.
        video_id: id of the wanted video. None for the only one.
    """
    if video_id is not None and video_id in tree:
        return video_id
    first = next(iter(tree))
    if video_id is None and len(tree) == 1:
        return first
    hint = f"for example {first[:40]!r}"
    keys = [key[:40] for key in islice(tree, MAX_COMPARED_IDS)]
    if close_matches := difflib.get_close_matches(video_id or "", keys, n=1):
        hint = f"did you mean {close_matches[0]!r}?"
    problem = f"no video {video_id!r} among its" if video_id is not None else "name one of its"
    raise CaptionError(f"{file_name}: {problem} {len(tree)} videos; {hint}")


def _cues_of_video(tree: Json, file_name: str) -> list[Cue] | None:
    """Return the cues in the JSON value of one video. None for an unknown format.

    Args:
        tree: the JSON value.
        file_name: name of the file in messages.
    """
    # a list of segments. youtube-transcript-api writes one such list per video
    if isinstance(tree, list):
        items: list[Json] = tree[0] if len(tree) == 1 and isinstance(tree[0], list) else tree
        segments = [item for item in _json_objects(items) if "text" in item or "word" in item]
        return _cues_of_segments(segments) if len(segments) == len(items) else None
    if not isinstance(tree, dict):
        return None

    # json3, lists of segments by a name
    if isinstance(tree.get("events"), list):
        return _cues_of_events(tree["events"])
    for key in SEGMENT_KEYS:
        if isinstance(tree.get(key), list):
            return _cues_of_segments(_json_objects(tree[key]))

    # three lists, one row of them per cue
    columns = [tree.get(key) for key in ("text", "start", "end")]
    lists = [column for column in columns if isinstance(column, list)]
    if len(lists) < len(columns):
        return None
    lengths = [len(column) for column in lists]
    if min(lengths) != max(lengths):
        raise CaptionError(
            f"{file_name}: text, start and end must be equally long lists, not {lengths}; write "
            "them again"
        )
    return [_make_cue(*row) for row in zip(*lists, strict=True)]


def _make_cue(text: Json, start: Json, end: Json) -> Cue:
    content = text if isinstance(text, str) else ""
    return Cue(content, parse_number(start), parse_number(end))


def _cues_of_segments(items: list[dict[str, Json]]) -> list[Cue]:
    """Return the cues of segments, or of words if each segment is one word."""
    segments = []
    for number, item in enumerate(items):
        start, end = _segment_times(item)
        # Captions of YouTube are shown longer than they are said. Whisper may leave an end open.
        is_shown = "duration" in item or "dur" in item
        if start is not None and (is_shown or (end is None and "timestamp" in item)):
            next_start = _segment_times(items[number + 1])[0] if number + 1 < len(items) else None
            if next_start is not None and next_start > start and (end is None or next_start < end):
                end = next_start
            if end is None:
                end = start + SECONDS_PER_WORD * len(_text_of_word(item).split())
        segments.append({**item, "start": start, "end": end})
    if not _is_one_word_each(segments):
        return [_cue_of_segment(segment) for segment in segments]

    # whisper.cpp cuts words into tokens. A token that begins a word has a space before it.
    has_spaces = any(_text_of_word(segment)[:1] == " " for segment in segments)
    words: list[dict[str, Json]] = []
    for segment in segments:
        text = _text_of_word(segment)
        if words and has_spaces and text[:1] != " ":
            text = _text_of_word(words[-1]) + text
            segment = {**segment, "start": words.pop()["start"]}
        words.append({**segment, "word": text})
    groups = [words[n : n + WORDS_PER_CUE] for n in range(0, len(words), WORDS_PER_CUE)]
    return [
        _cue_of_segment({"text": "".join(map(_text_of_word, group)), "words": group})
        for group in groups
    ]


def _segment_times(item: Mapping[str, Json]) -> tuple[float | None, float | None]:
    """Return the start and end of a segment in seconds, None where it has none.

    The times are `start` and `end` or `duration`, `timestamp` (Hugging Face), or `offsets` in
    milliseconds (whisper.cpp).
    """
    timestamp = item.get("timestamp")
    if isinstance(timestamp, list) and len(timestamp) == 2:
        return parse_number(timestamp[0]), parse_number(timestamp[1])
    offsets = item.get("offsets")
    if isinstance(offsets, dict):
        return (
            _seconds_of_milliseconds(offsets.get("from")),
            _seconds_of_milliseconds(offsets.get("to")),
        )
    start, end = parse_number(item.get("start")), parse_number(item.get("end"))
    duration = parse_number(item.get("duration", item.get("dur")))
    if start is not None and end is None and duration is not None:
        end = start + duration
    return start, end


def _text_of_word(item: Mapping[str, Json]) -> str:
    return str(item.get("word", item.get("text")))


def _is_one_word_each(segments: Sequence[Mapping[str, Json]]) -> bool:
    """Return whether each segment is one word, by its text and the mean length in seconds."""
    if any("words" in item or len(_text_of_word(item).split()) > 1 for item in segments):
        return False
    lengths = [
        item["end"] - item["start"]
        for item in segments
        if isinstance(item["start"], float) and isinstance(item["end"], float)
    ]
    return len(lengths) > 1 and sum(lengths) <= MAX_WORD_SECONDS * len(lengths)


def _cue_of_segment(segment: Mapping[str, Json]) -> Cue:
    """Return the cue of a WhisperX segment. Without its own times, it has those of its words."""
    words = [word for item in _json_objects(segment.get("words")) for word in _parse_word(item)]
    cue = _make_cue(segment.get("text"), segment.get("start"), segment.get("end"))
    span = covering_span(word.span for word in words)
    if span is None:
        return cue
    start = span.start if cue.start is None else cue.start
    end = span.end if cue.end is None else cue.end
    return replace(cue, start=start, end=end, words=tuple(words))


def _json_objects(items: Json) -> list[dict[str, Json]]:
    """Return the objects of a JSON list, or an empty list for any other value."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _parse_word(item: Mapping[str, Json]) -> list[Word]:
    """Return a list with the word of a WhisperX item, or an empty list if it has no word."""
    text = item.get("word", item.get("text"))
    if not isinstance(text, str) or not text.strip():
        return []
    text = text.strip()
    # A word carries the space before it, except in scripts without spaces.
    if text[0] < FIRST_CJK_LETTER:
        text = f" {text}"
    confidence = parse_number(item.get("score", item.get("probability")))
    if confidence is not None:
        confidence = min(1.0, max(0.0, confidence))
    span = span_of(parse_number(item.get("start")), parse_number(item.get("end")))
    return [Word(text=text, span=span, confidence=confidence)]


def _cues_of_events(events: list[Json]) -> list[Cue]:
    """Return the cues of the events of YouTube json3. An event lasts until the next starts."""
    spoken_events = []
    for event in _json_objects(events):
        segments = _json_objects(event.get("segs"))
        text = "".join(str(segment.get("utf8", "")) for segment in segments)
        if text.strip():
            spoken_events.append(
                (event, segments, text, _seconds_of_milliseconds(event.get("tStartMs")))
            )
    cues = []
    for number, (event, segments, text, start) in enumerate(spoken_events):
        next_start = spoken_events[number + 1][3] if number + 1 < len(spoken_events) else None
        length = _seconds_of_milliseconds(event.get("dDurationMs"))
        end = start + length if start is not None and length is not None else next_start
        if start is None or end is None:
            cues.append(Cue(text, None, None))
            continue
        if next_start is not None and start < next_start < end:
            end = next_start

        # words, where the event times more than one
        parts = []
        for segment in segments:
            offset = _seconds_of_milliseconds(segment.get("tOffsetMs"))
            second = None if offset is None else min(start + offset, end)
            parts.append(TimedText(str(segment.get("utf8", "")), second))
        words: list[Word] = []
        if len(parts) > 1 and any(part.start is not None for part in parts):
            words = interpolate_words(parts, start, end)
        cues.append(Cue(text, start, end, tuple(words)))
    return cues


def _seconds_of_milliseconds(value: Json) -> float | None:
    """Return a number of milliseconds as seconds."""
    milliseconds = parse_number(value)
    return None if milliseconds is None else milliseconds / 1000
