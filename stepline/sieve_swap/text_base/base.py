"""A text base: how-to documents, their steps, and the steps' vectors, searched by meaning.

BASE/manifest.json     what the base holds, written last. Without it there is no base
BASE/parts/0001/       documents.parquet (a row per document, in its own wording), steps.parquet (a row
                       per different step) and vectors.npy (the vector of each step)

Only what is asked for is read.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import JsonValue, ValidationError

from stepline.errors import ModelError, ShapeError, StoreError
from stepline.files.atomic_files import write_atomic
from stepline.files.digests import sha256
from stepline.files.parquet import ParquetError, ParquetReader
from stepline.networks.weights import find_weights
from stepline.records import FrozenModel, Matrix
from stepline.settings import CountOrZero
from stepline.sieve_swap.text_base.vectors import Neighbours, Rows, nearest_exact, read_vectors
from stepline.text.embedding import load_encoder

LAYOUT_VERSION: Literal[1] = 1  # of the layout on disk; a reader refuses any other
MANIFEST_NAME = "manifest.json"
PART_NAME = "0001"
STEP_GROUP_ROWS = 4_096  # rows of steps.parquet that are read together when one is asked for
DOCUMENT_GROUP_ROWS = 1_000  # the same of documents.parquet
MAX_GROUPS_IN_MEMORY = 64  # row groups of one table, the latest used; a few MB each at most
ENCODER_FILES = (
    "model.safetensors",
    "tokenizer.json",
    "config.json",
    "modules.json",
    "1_Pooling/config.json",
)

TableRow = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TextStep:
    """One human-written step of a text base.

    Attributes:
        id: "document#position", for the document that was read first among those with this step.
        text: the step in its original wording.
        document: id of that document.
        position: index of the step in that document, from 0.
        source: link or file name of the document.
        licence: licence of the text. None: no source states one.
    """

    id: str
    text: str
    document: str
    position: int
    source: str
    licence: str | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """One how-to text: a title and its steps.

    Attributes:
        id: id of the document, unique in a base.
        title: title of the text.
        steps: single steps in their order and original wording.
        source: link or file name of the document.
        licence: licence of the text. None: no source states one.
    """

    id: str
    title: str
    steps: tuple[TextStep, ...]
    source: str
    licence: str | None = None

    @staticmethod
    def from_texts(
        id: str, title: str, texts: Iterable[str], source: str, licence: str | None
    ) -> "Document":
        """Return a document made from the texts of its steps.

        Args:
            id: id of the document.
            title: title of the text.
            texts: the steps in order.
            source: link or file name of the document.
            licence: licence of the text. None: no source states one.
        """
        steps = tuple(
            TextStep(f"{id}#{position}", text, id, position, source, licence)
            for position, text in enumerate(texts)
        )
        return Document(id, title, steps, source, licence)


class RejectionCount(FrozenModel):
    """How many documents and steps of a source were left out for one reason."""

    reason: str
    """why they were left out"""
    count: CountOrZero
    """number of documents or steps"""
    examples: tuple[str, ...] = ()
    """locations of the first ones"""


class SourceEntry(FrozenModel):
    """What a text base's manifest states about one source file or folder."""

    name: str
    """name of the file or folder, without its path"""
    sha256: str
    """SHA-256 of its files, in order of their names"""
    bytes: CountOrZero
    """total size of its files"""
    licence: str | None = None
    """licence of the texts that state none"""
    documents: CountOrZero = 0
    """number of documents that were read"""
    steps: CountOrZero = 0
    """number of steps that were read"""
    dropped: tuple[RejectionCount, ...] = ()
    """what was left out, by reason"""


class BuildEntry(FrozenModel):
    """What a text base's manifest states about one build."""

    name: str
    """name of its folder in `parts`"""
    plan: str
    """SHA-256 of the sources and settings of the build"""
    documents: CountOrZero
    """number of documents"""
    steps: CountOrZero
    """number of different steps"""
    read: CountOrZero
    """number of steps read, before steps were merged"""
    same: CountOrZero
    """number of steps merged because their words are the same as of an earlier step"""
    near: CountOrZero = 0
    """number of near-duplicates that old versions merged"""
    sources: tuple[SourceEntry, ...]
    """its sources, in the order of reading"""
    files: dict[str, str]
    """file name -> SHA-256"""


