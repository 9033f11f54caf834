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
from stepline.records import FeatureSequence, Sentence, Span, Step, Transcript

if TYPE_CHECKING:
    from stepline.vision import Activity


@dataclass(frozen=True)
class GroundingWindow:
    """A part of a long video.

    context: the whole seconds looked at.
    steps: indices of all steps said there.
    decides: of those it decides.
    """

    context: Span
    steps: tuple[int, ...]
    decides: frozenset[int]


def cut_into_windows(
    steps: Sequence[Step], duration: float, settings: GroundSettings
) -> list[GroundingWindow]:
    """Return the windows that decide every step once. One for a short video, or where some step is
    not spoken of."""
    centers = [step.said.center for step in steps if step.said is not None]
    last = float(math.ceil(duration))
    # A line that no one says may be anywhere, so that the video stays whole.
    if duration <= 1.5 * settings.window or len(centers) < len(steps):
        everything = range(len(steps))
        whole = Span(0.0, last)
        return [GroundingWindow(whole, tuple(everything), frozenset(everything))]

    # the cores, and the step that each decides
    count = math.ceil(duration / settings.window)
    edges = np.linspace(0.0, duration, count + 1).round()
    core_of = np.searchsorted(edges, centers, side="right") - 1
    core_of = np.clip(core_of, 0, count - 1)  # (K,)
    windows = []
    for number, (start, end) in enumerate(itertools.pairwise(edges.tolist())):
        decides = frozenset(np.flatnonzero(core_of == number).tolist())
        if not decides:
            continue
        # Context on both sides, as far as the video goes.
        first_second = math.floor(start - settings.context)
        last_second = math.ceil(end + settings.context)
        context = Span(max(0.0, first_second), min(last, last_second))
        # All steps said in the context compete, decided here or not.
        near = {k for k, second in enumerate(centers) if second in context}
        context_steps = sorted(near | decides)
        window = GroundingWindow(context, tuple(context_steps), decides)
        windows.append(window)
    return windows


def cut_steps(
    steps: Sequence[Step], window: GroundingWindow, transcript: Transcript | None
) -> tuple[list[Step], Transcript | None]:
    """Return the window's steps and what is said in it, sources renumbered."""
    # the sentences
    number: dict[int, int] = {}  # of a sentence in the video -> in the window
    sentences: list[Sentence] = []
    for n, sentence in enumerate(transcript.sentences if transcript else ()):
        if sentence.span.overlap(window.context) > 0:
            number[n] = len(sentences)
            span = _to_window_time(sentence.span, window)
            in_window = sentence.model_copy(update={"span": span, "words": ()})
            sentences.append(in_window)

    # the steps
    moved = []
    for k in window.steps:
        step = steps[k]
        said_span = None
        if step.said is not None:
            said_span = _to_window_time(step.said, window)
        sources = [number[source] for source in step.sources if source in number]
        changes = {"said": said_span, "sources": tuple(sources)}
        moved.append(step.model_copy(update=changes))
    if transcript is None:
        return moved, None
    return moved, transcript.model_copy(update={"sentences": tuple(sentences)})


def cut_features(
    features: FeatureSequence | None, window: GroundingWindow
) -> FeatureSequence | None:
    """Return the rows of the window."""
    if features is None:
        return None
    rows = features.rows(window.context)
    return replace(features, values=features.values[rows])


def cut_activity(activity: "Activity | None", window: GroundingWindow) -> "Activity | None":
    """Return what moves in the window."""
    if activity is None:
        return None
    start = window.context.start
    end = window.context.end
    first_row = round(start * activity.rate)
    end_row = round(end * activity.rate)
    rows = slice(first_row, end_row)
    cuts = [cut - start for cut in activity.cuts if start < cut < end]
    return replace(
        activity,
        motion=activity.motion[rows],
        cuts=tuple(cuts),
        peaks=activity.peaks[rows],
        looks=activity.looks[rows],
    )


def to_video_time(step: Step, original: Step, window: GroundingWindow) -> Step:
    """Return a step that was grounded in a window with the times and sources of the whole video."""
    start = window.context.start
    spans = [Span(span.start + start, span.end + start) for span in step.spans]
    at = step.at
    if at is not None:
        at = at + start
    changes = {
        "spans": tuple(spans),
        "at": at,
        "score": step.score,
        "status": step.status,
        "basis": step.basis,
    }
    return original.model_copy(update=changes)


def _to_window_time(span: Span, window: GroundingWindow) -> Span:
    """Return a span as the window counts. What begins before it begins with it."""
    origin = window.context.start
    start = max(0.0, span.start - origin)
    end = max(start + 0.1, span.end - origin)  # never empty
    return Span(start, end)
