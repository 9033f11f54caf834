"""Outputs of other systems, and Stepline's own, as segments: (start, end, sentence, score) by
video."""

from stepline.datasets.predictions.read import read_predictions
from stepline.datasets.predictions.types import PredictedSegment, SegmentPredictions

__all__ = ["PredictedSegment", "SegmentPredictions", "read_predictions"]
