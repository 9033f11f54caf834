"""Settings of text bases: reading, merging, embedding, searching. Nothing heavy is imported
here."""

from typing import Literal, TypeAlias

from pydantic import Field

from stepline.settings import Batch, Count, Fraction, Settings

Engine: TypeAlias = Literal["exact", "lists"]
INDEX_ENGINE: Literal["lists"] = "lists"


class TextBaseSettings(Settings):
    """Settings of building and searching a text base."""

    encoder: str = Field(
        "minilm",
        description="minilm, mpnet, or a folder in the sentence-transformers layout (BERT or "
        "MPNet)",
    )
    precision: Literal["float16", "float32"] = Field(
        "float16", description="of the vectors on disk"
    )
    merge: Fraction = Field(
        0.7,
        description="likeness (Jaccard, word pairs) from which lines of the same content words "
        "are one",
    )
    longest_document: Count = Field(100_000, description="characters, a longer one is left out")
    longest_step: Count = Field(1_000, description="characters, a longer line is left out")
    memory: Count = Field(
        512,
        description="MiB that merging, embedding and a search may use beyond model and libraries",
    )
    shard: Count = Field(2_000, description="documents per file while reading")
    block: Count = Field(4_096, description="lines embedded between two writes")
    batch: Batch = Field(64, description="lines embedded together")
    engine: Engine = Field(
        "exact", description="what searches: exact compares all vectors, lists an approximate index"
    )
    recall: Fraction = Field(
        0.98, description="recall@1 that an approximate index is tuned to, against exact search"
    )
