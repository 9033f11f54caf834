"""What a run tells on disk: JSON lines, and TensorBoard's events where they are asked for."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from stepline.errors import SettingsError
from stepline.store import atomic_path

LOG = "log.jsonl"


class Log:
    """JSON lines, one a step; those after the checkpoint go, since their steps are taken again."""

    def __init__(self, path: Path, done: int) -> None:
        if path.exists():
            kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[:done]
            with atomic_path(path) as partial:
                partial.write_text("".join(kept), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def write(self, line: Mapping[str, float]) -> None:
        """Add a step."""
        self._file.write(json.dumps(line) + "\n")

    def flush(self) -> None:
        """Hand the lines to the disk, so that a checkpoint never knows of steps that the log does not."""
        self._file.flush()
        os.fsync(self._file.fileno())


class Events:
    """The same numbers as curves that TensorBoard draws; an optional extra."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            cure = "pip install 'stepline[train]', or leave --tensorboard out"
            raise SettingsError(f"TensorBoard's package is not here; {cure}") from error
        self._kind, self._folder = SummaryWriter, folder
        self._writer: SummaryWriter | None = None

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve; points of steps that are taken again go."""
        if self._writer is None:
            self._writer = self._kind(str(self._folder), purge_step=step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()