class TextBaseManifest(FrozenModel):
    """Metadata of a text base: its encoder, size, builds and files."""

    version: Literal[1] = LAYOUT_VERSION
    """version of the layout on disk"""
    encoder: str
    """name or folder of the text encoder"""
    encoder_sha256: str
    """SHA-256 of the files of the encoder"""
    width: CountOrZero
    """width of a step's vector"""
    precision: Literal["float16", "float32"]
    """type of the stored numbers"""
    documents: CountOrZero = 0
    """number of documents"""
    steps: CountOrZero = 0
    """number of different steps"""
    parts: tuple[BuildEntry, ...] = ()
    """builds of the base: one, while earlier versions could add more"""
    indexes: tuple[JsonValue, ...] = ()
    """approximate indexes of earlier versions, which are not searched"""


def read_manifest(folder: Path) -> TextBaseManifest | None:
    """Return the manifest of a text base. None: the folder has no manifest.

    Raises StoreError for a manifest that cannot be read.
    """
    path = folder / MANIFEST_NAME
    try:
        manifest = TextBaseManifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be read ({error.strerror}); build the text base again"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise StoreError(
            f"{path}: not a text base of version {LAYOUT_VERSION} "
            f"({'.'.join(map(str, first['loc']))}: {first['msg']}); build it again"
        ) from error
    if len(manifest.parts) != 1:
        raise StoreError(
            f"{path}: has {len(manifest.parts)} parts, which an earlier version appended; build it "
            "again from all its sources"
        )
    return manifest


def require_manifest(folder: Path) -> TextBaseManifest:
    """Return the manifest of a text base.

    Raises StoreError, with the cure, if the folder holds no base.
    """
    manifest = read_manifest(folder)
    if manifest is None:
        raise StoreError(
            f"{folder}: no text base here; `stepline text-base build SOURCE --out {folder}` makes "
            "one"
        )
    return manifest


def write_manifest(manifest: TextBaseManifest, folder: Path) -> None:
    """Write the manifest of a text base. This is the last file of a build."""
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False, indent=2)
    write_atomic(folder / MANIFEST_NAME, text + "\n")


def encoder_identity(name: str) -> tuple[str, int]:
    """Return the sha256 of an encoder's files, and D, the width of its vectors.

    Raises ModelError when the encoder is missing.
    """
    folder = find_weights(name)
    lines = []
    for file_name in ENCODER_FILES:
        file = folder / file_name
        if file.is_file():
            lines.append(f"{file_name} {sha256(file)}")
    return hashlib.sha256("\n".join(lines).encode()).hexdigest(), load_encoder(name).dim


class RowGroupTable:
    """The rows of a Parquet file by their numbers. The whole row group of a row is read.

    The most recently used groups stay in memory. Every read raises StoreError, with the cure, if
    the file is damaged.

    Args:
        path: path of the file.
        group_rows: number of rows in each row group but the last.
    """

    def __init__(self, path: Path, group_rows: int) -> None:
        self._path = path
        self._group_rows = group_rows
        self._reader: ParquetReader | None = None
        self._group = lru_cache(MAX_GROUPS_IN_MEMORY)(self._read_group)

    def __getitem__(self, row: int) -> TableRow:
        group, row_in_group = divmod(row, self._group_rows)
        return self._group(group)[row_in_group]

    def _read_group(self, number: int) -> list[TableRow]:
        try:
            self._reader = self._reader or ParquetReader(self._path)
            return self._reader.group(number)
        except ParquetError as error:
            raise _damaged_table_error(self._path, error) from error


def read_table(path: Path, columns: Sequence[str] | None = None) -> Iterator[TableRow]:
    """Yield the rows of a Parquet table of a text base in order.

    Args:
        path: path of the file.
        columns: names of the columns that are read. None: all columns.

    Raises StoreError, with the cure, for a damaged file.
    """
    try:
        yield from ParquetReader(path).rows(columns)
    except ParquetError as error:
        raise _damaged_table_error(path, error) from error


def _damaged_table_error(path: Path, error: ParquetError) -> StoreError:
    return StoreError(f"{path}: not readable ({error}); build the text base again")


