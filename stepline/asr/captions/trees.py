"""Captions in JSON: YouTube json3, WhisperX and Whisper segments, HowTo100M's and TAN's lists by video id."""

import difflib
import json
from collections.abc import Mapping
from typing import TypeAlias

from stepline.asr.captions.cue import LATEST, Cue, second
from stepline.errors import CaptionError
from stepline.records import Span, Word

Tree: TypeAlias = object  # what json.loads gives; every use checks its type

LISTS = ("text", "start", "end")
CJK = "\u2e80"  # from here on scripts are written without spaces between words
FORMS = "YouTube json3 (events), WhisperX (segments), or {video: {text, start, end}}"


def read_tree(text: str, name: str, video: str | None) -> list[Cue]:
    """Return the cues of a JSON file; `video` picks one of many. Raises CaptionError."""
    try:
        tree: Tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise CaptionError(f"{name}, line {error.lineno}: not valid JSON ({error.msg}); correct that line") from error
    except (ValueError, RecursionError) as error:
        raise CaptionError(f"{name}: JSON that nests too deep or holds too long a number; give {FORMS}") from error
    return _entry(tree, name, video)


def _entry(tree: Tree, name: str, video: str | None) -> list[Cue]:
    cues = _known(tree, name)
    if cues is not None:
        return cues
    if not isinstance(tree, dict) or not tree:
        raise CaptionError(f"{name}: JSON of an unknown form; give {FORMS}")
    entry = tree[_chosen(tree, name, video)]
    cues = _known(entry, name)
    if cues is None:
        raise CaptionError(f"{name}: JSON of an unknown form; give {FORMS}")
    return cues


def _chosen(tree: Mapping[str, Tree], name: str, video: str | None) -> str:
    """Return the key of the wanted video; the only one when none is named."""
    if video is not None and video in tree:
        return video
    if video is None and len(tree) == 1:
        return next(iter(tree))
    near = difflib.get_close_matches(video or "", [key[:40] for key in list(tree)[:10_000]], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"for example {next(iter(tree))[:40]!r}"
    asked = f"no video {video!r} among its" if video is not None else "name one of its"
    raise CaptionError(f"{name}: {asked} {len(tree)} videos; {hint}")


def _known(tree: Tree, name: str) -> list[Cue] | None:
    """Return the cues of one video in any of the forms; None for a form that is not known."""
    if isinstance(tree, list):
        return [_segment(part) for part in tree if isinstance(part, dict)] if _all_segments(tree) else None
    if not isinstance(tree, dict):
        return None
    events, segments = tree.get("events"), tree.get("segments")
    if isinstance(events, list):
        return _events(events)
    if isinstance(segments, list):
        return [_segment(part) for part in segments if isinstance(part, dict)]
    if all(isinstance(tree.get(column), list) for column in LISTS):
        return _columns(tree, name)
    return None


def _all_segments(tree: list[Tree]) -> bool:
    return all(isinstance(part, dict) and "text" in part for part in tree)


def _columns(tree: Mapping[str, Tree], name: str) -> list[Cue]:
    texts, starts, ends = (column if isinstance(column := tree[key], list) else [] for key in LISTS)
    if not len(texts) == len(starts) == len(ends):
        sizes = f"{len(texts)}, {len(starts)}, {len(ends)}"
        raise CaptionError(f"{name}: text, start and end must be equally long lists, not {sizes}")
    rows = zip(texts, starts, ends, strict=True)
    return [Cue(text if isinstance(text, str) else "", second(start), second(end)) for text, start, end in rows]


def _segment(part: Mapping[str, Tree]) -> Cue:
    """Return one WhisperX segment; where it has no time of its own its words give it."""
    given = part.get("words")
    words = tuple(
        word for item in (given if isinstance(given, list) else []) if isinstance(item, dict) for word in _word(item)
    )
    text = part.get("text")
    spans = [word.span for word in words if word.span]
    start, end = second(part.get("start")), second(part.get("end"))
    if spans:
        start = min(span.start for span in spans) if start is None else start
        end = max(span.end for span in spans) if end is None else end
    return Cue(text if isinstance(text, str) else "", start, end, words if spans else ())


def _word(item: Mapping[str, Tree]) -> list[Word]:
    text = item.get("word", item.get("text"))
    if not isinstance(text, str) or not text.strip():
        return []
    score = second(item.get("score", item.get("probability")))
    confidence = None if score is None else min(1.0, max(0.0, score))
    span = _span(second(item.get("start")), second(item.get("end")))
    space = "" if text.strip()[0] >= CJK else " "
    return [Word(text=f"{space}{text.strip()}", span=span, confidence=confidence)]


def _span(start: float | None, end: float | None) -> Span | None:
    return Span(start, end) if start is not None and end is not None and 0.0 <= start < end <= LATEST else None


def _events(events: list[Tree]) -> list[Cue]:
    """Return the cues of YouTube json3: times in milliseconds, words with offsets, each event until the next begins."""
    shown = [event for event in events if isinstance(event, dict) and _said(event)]
    starts = [second(event.get("tStartMs")) for event in shown]
    found = []
    for index, event in enumerate(shown):
        start, length = starts[index], second(event.get("dDurationMs"))
        after = starts[index + 1] if index + 1 < len(starts) else None
        end = start + length if start is not None and length is not None else after
        if start is not None and end is not None and after is not None and start < after < end:
            end = after
        found.append(_event(event, start, end))
    return found


def _said(event: Mapping[str, Tree]) -> list[tuple[str, float | None]]:
    """Return the event's pieces of text with their offsets in milliseconds."""
    pieces = event.get("segs")
    parts = [part for part in pieces if isinstance(part, dict)] if isinstance(pieces, list) else []
    texts = [(str(part.get("utf8", "")), second(part.get("tOffsetMs"))) for part in parts]
    return texts if "".join(text for text, _ in texts).strip() else []


def _event(event: Mapping[str, Tree], start: float | None, end: float | None) -> Cue:
    pieces = _said(event)
    text = "".join(piece for piece, _ in pieces)
    if start is None or end is None:
        return Cue(text, None, None)
    seconds = Cue(text, start / 1000, end / 1000)
    if len(pieces) < 2 or all(offset is None for _, offset in pieces):
        return seconds
    starts = [(start + (offset or 0.0)) / 1000 for _, offset in pieces]
    words = [
        Word(text=f" {piece.strip()}", span=_span(begin, min(after, end / 1000)))
        for (piece, _), begin, after in zip(pieces, starts, [*starts[1:], end / 1000], strict=True)
        if piece.strip()
    ]
    return Cue(text, start / 1000, end / 1000, tuple(words))
