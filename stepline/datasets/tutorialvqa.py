"""TutorialVQA: narrated Photoshop tutorials with labelled parts.

    videos.json   [{video_id, video_title, transcript: [sentence],
                    segments: [{title, timestamps: {start, end}, sentence_indexes: {start, end}}]}]

Times are seconds, written as text. The sentences carry no time of their own, so they go to
`DatasetEntry.spoken` and not to a Transcript. A reference step's `sources` are their indices. The
questions (train, dev and test.json) are not read.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_node
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder

FILE_NAME = "videos.json"
NO_SENTENCES = "its sentence indexes are not in the transcript"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video."""
    for video in read_node(path, FILE_NAME).rows():
        spoken = video["transcript"].texts()
        title = video.optional_text("video_title")
        builder = RecordBuilder(video["video_id"].name())
        sentence_count = len(spoken)
        for index, segment in enumerate(video["segments"].rows()):
            _add_segment(builder, str(index), segment, sentence_count)
        yield builder.entry(title=title, spoken=spoken)


def _add_segment(builder: RecordBuilder, id: str, segment: Node, sentence_count: int) -> None:
    text = segment["title"].text()
    first, last = segment["sentence_indexes"].span()
    is_whole = first.is_integer() and last.is_integer()
    if not (is_whole and 0 <= first <= last < sentence_count):
        indexes = f"{first:g} to {last:g} of {sentence_count}"
        builder.reject("step", text, NO_SENTENCES, indexes)
        return
    sources = range(int(first), int(last) + 1)
    start, end = segment["timestamps"].span()
    builder.add_span(id, text, start, end, sources=sources)
