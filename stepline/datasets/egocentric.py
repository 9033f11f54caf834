"""Egocentric videos: CaptainCook4D, Ego4D Goal-Step and the narrations of EPIC_FILES-KITCHENS-100.

CaptainCook4D  complete_step_annotations.json  {id: {activity_name, steps: [{step_id, start_time, end_time,
                                                description}]}}
Goal-Step      goalstep_{train,valid}.json     {"videos": [{video_uid, goal_description, segments: [{start_time,
                                                end_time, step_description, segments: [...]}]}]}
EPIC_FILES-100       EPIC_100_{train,validation}.csv  narration_id,video_id,start_timestamp,stop_timestamp,narration
"""

from collections.abc import Iterator
from pathlib import Path

from stepline.datasets.files import Node, read_csv, read_node, split_files, stem
from stepline.datasets.record_builder import REPEATED_ID, DatasetEntry, RecordBuilder
from stepline.errors import DatasetError

COOK4D_FILE = "complete_step_annotations.json"
GOALSTEP_FILES = ("goalstep_train.json", "goalstep_valid.json")
EPIC_FILES = ("EPIC_100_train.csv", "EPIC_100_validation.csv")
EPIC_COLUMNS = ("narration_id", "video_id", "start_timestamp", "stop_timestamp", "narration")


def read_captaincook4d(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a recording. A step that was left out (-1) stays in the reference without a
    span.

    The marks of errors are not read. The spans of one step id make one step.
    """
    for id, recording in read_node(path, COOK4D_FILE).entries():
        builder = RecordBuilder(id)
        for row in recording["steps"].rows():
            times = row.span("start_time", "end_time")
            builder.add_span(row["step_id"].name(), row["description"].text(), *times, keep=True)
        yield builder.entry(task=recording.optional_text("activity_name"))


def read_goalstep(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a video; a substep's id is its step's with a dot: "3.1". The length of a
    video is not stated."""
    for file, subset in _split_files(path, GOALSTEP_FILES):
        for video in read_node(file)["videos"].rows():
            builder = RecordBuilder(video["video_uid"].name())
            _add_segments(builder, video, "")
            task = video.optional_text("goal_description", "goal_category")
            yield builder.entry(subset=subset, task=task)


def _add_segments(builder: RecordBuilder, parent: Node, prefix: str) -> None:
    for index, row in enumerate(parent.optional_rows("segments"), start=1):
        text = row.optional_text("step_description", "step_category") or ""
        builder.add_span(f"{prefix}{index}", text, *row.span("start_time", "end_time"))
        _add_segments(builder, row, f"{prefix}{index}.")


def read_epic(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a video: what is done and when. The second at which it was narrated
    afterwards is not read."""
    for file, subset in _split_files(path, EPIC_FILES):
        builders: dict[str, RecordBuilder] = {}
        for line, row in read_csv(file, EPIC_COLUMNS):
            builder = builders.setdefault(row["video_id"], RecordBuilder(row["video_id"]))
            start, end = (
                _clock_seconds(row[column], f"{file}: line {line}") for column in EPIC_COLUMNS[2:4]
            )
            if row["narration_id"] in builder.steps:
                builder.reject("step", row["narration"], REPEATED_ID, row["narration_id"])
            else:
                builder.add_span(row["narration_id"], row["narration"], start, end)
        for builder in builders.values():
            yield builder.entry(subset=subset)


def _split_files(path: Path, names: tuple[str, ...]) -> Iterator[tuple[Path, str]]:
    """Yield each file with its split, the last word of its name."""
    lack = f"holds neither {' nor '.join(names)}; `stepline datasets` says where to get them"
    for file in split_files(path, names, lack):
        yield file, stem(file.name).rpartition("_")[2]


def _clock_seconds(clock: str, location: str) -> float:
    """Return the seconds of HH:MM:SS.ss."""
    try:
        hours, minutes, seconds = clock.split(":")
        return 3600 * int(hours) + 60 * int(minutes) + float(seconds)
    except ValueError as error:
        raise DatasetError(
            f"{location}: {clock!r} is not a time HH:MM:SS.ss; download the file again"
        ) from error
