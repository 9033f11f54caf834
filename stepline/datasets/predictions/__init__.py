"""Outputs of other systems, and Stepline's own, as segments: (start, end, sentence, score) by
video."""

from stepline.datasets.predictions.pdvc import CUT_RULE, Cut
from stepline.datasets.predictions.read import read_predictions
from stepline.datasets.predictions.types import PredictedSegment, SegmentPredictions

__all__ = ["CUT_RULE", "Cut", "PredictedSegment", "SegmentPredictions", "read_predictions"]
