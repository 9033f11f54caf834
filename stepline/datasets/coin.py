"""COIN: steps of 180 everyday tasks.

    {"database": {id: {class, duration, subset, annotation: [{id, segment: [start, end], label}]}}}

The spans of one step id make one reference step.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import read_node
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder

FILE_NAME = "COIN.json"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video."""
    for id, video in read_node(path, FILE_NAME)["database"].entries():
        duration = video.optional_number("duration")
        builder = RecordBuilder(id, duration=duration)
        rows = video["annotation"].rows()
        for row in rows:
            step_id = row["id"].name()
            label = row["label"].text()
            start, end = row["segment"].pair()
            builder.add_span(step_id, label, start, end)
        subset = video.optional_text("subset")
        task = video.optional_text("class")
        yield builder.entry(subset=subset, task=task)
