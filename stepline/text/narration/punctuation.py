"""Punctuation restoration: MiniLM with low-rank additions of its own, and one linear head.

It says of each word which mark a writer would put behind it, by the vectors of the word and of the
next.
Letters: W words, D width.
"""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from stepline.text.narration.adapted_encoder import (
    AdaptedEncoder,
    Array,
    read_weights_file,
    word_means,
)
from stepline.text.narration.windows import word_windows
from stepline.text.narration.words import PUNCTUATION_CLASSES

PUNCTUATION_FILE = "narration_marks.safetensors"


class PunctuationModel:
    """Predicts the punctuation after each word of unpunctuated speech.

    Immutable once loaded, so thread-safe.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Load the weights. Raises ModelError when they cannot be read or MiniLM is missing.

        path: a file of lab/writer_training. None: the file shipped with the package.
        """
        weights, _ = read_weights_file(path, PUNCTUATION_FILE)
        self._encoder = AdaptedEncoder(weights)

    def predict_punctuation(self, words: Sequence[str]) -> Array:
        """Return P of each of PUNCTUATION_CLASSES after each word, (W, 4).

        words: existing punctuation is ignored.
        """
        mark_count = len(PUNCTUATION_CLASSES)
        empty_rows = np.zeros((0, mark_count), np.float32)
        rows = [empty_rows]
        tokenizer = self._encoder.tokenizer
        for window, hidden in self._encoder.encode(word_windows(words, tokenizer)):
            span = window.spans[0]
            vectors = word_means(hidden, span.word_starts)  # (W, D)
            # Behind the last word are zeros, as in training.
            next_vectors = vectors[1:]
            zero_vector = np.zeros_like(vectors[:1])
            following = np.concatenate([next_vectors, zero_vector])
            features = np.hstack([vectors, following])
            rows.append(self._encoder.head("mark", features))
        return np.concatenate(rows)


@functools.cache
def load_punctuation_model(path: Path | None = None) -> PunctuationModel:
    """Return the punctuation predictor, loaded once per process."""
    return PunctuationModel(path)
