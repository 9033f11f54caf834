"""How the rows of a batch lie in one matrix while the network works on them: without padding where that pays.

On a CPU rows of padding are left out, and attention goes video by video, with no mask; where little is padded, or on
another device, all rows stay and a mask says which keys are real. Scores are the same.
Letters: B batch, N sequence length with padding, R rows in the matrix.
"""

from dataclasses import dataclass

from torch import Tensor

PAYS = 1 / 32  # share of padding from which leaving it out pays for attention that goes video by video


@dataclass(frozen=True)
class Rows:
    """lengths: of each video's rows in the matrix; index: (R,) which of the B x N rows these are, None where all.

    key_keep: (B, 1, 1, N), True where attention may see a row; None where it may see all that are in the matrix.
    """

    batch: int
    longest: int
    lengths: tuple[int, ...]
    index: Tensor | None
    key_keep: Tensor | None

    @classmethod
    def of(cls, pad: Tensor, *, never_none: bool) -> "Rows":
        """Return how rows with padding (B, N) are to lie. never_none: a video of nothing but padding keeps all of it,
        so that attention has something to see."""
        batch, longest = pad.shape
        full = (longest,) * batch
        if pad.device.type != "cpu":  # to ask it how much is padding would wait for it
            return cls(batch, longest, full, None, keys_to_see(pad))
        keep = keys_to_see(pad)[:, 0, 0] if never_none else ~pad  # (B, N)
        lost = pad.numel() - int(keep.sum())
        if not lost:
            return cls(batch, longest, full, None, None)
        if lost < PAYS * pad.numel():
            return cls(batch, longest, full, None, keys_to_see(pad))
        index = keep.flatten().nonzero().squeeze(1)  # (R,)
        return cls(batch, longest, tuple(keep.sum(dim=1).tolist()), index, None)

    @property
    def even(self) -> bool:
        """Whether the matrix is (B, N) rows, those of padding among them."""
        return self.index is None

    def pack(self, values: Tensor) -> Tensor:
        """Return values (B, N, D) as one matrix (R, D)."""
        flat = values.flatten(0, 1)
        return flat if self.index is None else flat[self.index]

    def unpack(self, rows: Tensor) -> Tensor:
        """Return rows (..., R, D) as (..., B, N, D), 0 on padding that was left out."""
        if self.index is not None:
            apart = rows.new_zeros(*rows.shape[:-2], self.batch * self.longest, rows.shape[-1])
            rows = apart.index_copy(-2, self.index, rows)
        return rows.unflatten(-2, (self.batch, self.longest))


def keys_to_see(pad: Tensor) -> Tensor:
    """Return the keys that attention may see, (B, 1, 1, N); where all are padding, all, so that nothing is NaN."""
    return (~pad | pad.all(dim=1, keepdim=True))[:, None, None, :]
