"""Hands in a picture, by MediaPipe's palm detector. They do not distinguish doing from talk
(docs/real_clips.md), so the package does not look for them.

Source: Zhang et al. 2020 (MediaPipe Hands).
"""

from pathlib import Path

from stepline.vision.faces import Image, SquareDetector


class HandDetector:
    """Palms of hands. folder: where `stepline weights get mediapipe` keeps its files."""

    def __init__(self, folder: Path) -> None:
        self._detect = SquareDetector(folder / "palm_detection_full.tflite", low=0.0)

    def count(self, picture: Image) -> int:
        """Return how many palms are seen in a picture (H, W, 3). Hands cut by the border are mostly
        missed."""
        return len(self._detect(picture))
