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
    root = read_node(path, FILE_NAME)
    videos = root.rows()
    for video in videos:
        transcript = video["transcript"]
        spoken = transcript.texts()
        title = video.optional_text("video_title")
        id = video["video_id"].name()
        builder = RecordBuilder(id)
        sentence_count = len(spoken)
        segments = video["segments"].rows()
        for index, segment in enumerate(segments):
            step_id = str(index)
            _add_segment(builder, step_id, segment, sentence_count)
        yield builder.entry(title=title, spoken=spoken)


def _add_segment(builder: RecordBuilder, id: str, segment: Node, sentence_count: int) -> None:
    text = segment["title"].text()
    first, last = segment["sentence_indexes"].span()
    is_whole = first.is_integer() and last.is_integer()
    is_in_transcript = 0 <= first <= last < sentence_count
    if not (is_whole and is_in_transcript):
        indexes = f"{first:g} to {last:g} of {sentence_count}"
        builder.reject("step", text, NO_SENTENCES, indexes)
        return
    first_index = int(first)
    last_index = int(last)
    sources = range(first_index, last_index + 1)
    timestamps = segment["timestamps"]
    start, end = timestamps.span()
    builder.add_span(id, text, start, end, sources=sources)
