"""The punctuation of speech: MiniLM with low-rank additions of its own, and one linear head.

It says of each word which mark a writer would put behind it, by the vectors of the word and of the
next.
Letters: W words, D width.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from stepline.text.narration.adapted_encoder import (
    AdaptedEncoder,
    Array,
    read_weights_file,
    word_means,
)
from stepline.text.narration.windows import stretch_windows
from stepline.text.narration.words import WORD_MARKS

MARKS_FILE: Final = "narration_marks.safetensors"


class MarkReader:
    """Reads words without their marks. Immutable once loaded, threads may share it."""

    def __init__(self, path: Path | None = None) -> None:
        """path: of a file that lab/writer_training wrote. None is the one that is shipped.

        Raises ModelError when it cannot be read or MiniLM is missing.
        """
        weights, _ = read_weights_file(path, MARKS_FILE)
        self._encoder = AdaptedEncoder(weights)

    def read_marks(self, words: Sequence[str]) -> Array:
        """Return P of each of WORD_MARKS after each word, (W, 4). Marks that words carry are not
        looked at."""
        mark_count = len(WORD_MARKS)
        no_rows = np.zeros((0, mark_count), np.float32)
        rows = [no_rows]
        tokenizer = self._encoder.tokenizer
        for window, hidden in self._encoder.encode(stretch_windows(words, tokenizer)):
            span = window.spans[0]
            vectors = word_means(hidden, span.starts)  # (W, D)
            # Behind the last word are zeros, as in training.
            others = vectors[1:]
            end = np.zeros_like(vectors[:1])
            following = np.concatenate([others, end])
            both = np.hstack([vectors, following])
            rows.append(self._encoder.head("mark", both))
        return np.concatenate(rows)


@functools.cache
def load_mark_reader(path: Path | None = None) -> MarkReader:
    """Return the reader of marks, loaded once per process."""
    return MarkReader(path)
