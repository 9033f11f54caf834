"""Samples (a video with texts), and batches of samples padded to one shape. Masks are made here
only.

`*_pad` is True on padding. Letters: B batch, K texts, T feature rows, C width of a feature row.
"""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Generic, Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.records import Matrix, Rejected, count_reasons

Mask = npt.NDArray[np.bool_]
S = TypeVar("S")
P = TypeVar("P", bound="PendingSample")
B = TypeVar("B", bound="TensorRecord")

# rows of a video that training sees. NaSVA's supplement gives seconds, at one row per second
MAX_ROWS = 1200
# batches among which videos of similar length are sought. More pad less, but shuffle less
BATCHES_PER_POOL = 50
# shards of features, of 256 MiB each, among whose videos each epoch shuffles at a time
SHARDS_PER_WINDOW = 16
MAX_HELD_OUT = 500  # held-out samples that are scored


@dataclass(frozen=True)
class Sample:
    """One video with its texts and labels, for training or inference.

    Raises ShapeError when the arrays do not fit together, or hold NaN or infinity.

    Attributes:
        id: name of the sample, for error messages.
        video: (T, C) float32 feature rows of the video in order of time, T at least 1.
        text: (K, C) float32 text vectors, K may be 0.
        positive: (K, T) bool label matrix: True if text k is shown in feature row t.
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
            raise ShapeError(
                f"{self.id}: the video has no feature row; extract its features again, or leave it "
                "out"
            )
        shape = (len(self.text), len(self.video))
        if self.positive.dtype != bool or self.positive.shape != shape:
            form = f"{self.positive.dtype} {self.positive.shape}"
            raise ShapeError(
                f"{self.id}: labels must be bool {shape}, texts by feature rows, not {form}"
            )

    def shuffle_texts(self, rng: np.random.Generator) -> "Sample":
        """Return the sample with its texts in a random order, marked as not ordered."""
        order = rng.permutation(len(self.text))
        return replace(self, text=self.text[order], positive=self.positive[order], ordered=False)


class LazySamples(Sequence[S]):
    """A sequence of samples. A sample is made or read from disk only when it is indexed.

    Attributes:
        lengths: number of feature rows of each sample, known without reading the sample.
        shards: for each sample, the number of the feature store's shard that holds its features.
            Empty if the samples are not in a feature store.
    """

    def __init__(
        self, load_sample: Callable[[int], S], lengths: Sequence[int], shards: Sequence[int] = ()
    ) -> None:
        self._load_sample = load_sample
        self.lengths = list(lengths)
        self.shards = list(shards)

    def __len__(self) -> int:
        return len(self.lengths)

    @overload
    def __getitem__(self, index: int) -> S: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[S]: ...
    def __getitem__(self, index: int | slice) -> S | Sequence[S]:
        """Return a sample as it is on disk now, or several for a slice.

        Raises ShapeError if the features of the sample hold NaN.
        """
        if isinstance(index, slice):
            return [self._load_sample(number) for number in range(*index.indices(len(self)))]
        return self._load_sample(range(len(self))[index])


class PendingSample(Protocol):
    """Video id of a sample whose features are not read yet."""

    @property
    def video(self) -> str:
        """Id of the video."""


class GatheredSamples(LazySamples[S], Generic[P, S]):
    """Samples whose features are in a feature store. A sample is read only when it is indexed.

    Attributes:
        parts: for each sample, a description from which the sample is read.
        omitted: videos or texts that did not become a sample, with the reasons.
        videos: ids of the videos of all samples, each id once.
    """

    def __init__(
        self,
        load_sample: Callable[[int], S],
        lengths: Sequence[int],
        shards: Sequence[int],
        parts: Sequence[P],
        omitted: Sequence[Rejected],
    ) -> None:
        super().__init__(load_sample, lengths, shards)
        self.parts = parts
        self.omitted = tuple(omitted)
        self.videos = tuple(dict.fromkeys(part.video for part in parts))

    def count_reasons(self) -> dict[str, int]:
        """Return the number of omitted items by reason, the most frequent first."""
        return count_reasons(self.omitted)

    def split_parts(self, fraction: float) -> tuple[list[P], list[P]]:
        """Return the parts of the training samples, and those of at most MAX_HELD_OUT held-out ones,
        evenly spaced over all that are held out.

        A video is held out by its id only.

        fraction: fraction of the videos that is held out, 0 to 1.
        """
        training = [part for part in self.parts if not is_held_out(part.video, fraction)]
        held_out = [part for part in self.parts if is_held_out(part.video, fraction)]
        return training, held_out[:: max(1, -(-len(held_out) // MAX_HELD_OUT))]


def is_held_out(video: str, fraction: float) -> bool:
    """Return whether a video belongs to the held-out fraction. The answer depends on its id only.

    Args:
        video: id of the video.
        fraction: fraction of all videos that is held out, 0 to 1.
    """
    return zlib.crc32(video.encode()) < fraction * 2**32


def get_lengths_and_shards(
    samples: Sequence[S], length: Callable[[S], int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Return the length and the shard number of each sample. Lazy samples are not read.

    The shard numbers are empty if the samples are not in a feature store.

    Args:
        samples: the samples.
        length: returns the number of feature rows of a sample. It is not called for lazy samples.
    """
    if isinstance(samples, LazySamples):
        return samples.lengths, samples.shards
    return [length(sample) for sample in samples], ()


