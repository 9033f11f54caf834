"""A stage of a recipe: a plain function with a name, a version, and all that decides its result.

    STAGES = {"coarse": Stage("coarse", 1, "video", place_coarsely, needs=("transcribe", "write"), settings=...)}

A stage of kind "video" makes the bytes of one cell from one item; one of kind "dataset" runs once over all of them.
Neither knows which engine runs it.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from pydantic import JsonValue

from stepline.curate.items import Item, Refused

if TYPE_CHECKING:
    from stepline.curate.places import Place
    from stepline.curate.recipe import Recipe

log = logging.getLogger(__name__)

Kind: TypeAlias = Literal["video", "dataset"]
Reads: TypeAlias = Literal["media", "speech", "picture", "about", "where"]
FailureKind: TypeAlias = Literal["left out", "error", "hang", "crash", "memory"]


class LeftOutError(Exception):
    """Raised by a video stage where the recipe's own rule keeps a video out; the reason is counted, never retried."""


@dataclass(frozen=True)
class Failure:
    """Why a video has no result of a stage. reason: one line with no path, process or time of this machine in it."""

    id: str
    stage: str
    kind: FailureKind
    reason: str
    attempts: int = 1


@dataclass(frozen=True)
class Work:
    """What a video stage gets. The paths are local, None where the stage does not read them or the item has none.

    results: bytes of the cells of `needs`, by stage. folders: of needs that are dataset stages.
    notes: numbers that the stage wants beside its timing, such as {"tokens": 812}; they decide nothing.
    """

    item: Item
    recipe: "Recipe"
    media: Path | None = None
    captions: Path | None = None
    features: Path | None = None
    results: Mapping[str, bytes] = field(default_factory=dict)
    folders: Mapping[str, Path] = field(default_factory=dict)
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Gathered:
    """What a dataset stage gets: all items (sorted by id), and the results of its needs, read one at a time.

    folder: local, the stage's own; what it holds after `run` is its result. results(stage): (item, bytes) of every
    item without a failure in any video stage before this one, sorted by id. failures: of every other item, the first
    in the recipe's order.
    folders: of needs that are dataset stages. out: the run's place, for what is published beside the cells.
    """

    folder: Path
    items: Sequence[Item]
    recipe: "Recipe"
    out: "Place"
    results: Callable[[str], Iterator[tuple[Item, bytes]]]
    failures: Mapping[str, Failure] = field(default_factory=dict)  # by item id
    refused: Sequence[Refused] = ()
    folders: Mapping[str, Path] = field(default_factory=dict)
    say: Callable[[str], None] = log.info


def no_settings(recipe: "Recipe") -> JsonValue:  # noqa: ARG001
    """Return what decides a stage that no setting decides."""
    return None


@dataclass(frozen=True)
class Stage:
    """One stage. run: a module's own function (it is sent to processes by name): Work -> bytes, or Gathered -> None.

    version: raise it when the result changes, so that it is made anew. needs: the stages whose results it reads.
    takes: needs that count only where the recipe has them before it. reads: "media" the video file; "speech" the
    captions, and only where there are none the video; "picture" the ready features, else the video; "about" title,
    task, category and duration; "where" the addresses of its files. settings: exactly what of a recipe decides the
    result, with the sha256 of every file that it names. suffix: of its cells. gpu: it can use one. resumes: a dataset
    stage that goes on in a folder where it was killed; others start in an empty one.
    """

    name: str
    version: int
    kind: Kind
    run: Callable[[Work], bytes] | Callable[[Gathered], None]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    reads: tuple[Reads, ...] = ()
    settings: Callable[["Recipe"], JsonValue] = no_settings
    suffix: str = ".json"
    gpu: bool = False
    resumes: bool = False


Stages: TypeAlias = Mapping[str, Stage]
