"""The lines of a part embedded, block by block: what is embedded survives a kill."""

import hashlib
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

from stepline.parquet import ParquetReader
from stepline.text import embed
from stepline.text.embedding import load_encoder
from stepline.text_base.parquet_tables import damage_of
from stepline.text_base.settings import TextBaseSettings
from stepline.text_base.vectors import read_vectors, write_vectors
from stepline.weights import find_weights, sha256

log = logging.getLogger(__name__)

ENCODER_FILES = (
    "model.safetensors",
    "tokenizer.json",
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
)


def encoder_facts(name: str) -> tuple[str, int]:
    """Return the sha256 over an encoder's files and the width of its vectors. Raises ModelError
    when it is missing."""
    folder = find_weights(name)
    lines = [
        f"{file} {sha256(folder / file)}" for file in ENCODER_FILES if (folder / file).is_file()
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest(), load_encoder(name).dim


def write_embeddings(part: Path, count: int, width: int, settings: TextBaseSettings) -> None:
    """Write vectors.npy, a unit row a line of steps.parquet; blocks that a killed run left are
    taken as they are."""
    blocks: list[Path] = []
    for number, texts in enumerate(read_texts(part / "steps.parquet", settings.block)):
        block = part / "work" / f"vectors-{number:05d}.npy"
        blocks.append(block)
        if not block.exists():
            vectors = embed(texts, model=settings.encoder, batch=settings.batch)
            write_vectors(block, [vectors], (len(texts), width), settings.precision)
            log.info("embedded %d of %d steps", min(count, (number + 1) * settings.block), count)
    write_vectors(
        part / "vectors.npy", map(read_vectors, blocks), (count, width), settings.precision
    )


def read_texts(path: Path, block: int) -> Iterator[list[str]]:
    """Yield the lines, `block` at a time whatever the row groups are."""
    with damage_of(path):
        texts = (row["text"] for row in ParquetReader(path).rows(["text"], block))
        while lines := list(itertools.islice(texts, block)):
            yield lines
