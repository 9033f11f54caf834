"""A text base on disk, opened: its documents, its steps and their vectors, read as they are asked for."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stepline.records import Matrix
from stepline.sieve_swap.text_base.lines import Document, TextStep
from stepline.sieve_swap.text_base.settings import Engine

Rows = npt.NDArray[np.int64]


class TextBase:
    """An opened text base. A row is the number of a step; a document's number is its place in reading order.

    Near-duplicate lines share a row; `documents_of` tells all the documents that hold it. Nothing is loaded whole.
    """

    folder: Path
    encoder: str           # name or folder of the encoder whose vectors these are
    width: int             # D of a vector
    step_count: int
    document_count: int

    def documents(self) -> Iterator[Document]:
        """Yield every document in reading order, in its own wording; the place of one is its number."""
        raise NotImplementedError

    def document(self, number: int) -> Document:
        """Return one document. Raises ShapeError for a number outside [0, document_count)."""
        raise NotImplementedError

    def rows_of(self, number: int) -> Rows:
        """Return the rows of a document's steps, in its order: (its steps,)."""
        raise NotImplementedError

    def documents_of(self, row: int) -> Rows:
        """Return the numbers of all documents that hold a row, ascending."""
        raise NotImplementedError

    def steps(self, rows: Sequence[int] | Rows) -> list[TextStep]:
        """Return the steps at these rows, in the order asked for."""
        raise NotImplementedError

    def vectors(self, rows: Sequence[int] | Rows) -> Matrix:
        """Return the unit vectors of these rows: (len(rows), D) float32."""
        raise NotImplementedError

    def nearest(
        self,
        queries: Matrix,
        k: int = 1,
        *,
        engine: Engine | None = None,
        documents: Sequence[int] | Rows | None = None,
    ) -> tuple[Rows, Matrix]:
        """Return the rows and cosines of the k nearest steps of each query: (N, k) int64 and (N, k) float32.

        queries: (N, D) unit vectors. Best first, ties to the lower row. documents: search the steps of these only
        (then always exact). Where fewer than k steps exist, the rest are row -1 with cosine -1.
        engine: None is the one that the base was built with.
        """
        raise NotImplementedError
