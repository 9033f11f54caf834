"""Text in the picture: what captions, overlays and title cards say, and from when to when.

    TextDetector   which pixels belong to letters (PP-OCR's differentiable binarization): 11 ms
    TextReader     what a line says (PP-OCR's recogniser, decoded greedily from CTC): 10 to 60 ms a line
    ScreenText     a line and the seconds in which it stands

A line that stands on is read once: the same pixels at the same place are the same words, and so are
letters of the same outlines, whatever moves behind them.

Source: Liao et al. 2020 (DB), the PP-OCR models. Differs: a line's box is upright, its margin half
its height, and pictures are looked at as small as they were decoded for the backbone; letters below
8 px are not read.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.device import cpu_threads
from stepline.onnx_graph import start_session
from stepline.records import Span
from stepline.vision.faces import Image, resize

Flags = npt.NDArray[np.bool_]
Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels

# px of the picture that is looked at; 192 finds a third more lines for .6 CPU s a minute
SHORTER = 128
MULTIPLE = 32  # px that its sides are multiples of
MEAN, SPREAD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, for the detector
LETTERS = 0.3  # probability of a pixel from which it belongs to letters
SMALLEST = 12  # pixels of the map that a line has at least
HEIGHT = 48  # px of a line as the recogniser sees it
LOWEST = 8  # px of a line in the picture, below which it is not read
WIDEST = 40  # times as wide as high
SURE = 0.8  # mean probability of the letters from which a line counts
FEWEST = 2  # letters or digits of a line
LINES = 3  # of a picture, the largest first
SAME = 0.1  # mean change of a line's pixels, 0 to 1, below which it is the same line
AGAIN = 0.5  # intersection over union of the boxes of the same line
# correlation of the outlines of its letters from which a line that was read stands on; others reach
# .74
OUTLINES = 0.8


@dataclass(frozen=True)
class ScreenText:
    """A line of text in the picture, the seconds in which it stands, and its height as a fraction
    of the picture's."""

    text: str
    span: Span
    height: float


class TextDetector:
    """Which pixels belong to letters."""

    def __init__(self, folder: Path) -> None:
        self._session = start_session(
            folder / "PP-OCRv6_det_small.onnx", threads=cpu_threads(beside=1)
        )

    def __call__(self, picture: Image) -> Flags:
        """Return the map of a picture (H, W, 3): its shorter side about SHORTER px."""
        scale = SHORTER / min(picture.shape[:2])
        height, width = (
            max(1, round(side * scale / MULTIPLE)) * MULTIPLE for side in picture.shape[:2]
        )
        small = (resize(picture, width, height)[..., ::-1] - MEAN) / SPREAD  # blue first
        found = self._session.run(None, {"x": small.transpose(2, 0, 1)[None].astype(np.float32)})[0]
        letters: Flags = found[0, 0] > LETTERS
        return letters


class TextReader:
    """What a line says."""

    def __init__(self, folder: Path) -> None:
        self._session = start_session(
            folder / "PP-OCRv6_rec_small.onnx", threads=cpu_threads(beside=1)
        )
        characters = self._session.get_modelmeta().custom_metadata_map["character"].split("\n")
        self._characters = ["", *characters, " "]  # 0 is CTC's blank

    def __call__(self, line: Image) -> tuple[str, float]:
        """Return the text of a line (H, W, 3) and how sure it is, 0 to 1."""
        width = max(HEIGHT, round(line.shape[1] * HEIGHT / line.shape[0] / 8) * 8)
        pixels = resize(line, width, HEIGHT)[..., ::-1] * 2 - 1
        scores = self._session.run(None, {"x": pixels.transpose(2, 0, 1)[None].astype(np.float32)})[
            0
        ][0]
        best = scores.argmax(axis=1)  # (L,)
        kept = [n for n in range(len(best)) if best[n] and (n == 0 or best[n] != best[n - 1])]
        text = "".join(self._characters[best[n]] for n in kept)
        return text.strip(), float(scores.max(axis=1)[kept].mean()) if kept else 0.0


@dataclass(frozen=True)
class _Line:
    """A line where it was seen last: box (left, top, right, bottom), pixels; text: None where
    nothing can be read."""

    box: Box
    pixels: npt.NDArray[np.float32]
    text: ScreenText | None


