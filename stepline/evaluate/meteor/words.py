"""METEOR's normalization of a caption into words (`-norm`), and the stem of a word.

Normalization makes words of punctuation and clitics, then lower case. The order of the replacements
is the program's. Several overlap only because one pass never looks twice at a character.

The stem is the English (Porter2) one as it was when METEOR 1.5 was built: snowballstemmer 2.2.0.
Later Snowball releases changed the algorithm ("added" -> "add", "biologist" -> "biolog"), which
changes METEOR's scores.
"""

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from itertools import zip_longest
from types import ModuleType

from stepline.errors import ModelError

_LETTER_RANGES = (
    "A-Za-z\u0160\u017d\u0161\u017e\u0178"
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u04ff\u0500-\u0527"
    "\ua640-\ua66e\ua67e-\ua697\u1d00-\u1d7f"
)
# Java's \s is ASCII white space
_SIGN_PATTERN = re.compile(rf"([^0-9{_LETTER_RANGES}\s.'`,\-\u2018\u2019])", re.ASCII)
_DOTS_PATTERN = re.compile(r"(\.{2,})")
_COMMA_PATTERNS = (
    re.compile("([^0-9]),([^0-9])"),
    re.compile("([0-9]),([^0-9])"),
    re.compile("([^0-9]),([0-9])"),
)
_SINGLE_QUOTE_PATTERN = re.compile("[`\u2018\u2019]")
_DOUBLE_QUOTE_PATTERN = re.compile("[\u201c\u201d]|''")
_INNER_DASH = re.compile(rf"([0-9{_LETTER_RANGES}.])-([0-9{_LETTER_RANGES}])")
_APOSTROPHE_PATTERNS = (
    (re.compile(rf"([^{_LETTER_RANGES}])'([^{_LETTER_RANGES}])"), r"\1 ' \2"),
    (re.compile(rf"([^{_LETTER_RANGES}0-9])'([{_LETTER_RANGES}])"), r"\1 ' \2"),
    (re.compile(rf"([{_LETTER_RANGES}])'([^{_LETTER_RANGES}])"), r"\1 ' \2"),
    (re.compile(rf"([{_LETTER_RANGES}])'([{_LETTER_RANGES}])"), r"\1 '\2"),
    (re.compile(r"([0-9])'(s)"), r"\1 '\2"),
)
_LETTER_PATTERN = re.compile(f"[{_LETTER_RANGES}]")
_LOWER_PATTERN = re.compile("[a-z]")
_DIGIT_PATTERN = re.compile("[0-9]")
_BLANKS_PATTERN = re.compile("[ \u2000-\u200a\u202f\u205f\u3000\u00a0]+")
_BETWEEN_WORDS = re.compile("[ \t\n\r\f]+")

# when an abbreviation keeps its full stop
ALWAYS_KEPT = 1
KEPT_BEFORE_NUMBERS = 2


def split_words(line: str, prefixes: Mapping[str, int]) -> list[str]:
    """Return the lower-cased words of a caption. Punctuation marks and clitics are words too.

    Args:
        line: the caption.
        prefixes: METEOR's list of abbreviations whose full stop is not split off. The value is
            ALWAYS_KEPT, or KEPT_BEFORE_NUMBERS for those that keep it only before a number.
    """
    if not (line.isascii() and line.replace(" ", "a").isalpha()):
        # Two or more dots are a separate word and split the line: every second part.
        parts = _DOTS_PATTERN.split(line)
        for index in range(0, len(parts), 2):
            parts[index] = _separate_punctuation(f" {parts[index]} ", prefixes)
        line = " ".join(parts)
    return _split_at_blanks(_BLANKS_PATTERN.sub(" ", line).strip().lower())


def _split_at_blanks(line: str) -> list[str]:
    return [word for word in _BETWEEN_WORDS.split(line) if word]


def _separate_punctuation(line: str, prefixes: Mapping[str, int]) -> str:
    """Put spaces around signs, commas, quotes, dashes, clitics and full stops."""
    line = _SIGN_PATTERN.sub(r" \1 ", line)
    for comma in _COMMA_PATTERNS:
        line = comma.sub(r"\1 , \2", line)
    line = _SINGLE_QUOTE_PATTERN.sub("'", line)
    line = _DOUBLE_QUOTE_PATTERN.sub(' " ', line)
    line = line.replace("\u2013", "-").replace("--", "-")
    line = _INNER_DASH.sub(r"\1 \2", line)
    for apostrophe, replacement in _APOSTROPHE_PATTERNS:
        line = apostrophe.sub(replacement, line)
    tokens = _split_at_blanks(line)
    return " ".join(
        _separate_full_stop(token, next_token, prefixes)
        for token, next_token in zip_longest(tokens, tokens[1:], fillvalue="")
    )


def _separate_full_stop(token: str, next_token: str, prefixes: Mapping[str, int]) -> str:
    """Put a space before the full stop of a word, unless the word is an abbreviation."""
    if len(token) < 2 or not token.endswith("."):
        return token
    stem = token[:-1]
    if "." in stem and _LETTER_PATTERN.search(stem):
        return stem.replace(".", "")
    kind = prefixes.get(stem)
    if kind == ALWAYS_KEPT or _LOWER_PATTERN.match(next_token):
        return token
    if kind == KEPT_BEFORE_NUMBERS and _DIGIT_PATTERN.match(next_token):
        return token
    return f"{stem} ."


@lru_cache(maxsize=1 << 17)
def stem(word: str) -> str:
    """Return the Porter2 stem of a lower-cased word. Raises ModelError without snowballstemmer."""
    return _load_stemmer()(word)


@cache
def _load_stemmer() -> Callable[[str], str]:
    spec = find_spec("snowballstemmer")
    if spec is None or spec.submodule_search_locations is None:
        raise ModelError(
            "METEOR's stemmer is not installed; pip install -c constraints.txt 'stepline[evaluate]'"
        )
    # Only the English module, by a package of another name. Importing snowballstemmer itself reads
    # 28 languages, which takes longer than all stems of a small corpus. It also prefers PyStemmer,
    # whose algorithm is a later one.
    package = ModuleType("snowballstemmer_english")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules[package.__name__] = package
    english = import_module(f"{package.__name__}.english_stemmer")
    stem_word: Callable[[str], str] = english.EnglishStemmer().stemWord
    return stem_word
