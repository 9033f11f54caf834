"""Public datasets and other systems' outputs: read into Records and segments, and written as
submissions.

reading = read("youcook2", "youcookii_annotations_trainval.json", subset="validation")
for row in reading.rejected: ...      # what was left out, and why
read_predictions("results.json")      # a results file, a list of segments, a folder of records
write_densevid(...)                   # submission files
"""

from stepline.datasets.predictions import PredictedSegment, SegmentPredictions, read_predictions
from stepline.datasets.record_builder import DatasetRecords
from stepline.datasets.registry import DATASETS, describe, read, stream
from stepline.datasets.submissions import (
    segments,
    write_densevid,
    write_htstep_grounding,
    write_htstep_result,
)

__all__ = [
    "DATASETS",
    "DatasetRecords",
    "PredictedSegment",
    "SegmentPredictions",
    "describe",
    "read",
    "read_predictions",
    "segments",
    "stream",
    "write_densevid",
    "write_htstep_grounding",
    "write_htstep_result",
]