class TextMeter:
    """Collects pictures one at a time: how much of each is text, and every line with its
    seconds."""

    def __init__(self, detect: TextDetector, read: TextReader) -> None:
        self._detect, self._read = detect, read
        self._standing: list[_Line] = []
        self._picture: Image | None = None  # the one before, where they stand
        self._gone: list[ScreenText] = []

    def add(self, picture: Image, seconds: Span) -> float:
        """Return the fraction of a picture (H, W, 3) that letters cover; it stands on the screen
        for `seconds`."""
        letters = self._detect(picture)
        boxes = line_boxes(
            letters, picture.shape[1] / letters.shape[1], picture.shape[0] / letters.shape[0]
        )
        largest = sorted(boxes, key=lambda box: box[1] - box[3])[:LINES]
        lines = [self._line(picture, box, seconds) for box in largest]
        going_on = {(line.text.text, line.text.span.start) for line in lines if line.text}
        texts = [line.text for line in self._standing if line.text]
        self._gone += [text for text in texts if (text.text, text.span.start) not in going_on]
        self._standing, self._picture = lines, picture
        return float(letters.mean())

    def finish(self) -> tuple[ScreenText, ...]:
        """Return all lines by the second at which they come."""
        lines = {*self._gone, *(line.text for line in self._standing if line.text)}
        return tuple(sorted(lines, key=lambda line: (line.span.start, line.text)))

    def _line(self, picture: Image, box: Box, seconds: Span) -> _Line:
        """Return a line of this picture: one that stands already, to the end of `seconds`, or a new
        one."""
        left, top, right, bottom = box
        crop = picture[top:bottom, left:right]
        pixels = resize(crop, 2 * HEIGHT, HEIGHT)
        for line in self._standing:
            if _overlap(line.box, box) <= AGAIN:
                continue
            if np.abs(line.pixels - pixels).mean() < SAME or (
                line.text and self._has_outlines_of(line, picture, box)
            ):
                return _Line(box, pixels, _until(line.text, seconds.end))
        if bottom - top < LOWEST or right - left > WIDEST * (bottom - top):
            return _Line(box, pixels, None)
        text, sure = self._read(crop)
        if sure < SURE or sum(letter.isalnum() for letter in text) < FEWEST:
            return _Line(box, pixels, None)
        for line in self._standing:
            if line.text is not None and line.text.text == text:
                return _Line(box, pixels, _until(line.text, seconds.end))
        return _Line(box, pixels, ScreenText(text, seconds, (bottom - top) / len(picture)))

    def _has_outlines_of(self, line: _Line, picture: Image, box: Box) -> bool:
        """Tell whether letters of the same outlines stand in both pictures, where either finds the
        line.

        A line that grows by a letter or more is still being written, and read anew.
        """
        assert self._picture is not None
        grown = (box[2] - box[0]) - (line.box[2] - line.box[0])
        if self._picture.shape != picture.shape or grown >= (box[3] - box[1]) / 2:
            return False
        left, top, right, bottom = (
            *map(min, line.box[:2], box[:2]),
            *map(max, line.box[2:], box[2:]),
        )
        outlines = []
        for each in (self._picture, picture):
            grey = resize(each[top:bottom, left:right], 2 * HEIGHT, HEIGHT).mean(2)
            edges = np.abs(np.diff(grey, axis=1)).ravel()
            outlines.append((edges - edges.mean()) / max(float(edges.std()), 1e-6))
        return float((outlines[0] * outlines[1]).mean()) > OUTLINES


def _until(text: ScreenText | None, end: float) -> ScreenText | None:
    return None if text is None else replace(text, span=Span(text.span.start, end))


def _overlap(a: Box, b: Box) -> float:
    """Return the intersection over union of two boxes."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inside = max(0, width) * max(0, height)
    return inside / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside)


def line_boxes(letters: Flags, wide: float, high: float) -> list[Box]:
    """Return the boxes (left, top, right, bottom) around connected letters, with half their height
    about them.

    letters: (H, W); wide, high: pixels of the picture a pixel of the map.
    """
    groups: dict[int, list[tuple[int, int, int]]] = {}  # number -> runs: row, first, last + 1
    above: list[tuple[int, int, int]] = []  # the runs of the row before: first, last + 1, number
    for row, flags in enumerate(letters):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.view(np.int8), [0]]))).tolist()
        here: list[tuple[int, int, int]] = []
        for first, last in zip(edges[::2], edges[1::2], strict=True):
            # corners touch too
            met = sorted({number for a, b, number in above if a <= last and first <= b})
            number = met[0] if met else len(letters) * row + first + 1
            for other in met[1:]:
                groups[number] += groups.pop(other)
                above = [(a, b, number if old == other else old) for a, b, old in above]
                here = [(a, b, number if old == other else old) for a, b, old in here]
            groups.setdefault(number, []).append((row, first, last))
            here.append((first, last, number))
        above = here
    out = []
    for runs in groups.values():
        if sum(last - first for _, first, last in runs) < SMALLEST:
            continue
        rows, firsts, lasts = (np.array(each) for each in zip(*runs, strict=True))
        margin = (rows.max() + 1 - rows.min()) / 2
        left, right = (firsts.min() - margin) * wide, (lasts.max() + margin) * wide
        top, bottom = (rows.min() - margin) * high, (rows.max() + 1 + margin) * high
        edge = round(letters.shape[1] * wide), round(letters.shape[0] * high)
        out.append(
            (
                max(0, int(left)),
                max(0, int(top)),
                min(edge[0], round(right)),
                min(edge[1], round(bottom)),
            )
        )
    return out
