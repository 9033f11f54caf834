"""HiREST: step headings of HowTo100M videos that answer a query.

    {query: {"id.mp4": {relevant, clip, v_duration, bounds, steps: [{index, heading,
    absolute_bounds: [start, end]}]}}}

Record.id is "{id}|{query}", since one video may answer several queries. Videos that do not answer
their query, or have no part that does, are rejected. An item whose steps were not annotated has an
empty reference.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_node, split_files, stem
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder, rejected_entry

FILE_NAMES = ("all_data_train.json", "all_data_val.json", "all_data_test.json")
SPLIT_FOLDERS = ("", "splits/", "data/splits/")  # of the files, below the folder of a user
SPLIT_NAMES = ("train", "val", "test")
NO_FILES = f"holds none of {', '.join(FILE_NAMES)}; give the folder data/splits of the repository"
NOT_RELEVANT = "does not answer its query"
NO_CLIP = "no single part of it answers its query"
REASONS_BY_FLAG = {"relevant": NOT_RELEVANT, "clip": NO_CLIP}  # why an item is rejected


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per (query, video) pair of a file, or of the three files in the splits
    folder."""
    for file in split_files(path, FILE_NAMES, NO_FILES, SPLIT_FOLDERS):
        subset = _split_name(file)
        for query, videos in read_node(file).entries():
            for name, item in videos.entries():
                yield _item(query, name, item, subset)


def _split_name(file: Path) -> str | None:
    name = stem(file.name)
    for word in name.split("_"):
        if word in SPLIT_NAMES:
            return word
    return None


def _item(query: str, name: str, item: Node, subset: str | None) -> DatasetEntry:
    video = name.removesuffix(".mp4")
    id = f"{video}|{query}"
    for flag, reason in REASONS_BY_FLAG.items():
        value = item[flag].value
        if value is False:
            return rejected_entry(id, reason, subset=subset)
    duration = item["v_duration"].number()
    builder = RecordBuilder(id, video=video, duration=duration)
    for index, row in enumerate(item["steps"].rows()):
        step_id = str(index)
        heading = row["heading"].text()
        start, end = row["absolute_bounds"].pair()
        builder.add_span(step_id, heading, start, end)
    return builder.entry(subset=subset, task=query)
