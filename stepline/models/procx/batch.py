"""Videos with their steps as the network and its losses take them: padded, resized, in the order of
time.

Features of any length are brought to the fixed length that the network takes (ProcX section 6.3:
256 rows). Row i of L is at i (T - 1) / (L - 1) of the T rows, so that the first and the last row
are kept. Source: PDVC, as released. Letters: B videos, T feature rows, L rows after resizing, C
width of a feature row. S steps of all videos, A tokens of what is said, O further wordings.
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
from stepline.models.procx.vocabulary import CaptionTokens, Vocabulary, pad_tokens, tokenize
from stepline.models.training.batches import TensorRecord
from stepline.records import Matrix


def resize_rows(values: Matrix, size: int) -> Matrix:
    """Return features (T, C) as (size, C) float32, the nearest rows. A single row is repeated.

    Raises ShapeError when there is no row, or `size` is not positive.
    """
    if values.ndim != 2 or not len(values):
        expected = f"(rows, width) with a row at least, not {values.shape}"
        raise ShapeError(f"features must be {expected}; extract them again")
    rows = nearest_rows(len(values), size)
    return np.asarray(values[rows], dtype=np.float32)


def nearest_rows(length: int, size: int) -> npt.NDArray[np.int64]:
    """Return which of `length` rows is nearest to each of `size` positions, (size,). A half
    rounds down.

    In whole numbers, so that a half is one. Raises ShapeError when either is not positive.
    """
    if length < 1 or size < 1:
        raise ShapeError(f"{length} rows cannot be resized to {size}; both must be at least 1")
    gaps = max(1, size - 1)
    positions = np.arange(size, dtype=np.int64)
    # 2 (place - 1/2), times `gaps`
    doubled = 2 * positions * (length - 1) - gaps
    # The ceiling, so that a half rounds down.
    rows = -(-doubled // (2 * gaps))
    return np.maximum(0, rows)


@dataclass(frozen=True)
class StepSample:
    """One video with its steps.

    values: (T, C) float32, T may be 0.
    spans: in seconds, each with its sentence. The steps may be in any order.
    speech: what is said around each step, None where it is not read.
    alternatives: further wordings of each step, () without any. A batch is made of
    `sentences` alone.
    Raises ShapeError when the parts do not fit together.
    """

    id: str
    values: Matrix
    duration: float
    spans: tuple[tuple[float, float], ...] = ()
    sentences: tuple[str, ...] = ()
    speech: tuple[str, ...] | None = None
    alternatives: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or not np.isfinite(self.values).all():
            raise ShapeError(
                f"{self.id}: features must be finite, (rows, width), not {self.values.shape}"
            )
        texts: dict[str, Sequence[object]] = {"sentences": self.sentences}
        if self.speech is not None:
            texts["texts of speech"] = self.speech
        if self.alternatives:
            texts["alternatives"] = self.alternatives
        count = len(self.spans)
        for name, rows in texts.items():
            if len(rows) != count:
                raise ShapeError(f"{self.id}: {count} spans need as many {name}, not {len(rows)}")

    @property
    def order(self) -> list[int]:
        """Which step comes first, second, ...: by start, then end."""
        return sorted(range(len(self.spans)), key=lambda step: self.spans[step])


@dataclass(frozen=True)
class Videos(TensorRecord):
    """What the network looks at.

    values: (B, R, C).
    durations: (B,) seconds.
    empty: (B,), True where no row is known.

    empty is None when every video has rows.
    """

    values: Tensor
    durations: Tensor
    empty: Tensor | None = None


@dataclass(frozen=True)
class AlternativeCaptions(TensorRecord):
    """Further wordings of steps: O sentences, each of step (O,) of video (O,), which are numbers in
    the targets."""

    sentences: CaptionTokens
    video: Tensor
    step: Tensor


@dataclass(frozen=True)
class StepBatch(TensorRecord):
    """Videos, and what should be said of them.

    captions: S sentences, video by video in the order of the targets' steps, which is that of time.
    speech: (S, A) tokens spoken around each step. Like speech_pad None where no video has any.
    alternatives: None where no step has any.
    """

    ids: tuple[str, ...]
    videos: Videos
    targets: Targets
    captions: CaptionTokens
    speech: Tensor | None = None
    speech_pad: Tensor | None = None
    alternatives: AlternativeCaptions | None = None

    def rows(self, video: Tensor, step: Tensor) -> Tensor:
        """Return which caption belongs to each step of each video, both (M,): (M,)."""
        counts = self.targets.counts
        return (counts.cumsum(0) - counts)[video] + step


def stack_videos(
    values: Sequence[Matrix], durations: Sequence[float], rows: int, width: int | None = None
) -> Videos:
    """Return features (T, C) of several videos, resized. One without rows is zeros, and so marked.

    width: C, needed only where every video is empty. Raises ShapeError when widths differ or there
    is no video.
    """
    widths = {matrix.shape[1] for matrix in values if len(matrix)}
    if width is not None:
        widths.add(width)
    if len(widths) != 1 or len(values) != len(durations):
        raise ShapeError(
            f"features of one batch must have one width, not {sorted(widths)}; use one backbone"
        )
    # An empty video keeps its place in the batch, as rows of zeros.
    blank = np.zeros((rows, widths.pop()), dtype=np.float32)
    resized = []
    for matrix in values:
        if len(matrix):
            resized.append(resize_rows(matrix, rows))
        else:
            resized.append(blank)
    stacked = torch.from_numpy(np.stack(resized))  # (B, R, C)
    seconds = torch.tensor(list(durations), dtype=torch.float32)
    is_empty = [not len(matrix) for matrix in values]
    if not any(is_empty):
        return Videos(stacked, seconds)
    return Videos(stacked, seconds, torch.tensor(is_empty))


def collate(
    samples: Sequence[StepSample], vocabulary: Vocabulary, settings: ModelSettings
) -> StepBatch:
    """Return the samples as one batch. All steps of all videos are kept, in the order of time.

    Raises ShapeError when there is no sample, widths do not fit, or a span is reversed or outside
    its video.
    """
    if not samples:
        raise ShapeError("a batch needs at least one video, not 0")

    # what is seen, and where the steps are
    ids = [sample.id for sample in samples]
    values = [sample.values for sample in samples]
    durations = [sample.duration for sample in samples]
    videos = stack_videos(values, durations, settings.rows, settings.features)
    spans = [[sample.spans[step] for step in sample.order] for sample in samples]
    targets = build_targets(spans, durations)

    # what should be said of them, and what is said around them
    longest = settings.captioner.longest
    ordered = [(sample, step) for sample in samples for step in sample.order]
    sentences = [sample.sentences[step] for sample, step in ordered]
    captions = tokenize(sentences, vocabulary, longest)
    speech = None
    speech_pad = None
    # As soon as one video has speech, every step gets a row, which may be all padding.
    if any(sample.speech is not None for sample in samples if sample.spans):
        max_tokens = settings.captioner.longest_transcript
        transcripts = []
        for sample, step in ordered:
            text = sample.speech[step] if sample.speech else ""
            transcripts.append(vocabulary.encode(text)[:max_tokens])
        speech, speech_pad = pad_tokens(transcripts)
    alternatives = _alternative_captions(samples, vocabulary, longest)
    return StepBatch(tuple(ids), videos, targets, captions, speech, speech_pad, alternatives)


def _alternative_captions(
    samples: Sequence[StepSample], vocabulary: Vocabulary, longest: int
) -> AlternativeCaptions | None:
    """Return the further wordings of all steps, in the order of the targets, None without any."""
    places = []
    texts: list[str] = []
    for video, sample in enumerate(samples):
        if not sample.alternatives:
            continue
        for number, step in enumerate(sample.order):
            wordings = sample.alternatives[step]
            texts += wordings
            places += [(video, number)] * len(wordings)
    if not texts:
        return None
    videos, steps = torch.tensor(places).T  # (O,) each
    return AlternativeCaptions(tokenize(texts, vocabulary, longest), videos, steps)
