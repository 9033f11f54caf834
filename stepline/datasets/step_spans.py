"""Datasets whose videos have a list of steps with spans: COIN, HiREST, CaptainCook4D, Ego4D
Goal-Step and the narrations of EPIC-KITCHENS-100.

COIN           COIN.json                       {"database": {id: {class, duration, subset,
                                                annotation: [{id, segment: [start, end], label}]}}}
HiREST         all_data_{train,val,test}.json  {query: {"id.mp4": {relevant, clip, v_duration, bounds,
                                                steps: [{index, heading, absolute_bounds: [start, end]}]}}}
CaptainCook4D  complete_step_annotations.json  {id: {activity_name, steps: [{step_id, start_time, end_time,
                                                description}]}}
Goal-Step      goalstep_{train,valid}.json     {"videos": [{video_uid, goal_description, segments: [{start_time,
                                                end_time, step_description, segments: [...]}]}]}
EPIC-KITCHENS  EPIC_100_{train,validation}.csv narration_id,video_id,start_timestamp,stop_timestamp,narration
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from stepline.datasets.files import Node, read_csv, read_node, split_files, stem
from stepline.datasets.record_builder import (
    REPEATED_ID,
    DatasetEntry,
    RecordBuilder,
    rejected_entry,
)
from stepline.errors import DatasetError

COIN_FILE = "COIN.json"
HIREST_FILES = ("all_data_train.json", "all_data_val.json", "all_data_test.json")
COOK4D_FILE = "complete_step_annotations.json"
GOALSTEP_FILES = ("goalstep_train.json", "goalstep_valid.json")
EPIC_FILES = ("EPIC_100_train.csv", "EPIC_100_validation.csv")
EPIC_COLUMNS = ("narration_id", "video_id", "start_timestamp", "stop_timestamp", "narration")
SECONDS_PER_HOUR = 3600
SECONDS_PER_MINUTE = 60


def read_coin(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video. The spans of one step id make one reference step."""
    for id, video in read_node(path, COIN_FILE)["database"].entries():
        builder = RecordBuilder(id, duration=video.optional_number("duration"))
        for row in video["annotation"].rows():
            start, end = row["segment"].pair()
            builder.add_span(row["id"].name(), row["label"].text(), start, end)
        subset = video.optional_text("subset")
        yield builder.entry(subset=subset, task=video.optional_text("class"))


HIREST_FOLDERS = ("", "splits/", "data/splits/")  # of the files, below the folder of a user
HIREST_SPLITS = ("train", "val", "test")
NO_HIREST_FILES = (
    f"holds none of {', '.join(HIREST_FILES)}; give the folder data/splits of the repository"
)
NOT_RELEVANT = "does not answer its query"
NO_CLIP = "no single part of it answers its query"
REASONS_BY_FLAG = {"relevant": NOT_RELEVANT, "clip": NO_CLIP}  # why an item is rejected


def read_hirest(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per (query, video) pair of a file, or of the three files in the splits
    folder.

    Record.id is "{id}|{query}", since one video may answer several queries. Videos that do not
    answer their query, or have no part that does, are rejected. An item whose steps were not
    annotated has an empty reference.
    """
    for file in split_files(path, HIREST_FILES, NO_HIREST_FILES, HIREST_FOLDERS):
        words = stem(file.name).split("_")
        subset = next((word for word in words if word in HIREST_SPLITS), None)
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
        heading = row["heading"].text()
        start, end = row["absolute_bounds"].pair()
        builder.add_span(str(index), heading, start, end)
    return builder.entry(subset=subset, task=query)


def read_captaincook4d(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per recording. A step that was left out (-1) stays in the reference without
    a span.

    The marks of errors are not read. The spans of one step id make one step.
    """
    for id, recording in read_node(path, COOK4D_FILE).entries():
        builder = RecordBuilder(id)
        for row in recording["steps"].rows():
            step_id = row["step_id"].name()
            description = row["description"].text()
            start, end = row.span("start_time", "end_time")
            builder.add_span(step_id, description, start, end, keep=True)
        yield builder.entry(task=recording.optional_text("activity_name"))


def read_goalstep(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video. The id of a substep is the step's with a dot: "3.1". The length
    of a video is not stated."""
    for file, subset in _files(path, GOALSTEP_FILES):
        for video in read_node(file)["videos"].rows():
            builder = RecordBuilder(video["video_uid"].name())
            _add_segments(builder, video, prefix="")
            task = video.optional_text("goal_description", "goal_category")
            yield builder.entry(subset=subset, task=task)


def _add_segments(builder: RecordBuilder, parent: Node, prefix: str) -> None:
    for number, row in enumerate(parent.optional_rows("segments"), start=1):
        id = f"{prefix}{number}"
        text = row.optional_text("step_description", "step_category") or ""
        start, end = row.span("start_time", "end_time")
        builder.add_span(id, text, start, end)
        _add_segments(builder, row, f"{id}.")


def read_epic(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video: what is done and when. The second at which it was narrated
    afterwards is not read."""
    for file, subset in _files(path, EPIC_FILES):
        builders: dict[str, RecordBuilder] = {}
        for line, row in read_csv(file, EPIC_COLUMNS):
            video_id = row["video_id"]
            narration_id = row["narration_id"]
            narration = row["narration"]
            if video_id not in builders:
                builders[video_id] = RecordBuilder(video_id)
            builder = builders[video_id]
            location = f"{file}: line {line}"
            start = _clock_seconds(row["start_timestamp"], location)
            end = _clock_seconds(row["stop_timestamp"], location)
            if narration_id in builder.steps:
                builder.reject("step", narration, REPEATED_ID, narration_id)
            else:
                builder.add_span(narration_id, narration, start, end)
        for builder in builders.values():
            yield builder.entry(subset=subset)


def _files(path: Path, names: Sequence[str]) -> list[tuple[Path, str]]:
    """Return the files of a dataset, each with its split, the last word of its name."""
    either = " nor ".join(names)
    lack = f"holds neither {either}; `stepline datasets` says where to get them"
    files = split_files(path, names, lack)
    return [(file, stem(file.name).split("_")[-1]) for file in files]


def _clock_seconds(clock: str, location: str) -> float:
    """Return the seconds of HH:MM:SS.ss."""
    try:
        hours, minutes, seconds = clock.split(":")
        whole_seconds = SECONDS_PER_HOUR * int(hours) + SECONDS_PER_MINUTE * int(minutes)
        return whole_seconds + float(seconds)
    except ValueError as error:
        fault = f"{clock!r} is not a time HH:MM:SS.ss"
        raise DatasetError(f"{location}: {fault}; download the file again") from error
