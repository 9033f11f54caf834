"""Faces in a picture, by MediaPipe's small detectors: where they are, and whether a face looks at
the camera.

    SquareDetector   boxes and points of what a detector of squares finds
    FaceDetector     boxes with eyes, nose, mouth and ears; the network of landmarks rejects what is only like a face

A picture is looked at in squares of its shorter side that cover it, two of a 16:9 one. The reason
is that the networks' inputs are squares of 128 to 192 px. A presenter is a face that is sure and
turned to the camera: `frontality`.

Source: Bazarevsky et al. 2019 (BlazeFace), Kartynnik et al. 2019 (face mesh).
Differs: boxes that overlap are dropped, not averaged. A face is not turned upright before its
landmarks are found.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.numeric import sigmoid
from stepline.vision.tflite import load_tflite

Image = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float64]

ANCHOR_STRIDES = (8, 16, 16, 16)  # px of the detectors' feature maps; two anchors per place of each
MIN_PROBABILITY = 0.5  # from which a detection counts
MAX_OVERLAP = 0.3  # intersection over union of the boxes of two faces
MAX_FACES = 2  # whose landmarks are looked at, the largest first
CROP_SCALE = 1.5  # side of the square around a face, in sides of its box
NOSE_SPREAD = 0.25  # of the distance between the eyes: how far off its middle the nose may be
MIN_LEVEL = 0.8  # cosine of the line through the eyes and the horizon, from which a face is upright


@dataclass(frozen=True)
class Detection:
    """box: left, top, right, bottom. points: (P, 2) x and y. All in pixels. score: 0 to 1."""

    score: float
    box: Floats
    points: Floats


class SquareDetector:
    """A single-shot detector of MediaPipe's: a score and a box for each anchor of a square
    picture."""

    def __init__(self, path: Path, black_value: float) -> None:
        """black_value: the network's number for black. White is 1."""
        self._network = load_tflite(path)
        self._low = black_value
        self._anchors = anchors(self._network.side)

    def __call__(self, picture: Image) -> list[Detection]:
        """Return the detections in a picture (H, W, 3), the most certain first."""
        detections: list[Detection] = []
        for square in squares(picture):
            detections += self._detect(picture, *square)
        return without_overlaps(detections)

    def _detect(self, picture: Image, x: int, y: int, side: int) -> list[Detection]:
        # The square as the network takes it: its own side, colours from `low` to 1.
        crop_pixels = self._network.side
        pixels = resize(picture[y : y + side, x : x + side], crop_pixels, crop_pixels)
        pixels = pixels * (1 - self._low) + self._low
        boxes, scores = self._network(pixels)  # (A, 4 + 2 P), (A, 1)
        logits = scores.ravel().astype(np.float64)
        # Beyond 80 an exponential may overflow, and the sigmoid is 0 or 1 anyway.
        logits = np.clip(logits, -80, 80)
        probability = sigmoid(logits)  # (A,)

        # from the anchors' units to pixels of the picture
        corner_pixels = np.array([x, y])
        detections = []
        for n in np.flatnonzero(probability > MIN_PROBABILITY):
            center, size, *points = boxes[n].reshape(-1, 2) / crop_pixels
            anchor = self._anchors[n]
            halves = np.outer([-0.5, 0.5], size)
            corners = anchor + center + halves  # (2, 2)
            box = corners * side + corner_pixels
            places = (points + anchor) * side + corner_pixels  # (P, 2)
            score = float(probability[n])
            detections.append(Detection(score, box.ravel(), places))
        return detections


