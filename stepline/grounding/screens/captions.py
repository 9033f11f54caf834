"""Captions that are typed on the screen: lines of words in one place, each for its seconds."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepline.grounding.screens.reading import (
    ScreenEvent,
    ScreenLine,
    ScreenReading,
    enclosing_box,
    is_same_text,
)
from stepline.records import Sentence, Span
from stepline.vision.faces import box_iou

MIN_WORDS = 3  # of a caption
MAX_OFF_CENTRE = 0.06  # of the picture's width: captions are in its middle
BAND_HEIGHT = 0.08  # of the picture's height, in which captions are
MIN_CAPTIONS = 3  # with words of their own, in one place
MIN_SECONDS = 0.5  # for which a caption is shown at least


@dataclass(frozen=True)
class _TimedLine:
    """A line of text and the seconds in which it is shown."""

    line: ScreenLine
    span: Span


def typed_captions(reading: ScreenReading, duration: float) -> tuple[Sentence, ...]:
    """Return what captions on the screen say, each line or pair of lines as a sentence with its
    seconds. Return none where fewer than MIN_CAPTIONS share a place."""
    # Lines that begin together are one caption, read from top to bottom.
    lines = _caption_lines(reading, duration)
    by_start: dict[float, list[_TimedLine]] = {}
    for row in lines:
        by_start.setdefault(row.span.start, []).append(row)
    sentences = []
    for start, rows in sorted(by_start.items()):
        rows.sort(key=lambda row: row.line.box[1])
        text = " ".join(row.line.text for row in rows)
        end = max(row.span.end for row in rows)
        sentences.append(Sentence(text=text, span=Span(start, end)))
    return tuple(sentences)


def without_captions(reading: ScreenReading, duration: float) -> ScreenReading:
    """Return a reading without its captions, and without changes that are nothing else."""
    captions = {row.line for row in _caption_lines(reading, duration)}
    if not captions:
        return reading
    # The band of the captions, a line wider on either side.
    height = max(line.box[3] - line.box[1] for line in captions)
    y = min(line.box[1] for line in captions) - height
    end_y = max(line.box[3] for line in captions) + height
    picture_area = reading.width * reading.height
    events = []
    # What each change is outside of it, with its other lines.
    for event in reading.events:
        patches = [patch for patch in event.patches if patch[1] < y or patch[3] > end_y]
        appeared = _other_lines(event.appeared, captions)
        vanished = _other_lines(event.vanished, captions)
        if not (patches or appeared or vanished):
            continue
        box = functools.reduce(enclosing_box, patches) if patches else event.box
        left_edge, top, right_edge, bottom = box
        area = (right_edge - left_edge) * (bottom - top)
        other_event = replace(
            event,
            box=box,
            patches=tuple(patches),
            before=_other_lines(event.before, captions),
            after=_other_lines(event.after, captions),
            appeared=appeared,
            vanished=vanished,
            area=area / picture_area,
        )
        events.append(other_event)
    return replace(reading, events=tuple(events))


def _other_lines(lines: Sequence[ScreenLine], captions: set[ScreenLine]) -> tuple[ScreenLine, ...]:
    """Return the lines that are not captions, nor what is left of one."""

    def is_caption(line: ScreenLine) -> bool:
        for other in captions:
            if box_iou(line.box, other.box) <= 0:
                continue
            if is_same_text(line.text, other.text) or line.text in other.text:
                return True
        return False

    return tuple(line for line in lines if not is_caption(line))


def _caption_lines(reading: ScreenReading, duration: float) -> list[_TimedLine]:
    """Return the lines of the place in which most captions are."""
    rows = [row for row in _timed_lines(reading, duration) if _is_like_caption(row, reading)]
    if not rows:
        return []
    # How high each line is, and its letters, by which texts differ.
    middles = []
    texts = []
    for row in rows:
        _, top, _, bottom = row.line.box
        middles.append((top + bottom) / 2)
        letters = re.sub(r"\W", "", row.line.text)
        texts.append(letters.lower())
    heights = np.array(middles)
    distances = np.abs(heights[:, None] - heights[None])
    near = distances <= BAND_HEIGHT * reading.height / 2

    # the place with most different texts
    counts = []
    for flags in near:
        own_texts = {texts[n] for n in np.flatnonzero(flags)}
        counts.append(len(own_texts))
    best = int(np.argmax(counts))
    if counts[best] < MIN_CAPTIONS:
        return []
    return [rows[n] for n in np.flatnonzero(near[best])]


def _is_like_caption(row: _TimedLine, reading: ScreenReading) -> bool:
    x, _, end_x, _ = row.line.box
    off_centre = abs((x + end_x) / 2 - reading.width / 2)
    is_centred = off_centre <= MAX_OFF_CENTRE * reading.width
    return is_centred and len(row.line.text.split()) >= MIN_WORDS


def _timed_lines(reading: ScreenReading, duration: float) -> list[_TimedLine]:
    """Return every line that comes after the first screen, with its seconds."""
    rows = []
    for number, event in enumerate(reading.events):
        later = reading.events[number + 1 :]
        for line in event.appeared:
            end = _end_of_line(line, later, duration)
            if end - event.start >= MIN_SECONDS:
                rows.append(_TimedLine(line, Span(event.start, end)))
    return rows


def _end_of_line(line: ScreenLine, later: Sequence[ScreenEvent], duration: float) -> float:
    """Return the second at which a line goes."""
    for event in later:
        for other in event.vanished:
            overlaps = box_iou(line.box, other.box) > 0
            if overlaps and is_same_text(line.text, other.text):
                return event.start
    return duration
