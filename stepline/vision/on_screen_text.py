"""Text in the picture: what captions, overlays and title cards say, and from when to when.

    TextDetector   which pixels belong to letters (PP-OCR's differentiable binarization): 11 ms
    TextReader     what a line says (PP-OCR's recogniser, decoded greedily from CTC): 10 to 60 ms a line
    ScreenText     a line and the seconds in which it is shown

A line that stays is read once. The same pixels at the same place are the same words. So are letters
of the same outlines, whatever moves behind them.

Source: Liao et al. 2020 (DB), the PP-OCR models. Differs: a line's box is upright, its margin half
its height. Pictures are looked at as small as they were decoded for the backbone. Letters below
8 px are not read.
"""

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.networks.onnx_graph import start_session
from stepline.records import Span
from stepline.vision.faces import Image, box_iou, resize

Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels

# px of the picture's shorter side. 192 px finds a third more lines for .6 CPU s per minute.
PICTURE_SIDE = 128
SIDE_MULTIPLE = 32  # px that the sides are multiples of
CHANNEL_MEANS = (0.485, 0.456, 0.406)  # of ImageNet, for the detector
CHANNEL_SPREADS = (0.229, 0.224, 0.225)
MIN_LETTER_PROBABILITY = 0.3  # from which a pixel belongs to letters
MIN_LINE_AREA = 12  # pixels of the map that a line has at least
LINE_HEIGHT = 48  # px of a line as the recogniser sees it
MIN_LINE_HEIGHT = 8  # px of a line in the picture, below which it is not read
MAX_LINE_RATIO = 40  # times as wide as high
MIN_READ_PROBABILITY = 0.8  # mean of the letters, from which a line counts
MIN_LINE_LETTERS = 2  # letters or digits of a line
MAX_LINES = 3  # of a picture, the largest first
MAX_LINE_CHANGE = 0.1  # mean change of a line's pixels, 0 to 1, below which it is the same line
MIN_BOX_IOU = 0.5  # of the boxes of the same line
# correlation of the outlines of the same line's letters. Other lines reach .74.
MIN_OUTLINE_CORRELATION = 0.8


@dataclass(frozen=True)
class ScreenText:
    """A line of text in the picture, the seconds in which it is shown, and its height as a fraction
    of the picture's."""

    text: str
    span: Span
    height: float


class _PictureNetwork:
    """A network of one picture, in ONNX's format."""

    def __init__(self, path: Path) -> None:
        self.session = start_session(path)

    def __call__(self, pixels: npt.NDArray[Any]) -> Floats:
        """Return the output for pixels (H, W, 3) of blue, green and red."""
        planes = pixels.transpose(2, 0, 1).astype(np.float32)
        feed = {"x": planes[None]}  # (1, 3, H, W)
        output: Floats = self.session.run(None, feed)[0][0]
        return output


class TextDetector:
    """Detects the pixels that belong to letters."""

    def __init__(self, folder: Path) -> None:
        self._network = _PictureNetwork(folder / "PP-OCRv6_det_small.onnx")

    def __call__(self, picture: Image, side: int = PICTURE_SIDE) -> Flags:
        """Return the letter probability map of a picture (H, W, 3) scaled to `side` px."""
        sides = np.array(picture.shape[:2])
        scale = side / sides.min()
        # Sides that the network takes, about in the picture's proportions.
        multiples = np.round(sides * scale / SIDE_MULTIPLE).astype(int)
        height, width = (np.maximum(multiples, 1) * SIDE_MULTIPLE).tolist()
        # The network takes blue before red.
        colours = resize(picture, width, height)[..., ::-1]
        probabilities = self._network((colours - CHANNEL_MEANS) / CHANNEL_SPREADS)[0]
        letters: Flags = probabilities > MIN_LETTER_PROBABILITY
        return letters


