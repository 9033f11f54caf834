"""The content words of a text base's documents, found once and kept in files named by their content.

Finding them is the slowest part of pairing (about 10,000 words a CPU second), so an interrupted run goes on where it
stopped, and a base that grew only does what is new.
"""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.sieve_swap.content import content_words, title_words
from stepline.sieve_swap.pairing import Vocabulary, WordSets
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.sieve_swap.text_base.base import TextBase
from stepline.sieve_swap.text_base.lines import Document
from stepline.store import atomic_path

if TYPE_CHECKING:
    from pyarrow import ListArray as ListColumn

CUT = 16  # hex digits of a digest in a file's name


@dataclass(frozen=True)
class DocumentWords:
    """The words of each document's title and of its steps, by number. digest: of texts, sources, licences."""

    titles: WordSets
    contents: WordSets
    vocabulary: Vocabulary
    digest: str


def document_words(base: TextBase, folder: Path, settings: SieveSwapSettings) -> DocumentWords:
    """Return the words of every document of a base; those not yet in `folder` are found and written there."""
    vocabulary = Vocabulary()
    titles, contents, whole = [], [], hashlib.sha256()
    for number, documents in enumerate(_blocks(base, settings.run.words)):
        digest = _digest(documents, numerals=settings.pairing.numerals)
        whole.update(digest.encode())
        file = folder / f"{number:05d}-{digest[:CUT]}.parquet"
        if not file.is_file():
            _write(documents, file, numerals=settings.pairing.numerals)
        title, content = _read(file, vocabulary)
        titles.append(title)
        contents.append(content)
    return DocumentWords(WordSets.join(titles), WordSets.join(contents), vocabulary, whole.hexdigest())


def _blocks(base: TextBase, size: int) -> Iterator[list[Document]]:
    documents = iter(base.documents())
    while block := list(itertools.islice(documents, size)):
        yield block


def _digest(documents: Sequence[Document], *, numerals: bool) -> str:
    digest = hashlib.sha256(repr(numerals).encode())
    for document in documents:
        facts = (document.id, document.title, document.source, document.licence or "")
        for text in (*facts, *(step.text for step in document.steps)):
            digest.update(text.encode(errors="replace") + b"\0")
    return digest.hexdigest()


def _write(documents: Sequence[Document], file: Path, *, numerals: bool) -> None:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    titles = [document.title for document in documents]
    texts = [" ".join(step.text for step in document.steps) for document in documents]
    columns = {
        "title": [sorted(words) for words in title_words(titles)],
        "content": [sorted(set(words)) for words in content_words(texts, numerals=numerals)],
    }
    schema = arrow.schema([(name, arrow.list_(arrow.string())) for name in columns])
    with atomic_path(file) as partial:
        parquet.write_table(arrow.table(columns, schema=schema), partial)


def _read(file: Path, vocabulary: Vocabulary) -> tuple[WordSets, WordSets]:
    import pyarrow.parquet as parquet

    table = parquet.read_table(file)
    title, content = (_sets(table.column(name).chunk(0), vocabulary) for name in ("title", "content"))
    return title, content


def _sets(column: "ListColumn", vocabulary: Vocabulary) -> WordSets:
    """Return an Arrow column of word lists as sets of numbers, without a Python object a word."""
    encoded = column.flatten().dictionary_encode()
    numbers = np.asarray(vocabulary.add(encoded.dictionary.to_pylist()), dtype=np.int32)
    words = numbers[encoded.indices.to_numpy(zero_copy_only=False)] if len(encoded) else np.empty(0, np.int32)
    sizes = column.value_lengths().to_numpy(zero_copy_only=False)
    order = np.lexsort((words, np.repeat(np.arange(len(sizes)), sizes)))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return WordSets(starts, words[order].astype(np.int32), np.zeros(len(sizes), dtype=np.int64))
