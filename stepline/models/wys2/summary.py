"""Selects the seconds of a video that show its steps, cut where no one is in mid-sentence.

WYS2, section 4.4, selects segments that are shown and matter. Here a segment is where a step is
seen or placed, and its value is P(shown). It is cut in pauses between sentences, or at least between words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stepline.errors import MediaError
from stepline.models.wys2.settings import SummarySettings
from stepline.records import Record, Span, Step

MIN_PART_SECONDS = 2.0  # of a step that is shortened; a shorter look shows hardly anything
MIN_GAP_SECONDS = 1.0  # between segments; closer ones become one
MAX_MOVE_SECONDS = 6.0  # of an end, to leave a sentence whole; else it moves to a word's end
MIN_ADDED_SECONDS = 0.1  # by which a value is divided
ROUNDING_SECONDS = 1e-9
TOUCHING_SECONDS = 1e-6  # between the start of speech and a time that is its start
MIN_SPAN_SECONDS = 0.5  # that a span keeps when its ends are moved
SUMMARIZED_STATUSES = ("seen", "placed")


@dataclass(frozen=True)
class SummarySegment:
    """A segment of a video summary.

    Attributes:
        span: start and end of the segment in seconds of the video.
        steps: steps that the segment shows, in the video's order.
        p_shown: largest P(shown) of these steps.
    """

    span: Span
    steps: tuple[Step, ...]
    p_shown: float


def summarize(
    record: Record, settings: SummarySettings = SummarySettings()
) -> tuple[SummarySegment, ...]:
    """Return the segments of a summary of a video, in order. They do not overlap, and their total
    length is at most the target.

    Args:
        record: the video with its grounded steps.
        settings: target length and pauses. Without a target every step that is seen or
            placed is included. None:
            defaults.

    Raises MediaError when no step is seen or placed.
    """
    pauses = PauseFinder(record, settings)
    candidates = []
    for step in record.steps:
        if step.status not in SUMMARIZED_STATUSES or not step.spans:
            continue
        span = pauses.move_out_of_speech(step.spans[0], step.at)
        value = 1.0 if step.score is None else step.score
        candidates.append(SummarySegment(span, (step,), value))
    if not candidates:
        raise MediaError(
            f"{record.id}: no step of it is seen or placed, so there is nothing to summarize"
        )
    # all of them where they fit into the target, else the most valuable
    merged = _merge_close(candidates)
    total = _total_duration(merged)
    target = settings.compute_target(record.video.duration or total)
    if target is None or total <= target:
        return merged
    selected = _select_segments(candidates, target, pauses)
    return _merge_close(selected)


def _select_segments(
    candidates: Sequence[SummarySegment], target: float, pauses: "PauseFinder"
) -> list[SummarySegment]:
    """Return segments with a total of at most `target` seconds, chosen greedily by value per added
    second.

    Remaining seconds are filled with parts of other segments around their most likely times, by
    decreasing value.

    Args:
        candidates: segments to choose from, each of one step.
        target: largest total length in seconds.
        pauses: moves the ends of parts out of words.
    """
    # whole segments
    selected: list[SummarySegment] = []
    remaining = list(candidates)
    length = 0.0
    while remaining:
        # a segment near a selected one also adds the gap that is closed between them
        current = _merged_duration(selected)
        fitting = []
        for segment in remaining:
            seconds = _merged_duration([*selected, segment]) - current
            if length + seconds <= target:
                rate = segment.p_shown / max(seconds, MIN_ADDED_SECONDS)
                fitting.append((rate, seconds, segment))
        if not fitting:
            break
        _, seconds, best = max(fitting, key=lambda row: row[0])
        selected.append(best)
        remaining.remove(best)
        length += seconds
    # parts of the others
    for segment in sorted(remaining, key=lambda segment: -segment.p_shown):
        room = target - _merged_duration(selected)
        if selected and room < MIN_PART_SECONDS:
            break
        span = pauses.shorten(segment.span, segment.steps[0].at, room)
        if selected and span.duration < MIN_PART_SECONDS:
            continue
        part = replace(segment, span=span)
        # near a selected segment the gap between them counts, too
        if _merged_duration([*selected, part]) <= target + ROUNDING_SECONDS:
            selected.append(part)
    return selected


def _merged_duration(segments: Sequence[SummarySegment]) -> float:
    """Return the total seconds of segments, including gaps shorter than MIN_GAP_SECONDS
    between them."""
    return _total_duration(_merge_close(segments))


def _total_duration(segments: Iterable[SummarySegment]) -> float:
    return sum(segment.span.duration for segment in segments)


def _merge_close(segments: Sequence[SummarySegment]) -> tuple[SummarySegment, ...]:
    """Return segments in order of time, with those less than MIN_GAP_SECONDS apart merged. A
    merged segment has all steps of its parts and their largest value."""
    merged: list[SummarySegment] = []
    for segment in sorted(segments, key=lambda segment: segment.span.start):
        if not merged or segment.span.start - merged[-1].span.end >= MIN_GAP_SECONDS:
            merged.append(segment)
            continue
        last = merged[-1]
        merged[-1] = SummarySegment(
            Span(last.span.start, max(last.span.end, segment.span.end)),
            tuple(sorted(last.steps + segment.steps, key=lambda step: step.spans[0].start)),
            max(last.p_shown, segment.p_shown),
        )
    return tuple(merged)


class PauseFinder:
    """Moves the ends of segments to pauses in the speech of a video.

    Args:
        record: the video with its transcript and steps.
        settings: seconds of pause to keep around speech.
    """

    def __init__(self, record: Record, settings: SummarySettings) -> None:
        self._sentence_spans = [sentence.span for sentence in record.sentences]
        # the numbers of the sentences that steps rest on
        self._sources = {source for step in record.steps for source in step.sources}
        words = [word for sentence in record.sentences for word in sentence.words]
        spans = [word.span for word in words if word.span is not None]
        self._words = sorted(spans, key=lambda span: span.start)
        self._end = record.video.duration
        self._settings = settings

    def move_out_of_speech(self, span: Span, at: float | None) -> Span:
        """Return a span whose ends are moved out of spoken sentences.

        An end inside a sentence without a step, such as a greeting, moves so that the sentence is
        left out. It does so only if the most likely time stays in the span. An end inside another
        sentence moves so that the sentence is whole. An end that would move more than
        `MAX_MOVE_SECONDS` moves to the end of a word instead.

        Args:
            span: the span in seconds.
            at: most likely time of the step in seconds. None: the middle of the span.
        """
        middle = _choose_middle(span, at)
        start = self._move_end(span.start, middle, starts=True)
        end = self._move_end(span.end, middle, starts=False)
        # What the move leaves too short stays as it was.
        if end - start < MIN_SPAN_SECONDS:
            return span
        return Span(round(start, 3), round(end, 3))

    def shorten(self, span: Span, at: float | None, seconds: float) -> Span:
        """Return at most `seconds` of a span around its most likely time, with both ends moved
        inwards out of words.

        Args:
            span: the span in seconds.
            at: most likely time of the step in seconds. None: the middle of the span.
            seconds: maximum length of the result.
        """
        middle = _choose_middle(span, at)
        last_start = max(span.start, span.end - seconds)
        start = min(max(span.start, middle - seconds / 2), last_start)
        end = min(span.end, start + seconds)
        # inwards out of words, or of sentences where words have no times
        speech = self._words or self._sentence_spans
        first = _find_span_around(speech, start)
        inner_start = start if first is None else first.end
        last = _find_span_around(speech, end)
        inner_end = end if last is None else last.start
        if inner_end - inner_start < MIN_SPAN_SECONDS:
            return Span(start, end)
        return Span(inner_start, inner_end)

    def _move_end(self, time: float, middle: float, *, starts: bool) -> float:
        """Return the start or end of a span in seconds, moved out of the sentence that is spoken
        there, or else out of the word.

        Args:
            time: the start or end in seconds.
            middle: most likely time of the step, which the span must keep.
            starts: whether `time` is the start of the span.
        """
        padded = self._pad_start if starts else self._pad_end
        sentence = _find_span_around(self._sentence_spans, time)
        if sentence is None:
            return padded(time)
        # the end of the sentence where it is whole, and the one where it is gone
        ends = (sentence.start, sentence.end)
        outer, inner = ends if starts else ends[::-1]
        keeps_middle = inner <= middle if starts else inner >= middle
        is_near = abs(time - outer) <= MAX_MOVE_SECONDS
        is_source = self._sentence_spans.index(sentence) in self._sources
        if is_near and (is_source or not keeps_middle):
            return padded(outer)
        if keeps_middle:
            return padded(inner)
        # too far: to the end of a word
        word = _find_span_around(self._words, time)
        if word is None:
            return time
        return word.start if starts else word.end

    def _pad_start(self, time: float) -> float:
        """Return a start in seconds, moved into the pause before it by `settings.pad` at most, if
        speech begins there."""
        spans = self._sentence_spans
        # Only where speech begins is there a pause before it.
        if not any(abs(span.start - time) < TOUCHING_SECONDS for span in spans):
            return time
        earlier_ends = [span.end for span in spans if span.end <= time]
        return max(0.0, *earlier_ends, time - self._settings.pad)

    def _pad_end(self, time: float) -> float:
        """Return an end in seconds, moved into the pause after it by `settings.pad` at most, if speech
        ends there. It is never after the start of the next speech."""
        spans = self._sentence_spans
        later_starts = [span.start for span in spans if span.start >= time]
        next_start = min(later_starts, default=self._end)
        speech_ends = any(abs(span.end - time) < TOUCHING_SECONDS for span in spans)
        padded = time + self._settings.pad if speech_ends else time
        # The end stays before what is said next.
        return padded if next_start is None else min(next_start, padded)


def _choose_middle(span: Span, at: float | None) -> float:
    """Return the most likely time `at` if it is inside the span, otherwise the middle of the
    span."""
    return span.center if at is None or at not in span else at


def _find_span_around(spans: Sequence[Span], time: float) -> Span | None:
    """Return the first span that strictly contains a time, or None."""
    return next((span for span in spans if span.start < time < span.end), None)
