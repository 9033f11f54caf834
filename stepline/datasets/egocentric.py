"""Egocentric videos: CaptainCook4D, Ego4D Goal-Step and the narrations of EPIC_FILES-KITCHENS-100.

CaptainCook4D  complete_step_annotations.json  {id: {activity_name, steps: [{step_id, start_time, end_time,
                                                description}]}}
Goal-Step      goalstep_{train,valid}.json     {"videos": [{video_uid, goal_description, segments: [{start_time,
                                                end_time, step_description, segments: [...]}]}]}
EPIC_FILES-100       EPIC_100_{train,validation}.csv  narration_id,video_id,start_timestamp,stop_timestamp,narration
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from stepline.datasets.files import Node, read_csv, read_node, split_files, stem
from stepline.datasets.record_builder import REPEATED_ID, DatasetEntry, RecordBuilder
from stepline.errors import DatasetError

COOK4D_FILE = "complete_step_annotations.json"
GOALSTEP_FILES = ("goalstep_train.json", "goalstep_valid.json")
EPIC_FILES = ("EPIC_100_train.csv", "EPIC_100_validation.csv")
EPIC_COLUMNS = ("narration_id", "video_id", "start_timestamp", "stop_timestamp", "narration")
SECONDS_PER_HOUR = 3600
SECONDS_PER_MINUTE = 60


def read_captaincook4d(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per recording. A step that was left out (-1) stays in the reference without
    a span.

    The marks of errors are not read. The spans of one step id make one step.
    """
    for id, recording in read_node(path, COOK4D_FILE).entries():
        builder = RecordBuilder(id)
        rows = recording["steps"].rows()
        for row in rows:
            step_id = row["step_id"].name()
            description = row["description"].text()
            start, end = row.span("start_time", "end_time")
            builder.add_span(step_id, description, start, end, keep=True)
        task = recording.optional_text("activity_name")
        yield builder.entry(task=task)


def read_goalstep(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per video. The id of a substep is the step's with a dot: "3.1". The length
    of a video is not stated."""
    for file in _files(path, GOALSTEP_FILES):
        subset = _split_name(file)
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
    for file in _files(path, EPIC_FILES):
        subset = _split_name(file)
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


def _files(path: Path, names: Sequence[str]) -> list[Path]:
    either = " nor ".join(names)
    lack = f"holds neither {either}; `stepline datasets` says where to get them"
    return split_files(path, names, lack)


def _split_name(file: Path) -> str:
    """Return a file's split, the last word of its name."""
    name = stem(file.name)
    return name.split("_")[-1]


def _clock_seconds(clock: str, location: str) -> float:
    """Return the seconds of HH:MM:SS.ss."""
    try:
        hours, minutes, seconds = clock.split(":")
        whole_seconds = SECONDS_PER_HOUR * int(hours) + SECONDS_PER_MINUTE * int(minutes)
        return whole_seconds + float(seconds)
    except ValueError as error:
        fault = f"{clock!r} is not a time HH:MM:SS.ss"
        raise DatasetError(f"{location}: {fault}; download the file again") from error
