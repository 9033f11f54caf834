"""A text base on disk, opened: its documents, its steps and their vectors, read as they are asked
for."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from stepline.errors import ModelError, ShapeError, StoreError
from stepline.records import Matrix
from stepline.sieve_swap.text_base.deduplicate import DOCUMENT_GROUP_ROWS, STEP_GROUP_ROWS
from stepline.sieve_swap.text_base.documents import Document, TextStep
from stepline.sieve_swap.text_base.encoding import encoder_facts
from stepline.sieve_swap.text_base.index import (
    InvertedLists,
    open_index,
    open_vectors,
    require_manifest,
)
from stepline.sieve_swap.text_base.manifest import IndexEntry, Manifest
from stepline.sieve_swap.text_base.parquet_tables import PartedTable, Row
from stepline.sieve_swap.text_base.settings import INDEX_ENGINE, Engine
from stepline.sieve_swap.text_base.vectors import NO_ROW, Neighbours, Rows, nearest_exact

BLOCK_VECTORS = 16_384  # vectors of chosen documents compared at a time


class TextBase:
    """An opened text base. A row is the number of a step. Documents are numbered in reading order.

    Near-duplicate lines share a row. Nothing is loaded whole.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.encoder = manifest.encoder  # name or folder of the encoder whose vectors these are
        self.width = manifest.width  # D of a vector
        self.step_count = manifest.steps
        self.document_count = manifest.documents
        # The tables of all parts, each read as one.
        step_files = {}
        document_files = {}
        for part in manifest.parts:
            part_folder = folder / "parts" / part.name
            step_files[part_folder / "steps.parquet"] = part.steps
            document_files[part_folder / "documents.parquet"] = part.documents
        self._steps = PartedTable(step_files, STEP_GROUP_ROWS)
        self._documents = PartedTable(document_files, DOCUMENT_GROUP_ROWS)
        self._vectors = open_vectors(folder, manifest)
        self._index: InvertedLists | None = None
        self._last: tuple[Rows, Rows] | None = None  # documents of the last search, and their rows
        # Tables and vectors must be of the same lines.
        if len(self._vectors) != manifest.steps:
            fault = f"{len(self._vectors)} vectors for {manifest.steps} steps"
            raise StoreError(f"{folder}: {fault}; build it again")

    @property
    def engine(self) -> Engine:
        """The default search engine: the index, or "exact" without an index."""
        return "exact" if self._index_entry is None else INDEX_ENGINE

    @property
    def _index_entry(self) -> IndexEntry | None:
        entries = self.manifest.indexes
        return next((entry for entry in entries if entry.engine == INDEX_ENGINE), None)

    def documents(self) -> Iterator[Document]:
        """Yield every document in reading order, from number 0 on, in its own wording."""
        for row in self._documents:
            yield _document(row)

    def document(self, number: int) -> Document:
        """Return one document. Raises ShapeError for a number outside [0, document_count)."""
        return _document(self._documents[number])

    def rows_of(self, number: int) -> Rows:
        """Return the rows of a document's steps, in its order: (its steps,)."""
        return np.array(self._documents[number]["rows"], dtype=np.int64)

    def steps(self, rows: Sequence[int] | Rows) -> list[TextStep]:
        """Return the steps at these rows, in the order asked for. Raises ShapeError for a row that
        is not there."""
        numbers = [int(row) for row in rows]
        steps = {}
        # in their order on disk, so that each group is read once
        for row in sorted(set(numbers)):
            steps[row] = TextStep(**self._steps[row])
        return [steps[row] for row in numbers]

    def vectors(self, rows: Sequence[int] | Rows) -> Matrix:
        """Return the unit vectors of these rows: (len(rows), D) float32. Raises ShapeError for a
        row not there."""
        return self._vectors.take(np.asarray(rows, dtype=np.int64))

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return the texts' vectors (N, D) by the base's own encoder. Raises ModelError where that
        has changed."""
        from stepline.text import embed

        # The name may mean other weights by now.
        digest, *_ = encoder_facts(self.encoder)
        if digest != self.manifest.encoder_sha256:
            fault = f"{self.encoder}: not the encoder that {self.folder} was built with"
            raise ModelError(f"{fault}; build it again")
        return embed(texts, model=self.encoder)

    def nearest(
        self,
        queries: Matrix,
        k: int = 1,
        *,
        engine: Engine | None = None,
        effort: int | None = None,
        documents: Sequence[int] | Rows | None = None,
    ) -> Neighbours:
        """Return the rows and cosines of the k nearest steps of each query: (N, k) int64 and (N, k)
        float32.

        Best first, equal cosines to the lower row. Where fewer than k steps exist, the rest are row
        -1 with cosine -1.

        Args:
            queries: (N, D) unit vectors.
            k: steps per query.
            engine: "lists" needs its index (`add_index`). None: the index, exact without one.
            effort: lists probed. None: as many as measured the recall asked for.
            documents: search the steps of these only, always exactly.

        Raises ShapeError for another width, StoreError for an index that is missing.
        """
        if queries.ndim != 2 or queries.shape[1] != self.width:
            need = f"queries {queries.shape}: need (N, {self.width})"
            raise ShapeError(f"{need}; embed them with {self.encoder}")
        if documents is not None:
            return self._nearest_in_documents(queries, k, documents)
        # Without an index, all vectors are compared.
        if (engine or self.engine) == "exact":
            return nearest_exact(queries, self._vectors.blocks(), k)
        # With it, opened once, at the effort for which its recall was measured.
        entry = self._index_entry
        if entry is None:
            cure = f"`stepline text-base index {self.folder}` builds it"
            raise StoreError(f"{self.folder}: has no index; {cure}")
        if self._index is None:
            self._index = open_index(self.folder)
        return self._index.search(queries, k, entry.effort if effort is None else effort)

    def _nearest_in_documents(
        self, queries: Matrix, k: int, documents: Sequence[int] | Rows
    ) -> Neighbours:
        """Search the steps of some documents, read a piece at a time."""
        numbers = np.unique(np.asarray(documents, dtype=np.int64))
        # the rows of the last search are stored
        if self._last is None or not np.array_equal(self._last[0], numbers):
            lists = [np.empty(0, dtype=np.int64), *map(self.rows_of, numbers.tolist())]
            self._last = (numbers, np.unique(np.concatenate(lists)))
        rows = self._last[1]
        blocks = (
            (start, self._vectors.take(rows[start : start + BLOCK_VECTORS]))
            for start in range(0, len(rows), BLOCK_VECTORS)
        )
        indexes, cosines = nearest_exact(queries, blocks, k)
        # index -1, nothing, is row -1
        return np.append(rows, NO_ROW)[indexes], cosines


def open_base(folder: Path) -> TextBase:
    """Return the text base in a folder. Raises StoreError, with the cure, where there is no base or
    it is damaged."""
    return TextBase(folder, require_manifest(folder))


def _document(row: Row) -> Document:
    return Document.from_texts(
        row["id"],
        row["title"],
        texts=row["texts"],
        source=row["source"],
        licence=row["licence"],
        ingredients=row["ingredients"],
    )
