"""Lists of evaluation videos that are excluded from training, made from the datasets' own files.

    # made by `stepline curate excluded`
    3oK7LxzSPto   youcook2
    GLd3aX16zBg   youcook2,crosstask

The first word of a line is the video's id, the second names the datasets that hold it. # begins a
comment. Of each dataset the list holds the videos of its evaluation splits, and always its test
videos.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepline.datasets.files import read_text
from stepline.datasets.record_builder import strip_id_prefix
from stepline.datasets.registry import find_dataset, stream
from stepline.errors import DatasetError
from stepline.files.atomic_files import write_atomic

UNNAMED_SET = "unnamed"  # dataset of a line that names none
TEST_PREFIX = "test"  # of the names of test splits: test, testing, test_seen
MARKUP_BRACKETS = '{["<'  # what JSON and markup begin with, and no id does
NamesById = defaultdict[str, set[str]]  # video id -> names of its datasets
LIST_HEADING = (
    "# Ids of evaluation videos and the datasets that hold them; "
    "made by `stepline curate excluded`\n"
)


@dataclass(frozen=True)
class ExcludedVideos:
    """Videos of evaluation sets, which are excluded from training.

    Attributes:
        datasets: video id -> sorted names of the evaluation sets that contain the video.
    """

    datasets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.datasets)

    def __contains__(self, video: str) -> bool:
        return strip_id_prefix(video) in self.datasets

    def datasets_with(self, video: str) -> tuple[str, ...]:
        """Return the names of the evaluation sets that contain a video, () for none."""
        return self.datasets.get(strip_id_prefix(video), ())

    def counts(self) -> dict[str, int]:
        """Return name of each evaluation set -> number of its excluded videos, sorted by name."""
        counts: Counter[str] = Counter()
        for names in self.datasets.values():
            counts.update(names)
        return dict(sorted(counts.items()))


@dataclass(frozen=True)
class ExcludedSource:
    """A dataset whose evaluation videos are excluded from training.

    Attributes:
        name: name of the dataset.
        path: file or folder of the dataset.
        splits: names of its evaluation splits. The test splits always count as evaluation splits.
            With (), every split but the training splits counts.
    """

    name: str
    path: Path
    splits: tuple[str, ...] = ()

    def videos(self) -> Iterator[tuple[str, str | None]]:
        """Yield (video id, split) of every video in the files, also of fully rejected videos.

        The split is None where the files state none.
        """
        read_hidden_ids = find_dataset(self.name).read_hidden_ids
        if read_hidden_ids is not None:
            for split, ids in read_hidden_ids(self.path).items():
                for id in ids:
                    yield id, split
        for entry in stream(self.name, self.path):
            yield entry.record.video.id if entry.record else entry.id, entry.subset

    def is_scored(self, split: str | None) -> bool:
        """Return whether the videos of a split are excluded from training.

        split: name of the split. None, for a video without a split, counts as an evaluation split.
        """
        if split is None or split.startswith(TEST_PREFIX):
            return True
        if self.splits:
            return split in self.splits
        return split not in find_dataset(self.name).training_splits


def collect_excluded(sources: Iterable[ExcludedSource]) -> ExcludedVideos:
    """Return the ids of the evaluation videos of several datasets.

    Raises DatasetError for files that cannot be read, for a split that a dataset lacks, and for a
    dataset without any evaluation split.
    """
    names: NamesById = defaultdict(set)
    for source in sources:
        is_scored: dict[str | None, bool] = {}  # by split
        for video, split in source.videos():
            is_scored[split] = source.is_scored(split)
            if is_scored[split]:
                names[strip_id_prefix(video)].add(source.name)
        _check_splits(source, is_scored)
    return _sorted_videos(names)


def _check_splits(source: ExcludedSource, is_scored: Mapping[str | None, bool]) -> None:
    """Raise DatasetError if a dataset lacks one of its named splits, or has no evaluation split.

    is_scored: each split that was read -> whether it is an evaluation split.
    """
    splits = sorted(filter(None, is_scored))
    for split in source.splits:
        if split not in is_scored:
            raise DatasetError(
                f"{source.path}: {source.name} holds no split {split!r}; it has {', '.join(splits)}"
            )
    if is_scored and not any(is_scored.values()):
        raise DatasetError(
            f"{source.path}: no one is scored on its videos, all of split {splits[0]!r}; "
            f"{source.name}:{splits[0]}={source.path} keeps them out"
        )


def read_excluded(paths: Iterable[Path]) -> ExcludedVideos:
    """Return the video ids of list files that `write_excluded` wrote.

    Raises DatasetError for a file that is missing or no such list.
    """
    names: NamesById = defaultdict(set)
    for path in paths:
        for number, line in enumerate(read_text(path).splitlines(), start=1):
            text, _, _ = line.partition("#")
            words = text.replace(",", " ").split()
            if not words:
                continue
            video, *sets = words
            # JSON read as ids would exclude nothing.
            if not video.isprintable() or video[0] in MARKUP_BRACKETS:
                raise DatasetError(
                    f"{path}: line {number} is not a video id; give one id per line; `stepline "
                    "curate excluded DATASET=FILE` makes such a list of annotations"
                )
            names[strip_id_prefix(video)].update(sets or [UNNAMED_SET])
    return _sorted_videos(names)


def write_excluded(excluded: ExcludedVideos, path: Path) -> None:
    """Write excluded videos as a list file, sorted by video id."""
    lines = [f"{video}\t{','.join(names)}\n" for video, names in sorted(excluded.datasets.items())]
    write_atomic(path, LIST_HEADING + "".join(lines))


def _sorted_videos(names: NamesById) -> ExcludedVideos:
    return ExcludedVideos({video: tuple(sorted(names[video])) for video in sorted(names)})
