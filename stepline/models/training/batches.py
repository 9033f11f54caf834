"""Samples (a video with texts), and batches of samples padded to one shape. Masks are made here
only.

`*_pad` is True on padding. Letters: B batch, K texts, T feature rows, C width of a feature row.
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
    """One video with its texts. Raises ShapeError when the arrays do not fit together, or hold NaN
    or infinity.

    Attributes:
        id: of the sample, for messages.
        video: (T, C) float32 feature rows, T at least 1.
        text: (K, C) float32 text vectors, K may be 0.
        positive: (K, T) whether text k is shown in row t.
        ordered: whether the texts are in the order in which they are spoken.
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

    def shuffle_texts(self, rng: np.random.Generator) -> "Sample":
        """Return the sample with its texts in a random order, marked as not ordered."""
        order = rng.permutation(len(self.text))
        return replace(self, text=self.text[order], positive=self.positive[order], ordered=False)


class LazySamples(Sequence[S]):
    """A sequence of samples, each of which is made or read when it is asked for.

    Attributes:
        lengths: number of feature rows of each sample, known without reading it.
        shards: number of the shard of the feature store that holds each sample's features. Empty
            for samples that are in no store.
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
        """Return a sample as it is on disk now. Raises ShapeError where its features hold NaN."""
        if isinstance(index, slice):
            return [self._make(number) for number in range(*index.indices(len(self)))]
        return self._make(range(len(self))[index])


class PendingSample(Protocol):
    """What is known of a sample before its features are read."""

    @property
    def video(self) -> str:
        """Id of its video."""


class GatheredSamples(LazySamples[S], Generic[P, S]):
    """Samples of stored features, each of which is read when it is asked for.

    Attributes:
        parts: what is known of each sample before it is read.
        omitted: what is not a sample, with the reasons.
        videos: ids of the samples' videos, each once.
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

    def count_reasons(self) -> dict[str, int]:
        """Return the number of omitted items by reason, the most frequent first."""
        return count_reasons(self.omitted)

    def split_parts(self, fraction: float, most: int) -> tuple[list[P], list[P]]:
        """Return the parts to train on, and at most `most` held-out parts: those of a fraction of
        the videos, chosen by video id."""
        training = [part for part in self.parts if not is_held_out(part.video, fraction)]
        held_out = [part for part in self.parts if is_held_out(part.video, fraction)]
        return training, held_out[:most]


def is_held_out(video: str, fraction: float) -> bool:
    """Return whether a video is in the held-out fraction. This depends on its id only."""
    return zlib.crc32(video.encode()) < fraction * 2**32


def get_lengths_and_shards(
    samples: Sequence[S], length: Callable[[S], int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the length of each sample, and the number of its shard (empty for samples in no
    store). Lazy samples are not read."""
    if isinstance(samples, LazySamples):
        return samples.lengths, samples.shards
    return [length(sample) for sample in samples], ()


def join_samples(
    first: Sequence[S], second: Sequence[S], length: Callable[[S], int]
) -> LazySamples[S]:
    """Return two sequences of samples as one. Each sample is read when it is asked for.

    Samples that are in no store get shard numbers of the others, evenly, so that they are spread
    over the epoch.
    """
    first_lengths, first_shards = get_lengths_and_shards(first, length)
    second_lengths, second_shards = get_lengths_and_shards(second, length)
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
    """Base of dataclasses of tensors, nested records and plain values, which move to a device
    together."""

    def to(self: B, device: str | torch.device) -> B:
        """Return the record with all its tensors on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {
            name: value.to(device)
            for name, value in values.items()
            if isinstance(value, Tensor | TensorRecord)
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class Batch(TensorRecord):
    """Samples padded with zeros to the longest, as networks and losses take them.

    Attributes:
        ids: of the samples.
        video: (B, T, C) feature rows.
        video_pad: (B, T) True on padding.
        text: (B, K, C) text vectors.
        text_pad: (B, K) True on padding.
        positive: (B, K, T) whether text k is shown in row t.
        ordered: (B,) whether the texts are in spoken order.
    """

    ids: tuple[str, ...]
    video: Tensor
    video_pad: Tensor
    text: Tensor
    text_pad: Tensor
    positive: Tensor
    ordered: Tensor

    def positive_without_padding(self) -> Tensor:
        """Return `positive` (B, K, T), False on padding."""
        return self.positive & ~self.video_pad[:, None] & ~self.text_pad[:, :, None]


def collate(samples: Sequence[Sample], max_rows: int = MAX_ROWS) -> Batch:
    """Return samples as one batch. Videos, and their labels, are cut to their first `max_rows`
    rows.

    Raises ShapeError when there is no sample, or when feature widths differ.
    """
    if not samples:
        raise ShapeError("a batch needs at least one video, not 0")
    # Videos are cut, texts never.
    video, video_pad = pad_rows([sample.video[:max_rows] for sample in samples])
    text, text_pad = pad_rows([sample.text for sample in samples])
    # Labels are cut and padded as rows and texts are.
    positive = np.zeros((*text_pad.shape, video_pad.shape[1]), dtype=np.bool_)  # (B, K, T)
    for row, sample in zip(positive, samples, strict=True):
        labels = sample.positive[:, :max_rows]
        texts, length = labels.shape
        row[:texts, :length] = labels
    ids = tuple(sample.id for sample in samples)
    ordered = torch.tensor([sample.ordered for sample in samples])  # (B,)
    return Batch(ids, video, video_pad, text, text_pad, torch.from_numpy(positive), ordered)


def pad_rows(rows: Sequence[Matrix]) -> tuple[Tensor, Tensor]:
    """Return sequences (N_i, C) as one tensor (B, max N_i, C), zero on padding, and its mask (B,
    max N_i), True on padding."""
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


def plan_batches(
    lengths: Sequence[int],
    size: int,
    *,
    seed: int,
    epoch: int,
    shards: Sequence[int] = (),
    window: int = SHARDS_PER_WINDOW,
) -> Iterator[tuple[int, ...]]:
    """Yield the batches of an epoch as tuples of sample indices. Samples of similar length share a
    batch.

    Every index comes once. The order depends only on the arguments. With more than `window` shards,
    an epoch reads the samples of `window` random shards at a time, so that each shard is read once.
    Samples that no full batch of a window holds begin the next window.

    Args:
        lengths: of the samples, in feature rows.
        size: most samples of a batch.
        seed: of the run.
        epoch: number of the epoch.
        shards: number of the shard of each sample. Empty: not known.
        window: number of shards that are read at a time.
    """
    rng = np.random.default_rng([seed, epoch])
    waiting: npt.NDArray[np.int64] = np.empty(0, np.int64)  # what no batch had room for
    parts = group_by_shards(len(lengths), shards, window, rng)
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


def group_by_shards(
    count: int, shards: Sequence[int], window: int, rng: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    """Return the indices below `count` in groups, each of the samples of at most `window` shards
    drawn at random.

    There is one group, and nothing is drawn, where there are no more shards than that or none is
    known.
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
