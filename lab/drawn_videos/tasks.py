"""What the generated videos are about: tasks with their steps, their wordings, and other talk."""

import json
import tomllib
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from pydantic import Field, ValidationError, model_validator

from lab.drawn_videos.motions import MOTIONS_BY_ACTION
from lab.drawn_videos.script import Place
from lab.drawn_videos.things import THINGS_BY_NAME
from stepline.errors import DatasetError
from stepline.records import FrozenModel

Line = Annotated[str, Field(min_length=1)]


class TaskStep(FrozenModel):
    """One step: its text, the action with its things, and the ways to say it."""

    text: Line
    action: str
    target: str
    item: str | None = None
    props: tuple[str, ...] = ()
    say: Annotated[tuple[Line, ...], Field(min_length=2)]

    @model_validator(mode="after")
    def _drawable(self) -> "TaskStep":
        if self.action not in MOTIONS_BY_ACTION:
            raise ValueError(f"no motion draws the action {self.action!r}")
        names = [self.target, *self.props]
        if self.item:
            names.append(self.item)
        for name in names:
            if name not in THINGS_BY_NAME:
                raise ValueError(f"no drawing shows {name!r}")
        return self


class Task(FrozenModel):
    """Something to teach, in a place, in order."""

    name: Line
    title: Line
    place: Place
    steps: Annotated[tuple[TaskStep, ...], Field(min_length=8, max_length=12)]


class Chat(FrozenModel):
    """What people say that is not a step. `{task}` is replaced by the task's name."""

    greeting: tuple[Line, ...]
    promise: tuple[Line, ...]
    sponsor: tuple[Line, ...]
    aside: tuple[Line, ...]
    outro: tuple[Line, ...]


T = TypeVar("T", Task, Chat)

TASK_FILES = ("cooking", "baking", "making", "repairing", "growing", "cleaning")


@cache
def read_tasks() -> tuple[Task, ...]:
    """Return every task, in the order of its file.

    Raises DatasetError for a task that cannot be drawn.
    """
    tasks: list[Task] = []
    for name in TASK_FILES:
        for tree in _read_toml(name)["task"]:
            tasks.append(_validated(Task, tree, name))
    return tuple(tasks)


@cache
def chat_lines() -> Chat:
    """Return the lines that are not steps."""
    return _validated(Chat, _read_toml("chat"), "chat")


def _read_toml(name: str) -> dict[str, Any]:
    folder = files("lab.drawn_videos").joinpath("tasks")
    text = folder.joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _validated(kind: type[T], tree: object, name: str) -> T:
    try:
        return kind.model_validate_json(json.dumps(tree))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise DatasetError(
            f"tasks/{name}.toml: {field}: {first['msg']}; correct that line"
        ) from error
