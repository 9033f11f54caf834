"""Penn Treebank tokens of captions as Stanford's tokenizer 3.4.1 writes them, lower-cased,
punctuation left out.

What is done with each token that the automaton finds is a rule, by the automaton's own number. The
rules are those of PTBLexer run with `-preserveLines -lowerCase`, as the caption metrics run it.
They give Penn Treebank brackets, quotes and dashes, no American spelling, slashes left alone.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import methodcaller
from pathlib import Path

from stepline.evaluate.ptb.automaton import TOKENIZER_JAR, Automaton, load, official_file

_QUOTE_PATTERNS = (  # pattern, as an opening quote, as a closing one
    (re.compile("&apos;|'"), "`", "'"),
    (re.compile('"|&quot;'), "``", "''"),
    (re.compile("[\u0091\u2018\u201b\u2039]"), "`", "`"),
    (re.compile("[\u0092\u2019\u203a]"), "'", "'"),
    (re.compile("[\u0093\u201c\u00ab]"), "``", "``"),
    (re.compile("[\u0094\u201d\u00bb]"), "''", "''"),
)
_BRACKET_TOKENS = {"(": "-LRB-", ")": "-RRB-"}
_FRACTION_TOKENS = {"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"}
_CURRENCY_TOKENS = {"¢": "cents", "£": "#", "\u0080": "$", "¤": "$", "₠": "$", "€": "$"}
# a no-break space is written for a space inside one token, such as a phone number
_NO_BREAK_SPACE = {" ": "\u00a0"}


@dataclass(frozen=True)
class Rule:
    """write: token text -> what is written (str: as it is), None to drop it. give_back: characters
    left to the next token.

    ahead: the two automaton states of a token that must be followed by something.
    trims: white space at its end is given back.
    repeats_stop: the last character is written and given back too, as the full stop of "Co." at an
    end.
    """

    write: Callable[[str], str] | None
    give_back: int = 0
    ahead: tuple[int, int] | None = None
    trims: bool = False
    repeats_stop: bool = False
    only_first: bool = False


def _constant(value: str) -> Callable[[str], str]:
    return lambda _: value


def _translated(table: Mapping[str, str]) -> Callable[[str], str]:
    translation = str.maketrans(dict(table))
    return methodcaller("translate", translation)


def _dash(text: str) -> str:
    return "--" if len(text) in (3, 4) else text


def _without_soft_hyphens(text: str) -> str:
    return text.replace("\u00ad", "") or "-"


def _quote(text: str, opening: bool) -> str:
    for pattern, opening_quote, closing_quote in _QUOTE_PATTERNS:
        quote = opening_quote if opening else closing_quote
        text = pattern.sub(quote, text)
    return text


_opening = partial(_quote, opening=True)
_closing = partial(_quote, opening=False)
_ampersand = partial(re.compile("&amp;", re.IGNORECASE).sub, "&")
_CONSTANT_TOKENS = {
    2: "<",
    10: ">",
    11: "--",
    13: "...",
    16: "-RCB-",
    17: "-LRB-",
    18: "-RRB-",
    20: "-LCB-",
    21: "-RSB-",
    22: "-LSB-",
}

START_STATE = 2  # the automaton's state at the start of a token, in its traditional Treebank mode
RULES_BY_ACTION: dict[int, Rule] = {
    # a character that no token may hold, line breaks, white space
    **dict.fromkeys((1, 5, 7, 23), Rule(None)),
    **dict.fromkeys((3, 9, 19, 31, 45, 52), Rule(str)),
    **{action: Rule(_constant(written)) for action, written in _CONSTANT_TOKENS.items()},
    4: Rule(_dash),
    **dict.fromkeys((6, 12, 29), Rule(_without_soft_hyphens)),
    8: Rule(_closing),
    14: Rule(_translated(_FRACTION_TOKENS)),
    15: Rule(_translated(_CURRENCY_TOKENS)),
    24: Rule(str, ahead=(13, 14)),
    25: Rule(str, give_back=1),
    26: Rule(_opening, give_back=1),
    **dict.fromkeys((27, 38, 39), Rule(_translated(_NO_BREAK_SPACE))),
    28: Rule(_translated(_BRACKET_TOKENS)),
    30: Rule(_without_soft_hyphens, ahead=(3, 4)),
    **dict.fromkeys((32, 46), Rule(_without_soft_hyphens, give_back=1)),
    33: Rule(str, repeats_stop=True),
    34: Rule(_translated(_BRACKET_TOKENS), give_back=1),
    35: Rule(_opening, only_first=True),
    36: Rule(_closing, give_back=1),
    37: Rule(_ampersand),
    40: Rule(_without_soft_hyphens, ahead=(5, 6)),
    41: Rule(str, ahead=(16, 17)),
    **dict.fromkeys((42, 48), Rule(str, give_back=2)),  # "gim|me"
    43: Rule(str, ahead=(15, 14)),
    44: Rule(str, ahead=(9, 10), trims=True),
    47: Rule(str, ahead=(7, 8), trims=True, repeats_stop=True),
    49: Rule(str, ahead=(11, 12), repeats_stop=True),
    50: Rule(str, give_back=3),  # "can|not"
    51: Rule(_ampersand, give_back=1),
    53: Rule(str, give_back=4),
    54: Rule(_translated(_NO_BREAK_SPACE | _BRACKET_TOKENS)),
}


# what the caption metrics throw away after tokenising (pycocoevalcap's list). Brackets are compared
# after lower-casing, so "-lrb-" stays, as it does there
PUNCTUATION_TOKENS = frozenset(
    [
        "''",
        "'",
        "``",
        "`",
        "-LRB-",
        "-RRB-",
        "-LCB-",
        "-RCB-",
        ".",
        "?",
        "!",
        ",",
        ":",
        "-",
        "--",
        "...",
        ";",
    ]
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_BREAK_CHARS = "\n\r\x0b\x0c\x85\u2028\u2029"
_LINE_BREAKS = str.maketrans(dict.fromkeys(_BREAK_CHARS, " "))
_WHITE_SPACE = frozenset(" \t\n\x0b\x0c\r\x85")
_MAX_CACHED_TEXTS = 1 << 14  # captions, and words, whose tokens are cached
_SURROGATE_UNIT = re.compile("[\ud800-\udfff]")
_MAX_UNIT = 0xFFFF  # characters beyond it are two UTF-16 units to Java


def only_ascii(text: str) -> str:
    """Return the text with one space for each character outside ASCII, as SODA and densevid_eval
    read captions."""
    return text if text.isascii() else _NOT_ASCII.sub(" ", text)


class Tokenizer:
    """Turns a caption into its tokens, joined by single spaces.

    A caption is read alone and as one line. The official program reads all captions as one file, so
    that there a line break inside a caption shifts every later one. Here it is a space.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: laid out as the pycocoevalcap package, by default that package. Raises ModelError
        without it."""
        self._automaton = load(official_file(TOKENIZER_JAR, folder))
        cache = lru_cache(maxsize=_MAX_CACHED_TEXTS)
        self._tokens = cache(self._tokenize)
        # the tokens of a word of letters do not depend on its neighbours
        self._word = cache(self._read)

    def __call__(self, text: str) -> str:
        """Return the lower-cased tokens of a caption without punctuation, as the caption metrics
        compare them."""
        return self._tokens(text)

    def all_tokens(self, text: str) -> list[str]:
        """Return the lower-cased tokens of a caption, punctuation included."""
        units = _units(text.translate(_LINE_BREAKS)) + "\n"
        tokens = _written_tokens(units, self._automaton)
        lowered = [token.lower() for token in tokens]
        return [_characters(token) for token in lowered]

    def _tokenize(self, text: str) -> str:
        if not text.replace(" ", "a").isalpha() or not text.isascii():
            return self._read(text)
        words = [self._word(word) for word in text.split()]
        return " ".join(filter(None, words))

    def _read(self, text: str) -> str:
        # a token can hold a space only as a no-break space, so that splitting at spaces is safe
        tokens = self.all_tokens(text)
        words = [token for token in tokens if token not in PUNCTUATION_TOKENS]
        return " ".join(words)


def _written_tokens(line: str, automaton: Automaton) -> list[str]:
    """Return what is written for each token of one line."""
    classes = automaton.classes
    codes = map(ord, line)
    units = [classes[code] for code in codes]
    dead: set[tuple[int, int]] = set()
    tokens: list[str] = []
    position = 0
    while position < len(line):
        action, end = automaton.longest(units, position, START_STATE, dead)
        if end == position:
            position += 1
            continue
        rule = RULES_BY_ACTION[action]
        bounds, position = _bounds(rule, automaton, units, line, position, end)
        if rule.write is not None:
            start, stop = bounds
            text = line[start:stop]
            tokens.append(rule.write(text))
    return tokens


def _bounds(
    rule: Rule, automaton: Automaton, units: list[int], line: str, start: int, end: int
) -> tuple[tuple[int, int], int]:
    """Return the token's own bounds and where the next token starts."""
    if rule.ahead is not None:
        end = automaton.split(units, start, end, *rule.ahead)
    if rule.trims:
        while end > start and line[end - 1] in _WHITE_SPACE:
            end -= 1
    if rule.only_first:
        return (start, start + 1), start + 1
    if rule.repeats_stop and not (rule.trims and end - start == 2):
        return (start, end), max(end - 1, start + 1)
    end -= rule.give_back
    if rule.repeats_stop:
        # "I." at an end is a word and a full stop
        end -= 1
    return (start, end), end


def _units(text: str) -> str:
    """Return the text with every character as Java sees it: beyond U+FFFF, two surrogates."""
    if text.isascii() or all(ord(letter) <= _MAX_UNIT for letter in text):
        return text
    data = text.encode("utf-16-le", "surrogatepass")
    units = []
    for index in range(0, len(data), 2):
        low_byte = data[index]
        high_byte = data[index + 1]
        units.append(chr(low_byte | high_byte << 8))
    return "".join(units)


def _characters(token: str) -> str:
    """Undo `_units`. A surrogate alone stays."""
    if token.isascii() or not _SURROGATE_UNIT.search(token):
        return token
    return token.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
