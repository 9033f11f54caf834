"""Qualcomm Interactive Cooking: what an assistant says to people who cook, and when, in videos of
CaptainCook4D.

    {set}_{split}.json                    [{video_id, activity_name, output_texts, output_timestamps,
                                            output_types, output_actions, remaining_plan}]
    {set}/{split}-*.parquet               the same rows, as the data set is served now
                                          set: main, advanced_planning; split: train, val(idation), test

An instruction is a reference step. Its span goes from the second in which it is given to that of
the next one. A `feedback_finish_all`, when the person has done it, ends it too. The last
instruction has no span where no such message follows. Feedback on successes and mistakes is not
read.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_node
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder
from stepline.errors import DatasetError, first_line

INSTRUCTION_TYPE = "instruction"
FINISH_TYPE = "finish_all"  # part of the type of the message that ends a recipe
MESSAGE_COLUMNS = ("video_id", "activity_name", "output_texts", "output_timestamps", "output_types")
SPLIT_NAMES = {"train": "train", "val": "validation", "validation": "validation", "test": "test"}


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a recording of a file, or of each file of a folder of one set."""
    for file in _files_of(path):
        split = _split_of(file)
        for row in _rows(file):
            yield _entry(row, split)


def _files_of(path: Path) -> list[Path]:
    """Return a file itself, the files of a folder in order. Raises DatasetError without any."""
    if not path.is_dir():
        return [path]
    files = [*path.glob("*.json"), *path.glob("*.parquet")]
    if not files:
        cure = "give main/ or advanced_planning/ of the data set, or one of its files"
        raise DatasetError(f"{path}: holds neither .json nor .parquet; {cure}")
    return sorted(files)


def _rows(file: Path) -> Iterator[Node]:
    if file.suffix != ".parquet":
        yield from read_node(file).rows()
        return
    from stepline.files.parquet import ParquetError, ParquetReader

    try:
        rows = ParquetReader(file).rows(list(MESSAGE_COLUMNS))
        for number, row in enumerate(rows):
            yield Node(row, f"{file}: row {number}")
    except (ParquetError, KeyError) as error:
        reason = first_line(error)
        raise DatasetError(f"{file}: not a file of this data set ({reason})") from error


def _split_of(file: Path) -> str | None:
    """Return the split that the file's name ends with or, of Parquet, begins with."""
    stem, _, _ = file.name.partition(".")
    _, _, last_word = stem.rpartition("_")
    if last_word in SPLIT_NAMES:
        return SPLIT_NAMES[last_word]
    first_word, _, _ = stem.partition("-")
    return SPLIT_NAMES.get(first_word)


def _entry(row: Node, subset: str | None) -> DatasetEntry:
    builder = RecordBuilder(row["video_id"].name())
    texts = [text.text() for text in row["output_texts"].rows()]
    seconds = [second.number() for second in row["output_timestamps"].rows()]
    kinds = [kind.text() for kind in row["output_types"].rows()]
    if not len(texts) == len(seconds) == len(kinds):
        counts = f"{len(texts)} texts, {len(seconds)} times, {len(kinds)} types"
        raise DatasetError(f"{row.location}: {counts}; give as many of each")
    # outputs that are instructions, and those that end one
    instructions = [index for index, kind in enumerate(kinds) if kind == INSTRUCTION_TYPE]
    finishes = [index for index, kind in enumerate(kinds) if FINISH_TYPE in kind]
    marks = sorted({*instructions, *finishes})
    # an instruction lasts until the next mark
    for number, index in enumerate(instructions):
        ends = [seconds[mark] for mark in marks if mark > index]
        if ends:
            builder.add_span(str(number), texts[index], seconds[index], ends[0], keep=True)
        else:
            builder.add_step(str(number), texts[index])
    return builder.entry(subset=subset, task=row.optional_text("activity_name"))
