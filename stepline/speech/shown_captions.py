"""What captions show on the screen, line by line, and when each line is there first.

Rolling captions show a line again in the cue after it, and again while another is added. A line
belongs where it first appears: there it is said.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from stepline.records import Word
from stepline.speech.caption_formats import MAX_CUE_GAP_SECONDS, MIN_CUE_SECONDS, Cue, span_of


@dataclass(frozen=True)
class TimedPiece:
    """A part of a line. start: second from which it is said, None where the file does not time
    it."""

    text: str
    start: float | None = None


@dataclass(frozen=True)
class ShownLine:
    """A line on the screen, without its markup."""

    pieces: tuple[TimedPiece, ...]

    @property
    def text(self) -> str:
        """The words of the line, one space between them."""
        text = "".join(piece.text for piece in self.pieces)
        return " ".join(text.split())


@dataclass(frozen=True)
class ShownCaption:
    """Lines that are on the screen together, from start to end seconds, None without usable times.

    title: they are placed as a title of the picture, not as speech.
    """

    start: float | None
    end: float | None
    lines: tuple[ShownLine, ...]
    title: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        """The words of each line that has some."""
        texts = (line.text for line in self.lines)
        return tuple(text for text in texts if text)

    @property
    def has_word_times(self) -> bool:
        """Whether a word of it has a time of its own."""
        return any(_has_times(line.pieces) for line in self.lines)


def _has_times(pieces: Iterable[TimedPiece]) -> bool:
    """Whether a piece has a time of its own."""
    return any(piece.start is not None for piece in pieces)


@dataclass
class _Appearance:
    """Words that appear together, and those that the same line gets later, each in its seconds."""

    start: float
    end: float
    words: list[Word]
    text: str
    timed: bool

    @property
    def cue(self) -> Cue:
        """The cue of these words, with their times where the file gives some."""
        words: tuple[Word, ...] = ()
        if self.timed:
            words = tuple(self.words)
        return Cue(self.text, self.start, self.end, words)

    @property
    def is_flash(self) -> bool:
        """Whether it is on the screen no longer than the shortest cue."""
        return self.end - self.start <= MIN_CUE_SECONDS


def first_appearances(captions: Iterable[ShownCaption]) -> list[Cue]:
    """Return a cue for the lines that each caption is the first to show, in their order.

    Captions need usable times. Words that a line gets while it is shown keep the times of the
    captions that add them. A caption that is there twice with the same times counts once.
    """
    appearances: list[_Appearance] = []
    before: ShownCaption | None = None
    keys: set[tuple[object, ...]] = set()
    in_order = sorted(captions, key=lambda caption: caption.start or 0.0)
    # YouTube, which times words, shows a line again after any gap.
    rolls = any(caption.has_word_times for caption in in_order)
    for caption in in_order:
        key = (caption.start, caption.end, caption.texts)
        if not caption.texts or key in keys:
            continue
        keys.add(key)
        repeated, grown = _repeated_lines(before, caption, rolls=rolls)
        whole = before is not None and repeated == len(before.texts)
        _add_caption(appearances, caption, repeated, grown, whole=whole)
        before = caption
    cues = [appearance.cue for appearance in appearances]
    for number, following in enumerate(cues[1:]):
        cues[number] = _end_at(cues[number], following.start)
    return cues


def _add_caption(
    appearances: list[_Appearance], caption: ShownCaption, repeated: int, grown: str, *, whole: bool
) -> None:
    """Add what a caption shows that the one before it does not. whole: it shows all of that again."""
    start = caption.start or 0.0
    end = caption.end or 0.0
    lines = [line for line in caption.lines if line.text]
    fresh = lines[repeated:]
    if appearances:
        last = appearances[-1]
        # Words that are still shown: the whole caption again, a grown line, or a mere flash.
        is_long = end - start > MIN_CUE_SECONDS
        if repeated and ((whole and not fresh and is_long) or grown or last.is_flash):
            last.end = max(last.end, end)
        if grown:
            piece = TimedPiece(grown)
            last.words += words_of_pieces([piece], start, end)
            last.text = f"{last.text} {grown}"
            last.timed = True
    if fresh:
        appearances.append(_appearance_of_lines(fresh, start, end))


def _appearance_of_lines(lines: Sequence[ShownLine], start: float, end: float) -> _Appearance:
    pieces: list[TimedPiece] = []
    for line in lines:
        pieces += line.pieces
        pieces.append(TimedPiece("\n"))
    words = words_of_pieces(pieces, start, end)
    is_timed = _has_times(pieces)
    text = "\n".join(line.text for line in lines)
    if is_timed:
        text = "".join(word.text for word in words)
        text = text.strip()
    return _Appearance(start, end, words, text, is_timed)


def _repeated_lines(
    before: ShownCaption | None, caption: ShownCaption, *, rolls: bool
) -> tuple[int, str]:
    """Return how many first lines of a caption are the last ones of the caption before it.

    Also return what the last of these got behind it.

    rolls: after a gap, too, a line above another one can be repeated.
    """
    if before is None:
        return 0, ""
    earlier_texts = before.texts
    texts = caption.texts
    most = min(len(earlier_texts), len(texts))
    start = caption.start or 0.0
    if start - (before.end or 0.0) > MAX_CUE_GAP_SECONDS:
        if not rolls:
            return 0, ""
        most = min(most, len(texts) - 1)
    # The longest repetition: lines alike, the last of them perhaps longer now.
    for count in range(most, 0, -1):
        *earlier, last = earlier_texts[-count:]
        *repeated, line = texts[:count]
        if earlier == repeated and f"{line} ".startswith(f"{last} "):
            return count, line.removeprefix(last).strip()
    return 0, ""


def words_of_pieces(pieces: Sequence[TimedPiece], start: float, end: float) -> list[Word]:
    """Return the words of pieces, each with the space before it. A word lasts to the next time.

    Words of one time have equal parts of its seconds.
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
    for text, (begin, after) in zip(texts, pairwise(times), strict=True):
        tokens = text.split()
        step = (after - begin) / max(1, len(tokens))
        for number, token in enumerate(tokens):
            span = span_of(begin + number * step, begin + (number + 1) * step)
            word = Word(text=f" {token}", span=span)
            words.append(word)
    return words


def _end_at(cue: Cue, second: float | None) -> Cue:
    """End a cue with word times where the next one's words begin: rolling cues stay on the screen
    longer than they are spoken."""
    if not cue.words or second is None:
        return cue
    if cue.start is None or cue.end is None:
        return cue
    if not cue.start < second < cue.end:
        return cue
    words = []
    for word in cue.words:
        if word.span is not None and word.span.end > second:
            span = span_of(word.span.start, second)
            word = word.model_copy(update={"span": span})
        words.append(word)
    return replace(cue, end=second, words=tuple(words))
