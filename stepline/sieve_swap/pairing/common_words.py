"""The commonest words of every set as bits, so that what two sets share of them is counted 64 words at a time."""

import numpy as np
import numpy.typing as npt

from stepline.sieve_swap.pairing.word_sets import Numbers, Words

Bits = npt.NDArray[np.uint64]

COMMON = 1024  # commonest words that become bits: 128 bytes a set, and nearly all words of most recipes
WORD = 64  # bits of a machine word
BYTE = np.array([bin(number).count("1") for number in range(256)], dtype=np.uint8)

EVEN_BYTES, LANES = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0001000100010001)
ONE_BYTE, THREE_LANES = np.uint64(8), np.uint64(48)


class CommonWords:
    """Sets over the commonest words. bit: (V,) the bit of each word, -1 for a rare one."""

    def __init__(self, owners: Words, words: Words, sets: int, vocabulary: int) -> None:
        frequency = np.bincount(words, minlength=vocabulary)
        commonest = np.argsort(-frequency, kind="stable")[:COMMON]
        self.bit = np.full(vocabulary, -1, dtype=np.int32)
        self.bit[commonest] = np.arange(len(commonest), dtype=np.int32)
        self._rows = np.zeros((sets, COMMON // WORD), dtype=np.uint64)
        here = np.flatnonzero(self.bit[words] >= 0)
        self._mark(self._rows, owners[here], self.bit[words[here]])

    def shared(self, words: Words, places: Words) -> Numbers:
        """Return how many of these words each of the sets at `places` has, rare words aside: (len(places),)."""
        bits = self.bit[words]
        mask = np.zeros((1, COMMON // WORD), dtype=np.uint64)
        self._mark(mask, np.zeros(len(words), dtype=np.int32)[bits >= 0], bits[bits >= 0])
        held = self._rows[places]  # (P, COMMON / 64)
        np.bitwise_and(held, mask, out=held)
        return _row_sums(_ones(held).view(np.uint64))

    @staticmethod
    def _mark(rows: Bits, owners: Words, bits: Words) -> None:
        np.bitwise_or.at(rows, (owners, bits // WORD), np.uint64(1) << (bits % WORD).astype(np.uint64))


def _row_sums(counts: Bits) -> Numbers:
    """Return the sum of the bytes of each row, (P, n) -> (P,); summing them as bytes takes ten times as long."""
    pairs = (counts & EVEN_BYTES) + ((counts >> ONE_BYTE) & EVEN_BYTES)  # four lanes of 16 bits
    lanes = (pairs * LANES) >> THREE_LANES  # their sum
    total: Numbers = lanes[:, 0].astype(np.int64)
    for column in range(1, lanes.shape[1]):
        total += lanes[:, column].astype(np.int64)
    return total


def _ones(values: Bits) -> npt.NDArray[np.uint8]:
    """Return the number of set bits of each value."""
    if hasattr(np, "bitwise_count"):
        return np.asarray(np.bitwise_count(values), dtype=np.uint8)
    return by_bytes(values)


def by_bytes(values: Bits) -> npt.NDArray[np.uint8]:
    """Return the number of set bits of each value by a table of bytes, for a numpy that cannot count them."""
    ones = BYTE[values[..., None].view(np.uint8)]
    return np.asarray(ones.sum(axis=-1), dtype=np.uint8)
