"""HTM-Align: narrations of 80 HowTo100M videos, each labelled as visually alignable or not, and
where.

    {id: [[alignable 0 or 1, start, end, text], ...]}   seconds

Every sentence becomes a reference step whose id is its row. An alignable one has the span where it
is shown. A sentence that cannot be aligned has none, and `said` is its time in the speech. The file
does not give the speech times of alignable sentences, so there is no transcript.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepline.datasets.files import Node, read_node
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder

FILE_NAME = "htm_align.json"
ALIGNMENT_LABELS = (0, 1)  # cannot be aligned, alignable


@dataclass(frozen=True)
class AlignRow:
    """One annotated sentence of HTM-Align.

    Attributes:
        alignable: whether some part of the video shows the sentence.
        start: start in seconds. It may equal the end, or lie outside the video.
        end: end in seconds.
        text: the sentence.
    """

    alignable: bool
    start: float
    end: float
    text: str


def read_rows(path: Path) -> Iterator[tuple[str, list[AlignRow]]]:
    """Yield (video id, all rows of the video), whatever their times are.

    The official evaluators count the rows in the same way.
    """
    for id, video in read_node(path, FILE_NAME).entries():
        yield id, [_parse_row(row) for row in video.rows()]


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video. An alignable sentence with an empty span is rejected."""
    for id, rows in read_rows(path):
        builder = RecordBuilder(id)
        for index, row in enumerate(rows):
            if row.alignable:
                builder.add_span(str(index), row.text, row.start, row.end)
            else:
                speech = builder.validate_span(row.start, row.end, row.text)
                builder.add_step(str(index), row.text, speech=speech)
        yield builder.build_entry()


def _parse_row(row: Node) -> AlignRow:
    cells = list(row.rows())
    if len(cells) != 4 or cells[0].value not in ALIGNMENT_LABELS:
        raise row.error("[0 or 1, start, end, text]")
    alignable, start, end, text = cells
    return AlignRow(bool(alignable.value), start.number(), end.number(), text.text())
