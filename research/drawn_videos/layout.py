"""When the steps are shown, given when they are said: one picture at a time, near, far or never."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Literal

from research.drawn_videos.settings import ScriptSettings
from stepline.records import Span

GRID = 0.25  # s; cuts are on it, so that they are on frames
TRIES = 300  # layouts tried before the one with the fewest steps out of place is taken
TITLE = 2.5  # s at the start that hold no step
NEAR_MISS = 4.0  # s that a near step may be moved from where it was wanted
SHORT_GAP = 1.25  # s; a shorter gap between two shown spans is given to the first

Mode = Literal["near", "far", "said"]


@dataclass(frozen=True)
class StepLayout:
    """For every step its shown spans, none for a step that is only said. `misplaced`: steps that
    found no room."""

    spans: tuple[tuple[Span, ...], ...]
    misplaced: int


def lay_out_steps(
    said: Sequence[Span], duration: float, settings: ScriptSettings, rng: Random
) -> StepLayout:
    """Return where each said step is shown in a video of `duration` s.

    A fraction of them never, a fraction far away, the others about `offset` after they are said.
    """
    best = _random_layout(said, duration, settings, rng, 1.0)
    for index in range(TRIES):
        if best.misplaced == 0:
            break
        shrink = 1.0 - 0.35 * index / TRIES
        other = _random_layout(said, duration, settings, rng, shrink)
        best = min(best, other, key=lambda layout: layout.misplaced)
    return best


def on_grid(second: float) -> float:
    """Return the nearest time on which a cut may lie."""
    return round(second / GRID) * GRID


def free_spans(taken: Sequence[Span], start: float, end: float) -> list[Span]:
    """Return what `taken` leaves of [start, end)."""
    free, at = [], start
    for span in sorted(taken, key=lambda each: each.start):
        if span.start > at:
            free.append(Span(at, span.start))
        at = max(at, span.end)
    return [*free, Span(at, end)] if at < end else free


def distance(shown: Span, said: Span) -> float:
    """Return the seconds between two spans, 0 if they touch."""
    return max(0.0, shown.start - said.end, said.start - shown.end)


def _random_layout(
    said: Sequence[Span], duration: float, settings: ScriptSettings, rng: Random, shrink: float
) -> StepLayout:
    modes = _draw_modes(len(said), settings, rng)
    spans: dict[int, Span] = {}
    for index in sorted(range(len(said)), key=lambda k: (modes[k] != "far", k)):
        if modes[index] == "said":
            continue
        room = free_spans(list(spans.values()), TITLE, duration - 1.0)
        length = _draw_length(settings, rng) * shrink
        place = _far_span if modes[index] == "far" else _near_span
        span = place(said[index], max(length, settings.shown_least), room, settings, rng)
        if span is not None:
            spans[index] = span
    missing = sum(mode != "said" for mode in modes) - len(spans)
    closed = _close_short_gaps(spans, said, settings)
    again = _second_showings(closed, duration, settings, rng)
    return StepLayout(
        tuple(tuple(each[k] for each in (closed, again) if k in each) for k in range(len(said))),
        missing,
    )


def _draw_modes(count: int, settings: ScriptSettings, rng: Random) -> list[Mode]:
    """Return a mode per step. The shares hold over many videos and nearly in each."""
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
    return on_grid(min(settings.shown_most, max(settings.shown_least, length)))


def _far_span(
    said: Span, length: float, room: Sequence[Span], settings: ScriptSettings, rng: Random
) -> Span | None:
    """Return a span well before or after `said`, None where none fits."""
    for _ in range(12):
        gap = rng.uniform(settings.far_least, settings.far_most)
        start = said.end + gap if rng.random() < 0.5 else said.start - gap - length
        start = (
            math.ceil(start / GRID) * GRID if start > said.end else math.floor(start / GRID) * GRID
        )
        end = start + on_grid(length)
        if any(free.start <= start and end <= free.end for free in room):
            return Span(start, end)
    return None


def _near_span(
    said: Span, length: float, room: Sequence[Span], settings: ScriptSettings, rng: Random
) -> Span | None:
    """Return the span nearest to a little after `said` starts, shorter where room is short, None
    without room."""
    wanted = said.start + rng.gauss(settings.offset, settings.spread)
    best: Span | None = None
    for free in room:
        start_least, end_most = (
            math.ceil(free.start / GRID) * GRID,
            math.floor(free.end / GRID) * GRID,
        )
        if end_most - start_least < settings.shown_least:
            continue
        fitting = min(on_grid(length), end_most - start_least)
        start = on_grid(min(max(wanted, start_least), end_most - fitting))
        if best is None or abs(start - wanted) < abs(best.start - wanted):
            best = Span(start, start + fitting)
    return best if best is not None and abs(best.start - wanted) <= NEAR_MISS else None


def _close_short_gaps(
    spans: dict[int, Span], said: Sequence[Span], settings: ScriptSettings
) -> dict[int, Span]:
    """Return the spans with the shortest gaps between them closed, if that keeps a far step far."""
    order = sorted(spans, key=lambda k: spans[k].start)
    closed = dict(spans)
    for first, second in pairwise(order):
        gap = spans[second].start - spans[first].end
        longer = Span(spans[first].start, spans[second].start)
        still = (distance(longer, said[first]) >= settings.far_least) == (
            distance(spans[first], said[first]) >= settings.far_least
        )
        if 0 < gap < SHORT_GAP and still:
            closed[first] = longer
    return closed


def _second_showings(
    spans: dict[int, Span], duration: float, settings: ScriptSettings, rng: Random
) -> dict[int, Span]:
    """Return short second showings of some steps, where there is room."""
    second: dict[int, Span] = {}
    for index in sorted(spans):
        room = free_spans([*spans.values(), *second.values()], TITLE, duration - 1.0)
        wide = [
            free
            for free in room
            if free.duration >= 5.0 and distance(free, spans[index]) > settings.far_least
        ]
        if wide and rng.random() < settings.twice:
            free = rng.choice(wide)
            start = math.ceil((free.start + 0.5) / GRID) * GRID
            second[index] = Span(
                start, start + on_grid(rng.uniform(3.0, min(4.5, free.end - start)))
            )
    return second
