"""Visual cues in each second of a video: a face that looks at the camera, and text.

    meter, warnings = start_cues(VisionSettings())
    for frame in frames: meter.add(frame)
    meter.finish()                          PictureCues

Small detectors look at the frame nearest the middle of each row, among frames that were decoded
anyway. A detector without its weights is left out with a warning, and its cue stays unknown.

CPU seconds per minute of video (one core, 31 clips of 16 to 60 s): docs/real_clips.md.
"""

import functools
import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from stepline.networks.weights import find_weights, weights_fetched
from stepline.records import Matrix, Span
from stepline.vision.encode import ROW_SLACK
from stepline.vision.faces import FaceDetector, Image
from stepline.vision.on_screen_text import (
    ScreenText,
    TextDetector,
    TextMeter,
    TextReader,
    load_text_networks,
)
from stepline.vision.settings import VisionSettings

if TYPE_CHECKING:
    from stepline.media import Frame, KeyFrame

# fraction of a row after which its first frame is analysed. Of three frames it is the second.
ROW_MIDDLE = 0.4
# rows per analysed frame: captions and presenters stay for 2 s or longer
ROWS_PER_FRAME = 2
FACE_WEIGHTS = "mediapipe"
TEXT_WEIGHTS = "pp-ocr"
MISSING_WEIGHTS = (
    "{cue} in the picture cannot be found without their weights; "
    "`stepline weights get {weights}` fetches them"
)


def _empty_array() -> Matrix:
    return np.zeros(0, dtype=np.float32)


@dataclass(frozen=True)
class PictureCues:
    """Visual cues of a video, in T rows of 1 / `rate` seconds. Empty arrays were not measured.

    Attributes:
        rate: rows per second.
        presenter_probability: (T,) P(someone looks at the camera). NaN for a row without a frame.
        text_area: (T,) fraction of the frame's area that text covers. NaN for a row without a frame.
        lines: the lines of text on the screen, with their seconds.
    """

    rate: float
    presenter_probability: Matrix = field(default_factory=_empty_array)
    text_area: Matrix = field(default_factory=_empty_array)
    lines: tuple[ScreenText, ...] = ()

    def between(self, start: float, end: float) -> "PictureCues":
        """Return the cues of a part of the video, with times counted from its start.

        Args:
            start: start of the part in seconds.
            end: end of the part in seconds.
        """
        part = Span(start, end)
        lines = [
            replace(line, span=Span(max(0.0, line.span.start - start), line.span.end - start))
            for line in self.lines
            if line.span.overlap(part) > 0
        ]
        rows = slice(round(start * self.rate), round(end * self.rate))
        return PictureCues(
            self.rate, self.presenter_probability[rows], self.text_area[rows], tuple(lines)
        )


class CueMeter:
    """Measures the visual cues of frames that are added one at a time.

    Memory holds two numbers per row, and the lines of text.
    """

    def __init__(
        self,
        rate: float,
        *,
        faces: FaceDetector | None = None,
        text: tuple[TextDetector, TextReader] | None = None,
    ) -> None:
        """Start to measure.

        Args:
            rate: rows per second.
            faces: face detector. None: presenters are not measured.
            text: detector and reader of text. None: text is not measured.
        """
        self._rate = rate
        self._faces = faces
        self._text = None if text is None else TextMeter(*text)
        self._next_row = 0
        self._presenter: dict[int, float] = {}
        self._letters: dict[int, float] = {}

    def add(self, frame: "Frame") -> None:
        """Run the detectors on a frame if it is the nearest to the middle of its row."""
        row = math.floor((frame.time + ROW_SLACK) * self._rate)
        if row < self._next_row or frame.time * self._rate - row < ROW_MIDDLE:
            return
        self._next_row = row + 1
        # One frame stands for several rows.
        if row % ROWS_PER_FRAME:
            return
        self._measure(frame.image, range(row, row + ROWS_PER_FRAME))

    def add_key(self, key: "KeyFrame") -> None:
        """Run the detectors on a key frame, which stands for the seconds up to the next one."""
        first = math.floor((key.time + ROW_SLACK) * self._rate)
        self._next_row = max(first + 1, math.ceil(key.end * self._rate))
        # text may come and go until then, a face hardly
        self._measure(key.image, range(first, self._next_row), text_rows=1)

    def _measure(self, image: Image, rows: range, text_rows: int = ROWS_PER_FRAME) -> None:
        if self._faces is not None:
            self._presenter |= dict.fromkeys(rows, self._faces.presenter(image))
        if self._text is not None:
            seconds = Span(rows.start / self._rate, (rows.start + text_rows) / self._rate)
            self._letters |= dict.fromkeys(rows, self._text.add(image, seconds))

    def finish(self) -> PictureCues:
        """Return the cues of all frames added."""
        lines = () if self._text is None else self._text.finish()
        presenter, letters = map(self._array, (self._presenter, self._letters))
        return PictureCues(self._rate, presenter, letters, lines)

    def _array(self, values: dict[int, float]) -> Matrix:
        """Return values given by row index as an array (T,), with NaN for a row without a value."""
        rows = range(self._next_row if values else 0)
        return np.array([values.get(row, np.nan) for row in rows], dtype=np.float32)


_load_face_detector = functools.cache(FaceDetector)


def start_cues(settings: VisionSettings) -> tuple[CueMeter, tuple[str, ...]]:
    """Return a meter of the cues that the settings enable, and warnings.

    A cue whose weights are missing is left out, with a warning. Raises ModelError if weights are
    damaged.
    """
    faces = None
    text = None
    warnings = []
    if settings.faces and weights_fetched(FACE_WEIGHTS):
        faces = _load_face_detector(find_weights(FACE_WEIGHTS))
    elif settings.faces:
        warnings.append(MISSING_WEIGHTS.format(cue="faces", weights=FACE_WEIGHTS))
    if settings.screen_text and weights_fetched(TEXT_WEIGHTS):
        text = load_text_networks(find_weights(TEXT_WEIGHTS))
    elif settings.screen_text:
        warnings.append(MISSING_WEIGHTS.format(cue="text", weights=TEXT_WEIGHTS))
    return CueMeter(settings.rate, faces=faces, text=text), tuple(warnings)
