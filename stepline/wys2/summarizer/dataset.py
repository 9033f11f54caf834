"""A video as segments of a few seconds: what is seen and said in each, and how much of it belongs
in a summary.

Letters: S segments, C width of a feature row, E width of a sentence vector.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.records import FeatureSequence, Matrix, Record, Span, Step
from stepline.training.batches import Mask
from stepline.wys2.settings import SummarizerSettings
from stepline.wys2.summary import Importance


@dataclass(frozen=True)
class SegmentedVideo:
    """One video: seen (S, C), said (S, E) with zeros where nobody speaks, matters (S,) in [0, 1].

    Raises ShapeError when the arrays do not fit together, are empty, or hold NaN.
    """

    id: str
    seen: Matrix
    said: Matrix
    matters: Importance

    def __post_init__(self) -> None:
        if not len(self.seen):
            raise ShapeError(f"{self.id}: no segment; the video has no feature row")
        if len(self.said) != len(self.seen) or self.matters.shape != (len(self.seen),):
            raise ShapeError(
                f"{self.id}: {len(self.seen)} segments need as much speech and as many labels"
            )
        if not all(np.isfinite(values).all() for values in (self.seen, self.said, self.matters)):
            raise ShapeError(f"{self.id}: features hold NaN or infinity; extract them again")


def segment_video(
    record: Record, features: FeatureSequence, vectors: Matrix | None, settings: SummarizerSettings
) -> SegmentedVideo:
    """Return a video's segments; what matters is what its reference steps show, half a segment is
    .5.

    vectors: (sentences, E) of the transcript, needed where the settings use speech.
    """
    count = math.ceil(features.duration / settings.seconds - 1e-9)
    if not count:
        raise ShapeError(f"{record.id}: no segment; the video has no feature row")
    spans = [Span(k * settings.seconds, (k + 1) * settings.seconds) for k in range(count)]
    seen = np.stack([features.values[features.rows(span)].mean(axis=0) for span in spans])  # (S, C)
    said = _said(record, spans, vectors, settings.text_width)
    # the fraction of a segment's tenths of a second that some step shows
    tenths = [span.start + (np.arange(round(span.duration * 10)) + 0.5) / 10 for span in spans]
    matters = np.array(
        [float(_inside(ticks, record.reference).mean()) for ticks in tenths], dtype=np.float32
    )
    return SegmentedVideo(record.id, seen.astype(np.float32), said, matters)


def shown_seconds(record: Record, duration: float) -> Mask:
    """Return which seconds of a video some reference step shows at their middle,
    (ceil(duration),)."""
    middles = np.arange(math.ceil(duration - 1e-9), dtype=np.float64) + 0.5
    return _inside(middles, record.reference)


def _said(record: Record, spans: Sequence[Span], vectors: Matrix | None, width: int) -> Matrix:
    """Return (S, E): the mean vector of the sentences that overlap each segment."""
    said = np.zeros((len(spans), width), dtype=np.float32)
    if not width:
        return said
    if vectors is None or vectors.shape != (len(record.sentences), width):
        shape = None if vectors is None else vectors.shape
        raise ShapeError(
            f"{record.id}: sentence vectors must be {(len(record.sentences), width)}, not {shape}"
        )
    for k, span in enumerate(spans):
        rows = [
            row for row, sentence in enumerate(record.sentences) if sentence.span.overlap(span) > 0
        ]
        if rows:
            said[k] = vectors[rows].mean(axis=0)
    return said


def _inside(times: npt.NDArray[np.floating], steps: Sequence[Step]) -> Mask:
    """Return at which times, (N,), some step is shown."""
    inside = np.zeros(len(times), dtype=np.bool_)
    for step in steps:
        for shown in step.spans:
            inside |= (times >= shown.start) & (times < shown.end)
    return inside
