"""Embed texts with MiniLM, or with any local model in the sentence-transformers layout, without
that library.

The library would add 5 s of imports and 200 MB for the same vectors (tested to 1e-5).
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.networks.device import Device, cpu_threads, current_device
from stepline.networks.onnx_graph import run_batches
from stepline.networks.weights import find_weights
from stepline.records import Matrix

if TYPE_CHECKING:
    from stepline.text.encoder import SentenceEncoder

# One model per folder, for the life of the process.
_loaded: dict[tuple[Path, Device], "SentenceEncoder"] = {}
_loading = threading.Lock()
CPU_BATCH_TEXTS = 32  # embedded together

# What `embedding_cache` stores: a call's encoder, batch and texts -> its vectors.
_cached_vectors: ContextVar[dict[tuple[object, ...], Matrix] | None]
_cached_vectors = ContextVar("embedding_cache", default=None)


@contextmanager
def embedding_cache() -> Iterator[None]:
    """Make `embed` return the same vectors again for a list of texts that it has seen within this
    context and thread. They are read-only arrays.

    Whole lists are cached, not single texts, because the texts of a batch decide the last bits of a
    vector.
    """
    token = _cached_vectors.set({})
    try:
        yield
    finally:
        _cached_vectors.reset(token)


def embed(texts: Sequence[str], *, model: str = "minilm", batch: int | None = None) -> Matrix:
    """Return one unit vector per text: (N, D) float32, D = 384 for MiniLM. No texts give (0, D).

    Args:
        texts: N texts. Equal texts are encoded once.
        model: a name that `find_weights` knows, or the path of a folder in the sentence-transformers
            layout (BERT or MPNet).
        batch: texts per batch. None is 32 on a CPU and more on a GPU. It changes memory and speed,
            and vectors only in their last bits.
    Raises ModelError when the model is missing, damaged or of another kind.
    """
    encoder = load_encoder(model)
    batch = batch or encoder.device.scale_batch_size(CPU_BATCH_TEXTS)
    cached = _cached_vectors.get()
    if cached is None:
        return _embed_batches(texts, encoder, batch)
    key = (encoder, batch, *texts)
    if key not in cached:
        vectors = _embed_batches(texts, encoder, batch)
        vectors.flags.writeable = False
        cached[key] = vectors
    return cached[key]


def _embed_batches(texts: Sequence[str], encoder: "SentenceEncoder", batch: int) -> Matrix:
    """Return one unit vector per text, (N, D). batch: texts per batch."""
    # batches of different texts, of similar length
    different_texts = list(dict.fromkeys(texts))
    tokens = encoder.tokenize(different_texts)
    rows_by_length = sorted(range(len(tokens)), key=lambda row: -len(tokens[row]))
    batches = [rows_by_length[start : start + batch] for start in range(0, len(tokens), batch)]

    def encode(rows: list[int]) -> Matrix:
        return encoder.encode([tokens[row] for row in rows])

    threads = cpu_threads() if not encoder.device.needs_torch else 1
    vectors = np.empty((len(tokens), encoder.dim), dtype=np.float32)
    batch_vectors = run_batches(encode, batches, threads=threads)
    for rows, batch_rows in zip(batches, batch_vectors, strict=True):
        vectors[rows] = batch_rows
    if len(different_texts) == len(texts):
        return vectors

    # a row per text
    row_of = {text: row for row, text in enumerate(different_texts)}
    return vectors[[row_of[text] for text in texts]]


def load_encoder(model: str = "minilm") -> "SentenceEncoder":
    """Return the sentence encoder on the process's device, loaded on first use. It is thread-safe.

    model: as in `embed`.
    """
    key = (find_weights(model), current_device())
    with _loading:
        if key not in _loaded:
            from stepline.text.encoder import SentenceEncoder

            _loaded[key] = SentenceEncoder(*key)
        return _loaded[key]
