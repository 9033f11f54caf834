"""Which seconds of a video are worth watching: those that show its steps, cut where nobody is in
mid-sentence.

WYS2 section 4.4 selects segments that are shown and matter. Here a segment is where a step is
shown; it matters as much as it is sure to be shown, times what a summarizer says of its seconds,
where one is given. It is cut in the pauses between sentences, or at least between words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import MediaError, ShapeError
from stepline.records import Record, Span, Step
from stepline.wys2.settings import SummarySettings

MIN_PART_SECONDS = 2.0  # of a step of which a part is kept; a shorter look shows hardly anything
ROUNDING = 1e-9  # s
MIN_SPAN_SECONDS = 0.5  # that a span keeps when its ends are moved
Importance: TypeAlias = npt.NDArray[np.float32]  # (T,), one a second of the video, in [0, 1]


@dataclass(frozen=True)
class SummarySegment:
    """Seconds of a summary, the steps that they show in the video's order, and how much they
    matter, in [0, 1]."""

    span: Span
    steps: tuple[Step, ...]
    value: float


def summarize(
    record: Record, settings: SummarySettings | None = None, importance: Importance | None = None
) -> tuple[SummarySegment, ...]:
    """Return the segments of a summary in the video's order: apart from each other, and together
    within the target.

    Without a target every step with a place is kept. Raises MediaError when none has one,
    ShapeError when `importance` is not one finite number a second.
    """
    settings = settings or SummarySettings()
    if importance is not None:
        valid = importance.ndim == 1 and len(importance) and np.isfinite(importance).all()
        if not valid:
            raise ShapeError(
                f"importance must be (T,) finite numbers, one a second, not {importance.shape}"
            )
    pauses = PauseFinder(record, settings)
    candidates = []
    for step in record.steps:
        if step.status not in ("shown", "unclear") or not step.spans:
            continue
        span = pauses.move_out_of_speech(step.spans[0], step.at)
        value = 1.0 if step.score is None else step.score
        if importance is not None:
            first = min(int(span.start), len(importance) - 1)
            value *= float(importance[first : max(first + 1, round(span.end))].mean())
        candidates.append(SummarySegment(span, (step,), value))
    if not candidates:
        fault = "no step of it is shown, so there is nothing to summarize"
        raise MediaError(f"{record.id}: {fault}; see its page for why")
    merged = _merge_near(candidates, settings.gap)
    total = _length(merged)
    target = settings.target(record.video.duration or total)
    if target is None or total <= target:
        return merged
    return _merge_near(_select_within(candidates, target, pauses, settings.gap), settings.gap)


def _select_within(
    candidates: Sequence[SummarySegment], target: float, pauses: "PauseFinder", gap: float
) -> list[SummarySegment]:
    """Return candidates that together last at most `target` s, greedily by value a second that each
    adds.

    What then is left of the target goes to parts of others, the most valuable first, around their
    most likely seconds.
    """
    selected: list[SummarySegment] = []
    remaining = list(candidates)
    length = 0.0
    while remaining:
        # a segment near a selected one also adds the gap that is closed between them
        current = _length(_merge_near(selected, gap))
        best, best_seconds, best_rate = None, 0.0, -1.0
        for segment in remaining:
            seconds = _length(_merge_near([*selected, segment], gap)) - current
            rate = segment.value / max(seconds, 0.1)
            if length + seconds <= target and rate > best_rate:
                best, best_seconds, best_rate = segment, seconds, rate
        if best is None:
            break
        selected.append(best)
        remaining.remove(best)
        length += best_seconds
    for segment in sorted(remaining, key=lambda segment: -segment.value):
        room = target - _length(_merge_near(selected, gap))
        if selected and room < MIN_PART_SECONDS:
            break
        span = pauses.shorten(segment.span, segment.steps[0].at, room)
        part = replace(segment, span=span)
        is_long_enough = span.duration >= MIN_PART_SECONDS or not selected
        # near a selected segment the gap between them counts, too
        if is_long_enough and _length(_merge_near([*selected, part], gap)) <= target + ROUNDING:
            selected.append(part)
    return selected


def _length(segments: Iterable[SummarySegment]) -> float:
    return sum(segment.span.duration for segment in segments)


def _merge_near(segments: Sequence[SummarySegment], gap: float) -> tuple[SummarySegment, ...]:
    """Return segments in order; those less than `gap` s apart become one, as valuable as its best
    part."""
    merged: list[SummarySegment] = []
    for segment in sorted(segments, key=lambda segment: segment.span.start):
        last = merged[-1] if merged else None
        if last is not None and segment.span.start - last.span.end < gap:
            span = Span(last.span.start, max(last.span.end, segment.span.end))
            steps = (*last.steps, *segment.steps)
            merged[-1] = SummarySegment(span, steps, max(last.value, segment.value))
        else:
            merged.append(segment)
    return tuple(merged)


class PauseFinder:
    """The speech of a video, and the ends of spans moved out of it."""

    def __init__(self, record: Record, settings: SummarySettings) -> None:
        self._sentences = record.sentences
        self._sources = {number for step in record.steps for number in step.sources}
        words = [word.span for sentence in record.sentences for word in sentence.words]
        spans = [span for span in words if span is not None]
        self._words = sorted(spans, key=lambda span: span.start)
        self._end = record.video.duration
        self._settings = settings

    def move_out_of_speech(self, span: Span, at: float | None) -> Span:
        """Return the span with its ends moved out of sentences, around its most likely second.

        An end inside a sentence that no step rests on (a greeting) moves so that the sentence is
        gone where that leaves the most likely second; inside any other, so that it is whole.
        Farther than `reach`, it moves to a word's end.
        """
        middle = _most_likely_second(span, at)
        start = self._moved(span.start, middle, starts=True)
        end = self._moved(span.end, middle, starts=False)
        if end - start < MIN_SPAN_SECONDS:
            return span
        return Span(round(start, 3), round(end, 3))

    def shorten(self, span: Span, at: float | None, seconds: float) -> Span:
        """Return at most `seconds` of the span around its most likely second, its ends moved
        inwards out of words."""
        middle = _most_likely_second(span, at)
        start = min(max(span.start, middle - seconds / 2), max(span.start, span.end - seconds))
        end = min(span.end, start + seconds)
        spoken = self._words or [sentence.span for sentence in self._sentences]
        first = _span_around(spoken, start)
        last = _span_around(spoken, end)
        inner_start = start if first is None else first.end
        inner_end = end if last is None else last.start
        if inner_end - inner_start < MIN_SPAN_SECONDS:
            return Span(start, end)
        return Span(inner_start, inner_end)

    def _moved(self, second: float, middle: float, *, starts: bool) -> float:
        """Return the start, or the end, of a span moved out of its sentence, or else of its
        word."""
        padded = self._padded_start if starts else self._padded_stop
        spans = [sentence.span for sentence in self._sentences]
        sentence = _span_around(spans, second)
        if sentence is None:
            return padded(second)
        outer, inner = (sentence.start, sentence.end)
        if not starts:
            outer, inner = inner, outer
        # where the sentence is whole, and where it is gone; None where that is too far
        whole = outer if abs(second - outer) <= self._settings.reach else None
        keeps_middle = inner <= middle if starts else inner >= middle
        gone = inner if keeps_middle else None
        is_source = spans.index(sentence) in self._sources
        choices = (whole, gone) if is_source else (gone, whole)
        for choice in choices:
            if choice is not None:
                return padded(choice)
        word = _span_around(self._words, second)
        if word is None:
            return second
        return word.start if starts else word.end

    def _padded_start(self, second: float) -> float:
        """Return a start with a little of the pause before the speech that begins there."""
        before = max((s.span.end for s in self._sentences if s.span.end <= second), default=0.0)
        begins = any(abs(s.span.start - second) < 1e-6 for s in self._sentences)
        return max(before, second - self._settings.pad) if begins else second

    def _padded_stop(self, second: float) -> float:
        """Return an end with a little of the pause after the speech that ends there."""
        after = min(
            (s.span.start for s in self._sentences if s.span.start >= second), default=self._end
        )
        ends = any(abs(s.span.end - second) < 1e-6 for s in self._sentences)
        padded = second + self._settings.pad if ends else second
        return padded if after is None else min(after, padded)


def _most_likely_second(span: Span, at: float | None) -> float:
    """Return the step's best second where it is in the span, else the middle."""
    return span.center if at is None or at not in span else at


def _span_around(spans: Sequence[Span], second: float) -> Span | None:
    """Return the first span that a second lies inside of."""
    return next((span for span in spans if span.start < second < span.end), None)
