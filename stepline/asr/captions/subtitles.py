"""SubRip and WebVTT, with the rolling two-line cues and word times of YouTube's automatic captions."""

import html
import re
from collections.abc import Iterator
from dataclasses import replace

from stepline.asr.captions.cue import LATEST, Cue
from stepline.asr.captions.text import without_tags
from stepline.errors import CaptionError
from stepline.records import Span, Word

CLOCK = r"(?:(\d{1,6}):)?(\d{1,4}):(\d{1,2})(?:[.,](\d{1,9}))?"
TIMING = re.compile(rf"\s*{CLOCK}\s*-->\s*{CLOCK}(?:\s.*)?$")
INLINE = re.compile(rf"<{CLOCK}>")
COMMENTS = ("NOTE", "STYLE", "REGION")  # WebVTT blocks that hold no cue


def read_subtitles(text: str, name: str) -> list[Cue]:
    """Return the cues of an srt or vtt file; raises CaptionError with the line of a timing that cannot be read."""
    blocks = list(_blocks(text.split("\n"), name))
    if not blocks and not text.lstrip().startswith("WEBVTT"):
        raise CaptionError(f"{name}: holds no cue; write 00:00:01,000 --> 00:00:02,500 and the text below it")
    if any(INLINE.search(body) for _, _, body in blocks):
        return _automatic(blocks)
    return [Cue(without_tags(body), start, end) for start, end, body in blocks]


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
            start, end = _timing(line, name, index)
            first = index
            while index < len(lines) and lines[index] and "-->" not in lines[index]:  # YouTube has lines of one space
                index += 1
            body = lines[first:index]
            if index < len(lines) and "-->" in lines[index] and body and body[-1].strip().isdigit():
                body.pop()  # the number of the next cue, where the empty line before it is missing
            yield start, end, "\n".join(body)


def _timing(line: str, name: str, number: int) -> tuple[float, float]:
    found = TIMING.match(line)
    if not found:
        shown = line.strip()[:60]
        raise CaptionError(f"{name}, line {number}: {shown!r} is no timing; write 00:00:01,000 --> 00:00:02,500")
    return _seconds(found.groups()[:4]), _seconds(found.groups()[4:])


def _seconds(parts: tuple[str | None, ...]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return int(hours) * 3600 + int(minutes) * 60 + int(seconds) + float(f"0.{fraction}")


def _automatic(blocks: list[tuple[float, float, str]]) -> list[Cue]:
    """Return cues from captions with word times: a line that the cue before ended with is only shown again."""
    found: list[Cue] = []
    before = ""
    for start, end, body in blocks:
        lines = [line for line in body.split("\n") if line.strip()]
        fresh = [line for line in lines if _plain(line) != before]
        before = _plain(lines[-1]) if lines else ""
        words = _words("\n".join(fresh), start, end)
        if words:
            found.append(Cue("".join(word.text for word in words).strip(), start, end, words))
    return _until_next(found)


def _plain(line: str) -> str:
    return " ".join(without_tags(line).split())


def _words(body: str, start: float, end: float) -> tuple[Word, ...]:
    """Return the words of a cue; a word lasts to the next time in the cue."""
    pieces = INLINE.split(body)  # text, then four clock parts and text again and again
    starts = [start, *(_seconds(tuple(pieces[i : i + 4])) for i in range(1, len(pieces) - 3, 5))]
    texts = pieces[::5]
    words: list[Word] = []
    for index, (text, begin) in enumerate(zip(texts, starts, strict=True)):
        after = starts[index + 1] if index + 1 < len(starts) else end
        tokens = html.unescape(without_tags(text)).split()
        step = (after - begin) / max(1, len(tokens))
        for place, token in enumerate(tokens):
            words.append(Word(text=f" {token}", span=_span(begin + place * step, begin + (place + 1) * step)))
    return tuple(words)


def _span(start: float, end: float) -> Span | None:
    return Span(start, end) if 0.0 <= start < end <= LATEST else None


def _until_next(cues: list[Cue]) -> list[Cue]:
    """End each cue where the next one's words begin: rolling cues stay on the screen longer than they are spoken."""
    found = []
    for index, cue in enumerate(cues):
        after = cues[index + 1].start if index + 1 < len(cues) else None
        if after is not None and cue.start is not None and cue.end is not None and cue.start < after < cue.end:
            words = tuple(_clipped(word, after) for word in cue.words)
            cue = replace(cue, end=after, words=words)
        found.append(cue)
    return found


def _clipped(word: Word, latest: float) -> Word:
    if word.span is None or word.span.end <= latest:
        return word
    return word.model_copy(update={"span": _span(word.span.start, latest)})