class TextReader:
    """Recognises the text of a line."""

    def __init__(self, folder: Path) -> None:
        self._network = _PictureNetwork(folder / "PP-OCRv6_rec_small.onnx")
        about = self._network.session.get_modelmeta().custom_metadata_map
        letters = about["character"].split("\n")
        self._characters = ["", *letters, " "]  # 0 is CTC's blank

    def __call__(self, line: Image) -> tuple[str, float]:
        """Return the text of a line (H, W, 3) and its mean probability, 0 to 1."""
        height, width = line.shape[:2]
        # As wide as the line is, in steps of 8 px.
        eighths = round(width * LINE_HEIGHT / height / 8)
        colours = resize(line, max(LINE_HEIGHT, eighths * 8), LINE_HEIGHT)[..., ::-1]
        scores = self._network(colours * 2 - 1)  # (L, C)

        # a letter begins where the most likely character changes to another than the blank
        best = scores.argmax(axis=1)  # (L,)
        changes = np.diff(best, prepend=0) != 0
        starts = np.flatnonzero((best > 0) & changes)
        if not len(starts):
            return "", 0.0
        text = "".join(self._characters[number] for number in best[starts])
        probabilities = scores.max(axis=1)[starts]
        return text.strip(), float(probabilities.mean())


@functools.cache
def load_text_networks(folder: Path) -> tuple[TextDetector, TextReader]:
    """Return the text detector and reader, loaded once. A second pair would take 38 MiB."""
    return TextDetector(folder), TextReader(folder)


@dataclass(frozen=True)
class _Line:
    """A line where it was seen last: its box, its pixels, and what it says. None: not readable."""

    box: Box
    pixels: Floats
    text: ScreenText | None

    def until(self, end: float) -> ScreenText | None:
        """Return the text, shown up to `end`."""
        if self.text is None:
            return None
        span = Span(self.text.span.start, end)
        return replace(self.text, span=span)


class TextMeter:
    """Collects pictures one at a time: how much of each is text, and every line with its
    seconds."""

    def __init__(self, detector: TextDetector, reader: TextReader) -> None:
        self._detect = detector
        self._read = reader
        self._lines: list[_Line] = []  # of the last picture
        self._picture: Image | None = None  # the last one
        self._past: set[ScreenText] = set()

    def add(self, picture: Image, seconds: Span) -> float:
        """Return the fraction of a picture (H, W, 3) that letters cover. The picture is on the
        screen for `seconds`."""
        letters = self._detect(picture)
        map_height, map_width = letters.shape
        height, width = picture.shape[:2]
        boxes = line_boxes(letters, width / map_width, height / map_height)
        largest = sorted(boxes, key=lambda box: box[1] - box[3])
        lines = [self._line(picture, box, seconds) for box in largest[:MAX_LINES]]

        # texts of the last picture that this one does not show are over
        continued = set()
        for line in lines:
            if line.text:
                continued.add(_text_key(line.text))
        for line in self._lines:
            if line.text and _text_key(line.text) not in continued:
                self._past.add(line.text)
        self._lines = lines
        self._picture = picture
        return float(letters.mean())

    def finish(self) -> tuple[ScreenText, ...]:
        """Return all lines by the second at which they come."""
        texts = set(self._past)
        for line in self._lines:
            if line.text:
                texts.add(line.text)
        in_order = sorted(texts, key=lambda text: (text.span.start, text.text))
        return tuple(in_order)

    def _line(self, picture: Image, box: Box, seconds: Span) -> _Line:
        """Return a line of this picture: one of the last picture, up to the end of `seconds`, or a
        new one."""
        x, y, end_x, end_y = box
        width = end_x - x
        height = end_y - y
        crop = picture[y:end_y, x:end_x]
        pixels = resize(crop, 2 * LINE_HEIGHT, LINE_HEIGHT)

        # the same pixels at the same place are the same words
        for line in self._lines:
            is_here = box_iou(line.box, box) > MIN_BOX_IOU
            if is_here and self._is_same(line, picture, box, pixels):
                return _Line(box, pixels, line.until(seconds.end))

        # a line that has to be read
        if height < MIN_LINE_HEIGHT or width > MAX_LINE_RATIO * height:
            return _Line(box, pixels, None)
        text, probability = self._read(crop)
        letters = sum(letter.isalnum() for letter in text)
        if probability < MIN_READ_PROBABILITY or letters < MIN_LINE_LETTERS:
            return _Line(box, pixels, None)
        for line in self._lines:
            if line.text is not None and line.text.text == text:
                return _Line(box, pixels, line.until(seconds.end))
        screen_text = ScreenText(text, seconds, height / len(picture))
        return _Line(box, pixels, screen_text)

    def _is_same(self, line: _Line, picture: Image, box: Box, pixels: Floats) -> bool:
        """Return whether a line is that of a box, by its pixels, or if it was read by its
        outlines."""
        if np.abs(line.pixels - pixels).mean() < MAX_LINE_CHANGE:
            return True
        return line.text is not None and self._has_outlines_of(line, picture, box)

    def _has_outlines_of(self, line: _Line, picture: Image, box: Box) -> bool:
        """Return whether both pictures show letters of the same outlines where either has the line.

        A line that grows by a letter or more is still being written, and read again.
        """
        assert self._picture is not None
        width = box[2] - box[0]
        height = box[3] - box[1]
        growth = width - (line.box[2] - line.box[0])
        if self._picture.shape != picture.shape or growth >= height / 2:
            return False

        # the box around both places of the line
        corners = np.array([line.box, box])
        x, y = corners[:, :2].min(axis=0)
        end_x, end_y = corners[:, 2:].max(axis=0)
        outlines = []
        for image in (self._picture, picture):
            grey = resize(image[y:end_y, x:end_x], 2 * LINE_HEIGHT, LINE_HEIGHT).mean(2)
            # Outlines are changes from left to right, however bright the background is.
            changes = np.diff(grey, axis=1)
            edges = np.abs(changes).ravel()
            spread = max(float(edges.std()), 1e-6)
            outlines.append((edges - edges.mean()) / spread)
        correlation = (outlines[0] * outlines[1]).mean()
        return float(correlation) > MIN_OUTLINE_CORRELATION