def join_samples(
    first: Sequence[S], second: Sequence[S], length: Callable[[S], int]
) -> LazySamples[S]:
    """Return the samples of two sequences as one lazy sequence, `first` before `second`.

    If only some samples have a shard number, the others get existing shard numbers in equal parts.
    Thus they are spread over the epoch.

    Args:
        first: samples.
        second: further samples.
        length: returns the number of feature rows of a sample. It is not called for lazy samples.
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
    """Samples padded with zeros to the longest one, as networks and losses take them.

    B samples, at most T feature rows and K texts per sample, C elements per vector.

    Attributes:
        ids: (B,) names of the samples.
        video: (B, T, C) feature rows of the videos.
        video_pad: (B, T) True on padding rows.
        text: (B, K, C) text vectors.
        text_pad: (B, K) True on padding texts.
        positive: (B, K, T) True if text k is shown in feature row t.
        ordered: (B,) whether the texts of a sample are in spoken order.
    """

    ids: tuple[str, ...]
    video: Tensor
    video_pad: Tensor
    text: Tensor
    text_pad: Tensor
    positive: Tensor
    ordered: Tensor

    def positive_without_padding(self) -> Tensor:
        """Return the labels `positive` (B, K, T), False on padding texts and padding rows."""
        return self.positive & ~self.video_pad[:, None] & ~self.text_pad[:, :, None]


def collate(samples: Sequence[Sample], max_rows: int = MAX_ROWS) -> Batch:
    """Return samples as one padded batch.

    Args:
        samples: at least one sample.
        max_rows: most feature rows of a video. Later rows and their labels are cut off.

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
    """Return B sequences of rows as one padded tensor, and its padding mask.

    The tensor (B, N, C) is zero on padding. The mask (B, N) is True on padding. N is the length of
    the longest sequence.

    Args:
        rows: B matrices (N_i, C).
    """
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
    """Yield the batches of an epoch as tuples of sample indices.

    Every sample comes once, and samples of similar length share a batch. The order depends only on
    the arguments. With more than `window` shards, an epoch reads the samples of `window` random
    shards at a time. Thus each shard is read once. Samples that do not fill a batch of a window
    are moved to the next window.

    Args:
        lengths: number of feature rows of each sample.
        size: most samples in a batch.
        seed: random seed of the training run.
        epoch: number of the epoch.
        shards: number of the feature store's shard that holds each sample. Empty if not known.
        window: number of shards that are read at a time.
    """
    rng = np.random.default_rng([seed, epoch])
    waiting: npt.NDArray[np.int64] = np.empty(0, np.int64)  # what no batch had room for
    parts = group_by_shards(len(lengths), shards, window, rng)
    for number, part in enumerate(parts):
        order = np.concatenate([waiting, part[rng.permutation(len(part))]])
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
    """Return the sample indices 0 to `count` - 1 in groups. A group has samples of few shards.

    If there are at most `window` shards, or none is known, there is one group and `rng` is unused.

    Args:
        count: number of samples.
        shards: number of the feature store's shard that holds each sample. Empty if not known.
        window: most shards in a group. They are drawn at random.
        rng: generator of the draw.
    """
    numbers = np.unique(np.asarray(shards, np.int64))
    if len(numbers) <= window:
        return [np.arange(count)]
    drawn_order = rng.permutation(len(numbers))
    window_of_shard = np.empty(len(numbers), np.int64)
    window_of_shard[drawn_order] = np.arange(len(numbers)) // window
    windows = window_of_shard[np.searchsorted(numbers, shards)]  # of each index
    order = np.argsort(windows, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(windows[order])) + 1)
