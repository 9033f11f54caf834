"""Captions in a screen recording: lines of text that appear one after another in one place."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stepline.grounding.screens.reading import (
    ScreenEvent,
    ScreenLine,
    ScreenReading,
    is_same_text,
    lower_letters,
)
from stepline.records import Sentence, Span
from stepline.vision.on_screen_text import box_iou

MIN_CAPTION_WORDS = 3  # words of a caption at least
MAX_OFF_CENTRE = 0.06  # distance of a caption from the middle, as a fraction of the width
BAND_HEIGHT = 0.08  # height of the band with captions, as a fraction of the height
MIN_CAPTIONS = 3  # different captions in one band at least
MIN_CAPTION_SECONDS = 0.5  # a caption is visible at least this long


@dataclass(frozen=True)
class _TimedLine:
    """A line of text, and the span in which it is visible, in seconds."""

    line: ScreenLine
    span: Span


def typed_captions(reading: ScreenReading, duration: float) -> tuple[Sentence, ...]:
    """Return the captions that a screen recording shows as sentences with their times, sorted by
    time.

    The result is () if there are fewer than 3 different captions.

    Args:
        reading: the changes of the screen, with the text on it.
        duration: duration of the video in seconds.
    """
    # Lines that appear together are one caption, from top to bottom.
    lines = _caption_lines(reading, duration)
    lines.sort(key=lambda row: (row.span.start, row.line.box[1]))
    sentences = []
    for start, group in itertools.groupby(lines, key=lambda row: row.span.start):
        rows = list(group)
        text = " ".join(row.line.text for row in rows)
        end = max(row.span.end for row in rows)
        sentences.append(Sentence(text=text, span=Span(start, end)))
    return tuple(sentences)


def without_captions(reading: ScreenReading, duration: float) -> ScreenReading:
    """Return the changes of the screen without the captions that a video editor added: caption
    lines are removed from the text before and after each change.

    A change is left out if only captions appear or vanish in it.

    Args:
        reading: the changes of the screen, with the text on it.
        duration: duration of the video in seconds.
    """
    captions = {row.line for row in _caption_lines(reading, duration)}
    if not captions:
        return reading
    # The band of the captions, a line higher on both sides.
    height = max(line.box[3] - line.box[1] for line in captions)
    y = min(line.box[1] for line in captions) - height
    end_y = max(line.box[3] for line in captions) + height
    events = []
    # Each change outside of the band, with its other lines.
    for event in reading.events:
        patches = [patch for patch in event.patches if patch[1] < y or patch[3] > end_y]
        appeared = _other_lines(event.appeared, captions)
        vanished = _other_lines(event.vanished, captions)
        if not (patches or appeared or vanished):
            continue
        remaining_event = replace(
            event,
            patches=tuple(patches),
            before=_other_lines(event.before, captions),
            after=_other_lines(event.after, captions),
            appeared=appeared,
            vanished=vanished,
        )
        events.append(remaining_event)
    return replace(reading, events=tuple(events))


def _other_lines(lines: Sequence[ScreenLine], captions: set[ScreenLine]) -> tuple[ScreenLine, ...]:
    """Return the lines that are neither a caption nor part of one."""
    return tuple(
        line
        for line in lines
        if not any(
            box_iou(line.box, other.box) > 0
            and (is_same_text(line.text, other.text) or line.text in other.text)
            for other in captions
        )
    )


def _caption_lines(reading: ScreenReading, duration: float) -> list[_TimedLine]:
    """Return the captions: the lines in the horizontal band with the most different texts.

    The result is [] if no band has 3 different texts.
    """
    rows = [row for row in _timed_lines(reading, duration) if _may_be_caption(row, reading)]
    if not rows:
        return []
    # the vertical middle of each line, and its letters
    boxes = np.array([row.line.box for row in rows])
    heights = (boxes[:, 1] + boxes[:, 3]) / 2
    texts = [lower_letters(row.line.text) for row in rows]
    distances = np.abs(heights[:, None] - heights[None])
    near = distances <= BAND_HEIGHT * reading.height / 2

    # the band with the most different texts
    counts = [len({texts[n] for n in np.flatnonzero(flags)}) for flags in near]
    best = int(np.argmax(counts))
    if counts[best] < MIN_CAPTIONS:
        return []
    return [rows[n] for n in np.flatnonzero(near[best])]


def _may_be_caption(row: _TimedLine, reading: ScreenReading) -> bool:
    """Return whether a line is horizontally centred and has 3 words or more."""
    x, _, end_x, _ = row.line.box
    off_centre = abs((x + end_x) / 2 - reading.width / 2)
    is_centred = off_centre <= MAX_OFF_CENTRE * reading.width
    return is_centred and len(row.line.text.split()) >= MIN_CAPTION_WORDS


def _timed_lines(reading: ScreenReading, duration: float) -> list[_TimedLine]:
    """Return the lines that appear after the first screen and stay 0.5 s or more, with their spans.

    duration: end in seconds of lines that never vanish.
    """
    rows = []
    for number, event in enumerate(reading.events):
        later = reading.events[number + 1 :]
        for line in event.appeared:
            end = _end_second(line, later, duration)
            if end - event.start >= MIN_CAPTION_SECONDS:
                rows.append(_TimedLine(line, Span(event.start, end)))
    return rows


def _end_second(line: ScreenLine, later: Sequence[ScreenEvent], duration: float) -> float:
    """Return the second at which a line vanishes, the duration if it never does.

    Args:
        line: the line.
        later: the changes after the one in which the line appeared, sorted by time.
        duration: duration of the video in seconds.
    """
    for event in later:
        for other in event.vanished:
            overlaps = box_iou(line.box, other.box) > 0
            if overlaps and is_same_text(line.text, other.text):
                return event.start
    return duration
