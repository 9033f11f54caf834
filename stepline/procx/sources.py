"""Where the steps that ProcX learns come from: records on disk, or a public dataset."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepline.datasets import DATASETS, stream
from stepline.errors import DatasetError
from stepline.procx.data_settings import Target
from stepline.records import Record
from stepline.store import read_parquet, read_record

GIVES: dict[str, Target] = {"reference": "reference", "steps": "steps", "transcript": "narration"}


@dataclass(frozen=True)
class Source:
    """Records (.parquet, .json or a folder of them), or NAME:PATH of a public dataset; subset: only its split."""

    place: str
    subset: str | None = None

    @property
    def _dataset(self) -> tuple[str, Path] | None:
        name, colon, path = self.place.partition(":")
        return (name, Path(path)) if colon and name in DATASETS else None

    @property
    def target(self) -> Target:
        """What of its records are the steps, where nobody says it: what people annotated, else what they give."""
        return GIVES[DATASETS[self._dataset[0]].gives] if self._dataset else "steps"

    def records(self) -> Iterator[Record]:
        """Yield the records. Raises DatasetError or StoreError where there are none, or a subset of mere records."""
        if self._dataset is not None:
            name, path = self._dataset
            found = (entry.record for entry in stream(name, path, subset=self.subset) if entry.record is not None)
            yield from found
            return
        if self.subset is not None:
            raise DatasetError(f"{self.place}: records know no subset {self.subset!r}; leave --subset out")
        for file in _files(Path(self.place)):
            if file.suffix == ".parquet":
                yield from read_parquet(file)
            else:
                yield read_record(file)


def _files(path: Path) -> list[Path]:
    files = sorted((*path.glob("*.parquet"), *path.glob("*.json"))) if path.is_dir() else [path]
    if not files or not path.exists():
        known = "records (.parquet, .json or a folder of them), or NAME:PATH of `stepline datasets`"
        raise DatasetError(f"{path}: no steps to train on; give {known}")
    return files
