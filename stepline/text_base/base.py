"""A text base on disk, opened: its documents, its steps and their vectors, read as they are asked
for."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepline.errors import ModelError, ShapeError, StoreError
from stepline.parquet import ParquetError, ParquetReader
from stepline.records import Matrix
from stepline.text_base.deduplicate import DOCUMENT_GROUP, STEP_GROUP
from stepline.text_base.documents import Document, TextStep
from stepline.text_base.encoding import encoder_facts
from stepline.text_base.index import Index, open_index, open_vectors, require_manifest
from stepline.text_base.manifest import Manifest
from stepline.text_base.settings import Engine
from stepline.text_base.vectors import Rows, nearest_exact, read_array

PIECE = 16_384  # vectors of chosen documents compared at a time
KEPT_GROUPS = 64  # row groups kept in memory, the latest used; a few MB each at most


class TextBase:
    """An opened text base. A row is the number of a step; a document's number is its place in
    reading order.

    Near-duplicate lines share a row; `documents_of` tells all the documents that hold it. Nothing
    is loaded whole.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self.encoder = manifest.encoder  # name or folder of the encoder whose vectors these are
        self.width = manifest.width  # D of a vector
        self.step_count = manifest.steps
        self.document_count = manifest.documents
        self._parts = [folder / "parts" / part.name for part in manifest.parts]
        self._steps = _Table(
            self._parts, "steps.parquet", [part.steps for part in manifest.parts], STEP_GROUP
        )
        numbers = [part.documents for part in manifest.parts]
        self._documents = _Table(self._parts, "documents.parquet", numbers, DOCUMENT_GROUP)
        self._vectors = open_vectors(folder, manifest)
        self._indexes: dict[Engine, Index] = {}
        self._last: tuple[Rows, Rows] | None = None  # documents asked for last, and their rows
        if len(self._vectors) != manifest.steps:
            raise StoreError(
                f"{folder}: {len(self._vectors)} vectors for {manifest.steps} steps; build it again"
            )

    @property
    def engine(self) -> Engine:
        """What searches unless another is named: the index built last, "exact" where there is
        none."""
        return self.manifest.indexes[-1].engine if self.manifest.indexes else "exact"

    def documents(self) -> Iterator[Document]:
        """Yield every document in reading order, in its own wording; the place of one is its
        number."""
        for row in self._documents:
            yield _document(row)

    def document(self, number: int) -> Document:
        """Return one document. Raises ShapeError for a number outside [0, document_count)."""
        return _document(self._documents[number])

    def rows_of(self, number: int) -> Rows:
        """Return the rows of a document's steps, in its order: (its steps,)."""
        return np.array(self._documents[number]["rows"], dtype=np.int64)

    def documents_of(self, row: int) -> Rows:
        """Return the numbers of all documents that hold a row, ascending."""
        found = [np.empty(0, dtype=np.int64)]
        for part in self._parts:
            held = read_array(part / "holder_rows.i64")
            start, end = np.searchsorted(held, [row, row + 1])
            found.append(np.asarray(read_array(part / "holders.i64")[start:end]))
        return np.concatenate(found)

    def steps(self, rows: Sequence[int] | Rows) -> list[TextStep]:
        """Return the steps at these rows, in the order asked for. Raises ShapeError for a row that
        is not there."""
        wanted = [int(row) for row in rows]
        # each group is read once
        found = {row: TextStep(**self._steps[row]) for row in sorted(set(wanted))}
        return [found[row] for row in wanted]

    def vectors(self, rows: Sequence[int] | Rows) -> Matrix:
        """Return the unit vectors of these rows: (len(rows), D) float32. Raises ShapeError for a
        row not there."""
        return self._vectors.take(np.asarray(rows, dtype=np.int64))

    def embed(self, texts: Sequence[str]) -> Matrix:
        """Return the texts' vectors (N, D) by the base's own encoder. Raises ModelError where that
        has changed."""
        from stepline.text import embed

        if encoder_facts(self.encoder)[0] != self.manifest.encoder_sha256:
            raise ModelError(
                f"{self.encoder}: not the encoder that {self.folder} was built with; build it again"
            )
        return embed(texts, model=self.encoder)

    def nearest(
        self,
        queries: Matrix,
        k: int = 1,
        *,
        engine: Engine | None = None,
        effort: int | None = None,
        documents: Sequence[int] | Rows | None = None,
    ) -> tuple[Rows, Matrix]:
        """Return the rows and cosines of the k nearest steps of each query: (N, k) int64 and (N, k)
        float32.

        queries: (N, D) unit vectors. Best first, equal cosines to the lower row. Where fewer than k
        steps exist, the rest are row -1 with cosine -1. documents: search the steps of these only
        (then always exactly).
        engine: any but exact needs its index (`add_index`); None is the index built last, exact
        where there is none.
        effort: lists probed, or ef; None is the one that measured the recall asked for.
        Raises ShapeError for another width, StoreError for an index that is missing.
        """
        if queries.ndim != 2 or queries.shape[1] != self.width:
            raise ShapeError(
                f"queries {queries.shape}: need (N, {self.width}); embed them with {self.encoder}"
            )
        if documents is not None:
            return self._nearest_of(queries, k, documents)
        engine = engine or self.engine
        if engine == "exact":
            return nearest_exact(queries, self._vectors.blocks(), k)
        entry = next((entry for entry in self.manifest.indexes if entry.engine == engine), None)
        if entry is None:
            built = ", ".join(entry.engine for entry in self.manifest.indexes) or "none"
            cure = f"`stepline text-base index {self.folder} --engine {engine}` builds it"
            raise StoreError(f"{self.folder}: has no {engine} index (built: {built}); {cure}")
        if engine not in self._indexes:
            self._indexes[engine] = open_index(self.folder, engine)
        return self._indexes[engine].search(queries, k, entry.effort if effort is None else effort)

    def _nearest_of(
        self, queries: Matrix, k: int, documents: Sequence[int] | Rows
    ) -> tuple[Rows, Matrix]:
        """Search the steps of some documents, read a piece at a time."""
        rows = self._rows_of_all(np.unique(np.asarray(documents, dtype=np.int64)))
        pieces = (
            (at, self._vectors.take(rows[at : at + PIECE])) for at in range(0, len(rows), PIECE)
        )
        places, cosines = nearest_exact(queries, pieces, k)
        return np.append(rows, -1)[places], cosines  # place -1, nothing, is row -1

    def _rows_of_all(self, documents: Rows) -> Rows:
        """Return the rows that some documents hold, ascending; those of the last documents asked
        for are kept."""
        if self._last is None or not np.array_equal(self._last[0], documents):
            lists = [self.rows_of(number) for number in documents.tolist()]
            self._last = documents, np.unique(np.concatenate([np.empty(0, dtype=np.int64), *lists]))
        return self._last[1]


