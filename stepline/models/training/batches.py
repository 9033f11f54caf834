"""Samples (videos with texts), and batches of them padded to one shape: the only place that makes
masks.

`*_pad` is True on padding. Letters: B batch, K texts, T feature rows, C width of what a backbone
gives.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Generic, Protocol, TypeAlias, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.records import Matrix, Rejected, count_reasons

Mask: TypeAlias = npt.NDArray[np.bool_]
S = TypeVar("S")
P = TypeVar("P", bound="PendingSample")
B = TypeVar("B", bound="TensorRecord")

# rows of a video that training sees. NaSVA's supplement gives seconds, at one row per second
MAX_ROWS = 1200
# batches among which videos of similar length are sought. More pad less, but shuffle less
BATCHES_PER_POOL = 50
# shards of features, of 256 MiB each, among whose videos each epoch shuffles at a time
SHARDS_PER_WINDOW = 16


@dataclass(frozen=True)
class Sample:
    """One video with its texts: video (T, C) and text (K, C) float32, positive (K, T): text k is
    shown in row t.

    ordered: the texts are in the order in which they are spoken. K may be 0, T not.
    Raises ShapeError when the arrays do not fit together, or hold NaN or infinity.
    """

    id: str
    video: Matrix
    text: Matrix
    positive: Mask
    ordered: bool

    def __post_init__(self) -> None:
        for name, values in (("video", self.video), ("text", self.text)):
            if values.ndim != 2 or values.dtype != np.float32:
                form = f"{values.dtype} {values.shape}"
                raise ShapeError(f"{self.id}: {name} must be float32 (rows, width), not {form}")
            if not np.isfinite(values).all():
                raise ShapeError(
                    f"{self.id}: {name} features hold NaN or infinity; extract them again"
                )
        if not len(self.video):
            cure = "extract its features again, or leave it out"
            raise ShapeError(f"{self.id}: the video has no feature row; {cure}")
        shape = (len(self.text), len(self.video))
        if self.positive.dtype != bool or self.positive.shape != shape:
            expected = f"bool {shape}, texts by feature rows"
            form = f"{self.positive.dtype} {self.positive.shape}"
            raise ShapeError(f"{self.id}: labels must be {expected}, not {form}")

    def shuffled(self, rng: np.random.Generator) -> "Sample":
        """Return the sample with its texts in a random order, and so marked."""
        order = rng.permutation(len(self.text))
        return replace(self, text=self.text[order], positive=self.positive[order], ordered=False)


class LazySamples(Sequence[S]):
    """Samples that are made, or read, when they are asked for.

    lengths: feature rows of each, known without that.
    shards: in which shard of their store each one's features are. It is empty where they are
    elsewhere.
    """

    def __init__(
        self, make: Callable[[int], S], lengths: Sequence[int], shards: Sequence[int] = ()
    ) -> None:
        self._make = make
        self.lengths = list(lengths)
        self.shards = list(shards)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> S: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[S]: ...
    def __getitem__(self, index: int | slice) -> S | Sequence[S]:
        """Return a sample as it is now. Raises ShapeError where its source holds NaN by now."""
        if isinstance(index, slice):
            return [self._make(number) for number in range(*index.indices(len(self)))]
        return self._make(range(len(self))[index])


class PendingSample(Protocol):
    """A sample that is not read yet."""

    @property
    def video(self) -> str:
        """The id of its video."""


class GatheredSamples(LazySamples[S], Generic[P, S]):
    """Samples of stored features that are read when they are asked for.

    parts: what is known of each before.
    omitted: what is not a sample, and why.
    """

    def __init__(
        self,
        make: Callable[[int], S],
        lengths: Sequence[int],
        shards: Sequence[int],
        parts: Sequence[P],
        omitted: Sequence[Rejected],
    ) -> None:
        super().__init__(make, lengths, shards)
        self.parts = parts
        self.omitted = tuple(omitted)
        self.videos = tuple(dict.fromkeys(part.video for part in parts))

    def reasons(self) -> dict[str, int]:
        """Return how many were left out for each reason, the most frequent first."""
        return count_reasons(self.omitted)

    def split_parts(self, fraction: float, most: int) -> tuple[list[P], list[P]]:
        """Return the parts to train on, and at most `most` that are held out: of a fraction of the
        videos, chosen by their ids alone."""
        training = [part for part in self.parts if not is_held_out(part.video, fraction)]
        held_out = [part for part in self.parts if is_held_out(part.video, fraction)]
        return training, held_out[:most]


def is_held_out(video: str, fraction: float) -> bool:
    """Tell whether a video is among the held-out fraction: its id alone decides, whatever else is
    in the source."""
    return zlib.crc32(video.encode()) < fraction * 2**32


def lengths_and_shards(
    samples: Sequence[S], length: Callable[[S], int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the length of each sample and the shard that it is in (empty where they are in no
    store). Lazy samples are not read."""
    if isinstance(samples, LazySamples):
        return samples.lengths, samples.shards
    return [length(sample) for sample in samples], ()


def joined_samples(
    first: Sequence[S], second: Sequence[S], length: Callable[[S], int]
) -> LazySamples[S]:
    """Return the samples of both, each read when it is asked for.

    Samples that are in no store come evenly with those of each shard.
    """
    first_lengths, first_shards = lengths_and_shards(first, length)
    second_lengths, second_shards = lengths_and_shards(second, length)
    # Samples of no store borrow the shards of the others, one after the other.
    known_shards = [*first_shards, *second_shards]
    if known_shards:
        first_shards = first_shards or np.resize(known_shards, len(first)).tolist()
        second_shards = second_shards or np.resize(known_shards, len(second)).tolist()

    def read(index: int) -> S:
        return first[index] if index < len(first) else second[index - len(first)]

    return LazySamples(read, [*first_lengths, *second_lengths], [*first_shards, *second_shards])


