"""Faces and hands in a picture, by MediaPipe's small detectors: where they are, and whether a face
looks at the camera.

    FaceDetector   boxes with eyes, nose, mouth and ears; the network of landmarks tells faces from what is like them
    HandDetector   boxes of palms

A picture is looked at in squares of its shorter side that cover it, two of a 16:9 one, for the
networks' inputs are squares of 128 to 192 px. A presenter is a face that is sure and turned to the
camera: `frontality`.

Source: Bazarevsky et al. 2019 (BlazeFace), Zhang et al. 2020 (MediaPipe Hands), Kartynnik et al.
2019 (face mesh).
Differs: boxes that overlap are dropped, not averaged; a face is not turned upright before its
landmarks are found.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.vision.tflite import TfliteNetwork, load_tflite

Image = npt.NDArray[np.uint8]
Points = npt.NDArray[np.float64]

STRIDES = (8, 16, 16, 16)  # px of both detectors' feature maps; two anchors a place for each
SURE = 0.5  # probability from which a detection counts
OVERLAP = 0.3  # intersection over union of two boxes of one face
LARGEST = 2  # faces whose landmarks are looked at
MARGIN = 1.5  # side of the square around a face, in sides of its box
TURNED = 0.25  # of the distance between the eyes: how far off its middle the nose may lie
LEVEL = 0.8  # cosine of the line through the eyes and the horizon, from which a face is upright


@dataclass(frozen=True)
class Detection:
    """box: left, top, right, bottom; points: (P, 2) x and y; all in pixels. score: 0 to 1."""

    score: float
    box: npt.NDArray[np.float64]
    points: Points


class SquareDetector:
    """A single-shot detector of MediaPipe's: a score and a box for each anchor of a square
    picture."""

    def __init__(self, path: Path, low: float) -> None:
        """low: the network's number for black; white is 1."""
        self._network, self._low = load_tflite(path), low
        self._anchors = anchors(self._network.side)

    def __call__(self, picture: Image) -> list[Detection]:
        """Return what is found in a picture (H, W, 3) of any size, the surest first."""
        found = [
            detection for square in squares(picture) for detection in self._detect(picture, *square)
        ]
        return without_overlaps(found)

    def _detect(self, picture: Image, left: int, top: int, side: int) -> list[Detection]:
        own = self._network.side
        small = resize(picture[top : top + side, left : left + side], own, own)
        boxes, scores = self._network(small * (1 - self._low) + self._low)  # (A, 4 + 2 P), (A, 1)
        probability = 1 / (1 + np.exp(-np.clip(scores.ravel().astype(np.float64), -80, 80)))
        out = []
        for n in np.flatnonzero(probability > SURE):
            center, size, *points = boxes[n].reshape(-1, 2) / own
            corners = self._anchors[n] + center + np.outer([-0.5, 0.5], size)  # (2, 2)
            place = np.array([left, top])
            box = (corners * side + place).ravel()
            out.append(
                Detection(float(probability[n]), box, (points + self._anchors[n]) * side + place)
            )
        return out


def anchors(side: int) -> Points:
    """Return (A, 2): x and y of each anchor, 0 to 1; two a place of every feature map, maps of one
    size together."""
    out = []
    for stride, maps in itertools.groupby(STRIDES):
        places = (np.arange(-(-side // stride)) + 0.5) / -(-side // stride)
        grid = np.stack(np.meshgrid(places, places), axis=-1).reshape(-1, 2)
        out.append(grid.repeat(2 * len(list(maps)), axis=0))
    return np.concatenate(out)


def squares(picture: Image) -> list[tuple[int, int, int]]:
    """Return squares of the shorter side that cover a picture: left, top, side in pixels."""
    height, width = picture.shape[:2]
    side = min(height, width)
    count = -(-max(height, width) // side)
    starts = np.linspace(0, max(height, width) - side, count).round().astype(int).tolist()
    return [(start, 0, side) if width > height else (0, start, side) for start in starts]


def without_overlaps(found: Sequence[Detection]) -> list[Detection]:
    """Return the detections, the surest first, without those that overlap a surer one."""
    kept: list[Detection] = []
    for detection in sorted(found, key=lambda each: -each.score):
        if all(_overlap(detection.box, other.box) < OVERLAP for other in kept):
            kept.append(detection)
    return kept


def _overlap(a: Points, b: Points) -> float:
    """Return the intersection over union of two boxes."""
    sides = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    inside = float(np.prod(np.maximum(sides, 0)))
    return inside / max(float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2])) - inside, 1e-9)


def resize(picture: Image, width: int, height: int) -> npt.NDArray[np.float32]:
    """Return a picture (height, width, 3) in 0 to 1."""
    from PIL import Image as Pillow

    small = Pillow.fromarray(picture).resize((width, height), Pillow.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.float32) / np.float32(255)


class FaceDetector:
    """Faces, and how surely each is a real one."""

    def __init__(self, folder: Path) -> None:
        self._detect = SquareDetector(folder / "face_detection_short_range.tflite", low=-1.0)
        self._landmarks: TfliteNetwork = load_tflite(folder / "face_landmark.tflite")

    def presenter(self, picture: Image) -> float:
        """Return how surely someone in a picture (H, W, 3) looks at the camera, 0 to 1; of the two
        largest faces."""
        faces = sorted(self._detect(picture), key=lambda face: face.box[0] - face.box[2])[:LARGEST]
        return max(
            (self.presence(picture, face) * frontality(face.points) for face in faces), default=0.0
        )

    def presence(self, picture: Image, face: Detection) -> float:
        """Return the probability that a detection is a face, by the network of landmarks."""
        from PIL import Image as Pillow

        center, side = (
            (face.box[:2] + face.box[2:]) / 2,
            MARGIN * float(max(face.box[2:] - face.box[:2])),
        )
        left, top, right, bottom = (
            round(float(c)) for c in (*(center - side / 2), *(center + side / 2))
        )
        # black beyond the picture
        crop = Pillow.fromarray(picture).crop((left, top, right, bottom))
        own = self._landmarks.side
        _, flag = self._landmarks(resize(np.asarray(crop), own, own))
        return float(1 / (1 + np.exp(-float(flag.ravel()[0]))))


def frontality(points: Points) -> float:
    """Return how far a face looks at the camera, 0 to 1: upright, its nose between its eyes.
    points: eyes, nose, ..."""
    across = points[1] - points[0]
    distance = max(float(np.linalg.norm(across)), 1e-6)
    nose = float((points[2] - points[0]) @ across) / distance**2
    return float(np.exp(-(((nose - 0.5) / TURNED) ** 2))) if across[0] / distance > LEVEL else 0.0
