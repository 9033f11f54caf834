"""How well each text fits each row of a video of any length: one pass, or windows whose scores are averaged.

The network never sees more rows than a window holds, nor decides anything by padding. Letters: K texts, T feature
rows, C width of the features. Source of the windows: TAN, eval_zeroshot_align; differs: no text is left out unless
it is known when the texts are said.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from stepline.batches import Sample, collate
from stepline.errors import ShapeError
from stepline.nasva.aligner_settings import AlignerSettings, Mode
from stepline.nasva.model import Aligner
from stepline.records import Alignment, FeatureSequence, Matrix, Span

NOWHERE = -1.0  # cosine of a row that no window with the text covers: never the best


@dataclass(frozen=True)
class Fit:
    """What the network says of K texts: scores (K, T) cosines, alignable (K,) logits or None without that head.

    rate: rows per second.
    """

    scores: Matrix
    alignable: Matrix | None
    rate: float


@dataclass(frozen=True)
class Window:
    """Rows [start, end) of the video, and the texts [first, last) that are sought in them."""

    start: int
    end: int
    first: int
    last: int


def align(
    aligner: Aligner,
    features: FeatureSequence,
    texts: Sequence[str],
    vectors: Matrix,
    *,
    mode: Mode = "step",
    said: Sequence[Span] | None = None,
) -> Alignment:
    """Return how well each text fits each row, as cosines; `fit_texts` says what it takes and raises."""
    fit = fit_texts(aligner, features, vectors, said=said, settings=AlignerSettings(mode=mode))
    return Alignment(tuple(texts), fit.scores, fit.rate, "cosine")


def fit_texts(
    aligner: Aligner,
    features: FeatureSequence,
    vectors: Matrix,
    *,
    said: Sequence[Span] | None = None,
    settings: AlignerSettings | None = None,
) -> Fit:
    """Return how well K texts fit a video.

    vectors: (K, C) float32, of the space that the network was trained on. said: when each text is said, in narration
    mode; a long video then seeks a text only near there. Raises ShapeError for arrays that do not fit or hold NaN,
    and for a video without rows.
    """
    settings = settings or AlignerSettings()
    if vectors.ndim != 2:
        raise ShapeError(f"text vectors must be (texts, width), not {vectors.shape}; give one row a text")
    if said is not None and len(said) != len(vectors):
        raise ShapeError(f"{len(said)} times for {len(vectors)} texts; give one a text, or none")
    rows, texts = len(features.values), len(vectors)
    middles = None
    if said is not None and settings.mode == "narration":
        middles = np.array([span.center * features.rate for span in said])
    total = np.zeros((texts, rows), dtype=np.float32)
    count = np.zeros((texts, rows), dtype=np.uint16)
    alignable = None if aligner.alignable is None else np.full(texts, -np.inf, dtype=np.float32)
    parts = windows(rows, texts, middles, settings)
    for window, scores, logits in _passes(aligner, features.values, vectors, parts, settings):
        place = slice(window.first, window.last), slice(window.start, window.end)
        total[place] += scores
        count[place] += 1
        if alignable is not None and logits is not None:
            alignable[place[0]] = np.maximum(alignable[place[0]], logits)
    total /= np.maximum(count, 1)
    total[count == 0] = NOWHERE
    return Fit(np.clip(total, -1.0, 1.0), alignable, features.rate)


def windows(rows: int, texts: int, middles: npt.NDArray[np.float64] | None, settings: AlignerSettings) -> list[Window]:
    """Return the windows of a video; every row is in one, and every text in one at least.

    middles: (K,) rows at which the texts are said, in order; a window then seeks those said between its length before
    its start and twice its length after it, as TAN does, and whatever stands between them.
    """
    if rows <= settings.whole:
        return [Window(0, rows, 0, texts)]
    length = settings.window
    found = []
    for start in range(0, rows - length // 2, settings.stride):
        end = min(rows, start + length)
        first, last = 0, texts
        if middles is not None:
            near = np.flatnonzero((start - length <= middles) & (middles <= start + 2 * length))
            first, last = (int(near[0]), int(near[-1]) + 1) if near.size else (0, 0)
        found += [Window(start, end, first, last)] if last > first else []
    return found


def _passes(
    aligner: Aligner, video: Matrix, vectors: Matrix, parts: Sequence[Window], settings: AlignerSettings
) -> Iterator[tuple[Window, Matrix, Matrix | None]]:
    """Yield each window with its scores (texts, rows) and alignability logits (texts,), cut back to what is real."""
    device = next(aligner.parameters()).device
    was_training = aligner.training
    aligner.eval()
    try:
        for first in range(0, len(parts), settings.batch):
            some = parts[first : first + settings.batch]
            batch = collate([_sample(part, video, vectors, settings.mode) for part in some], longest=len(video))
            with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=settings.bf16):
                aligned = aligner(batch.to(device))
                scores = aligned.scores.cpu().numpy()  # (B, K, T)
                logits = None if aligned.alignable is None else aligned.alignable.cpu().numpy()
            for row, part in enumerate(some):
                own = scores[row, : part.last - part.first, : part.end - part.start]
                yield part, own, None if logits is None else logits[row, : part.last - part.first]
    finally:
        aligner.train(was_training)


def _sample(part: Window, video: Matrix, vectors: Matrix, mode: Mode) -> Sample:
    rows, texts = part.end - part.start, part.last - part.first
    return Sample(
        id=f"rows {part.start} to {part.end}",
        video=np.ascontiguousarray(video[part.start : part.end]),
        text=vectors[part.first : part.last],
        positive=np.zeros((texts, rows), dtype=np.bool_),
        ordered=mode == "narration",
    )
