"""When the steps are shown, given when they are said: one picture at a time, near, far or never."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Literal

from lab.drawn_videos.settings import ScriptSettings
from stepline.records import Span

GRID_SECONDS = 0.25  # cuts are on this grid, so that they are on frames
MAX_LAYOUTS = 300  # tried before the one with the fewest steps out of place is taken
TITLE_SECONDS = 2.5  # at the start, without a step
ENDING_SECONDS = 1.0  # at the end, without a step
NEAR_MISS = 4.0  # s between the start that is drawn for a near step and its real one
SHORT_GAP = 1.25  # s; a shorter gap between two shown spans is given to the first
MAX_SHRINK = 0.35  # fraction by which the last layout's spans are shorter than the first's
SECOND_ROOM = 5.0  # s that a second showing needs
FAR_TRIES = 12  # places drawn for a far span

Mode = Literal["near", "far", "said"]


@dataclass(frozen=True)
class StepLayout:
    """For every step its shown spans, none for a step that is only said.

    misplaced: number of steps that found no room.
    """

    spans: tuple[tuple[Span, ...], ...]
    misplaced: int


def lay_out_steps(
    said_spans: Sequence[Span], duration: float, settings: ScriptSettings, rng: Random
) -> StepLayout:
    """Return where the steps are shown in a video of `duration` s.

    A fraction of them is never shown, a fraction far away. The others are shown about `offset`
    after they are said.
    """
    best = _random_layout(said_spans, duration, settings, rng, 1.0)
    for index in range(MAX_LAYOUTS):
        if best.misplaced == 0:
            break
        shrink = 1.0 - MAX_SHRINK * index / MAX_LAYOUTS
        other = _random_layout(said_spans, duration, settings, rng, shrink)
        best = min(best, other, key=lambda layout: layout.misplaced)
    return best


def on_grid(second: float) -> float:
    """Return the nearest time on which a cut may lie."""
    return round(second / GRID_SECONDS) * GRID_SECONDS


def next_on_grid(second: float) -> float:
    """Return the first time at or after `second` on which a cut may lie."""
    return math.ceil(second / GRID_SECONDS) * GRID_SECONDS


def last_on_grid(second: float) -> float:
    """Return the last time at or before `second` on which a cut may lie."""
    return math.floor(second / GRID_SECONDS) * GRID_SECONDS


def free_spans(spans: Sequence[Span], start: float, end: float) -> list[Span]:
    """Return what spans leave free of [start, end)."""
    free = []
    at = start
    for span in sorted(spans, key=lambda span: span.start):
        if span.start > at:
            free.append(Span(at, span.start))
        at = max(at, span.end)
    if at < end:
        free.append(Span(at, end))
    return free


def distance(first: Span, second: Span) -> float:
    """Return the seconds between two spans, 0 if they touch."""
    return max(0.0, first.start - second.end, second.start - first.end)


def _random_layout(
    said_spans: Sequence[Span],
    duration: float,
    settings: ScriptSettings,
    rng: Random,
    shrink: float,
) -> StepLayout:
    count = len(said_spans)
    modes = _draw_modes(count, settings, rng)
    # the far ones first, while there is room for them
    order = sorted(range(count), key=lambda k: (modes[k] != "far", k))
    spans: dict[int, Span] = {}
    for index in order:
        if modes[index] == "said":
            continue
        room = free_spans(list(spans.values()), TITLE_SECONDS, duration - ENDING_SECONDS)
        length = max(_draw_length(settings, rng) * shrink, settings.shown_least)
        draw_span = _far_span if modes[index] == "far" else _near_span
        span = draw_span(said_spans[index], length, room, settings, rng)
        if span is not None:
            spans[index] = span
    shown_count = sum(mode != "said" for mode in modes)

    closed = _close_short_gaps(spans, said_spans, settings)
    second = _second_showings(closed, duration, settings, rng)
    step_spans = []
    for index in range(count):
        showings = [by_step[index] for by_step in (closed, second) if index in by_step]
        step_spans.append(tuple(showings))
    return StepLayout(tuple(step_spans), shown_count - len(spans))


def _draw_modes(count: int, settings: ScriptSettings, rng: Random) -> list[Mode]:
    """Return a mode per step. The shares hold over many videos, and nearly in every video."""
    never = int(settings.said_only * count + rng.random())
    far = int(settings.far * count + rng.random())
    modes: list[Mode] = []
    modes += ["said" for _ in range(never)]
    modes += ["far" for _ in range(far)]
    modes += ["near" for _ in range(count)]
    modes = modes[:count]
    rng.shuffle(modes)
    return modes


def _draw_length(settings: ScriptSettings, rng: Random) -> float:
    length = rng.lognormvariate(math.log(settings.shown_median), settings.shown_sigma)
    length = max(settings.shown_least, length)
    return on_grid(min(settings.shown_most, length))


def _far_span(
    said_span: Span, length: float, room: Sequence[Span], settings: ScriptSettings, rng: Random
) -> Span | None:
    """Return a span well before or after the spoken one, None where none fits."""
    for _ in range(FAR_TRIES):
        gap = rng.uniform(settings.far_least, settings.far_most)
        is_after = rng.random() < 0.5
        start = said_span.end + gap if is_after else said_span.start - gap - length
        # away from the spoken span
        start = next_on_grid(start) if start > said_span.end else last_on_grid(start)
        end = start + on_grid(length)
        if any(free.start <= start and end <= free.end for free in room):
            return Span(start, end)
    return None


def _near_span(
    said_span: Span, length: float, room: Sequence[Span], settings: ScriptSettings, rng: Random
) -> Span | None:
    """Return the span nearest to a little after the spoken one starts, None without room.

    It is shorter where room is short.
    """
    target = said_span.start + rng.gauss(settings.offset, settings.spread)
    best: Span | None = None
    best_error = math.inf
    for free in room:
        min_start = next_on_grid(free.start)
        max_end = last_on_grid(free.end)
        if max_end - min_start < settings.shown_least:
            continue
        fitting = min(on_grid(length), max_end - min_start)
        start = on_grid(min(max(target, min_start), max_end - fitting))
        error = abs(start - target)
        if error < best_error:
            best = Span(start, start + fitting)
            best_error = error
    return best if best_error <= NEAR_MISS else None


def _close_short_gaps(
    spans: dict[int, Span], said_spans: Sequence[Span], settings: ScriptSettings
) -> dict[int, Span]:
    """Return the spans with the shortest gaps between them closed, if that keeps a far step far."""
    order = sorted(spans, key=lambda k: spans[k].start)
    closed = dict(spans)
    for first, second in pairwise(order):
        span = spans[first]
        next_start = spans[second].start
        longer = Span(span.start, next_start)
        was_far = distance(span, said_spans[first]) >= settings.far_least
        is_far = distance(longer, said_spans[first]) >= settings.far_least
        if 0 < next_start - span.end < SHORT_GAP and is_far == was_far:
            closed[first] = longer
    return closed


def _second_showings(
    spans: dict[int, Span], duration: float, settings: ScriptSettings, rng: Random
) -> dict[int, Span]:
    """Return short second showings of some steps, where there is room."""
    second: dict[int, Span] = {}
    for index in sorted(spans):
        filled = [*spans.values(), *second.values()]
        room = []
        for free in free_spans(filled, TITLE_SECONDS, duration - ENDING_SECONDS):
            is_far = distance(free, spans[index]) > settings.far_least
            if is_far and free.duration >= SECOND_ROOM:
                room.append(free)
        if room and rng.random() < settings.twice:
            free = rng.choice(room)
            start = next_on_grid(free.start + 0.5)
            max_length = min(4.5, free.end - start)
            length = on_grid(rng.uniform(3.0, max_length))
            second[index] = Span(start, start + length)
    return second
