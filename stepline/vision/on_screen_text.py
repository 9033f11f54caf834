"""Text in video frames: what captions, overlays and title cards say, and from when to when.

    TextDetector   which pixels belong to letters (PP-OCR's differentiable binarization): 11 ms
    TextReader     what a line says (PP-OCR's recogniser, decoded greedily from CTC): 10 to 60 ms a line
    TextMeter      lines of text with the seconds in which they are shown

A line that stays is read only once. The same pixels at the same position are the same words. So are
letters of the same outlines, whatever moves behind them.

Source: Liao et al. 2020 (DB), the PP-OCR models. Differs: a line's box is upright, its margin half
its height. Frames are searched at the size at which they were decoded for the backbone. Letters
below 8 px are not read.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.media import Frame, KeyFrame
from stepline.networks.onnx_graph import start_session
from stepline.networks.weights import find_weights, weights_fetched
from stepline.processes import trim_memory
from stepline.records import Span
from stepline.vision.encode import ROW_SLACK
from stepline.vision.settings import VisionSettings

Image = npt.NDArray[np.uint8]  # (H, W, 3) RGB
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Box = tuple[int, int, int, int]  # left, top, right, bottom, in pixels

# px of the frame's shorter side. 192 px finds a third more lines for .6 CPU s per minute.
DETECTOR_SIDE = 128
SIDE_MULTIPLE = 32  # px that the sides are multiples of
CHANNEL_MEANS = (0.485, 0.456, 0.406)  # of ImageNet, for the detector
CHANNEL_DEVIATIONS = (0.229, 0.224, 0.225)
MIN_LETTER_PROBABILITY = 0.3  # from which a pixel belongs to letters
MIN_LINE_AREA = 12  # pixels of the letter map that a line has at least
LINE_HEIGHT = 48  # px of a line as the recogniser sees it
MIN_LINE_HEIGHT = 8  # px of a line in the frame, below which it is not read
MAX_LINE_RATIO = 40  # width over height
MIN_TEXT_PROBABILITY = 0.8  # mean of the letters, from which a text is believed
MIN_LINE_LETTERS = 2  # letters or digits of a line
MAX_LINES = 3  # of a frame, the largest first
MAX_LINE_CHANGE = 0.1  # mean change of a line's pixels, 0 to 1, below which it is the same line
MIN_BOX_IOU = 0.5  # of the boxes of the same line
# correlation of the outlines of the same line's letters. Other lines reach .74.
MIN_OUTLINE_CORRELATION = 0.8
# fraction of a row of features after which its first frame is read. Of three frames it is the second
ROW_MIDDLE = 0.4
ROWS_PER_FRAME = 2  # rows for which a frame stands: captions stay for 2 s or longer
TEXT_WEIGHTS = "pp-ocr"
MISSING_WEIGHTS_WARNING = (
    "text in the picture cannot be found without its weights; "
    f"`stepline weights get {TEXT_WEIGHTS}` fetches them"
)


@dataclass(frozen=True)
class ScreenText:
    """A line of text on the screen.

    Attributes:
        text: the words.
        span: seconds in which the line is shown.
        height: height of the line, as a fraction of the frame's height.
    """

    text: str
    span: Span
    height: float


class _ImageNetwork:
    """An ONNX network that takes one image."""

    def __init__(self, path: Path) -> None:
        self.session = start_session(path)

    def __call__(self, pixels: npt.NDArray[Any]) -> Floats:
        """Return the network's output for an RGB image (H, W, 3), which it takes as BGR."""
        planes = pixels[..., ::-1].transpose(2, 0, 1).astype(np.float32)
        output: Floats = self.session.run(None, {"x": planes[None]})[0][0]
        return output


