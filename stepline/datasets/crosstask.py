"""CrossTask: the steps of 18 primary tasks in instructional videos, from its release folder.

    tasks_primary.txt, tasks_related.txt   blocks of id, title, url, number of steps, steps with commas, an empty line
    videos.csv, videos_val.csv             task,video,url
    annotations/{task}_{video}.csv         step (from 1),start,end   seconds

Record.id is "{task}_{video}", as the annotation files are named. The reference holds every step of
the task, id = its number. One that no row of the file names has no spans. Videos without an
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

TASK_FILES = ("tasks_primary.txt", "tasks_related.txt")
VIDEOS_FILE = "videos.csv"
VALIDATION_FILE = "videos_val.csv"
LINES_PER_TASK = 5  # of a block: id, title, url, number of steps, steps
VideoKey = tuple[str, str]  # task, video

NO_FILE = "has no annotation file"
NO_TASK = "its task is in no tasks file"
NO_STEP = "names a step number that the task does not have"


@dataclass(frozen=True)
class TaskDescription:
    """A task of the CrossTask release.

    Attributes:
        id: id of the wikiHow article.
        title: title of the article.
        steps: texts of the steps in their order.
    """

    id: str
    title: str
    steps: tuple[str, ...]


def read(path: Path) -> Iterator[DatasetEntry]:
    """Yield one entry per (task, video) pair of videos.csv. path: the folder of the release."""
    primary_file, related_file = TASK_FILES
    task_paths = [find_release_file(path, primary_file)]
    related_path = find_file(path, related_file)
    if related_path is not None:
        task_paths.append(related_path)
    tasks = {task.id: task for task_path in task_paths for task in read_tasks(task_path)}
    videos = _read_pairs(find_release_file(path, VIDEOS_FILE))
    validation = read_validation_pairs(path)
    for key in videos | validation:
        subset = "val" if key in validation else "train"
        yield _read_video(path, tasks.get(key[0]), key, subset)


def find_release_file(folder: Path, name: str) -> Path:
    """Return the path of a file in the release's folder. Raises DatasetError if it is missing."""
    if not folder.is_dir():
        raise DatasetError(
            f"{folder}: is not the folder of the CrossTask release; unpack its zip and give it"
        )
    file = find_file(folder, name)
    if file is None:
        raise DatasetError(f"{folder}: holds no {name}; give the folder of the CrossTask release")
    return file


def read_validation_pairs(folder: Path) -> dict[VideoKey, None]:
    """Return the (task id, video id) pairs of the validation split, as keys in file order.

    The values are None: the dictionary serves as an ordered set.
    """
    file = find_file(folder, VALIDATION_FILE)
    return {} if file is None else _read_pairs(file)


def _read_pairs(file: Path) -> dict[VideoKey, None]:
    return {(task, video): None for _, (task, video, _) in read_headless_csv(file, 3)}


def read_tasks(path: Path) -> Iterator[TaskDescription]:
    """Yield the tasks of a tasks file of CrossTask, such as tasks_primary.txt: id, title and steps
    of each.

    Raises DatasetError for a task whose number of steps differs from the number that it states.
    """
    lines = [line.strip() for line in read_text(path).split("\n")]
    # empty lines end blocks
    for block in "\n".join(lines).split("\n\n"):
        rows = [line for line in block.split("\n") if line]
        if not rows:
            continue
        if len(rows) != LINES_PER_TASK or not rows[3].isdecimal():
            raise DatasetError(
                f"{path}: the block of {rows[0]!r} is not id, title, url, number of steps, steps "
                "and an empty line; download it again"
            )
        id, title, _, count, step_line = rows
        steps = [step.strip() for step in step_line.split(",")]
        if len(steps) != int(count):
            raise DatasetError(
                f"{path}: task {id} has {count} steps by its count but {len(steps)} between "
                "commas; take the commas out of its step texts"
            )
        yield TaskDescription(id, title, tuple(steps))


def read_annotation(path: Path) -> Iterator[tuple[int, float, float]]:
    """Yield (step number, start, end) of each row of an annotation file.

    Step numbers begin at 1, times are in seconds.
    """
    for line, (step, start, end) in read_headless_csv(path, 3):
        try:
            yield int(step), float(start), float(end)
        except ValueError as error:
            raise DatasetError(
                f"{path}: line {line}: {step!r},{start!r},{end!r} is not step,start,end; download "
                "it again"
            ) from error


def _read_video(
    folder: Path, task: TaskDescription | None, key: VideoKey, subset: str
) -> DatasetEntry:
    id = "_".join(key)
    task_id, video = key
    if task is None:
        return rejected_entry(id, NO_TASK, subset=subset, value=task_id)
    file_name = f"annotations/{id}.csv"
    file = find_file(folder, file_name, f"{id}.csv")
    if file is None:
        return rejected_entry(id, NO_FILE, subset=subset, value=file_name)
    builder = RecordBuilder(id, video=video)
    for number, text in enumerate(task.steps, start=1):
        builder.add_step(str(number), text)
    for number, start, end in read_annotation(file):
        if 1 <= number <= len(task.steps):
            builder.add_span(str(number), task.steps[number - 1], start, end, keeps_step=True)
        else:
            builder.reject("span", "", NO_STEP, f"{number} of {len(task.steps)}")
    return builder.build_entry(subset=subset, task=task.title, recipe=task.steps)
