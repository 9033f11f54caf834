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
    """Return features (T, C) as (size, C) float32, the nearest rows. A single row is repeated."""
    return np.asarray(values[nearest_rows(len(values), size)], dtype=np.float32)


def nearest_rows(length: int, size: int) -> npt.NDArray[np.int64]:
    """Return which of `length` rows is nearest to each of `size` positions, (size,). A half
    rounds down.

    In whole numbers, so that a half is exact. Raises ShapeError when either is not positive.
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
    """One video with its steps.

    Attributes:
        id: of the video.
        values: (T, C) float32 feature rows, T may be 0.
        duration: seconds that the rows cover.
        spans: start and end of each step in seconds, in any order.
        sentences: text of each step.
    """

    id: str
    values: Matrix
    duration: float
    spans: tuple[tuple[float, float], ...] = ()
    sentences: tuple[str, ...] = ()


@dataclass(frozen=True)
class VideoBatch(TensorRecord):
    """Input of the network.

    Attributes:
        values: (B, R, C) feature rows of the videos, resized to R.
        durations: (B,) seconds.
        empty: (B,), True where a video has no feature row. None when every video has rows.
    """

    values: Tensor
    durations: Tensor
    empty: Tensor | None = None


@dataclass(frozen=True)
class StepBatch(TensorRecord):
    """Videos with the steps that the network learns.

    Attributes:
        ids: of the B videos.
        videos: input of the network.
        targets: where the steps are.
        captions: S sentences, video by video in the order of the targets' steps, which is that
            of time.
    """

    ids: tuple[str, ...]
    videos: VideoBatch
    targets: Targets
    captions: CaptionTokens

    def caption_rows(self, video: Tensor, step: Tensor) -> Tensor:
        """Return the row of the caption of each step of each video, both (M,): (M,)."""
        counts = self.targets.counts
        return (counts.cumsum(0) - counts)[video] + step


def stack_videos(
    values: Sequence[Matrix], durations: Sequence[float], rows: int, width: int | None = None
) -> VideoBatch:
    """Return the features of several videos as one batch, resized to one length.

    Args:
        values: (T, C) rows of each video. A video without rows is zeros, and marked as empty.
        durations: seconds of each video.
        rows: R, feature rows after resizing.
        width: C, needed only where every video is empty.

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
    """Return the samples as one batch. All steps of all videos are kept, in the order of time.

    Raises ShapeError when widths do not fit, or a span is reversed or outside its video.
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
