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
from stepline.models.training.batches import Mask
from stepline.models.wys2.settings import SummarizerSettings
from stepline.models.wys2.summary import Importance
from stepline.records import FeatureSequence, Matrix, Record, Span, Step

ROUNDING_SECONDS = 1e-9
TENTHS_PER_SECOND = 10


@dataclass(frozen=True)
class SegmentedVideo:
    """One video: pictures (S, C), speech (S, E) with zeros where there is no speech, matters (S,) in [0,
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
        label_shape = (count,)
        if len(self.speech) != count or self.matters.shape != label_shape:
            raise ShapeError(f"{self.id}: {count} segments need as much speech and as many labels")
        for values in (self.pictures, self.speech, self.matters):
            if not np.isfinite(values).all():
                raise ShapeError(f"{self.id}: features hold NaN or infinity; extract them again")


def segment_video(
    record: Record, features: FeatureSequence, vectors: Matrix | None, settings: SummarizerSettings
) -> SegmentedVideo:
    """Return a video's segments. A segment matters as far as its reference steps show it: half a
    segment is .5.

    vectors: (sentences, E) of the transcript, needed where the settings use speech.
    """
    seconds = settings.seconds
    count = math.ceil(features.duration / seconds - ROUNDING_SECONDS)
    if not count:
        raise ShapeError(f"{record.id}: no segment; the video has no feature row")
    spans = []
    # what is seen: the mean of a segment's feature rows
    means = []
    for k in range(count):
        start = k * seconds
        end = (k + 1) * seconds
        span = Span(start, end)
        rows = features.values[features.rows(span)]
        spans.append(span)
        means.append(rows.mean(axis=0))
    pictures = np.stack(means).astype(np.float32)
    speech = _speech(record, spans, vectors, settings.text_width)
    # the fraction of a segment's tenths of a second that some step shows
    matters = np.zeros(count, dtype=np.float32)
    for k, span in enumerate(spans):
        tenth_count = round(span.duration * TENTHS_PER_SECOND)
        middles = np.arange(tenth_count) + 0.5
        times = span.start + middles / TENTHS_PER_SECOND
        is_shown = _inside(times, record.reference)
        matters[k] = is_shown.mean()
    return SegmentedVideo(record.id, pictures, speech, matters)


def shown_seconds(record: Record, duration: float) -> Mask:
    """Return which seconds of a video some reference step shows at their middle,
    (ceil(duration),)."""
    count = math.ceil(duration - ROUNDING_SECONDS)
    middles = np.arange(count, dtype=np.float64) + 0.5
    return _inside(middles, record.reference)


def _speech(record: Record, spans: Sequence[Span], vectors: Matrix | None, width: int) -> Matrix:
    """Return (S, E): the mean vector of the sentences that overlap each segment."""
    shape = (len(spans), width)
    speech = np.zeros(shape, dtype=np.float32)
    if not width:
        return speech
    sentences = record.sentences
    expected = (len(sentences), width)
    if vectors is None or vectors.shape != expected:
        actual = None if vectors is None else vectors.shape
        raise ShapeError(f"{record.id}: sentence vectors must be {expected}, not {actual}")
    for k, span in enumerate(spans):
        overlapping = [sentence.span.overlap(span) > 0 for sentence in sentences]
        if any(overlapping):
            segment_vectors = vectors[overlapping]
            speech[k] = segment_vectors.mean(axis=0)
    return speech


def _inside(times: npt.NDArray[np.floating], steps: Sequence[Step]) -> Mask:
    """Return at which times, (N,), some step is shown."""
    count = len(times)
    inside = np.zeros(count, dtype=np.bool_)
    for step in steps:
        for span in step.spans:
            is_after_start = times >= span.start
            is_before_end = times < span.end
            inside |= is_after_start & is_before_end
    return inside
