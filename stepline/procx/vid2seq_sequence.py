"""Steps as one sequence of tokens, and back: Vid2Seq's form.

    <start> <end> words ... <start> <end> words ...        in the order of time

A time token is one of `bins` equal parts of the video's length; they follow the vocabulary's own tokens. What a network
writes need not be of this form, and what cannot be a step is left out with its reason:

    words before any time               NO_TIMES
    one time alone, then words          ONE_TIME
    an end that is before its start     REVERSED
    two times without words             NO_WORDS
    more than two times in a row        the last two are taken, the others are SPARE_TIMES

The same bin as start and end is that bin: a step is never without length. Half bytes that are no character become
U+FFFD. Steps come back in the order in which they were written; they may overlap.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stepline.errors import ShapeError
from stepline.evaluate.events import Event
from stepline.procx.tokens import END, MARKS, Vocabulary
from stepline.records import Dropped

NO_TIMES = "words without a time"
ONE_TIME = "words with one time alone"
REVERSED = "its end is before its start"
NO_WORDS = "times without words"
SPARE_TIMES = "more times than two"


@dataclass(frozen=True)
class Alphabet:
    """The vocabulary, and after its tokens the time tokens."""

    vocabulary: Vocabulary
    bins: int

    def __len__(self) -> int:
        return len(self.vocabulary) + self.bins

    def time(self, second: float, duration: float) -> int:
        """Return the token of a second, clipped to the video; the end of the video is in the last bin."""
        place = int(second / duration * self.bins)
        return len(self.vocabulary) + min(max(place, 0), self.bins - 1)

    def bin(self, token: int) -> int | None:
        """Return which time a token is, None for words and marks."""
        return token - len(self.vocabulary) if token >= len(self.vocabulary) else None


@dataclass(frozen=True)
class Parsed:
    """The steps that a sequence tells, (start, end, sentence) in seconds, and what of it is none."""

    events: tuple[Event, ...]
    dropped: tuple[Dropped, ...]


def sequence(events: Sequence[Event], duration: float, alphabet: Alphabet) -> list[int]:
    """Return the tokens of a video's steps in the order of time, without marks.

    The end is the bin in which the last of its seconds lies. Raises ShapeError for a video without length.
    """
    if not duration > 0:
        raise ShapeError(f"a video's duration must be above 0 seconds, not {duration}")
    tokens: list[int] = []
    width = duration / alphabet.bins
    for start, end, sentence in sorted(events, key=lambda event: event[:2]):
        first = alphabet.time(start, duration)
        tokens += [first, max(first, alphabet.time(end - width / 2, duration)), *alphabet.vocabulary.encode(sentence)]
    return tokens


def parse(tokens: Sequence[int], duration: float, alphabet: Alphabet) -> Parsed:
    """Return the steps of a sequence, read up to its end mark; a token of another alphabet raises ShapeError."""
    if any(not 0 <= token < len(alphabet) for token in tokens):
        raise ShapeError(f"a token is not one of the {len(alphabet)} of this alphabet; parse with the network's own")
    events: list[Event] = []
    dropped: list[Dropped] = []
    for times, words in _groups(tokens, alphabet):
        sentence = alphabet.vocabulary.decode(words)
        reason = _flaw(times, sentence)
        if len(times) > 2:
            dropped.append(Dropped(what="step", text=f"{len(times) - 2} times before {sentence!r}", reason=SPARE_TIMES))
        if reason is None:
            first, last = times[-2:]
            events.append((first * duration / alphabet.bins, (last + 1) * duration / alphabet.bins, sentence))
        else:
            dropped.append(Dropped(what="step", text=sentence, reason=reason))
    return Parsed(tuple(events), tuple(dropped))


def _flaw(times: Sequence[int], sentence: str) -> str | None:
    """Return why a run of times and the words after it are no step."""
    if len(times) < 2:
        return ONE_TIME if times else NO_TIMES
    if not sentence:
        return NO_WORDS
    return REVERSED if times[-1] < times[-2] else None


def _groups(tokens: Sequence[int], alphabet: Alphabet) -> Iterator[tuple[list[int], list[int]]]:
    """Yield each run of times, as bins, with the words after it; either may be empty, never both."""
    times: list[int] = []
    words: list[int] = []
    for token in tokens:
        if token == END:
            break
        if token < len(MARKS):
            continue
        place = alphabet.bin(token)
        if place is None:
            words.append(token)
        elif words:
            yield times, words
            times, words = [place], []
        else:
            times.append(place)
    if times or words:
        yield times, words
