"""Videos with their steps as the network and its losses take them: padded, resized, in the order of
time.

Features of any length are brought to the fixed length that the network takes (ProcX section 6.3:
256 rows). Row i of L is at i (T - 1) / (L - 1) of the T rows, so that the first and the last row
are kept. Source: PDVC, as released. Letters: B videos, T feature rows, L rows after resizing, C
width of a feature row, S steps of all videos.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.models.procx.matcher import Targets, build_targets
from stepline.models.procx.settings import ModelSettings
from stepline.models.procx.vocabulary import CaptionTokens, Vocabulary, tokenize
from stepline.models.training.batches import TensorRecord
from stepline.records import Matrix


def resize_rows(values: Matrix, size: int) -> Matrix:
    """Return features (T, C) resampled to (size, C) float32 by taking the nearest row of each
    position. A single row is repeated."""
    return np.asarray(values[nearest_rows(len(values), size)], dtype=np.float32)


def nearest_rows(length: int, size: int) -> npt.NDArray[np.int64]:
    """Return the index of the nearest of `length` rows for each of `size` evenly spaced positions,
    (size,).

    A position halfway between two rows takes the lower row. Raises ShapeError unless both numbers
    are positive.
    """
    if length < 1 or size < 1:
        raise ShapeError(f"{length} rows cannot be resized to {size}; both must be at least 1")
    gaps = max(1, size - 1)
    # 2 (position - 1/2), times `gaps`
    doubled = 2 * np.arange(size, dtype=np.int64) * (length - 1) - gaps
    # The ceiling, so that a half rounds down.
    return np.maximum(0, -(-doubled // (2 * gaps)))


@dataclass(frozen=True)
class StepSample:
    """One training video with its annotated steps.

    Attributes:
        id: id of the video.
        values: (T, C) float32 feature rows. T may be 0.
        duration: seconds of video that the rows cover.
        spans: start and end of each step in seconds, in any order.
        sentences: text of each step, in the order of `spans`.
    """

    id: str
    values: Matrix
    duration: float
    spans: tuple[tuple[float, float], ...] = ()
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class VideoBatch(TensorRecord):
    """Feature rows of B videos, the input of the network.

    Attributes:
        values: (B, R, C) feature rows, every video resized to R rows of width C.
        durations: (B,) length of each video in seconds.
        empty: (B,), True for a video without feature rows. None: every video has rows.
    """

    values: Tensor
    durations: Tensor
    empty: Tensor | None = None


@dataclass(frozen=True)
class StepBatch(TensorRecord):
    """B videos with the annotated steps that the network learns to find and describe.

    Attributes:
        ids: ids of the B videos.
        videos: feature rows of the videos.
        targets: spans of the steps.
        captions: sentences of all steps, video by video, in order of time within a video.
    """

    ids: tuple[str, ...]
    videos: VideoBatch
    targets: Targets
    captions: CaptionTokens

    def caption_rows(self, video: Tensor, step: Tensor) -> Tensor:
        """Return the row in `captions` of each of M steps, (M,).

        Args:
            video: (M,) index of each step's video in the batch.
            step: (M,) number of the step in its video, from 0 in order of time.
        """
        counts = self.targets.counts
        return (counts.cumsum(0) - counts)[video] + step


def stack_videos(
    values: Sequence[Matrix], durations: Sequence[float], rows: int, width: int | None = None
) -> VideoBatch:
    """Return the features of B videos as one batch, resized to `rows` rows each.

    Args:
        values: (T, C) feature rows of each video. A video with T = 0 becomes zeros and is marked as
            empty.
        durations: length of each video in seconds.
        rows: number of feature rows of each video after resizing.
        width: C, needed only if every video is empty.

    Raises ShapeError when widths differ or there is no video.
    """
    widths = {matrix.shape[1] for matrix in values if len(matrix)}
    if width is not None:
        widths.add(width)
    if len(widths) != 1:
        raise ShapeError(
            f"features of one batch must have one width, not {sorted(widths)}; use one backbone"
        )
    # An empty video keeps its row in the batch, as zeros.
    blank = np.zeros((rows, widths.pop()), dtype=np.float32)
    resized = [resize_rows(matrix, rows) if len(matrix) else blank for matrix in values]
    stacked = torch.from_numpy(np.stack(resized))  # (B, R, C)
    seconds = torch.tensor(list(durations), dtype=torch.float32)
    is_empty = torch.tensor([not len(matrix) for matrix in values])
    return VideoBatch(stacked, seconds, is_empty if is_empty.any() else None)


def collate(
    samples: Sequence[StepSample], vocabulary: Vocabulary, settings: ModelSettings
) -> StepBatch:
    """Return samples as one batch. All steps of all videos are kept, in order of time.

    Args:
        samples: videos with their steps.
        vocabulary: turns the sentences into tokens.
        settings: gives the number of feature rows and the longest caption.

    Raises ShapeError when feature widths differ, or a span is reversed or outside its video.
    """
    values = [sample.values for sample in samples]
    durations = [sample.duration for sample in samples]
    videos = stack_videos(values, durations, settings.rows, settings.features)
    spans = []
    sentences: list[str] = []
    for sample in samples:
        # by start, then end
        order = sorted(range(len(sample.spans)), key=lambda step: sample.spans[step])
        spans.append([sample.spans[step] for step in order])
        sentences += [sample.sentences[step] for step in order]
    targets = build_targets(spans, durations)
    captions = tokenize(sentences, vocabulary, settings.captioner.longest)
    return StepBatch(tuple(sample.id for sample in samples), videos, targets, captions)