class TextBase:
    """An opened text base: how-to documents, their steps, and the vectors of the steps.

    A document's number is its position in reading order. A step's number is its row in the table of
    steps. Steps with the same words share a row.

    Args:
        folder: folder of the base.
        manifest: manifest of the base.

    Raises StoreError if vectors and manifest do not fit together.
    """

    def __init__(self, folder: Path, manifest: TextBaseManifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.encoder = manifest.encoder  # name or folder of the encoder whose vectors these are
        self.width = manifest.width  # D of a vector
        self.step_count = manifest.steps
        self.document_count = manifest.documents
        self._part = folder / "parts" / manifest.parts[0].name
        self._steps = RowGroupTable(self._part / "steps.parquet", STEP_GROUP_ROWS)
        self._documents = RowGroupTable(self._part / "documents.parquet", DOCUMENT_GROUP_ROWS)
        self._vectors = read_vectors(self._part / "vectors.npy")
        self._searched: tuple[Rows, Rows] | None = None  # documents of the last search, their rows
        # Tables and vectors must be of the same steps.
        if self._vectors.shape != (manifest.steps, self.width):
            raise StoreError(
                f"{folder}: vectors {self._vectors.shape}, not ({manifest.steps}, {self.width}); "
                "build it again"
            )

    def documents(self) -> Iterator[Document]:
        """Yield every document in reading order."""
        for row in read_table(self._part / "documents.parquet"):
            yield Document.from_texts(
                row["id"], row["title"], row["texts"], row["source"], row["licence"]
            )

    def step_rows(self, document: int) -> Rows:
        """Return the row numbers of a document's steps, in the order of the document, (steps,)."""
        return np.array(self._documents[document]["rows"], dtype=np.int64)

    def steps(self, rows: Sequence[int] | Rows) -> list[TextStep]:
        """Return the steps in the given rows, in the order of `rows`."""
        # read in their order on disk, so that each group is read once
        numbers = [int(row) for row in rows]
        steps = {row: TextStep(**self._steps[row]) for row in sorted(set(numbers))}
        return [steps[row] for row in numbers]

    def vectors(self, rows: Sequence[int] | Rows) -> Matrix:
        """Return the unit vectors of the given rows as float32 (len(rows), D)."""
        return self._vectors[np.asarray(rows, dtype=np.int64)].astype(np.float32)

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return the (N, D) unit vectors of N texts by the encoder that made the base.

        Raises ModelError if that encoder has changed.
        """
        from stepline.text import embed

        # The name may mean other weights by now.
        digest, _ = encoder_identity(self.encoder)
        if digest != self.manifest.encoder_sha256:
            raise ModelError(
                f"{self.encoder}: not the encoder that {self.folder} was built with; build it again"
            )
        return embed(texts, model=self.encoder)

    def find_nearest_steps(
        self, queries: Matrix, k: int = 1, *, documents: Sequence[int] | Rows | None = None
    ) -> Neighbours:
        """Return the rows and cosines of the k nearest steps of each query, the nearest first.

        Rows are int64 (N, k), cosines are float32 (N, k). Equal cosines are sorted by row. If fewer
        than k steps exist, the rest are row -1 with cosine -1.

        Args:
            queries: (N, D) unit vectors.
            k: number of steps per query.
            documents: numbers of the documents whose steps are searched. None: all documents.

        Raises ShapeError for another width.
        """
        if queries.ndim != 2 or queries.shape[1] != self.width:
            raise ShapeError(
                f"queries {queries.shape}: need (N, {self.width}); embed them with {self.encoder}"
            )
        if documents is None:
            return nearest_exact(queries, self._vectors, k)
        numbers = np.unique(np.asarray(documents, dtype=np.int64))
        if self._searched is None or not np.array_equal(self._searched[0], numbers):
            rows = itertools.chain.from_iterable(map(self.step_rows, numbers.tolist()))
            self._searched = (numbers, np.unique(np.fromiter(rows, dtype=np.int64)))
        return nearest_exact(queries, self._vectors, k, self._searched[1])


def open_base(folder: Path) -> TextBase:
    """Return the text base in a folder.

    Raises StoreError, with the cure, if there is no base or the base is damaged.
    """
    return TextBase(folder, require_manifest(folder))
