"""Settings of building a text base. Nothing heavy is imported here."""

from typing import Literal

from pydantic import Field

from stepline.settings import Batch, Count, Settings


class TextBaseSettings(Settings):
    """Settings of building a text base."""

    encoder: str = Field(
        "minilm",
        description="minilm, mpnet, or a folder in the sentence-transformers layout (BERT or "
        "MPNet)",
    )
    precision: Literal["float16", "float32"] = Field(
        "float16", description="of the vectors on disk"
    )
    longest_document: Count = Field(100_000, description="characters, a longer one is left out")
    longest_step: Count = Field(1_000, description="characters, a longer line is left out")
    block: Count = Field(4_096, description="lines embedded between two writes")
    batch: Batch = Field(64, description="lines embedded together")
