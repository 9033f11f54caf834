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
    """One video: pictures (S, C), speech (S, E) with zeros where nobody speaks, matters (S,) in [0,
    1].

    Raises ShapeError when the arrays do not fit together, are empty, or hold NaN.
    """

    id: str
    pictures: Matrix
    speech: Matrix
    matters: Importance

    def __post_init__(self) -> None:
        count = len(self.pictures)
        if not count:
            raise ShapeError(f"{self.id}: no segment; the video has no feature row")
        if len(self.speech) != count or self.matters.shape != (count,):
            raise ShapeError(f"{self.id}: {count} segments need as much speech and as many labels")
        arrays = (self.pictures, self.speech, self.matters)
        if not all(np.isfinite(values).all() for values in arrays):
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
    pictures = np.stack([features.values[features.rows(span)].mean(axis=0) for span in spans])
    speech = _speech(record, spans, vectors, settings.text_width)
    matters = np.zeros(count, dtype=np.float32)
    for k, span in enumerate(spans):
        # the fraction of a segment's tenths of a second that some step shows
        tenths = span.start + (np.arange(round(span.duration * 10)) + 0.5) / 10
        matters[k] = _inside(tenths, record.reference).mean()
    return SegmentedVideo(record.id, pictures.astype(np.float32), speech, matters)


def shown_seconds(record: Record, duration: float) -> Mask:
    """Return which seconds of a video some reference step shows at their middle,
    (ceil(duration),)."""
    middles = np.arange(math.ceil(duration - 1e-9), dtype=np.float64) + 0.5
    return _inside(middles, record.reference)


def _speech(record: Record, spans: Sequence[Span], vectors: Matrix | None, width: int) -> Matrix:
    """Return (S, E): the mean vector of the sentences that overlap each segment."""
    speech = np.zeros((len(spans), width), dtype=np.float32)
    if not width:
        return speech
    shape = None if vectors is None else vectors.shape
    expected = (len(record.sentences), width)
    if vectors is None or shape != expected:
        raise ShapeError(f"{record.id}: sentence vectors must be {expected}, not {shape}")
    for k, span in enumerate(spans):
        overlapping = [sentence.span.overlap(span) > 0 for sentence in record.sentences]
        if any(overlapping):
            speech[k] = vectors[overlapping].mean(axis=0)
    return speech


def _inside(times: npt.NDArray[np.floating], steps: Sequence[Step]) -> Mask:
    """Return at which times, (N,), some step is shown."""
    inside = np.zeros(len(times), dtype=np.bool_)
    for step in steps:
        for span in step.spans:
            inside |= (times >= span.start) & (times < span.end)
    return inside
