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
    """Yield one entry a video."""
    for id, video in read_node(path, FILE_NAME)["database"].entries():
        builder = RecordBuilder(id, duration=video.optional_number("duration"))
        for row in video["annotation"].rows():
            builder.add_span(row["id"].name(), row["label"].text(), *row["segment"].pair())
        yield builder.entry(subset=video.optional_text("subset"), task=video.optional_text("class"))
