"""Captions as shown on the screen, line by line, and the first appearance of each line.

Rolling captions show a line again in the next cue, and again while another one is added. A line is
spoken where it first appears.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from stepline.limits import MAX_SECOND
from stepline.records import Span, Word

MIN_CUE_SECONDS = 0.2  # a cue shown no longer is an artefact of rolling captions (TAN)
# between two cues up to which the second can be a longer version of the first
MAX_CUE_GAP_SECONDS = 0.5


@dataclass(frozen=True)
class Cue:
    """A caption text with its times, as a caption file gives them.

    Attributes:
        text: may contain line breaks.
        start: seconds, None if the file gives no valid time.
        end: seconds, None if the file gives no valid time.
        words: timed words, each with the space before it. Empty if the format has no word times.
    """

    text: str
    start: float | None
    end: float | None
    words: tuple[Word, ...] = ()


class TimedText(NamedTuple):
    """A part of a caption line.

    Attributes:
        text: the part, with its spaces.
        start: second at which it is spoken, None if the file gives no time for it.
    """

    text: str
    start: float | None = None


ShownLine = Sequence[TimedText]  # without its markup


@dataclass(frozen=True)
class ShownCaption:
    """A caption: lines that are on the screen together.

    Attributes:
        start: seconds, None if the file gives no valid time.
        end: seconds, None if the file gives no valid time.
        lines: from top to bottom, each a sequence of timed parts.
        is_title: whether the file positions the caption as a title in the picture, not as speech.
    """

    start: float | None
    end: float | None
    lines: Sequence[ShownLine]
    is_title: bool = False

    @functools.cached_property
    def texts(self) -> list[str]:
        """The texts of the lines that are not empty."""
        return list(filter(None, map(_line_text, self.lines)))


@dataclass
class SubtitleFile:
    """The content of a subtitle file.

    Attributes:
        captions: the captions in file order.
        text_outside_captions: texts that belong to no caption.
        notes: comments in the file.
    """

    captions: list[ShownCaption] = field(default_factory=list)
    text_outside_captions: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def _line_text(line: ShownLine) -> str:
    return " ".join("".join(part.text for part in line).split())


def _has_times(line: ShownLine) -> bool:
    return any(part.start is not None for part in line)


def span_of(start: float | None, end: float | None) -> Span | None:
    """Return the span from `start` to `end` seconds. None if they form no valid span."""
    if start is None or end is None or not 0.0 <= start < end <= MAX_SECOND:
        return None
    return Span(start, end)


@dataclass
class _Appearance:
    """Words that appear on the screen together, and words added to their line later.

    Attributes:
        start: second at which the words appear.
        end: second at which the words leave the screen.
        words: the words with their times.
        text: text of all the words.
        has_word_times: whether the file times the words.
    """

    start: float
    end: float
    words: list[Word]
    text: str
    has_word_times: bool


def cues_of_rolling_captions(captions: Iterable[ShownCaption]) -> list[Cue]:
    """Return the cues of rolling captions: one cue per caption, for the lines it is first to show.

    A word added to a line that is already shown has the times of the caption that adds it. A
    caption that occurs twice with the same times counts once.

    captions: captions with valid times.
    """
    appearances: list[_Appearance] = []
    previous: ShownCaption | None = None
    known_captions: set[tuple[object, ...]] = set()
    in_order = sorted(captions, key=lambda caption: caption.start or 0.0)
    # YouTube, which times words, shows a line again after any gap.
    is_rolling = any(_has_times(line) for caption in in_order for line in caption.lines)
    for caption in in_order:
        key = (caption.start, caption.end, *caption.texts)
        if caption.texts and key not in known_captions:
            known_captions.add(key)
            _add_caption(appearances, caption, previous, is_rolling=is_rolling)
            previous = caption
    for shown, following in pairwise(appearances):
        # Rolling cues stay on the screen longer than they are spoken.
        if shown.has_word_times and shown.words and shown.start < following.start < shown.end:
            shown.end = following.start
            shown.words = [_end_word(word, shown.end) for word in shown.words]
    return [
        Cue(shown.text, shown.start, shown.end, tuple(shown.words if shown.has_word_times else ()))
        for shown in appearances
    ]


def _end_word(word: Word, second: float) -> Word:
    """Return the word with its end moved to `second`, if it ends later."""
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
    """Add the text of a caption that the previous caption does not show.

    Args:
        appearances: the appearances so far, which are extended.
        caption: the caption to add.
        previous: the caption before it, None for the first.
        is_rolling: whether the file repeats lines in later captions, also after a gap.
    """
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
            last.has_word_times = True
    if lines:
        parts = [part for line in lines for part in (*line, TimedText("\n"))]
        words = interpolate_words(parts, start, end)
        has_word_times = _has_times(parts)
        text = "\n".join(map(_line_text, lines))
        if has_word_times:
            text = "".join(word.text for word in words).strip()
        appearances.append(_Appearance(start, end, words, text, has_word_times))


def _repeated_lines(
    previous: ShownCaption | None, caption: ShownCaption, *, is_rolling: bool
) -> tuple[int, str]:
    """Return how many first lines of a caption repeat the last lines of the previous caption.

    Also return the text added at the end of the last repeated line, "" if none. The longest
    possible repetition counts.

    Args:
        previous: the previous caption, None for the first.
        caption: the caption.
        is_rolling: whether lines may be repeated after a gap, if a new line follows them.
    """
    if previous is None:
        return 0, ""
    texts = caption.texts
    max_count = min(len(previous.texts), len(texts))
    if (caption.start or 0.0) - (previous.end or 0.0) > MAX_CUE_GAP_SECONDS:
        max_count = min(max_count, len(texts) - 1) if is_rolling else 0
    for count in range(max_count, 0, -1):
        *earlier, last = previous.texts[-count:]
        *repeated, line = texts[:count]
        if earlier == repeated and f"{line} ".startswith(f"{last} "):
            return count, line.removeprefix(last).strip()
    return 0, ""


def interpolate_words(parts: Sequence[TimedText], start: float, end: float) -> list[Word]:
    """Return the words of the parts of a caption, with times.

    Words of one timed part share its seconds equally, and a part lasts until the next timed part.
    Each word has the space before it.

    Args:
        parts: parts of the lines of the caption.
        start: start of the caption in seconds.
        end: end of the caption in seconds.
    """
    times = [start]
    texts = [""]
    for part in parts:
        if part.start is None:
            texts[-1] += part.text
        else:
            times.append(part.start)
            texts.append(part.text)
    words: list[Word] = []
    for text, (first, last) in zip(texts, pairwise([*times, end]), strict=True):
        tokens = text.split()
        starts = [first + n * (last - first) / len(tokens) for n in range(len(tokens))]
        for token, (word_start, word_end) in zip(tokens, pairwise([*starts, last]), strict=True):
            words.append(Word(text=f" {token}", span=span_of(word_start, word_end)))
    return words