class TextDetector:
    """Detects the pixels of an image that belong to text."""

    def __init__(self, folder: Path) -> None:
        """Load the network. folder: contains the ONNX files of PP-OCR."""
        self._network = _ImageNetwork(folder / "PP-OCRv6_det_small.onnx")

    def __call__(self, image: Image, side: int = DETECTOR_SIDE) -> Flags:
        """Return which pixels of a smaller copy of an image belong to text, boolean (h, w).

        Args:
            image: (H, W, 3) uint8 RGB.
            side: pixels of the shorter side of the smaller copy.
        """
        sides = np.array(image.shape[:2])
        # Sides that the network takes, in about the image's proportions.
        multiples = np.round(sides * (side / sides.min()) / SIDE_MULTIPLE).astype(int)
        height, width = (np.maximum(multiples, 1) * SIDE_MULTIPLE).tolist()
        pixels = resize(image, width, height)
        # The released network has these channel statistics in the order of its own channels.
        normalised = (pixels - CHANNEL_MEANS[::-1]) / CHANNEL_DEVIATIONS[::-1]
        return np.asarray(self._network(normalised)[0] > MIN_LETTER_PROBABILITY)


class TextReader:
    """Recognises the text in the image of one line."""

    def __init__(self, folder: Path) -> None:
        """Load the network. folder: contains the ONNX files of PP-OCR."""
        self._network = _ImageNetwork(folder / "PP-OCRv6_rec_small.onnx")
        metadata = self._network.session.get_modelmeta().custom_metadata_map
        self._characters = ["", *metadata["character"].split("\n"), " "]  # 0 is CTC's blank

    def __call__(self, line: Image) -> tuple[str, float]:
        """Return the text in the image of a line, (H, W, 3) uint8, and its mean probability."""
        height, width = line.shape[:2]
        # As wide as the line is, in steps of 8 px.
        eighths = round(width * LINE_HEIGHT / height / 8)
        pixels = resize(line, max(LINE_HEIGHT, eighths * 8), LINE_HEIGHT)
        scores = self._network(pixels * 2 - 1)  # (L, C)

        # a letter begins where the most likely character changes to another than the blank
        best = scores.argmax(axis=1)  # (L,)
        starts = np.flatnonzero((best > 0) & (np.diff(best, prepend=0) != 0))
        if not len(starts):
            return "", 0.0
        text = "".join(self._characters[number] for number in best[starts])
        return text.strip(), float(scores.max(axis=1)[starts].mean())


@functools.cache
def load_text_networks(folder: Path) -> tuple[TextDetector, TextReader]:
    """Return the text detector and reader, loaded once per process.

    folder: contains the ONNX files of PP-OCR.
    """
    networks = (TextDetector(folder), TextReader(folder))
    trim_memory()  # the bytes of the files
    return networks


@dataclass(frozen=True)
class _Line:
    """A line of text in the last frame.

    Attributes:
        box: position in the frame, in pixels.
        pixels: the image inside the box, for comparison with later frames.
        text: the text, None if it cannot be read.
    """

    box: Box
    pixels: Floats  # (48, 96, 3)
    text: ScreenText | None


