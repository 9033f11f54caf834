"""Faces in an image, by MediaPipe's small networks: where they are, and whether a face looks at the
camera.

An image is searched in squares of its shorter side that cover it, two in a 16:9 image, since the
networks take squares of 128 to 192 px. A detection counts as a face as far as the landmark network
agrees. A presenter is a face turned to the camera (`measure_frontality`).

Source: Bazarevsky et al. 2019 (BlazeFace), Kartynnik et al. 2019 (face mesh).
Differs: boxes that overlap are dropped, not averaged. A face is not rotated upright before its
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

Image = npt.NDArray[np.uint8]  # (H, W, 3) RGB
Floats = npt.NDArray[np.float64]

ANCHOR_STRIDES = (8, 16, 16, 16)  # px of the detector's feature maps, two anchors per cell of each
MIN_PROBABILITY = 0.5  # from which a detection counts
MAX_LOGIT = 80.0  # Beyond it an exponential may overflow, and the sigmoid is 0 or 1 anyway.
MAX_OVERLAP = 0.3  # intersection over union of the boxes of two faces
MAX_FACES = 2  # that the landmark network looks at, the largest first
CROP_SCALE = 1.5  # side of the square around a face, in sides of its box
NOSE_SPREAD = 0.25  # of the distance between the eyes: how far off its middle the nose may be
MIN_LEVEL = 0.8  # cosine of the line through the eyes and the horizon, from which a face is upright


@dataclass(frozen=True)
class Detection:
    """A face detected in an image.

    Attributes:
        score: probability that it is a face.
        box: (left, top, right, bottom) in pixels.
        points: (6, 2) x and y in pixels of the eyes, nose, mouth and ears.
    """

    score: float
    box: Floats
    points: Floats


class FaceDetector:
    """Detects faces with a single-shot detector, and checks them with a landmark network."""

    def __init__(self, folder: Path) -> None:
        """Load both networks. folder: contains their .tflite files."""
        self._detector = load_tflite(folder / "face_detection_short_range.tflite")
        self._landmarks = load_tflite(folder / "face_landmark.tflite")
        self._anchors = anchor_centers(self._detector.side)

    def presenter(self, image: Image) -> float:
        """Return P(someone looks at the camera) in an image (H, W, 3) uint8.

        It is judged from the two largest faces.
        """
        faces = sorted(self.detect(image), key=lambda face: face.box[0] - face.box[2])
        probabilities = [
            self._face_probability(image, face) * measure_frontality(face.points)
            for face in faces[:MAX_FACES]
        ]
        return max(probabilities, default=0.0)

    def detect(self, image: Image) -> list[Detection]:
        """Return the faces in an image (H, W, 3) uint8, the most certain first."""
        detections: list[Detection] = []
        for square in covering_squares(image):
            detections += self._detect_in_square(image, *square)
        return suppress_overlaps(detections)

    def _detect_in_square(self, image: Image, x: int, y: int, side: int) -> list[Detection]:
        network_side = self._detector.side
        crop = resize(image[y : y + side, x : x + side], network_side, network_side)
        boxes, scores = self._detector(crop * 2 - 1)  # (A, 4 + 2 P), (A, 1), for -1 to 1
        logits = np.clip(scores.ravel().astype(np.float64), -MAX_LOGIT, MAX_LOGIT)
        probabilities = sigmoid(logits)  # (A,)

        # from the units of the anchors to pixels of the image
        corner = np.array([x, y])
        detections = []
        for n in np.flatnonzero(probabilities > MIN_PROBABILITY):
            center, size, *points = boxes[n].reshape(-1, 2) / network_side
            anchor = self._anchors[n]
            box = (anchor + center + np.outer([-0.5, 0.5], size)) * side + corner  # (2, 2)
            face_points = (points + anchor) * side + corner  # (P, 2)
            detections.append(Detection(float(probabilities[n]), box.ravel(), face_points))
        return detections

    def _face_probability(self, image: Image, face: Detection) -> float:
        """Return the landmark network's probability that a detection is a face."""
        from PIL import Image as Pillow

        # a square around the face, black beyond the image
        start, end = face.box[:2], face.box[2:]
        center = (start + end) / 2
        half_side = CROP_SCALE * (end - start).max() / 2
        corners = np.concatenate([center - half_side, center + half_side]).round().astype(int)
        crop = Pillow.fromarray(image).crop(tuple(corners.tolist()))
        side = self._landmarks.side
        _, logit = self._landmarks(resize(np.asarray(crop), side, side))
        return float(sigmoid(logit.ravel()[:1].astype(np.float64))[0])


def anchor_centers(side: int) -> Floats:
    """Return the centres of the detector's anchors, (A, 2) x and y in [0, 1].

    Every feature map cell has two. Feature maps of the same size are interleaved cell by cell.

    side: pixels of the network's square input.
    """
    grids = []
    for stride, maps in itertools.groupby(ANCHOR_STRIDES):
        count = -(-side // stride)
        middles = (np.arange(count) + 0.5) / count
        centers = np.stack(np.meshgrid(middles, middles), axis=-1).reshape(-1, 2)
        grids.append(centers.repeat(2 * len(list(maps)), axis=0))
    return np.concatenate(grids)


def covering_squares(image: Image) -> list[tuple[int, int, int]]:
    """Return the squares (left, top, side), in pixels, that together cover an image.

    Their side is the shorter side of the image. They are as few as possible, spread evenly.
    """
    height, width = image.shape[:2]
    side = min(height, width)
    length = max(height, width)
    starts = np.linspace(0, length - side, -(-length // side)).round().astype(int).tolist()
    if width > height:
        return [(start, 0, side) for start in starts]
    return [(0, start, side) for start in starts]


def suppress_overlaps(detections: Iterable[Detection]) -> list[Detection]:
    """Return the detections without those that overlap a more certain one.

    The most certain comes first (non-maximum suppression).
    """
    faces: list[Detection] = []
    for detection in sorted(detections, key=lambda detection: -detection.score):
        if all(box_iou(detection.box, face.box) < MAX_OVERLAP for face in faces):
            faces.append(detection)
    return faces


def box_iou(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> float:
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


def measure_frontality(points: Floats) -> float:
    """Return how frontal a face is, from 0 to 1: upright, with its nose between its eyes.

    points: (P, 2) x and y in pixels of both eyes, then the nose, then any other points.
    """
    eye_line = points[1] - points[0]
    distance = max(float(np.linalg.norm(eye_line)), 1e-6)
    if eye_line[0] / distance <= MIN_LEVEL:
        return 0.0
    # position of the nose along the line: 0 at the first eye, 1 at the second
    nose = float((points[2] - points[0]) @ eye_line) / distance**2
    return float(np.exp(-(((nose - 0.5) / NOSE_SPREAD) ** 2)))
