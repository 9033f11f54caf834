"""The files of a live run: the log that is its state, the WebVTT file that grows, the features so
far."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stepline.errors import StoreError
from stepline.files.atomic_files import check_own_file
from stepline.live.events import GrowingVtt, LiveLog
from stepline.records import Matrix

FLOAT_BYTES = 4  # of a number in the file of features


@dataclass
class RunFiles:
    """id: of the record. rows: file of the features (T, D), None where no picture is looked at."""

    id: str
    log: LiveLog
    vtt: GrowingVtt | None = None
    rows: Path | None = None
    row_count: int = 0  # rows in the file

    def write_vtt(self) -> None:
        """Write the steps that have ended to the WebVTT file."""
        if self.vtt is not None:
            self.vtt.update(self.id, self.log.steps.values(), self.log.sentences)

    def read_rows(self, first: int, last: int, width: int) -> Matrix | None:
        """Return the rows from number `first` up to `last` that an earlier run kept, (T, width).
        None without a file."""
        if self.rows is None or not self.rows.is_file():
            return None
        row_bytes = FLOAT_BYTES * width
        self.row_count = self.rows.stat().st_size // row_bytes
        first = min(self.row_count, first)
        last = min(self.row_count, last)
        values = np.fromfile(
            self.rows, np.float32, (last - first) * width, offset=first * row_bytes
        )
        return values.reshape(-1, width)

    def keep_rows(self, first: int, values: Matrix) -> None:
        """Append the rows that are new. values: (T, D), from number `first` on."""
        if self.rows is None or first + len(values) <= self.row_count:
            return
        fresh = np.ascontiguousarray(values[self.row_count - first :], np.float32)
        try:
            check_own_file(self.rows)
            with self.rows.open("ab") as file:
                file.write(fresh.tobytes())
        except OSError as error:
            raise StoreError(
                f"{self.rows}: cannot be written ({error.strerror}); free some space"
            ) from error
        self.row_count = first + len(values)