class TextMeter:
    """Collects the lines of text in frames that are added one at a time."""

    def __init__(self, detector: TextDetector, reader: TextReader, *, rate: float = 1.0) -> None:
        """Start to read.

        Args:
            detector: finds the letters of a frame.
            reader: reads a line.
            rate: rows of features per second, of which every second one has a frame that is read.
        """
        self._detect = detector
        self._read = reader
        self._rate = rate
        self._next_row = 0
        self._lines: list[_Line] = []  # of the last frame
        self._last_image: Image | None = None
        self._ended_texts: set[ScreenText] = set()

    def add_frame(self, frame: Frame) -> None:
        """Read the text of a frame if it is the nearest to the middle of its row."""
        row = math.floor((frame.time + ROW_SLACK) * self._rate)
        if row < self._next_row or frame.time * self._rate - row < ROW_MIDDLE:
            return
        self._next_row = row + 1
        if row % ROWS_PER_FRAME == 0:
            self.add(frame.image, Span(row / self._rate, (row + ROWS_PER_FRAME) / self._rate))

    def add_key(self, key: KeyFrame) -> None:
        """Read the text of a key frame. It counts for a row, because it may be gone before the next."""
        row = math.floor((key.time + ROW_SLACK) * self._rate)
        self.add(key.image, Span(row / self._rate, (row + 1) / self._rate))

    def add(self, image: Image, seconds: Span) -> None:
        """Read the text of a frame.

        Args:
            image: (H, W, 3) uint8 RGB.
            seconds: span in which the frame is on the screen.
        """
        letters = self._detect(image)
        scale_x = image.shape[1] / letters.shape[1]
        boxes = line_boxes(letters, scale_x, image.shape[0] / letters.shape[0])
        largest = sorted(boxes, key=lambda box: box[1] - box[3])
        lines = [self._line(image, box, seconds) for box in largest[:MAX_LINES]]
        continued = {_text_key(line.text) for line in lines if line.text}
        for line in self._lines:
            if line.text and _text_key(line.text) not in continued:
                self._ended_texts.add(line.text)
        self._lines = lines
        self._last_image = image

    def finish(self) -> tuple[ScreenText, ...]:
        """Return all lines of text, sorted by the second at which they appear."""
        texts = self._ended_texts | {line.text for line in self._lines if line.text}
        return tuple(sorted(texts, key=lambda text: (text.span.start, text.text)))

    def _line(self, image: Image, box: Box, seconds: Span) -> _Line:
        """Return the line in a box: a line of the last frame that is still shown, or a new one.

        Args:
            image: the frame, (H, W, 3).
            box: position of the line, in pixels.
            seconds: span in which the frame is on the screen.
        """
        x, y, end_x, end_y = box
        width = end_x - x
        height = end_y - y
        crop = image[y:end_y, x:end_x]
        pixels = resize(crop, 2 * LINE_HEIGHT, LINE_HEIGHT)

        # the same pixels at the same position are the same words
        for line in self._lines:
            has_position = box_iou(line.box, box) > MIN_BOX_IOU
            if has_position and self._is_same_line(line, image, box, pixels):
                return _Line(box, pixels, _extend(line.text, seconds.end))

        # a line that has to be read
        text = None
        if height >= MIN_LINE_HEIGHT and width <= MAX_LINE_RATIO * height:
            words, probability = self._read(crop)
            letter_count = sum(letter.isalnum() for letter in words)
            if probability >= MIN_TEXT_PROBABILITY and letter_count >= MIN_LINE_LETTERS:
                text = ScreenText(words, seconds, height / len(image))
                for line in self._lines:
                    if line.text is not None and line.text.text == words:
                        text = _extend(line.text, seconds.end)
                        break
        return _Line(box, pixels, text)

    def _is_same_line(self, line: _Line, image: Image, box: Box, pixels: Floats) -> bool:
        """Return whether a box of a new frame shows a line of the last frame.

        It does if the pixels are the same. For a line that was read, the same outlines of letters
        suffice.

        Args:
            line: line of the last frame.
            image: the new frame, (H, W, 3).
            box: position in the new frame, in pixels.
            pixels: the image inside the box.
        """
        if np.abs(line.pixels - pixels).mean() < MAX_LINE_CHANGE:
            return True
        return line.text is not None and self._has_same_outlines(line, image, box)

    def _has_same_outlines(self, line: _Line, image: Image, box: Box) -> bool:
        """Return whether letters have the same outlines in a line and in a box of a new frame.

        A line that grew by a letter or more is still being written, and is read again.

        Args:
            line: line of the last frame.
            image: the new frame, (H, W, 3).
            box: position in the new frame, in pixels.
        """
        assert self._last_image is not None
        growth = (box[2] - box[0]) - (line.box[2] - line.box[0])
        if self._last_image.shape != image.shape or growth >= (box[3] - box[1]) / 2:
            return False
        corners = np.array([line.box, box])
        x, y = corners[:, :2].min(axis=0)
        end_x, end_y = corners[:, 2:].max(axis=0)
        outlines = []
        for frame in (self._last_image, image):
            grey = resize(frame[y:end_y, x:end_x], 2 * LINE_HEIGHT, LINE_HEIGHT).mean(2)
            # Outlines are changes from left to right, however bright the background is.
            edges = np.abs(np.diff(grey, axis=1)).ravel()
            outlines.append((edges - edges.mean()) / max(float(edges.std()), 1e-6))
        return float((outlines[0] * outlines[1]).mean()) > MIN_OUTLINE_CORRELATION


