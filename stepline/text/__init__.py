"""Sentences to vectors: `embed(texts)` gives unit rows whose dot products are cosines."""

from stepline.text.embedding import embed, load_encoder

__all__ = ["embed", "load_encoder"]
