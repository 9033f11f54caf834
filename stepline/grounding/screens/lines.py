"""Lines of text on a screen, with their places. Only what changed is read."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np

from stepline.vision.encode import Pictures
from stepline.vision.faces import box_iou, resize
from stepline.vision.on_screen_text import (
    LINE_HEIGHT,
    MIN_BOX_IOU,
    Box,
    Floats,
    line_boxes,
    load_text_networks,
)

MARGIN_SHARE = 0.03  # of the picture's shorter side, around what changed
MIN_WINDOW = 160  # px that are read at least, across and down: the detector needs surroundings
MIN_DETECTOR_SIDE = 64  # px of what the detector sees at least
# The detector sees a picture this many times its size, which takes half the memory. Lines are read
# in full size. Of 698 lines of 24 recordings it leaves 688 as they are, and no click changes.
DETECTOR_SCALE = 0.7
MIN_MISREAD_LETTERS = 5  # of a text in which one letter may be misread
SAME_PLACE_IOU = 0.2  # above which two lines of one screen are one: they have margins that touch
MIN_COVERED_RATIO = 0.75  # of the letters that a line has left under a cursor
MIN_LINE_HEIGHT = 8  # px; smaller letters are not read
MAX_LINE_RATIO = 40  # times as wide as high
MIN_READ_PROBABILITY = 0.7  # mean of the letters, from which a line counts
MAX_LINE_CHANGE = 0.02  # mean change of a line's pixels, 0 to 1, below which it is the same line
MAX_KEPT_LINES = 2000  # that are remembered of one video


@dataclass(frozen=True)
class ScreenLine:
    """A line of text and its place: left, top, right, bottom, in pixels."""

    text: str
    box: Box


class ScreenLineReader:
    """Reads the lines of a screen. What stays, or comes again in its place, is read once."""

    def __init__(self, folder: Path) -> None:
        self._detect, self._read = load_text_networks(folder)
        self._memory: list[tuple[Box, Floats, ScreenLine | None]] = []

    def read(
        self,
        picture: Pictures,
        patches: Sequence[Box] = (),
        lines_before: Sequence[ScreenLine] = (),
        *,
        most: int | None = None,
    ) -> tuple[ScreenLine, ...]:
        """Return all lines of a picture (H, W, 3), from top to bottom.

        patches: what changed since the picture before. Those of its lines, `lines_before`, that no
            patch touches stay as they were: a cursor may cover them.
        most: lines that are tried, from the top
        """
        height, width = picture.shape[:2]
        window: Box = (0, 0, width, height)
        lines: list[ScreenLine] = []
        if patches:
            window = _window(functools.reduce(around, patches), lines_before, width, height)
            for before in lines_before:
                if not _overlaps(before.box, patches):
                    lines.append(before)
        standing = [line.box for line in lines]
        window_x, window_y = window[:2]
        crop = np.ascontiguousarray(picture[window_y : window[3], window_x : window[2]])
        side = max(MIN_DETECTOR_SIDE, round(DETECTOR_SCALE * min(crop.shape[:2])))
        letters = self._detect(crop, side)
        map_height, map_width = letters.shape
        high = crop.shape[0] / map_height
        wide = crop.shape[1] / map_width
        boxes = line_boxes(letters, wide, high)
        for x, y, end_x, end_y in boxes[:most]:
            box = (x + window_x, y + window_y, end_x + window_x, end_y + window_y)
            if _overlaps(box, standing, SAME_PLACE_IOU):
                continue
            line = self._line(picture, box)
            if line is not None:
                lines.append(_uncovered(line, lines_before))
        lines.sort(key=lambda line: line.box[0])
        lines.sort(key=lambda line: line.box[1])
        return tuple(lines)

    def _line(self, picture: Pictures, box: Box) -> ScreenLine | None:
        """Return what a box says, from memory where it said that before, None where it cannot be
        read."""
        x, y, end_x, end_y = box
        height = end_y - y
        if height < MIN_LINE_HEIGHT or end_x - x > MAX_LINE_RATIO * height:
            return None
        crop = np.ascontiguousarray(picture[y:end_y, x:end_x])
        pixels = resize(crop, 2 * LINE_HEIGHT, LINE_HEIGHT)
        for place, before, line in reversed(self._memory):
            is_same_place = box_iou(place, box) > MIN_BOX_IOU
            if is_same_place and np.abs(before - pixels).mean() < MAX_LINE_CHANGE:
                return line
        text, probability = self._read(crop)
        line = None
        if probability >= MIN_READ_PROBABILITY and any(letter.isalnum() for letter in text):
            line = ScreenLine(text, box)
        recent = self._memory[1 - MAX_KEPT_LINES :]
        self._memory = [*recent, (box, pixels, line)]
        return line


def _overlaps(box: Box, others: Sequence[Box], least: float = 0.0) -> bool:
    """Whether a box has an IoU above `least` with any of the others."""
    return any(box_iou(box, other) > least for other in others)


def _window(area: Box, lines_before: Sequence[ScreenLine], width: int, height: int) -> Box:
    """Return what is to be read of a picture: whole lines, with a margin around what changed."""
    margin = round(MARGIN_SHARE * min(width, height))
    window = _widened(area, margin, width, height)
    outside = list(lines_before)
    while touched := [line for line in outside if box_iou(line.box, window) > 0]:
        for line in touched:
            whole_line = _widened(line.box, margin // 2, width, height)
            window = around(window, whole_line)
        outside = [line for line in outside if line not in touched]
    return window


def _widened(box: Box, margin: int, width: int, height: int) -> Box:
    """Return a box with a margin, at least MIN_WINDOW px wide and high where the picture is."""
    x, y, end_x, end_y = box
    missing_width = MIN_WINDOW - (end_x - x)
    missing_height = MIN_WINDOW - (end_y - y)
    across = max(margin, missing_width // 2)
    down = max(margin, missing_height // 2)
    return (
        max(0, x - across),
        max(0, y - down),
        min(width, end_x + across),
        min(height, end_y + down),
    )


def around(box: Box, other: Box) -> Box:
    """Return the box around two."""
    return (
        min(box[0], other[0]),
        min(box[1], other[1]),
        max(box[2], other[2]),
        max(box[3], other[3]),
    )


def is_same_text(text: str, other: str) -> bool:
    """Whether two readings are of one text: equal but for spaces and a letter misread."""
    first = _letters(text)
    second = _letters(other)
    if len(first) != len(second) or len(first) < MIN_MISREAD_LETTERS:
        return first == second
    misread = 0
    for letter, other_letter in zip(first, second, strict=True):
        misread += letter != other_letter
    return misread <= 1


def _letters(text: str) -> str:
    return re.sub(r"\W", "", text).lower()


def _uncovered(line: ScreenLine, lines_before: Sequence[ScreenLine]) -> ScreenLine:
    """Return the line of the picture before that a cursor now covers, else the line itself."""
    for before in lines_before:
        if _is_covered(line, before):
            return before
    return line


def _is_covered(line: ScreenLine, before: ScreenLine) -> bool:
    """Whether a line is what a cursor leaves of the line that was there before."""
    overlap = box_iou(line.box, before.box) > 0
    letters = _letters(line.text)
    shorter = len(line.text) < len(before.text)
    ratio = SequenceMatcher(None, line.text, before.text).ratio()
    return overlap and shorter and bool(letters) and ratio >= MIN_COVERED_RATIO
