"""Unlabelled clips that are in memory, as trials and tests have them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.models.wys2.clips import ClipTextPair
from stepline.models.wys2.train import References


@dataclass(frozen=True)
class ListedClips:
    """Clips that are in memory. A reference is a clip's index in the list."""

    listed: Sequence[ClipTextPair]

    def __len__(self) -> int:
        return len(self.listed)

    def iterate_blocks(self) -> Iterator[tuple[References, Sequence[ClipTextPair]]]:
        """Yield all clips as one block."""
        yield np.arange(len(self.listed)), self.listed

    def get_pairs(self, references: References) -> Sequence[ClipTextPair]:
        """Return the clips of these references."""
        return [self.listed[row] for row in references.tolist()]
