"""What small detectors see in each second of a video: a face that looks at the camera, hands, text.

    meter, warnings = start_cues(VisionSettings())
    for frame in frames: meter.add(frame)
    meter.finish()                          PictureCues

Each looks at the frame nearest the middle of its row, on pictures that were decoded anyway. A
detector whose weights are not there is left out with a warning: its cue stays unknown.

CPU seconds a minute of video (one core, 31 clips of 16 to 60 s): docs/real_clips.md.
"""

import functools
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.records import Matrix, Span
from stepline.vision.encode import SLACK
from stepline.vision.faces_and_hands import FaceDetector, HandDetector
from stepline.vision.on_screen_text import ScreenText, TextDetector, TextMeter, TextReader
from stepline.vision.settings import VisionSettings
from stepline.weights import find_weights, weights_fetched

if TYPE_CHECKING:
    from stepline.media import Frame

# of a row, from which a frame stands for it; of three frames a row the second, on its middle
MIDDLE = 0.4
# faces and text are looked for in every second row: a caption or a presenter stands for 2 s or
# longer
EVERY = 2
WEIGHTS = {"faces": "mediapipe", "hands": "mediapipe", "text": "pp-ocr"}
MISSING = "{cue} in the picture cannot be found without their weights; `stepline weights get {weights}` fetches them"


def _unknown() -> Matrix:
    return np.zeros(0, dtype=np.float32)


@dataclass(frozen=True)
class PictureCues:
    """What detectors see, one row every 1 / `rate` seconds; an array without rows was not measured.

    presenter: (T,) how surely someone looks at the camera, 0 to 1. hands: (T,) how many palms are
    seen. letters: (T,) fraction of the picture that text covers. NaN where no frame fell. lines:
    what the text says, and when.
    """

    rate: float
    presenter: Matrix = field(default_factory=_unknown)
    hands: Matrix = field(default_factory=_unknown)
    letters: Matrix = field(default_factory=_unknown)
    lines: tuple[ScreenText, ...] = ()

    def between(self, start: float, end: float) -> "PictureCues":
        """Return the cues of a stretch of the video, its times counted from `start`."""
        rows = slice(round(start * self.rate), round(end * self.rate))
        lines = tuple(
            replace(line, span=Span(max(0.0, line.span.start - start), line.span.end - start))
            for line in self.lines
            if line.span.overlap(Span(start, end)) > 0
        )
        return PictureCues(
            self.rate, self.presenter[rows], self.hands[rows], self.letters[rows], lines
        )


class CueMeter:
    """Collects frames one at a time; keeps three numbers a row, and the lines of text."""

    def __init__(
        self,
        rate: float,
        *,
        faces: FaceDetector | None = None,
        hands: HandDetector | None = None,
        text: tuple[TextDetector, TextReader] | None = None,
    ) -> None:
        """rate: rows a second. None: not looked for."""
        self._rate, self._faces, self._hands = rate, faces, hands
        self._text = None if text is None else TextMeter(*text)
        self._next = 0  # row whose frame is awaited
        self._presenter: dict[int, float] = {}
        self._palms: dict[int, float] = {}
        self._letters: dict[int, float] = {}

    def add(self, frame: "Frame") -> None:
        """Look at one frame, if it stands for a row."""
        row = math.floor((frame.time + SLACK) * self._rate)
        if row < self._next or frame.time * self._rate - row < MIDDLE:
            return
        self._next = row + 1
        if self._hands is not None:
            self._palms[row] = float(self._hands.count(frame.image))
        if row % EVERY:
            return
        rows = range(row, row + EVERY)
        if self._faces is not None:
            self._presenter |= dict.fromkeys(rows, self._faces.presenter(frame.image))
        if self._text is not None:
            stands = Span(row / self._rate, (row + EVERY) / self._rate)
            self._letters |= dict.fromkeys(rows, self._text.add(frame.image, stands))

    def finish(self) -> PictureCues:
        """Return what was seen so far."""
        lines = self._text.finish() if self._text is not None else ()
        presenter, hands, letters = (
            self._rows(each) for each in (self._presenter, self._palms, self._letters)
        )
        return PictureCues(self._rate, presenter, hands, letters, lines)

    def _rows(self, seen: dict[int, float]) -> Matrix:
        return np.array(
            [seen.get(row, np.nan) for row in range(self._next)] if seen else [], dtype=np.float32
        )


@functools.cache
def _load_faces(folder: Path) -> FaceDetector:
    return FaceDetector(folder)


@functools.cache
def _load_hands(folder: Path) -> HandDetector:
    return HandDetector(folder)


@functools.cache
def _load_text(folder: Path) -> tuple[TextDetector, TextReader]:
    return TextDetector(folder), TextReader(folder)


def start_cues(settings: VisionSettings) -> tuple[CueMeter, tuple[str, ...]]:
    """Return a meter of the cues that the settings name, and a warning for each whose weights are
    not there.

    Raises ModelError where the weights are there but damaged.
    """
    wanted = {"faces": settings.faces, "hands": settings.hands, "text": settings.screen_text}
    there = {cue: on and weights_fetched(WEIGHTS[cue]) for cue, on in wanted.items()}
    meter = CueMeter(
        settings.rate,
        faces=_load_faces(find_weights(WEIGHTS["faces"])) if there["faces"] else None,
        hands=_load_hands(find_weights(WEIGHTS["hands"])) if there["hands"] else None,
        text=_load_text(find_weights(WEIGHTS["text"])) if there["text"] else None,
    )
    missing = (cue for cue, on in wanted.items() if on and not there[cue])
    return meter, tuple(MISSING.format(cue=cue, weights=WEIGHTS[cue]) for cue in missing)
