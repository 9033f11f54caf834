"""Datasets whose videos have a list of steps with spans: COIN, HiREST, and Qualcomm Interactive
Cooking.

COIN      COIN.json                       {"database": {id: {class, duration, subset,
                                           annotation: [{id, segment: [start, end], label}]}}}
HiREST    all_data_{train,val,test}.json  {query: {"id.mp4": {relevant, clip, v_duration, bounds,
                                           steps: [{index, heading, absolute_bounds: [start, end]}]}}}
Interactive Cooking
          {set}_{split}.json              [{video_id, activity_name, output_texts, output_timestamps,
                                           output_types, output_actions, remaining_plan}]
          {set}/{split}-*.parquet         the same rows, as the data set is served now
                                          set: main, advanced_planning; split: train, val(idation), test

Interactive Cooking is what an assistant says to people who cook, and when, in videos of
CaptainCook4D. An instruction is a reference step. Its span goes from the second in which it is given
to that of the next one. A `feedback_finish_all`, when the person has done it, ends it too. The last
instruction has no span where no such message follows. Feedback on successes and mistakes is not
read.
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, annotation_files, read_node, split_of_name
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder, rejected_entry
from stepline.errors import DatasetError, first_line
from stepline.files.parquet import ParquetError, ParquetReader

COIN_FILE = "COIN.json"


def read_coin(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video of COIN. All spans with one step id make one reference step."""
    for id, video in read_node(path, COIN_FILE)["database"].entries():
        builder = RecordBuilder(id, duration=video.optional_number("duration"))
        for row in video["annotation"].rows():
            start, end = row["segment"].pair()
            builder.add_span(row["id"].name(), row["label"].text(), start, end)
        subset = video.optional_text("subset")
        yield builder.build_entry(subset=subset, task=video.optional_text("class"))


HIREST_FILES = ("all_data_train.json", "all_data_val.json", "all_data_test.json")
HIREST_CURE = "give the folder data/splits of the repository"
# Why an item is rejected, by the flag that is false.
REASONS_BY_FLAG = {
    "relevant": "does not answer its query",
    "clip": "no single part of it answers its query",
}


def read_hirest(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per (query, video) pair of HiREST.

    The id of a record is "{video id}|{query}", since one video may answer several queries. A pair
    is rejected if the video does not answer the query, or if no part of the video answers it. A
    pair whose steps were not annotated has an empty reference.

    path: a file of one split, or the folder of all splits.
    """
    for file in annotation_files(path, ("all_data_*.json", "all_data_*.json.gz"), HIREST_CURE):
        subset = split_of_name(file.name)
        for query, videos in read_node(file).entries():
            for name, item in videos.entries():
                yield _hirest_item(query, name.removesuffix(".mp4"), item, subset)


def _hirest_item(query: str, video: str, item: Node, subset: str | None) -> DatasetEntry:
    id = f"{video}|{query}"
    for flag, reason in REASONS_BY_FLAG.items():
        if item[flag].value is False:
            return rejected_entry(id, reason, subset=subset)
    builder = RecordBuilder(id, video=video, duration=item["v_duration"].number())
    for index, row in enumerate(item["steps"].rows()):
        start, end = row["absolute_bounds"].pair()
        builder.add_span(str(index), row["heading"].text(), start, end)
    return builder.build_entry(subset=subset, task=query)


# ---------------------------------------------------------------- Interactive Cooking


INSTRUCTION_TYPE = "instruction"
FINISH_TYPE = "finish_all"  # part of the type of the message that ends a recipe
MESSAGE_COLUMNS = ("video_id", "activity_name", "output_texts", "output_timestamps", "output_types")
COOKING_CURE = "give main/ or advanced_planning/ of the data set, or one of its files"


def read_interactive_cooking(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per recording.

    path: a file of one split, or the folder of one set with a file per split.
    """
    for file in annotation_files(path, ("*.json", "*.parquet"), COOKING_CURE):
        subset = split_of_name(file.name)
        subset = "validation" if subset == "val" else subset
        for row in _read_recordings(file):
            yield _recording_entry(row, subset)


def _read_recordings(file: Path) -> Iterator[Node]:
    if file.suffix != ".parquet":
        yield from read_node(file).rows()
        return

    try:
        for index, row in enumerate(ParquetReader(file).rows(list(MESSAGE_COLUMNS))):
            yield Node(row, f"{file}: row {index}")
    except (ParquetError, KeyError) as error:
        reason = first_line(error)
        raise DatasetError(f"{file}: not a file of this data set ({reason})") from error


def _recording_entry(row: Node, subset: str | None) -> DatasetEntry:
    builder = RecordBuilder(row["video_id"].name())
    texts = row["output_texts"].texts()
    seconds = [second.number() for second in row["output_timestamps"].rows()]
    kinds = row["output_types"].texts()
    if not len(texts) == len(seconds) == len(kinds):
        raise DatasetError(
            f"{row.location}: {len(texts)} texts, {len(seconds)} times, {len(kinds)} types; give "
            "as many of each"
        )
    instructions = [index for index, kind in enumerate(kinds) if kind == INSTRUCTION_TYPE]
    finishes = [index for index, kind in enumerate(kinds) if FINISH_TYPE in kind]
    for number, index in enumerate(instructions):
        # An instruction lasts until the next one or the end of the recipe.
        end = min((other for other in (*instructions, *finishes) if other > index), default=None)
        if end is None:
            builder.add_step(str(number), texts[index])
        else:
            builder.add_span(
                str(number), texts[index], seconds[index], seconds[end], keeps_step=True
            )
    return builder.build_entry(subset=subset, task=row.optional_text("activity_name"))
