"""Settings of building a text base. Nothing heavy is imported here."""

from typing import Literal

from stepline.settings import Batch, Count, Settings


class TextBaseSettings(Settings):
    """Encoder of a text base, limits on the texts that are read, and sizes of batches."""

    encoder: str = "minilm"
    """minilm, mpnet, or a folder in the sentence-transformers layout (BERT or MPNet)"""
    precision: Literal["float16", "float32"] = "float16"
    """type of the numbers of the vectors on disk"""
    longest_document: Count = 100_000
    """characters; a longer document is left out"""
    longest_step: Count = 1_000
    """characters; a longer step is left out"""
    block: Count = 4_096
    """steps embedded between two writes to disk"""
    batch: Batch = 64
    """steps embedded together; affects speed only"""