def anchors(side: int) -> Floats:
    """Return (A, 2): x and y of each anchor, 0 to 1. There are two per place of every feature map,
    maps of one size together."""
    grids = []
    for stride, maps in itertools.groupby(ANCHOR_STRIDES):
        count = -(-side // stride)
        middles = (np.arange(count) + 0.5) / count
        centers = np.stack(np.meshgrid(middles, middles), axis=-1).reshape(-1, 2)
        copies = 2 * len(list(maps))
        grids.append(centers.repeat(copies, axis=0))
    return np.concatenate(grids)


def squares(picture: Image) -> list[tuple[int, int, int]]:
    """Return squares of the shorter side that cover a picture: left, top, side in pixels."""
    height, width = picture.shape[:2]
    side = min(height, width)
    length = max(height, width)
    # As few as cover the longer side, spread evenly.
    count = -(-length // side)
    pixels = np.linspace(0, length - side, count).round().astype(int).tolist()
    if width > height:
        return [(start, 0, side) for start in pixels]
    return [(0, start, side) for start in pixels]


def without_overlaps(detections: Iterable[Detection]) -> list[Detection]:
    """Return the detections, the most certain first, without those that overlap a more certain
    one."""
    faces: list[Detection] = []
    for detection in sorted(detections, key=lambda detection: -detection.score):
        overlaps = [box_iou(detection.box, face.box) for face in faces]
        if max(overlaps, default=0.0) < MAX_OVERLAP:
            faces.append(detection)
    return faces


def box_iou(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> float:
    """Return the intersection over union of two boxes: left, top, right, bottom."""
    a_left, a_top, a_right, a_bottom = a
    b_left, b_top, b_right, b_bottom = b
    width = min(a_right, b_right) - max(a_left, b_left)
    height = min(a_bottom, b_bottom) - max(a_top, b_top)
    inside = max(width, 0) * max(height, 0)
    a_area = (a_right - a_left) * (a_bottom - a_top)
    union = a_area + (b_right - b_left) * (b_bottom - b_top) - inside
    return float(inside / max(union, 1e-9))


def resize(picture: Image, width: int, height: int) -> npt.NDArray[np.float32]:
    """Return a picture (height, width, 3) in 0 to 1."""
    from PIL import Image as Pillow

    image = Pillow.fromarray(picture)
    small = image.resize((width, height), Pillow.Resampling.BILINEAR)
    return np.asarray(small, dtype=np.float32) / np.float32(255)


class FaceDetector:
    """Detects faces and verifies them with a landmark network."""

    def __init__(self, folder: Path) -> None:
        self._detect = SquareDetector(
            folder / "face_detection_short_range.tflite", black_value=-1.0
        )
        self._landmarks = load_tflite(folder / "face_landmark.tflite")

    def presenter(self, picture: Image) -> float:
        """Return P(someone in a picture (H, W, 3) looks at the camera), by its two largest faces."""
        detections = self._detect(picture)
        # The widest first.
        largest = sorted(detections, key=lambda face: face.box[0] - face.box[2])
        presence_probabilities = []
        for face in largest[:MAX_FACES]:
            presence = self.presence(picture, face)
            presence_probabilities.append(presence * frontality(face.points))
        return max(presence_probabilities, default=0.0)

    def presence(self, picture: Image, face: Detection) -> float:
        """Return the probability that a detection is a face, by the network of landmarks."""
        from PIL import Image as Pillow

        # a square around the face, black beyond the picture
        start = face.box[:2]
        end = face.box[2:]
        center = (start + end) / 2
        half_width = CROP_SCALE * (end - start).max() / 2
        whole = np.concatenate([center - half_width, center + half_width]).round().astype(int)
        x, y, end_x, end_y = whole.tolist()
        crop = Pillow.fromarray(picture).crop((x, y, end_x, end_y))

        # What the network of landmarks says of it.
        crop_pixels = self._landmarks.side
        pixels = resize(np.asarray(crop), crop_pixels, crop_pixels)
        _, flag = self._landmarks(pixels)
        probability = sigmoid(flag.ravel()[:1].astype(np.float64))
        return float(probability[0])


def frontality(points: Floats) -> float:
    """Return how far a face looks at the camera, 0 to 1: upright, its nose between its eyes.
    points: eyes, nose, ..."""
    across = points[1] - points[0]
    length = float(np.linalg.norm(across))
    distance = max(length, 1e-6)
    if across[0] / distance <= MIN_LEVEL:
        return 0.0
    to_nose = points[2] - points[0]
    nose = float(to_nose @ across) / distance**2  # 0: at the first eye, 1: at the second
    offset = (nose - 0.5) / NOSE_SPREAD
    nearness = np.exp(-(offset**2))
    return float(nearness)