def open_base(folder: Path) -> TextBase:
    """Return the text base in a folder. Raises StoreError, with the cure, where there is none or it
    is damaged."""
    return TextBase(folder, require_manifest(folder))


class _Table:
    """Rows of a Parquet file a part, read a row group at a time; the latest groups stay in
    memory."""

    def __init__(self, parts: Sequence[Path], name: str, counts: Sequence[int], group: int) -> None:
        self._paths = [part / name for part in parts]
        self._starts = np.cumsum([0, *counts])
        self._group = group
        self._files: dict[int, ParquetReader] = {}
        self._kept: OrderedDict[tuple[int, int], list[dict[str, Any]]] = OrderedDict()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for part in range(len(self._paths)):
            for group in range(-(-int(self._starts[part + 1] - self._starts[part]) // self._group)):
                yield from self._read(part, group)

    def __getitem__(self, row: int) -> dict[str, Any]:
        if not 0 <= row < self._starts[-1]:
            raise ShapeError(f"number {row}: the base has {self._starts[-1]}, counted from 0")
        part = int(np.searchsorted(self._starts, row, side="right")) - 1
        group, place = divmod(int(row - self._starts[part]), self._group)
        if (part, group) not in self._kept:
            self._kept[part, group] = self._read(part, group)
        self._kept.move_to_end((part, group))
        if len(self._kept) > KEPT_GROUPS:
            self._kept.popitem(last=False)
        return self._kept[part, group][place]

    def _read(self, part: int, group: int) -> list[dict[str, Any]]:
        path = self._paths[part]
        try:
            if part not in self._files:
                self._files[part] = ParquetReader(path)
            return self._files[part].group(group)
        except ParquetError as error:
            raise StoreError(
                f"{path}: not readable ({error}); build the text base again"
            ) from error


def _document(row: dict[str, Any]) -> Document:
    identity, source, licence = row["id"], row["source"], row["licence"]
    steps = tuple(
        TextStep(f"{identity}#{place}", text, identity, place, source, licence)
        for place, text in enumerate(row["texts"])
    )
    return Document(identity, row["title"], steps, source, licence, tuple(row["ingredients"]))
