"""Content words: the lemmas of nouns, verbs, adverbs and adjectives (section 4.2), with numerals and units
where they are asked for.

The paper names the word classes and lemmatisation, not the tool. Here it is spaCy's en_core_web_sm
without its parser. Names count as nouns: in titles the tagger takes most nouns for names.

Tagging the documents of a text base is the slowest part of pairing (about 10,000 words per CPU
second). So the words are stored in Parquet files named by a digest of the texts. A run that was
interrupted continues with the next file.
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

from stepline.errors import StoreError, first_line
from stepline.files.parquet import ParquetError, ParquetReader, write_rows
from stepline.sieve_swap.pairing import WordSets, WordVocabulary
from stepline.sieve_swap.part_files import DIGEST_DIGITS
from stepline.sieve_swap.settings import SieveSwapSettings
from stepline.sieve_swap.text_base.base import Document, TextBase
from stepline.writing.extractive.english import parser, word_set

if TYPE_CHECKING:
    from pyarrow import ListArray as ListColumn
    from spacy.tokens import Token

WORD_CLASSES = frozenset({"NOUN", "PROPN", "VERB", "ADV", "ADJ"})
NUMERAL_CLASS = "NUM"
UNIT_WORDS = word_set(
    """
    g gram kg kilogram mg milligram oz ounce lb pound ml milliliter millilitre l liter litre dl cl
    cup tbsp tablespoon tsp teaspoon pint quart gallon inch cm centimeter mm millimeter degree
    celsius fahrenheit sec second min minute hr hour day
    """
)
UNUSED_PIPELINE_PARTS = ("parser",)  # of the English model: no sentence structure is asked here
BLOCK_DOCUMENTS = 20_000  # whose words are counted together
BATCH_TEXTS = 256  # texts per call of the tagger
MAX_TEXT_CHARS = 100_000  # of a text that are read; a transcript of ten minutes has about 9,000


def content_words(texts: Sequence[str], *, numerals: bool = False) -> Iterator[list[str]]:
    """Yield the content words of each text as lower-case lemmas, in order and with repeats.

    All words are read in lower case, since spaCy would take titles in capitals for names.

    Args:
        texts: titles, transcripts or steps.
        numerals: True also yields numerals and units of measure, as appendix A.1 of the paper
            counts.

    Raises ModelError when spaCy's model is missing.
    """
    language = parser()
    lowered = (text[:MAX_TEXT_CHARS].lower() for text in texts)
    unused = [part for part in UNUSED_PIPELINE_PARTS if part in language.pipe_names]
    for document in language.pipe(lowered, batch_size=BATCH_TEXTS, disable=unused):
        yield [str(token.lemma_) for token in document if _is_content_word(token, numerals)]


def _is_content_word(token: "Token", numerals: bool) -> bool:
    is_numeral = token.pos_ == NUMERAL_CLASS or token.like_num or token.lemma_ in UNIT_WORDS
    if numerals and is_numeral:
        return True
    is_word = len(token.text) >= 2 and token.text[0].isalpha()
    return is_word and token.pos_ in WORD_CLASSES


@cache
def generic_words() -> frozenset[str]:
    """Return the lemmas in generic_words.txt, such as "easy" and "best".

    The title of any how-to may hold these words, so they say nothing about its topic.
    """
    file = files("stepline.sieve_swap").joinpath("generic_words.txt")
    lines = file.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def title_words(titles: Sequence[str]) -> Iterator[list[str]]:
    """Yield the content words of each title without generic words, each word once."""
    generic = generic_words()
    for words in content_words(titles):
        yield [word for word in dict.fromkeys(words) if word not in generic]


@dataclass(frozen=True)
class DocumentWords:
    """The content words of all documents of a text base.

    Attributes:
        titles: for each document, the words of its title without generic words, as numbers.
        contents: for each document, the words of its steps, as numbers.
        vocabulary: numbers of the words.
        digest: sha256 of the texts, sources and licences of the documents.
    """

    titles: WordSets
    contents: WordSets
    vocabulary: WordVocabulary
    digest: str


def load_document_words(base: TextBase, folder: Path, settings: SieveSwapSettings) -> DocumentWords:
    """Return the content words of every document of a text base.

    Stored words are read. Only documents without stored words are tagged with spaCy.

    Args:
        base: the text base.
        folder: folder of the stored words.
        settings: settings that say whether numerals count as content words.
    """
    vocabulary = WordVocabulary()
    titles: list[WordSets] = []
    contents: list[WordSets] = []
    digests = hashlib.sha256()
    # A file of words per block of documents.
    documents = iter(base.documents())
    numerals = settings.pairing.numerals
    while block := list(itertools.islice(documents, BLOCK_DOCUMENTS)):
        digest = _documents_digest(block, numerals=numerals)
        digests.update(digest.encode())
        number = len(titles)
        # The name holds the digest, so a file of other documents is never read.
        file = folder / f"{number:05d}-{digest[:DIGEST_DIGITS]}.parquet"
        if not file.is_file():
            _write_words(block, file, numerals=numerals)
        title, content = read_words(file, vocabulary)
        titles.append(title)
        contents.append(content)
    return DocumentWords(
        titles=WordSets.concat(titles),
        contents=WordSets.concat(contents),
        vocabulary=vocabulary,
        digest=digests.hexdigest(),
    )


def _documents_digest(documents: Sequence[Document], *, numerals: bool) -> str:
    digest = hashlib.sha256(repr(numerals).encode())
    for document in documents:
        facts = [document.id, document.title, document.source, document.licence or ""]
        step_texts = [step.text for step in document.steps]
        # A zero byte ends each text, so that the same letters cut elsewhere differ.
        for text in facts + step_texts:
            digest.update(text.encode(errors="replace") + b"\0")
    return digest.hexdigest()


def _write_words(documents: Sequence[Document], file: Path, *, numerals: bool) -> None:
    titles = title_words([document.title for document in documents])
    texts = [" ".join(step.text for step in document.steps) for document in documents]
    contents = content_words(texts, numerals=numerals)
    # Sorted, so that the file has the same bytes each time.
    rows = [
        {"title": sorted(title), "content": sorted(set(content))}
        for title, content in zip(titles, contents, strict=True)
    ]
    columns = dict.fromkeys(("title", "content"), "list:string")
    write_rows(rows, columns, file, compression="snappy")


def read_words(file: Path, vocabulary: WordVocabulary) -> tuple[WordSets, WordSets]:
    """Return two collections of word sets that a file stores: the words of each document's title,
    and those of its steps.

    Args:
        file: path of the file.
        vocabulary: vocabulary to which new words are added.

    Raises StoreError for a damaged file.
    """
    try:
        table = ParquetReader(file).table().combine_chunks()
        title = _read_word_sets(table.column("title").chunk(0), vocabulary)
        content = _read_word_sets(table.column("content").chunk(0), vocabulary)
    except (ParquetError, KeyError) as error:
        raise StoreError(
            f"{file}: not a readable file of words ({first_line(error)}); remove it and run again"
        ) from error
    return title, content


def _read_word_sets(column: "ListColumn", vocabulary: WordVocabulary) -> WordSets:
    """Return an Arrow column of word lists as sets of word numbers.

    No Python object is made per word.
    """
    # the number of every word, list after list
    encoded = column.flatten().dictionary_encode()
    numbers = np.asarray(vocabulary.add_words(encoded.dictionary.to_pylist()), dtype=np.int32)
    words = numbers[encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)]
    # sorted within each list
    sizes = column.value_lengths().to_numpy(zero_copy_only=False)
    order = np.lexsort((words, np.repeat(np.arange(len(sizes)), sizes)))
    starts = np.cumsum([0, *sizes], dtype=np.int64)
    return WordSets(starts, words[order], np.zeros(len(sizes), dtype=np.int64))
