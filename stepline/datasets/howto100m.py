"""HowTo100M: its narrations (captions, sentencified, WhisperX), and HowToStep, the steps that a
language model wrote from them.

    {id: {"start": [s], "end": [s], "text": [..]}}   one file of many videos, or one file per video with its name
    {"segments": [{start, end, text, words}]}        WhisperX, one file per video; words may lack their times

A folder or a .tar.gz archive of such files is read as well.
"""

import math
from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_json_files
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder
from stepline.errors import DatasetError

VIDEO_KEYS = ("start", "end", "text", "segments")  # of one video's object


CaptionRow = tuple[str, float, float]  # text, start and end, NaN where not known


def read_steps(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video of HowToStep.

    A language model wrote the steps, and another model estimated their times.
    """
    for id, video in _read_videos(path):
        builder = RecordBuilder(id)
        for index, row in enumerate(caption_rows(video)):
            builder.add_span(str(index), *row)
        yield builder.build_entry(from_model=True)


def read_narrations(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video of HowTo100M, with its narration as sentences.

    Overlapping and repeated captions are kept as they are.
    """
    for id, video in _read_videos(path):
        builder = RecordBuilder(id)
        for row in caption_rows(video):
            builder.add_sentence(*row)
        yield builder.build_entry(language=video.optional_text("language"))


def _read_videos(path: Path) -> Iterator[tuple[str, Node]]:
    for location, name, tree in read_json_files(path):
        root = Node(tree, location)
        # A file of one video names it, a file of many has their ids as keys.
        if root.get(*VIDEO_KEYS) is None:
            yield from root.entries()
        else:
            yield name or Path(location).name.partition(".")[0], root


def caption_rows(video: Node) -> Iterator[CaptionRow]:
    """Yield the rows of a video's object, in either form. Raises DatasetError for columns of other
    lengths."""
    segments = video.get("segments")
    if segments is not None:
        for row in segments.rows():
            # WhisperX leaves the times out where its alignment failed.
            times = (row.optional_number(key) for key in ("start", "end"))
            seconds = [math.nan if time is None else time for time in times]
            yield row["text"].text(), seconds[0], seconds[1]
        return
    starts = list(video["start"].rows())
    ends = list(video["end"].rows())
    texts = list(video["text"].rows())
    if not len(starts) == len(ends) == len(texts):
        raise DatasetError(
            f"{video.location}: {len(starts)} starts, {len(ends)} ends and {len(texts)} texts; the "
            "columns must be equally long"
        )
    for text, start, end in zip(texts, starts, ends, strict=True):
        yield text.text(), start.number(), end.number()
