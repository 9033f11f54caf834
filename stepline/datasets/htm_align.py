"""HTM-Align: narrations of 80 HowTo100M videos, each marked as alignable with the picture or not, and where.

    {id: [[alignable 0 or 1, start, end, text], ...]}   seconds

Every sentence becomes a reference step whose id is its row. An alignable one has the span where it is shown; a
sentence that cannot be aligned has none, and `said` is its time in the speech. The file does not give the speech
times of alignable sentences, so there is no transcript.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, file_in, read_json
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder

NAME = "htm_align.json"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a video."""
    file = file_in(path, NAME)
    for id, video in Node(read_json(file), str(file)).entries():
        builder = RecordBuilder(id)
        for index, row in enumerate(video.rows()):
            cells = list(row.rows())
            if len(cells) != 4 or cells[0].value not in (0, 1):
                raise row.error("[0 or 1, start, end, text]")
            start, end, text = cells[1].number(), cells[2].number(), cells[3].text()
            if cells[0].value:
                builder.add_span(str(index), text, start, end)
            else:
                builder.add_step(str(index), text, said=builder.checked_span(start, end, text))
        yield builder.entry()