@dataclass(frozen=True)
class TensorRecord:
    """A dataclass of tensors, of others like it, and of plain values."""

    def to(self: B, device: str | torch.device) -> B:
        """Return the record on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {
            name: value.to(device)
            for name, value in values.items()
            if isinstance(value, Tensor | TensorRecord)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class Batch(TensorRecord):
    """Samples padded with zeros to the longest: what the network and its losses take.

    video (B, T, C), video_pad (B, T), text (B, K, C), text_pad (B, K), positive (B, K, T), ordered
    (B,).
    """

    ids: tuple[str, ...]
    video: Tensor
    video_pad: Tensor
    text: Tensor
    text_pad: Tensor
    positive: Tensor
    ordered: Tensor

    def real_positive(self) -> Tensor:
        """Return `positive` (B, K, T) without padding."""
        return self.positive & ~self.video_pad[:, None] & ~self.text_pad[:, :, None]


def collate(samples: Sequence[Sample], longest: int = MAX_ROWS) -> Batch:
    """Return the samples as one batch, each video cut to its first `longest` rows, and its labels
    with it.

    Raises ShapeError when there is no sample, or their widths differ.
    """
    if not samples:
        raise ShapeError("a batch needs at least one video, not 0")
    # Videos are cut, texts never.
    video, video_pad = pad([sample.video[:longest] for sample in samples])
    text, text_pad = pad([sample.text for sample in samples])
    # Labels are cut and padded as rows and texts are.
    positive = np.zeros((*text_pad.shape, video_pad.shape[1]), dtype=np.bool_)  # (B, K, T)
    for row, sample in zip(positive, samples, strict=True):
        labels = sample.positive[:, :longest]
        texts, length = labels.shape
        row[:texts, :length] = labels
    ids = tuple(sample.id for sample in samples)
    ordered = torch.tensor([sample.ordered for sample in samples])  # (B,)
    return Batch(ids, video, video_pad, text, text_pad, torch.from_numpy(positive), ordered)


def pad(rows: Sequence[Matrix]) -> tuple[Tensor, Tensor]:
    """Return sequences (N_i, C) as one tensor (B, max N_i, C), zero on padding, and the mask (B,
    max N_i)."""
    widths = sorted({values.shape[1] for values in rows})
    if len(widths) != 1:
        raise ShapeError(
            f"rows of one batch must have one width, not {widths}; use one backbone for all videos"
        )
    lengths = torch.tensor([len(values) for values in rows])
    longest = int(lengths.max())
    padded = np.zeros((len(rows), longest, widths[0]), dtype=np.float32)  # (B, N, C)
    # Zeros, never NaN: a masked product with them stays 0.
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    mask = torch.arange(longest) >= lengths[:, None]  # (B, N)
    return torch.from_numpy(padded), mask


def length_buckets(
    lengths: Sequence[int],
    size: int,
    *,
    seed: int,
    epoch: int,
    shards: Sequence[int] = (),
    window: int = SHARDS_PER_WINDOW,
) -> Iterator[tuple[int, ...]]:
    """Yield batches of at most `size` indices, shuffled, with videos of similar length together.
    Every index comes once.

    shards: in which shard each one's features are. Of more than `window` shards, drawn in another
    order each epoch, an epoch goes through `window` of them at a time. So each is read once and
    together. What no batch of a window has room for begins the next. The order depends on the seed,
    the epoch and the shards alone.
    """
    rng = np.random.default_rng([seed, epoch])
    waiting: npt.NDArray[np.int64] = np.empty(0, np.int64)  # what no batch had room for
    parts = shard_windows(len(lengths), shards, window, rng)
    for number, part in enumerate(parts):
        shuffled = part[rng.permutation(len(part))]
        order = np.concatenate([waiting, shuffled])
        is_last = number == len(parts) - 1
        full = len(order) if is_last else len(order) // size * size

        # those that waited come first, in a batch of their own
        first = 0
        if len(waiting) and full:
            first = size
            yield tuple(order[:first].tolist())
        waiting = order[full:]

        # batches of like length, of a pool at a time
        batches: list[tuple[int, ...]] = []
        pool_size = size * BATCHES_PER_POOL
        for start in range(first, full, pool_size):
            pool = order[start : min(start + pool_size, full)].tolist()
            pool.sort(key=lambda index: lengths[index])
            batches += [tuple(pool[at : at + size]) for at in range(0, len(pool), size)]
        for index in rng.permutation(len(batches)):
            yield batches[index]


def shard_windows(
    count: int, shards: Sequence[int], window: int, rng: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """Return the indices below `count` in parts, each of the videos of at most `window` shards
    drawn at random.

    One part, and nothing drawn, where the shards are no more than that or not known.
    """
    numbers = np.unique(np.asarray(shards, np.int64))
    if len(numbers) <= window:
        return [np.arange(count)]
    drawn_order = rng.permutation(len(numbers))
    window_of_shard = np.empty(len(numbers), np.int64)
    window_of_shard[drawn_order] = np.arange(len(numbers)) // window
    windows = window_of_shard[np.searchsorted(numbers, shards)]  # of each index
    order = np.argsort(windows, kind="stable")
    changes = np.flatnonzero(np.diff(windows[order]))
    return np.split(order, changes + 1)
