"""Ids of evaluation videos, kept out of every training set: a list in a file, made from the
datasets' own files.

    # made by `stepline excluded`
    3oK7LxzSPto   youcook2
    GLd3aX16zBg   youcook2,crosstask

The first word of a line is the video's id, the second names the datasets that hold it; # begins a
comment. What is scored is a split: of each dataset the list holds its evaluation splits, and its
test videos always.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepline.atomic_files import write_atomic
from stepline.datasets.files import read_text
from stepline.datasets.registry import find_dataset, stream
from stepline.errors import DatasetError

UNNAMED = "unnamed"  # dataset of a line that names none
YOUTUBE, PREFIX = 11, "v_"  # letters of a YouTube id; what ActivityNet-style files put before it
TEST = "test"  # what the names of test splits begin with: test, testing, test_seen
BRACKETS = '{["<'  # what JSON and markup begin with, and no id does
HEAD = "# Ids of evaluation videos and the datasets that hold them; made by `stepline excluded`\n"


@dataclass(frozen=True)
class ExcludedVideos:
    """Videos to keep out. datasets: id -> names of the evaluation sets that hold it, sorted."""

    datasets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.datasets)

    def __contains__(self, video: str) -> bool:
        return plain_id(video) in self.datasets

    def sets_with(self, video: str) -> tuple[str, ...]:
        """Return the evaluation sets that hold a video; () for none."""
        return self.datasets.get(plain_id(video), ())

    def counts(self) -> dict[str, int]:
        """Return how many videos each evaluation set holds, by name."""
        names = sorted({name for held in self.datasets.values() for name in held})
        return {name: sum(name in held for held in self.datasets.values()) for name in names}


def plain_id(video: str) -> str:
    """Return an id as YouTube has it: without the "v_" that some files put before its eleven
    letters."""
    return (
        video[len(PREFIX) :]
        if video.startswith(PREFIX) and len(video) == YOUTUBE + len(PREFIX)
        else video
    )


@dataclass(frozen=True)
class ExcludedSource:
    """A dataset whose evaluation videos are kept out: its name, and its file or folder.

    splits: those that are scored, beside its test videos; () for all but the ones that nobody is
    scored on.
    """

    name: str
    path: Path
    splits: tuple[str, ...] = ()

    def videos(self) -> Iterator[tuple[str, str | None]]:
        """Yield the id and the split of every video that the files name, also where every
        annotation was rejected."""
        hidden = find_dataset(self.name).hidden
        for split, ids in hidden(self.path).items() if hidden is not None else ():
            yield from ((id, split) for id in ids)
        for entry in stream(self.name, self.path):
            yield (entry.record.video.id if entry.record is not None else entry.id), entry.subset

    def is_scored(self, split: str | None) -> bool:
        """Tell whether the videos of a split are kept out; those of no split are."""
        if split is None or split.startswith(TEST):
            return True
        return (
            split in self.splits if self.splits else split not in find_dataset(self.name).training
        )


def collect_excluded(sources: Iterable[ExcludedSource]) -> ExcludedVideos:
    """Return the ids of the evaluation videos of datasets, as `stepline.datasets` reads them.

    Raises DatasetError for what cannot be read, for a split that is not there, and where no split
    is scored.
    """
    held: dict[str, set[str]] = {}
    for source in sources:
        splits: set[str | None] = set()
        scored = False
        for video, split in source.videos():
            splits.add(split)
            if source.is_scored(split):
                scored = True
                held.setdefault(plain_id(video), set()).add(source.name)
        known = sorted(filter(None, splits))
        absent = [split for split in source.splits if split not in splits]
        if absent:
            raise DatasetError(
                f"{source.path}: {source.name} holds no split {absent[0]!r}; it has {', '.join(known)}"
            )
        if splits and not scored:
            cure = f"{source.name}:{known[0]}={source.path} keeps them out"
            raise DatasetError(
                f"{source.path}: nobody is scored on its videos, all of split {known[0]!r}; {cure}"
            )
    return _sorted(held)


def read_excluded(paths: Iterable[Path]) -> ExcludedVideos:
    """Return the ids of list files together. Raises DatasetError for a file that is missing or no
    list."""
    held: dict[str, set[str]] = {}
    for path in paths:
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            cells = (
                line.partition("#")[0].replace(",", " ").split() if not line.startswith("#") else []
            )
            if not cells:
                continue
            # JSON read as ids would exclude nothing
            if not cells[0].isprintable() or cells[0][0] in BRACKETS:
                cure = "give one id a line; `stepline excluded DATASET=FILE` makes such a list of annotations"
                raise DatasetError(f"{path}: line {number} is no video id; {cure}")
            held.setdefault(plain_id(cells[0]), set()).update(cells[1:] or [UNNAMED])
    return _sorted(held)


def write_excluded(excluded: ExcludedVideos, path: Path) -> None:
    """Write a list file, sorted by id."""
    lines = [f"{video}\t{','.join(names)}\n" for video, names in sorted(excluded.datasets.items())]
    write_atomic(path, HEAD + "".join(lines))


def _sorted(held: Mapping[str, set[str]]) -> ExcludedVideos:
    return ExcludedVideos({video: tuple(sorted(names)) for video, names in sorted(held.items())})