def _text_key(text: ScreenText) -> tuple[str, float]:
    """Return the key by which readings of one text are equal."""
    return text.text, text.span.start


def line_boxes(letters: Flags, scale_x: float, scale_y: float) -> list[Box]:
    """Return the boxes (left, top, right, bottom) around connected letters, with a margin of half
    their height.

    letters: (H, W). wide, high: pixels of the picture per pixel of the map.
    """
    map_height, map_width = letters.shape
    picture_width = round(map_width * scale_x)
    picture_height = round(map_height * scale_y)
    boxes = []
    for runs in connected_runs(letters):
        rows, firsts, ends = runs.T
        if (ends - firsts).sum() < MIN_LINE_AREA:
            continue
        top = rows[0]
        bottom = rows[-1] + 1
        # In pixels of the picture, and inside it.
        margin = (bottom - top) / 2
        x = int((firsts.min() - margin) * scale_x)
        x = max(0, x)
        y = int((top - margin) * scale_y)
        y = max(0, y)
        end_x = round((ends.max() + margin) * scale_x)
        end_x = min(picture_width, end_x)
        end_y = round((bottom + margin) * scale_y)
        end_y = min(picture_height, end_y)
        boxes.append((x, y, end_x, end_y))
    return boxes


def connected_runs(letters: Flags) -> list[npt.NDArray[np.int64]]:
    """Return the groups of connected letters (H, W), corners too: runs (R, 3) of row, first and end
    column, by row."""
    # runs of letters in each row
    bits = letters.view(np.int8)
    padded = np.pad(bits, ((0, 0), (1, 1)))
    edges = np.diff(padded, axis=1)  # (H, W + 1)
    rows, firsts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    runs = np.stack([rows, firsts, ends], axis=1)
    row_numbers = np.arange(len(letters) + 1)
    begins = np.searchsorted(rows, row_numbers).tolist()  # each row's first run

    # a run joins the groups of the runs above that it touches
    spans = runs.tolist()
    groups: list[int] = []  # of each run, the number of its group's first run
    for row, first, end in spans:
        touching_run = set()
        row_above = max(row - 1, 0)
        for n in range(begins[row_above], begins[row]):
            _, other_first, other_end = spans[n]
            if other_first <= end and first <= other_end:
                touching_run.add(groups[n])
        group = min(touching_run, default=len(groups))
        if len(touching_run) > 1:
            groups = [group if number in touching_run else number for number in groups]
        groups.append(group)
    numbers = np.array(groups)
    return [runs[numbers == group] for group in np.unique(numbers)]
