"""The English parser (spaCy's en_core_web_sm, loaded on first use, without unused parts) and tests
of English words."""

import importlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stepline.networks.weights import find_weights
from stepline.processes import is_own_process
from stepline.text.narration.words import bare_word, looks_english, word_set

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Token


__all__ = ["import_spacy", "looks_english", "nouns", "parse", "parser", "verbs", "word_set"]

logger = logging.getLogger(__name__)


# No step needs the names of people and places. The parser cuts sentences itself.
UNUSED_PIPES = ("ner", "senter")
BATCH_SEGMENTS = 64  # per parser call
MAX_RECENT_DOCS = 1000  # that are kept, of 12 KiB: the segments of some forty minutes
# The writer and the check that a narration instructs read the same segments.
_recent_docs: "dict[str, Doc]" = {}

_loading = threading.Lock()
SPACY_CLI_MODULE = "spacy.cli"  # spaCy's command line
TORCH_MODULE = "torch"
# packages whose networks run in spaCy by torch
TORCH_USERS = ("spacy_transformers", "spacy_curated_transformers", "curated_transformers")


def import_spacy() -> Any:
    """Return spaCy without its command line, and in Stepline's own processes without torch.

    Both are unused here. The command line takes nearly half of the import (0.3 of 0.75 CPU s, 18
    MiB), torch 1.6 CPU s and 175 MiB. A later import of the command line works: the placeholder
    exists during this import alone.
    """
    if "spacy" in sys.modules:
        return sys.modules["spacy"]
    placeholder = ModuleType(SPACY_CLI_MODULE)
    placeholder.__path__ = []
    info = ModuleType(f"{SPACY_CLI_MODULE}.info")
    vars(info)["__getattr__"] = lambda name: _lazy_function(info.__name__, name)
    for module in (placeholder, info):
        sys.modules[module.__name__] = module
    try:
        with _hide_torch():
            return importlib.import_module("spacy")
    finally:
        for module in (placeholder, info):
            if sys.modules.get(module.__name__) is module:
                del sys.modules[module.__name__]


class _TorchHidingFinder:
    """An import finder that reports torch as not installed, to one thread only."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, *_: object) -> None:
        """Raise ModuleNotFoundError for torch. Leave other modules to other finders."""
        if name == TORCH_MODULE and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def _hide_torch() -> Iterator[None]:
    """Hide torch from spaCy's import, within this context.

    Not where torch is imported already, in a host program, or where an installed spaCy package
    needs it.
    """
    torch_users = [name for name in TORCH_USERS if find_spec(name) is not None]
    if TORCH_MODULE in sys.modules or not is_own_process() or torch_users:
        yield
        return
    finder: Any = _TorchHidingFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _lazy_function(module: str, name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)

    def import_and_call(*arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **options)

    return import_and_call


def parser() -> "Language":
    """Return the parser, loaded once per process. It is thread-safe.

    Loading takes about 0.35 s, after an import of spaCy of about 0.45 s.
    """
    with _loading:
        return _load_parser()


@cache
def _load_parser() -> "Language":
    start = time.perf_counter()
    folder = find_weights("en-core-web-sm")
    language: Language = import_spacy().load(folder, exclude=list(UNUSED_PIPES))
    logger.info("loaded the English parser in %.2f s", time.perf_counter() - start)
    return language


def parse(texts: Sequence[str]) -> "list[Doc]":
    """Return one parsed document per text, in order. Equal texts share one, also of recent calls."""
    global _recent_docs
    docs = _recent_docs
    new_texts = [text for text in dict.fromkeys(texts) if text not in docs]
    new_docs = parser().pipe(new_texts, batch_size=BATCH_SEGMENTS)
    # A new dict, for other threads read the old one.
    docs = docs | dict(zip(new_texts, new_docs, strict=True))
    _recent_docs = dict(list(docs.items())[-MAX_RECENT_DOCS:])
    return [docs[text] for text in texts]


@cache
def verbs() -> frozenset[str]:
    """Return the base forms of English verbs, from WordNet by spaCy's lemmatizer."""
    return frozenset(parser().get_pipe("lemmatizer").lookups.get_table("lemma_index")["verb"])


@cache
def nouns() -> frozenset[str]:
    """Return the base forms of English nouns, from WordNet by spaCy's lemmatizer."""
    return frozenset(parser().get_pipe("lemmatizer").lookups.get_table("lemma_index")["noun"])


PAST_ENDINGS = (("ing", "e"), ("ing", ""), ("ied", "y"), ("ed", "e"), ("ed", ""))
PLAIN_PAST_ENDINGS = (("ing", ""), ("ed", ""))
PRESENT_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""))


@cache
def _verb_exceptions() -> dict[str, str]:
    """Return irregular form -> base form, from spaCy's lemmatizer."""
    exception_table = parser().get_pipe("lemmatizer").lookups.get_table("lemma_exc")["verb"]
    exceptions = {}
    for form, bases in exception_table.items():
        if bases:
            exceptions[form] = bases[0]
    return exceptions


def base_form(word: str, token: "Token | None") -> str | None:
    """Return the base form of a spoken verb ("adding" -> "add"), None for another word."""
    bare = bare_word(word)
    known_verbs = verbs()
    exceptions = _verb_exceptions()
    is_irregular = bare in exceptions
    if is_irregular and bare not in known_verbs:
        return exceptions[bare]
    # by the parser
    if token is not None and token.pos_ == "VERB":
        lemma: str = token.lemma_.lower()
        if lemma in known_verbs:
            return lemma
    if bare in known_verbs:
        return bare
    # by the ending
    for stem in _possible_base_forms(bare):
        if stem in known_verbs:
            return stem
    return None


def _possible_base_forms(word: str) -> list[str]:
    """Return possible base forms of a word, the most likely first."""
    stems = _replace_endings(word, PAST_ENDINGS)
    # "chopping" has a doubled letter last
    for stem in _replace_endings(word, PLAIN_PAST_ENDINGS):
        last_two = stem[-2:]
        if len(set(last_two)) == 1:
            stems.append(stem[:-1])
    stems += _replace_endings(word, PRESENT_ENDINGS)
    return stems


def _replace_endings(word: str, endings: Sequence[tuple[str, str]]) -> list[str]:
    """Return the word with each matching ending replaced. endings: (ending, replacement) pairs."""
    stems = []
    for ending, replacement in endings:
        if word.endswith(ending):
            stems.append(word.removesuffix(ending) + replacement)
    return stems
