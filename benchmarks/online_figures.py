"""Figures of grounding while the video runs: seconds that show a step, and how they are printed."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stepline.records import Span

Array = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Counts = dict[str, int]


def seconds_right(now: Array, shown_steps: Flags, name: str) -> Counts:
    """Return in how many of the seconds that show a step the most likely one is shown.

    now, shown_steps: (K, T). A second without an answer counts as wrong.
    """
    seconds = np.flatnonzero(shown_steps.any(axis=0))
    answered = seconds[:0]
    if len(now):
        answered = seconds[now[:, seconds].max(axis=0) > 0]
    likely = now[:, answered].argmax(axis=0)
    right = shown_steps[likely, answered].sum()
    return {name: int(right), f"{name} of": len(seconds)}


def shown_seconds(spans: Sequence[Sequence[Span]], seconds: int) -> Flags:
    """Return (K, T): whether the middle of a second is in a span of the step."""
    shown_steps = np.zeros((len(spans), seconds), dtype=bool)
    for row, step_spans in enumerate(spans):
        for second in range(seconds):
            middle = second + 0.5
            shown_steps[row, second] = any(middle in span for span in step_spans)
    return shown_steps


def one_at_last(ends: Sequence[float]) -> int | None:
    """Return the step whose words ended last, None before any has (negative times)."""
    if len(ends) and max(ends) >= 0:
        return int(np.argmax(ends))
    return None


def interval(figures: Sequence[float]) -> str:
    """Return a figure with its interval, as printed."""
    value, low, high, *_ = figures
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"
