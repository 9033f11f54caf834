"""WikiHow Summaries, IV-Sum's annotation file: which frames of each video belong in its summary."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from stepline.datasets.node import Node
from stepline.datasets.source import read_json
from stepline.errors import DatasetError
from stepline.records import Record, Span, Step, Video

RATE = 8.0  # frames a second; IV-Sum takes 32 a segment


def read_frames(path: Path, rate: float = RATE) -> Iterator[Record]:
    """Yield a record a video of {video: [0 or 1 a frame]}; each run of ones is a reference step.

    Raises DatasetError for other numbers, or a file of another form.
    """
    for id, node in Node(read_json(path), str(path)).entries():
        try:
            frames = np.asarray(node.value, dtype=np.float64)
        except (TypeError, ValueError):
            frames = np.full(1, np.nan)
        if frames.ndim != 1 or not np.isin(frames, (0.0, 1.0)).all():
            raise DatasetError(f"{path}: {id}: not a list of 0 and 1, one a frame; give IV-Sum's annotation file")
        edges = np.flatnonzero(np.diff(frames, prepend=0.0, append=0.0)).reshape(-1, 2) / rate  # (runs, 2) seconds
        steps = tuple(
            Step(id=str(number), text=f"part {number}", spans=(Span(float(start), float(end)),))
            for number, (start, end) in enumerate(edges, start=1)
        )
        duration = len(frames) / rate
        yield Record(id=id, video=Video(id=id, duration=duration or None), reference=steps)
