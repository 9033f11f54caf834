"""The camera: where it is, how it sways, and the light and grain of its film."""

import math
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
from PIL import Image

from research.drawn_videos.light import Point
from research.drawn_videos.script import Scene
from research.drawn_videos.settings import RenderSettings

Picture = npt.NDArray[np.uint8]

CANVAS_MARGIN = 1.10  # canvas over frame: room for the camera to sway
GRAIN = 3.0  # standard deviation of the film grain, in 0..255
GRAINS = 6  # different grain pictures


@dataclass(frozen=True)
class View:
    """Turns world coordinates (frame heights) into canvas pixels."""

    width: int
    height: int
    zoom: float
    focus: Point

    def at(self, point: Point) -> Point:
        """Return the pixel of a world point."""
        return (
            self.width / 2 + (point[0] - self.focus[0]) * self.zoom * self.height,
            self.height * 0.58 + (point[1] - self.focus[1]) * self.zoom * self.height,
        )

    def pixels(self, size: float) -> int:
        """Return a world length in pixels."""
        return max(4, round(size * self.zoom * self.height))


def camera_window(
    scene: Scene, t: float, length: float, seed: int, canvas: Point, frame: Point
) -> tuple[float, ...]:
    """Return what part of the canvas a hand-held camera sees, as PIL's affine coefficients: sway
    and a slow push."""
    slow = 1.0 - 0.05 * min(1.0, t / max(length, 1.0)) if scene.kind != "title" else 1.0
    width, height = frame[0] * 1.04 * slow, frame[1] * 1.04 * slow
    pan = (0.030 if scene.kind == "roll" else 0.006) * math.sin(0.9 * t + seed)
    left = (canvas[0] - width) / 2 + canvas[1] * (pan + 0.0025 * math.sin(2.3 * t))
    top = (canvas[1] - height) / 2 + canvas[1] * 0.004 * math.sin(1.4 * t + 1)
    left, top = min(max(0.0, left), canvas[0] - width), min(max(0.0, top), canvas[1] - height)
    return (width / frame[0], 0.0, left, 0.0, height / frame[1], top)


class FilmLook:
    """The video's light and grain, laid over every frame."""

    def __init__(self, seed: int, settings: RenderSettings) -> None:
        self.size = (settings.width, settings.height)
        self._gain = exposure_gain(seed, settings)
        self._grains = grain_pictures(seed, settings)

    def expose(self, canvas: Image.Image, seen: tuple[float, ...], number: int) -> Picture:
        """Return the part of the canvas that is seen, (height, width, 3) uint8. `number` chooses
        the grain."""
        shot = canvas.transform(self.size, Image.Transform.AFFINE, seen, Image.Resampling.BILINEAR)
        pixels = np.asarray(shot, np.float32) * self._gain + self._grains[number % GRAINS]
        clipped: Picture = np.clip(pixels, 0.0, 255.0).astype(np.uint8)
        return clipped


def exposure_gain(seed: int, settings: RenderSettings) -> npt.NDArray[np.float32]:
    """Return the video's light: vignette, exposure and white balance, (height, width, 3)."""
    rng = Random(f"light {seed}")
    y = np.linspace(-1, 1, settings.height, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, settings.width, dtype=np.float32)[None, :]
    vignette = 1.0 - rng.uniform(0.08, 0.20) * (0.6 * x * x + 0.4 * y * y)
    warm, exposure = rng.uniform(-0.05, 0.06), rng.uniform(0.94, 1.06)
    tint = np.asarray([1.0 + warm, 1.0, 1.0 - warm], np.float32) * exposure
    return np.asarray(vignette[..., None] * tint, np.float32)


def grain_pictures(seed: int, settings: RenderSettings) -> list[npt.NDArray[np.float32]]:
    """Return the pictures of film grain, each (height, width, 1)."""
    rng = np.random.default_rng(seed)
    shape = (settings.height, settings.width, 1)
    return [GRAIN * rng.standard_normal(shape, dtype=np.float32) for _ in range(GRAINS)]
