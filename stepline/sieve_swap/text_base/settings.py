"""Settings of text bases: reading, merging, embedding, searching. Nothing heavy is imported
here."""

from typing import Literal, TypeAlias

from stepline.settings import Batch, Count, Fraction, Seed, Settings

Engine: TypeAlias = Literal["exact", "lists", "flat", "ivf", "hnsw"]


class TextBaseSettings(Settings):
    """How a text base is built and searched."""

    # minilm, mpnet, or a folder in the sentence-transformers layout (BERT or MPNet)
    encoder: str = "minilm"
    precision: Literal["float16", "float32"] = "float16"  # of the vectors on disk
    # likeness (Jaccard, word pairs) from which lines of the same content words are one
    merge: Fraction = 0.7
    longest_document: Count = 100_000  # characters, a longer one is left out
    longest_step: Count = 1_000  # characters, a longer line is left out
    # MiB that merging, embedding and a search may use beyond model and libraries
    memory: Count = 512
    shard: Count = 2_000  # documents per file while reading
    block: Count = 4_096  # lines embedded between two writes
    batch: Batch = 64  # lines embedded together
    # what searches: exact and lists are our own. flat, ivf, hnsw need FAISS
    engine: Engine = "exact"
    recall: Fraction = 0.98  # recall@1 that an approximate index is tuned to, against exact search
    seed: Seed = 0  # of the index's k-means and of the probes that measure its recall
