"""Captions as shown on the screen, line by line, and the first appearance of each line.

Rolling captions show a line again in the next cue, and again while another one is added. A line is
spoken where it first appears.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from stepline.limits import MAX_SECOND
from stepline.records import Span, Word

MIN_CUE_SECONDS = 0.2  # a cue shown no longer is an artefact of rolling captions (TAN)
# between two cues up to which the second can be a longer version of the first
MAX_CUE_GAP_SECONDS = 0.5


@dataclass(frozen=True)
class Cue:
    """Text shown from start to end seconds. Both are None where the file gives no valid time.

    text: may hold line breaks. words: where the format times them, each with the space before it.
    """

    text: str
    start: float | None
    end: float | None
    words: tuple[Word, ...] = ()


class TimedText(NamedTuple):
    """A part of a line. start: second at which it is spoken, None where the file does not time it."""

    text: str
    start: float | None = None


ShownLine: TypeAlias = Sequence[TimedText]  # without its markup


@dataclass(frozen=True)
class ShownCaption:
    """Lines on the screen together from start to end seconds. Both are None without valid times.

    title: whether the file positions it as a title of the picture, not as speech.
    """

    start: float | None
    end: float | None
    lines: Sequence[ShownLine]
    title: bool = False

    @functools.cached_property
    def texts(self) -> list[str]:
        """Return the text of each line that is not empty."""
        return list(filter(None, map(_line_text, self.lines)))


@dataclass
class SubtitleFile:
    """The content of a subtitle file.

    text_outside_captions: texts that belong to no caption. notes: comments of the file.
    """

    captions: list[ShownCaption] = field(default_factory=list)
    text_outside_captions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _line_text(line: ShownLine) -> str:
    text = "".join(piece.text for piece in line)
    return " ".join(text.split())


def _has_times(pieces: Iterable[TimedText]) -> bool:
    return any(piece.start is not None for piece in pieces)


def span_of(start: float | None, end: float | None) -> Span | None:
    """Return the span of two times, or None where they are no valid span."""
    if start is None or end is None or not 0.0 <= start < end <= MAX_SECOND:
        return None
    return Span(start, end)


@dataclass
class _Appearance:
    """Words that appear together, and later words of the same line, with their seconds."""

    start: float
    end: float
    words: list[Word]
    text: str
    timed: bool


def first_appearances(captions: Iterable[ShownCaption]) -> list[Cue]:
    """Return one cue per caption for the lines that it is the first to show, in their order.

    Captions need valid times. Words added to a line while it is shown have the times of the
    captions that add them. A caption that is there twice with the same times counts once.
    """
    appearances: list[_Appearance] = []
    previous: ShownCaption | None = None
    keys: set[tuple[object, ...]] = set()
    in_order = sorted(captions, key=lambda caption: caption.start or 0.0)
    # YouTube, which times words, shows a line again after any gap.
    is_rolling = any(_has_times(line) for caption in in_order for line in caption.lines)
    for caption in in_order:
        key = (caption.start, caption.end, *caption.texts)
        if caption.texts and key not in keys:
            keys.add(key)
            _add_caption(appearances, caption, previous, is_rolling=is_rolling)
            previous = caption
    for shown, following in pairwise(appearances):
        # Rolling cues stay on the screen longer than they are spoken.
        if shown.timed and shown.words and shown.start < following.start < shown.end:
            shown.end = following.start
            shown.words = [_end_word(word, shown.end) for word in shown.words]
    cues = []
    for shown in appearances:
        words = tuple(shown.words) if shown.timed else ()
        cues.append(Cue(shown.text, shown.start, shown.end, words))
    return cues


def _end_word(word: Word, second: float) -> Word:
    if word.span is None or word.span.end <= second:
        return word
    return word.model_copy(update={"span": span_of(word.span.start, second)})


def _add_caption(
    appearances: list[_Appearance],
    caption: ShownCaption,
    previous: ShownCaption | None,
    *,
    is_rolling: bool,
) -> None:
    """Add the text of a caption that the caption before it does not show."""
    start = caption.start or 0.0
    end = caption.end or 0.0
    repeated, added_text = _repeated_lines(previous, caption, is_rolling=is_rolling)
    lines = [line for line in caption.lines if _line_text(line)][repeated:]
    if appearances:
        last = appearances[-1]
        # Words that are still shown: the whole caption again, a grown line, or a mere flash.
        is_again = previous is not None and repeated == len(previous.texts) and not lines
        is_flash = last.end - last.start <= MIN_CUE_SECONDS
        if repeated and ((is_again and end - start > MIN_CUE_SECONDS) or added_text or is_flash):
            last.end = max(last.end, end)
        if added_text:
            last.words += interpolate_words([TimedText(added_text)], start, end)
            last.text = f"{last.text} {added_text}"
            last.timed = True
    if lines:
        pieces = [piece for line in lines for piece in (*line, TimedText("\n"))]
        words = interpolate_words(pieces, start, end)
        is_timed = _has_times(pieces)
        text = "\n".join(map(_line_text, lines))
        if is_timed:
            text = "".join(word.text for word in words).strip()
        appearances.append(_Appearance(start, end, words, text, is_timed))


def _repeated_lines(
    previous: ShownCaption | None, caption: ShownCaption, *, is_rolling: bool
) -> tuple[int, str]:
    """Return the number of first lines of a caption that are the last lines of the previous
    caption.

    Also return the text that the last of these lines has gained.

    rolls: whether a line above another one can be repeated after a gap.
    """
    if previous is None:
        return 0, ""
    earlier_texts = previous.texts
    texts = caption.texts
    max_lines = min(len(earlier_texts), len(texts))
    start = caption.start or 0.0
    if start - (previous.end or 0.0) > MAX_CUE_GAP_SECONDS:
        if not is_rolling:
            return 0, ""
        max_lines = min(max_lines, len(texts) - 1)
    # The longest repetition: lines alike, the last of them perhaps longer now.
    for count in range(max_lines, 0, -1):
        *earlier, last = earlier_texts[-count:]
        *repeated, line = texts[:count]
        if earlier == repeated and f"{line} ".startswith(f"{last} "):
            return count, line.removeprefix(last).strip()
    return 0, ""


def interpolate_words(pieces: Sequence[TimedText], start: float, end: float) -> list[Word]:
    """Return the words of timed pieces. Words with the same start share its seconds equally.

    Each word has the space before it, and lasts until the next start.
    """
    times = [start]
    texts = [""]
    for piece in pieces:
        if piece.start is None:
            texts[-1] += piece.text
        else:
            times.append(piece.start)
            texts.append(piece.text)
    times.append(end)
    words: list[Word] = []
    for text, (piece_start, next_time) in zip(texts, pairwise(times), strict=True):
        tokens = text.split()
        boundaries = [
            piece_start + number * (next_time - piece_start) / len(tokens)
            for number in range(len(tokens))
        ]
        for token, (first, last) in zip(tokens, pairwise([*boundaries, next_time]), strict=True):
            words.append(Word(text=f" {token}", span=span_of(first, last)))
    return words
