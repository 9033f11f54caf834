"""Captions of one video that attend to its rows together, so that no caption holds a copy of them.

Each caption sees all rows of its video, and of the queries its own alone. Letters: M captions of B videos, K captions
of the video with most, W tokens, T rows, H heads, D width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.procx.text_layers import Memory


@dataclass(frozen=True)
class Seats:
    """Where each caption stands: video and place (M,) each, in a table of (B, K)."""

    video: Tensor
    place: Tensor
    videos: int
    most: int

    @staticmethod
    def of(video: Tensor, videos: int) -> "Seats":
        """Return the seats of captions whose videos these are, (M,), in any order; M above 0."""
        same = video[:, None] == video  # (M, M)
        place = same.tril(-1).sum(dim=1)  # captions of the video before it
        return Seats(video, place, videos, int(place.max()) + 1)

    def seat(self, rows: Tensor) -> Tensor:
        """Return rows (M, ...) at their seats, (B, K, ...), the empty ones zero."""
        empty = rows.new_zeros(self.videos, self.most, *rows.shape[1:])
        return empty.index_put((self.video, self.place), rows)

    def unseat(self, table: Tensor) -> Tensor:
        """Return the rows (M, ...) of a table (B, K, ...)."""
        return table[self.video, self.place]


@dataclass(frozen=True)
class Grouped:
    """What a layer's captions see: rows of the videos, (B, H, T, D/H), and their own query, (M, H, 1, D/H)."""

    shared: Memory
    own: Memory
    seats: Seats

    def __len__(self) -> int:
        return len(self.own)

    def read(self, query: Tensor) -> Tensor:
        """Return what queries (M, H, W, D/H) read, (M, H, W, D/H)."""
        seated = self.seats.seat(query).transpose(1, 2)  # (B, H, K, W, D/H)
        keys, values = (
            torch.cat((rows, self.seats.seat(own[:, :, 0]).transpose(1, 2)), dim=2)
            for rows, own in ((self.shared.keys, self.own.keys), (self.shared.values, self.own.values))
        )  # (B, H, T + K, D/H)
        mixed = F.scaled_dot_product_attention(seated.flatten(2, 3), keys, values, self._keep(query))
        return self.seats.unseat(mixed.view(seated.shape).transpose(1, 2))

    def _keep(self, query: Tensor) -> Tensor:
        """Return who sees what, (B or 1, 1, K W, T + K): a word the rows and its own query."""
        most, rows = self.seats.most, self.shared.keys.shape[2]
        itself = torch.eye(most, dtype=torch.bool, device=query.device).repeat_interleave(query.shape[2], dim=0)
        real = itself.new_ones(1, 1, 1, rows) if self.shared.keep is None else self.shared.keep  # (B or 1, 1, 1, T)
        return torch.cat((real.expand(-1, -1, len(itself), -1), itself.expand(len(real), 1, -1, -1)), dim=3)
