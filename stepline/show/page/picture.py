"""The alignment as a picture: one row a text, one column a second, the darker the better the fit."""

import base64
import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.records import Alignment, Matrix
from stepline.show.page.timeline import percent
from stepline.show.page.view import StepView, View
from stepline.show.plain import one_line, sentence_case

COLUMNS = 1600  # pixels; more columns than a screen shows are pooled by their maximum
TALL, TIGHT = 24, 14  # pixels a row: few texts, many texts
FEW = 24  # texts up to which rows are tall
RAMP = ((244, 249, 247), (207, 233, 227), (108, 192, 179), (18, 128, 118), (6, 64, 61))  # RGB, least to greatest


@dataclass(frozen=True)
class Line:
    """A row's name: the step it belongs to, None where the text is no step of the record."""

    number: int | None
    text: str
    seek: float | None


@dataclass(frozen=True)
class Box:
    """The outline of the span a step was given: per cent and pixels."""

    x: float
    width: float
    y: int


@dataclass(frozen=True)
class Picture:
    """The image as a PNG data URI that covers `width` per cent of the axis, and what is drawn over it."""

    source: str
    width: float
    row: int
    height: int
    lines: tuple[Line, ...]
    boxes: tuple[Box, ...]
    kind: str
    low: str
    high: str


def picture(alignment: Alignment, view: View) -> Picture:
    """Return the picture of a non-empty alignment on the page's time axis."""
    row = TALL if len(alignment.texts) <= FEW else TIGHT
    steps = match(alignment.texts, view.steps)
    lines = tuple(_line(text, step) for text, step in zip(alignment.texts, steps, strict=True))
    low, high = float(alignment.scores.min()), float(alignment.scores.max())
    boxes = tuple(
        Box(percent(step.start, view.total), percent(step.end - step.start, view.total), index * row)
        for index, step in enumerate(steps)
        if step is not None and step.start is not None and step.end is not None
    )
    return Picture(
        source="data:image/png;base64," + base64.b64encode(png(pool(alignment.scores, COLUMNS))).decode(),
        width=percent(alignment.scores.shape[1] / alignment.rate, view.total),
        row=row,
        height=row * len(lines),
        lines=lines,
        boxes=boxes,
        kind=alignment.kind,
        low=f"{low:.2f}",
        high=f"{high:.2f}",
    )


def match(texts: tuple[str, ...], steps: tuple[StepView, ...]) -> list[StepView | None]:
    """Return the step of each text: the next unused one with the same words."""
    waiting: dict[str, list[StepView]] = {}
    for step in reversed(steps):
        waiting.setdefault(step.text, []).append(step)
    found = [waiting.get(sentence_case(one_line(text)), []) for text in texts]
    return [candidates.pop() if candidates else None for candidates in found]


def pool(scores: Matrix, columns: int) -> Matrix:
    """Return scores (K, T) as (K, <= columns), each column the maximum of those it stands for."""
    group = -(-scores.shape[1] // columns)
    starts = np.arange(0, scores.shape[1], group)
    return np.maximum.reduceat(scores, starts, axis=1) if group > 1 else scores


def png(scores: Matrix) -> bytes:
    """Return scores (K, T) as a palette PNG of one pixel a score, stretched from the least to the greatest."""
    from PIL import Image

    low, high = float(scores.min()), float(scores.max())
    levels = (scores - low) / (high - low) * 255 if high > low else np.zeros_like(scores)
    image = Image.fromarray(np.rint(levels).astype(np.uint8))  # (K, T)
    image.putpalette(_palette().tobytes())
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _palette() -> npt.NDArray[np.uint8]:
    places = np.linspace(0, 255, len(RAMP))
    channels = [np.interp(np.arange(256), places, [colour[index] for colour in RAMP]) for index in range(3)]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8)  # (256, 3)


def _line(text: str, step: StepView | None) -> Line:
    if step is None:
        return Line(None, sentence_case(one_line(text)), None)
    return Line(step.number, step.text, step.seek)
