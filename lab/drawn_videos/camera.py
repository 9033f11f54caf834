"""The camera: where it is, how it sways, and the light and grain of its film."""

import math
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
from PIL import Image

from lab.drawn_videos.light import Point
from lab.drawn_videos.script import Scene
from lab.drawn_videos.settings import RenderSettings

Picture = npt.NDArray[np.uint8]

CANVAS_MARGIN = 1.10  # canvas over frame: room for the camera to sway
GRAIN_DEVIATION = 3.0  # standard deviation of the film grain, in 0..255
GRAIN_PICTURES = 6  # different ones
FOCUS_HEIGHT = 0.58  # of the focus in the picture, fraction of its height
VISIBLE_FRACTION = 1.04  # of the frame that the camera sees: under CANVAS_MARGIN
PUSH_FRACTION = 0.05  # by which a camera comes nearer during a shot


@dataclass(frozen=True)
class View:
    """Turns world coordinates (frame heights) into canvas pixels."""

    width: int
    height: int
    zoom: float
    focus: Point

    def at(self, point: Point) -> Point:
        """Return the pixel of a world point."""
        across = point[0] - self.focus[0]
        down = point[1] - self.focus[1]
        x = self.width / 2 + across * self.zoom * self.height
        y = self.height * FOCUS_HEIGHT + down * self.zoom * self.height
        return (x, y)

    def pixels(self, size: float) -> int:
        """Return a world length in pixels."""
        return max(4, round(size * self.zoom * self.height))


def camera_window(
    scene: Scene, t: float, length: float, seed: int, canvas: Point, frame: Point
) -> tuple[float, ...]:
    """Return what part of the canvas a hand-held camera sees, as PIL's affine coefficients.

    The camera sways and slowly comes nearer.
    """
    canvas_width, canvas_height = canvas
    frame_width, frame_height = frame
    # a slow push towards the scene
    slow = 1.0
    if scene.kind != "title":
        slow = 1.0 - PUSH_FRACTION * min(1.0, t / max(length, 1.0))
    width = frame_width * VISIBLE_FRACTION * slow
    height = frame_height * VISIBLE_FRACTION * slow

    # the sway of a hand, wider where nothing else moves
    pan_size = 0.030 if scene.kind == "roll" else 0.006
    pan = pan_size * math.sin(0.9 * t + seed)
    tremble = 0.0025 * math.sin(2.3 * t)
    x = (canvas_width - width) / 2 + canvas_height * (pan + tremble)
    y = (canvas_height - height) / 2 + canvas_height * 0.004 * math.sin(1.4 * t + 1)

    # never beyond the canvas
    x = min(max(0.0, x), canvas_width - width)
    y = min(max(0.0, y), canvas_height - height)
    return (width / frame_width, 0.0, x, 0.0, height / frame_height, y)


class FilmLook:
    """The video's light and grain, laid over every frame."""

    def __init__(self, seed: int, settings: RenderSettings) -> None:
        self.size = (settings.width, settings.height)
        self._gain = exposure_gain(seed, settings)
        self._grains = grain_pictures(seed, settings)

    def expose(self, canvas: Image.Image, window: tuple[float, ...], number: int) -> Picture:
        """Return the part of the canvas in a camera window, (height, width, 3) uint8.

        number: of the frame. It chooses the grain.
        """
        shot = canvas.transform(
            self.size, Image.Transform.AFFINE, window, Image.Resampling.BILINEAR
        )
        grain = self._grains[number % GRAIN_PICTURES]
        pixels = np.asarray(shot, np.float32) * self._gain + grain
        clipped: Picture = np.clip(pixels, 0.0, 255.0).astype(np.uint8)
        return clipped


def exposure_gain(seed: int, settings: RenderSettings) -> npt.NDArray[np.float32]:
    """Return the video's light: vignette, exposure and white balance, (height, width, 3)."""
    rng = Random(f"light {seed}")
    y = np.linspace(-1, 1, settings.height, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, settings.width, dtype=np.float32)[None, :]
    strength = rng.uniform(0.08, 0.20)
    vignette = 1.0 - strength * (0.6 * x * x + 0.4 * y * y)
    warmth = rng.uniform(-0.05, 0.06)
    exposure = rng.uniform(0.94, 1.06)
    balance = np.asarray([1.0 + warmth, 1.0, 1.0 - warmth], np.float32)
    tint = balance * exposure
    return np.asarray(vignette[..., None] * tint, np.float32)


def grain_pictures(seed: int, settings: RenderSettings) -> list[npt.NDArray[np.float32]]:
    """Return the pictures of film grain, each (height, width, 1)."""
    rng = np.random.default_rng(seed)
    shape = (settings.height, settings.width, 1)
    pictures = []
    for _ in range(GRAIN_PICTURES):
        grain = rng.standard_normal(shape, dtype=np.float32)
        pictures.append(GRAIN_DEVIATION * grain)
    return pictures
