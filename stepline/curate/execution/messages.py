"""Messages between the pool and a worker process, and reasons of failure that name nothing of this
machine.

What is sent is a sequence of requests of one stage, and what comes back a list with a reply to
each.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from stepline.curate.plan import StageTask
from stepline.curate.stage import FailureKind, Recipe, Stage

ReplyKind: TypeAlias = Literal["done", "run"] | FailureKind


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker gets once. stages: of kind "video". out: URL of OUT.

    folders: local, of the dataset stages that are done, by stage.
    device: for the stages that use a GPU. Others run on the CPU.
    versions: of libraries (major.minor) by which the driver has named the results.
    """

    recipe: Recipe
    stages: Mapping[str, Stage]
    out: str
    folders: Mapping[str, Path] = field(default_factory=dict)
    device: str = "cpu"
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskRequest:
    """One task to do. files: where what it reads is on this machine: "media", "captions",
    "features".

    gpu: it is done on the worker's device, and waits for a worker that has a GPU. Else it is done
    on the CPU, by any.
    """

    task: StageTask
    files: Mapping[str, Path] = field(default_factory=dict)
    gpu: bool = False


@dataclass(frozen=True)
class WorkerReady:
    """A worker has started. wall, cpu: seconds that it took."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class TaskReply:
    """What became of a request. "done": its result is stored. "run": the whole run must end, as
    `reason` says.

    cpu, wall: seconds. peak_rss, bytes: bytes. first: the worker had not done this stage before, so
    its models loaded.
    """

    kind: ReplyKind
    reason: str = ""
    cpu: float = 0.0
    wall: float = 0.0
    peak_rss: int = 0
    bytes: int = 0
    first: bool = False
    notes: Mapping[str, float] = field(default_factory=dict)


MAX_REASON_CHARS = 400
# of two parts or more. A URL's are its own
PATH_PATTERN = re.compile(r"(?<![\w:/.<])(?:/[^\s/'\":;,()\[\]<>]+){2,}/?")
ADDRESS_PATTERN = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")  # where an object was in memory


def portable_reason(reason: str, files: Iterable[str], identity: str) -> str:
    """Return a reason as one line without paths or memory addresses of this machine: it is part
    of the dataset.

    files: what the reason may call the video's own files, which become its id. Any other path
    becomes `(a path)`.
    """
    # Longest first, since one path may begin with another.
    for name in sorted(files, key=len, reverse=True):
        reason = reason.replace(name, identity)
    line = PATH_PATTERN.sub("(a path)", " ".join(reason.split()))
    line = ADDRESS_PATTERN.sub("0x...", line)
    return line if len(line) <= MAX_REASON_CHARS else line[:MAX_REASON_CHARS] + "..."
