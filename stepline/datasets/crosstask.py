"""CrossTask: the steps of 18 primary tasks in instructional videos, from its release folder.

    tasks_primary.txt, tasks_related.txt   blocks of id, title, url, number of steps, steps by commas, an empty line
    videos.csv, videos_val.csv             task,video,url
    annotations/{task}_{video}.csv         step (from 1),start,end   seconds

Record.id is "{task}_{video}", as the annotation files are named. The reference holds every step of
the task, id = its number; one that no row of the file names has no spans. Videos without an
annotation file are rejected, as are the related tasks, which have no annotations at all. The videos
of videos_val.csv are subset "val", all others "train": the benchmark draws its test sets from them
at random.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepline.datasets.files import find_file, read_headless_csv, read_text
from stepline.datasets.record_builder import DatasetEntry, RecordBuilder, rejected_entry
from stepline.errors import DatasetError

TASKS = ("tasks_primary.txt", "tasks_related.txt")
VIDEOS, VALIDATION = "videos.csv", "videos_val.csv"
BLOCK = 5  # lines of a task: id, title, url, number of steps, steps
NO_FILE = "has no annotation file"
NO_TASK = "its task is in no tasks file"
NO_STEP = "names a step number that the task does not have"


@dataclass(frozen=True)
class TaskSteps:
    """A task: its wikiHow id, title and steps in order."""

    id: str
    title: str
    steps: tuple[str, ...]


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry a (task, video) pair of videos.csv; `path` is the release's folder."""
    if not path.is_dir():
        raise DatasetError(
            f"{path}: is not the folder of the CrossTask release; unpack its zip and give it"
        )
    tasks = {
        task.id: task
        for name in TASKS
        if (file := find_file(path, name))
        for task in read_tasks(file)
    }
    held_file = find_file(path, VALIDATION)
    held = (
        {(row[0], row[1]): None for _, row in read_headless_csv(held_file, 3)} if held_file else {}
    )
    videos = find_file(path, VIDEOS)
    if not tasks or videos is None:
        missing = VIDEOS if tasks else TASKS[0]
        raise DatasetError(f"{path}: holds no {missing}; give the folder of the CrossTask release")
    pairs = [(row[0], row[1]) for _, row in read_headless_csv(videos, 3)]
    listed = set(pairs)
    for task, video in [*pairs, *(pair for pair in held if pair not in listed)]:
        yield _read_pair(
            path, tasks.get(task), task, video, "val" if (task, video) in held else "train"
        )


def read_tasks(path: Path) -> Iterator[TaskSteps]:
    """Yield the tasks of a tasks file. Raises DatasetError where a block does not fit its own count
    of steps."""
    lines = [line.strip() for line in read_text(path).split("\n")]
    blocks = [block.split("\n") for block in "\n".join(lines).split("\n\n") if block.strip()]
    for block in blocks:
        rows = [line for line in block if line]
        if len(rows) != BLOCK or not rows[3].isdecimal():
            form = "id, title, url, number of steps, steps and an empty line"
            raise DatasetError(f"{path}: the block of {rows[0]!r} is not {form}; download it again")
        steps = tuple(step.strip() for step in rows[4].split(","))
        if len(steps) != int(rows[3]):
            counts = f"{rows[3]} steps by its count but {len(steps)} between commas"
            raise DatasetError(
                f"{path}: task {rows[0]} has {counts}; take the commas out of its step texts"
            )
        yield TaskSteps(rows[0], rows[1], steps)


def _read_pair(
    folder: Path, task: TaskSteps | None, task_id: str, video: str, subset: str
) -> DatasetEntry:
    id = f"{task_id}_{video}"
    if task is None:
        return rejected_entry(id, NO_TASK, subset=subset, value=task_id)
    file = find_file(folder, f"annotations/{id}.csv", f"{id}.csv")
    if file is None:
        return rejected_entry(id, NO_FILE, subset=subset, value=f"annotations/{id}.csv")
    builder = RecordBuilder(id, video=video)
    for number, text in enumerate(task.steps, start=1):
        builder.add_step(str(number), text)
    for line, (step, start, end) in read_headless_csv(file, 3):
        _add_annotation(builder, task, f"{file}: line {line}", step, start, end)
    return builder.entry(subset=subset, task=task.title, recipe=task.steps)


def _add_annotation(
    builder: RecordBuilder, task: TaskSteps, location: str, step: str, start: str, end: str
) -> None:
    try:
        number, times = int(step), (float(start), float(end))
    except ValueError as error:
        raise DatasetError(
            f"{location}: {step!r},{start!r},{end!r} is not step,start,end; download it again"
        ) from error
    if 1 <= number <= len(task.steps):
        builder.add_span(str(number), task.steps[number - 1], *times, keep=True)
    else:
        builder.reject("span", "", NO_STEP, f"{number} of {len(task.steps)}")