def start_text_meter(settings: VisionSettings) -> tuple[TextMeter | None, tuple[str, ...]]:
    """Return a meter of the text on the screen, and warnings.

    None where the settings switch text off, or without its weights, with a warning. Raises ModelError if
    weights are damaged.
    """
    if not settings.screen_text:
        return None, ()
    if not weights_fetched(TEXT_WEIGHTS):
        return None, (MISSING_WEIGHTS_WARNING,)
    return TextMeter(*load_text_networks(find_weights(TEXT_WEIGHTS)), rate=settings.rate), ()


def _extend(text: ScreenText | None, end: float) -> ScreenText | None:
    """Return the text with its span extended to the second `end`. None stays None."""
    return text and replace(text, span=Span(text.span.start, end))


def _text_key(text: ScreenText) -> tuple[str, float]:
    """Return the words and start of a text, which identify it while it is shown."""
    return text.text, text.span.start


def line_boxes(letters: Flags, scale_x: float, scale_y: float) -> list[Box]:
    """Return the boxes of the text lines, in pixels of the full image.

    Each box has a margin of half the height of its line.

    Args:
        letters: boolean (H, W), whether a pixel of the smaller copy belongs to text.
        scale_x: width of the full image divided by the width of the smaller copy.
        scale_y: height of the full image divided by the height of the smaller copy.
    """
    height, width = letters.shape
    boxes = []
    for runs in connected_runs(letters):
        rows, starts, ends = runs.T
        if (ends - starts).sum() < MIN_LINE_AREA:
            continue
        top = rows[0]
        bottom = rows[-1] + 1
        margin = (bottom - top) / 2
        boxes.append(
            (
                max(0, int((starts.min() - margin) * scale_x)),
                max(0, int((top - margin) * scale_y)),
                min(round(width * scale_x), round((ends.max() + margin) * scale_x)),
                min(round(height * scale_y), round((bottom + margin) * scale_y)),
            )
        )
    return boxes


def connected_runs(letters: Flags) -> list[npt.NDArray[np.int64]]:
    """Return the connected components of a boolean image (H, W), with 8-connectivity.

    A component is an array (R, 3) of R horizontal runs, sorted by row: row, first column, end
    column.
    """
    edges = np.diff(np.pad(letters.view(np.int8), ((0, 0), (1, 1))), axis=1)  # (H, W + 1)
    rows, starts = np.nonzero(edges == 1)
    _, ends = np.nonzero(edges == -1)
    runs = np.stack([rows, starts, ends], axis=1)
    first_runs = np.searchsorted(rows, np.arange(len(letters) + 1)).tolist()  # of each row

    # a run joins the components of the runs above that it touches
    spans = runs.tolist()
    components: list[int] = []  # of each run, the number of its component's first run
    for row, start, end in spans:
        touched = set()
        for n in range(first_runs[max(row - 1, 0)], first_runs[row]):
            _, other_start, other_end = spans[n]
            if other_start <= end and start <= other_end:
                touched.add(components[n])
        component = min(touched, default=len(components))
        if len(touched) > 1:
            components = [component if n in touched else n for n in components]
        components.append(component)
    numbers = np.array(components)
    return [runs[numbers == component] for component in np.unique(numbers)]


def box_iou(a: Sequence[float], b: Sequence[float]) -> float:
    """Return the intersection over union of two boxes (left, top, right, bottom)."""
    a_left, a_top, a_right, a_bottom = a
    b_left, b_top, b_right, b_bottom = b
    width = min(a_right, b_right) - max(a_left, b_left)
    height = min(a_bottom, b_bottom) - max(a_top, b_top)
    intersection = max(width, 0) * max(height, 0)
    a_area = (a_right - a_left) * (a_bottom - a_top)
    union = a_area + (b_right - b_left) * (b_bottom - b_top) - intersection
    return float(intersection / max(union, 1e-9))


def resize(image: Image, width: int, height: int) -> npt.NDArray[np.float32]:
    """Return an image resized to (height, width, 3), float32 in [0, 1]."""
    from PIL import Image as Pillow

    small = Pillow.fromarray(image).resize((width, height), Pillow.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.float32) / np.float32(255)
