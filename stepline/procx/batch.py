"""Videos with their steps as the network and its losses take them: padded, resized, in the order of
time.

Features of any length are brought to the fixed length that the network takes (ProcX section 6.3:
256 rows): row i of L stands at i (T - 1) / (L - 1) of the T rows, so that the first and the last
row are kept. Source: PDVC, as released. Letters: B videos, T feature rows, L rows after resizing, C
width of a feature row, S steps of all videos, A tokens of what is said, O further wordings.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from stepline.errors import ShapeError
from stepline.procx.matcher import Targets, build_targets
from stepline.procx.settings import ModelSettings
from stepline.procx.vocabulary import CaptionTokens, Vocabulary, pad_tokens, tokenize
from stepline.records import Matrix
from stepline.training.batches import TensorRecord


def resize_rows(values: Matrix, size: int) -> Matrix:
    """Return features (T, C) as (size, C) float32, the nearest rows; a single row is repeated.

    Raises ShapeError when there is no row, or `size` is not positive.
    """
    if values.ndim != 2 or not len(values):
        raise ShapeError(
            f"features must be (rows, width) with a row at least, not {values.shape}; extract them again"
        )
    return np.asarray(values[nearest_rows(len(values), size)], dtype=np.float32)


def nearest_rows(length: int, size: int) -> npt.NDArray[np.int64]:
    """Return which of `length` rows is nearest to each of `size` positions, (size,); a half
    rounds down.

    In whole numbers, so that a half is one. Raises ShapeError when either is not positive.
    """
    if length < 1 or size < 1:
        raise ShapeError(f"{length} rows cannot be resized to {size}; both must be at least 1")
    gaps = max(1, size - 1)
    # 2 (place - 1/2), times `gaps`
    doubled = 2 * np.arange(size, dtype=np.int64) * (length - 1) - gaps
    return np.maximum(0, -(-doubled // (2 * gaps)))


@dataclass(frozen=True)
class StepSample:
    """One video with its steps. values: (T, C) float32, T may be 0; spans in seconds, each with its
    sentence.

    speech: what is said around each step, None where it is not read. alternatives: further wordings
    of each step, () where there are none; a batch is made of `sentences` alone. The steps may stand
    in any order.
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
        count = len(self.spans)
        speech = ("",) * count if self.speech is None else self.speech
        alternatives = self.alternatives or ((),) * count
        names = ("sentences", "texts of speech", "alternatives")
        for name, texts in zip(names, (self.sentences, speech, alternatives), strict=True):
            if len(texts) != count:
                raise ShapeError(f"{self.id}: {count} spans need as many {name}, not {len(texts)}")

    @property
    def order(self) -> list[int]:
        """Which step comes first, second, ...: by start, then end."""
        return sorted(range(len(self.spans)), key=lambda step: self.spans[step])


@dataclass(frozen=True)
class Videos(TensorRecord):
    """What the network looks at. values: (B, R, C); durations: (B,) seconds; empty: (B,), True
    where no row is known.

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
    speech: (S, A) tokens spoken around each step, and speech_pad; both None where no video has any.
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
    """Return features (T, C) of several videos, resized; one without rows is zeros, and so marked.

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
    blank = np.zeros((rows, widths.pop()), dtype=np.float32)
    # (B, R, C)
    stacked = np.stack([resize_rows(matrix, rows) if len(matrix) else blank for matrix in values])
    empty = torch.tensor([not len(matrix) for matrix in values])
    seconds = torch.tensor(list(durations), dtype=torch.float32)
    return Videos(torch.from_numpy(stacked), seconds, empty if bool(empty.any()) else None)


def collate(
    samples: Sequence[StepSample], vocabulary: Vocabulary, settings: ModelSettings
) -> StepBatch:
    """Return the samples as one batch; all steps of all videos are kept, in the order of time.

    Raises ShapeError when there is no sample, widths do not fit, or a span is reversed or outside
    its video.
    """
    if not samples:
        raise ShapeError("a batch needs at least one video, not 0")
    ordered = [(sample, step) for sample in samples for step in sample.order]
    longest = settings.captioner.longest
    speech, speech_pad = None, None
    if any(sample.speech is not None for sample in samples if sample.spans):
        max_tokens = settings.captioner.longest_transcript
        texts = [sample.speech[step] if sample.speech else "" for sample, step in ordered]
        speech, speech_pad = pad_tokens([vocabulary.encode(text)[:max_tokens] for text in texts])
    durations = [sample.duration for sample in samples]
    spans = [[sample.spans[step] for step in sample.order] for sample in samples]
    sentences = [sample.sentences[step] for sample, step in ordered]
    return StepBatch(
        tuple(sample.id for sample in samples),
        stack_videos(
            [sample.values for sample in samples], durations, settings.rows, settings.features
        ),
        build_targets(spans, durations),
        tokenize(sentences, vocabulary, longest),
        speech,
        speech_pad,
        _alternative_captions(samples, vocabulary, longest),
    )


def _alternative_captions(
    samples: Sequence[StepSample], vocabulary: Vocabulary, longest: int
) -> AlternativeCaptions | None:
    """Return the further wordings of all steps, in the order of the targets; None for none."""
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
