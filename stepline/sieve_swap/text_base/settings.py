"""Settings of building a text base. Nothing heavy is imported here."""

from typing import Literal

from pydantic import Field

from stepline.settings import Batch, Count, Settings


class TextBaseSettings(Settings):
    """Encoder of a text base, limits on the texts that are read, and sizes of batches."""

    encoder: str = Field(
        "minilm",
        description="minilm, mpnet, or a folder in the sentence-transformers layout (BERT or "
        "MPNet)",
    )
    precision: Literal["float16", "float32"] = Field(
        "float16", description="type of the numbers of the vectors on disk"
    )
    longest_document: Count = Field(
        100_000, description="characters; a longer document is left out"
    )
    longest_step: Count = Field(1_000, description="characters; a longer step is left out")
    block: Count = Field(4_096, description="steps embedded between two writes to disk")
    batch: Batch = Field(64, description="steps embedded together; affects speed only")
