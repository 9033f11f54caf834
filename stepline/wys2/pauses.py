"""Where a video may be cut: in the pauses between sentences, or at least between words."""

from collections.abc import Sequence

from stepline.records import Record, Span
from stepline.wys2.summary_settings import SummarySettings

SHORTEST = 0.5  # s that a span keeps when its ends are moved


class Pauses:
    """The speech of a video, and the ends of spans moved out of it."""

    def __init__(self, record: Record, settings: SummarySettings) -> None:
        sentences = record.transcript.sentences if record.transcript else ()
        wanted = {number for step in record.steps for number in step.sources}
        self._sentences = sentences
        self._wanted = [number in wanted for number in range(len(sentences))]
        self._words = sorted(
            (word.span for sentence in sentences for word in sentence.words if word.span is not None),
            key=lambda span: span.start,
        )
        self._end = record.video.duration
        self._settings = settings

    def around(self, span: Span, at: float | None) -> Span:
        """Return the span with its ends moved out of sentences, around its most likely second.

        An end inside a sentence that no step rests on (a greeting) moves so that the sentence is gone where that leaves
        the most likely second; inside any other, so that it is whole. Farther than `reach`, it moves to a word's end.
        """
        middle = span.center if at is None or at not in span else at
        start, end = self._start(span.start, middle), self._stop(span.end, middle)
        return span if end - start < SHORTEST else Span(round(start, 3), round(end, 3))

    def shortened(self, span: Span, at: float | None, seconds: float) -> Span:
        """Return at most `seconds` of the span around its most likely second, its ends moved inwards out of words."""
        middle = span.center if at is None or at not in span else at
        start = min(max(span.start, middle - seconds / 2), max(span.start, span.end - seconds))
        end = min(span.end, start + seconds)
        first, last = _holding(self._spoken(), start), _holding(self._spoken(), end)
        inner = (start if first is None else first.end, end if last is None else last.start)
        return Span(*inner) if inner[1] - inner[0] >= SHORTEST else Span(start, end)

    def _start(self, second: float, middle: float) -> float:
        number = self._inside(second)
        if number is None:
            return self._padded_start(second)
        sentence = self._sentences[number].span
        later = sentence.end if sentence.end <= middle else None
        earlier = sentence.start if second - sentence.start <= self._settings.reach else None
        choices = (earlier, later) if self._wanted[number] else (later, earlier)
        chosen = next((choice for choice in choices if choice is not None), None)
        if chosen is not None:
            return self._padded_start(chosen)
        word = _holding(self._words, second)
        return second if word is None else word.start

    def _stop(self, second: float, middle: float) -> float:
        number = self._inside(second)
        if number is None:
            return self._padded_stop(second)
        sentence = self._sentences[number].span
        earlier = sentence.start if sentence.start >= middle else None
        later = sentence.end if sentence.end - second <= self._settings.reach else None
        choices = (later, earlier) if self._wanted[number] else (earlier, later)
        chosen = next((choice for choice in choices if choice is not None), None)
        if chosen is not None:
            return self._padded_stop(chosen)
        word = _holding(self._words, second)
        return second if word is None else word.end

    def _padded_start(self, second: float) -> float:
        """Return a start with a little of the pause before the speech that begins there."""
        before = max((s.span.end for s in self._sentences if s.span.end <= second), default=0.0)
        begins = any(abs(s.span.start - second) < 1e-6 for s in self._sentences)
        return max(before, second - self._settings.pad) if begins else second

    def _padded_stop(self, second: float) -> float:
        after = min((s.span.start for s in self._sentences if s.span.start >= second), default=self._end)
        ends = any(abs(s.span.end - second) < 1e-6 for s in self._sentences)
        padded = second + self._settings.pad if ends else second
        return padded if after is None else min(after, padded)

    def _inside(self, second: float) -> int | None:
        """Return which sentence a second is inside of, its ends not counted."""
        inside = (n for n, s in enumerate(self._sentences) if s.span.start < second < s.span.end)
        return next(inside, None)

    def _spoken(self) -> Sequence[Span]:
        return self._words or [sentence.span for sentence in self._sentences]


def _holding(spans: Sequence[Span], second: float) -> Span | None:
    return next((span for span in spans if span.start < second < span.end), None)
