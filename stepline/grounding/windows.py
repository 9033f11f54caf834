"""A long video in windows: each step is grounded among its neighbours, so that memory and time grow
with duration only.

A window has a core, which decides its steps, and context on both sides, whose steps compete but are
decided elsewhere. All times of a window count from its start. Letters: K steps, T seconds.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.grounding.settings import GroundSettings
from stepline.records import FeatureSequence, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity


@dataclass(frozen=True)
class GroundingWindow:
    """context: the whole seconds looked at. steps: indices of all steps said there; decides: of
    those it decides."""

    context: Span
    steps: tuple[int, ...]
    decides: frozenset[int]


def cut_into_windows(
    steps: Sequence[Step], duration: float, settings: GroundSettings
) -> list[GroundingWindow]:
    """Return the windows that decide every step once; one for a short video, or where some step is
    not spoken of."""
    said = [step.said.center for step in steps if step.said is not None]
    if duration <= 1.5 * settings.window or len(said) < len(steps):
        return [
            GroundingWindow(
                Span(0.0, float(math.ceil(duration))),
                tuple(range(len(steps))),
                frozenset(range(len(steps))),
            )
        ]
    cores = np.linspace(0.0, duration, math.ceil(duration / settings.window) + 1).round()
    core_of = np.clip(np.searchsorted(cores, said, side="right") - 1, 0, len(cores) - 2)  # (K,)
    windows = []
    last = float(math.ceil(duration))
    for number, (start, end) in enumerate(itertools.pairwise(cores.tolist())):
        context = Span(
            max(0.0, math.floor(start - settings.context)),
            min(last, math.ceil(end + settings.context)),
        )
        near = tuple(
            k for k, second in enumerate(said) if second in context or core_of[k] == number
        )
        decides = frozenset(np.flatnonzero(core_of == number).tolist())
        windows += [GroundingWindow(context, near, decides)] if decides else []
    return windows


def cut_steps(
    steps: Sequence[Step], window: GroundingWindow, transcript: Transcript | None
) -> tuple[list[Step], Transcript | None]:
    """Return the window's steps and what is said in it, sources renumbered."""
    kept = [
        n
        for n, s in enumerate(transcript.sentences if transcript else ())
        if s.span.overlap(window.context) > 0
    ]
    number = {old: new for new, old in enumerate(kept)}
    moved = []
    for step in (steps[k] for k in window.steps):
        said = None if step.said is None else _to_window_time(step.said, window)
        sources = tuple(number[source] for source in step.sources if source in number)
        moved.append(step.model_copy(update={"said": said, "sources": sources}))
    if transcript is None:
        return moved, None
    sentences = tuple(
        sentence.model_copy(update={"span": _to_window_time(sentence.span, window), "words": ()})
        for sentence in (transcript.sentences[n] for n in kept)
    )
    return moved, transcript.model_copy(update={"sentences": sentences})


def cut_features(
    features: FeatureSequence | None, window: GroundingWindow
) -> FeatureSequence | None:
    """Return the rows of the window."""
    if features is None:
        return None
    return FeatureSequence(
        features.values[features.rows(window.context)], features.rate, features.backbone
    )


def cut_activity(activity: "Activity | None", window: GroundingWindow) -> "Activity | None":
    """Return what moves in the window."""
    if activity is None:
        return None
    start, end = window.context.start, window.context.end
    rows = slice(round(start * activity.rate), round(end * activity.rate))
    cuts = tuple(cut - start for cut in activity.cuts if start < cut < end)
    return replace(
        activity,
        motion=activity.motion[rows],
        cuts=cuts,
        peaks=activity.peaks[rows],
        looks=activity.looks[rows],
    )


def to_video_time(step: Step, original: Step, window: GroundingWindow) -> Step:
    """Return a step that was grounded in a window with the times and sources of the whole video."""
    start = window.context.start
    spans = tuple(Span(span.start + start, span.end + start) for span in step.spans)
    at = None if step.at is None else step.at + start
    return original.model_copy(
        update={"spans": spans, "at": at, "score": step.score, "status": step.status}
    )


def _to_window_time(span: Span, window: GroundingWindow) -> Span:
    """Return a span as the window counts; what begins before it begins with it."""
    start = max(0.0, span.start - window.context.start)
    return Span(start, max(start + 0.1, span.end - window.context.start))  # never empty
