"""COIN: steps of 180 everyday tasks.

    {"database": {id: {class, duration, subset, annotation: [{id, segment: [start, end], label}]}}}

The spans of one step id stand together in one reference step.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, file_in, read_json
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder

NAME = "COIN.json"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a video."""
    file = file_in(path, NAME)
    for id, video in Node(read_json(file), str(file))["database"].entries():
        duration = video.get("duration")
        builder = RecordBuilder(id, duration=duration.number() if duration else None)
        for row in video["annotation"].rows():
            builder.add_span(row["id"].name(), row["label"].text(), *row["segment"].pair())
        yield builder.entry(subset=video.optional_text("subset"), task=video.optional_text("class"))
