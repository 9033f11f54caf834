"""Ids of evaluation videos, kept out of every training set: a list in a file, made from the datasets' own files.

    # made by `stepline excluded`
    3oK7LxzSPto   youcook2
    GLd3aX16zBg   youcook2,crosstask

The first word of a line is the video's id, the second names the datasets that hold it; # begins a comment.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepline.datasets.files import read_text
from stepline.datasets.registry import stream
from stepline.errors import DatasetError
from stepline.storage import write_atomic

UNNAMED = "unnamed"  # dataset of a line that names none
YOUTUBE, PREFIX = 11, "v_"  # letters of a YouTube id; what ActivityNet-style files put before it
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

    def of(self, video: str) -> tuple[str, ...]:
        """Return the evaluation sets that hold a video; () for none."""
        return self.datasets.get(plain_id(video), ())

    def counts(self) -> dict[str, int]:
        """Return how many videos each evaluation set holds, by name."""
        names = sorted({name for held in self.datasets.values() for name in held})
        return {name: sum(name in held for held in self.datasets.values()) for name in names}


def plain_id(video: str) -> str:
    """Return an id as YouTube has it: without the "v_" that some files put before its eleven letters."""
    return video[len(PREFIX) :] if video.startswith(PREFIX) and len(video) == YOUTUBE + len(PREFIX) else video


def collect_excluded(sources: Iterable[tuple[str, Path]]) -> ExcludedVideos:
    """Return the ids of all videos of datasets: (name, its file or folder) each, as `stepline.datasets` reads them.

    Ids count even where every annotation of a video was rejected. Raises DatasetError for what cannot be read.
    """
    held: dict[str, set[str]] = {}
    for name, path in sources:
        for entry in stream(name, path):
            video = entry.record.video.id if entry.record is not None else entry.id
            held.setdefault(plain_id(video), set()).add(name)
    return _sorted(held)


def read_excluded(paths: Iterable[Path]) -> ExcludedVideos:
    """Return the ids of list files together. Raises DatasetError for a file that is missing or no list."""
    held: dict[str, set[str]] = {}
    for path in paths:
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            cells = line.partition("#")[0].replace(",", " ").split() if not line.startswith("#") else []
            if not cells:
                continue
            if not cells[0].isprintable() or cells[0][0] in BRACKETS:  # JSON read as ids would exclude nothing
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
