"""The lines of a part embedded, block by block: what is embedded survives a kill."""

import hashlib
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path

from stepline.files.digests import sha256
from stepline.files.parquet import ParquetReader
from stepline.networks.weights import find_weights
from stepline.sieve_swap.text_base.parquet_tables import reject_damaged_table
from stepline.sieve_swap.text_base.settings import TextBaseSettings
from stepline.sieve_swap.text_base.vectors import read_vectors, write_vectors
from stepline.text import embed
from stepline.text.embedding import load_encoder

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
    lines = []
    for file_name in ENCODER_FILES:
        file = folder / file_name
        if file.is_file():
            lines.append(f"{file_name} {sha256(file)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest(), load_encoder(name).dim


def write_embeddings(part: Path, count: int, width: int, settings: TextBaseSettings) -> None:
    """Write vectors.npy, a unit row per line of steps.parquet. Blocks of a killed run are used as
    they are."""
    # Blocks of one size, so that those of a killed run still fit.
    blocks: list[Path] = []
    for number, texts in enumerate(read_texts(part / "steps.parquet", settings.block)):
        block = part / "work" / f"vectors-{number:05d}.npy"
        blocks.append(block)
        if not block.exists():
            vectors = embed(texts, model=settings.encoder, batch=settings.batch)
            write_vectors(block, [vectors], (len(texts), width), settings.precision)
            embedded_count = (number + 1) * settings.block
            log.info("embedded %d of %d steps", min(count, embedded_count), count)
    pieces = map(read_vectors, blocks)
    write_vectors(part / "vectors.npy", pieces, (count, width), settings.precision)


def read_texts(path: Path, block: int) -> Iterator[list[str]]:
    """Yield the lines, `block` at a time whatever the row groups are."""
    with reject_damaged_table(path):
        rows = ParquetReader(path).rows(["text"], block)
        texts = (row["text"] for row in rows)
        while lines := list(itertools.islice(texts, block)):
            yield lines
