"""Punctuation restoration: MiniLM with low-rank additions of its own, and one linear head.

It gives each word the probability of each punctuation mark after it, from the vectors of the word
and of the next word.
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
    running_total,
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
        """Return P of each of PUNCTUATION_CLASSES after each of W words, (W, 4).

        words: W words of speech. Their punctuation is ignored.
        """
        rows = [np.zeros((0, len(PUNCTUATION_CLASSES)), np.float32)]
        for window in word_windows(words, self._encoder.tokenizer):
            hidden = self._encoder.encode(window.ids)  # (L, D)
            vectors = word_means(running_total(hidden), window.spans[0].word_starts)  # (W, D)
            # Behind the last word are zeros, as in training.
            following = np.concatenate([vectors[1:], np.zeros_like(vectors[:1])])
            rows.append(self._encoder.predict_classes("mark", np.hstack([vectors, following])))
        return np.concatenate(rows)


@functools.cache
def load_punctuation_model() -> PunctuationModel:
    """Return the punctuation predictor that is shipped, loaded once per process."""
    return PunctuationModel()
