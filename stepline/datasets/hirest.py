"""HiREST: step headings of HowTo100M videos that answer a query.

    {query: {"id.mp4": {relevant, clip, v_duration, bounds, steps: [{index, heading,
    absolute_bounds: [start, end]}]}}}

Record.id is "{id}|{query}", since one video may answer several queries. Videos that do not answer
their query, or of which no part does, are rejected. An item whose steps were not annotated has an
empty reference.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_node, split_files, stem
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder, rejected_entry

FILE_NAMES = ("all_data_train.json", "all_data_val.json", "all_data_test.json")
SPLIT_NAMES = ("train", "val", "test")
NO_FILES = f"holds none of {', '.join(FILE_NAMES)}; give the folder data/splits of the repository"
NOT_RELEVANT = "does not answer its query"
NO_CLIP = "no single part of it answers its query"


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a (query, video) pair of a file, or of the three files in the splits
    folder."""
    for file in split_files(path, FILE_NAMES, NO_FILES, ("", "splits/", "data/splits/")):
        words = stem(file.name).split("_")
        subset = next((word for word in words if word in SPLIT_NAMES), None)
        for query, videos in read_node(file).entries():
            for name, item in videos.entries():
                yield _item(query, name, item, subset)


def _item(query: str, name: str, item: Node, subset: str | None) -> DatasetEntry:
    video = name.removesuffix(".mp4")
    id = f"{video}|{query}"
    for key, reason in (("relevant", NOT_RELEVANT), ("clip", NO_CLIP)):
        if item[key].value is False:
            return rejected_entry(id, reason, subset=subset)
    builder = RecordBuilder(id, video=video, duration=item["v_duration"].number())
    for index, row in enumerate(item["steps"].rows()):
        builder.add_span(str(index), row["heading"].text(), *row["absolute_bounds"].pair())
    return builder.entry(subset=subset, task=query)
