"""Split captions into Penn Treebank tokens as Stanford's tokenizer 3.4.1 does, lower-cased, punctuation left out."""

from functools import lru_cache
from pathlib import Path

from stepline.evaluate.official import TOKENIZER_JAR, official_file
from stepline.evaluate.ptb.automaton import Automaton, load
from stepline.evaluate.ptb.rules import RULES, START, Rule

# what the caption metrics throw away after tokenising (pycocoevalcap's list; brackets are compared after lower-casing,
# so "-lrb-" stays, as it does there)
PUNCTUATION = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
_LINE_BREAKS = str.maketrans(dict.fromkeys("\n\r\x0b\x0c\x85\u2028\u2029", " "))
_WHITE = frozenset(" \t\n\x0b\x0c\r\x85")
_REMEMBERED = 1 << 14  # captions and words whose tokens are kept
_LAST_UNIT = 0xFFFF  # characters beyond it are two UTF-16 units to Java


def only_ascii(text: str) -> str:
    """Return the text with one space for each character outside ASCII, as SODA and densevid_eval read captions."""
    return text if text.isascii() else "".join(letter if letter < "\x80" else " " for letter in text)


class Tokenizer:
    """Turns a caption into its tokens, joined by single spaces.

    A caption is read alone and as one line: the official program reads all captions as one file, so that there a line
    break inside a caption shifts every later one; here it is a space.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: laid out as the pycocoevalcap package; by default that package. Raises ModelError without it."""
        self._automaton = load(official_file(TOKENIZER_JAR, folder))
        self._tokens = lru_cache(maxsize=_REMEMBERED)(self._tokenize)
        self._word = lru_cache(maxsize=_REMEMBERED)(self._read)  # a word of letters alone never minds its neighbours

    def __call__(self, text: str) -> str:
        """Return the lower-cased tokens of a caption without punctuation, as the caption metrics compare them."""
        return self._tokens(text)

    def all_tokens(self, text: str) -> list[str]:
        """Return the lower-cased tokens of a caption, punctuation included."""
        line = _units(text.translate(_LINE_BREAKS)) + "\n"
        return [_characters(token.lower()) for token in _written(line, self._automaton)]

    def _tokenize(self, text: str) -> str:
        if text.isascii() and text.replace(" ", "a").isalpha():
            return " ".join(filter(None, map(self._word, text.split())))
        return self._read(text)

    def _read(self, text: str) -> str:
        # a token can hold a space only as a no-break space, so that splitting at spaces is safe
        return " ".join(token for token in self.all_tokens(text) if token not in PUNCTUATION)


def _written(line: str, automaton: Automaton) -> list[str]:
    """Return what is written for each token of one line."""
    classes = automaton.classes
    units = [classes[ord(unit)] for unit in line]
    dead: set[tuple[int, int]] = set()
    tokens: list[str] = []
    place = 0
    while place < len(line):
        action, end = automaton.longest(units, place, START, dead)
        if end == place:
            place += 1
            continue
        rule = RULES[action]
        stop, place = _bounds(rule, automaton, units, line, place, end)
        token = rule.write(line[stop[0] : stop[1]])
        if token is not None:
            tokens.append(token)
    return tokens


def _bounds(
    rule: Rule, automaton: Automaton, units: list[int], line: str, start: int, end: int
) -> tuple[tuple[int, int], int]:
    """Return the token's own bounds and where the next token starts."""
    if rule.ahead is not None:
        end = automaton.split(units, start, end, *rule.ahead)
    if rule.trims:
        while end > start and line[end - 1] in _WHITE:
            end -= 1
    if rule.only_first:
        return (start, start + 1), start + 1
    if rule.repeats_stop and not (rule.trims and end - start == 2):
        return (start, end), max(end - 1, start + 1)
    give_back = 1 if rule.repeats_stop else rule.give_back  # "I." at an end is a word and a full stop
    return (start, end - give_back), end - give_back


def _units(text: str) -> str:
    """Return the text with every character as Java sees it: beyond U+FFFF, two surrogates."""
    if text.isascii() or all(ord(letter) <= _LAST_UNIT for letter in text):
        return text
    data = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(data[at] | data[at + 1] << 8) for at in range(0, len(data), 2))


def _characters(token: str) -> str:
    """Undo `_units`; a surrogate that stands alone stays."""
    if token.isascii() or not any("\ud800" <= unit <= "\udfff" for unit in token):
        return token
    return token.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
