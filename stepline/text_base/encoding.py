"""The lines of a part embedded, block by block: what is embedded survives a kill."""

import hashlib
import itertools
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.errors import StoreError
from stepline.parquet import ParquetError, ParquetReader
from stepline.text import embed
from stepline.text.embedding import load_encoder
from stepline.text_base.settings import TextBaseSettings
from stepline.text_base.vectors import read_vectors, write_vectors
from stepline.weights import find_weights, sha256

log = logging.getLogger(__name__)

FILES = (
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
    found = [f"{file} {sha256(folder / file)}" for file in FILES if (folder / file).is_file()]
    return hashlib.sha256("\n".join(found).encode()).hexdigest(), load_encoder(name).dim


def write_embeddings(part: Path, count: int, width: int, settings: TextBaseSettings) -> None:
    """Write vectors.npy, a unit row a line of steps.parquet; blocks that a killed run left are
    taken as they are."""
    work = part / "work"
    blocks: list[Path] = []
    for number, texts in enumerate(_texts(part / "steps.parquet", settings.block)):
        blocks.append(work / f"vectors-{number:05d}.npy")
        if not blocks[-1].exists():
            vectors = embed(texts, model=settings.encoder, batch=settings.batch)
            write_vectors(blocks[-1], [vectors], (len(texts), width), settings.precision)
            log.info("embedded %d of %d steps", min(count, (number + 1) * settings.block), count)
    write_vectors(part / "vectors.npy", _pieces(blocks), (count, width), settings.precision)


def _pieces(blocks: list[Path]) -> Iterator[npt.NDArray[Any]]:
    for block in blocks:
        yield np.asarray(read_vectors(block))


def _texts(path: Path, block: int) -> Iterator[list[str]]:
    """Yield the lines, `block` at a time whatever the row groups are."""
    try:
        texts = (row["text"] for row in ParquetReader(path).rows(["text"], block))
        while part := list(itertools.islice(texts, block)):
            yield part
    except ParquetError as error:
        raise StoreError(f"{path}: not readable ({error}); build the text base again") from error
