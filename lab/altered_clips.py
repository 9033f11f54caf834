"""Real clips with pictures of something else.

real_clips.py grounds their steps again.
"""

import math
import textwrap
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from stepline.media import Frame, read_frames_at
from stepline.pipeline.pictures import VisualFeatures
from stepline.records import FeatureSequence, Record, Span
from stepline.vision import ActivityMeter
from stepline.vision.on_screen_text import ScreenText

WRONG_KINDS = ("black", "noise", "still", "cards")
CARD_SECONDS = 5.0  # that a card is shown
PICTURE_SIDE = 224  # pixels of a picture that no clip has
FRAMES_PER_SECOND = 3  # of pictures that no clip has
CARD_LINE_CHARS = 16

Picture = npt.NDArray[np.uint8]


def wrong_pictures(kind: str, clip: Path, record: Record, visual: VisualFeatures) -> VisualFeatures:
    """Return what would be seen if a clip had other pictures.

    kind: black, noise, one still of the clip, or cards of its steps, all read.
    """
    backbone = visual.backbone
    assert backbone is not None
    seconds = math.ceil(visual.end)
    frames = FRAMES_PER_SECOND * seconds
    images = _wrong_images(kind, clip, record, frames)

    # motion and cuts: an image stays for its seconds, the last is followed by the first again
    image_seconds = {"noise": 1 / FRAMES_PER_SECOND, "cards": CARD_SECONDS}.get(kind, math.inf)
    meter = ActivityMeter(rate=1.0)
    for number in range(frames):
        time = number / FRAMES_PER_SECOND
        image = int((time + 1e-6) / image_seconds) % len(images)
        meter.add(Frame(time, images[image]))

    # features: a row per second
    stride = FRAMES_PER_SECOND if kind == "noise" else 1
    vectors = backbone.encode_images(np.stack(images[::stride]))
    row_seconds = max(1.0, image_seconds)
    rows = [int((second + 1e-6) / row_seconds) % len(vectors) for second in range(seconds)]
    features = FeatureSequence(vectors[rows], 1.0, backbone.name)

    # text on the screen: of cards alone
    lines = []
    if kind == "cards":
        for number, start in enumerate(np.arange(0, seconds, CARD_SECONDS).tolist()):
            text = record.steps[number % len(images)].text
            lines.append(ScreenText(text, Span(start, start + CARD_SECONDS), 0.1))
    return replace(visual, features=features, activity=meter.finish(), on_screen=(*lines,))


def _wrong_images(kind: str, clip: Path, record: Record, frames: int) -> list[Picture]:
    """Return the images of one kind of wrong pictures."""
    shape = (PICTURE_SIDE, PICTURE_SIDE, 3)
    if kind == "black":
        return [np.zeros(shape, np.uint8)]
    if kind == "still":
        first = next(read_frames_at(clip, [0.5], shorter=PICTURE_SIDE))
        return [first.image]
    if kind == "noise":
        rng = np.random.default_rng(0)
        return [rng.integers(0, 256, shape, dtype=np.uint8) for _ in range(frames)]
    return [_card(step.text) for step in record.steps]


def _card(text: str) -> Picture:
    """Return a title card: the text in white on blue."""
    image = Image.new("RGB", (PICTURE_SIDE, PICTURE_SIDE), (20, 40, 90))
    lines = textwrap.wrap(text, CARD_LINE_CHARS)
    drawing = ImageDraw.Draw(image)
    drawing.multiline_text((12, 60), "\n".join(lines), fill="white", font_size=22)
    return np.asarray(image)
