"""HTM-Align: recall at 1 of alignable sentences, and how well a score tells alignable from not (ROC-AUC).

K sentences, T feature rows of one second each. Two conventions differ in what is a hit and in which videos count:

    tan     floor(start) <= row <= ceil(end), both ends included; every video (TAN, eval_zeroshot_align)
    nasva   start <= row <= end, nothing rounded; videos without an alignable sentence are left out (NaSVA, train.py)

Of equal scores the first row is taken. Both pool the sentences of all videos.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import DatasetError
from stepline.evaluate.spans import as_spans
from stepline.evaluate.statistics import Floats

Convention: TypeAlias = Literal["tan", "nasva"]
CONVENTIONS: tuple[Convention, ...] = ("tan", "nasva")

NEVER = -6e4  # TAN's score of a second that no window covered, and of one that scores exactly 0


@dataclass(frozen=True)
class Annotation:
    """One video of HTM-Align: alignable: (K,) bool; spans: (K, 2) seconds; texts: K.

    The spans of alignable sentences were set by hand; the others keep the times at which they are spoken.
    """

    alignable: npt.NDArray[np.bool_]
    spans: Floats
    texts: tuple[str, ...]

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[object]]) -> "Annotation":
        """Return the annotation of the file's rows [alignable 0/1, start, end, text]. Raises DatasetError."""
        for row in rows:
            if len(row) != 4 or row[0] not in (0, 1) or not isinstance(row[3], str):
                raise DatasetError(f"{str(row)[:60]}: not [alignable 0 or 1, start, end, text]; see docs/evaluation.md")
        spans = as_spans([[row[1], row[2]] for row in rows], "htm-align")  # type: ignore[list-item]
        return cls(np.array([bool(row[0]) for row in rows], dtype=bool), spans, tuple(str(row[3]) for row in rows))

    @property
    def counted(self) -> int:
        """How many sentences are alignable."""
        return int(self.alignable.sum())


def hits(seconds: Floats, spans: Floats, convention: Convention = "tan") -> npt.NDArray[np.bool_]:
    """Return (K,): whether each second, (K,), hits its span; a NaN second (not placed) never does."""
    if convention == "nasva":
        return (spans[:, 0] <= seconds) & (seconds <= spans[:, 1])
    return (np.floor(spans[:, 0]) <= seconds) & (seconds <= np.ceil(spans[:, 1]))


def best_seconds(scores: Floats, rate: float = 1.0) -> Floats:
    """Return (K,) the second at which the first best row of (K, T) starts. Raises DatasetError for NaN or no rows."""
    if scores.ndim != 2 or scores.shape[1] == 0:
        raise DatasetError(f"scores of shape {scores.shape}; give (sentences, seconds) with at least one second")
    if np.isnan(scores).any():
        raise DatasetError("scores hold NaN; give a number for every sentence and second")
    return np.asarray(scores.argmax(axis=1) / rate, dtype=np.float64)


@dataclass(frozen=True)
class Window:
    """Rows [start, end) of the video and sentences [first, last] that are scored together."""

    start: int
    end: int
    first: int
    last: int


def tan_windows(annotation: Annotation, rows: int, length: int = 64) -> list[Window]:
    """Return TAN's overlapping windows: `length` rows, a quarter of that apart.

    A window holds the sentences between the first and the last NOT alignable one whose middle lies within `length`
    before and twice `length` after its start: the times of alignable ones would give the answer away. The first four
    windows begin with sentence 0 and the last four end with the last (the first four win where a window is both). A
    window without a sentence that is not alignable is left out. Source: TAN, eval_zeroshot_align.
    """
    middle = annotation.spans.mean(axis=1)
    starts = np.arange(0, rows - length // 2, length // 4)
    windows = []
    for index, start in enumerate(starts):
        near = ~annotation.alignable & (start - length <= middle) & (middle <= start + 2 * length)
        if not near.any():
            continue
        first, last = int(np.flatnonzero(near)[0]), int(np.flatnonzero(near)[-1])
        if index <= 3:
            first = 0
        elif index >= len(starts) - 4:
            last = min(rows, len(near) - 1)  # TAN ends at the number of rows, not of sentences
        windows.append(Window(int(start), min(rows, int(start) + length), first, last))
    return windows


def stitch(windows: Sequence[tuple[Window, Floats]], sentences: int, rows: int) -> Floats:
    """Return (K, T) scores: the mean over the windows that cover a cell, NEVER where none does or the mean is 0.

    windows: each with its scores (last - first + 1, end - start).
    """
    total, count = np.zeros((sentences, rows)), np.zeros((sentences, rows))
    for window, scores in windows:
        place = slice(window.first, window.last + 1), slice(window.start, window.end)
        if total[place].shape != scores.shape:
            raise DatasetError(f"window {window}: scores of shape {scores.shape}, not {total[place].shape}")
        total[place] += scores
        count[place] += 1
    return hide_zeros(total / np.maximum(count, 1))


def hide_zeros(scores: Floats) -> Floats:
    """Return scores in which 0 means "not scored", as in TAN's evaluator: such a cell is never the best one."""
    return np.where(scores == 0, NEVER, scores)


def windowed(scores: Floats, annotation: Annotation) -> Floats:
    """Return what TAN's windows leave of global scores (K, T): only seconds that a window with the sentence covers."""
    sentences, rows = scores.shape
    parts = [
        (window, scores[window.first : window.last + 1, window.start : window.end])
        for window in tan_windows(annotation, rows)
    ]
    return stitch(parts, sentences, rows)
