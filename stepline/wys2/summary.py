"""Which seconds of a video are worth watching: those that show its steps, cut where nobody is in mid-sentence.

WYS2 section 4.4 selects segments that are shown and matter. Here a segment is where a step is shown; it matters as
much as it is sure to be shown, times what a summarizer says of its seconds, where one is given.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import MediaError, ShapeError
from stepline.records import Record, Span, Step
from stepline.wys2.pauses import Pauses
from stepline.wys2.summary_settings import SummarySettings

Importance: TypeAlias = npt.NDArray[np.float32]  # (T,), one a second of the video, in [0, 1]


@dataclass(frozen=True)
class Segment:
    """Seconds of a summary, the steps that they show in the video's order, and how much they matter, in [0, 1]."""

    span: Span
    steps: tuple[Step, ...]
    value: float


def summarize(
    record: Record, settings: SummarySettings | None = None, importance: Importance | None = None
) -> tuple[Segment, ...]:
    """Return the segments of a summary in the video's order: apart from each other, and together within the target.

    Without a target every shown step is kept. Raises MediaError when no step is shown, ShapeError when `importance`
    is not one finite number a second.
    """
    settings = settings or SummarySettings()
    candidates = _candidates(record, Pauses(record, settings), importance)
    if not candidates:
        raise MediaError(f"{record.id}: no step of it is shown, so there is nothing to summarize; see its page for why")
    total = sum(segment.span.duration for segment in _merged(candidates, settings.gap))
    target = settings.target(record.video.duration or total)
    if target is None or total <= target:
        return _merged(candidates, settings.gap)
    return _merged(_within(candidates, target, Pauses(record, settings), settings.gap), settings.gap)


def _candidates(record: Record, pauses: Pauses, importance: Importance | None) -> list[Segment]:
    """Return a segment a shown step: its best span, with its ends moved to pauses."""
    if importance is not None and (importance.ndim != 1 or not len(importance) or not np.isfinite(importance).all()):
        raise ShapeError(f"importance must be (T,) finite numbers, one a second, not {importance.shape}")
    segments = []
    for step in record.steps:
        if step.status == "shown" and step.spans:
            span = pauses.around(step.spans[0], step.at)
            sure = 1.0 if step.score is None else step.score
            segments.append(Segment(span, (step,), sure * _mean(importance, span)))
    return segments


def _mean(importance: Importance | None, span: Span) -> float:
    if importance is None:
        return 1.0
    first = min(int(span.start), len(importance) - 1)
    return float(importance[first : max(first + 1, round(span.end))].mean())


def _within(candidates: Sequence[Segment], target: float, pauses: Pauses, gap: float) -> list[Segment]:
    """Return candidates that together last at most `target` s, taking what gains most a second that it adds.

    Where not even one fits, the most valuable is shortened to the target around its most likely second.
    """
    kept: list[Segment] = []
    left, length = list(candidates), 0.0
    while left:
        rates = [(_added(kept, one, gap), one) for one in left]
        fitting = [(one.value / max(more, 0.1), more, one) for more, one in rates if length + more <= target]
        if not fitting:
            break
        _, more, best = max(fitting, key=lambda item: item[0])
        kept.append(best)
        left.remove(best)
        length += more
    if not kept:
        best = max(candidates, key=lambda one: one.value)
        return [Segment(pauses.shortened(best.span, best.steps[0].at, target), best.steps, best.value)]
    return kept


def _added(kept: Sequence[Segment], one: Segment, gap: float) -> float:
    """Return the seconds that a summary grows by."""
    return _length(_merged([*kept, one], gap)) - _length(_merged(kept, gap))


def _length(segments: Iterable[Segment]) -> float:
    return sum(segment.span.duration for segment in segments)


def _merged(segments: Sequence[Segment], gap: float) -> tuple[Segment, ...]:
    """Return segments in order; those less than `gap` s apart become one, as valuable as its best part."""
    merged: list[Segment] = []
    for one in sorted(segments, key=lambda segment: segment.span.start):
        last = merged[-1] if merged else None
        if last is not None and one.span.start - last.span.end < gap:
            span = Span(last.span.start, max(last.span.end, one.span.end))
            merged[-1] = Segment(span, (*last.steps, *one.steps), max(last.value, one.value))
        else:
            merged.append(one)
    return tuple(merged)
