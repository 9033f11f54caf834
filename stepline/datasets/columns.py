"""Texts with times in columns: HowToStep's steps and the narrations of HowTo100M (captions, sentencified, WhisperX).

    {id: {"start": [s], "end": [s], "text": [..]}}   in one file, or one such object a file named after its video
    {"segments": [{start, end, text, words}]}        WhisperX, one file a video; words may lack their times

The folder or the .tar.gz archive of such files is read as well.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_json_files
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder
from stepline.errors import DatasetError

COLUMNS = ("start", "end", "text")


def read_steps(path: Path) -> Iterator[DatasetEntry]:
    """Yield HowToStep's videos: steps that a language model wrote, with times that a model estimated."""
    for id, video in _videos(path):
        builder = RecordBuilder(id)
        for index, (start, end, text) in enumerate(_rows(video)):
            builder.add_span(str(index), text, start, end)
        yield builder.entry(machine=True)


def read_narrations(path: Path) -> Iterator[DatasetEntry]:
    """Yield HowTo100M's videos with what is said in them; overlapping and repeated cues are kept as they are."""
    for id, video in _videos(path):
        builder = RecordBuilder(id)
        for start, end, text in _rows(video):
            builder.add_sentence(text, start, end)
        yield builder.entry(language=video.optional_text("language"))


def _videos(path: Path) -> Iterator[tuple[str, Node]]:
    for location, stem, tree in read_json_files(path):
        root = Node(tree, location)
        if root.get(*COLUMNS) is not None or root.get("segments") is not None:
            yield stem or Path(location).name.partition(".")[0], root
        else:
            yield from root.entries()


def _rows(video: Node) -> list[tuple[float, float, str]]:
    segments = video.get("segments")
    if segments is not None:
        return [_segment(row) for row in segments.rows()]
    starts, ends, texts = (list(video[column].rows()) for column in COLUMNS)
    if not len(starts) == len(ends) == len(texts):
        counts = f"{len(starts)} starts, {len(ends)} ends and {len(texts)} texts"
        raise DatasetError(f"{video.location}: {counts}; the columns must be equally long")
    columns = zip(starts, ends, texts, strict=True)
    return [(start.number(), end.number(), text.text()) for start, end, text in columns]


def _segment(row: Node) -> tuple[float, float, str]:
    start, end = row.get("start"), row.get("end")  # WhisperX leaves them out where its alignment failed
    missing = float("nan")
    return start.number() if start else missing, end.number() if end else missing, row["text"].text()
