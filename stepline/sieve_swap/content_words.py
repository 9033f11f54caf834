"""Content words: the lemmas of nouns, verbs, adverbs and adjectives (section 4.2), with numerals
and units on demand.

The paper names the word classes and lemmatisation, not the tool; here it is spaCy's en_core_web_sm
without its parser. Names count as nouns: in titles the tagger takes most nouns for names.

Finding those of a text base's documents is the slowest part of pairing (about 10,000 words a CPU
second), so they are kept in files named by their content: an interrupted run goes on where it
stopped, and a base that grew does the new.
"""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stepline.atomic_files import atomic_path
from stepline.errors import StoreError, first_line
from stepline.parquet import ParquetError, ParquetReader
from stepline.sieve_swap.pairing import WordSets, WordVocabulary
from stepline.sieve_swap.part_files import DIGEST_DIGITS
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.text_base.base import TextBase
from stepline.text_base.documents import Document
from stepline.writing.extractive.english import word_set

if TYPE_CHECKING:
    from pyarrow import ListArray as ListColumn
    from spacy.tokens import Token

WORD_CLASSES = frozenset({"NOUN", "PROPN", "VERB", "ADV", "ADJ"})
NUMERAL_CLASS = "NUM"
UNIT_WORDS = word_set(
    """
    g gram kg kilogram mg milligram oz ounce lb pound ml milliliter millilitre l liter litre dl cl cup tbsp tablespoon
    tsp teaspoon pint quart gallon inch cm centimeter mm millimeter degree celsius fahrenheit sec second min minute
    hr hour day
    """
)
UNUSED_PARTS = ("parser",)  # of the English model: no sentence structure is asked here
BATCH_TEXTS = 256  # texts per call of the tagger
MAX_TEXT_CHARS = 100_000  # of a text that are read; a transcript of ten minutes has about 9,000


def content_words(texts: Sequence[str], *, numerals: bool = False) -> Iterator[list[str]]:
    """Yield the content words of each text as lower-case lemmas, in order, repeats kept.

    numerals: also numerals and units of measure, as appendix A.1 counts them. Texts are read in
    lower case, since titles in capitals would be taken for names and keep their endings. Raises
    ModelError when spaCy's model is missing.
    """
    from stepline.writing.extractive.english import parser

    language = parser()
    lowered = (text[:MAX_TEXT_CHARS].lower() for text in texts)
    idle = [part for part in UNUSED_PARTS if part in language.pipe_names]
    for document in language.pipe(lowered, batch_size=BATCH_TEXTS, disable=idle):
        yield [str(token.lemma_) for token in document if _counts(token, numerals)]


def _counts(token: "Token", numerals: bool) -> bool:
    if numerals and (token.pos_ == NUMERAL_CLASS or token.like_num or token.lemma_ in UNIT_WORDS):
        return True
    return token.pos_ in WORD_CLASSES and token.text[0].isalpha() and len(token.text) > 1


@cache
def generic_words() -> frozenset[str]:
    """Return the lemmas that a title may share with any how-to: generic_words.txt beside this
    file."""
    text = files("stepline.sieve_swap").joinpath("generic_words.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def title_words(titles: Sequence[str]) -> Iterator[list[str]]:
    """Yield the content words of each title that are not generic, each once, in order."""
    generic = generic_words()
    for words in content_words(titles):
        yield list(dict.fromkeys(word for word in words if word not in generic))


@dataclass(frozen=True)
class DocumentWords:
    """The words of each document's title and of its steps, by number. digest: of texts, sources,
    licences."""

    titles: WordSets
    contents: WordSets
    vocabulary: WordVocabulary
    digest: str


def document_words(base: TextBase, folder: Path, settings: SieveSwapSettings) -> DocumentWords:
    """Return the words of every document of a base; those not yet in `folder` are found and written
    there."""
    vocabulary = WordVocabulary()
    titles: list[WordSets] = []
    contents: list[WordSets] = []
    digests = hashlib.sha256()
    documents = iter(base.documents())
    numerals = settings.pairing.numerals
    while block := list(itertools.islice(documents, settings.run.words)):
        digest = _digest(block, numerals=numerals)
        digests.update(digest.encode())
        file = folder / f"{len(titles):05d}-{digest[:DIGEST_DIGITS]}.parquet"
        if not file.is_file():
            _write(block, file, numerals=numerals)
        title, content = read_words(file, vocabulary)
        titles.append(title)
        contents.append(content)
    return DocumentWords(
        WordSets.join(titles), WordSets.join(contents), vocabulary, digests.hexdigest()
    )


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


def read_words(file: Path, vocabulary: WordVocabulary) -> tuple[WordSets, WordSets]:
    """Return the words of titles and of contents that a file holds. Raises StoreError for a damaged
    one."""
    try:
        table = ParquetReader(file).table().combine_chunks()
        title = _sets(table.column("title").chunk(0), vocabulary)
        content = _sets(table.column("content").chunk(0), vocabulary)
    except (ParquetError, KeyError) as error:
        reason = first_line(error)
        raise StoreError(
            f"{file}: not a readable file of words ({reason}); remove it and run again"
        ) from error
    return title, content


def _sets(column: "ListColumn", vocabulary: WordVocabulary) -> WordSets:
    """Return an Arrow column of word lists as sets of numbers, without a Python object a word."""
    encoded = column.flatten().dictionary_encode()
    numbers = np.asarray(vocabulary.add(encoded.dictionary.to_pylist()), dtype=np.int32)
    indices = encoded.indices.to_numpy(zero_copy_only=False)
    words = numbers[indices.astype(np.int64)]
    sizes = column.value_lengths().to_numpy(zero_copy_only=False)
    order = np.lexsort((words, np.repeat(np.arange(len(sizes)), sizes)))
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    return WordSets(starts, words[order], np.zeros(len(sizes), dtype=np.int64))
