"""What captions show on the screen, line by line, and when each line is there first.

Rolling captions show a line again in the cue after it, and again while another is added. A line
belongs where it first appears: there it is said.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from stepline.asr.caption_formats import MAX_CUE_GAP_SECONDS, MIN_CUE_SECONDS, Cue, span_of
from stepline.records import Word


@dataclass(frozen=True)
class TimedPiece:
    """A part of a line. start: second from which it is said; None where the file does not time it."""

    text: str
    start: float | None = None


@dataclass(frozen=True)
class ShownLine:
    """A line on the screen, without its markup."""

    pieces: tuple[TimedPiece, ...]

    @property
    def text(self) -> str:
        """The words of the line, one space between them."""
        return " ".join("".join(piece.text for piece in self.pieces).split())


@dataclass(frozen=True)
class ShownCaption:
    """Lines that are on the screen together, from start to end seconds; None without usable times.

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
        return any(piece.start is not None for line in self.lines for piece in line.pieces)


@dataclass
class _Appearance:
    """Words that appear together, and those that the same line gets later, each in its seconds."""

    start: float
    end: float
    words: list[Word]
    text: str
    timed: bool


def first_appearances(captions: Iterable[ShownCaption]) -> list[Cue]:
    """Return a cue for the lines that each caption is the first to show, in their order.

    Captions need usable times. Words that a line gets while it is shown keep the times of the
    captions that add them. A caption that is there twice with the same times counts once.
    """
    appearances: list[_Appearance] = []
    before: ShownCaption | None = None
    keys: set[tuple[float | None, float | None, tuple[str, ...]]] = set()
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
    cues = []
    for appearance in appearances:
        words = tuple(appearance.words) if appearance.timed else ()
        cues.append(Cue(appearance.text, appearance.start, appearance.end, words))
    return [_end_at(cue, after.start) for cue, after in pairwise([*cues, Cue("", None, None)])]


def _add_caption(
    appearances: list[_Appearance], caption: ShownCaption, repeated: int, grown: str, *, whole: bool
) -> None:
    """Add what a caption shows that the one before it does not. whole: it shows all of that again."""
    start, end = caption.start or 0.0, caption.end or 0.0
    lines = [line for line in caption.lines if line.text]
    last = appearances[-1] if appearances else None
    fresh = lines[repeated:]
    if last is not None and repeated:
        goes_on = whole and not fresh and end - start > MIN_CUE_SECONDS
        if goes_on or grown or last.end - last.start <= MIN_CUE_SECONDS:
            last.end = max(last.end, end)
    if last is not None and grown:
        added = words_of_pieces([TimedPiece(grown)], start, end)
        last.words += added
        last.text = f"{last.text} {grown}"
        last.timed = True
    if fresh:
        pieces = [piece for line in fresh for piece in (*line.pieces, TimedPiece("\n"))]
        is_timed = any(piece.start is not None for piece in pieces)
        words = words_of_pieces(pieces, start, end)
        text = "\n".join(line.text for line in fresh)
        if is_timed:
            text = "".join(word.text for word in words).strip()
        appearances.append(_Appearance(start, end, words, text, is_timed))


def _repeated_lines(
    before: ShownCaption | None, caption: ShownCaption, *, rolls: bool
) -> tuple[int, str]:
    """Return how many first lines of a caption are the last ones of the caption before it, and what
    the last of these got behind it.

    rolls: after a gap, too, a line above another one can be repeated.
    """
    if before is None:
        return 0, ""
    earlier_texts = before.texts
    texts = caption.texts
    most = min(len(earlier_texts), len(texts))
    if (caption.start or 0.0) - (before.end or 0.0) > MAX_CUE_GAP_SECONDS:
        most = min(most, len(texts) - 1) if rolls else 0
    for count in range(most, 0, -1):
        *equal, last = earlier_texts[-count:]
        if tuple(equal) != texts[: count - 1]:
            continue
        if f"{texts[count - 1]} ".startswith(f"{last} "):
            return count, texts[count - 1][len(last) :].strip()
    return 0, ""


def words_of_pieces(pieces: Sequence[TimedPiece], start: float, end: float) -> list[Word]:
    """Return the words of pieces, each with the space before it; a word lasts to the next time.

    Words of one time have equal parts of its seconds.
    """
    runs: list[tuple[float, str]] = [(start, "")]
    for piece in pieces:
        if piece.start is not None:
            runs.append((piece.start, piece.text))
        else:
            runs[-1] = (runs[-1][0], runs[-1][1] + piece.text)
    words: list[Word] = []
    for (begin, text), (after, _) in pairwise([*runs, (end, "")]):
        tokens = text.split()
        step = (after - begin) / max(1, len(tokens))
        for number, token in enumerate(tokens):
            span = span_of(begin + number * step, begin + (number + 1) * step)
            words.append(Word(text=f" {token}", span=span))
    return words


def _end_at(cue: Cue, after: float | None) -> Cue:
    """End a cue with word times where the next one's words begin: rolling cues stay on the screen
    longer than they are spoken."""
    if not cue.words or after is None or cue.start is None or cue.end is None:
        return cue
    if not cue.start < after < cue.end:
        return cue
    words = []
    for word in cue.words:
        if word.span is not None and word.span.end > after:
            word = word.model_copy(update={"span": span_of(word.span.start, after)})
        words.append(word)
    return replace(cue, end=after, words=tuple(words))
