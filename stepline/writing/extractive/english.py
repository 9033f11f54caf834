"""The English parser (spaCy's en_core_web_sm, loaded on first use, without unused parts) and tests
of English words."""

import importlib
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stepline.narration.words import looks_english, word_set
from stepline.weights import find_weights

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc

__all__ = ["import_spacy", "looks_english", "nouns", "parse", "parser", "verbs", "word_set"]

logger = logging.getLogger(__name__)


# names of people and places: no step needs them; the parser cuts sentences itself
UNUSED = ("ner", "senter")
BATCH = 64  # segments a parser call

COMMANDS = "spacy.cli"  # spaCy's command line


def import_spacy() -> Any:
    """Return spaCy without its command line, nearly half of its import (0.3 of 0.75 CPU s, 18 MiB),
    unused here.

    What asks for the command line later finds it: the module that stands for it is there during the
    import alone.
    """
    if "spacy" not in sys.modules:
        stand_in, info = ModuleType(COMMANDS), ModuleType(f"{COMMANDS}.info")
        stand_in.__path__ = []
        vars(info)["__getattr__"] = lambda name: _imported_when_called(info.__name__, name)
        sys.modules |= {stand_in.__name__: stand_in, info.__name__: info}
        try:
            return importlib.import_module("spacy")
        finally:
            for module in (stand_in, info):
                if sys.modules.get(module.__name__) is module:
                    del sys.modules[module.__name__]
    return sys.modules["spacy"]


def _imported_when_called(module: str, name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    return lambda *given, **options: getattr(importlib.import_module(module), name)(
        *given, **options
    )


@cache
def parser() -> "Language":
    """Return the parser, loaded once a process (about 0.35 s, after an import of spaCy of about
    0.45 s)."""
    start = time.perf_counter()
    folder, spacy = find_weights("en-core-web-sm"), import_spacy()
    language: Language = spacy.load(folder, exclude=list(UNUSED))
    logger.info("loaded the English parser in %.2f s", time.perf_counter() - start)
    return language


def parse(texts: Sequence[str]) -> "Iterator[Doc]":
    """Return one parsed document a text, in order."""
    docs: Iterator[Doc] = parser().pipe(texts, batch_size=BATCH)
    return docs


@cache
def verbs() -> frozenset[str]:
    """Return the base forms of English verbs (WordNet's list, which the parser's lemmatizer
    carries)."""
    lemmatizer = parser().get_pipe("lemmatizer")
    return frozenset(lemmatizer.lookups.get_table("lemma_index")["verb"])


@cache
def nouns() -> frozenset[str]:
    """Return the base forms of English nouns (WordNet's list, as of `verbs`)."""
    lemmatizer = parser().get_pipe("lemmatizer")
    return frozenset(lemmatizer.lookups.get_table("lemma_index")["noun"])
