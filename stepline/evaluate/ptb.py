"""Penn Treebank tokens of captions as Stanford's tokenizer 3.4.1 writes them, lower-cased,
punctuation left out.

The tokenizer is a finite automaton (PTBLexer) in a compiled Java class, which is read as data: no
Java is run. Source: the class file format, chapter 4 of the Java Virtual Machine Specification.
JFlex packs an automaton into constant strings: runs of (count, value) for the character classes,
actions and attributes, pairs of 16-bit halves for the rows, and runs of (count, value + 1) for the
transitions.

What is done with each token that the automaton finds is a rule, by the automaton's own number. The
rules are those of PTBLexer run with `-preserveLines -lowerCase`, as the caption metrics run it.
They give Penn Treebank brackets, quotes and dashes, no American spelling, slashes left alone.

The jar, and METEOR's tables, are files of the installed `pycocoevalcap` package.
"""

import hashlib
import importlib.util
import re
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from operator import methodcaller
from pathlib import Path

from stepline.errors import ModelError

METEOR_JAR = "meteor/meteor-1.5.jar"
PARAPHRASE_TABLE = "meteor/data/paraphrase-en.gz"
TOKENIZER_JAR = "tokenizer/stanford-corenlp-3.4.1.jar"

# sha256 of the files of pycocoevalcap 1.2
KNOWN_DIGESTS = {
    METEOR_JAR: "1e57b4c72c0830ebe68558f1c799a624e96cbc1b6045c9f6330e26dcff6eafc2",
    PARAPHRASE_TABLE: "c147ac7d2c91f2fbb3ad31e4b352235061eb83145e0434daf217ee9ca5975f48",
    TOKENIZER_JAR: "2fcb91bb7a111f93d71e264f4ee0e3afd19ba0dde6d21b38605088df9e940399",
}
_INSTALL_CURE = "pip install -c constraints.txt 'stepline[evaluate]'"


def official_file(name: str) -> Path:
    """Return the path of a file of pycocoevalcap 1.2, after a check of its sha256.

    Raises ModelError when the file is missing, damaged or of another version.
    """
    path = package_folder() / name
    if not path.is_file():
        raise ModelError(f"{path}: no such file; {_INSTALL_CURE}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != KNOWN_DIGESTS[name]:
        raise ModelError(
            f"{path}: not the file of pycocoevalcap 1.2 (sha256 {digest[:12]}...); {_INSTALL_CURE}"
        )
    return path


def package_folder() -> Path:
    """Return the folder of the installed pycocoevalcap package. Raises ModelError without it."""
    spec = importlib.util.find_spec("pycocoevalcap")
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(f"METEOR's and the tokenizer's tables are not installed; {_INSTALL_CURE}")
    return Path(next(iter(spec.submodule_search_locations)))


# ---------------------------------------------------------------- the class file


# tags of the constant pool
_UTF8_TAG = 1
_STRING_TAG = 8
# bytes that follow the tag of a constant-pool entry
_BYTES_BY_TAG = {
    **dict.fromkeys((3, 4, 9, 10, 11, 12, 17, 18), 4),
    **dict.fromkeys((5, 6), 8),
    **dict.fromkeys((7, 8, 16, 19, 20), 2),
    15: 3,
}
_TWO_SLOT_TAGS = (5, 6)  # long and double take two indices


@dataclass
class _ByteReader:
    data: bytes
    position: int

    def read_number(self, layout: str) -> int:
        """Read the next big-endian number. layout: its format letter of `struct`."""
        value: int = struct.unpack_from(">" + layout, self.data, self.position)[0]
        self.position += struct.calcsize(">" + layout)
        return value

    def read_bytes(self, size: int) -> bytes:
        """Read the next `size` bytes."""
        self.position += size
        return self.data[self.position - size : self.position]


def constant_strings(data: bytes) -> dict[str, str]:
    """Return field name -> value for every field of a Java class that holds a constant string.

    data: bytes of the .class file.
    """
    reader = _ByteReader(data, 8)  # past the magic number and the version
    texts, strings = _read_constant_pool(reader)
    reader.read_bytes(6)  # access flags, this class, super class
    reader.read_bytes(2 * reader.read_number("H"))  # interfaces
    constants = {}
    # A field: its flags, name and type, then its attributes.
    for _ in range(reader.read_number("H")):
        reader.read_number("H")
        name = texts[reader.read_number("H")]
        reader.read_number("H")
        for _ in range(reader.read_number("H")):
            kind = texts[reader.read_number("H")]
            index = int.from_bytes(reader.read_bytes(reader.read_number("I")), "big")
            if kind == "ConstantValue" and index in strings:
                constants[name] = texts[strings[index]]
    return constants


def _read_constant_pool(reader: _ByteReader) -> tuple[dict[int, str], dict[int, int]]:
    """Read the constant pool of a Java class.

    Return (index -> text) and, for string constants, (index -> index of their text).
    """
    texts: dict[int, str] = {}
    strings: dict[int, int] = {}
    count = reader.read_number("H")
    index = 1
    while index < count:
        tag = reader.read_number("B")
        size = reader.read_number("H") if tag == _UTF8_TAG else _BYTES_BY_TAG[tag]
        value = reader.read_bytes(size)
        if tag == _UTF8_TAG:
            # Java's own UTF-8, where zero is two bytes and surrogates are written one by one
            texts[index] = value.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        elif tag == _STRING_TAG:
            strings[index] = int.from_bytes(value, "big")
        index += 2 if tag in _TWO_SLOT_TAGS else 1
    return texts, strings


# ---------------------------------------------------------------- the automaton


_LEXER_CLASS = "edu/stanford/nlp/process/PTBLexer.class"
# bits of a state's attribute
_ACCEPTING_BIT = 1  # it ends a token
_FINAL_BIT = 8  # nothing longer can match
_MAX_OVERRUN_CHARS = 64  # read in vain from which on a dead end is remembered


@dataclass(frozen=True)
class Automaton:
    """The finite automaton of the Penn Treebank tokenizer, as JFlex packs it.

    Attributes:
        classes: character class of each of the 65536 UTF-16 units.
        row_starts: for each state, the index in `transitions` at which the row of that state
            starts.
        transitions: transitions[row_starts[state] + character class] is the next state, -1 if there
            is none.
        attributes: for each state, flag bits: whether a token may end there, and whether nothing
            longer can match.
        actions: for each state, the number of the rule for a token that ends there.
    """

    classes: list[int]
    row_starts: list[int]
    transitions: list[int]
    attributes: list[int]
    actions: list[int]

    def longest_token(
        self, units: list[int], start: int, state: int, dead_ends: set[tuple[int, int]]
    ) -> tuple[int, int]:
        """Return (number of the rule, end) of the longest token that begins at `start`.

        Where no token matches, the result is (0, start).

        Args:
            units: character class of each UTF-16 unit of the text.
            start: index of the first unit of the token.
            state: state in which the automaton starts.
            dead_ends: (position, state) pairs from which no token end was found. The set is updated
                and shared over one text, which keeps the time linear.
        """
        rows, steps, attributes = self.row_starts, self.transitions, self.attributes
        end, action_state = start, -1
        position, size = start, len(units)
        trail: list[tuple[int, int]] = []
        # As far as any token can reach.
        while position < size:
            state = steps[rows[state] + units[position]]
            if state < 0:
                break
            position += 1
            attribute = attributes[state]
            if attribute & _ACCEPTING_BIT:
                # A token may end here, so the positions since the last end are no dead ends.
                end, action_state = position, state
                trail.clear()
                if attribute & _FINAL_BIT:
                    break
            elif position - end > _MAX_OVERRUN_CHARS:
                # Far behind the last end: a path that failed before is not tried again.
                if (position, state) in dead_ends:
                    break
                trail.append((position, state))
        dead_ends.update(trail)
        return (self.actions[action_state], end) if action_state >= 0 else (0, start)

    def split_lookahead(
        self, units: list[int], start: int, end: int, forward: int, backward: int
    ) -> int:
        """Return the end of a token that matches only if a certain pattern follows it.

        This is the general lookahead of JFlex.

        Args:
            units: character class of each UTF-16 unit of the text.
            start: index of the first unit of the token.
            end: index behind the last unit of the pattern that follows the token.
            forward: start state for matching the token from the left.
            backward: start state for matching the following pattern from the right.
        """
        # For each position in [start, end]: whether `forward` may end there.
        is_accepted = [False] * (end - start + 1)
        state = forward
        for position in range(start, end + 1):
            is_accepted[position - start] = bool(self.attributes[state] & _ACCEPTING_BIT)
            if position == end:
                break
            state = self.transitions[self.row_starts[state] + units[position]]
            if state < 0:
                break
        # Back from the right, until both automata accept.
        state, position = backward, end
        while not (is_accepted[position - start] and self.attributes[state] & _ACCEPTING_BIT):
            position -= 1
            state = self.transitions[self.row_starts[state] + units[position]]
        return position


@cache
def load_automaton() -> Automaton:
    """Return the automaton in the jar of Stanford's tokenizer. Raises ModelError without it."""
    with zipfile.ZipFile(official_file(TOKENIZER_JAR)) as archive:
        fields = constant_strings(archive.read(_LEXER_CLASS))
    rows = _join_split_constant(fields, "ZZ_ROWMAP_PACKED")
    return Automaton(
        _unpack_runs(fields, "ZZ_CMAP_PACKED"),
        # A row's start is a 32-bit number in two characters.
        [ord(high) << 16 | ord(low) for high, low in zip(rows[::2], rows[1::2], strict=True)],
        # -1, no state, is packed as 0.
        [value - 1 for value in _unpack_runs(fields, "ZZ_TRANS_PACKED")],
        _unpack_runs(fields, "ZZ_ATTRIBUTE_PACKED"),
        _unpack_runs(fields, "ZZ_ACTION_PACKED"),
    )


def _join_split_constant(fields: dict[str, str], name: str) -> str:
    """Return a packed table as one string: the string constants `name`, `name_0`, `name_1`, ...,
    joined in order.

    Java splits string constants longer than 65,535 bytes.
    """
    keys = [key for key in fields if key == name or key.startswith(name + "_")]
    # By number: as texts, part 10 would come before part 2.
    return "".join(
        fields[key] for key in sorted(keys, key=lambda key: int(key[len(name) + 1 :] or 0))
    )


def _unpack_runs(fields: dict[str, str], name: str) -> list[int]:
    packed = _join_split_constant(fields, name)
    values: list[int] = []
    for count, value in zip(packed[::2], packed[1::2], strict=True):
        values.extend([ord(value)] * ord(count))
    return values


# ---------------------------------------------------------------- the rules


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
class TokenRule:
    """What the tokenizer does with a token of one kind.

    Attributes:
        format_token: function from the token's text to the written text. `str` leaves the text unchanged.
            None drops the token.
        pushback_chars: number of characters at the token's end that are left to the next token.
        lookahead_states: (forward, backward) states for `Automaton.split_lookahead`. None: no lookahead.
        leaves_trailing_space: whether white space at the token's end is left to the next token.
        repeats_last_character: whether the last character is written and also left to the next token. An
            example is the full stop of "Co." at the end of a sentence.
        takes_first_character: whether only the first character of the match is the token.
    """

    format_token: Callable[[str], str] | None
    pushback_chars: int = 0
    lookahead_states: tuple[int, int] | None = None
    leaves_trailing_space: bool = False
    repeats_last_character: bool = False
    takes_first_character: bool = False


def _write_constant(value: str) -> Callable[[str], str]:
    return lambda _: value


def _replace_characters(table: Mapping[str, str]) -> Callable[[str], str]:
    return methodcaller("translate", str.maketrans(dict(table)))


def _remove_soft_hyphens(text: str) -> str:
    return text.replace("\u00ad", "") or "-"


def _write_quotes(text: str, opening: bool) -> str:
    for pattern, opening_quote, closing_quote in _QUOTE_PATTERNS:
        quote = opening_quote if opening else closing_quote
        text = pattern.sub(quote, text)
    return text


_write_opening = partial(_write_quotes, opening=True)
_write_closing = partial(_write_quotes, opening=False)
_write_ampersand = partial(re.compile("&amp;", re.IGNORECASE).sub, "&")
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
RULES_BY_ACTION: dict[int, TokenRule] = {
    # a character that no token may hold, line breaks, white space
    **dict.fromkeys((1, 5, 7, 23), TokenRule(None)),
    **dict.fromkeys((3, 9, 19, 31, 45, 52), TokenRule(str)),
    **{action: TokenRule(_write_constant(written)) for action, written in _CONSTANT_TOKENS.items()},
    4: TokenRule(lambda text: "--" if len(text) in (3, 4) else text),
    **dict.fromkeys((6, 12, 29), TokenRule(_remove_soft_hyphens)),
    8: TokenRule(_write_closing),
    14: TokenRule(_replace_characters(_FRACTION_TOKENS)),
    15: TokenRule(_replace_characters(_CURRENCY_TOKENS)),
    24: TokenRule(str, lookahead_states=(13, 14)),
    25: TokenRule(str, pushback_chars=1),
    26: TokenRule(_write_opening, pushback_chars=1),
    **dict.fromkeys((27, 38, 39), TokenRule(_replace_characters(_NO_BREAK_SPACE))),
    28: TokenRule(_replace_characters(_BRACKET_TOKENS)),
    30: TokenRule(_remove_soft_hyphens, lookahead_states=(3, 4)),
    **dict.fromkeys((32, 46), TokenRule(_remove_soft_hyphens, pushback_chars=1)),
    33: TokenRule(str, repeats_last_character=True),
    34: TokenRule(_replace_characters(_BRACKET_TOKENS), pushback_chars=1),
    35: TokenRule(_write_opening, takes_first_character=True),
    36: TokenRule(_write_closing, pushback_chars=1),
    37: TokenRule(_write_ampersand),
    40: TokenRule(_remove_soft_hyphens, lookahead_states=(5, 6)),
    41: TokenRule(str, lookahead_states=(16, 17)),
    **dict.fromkeys((42, 48), TokenRule(str, pushback_chars=2)),  # "gim|me"
    43: TokenRule(str, lookahead_states=(15, 14)),
    44: TokenRule(str, lookahead_states=(9, 10), leaves_trailing_space=True),
    47: TokenRule(
        str, lookahead_states=(7, 8), leaves_trailing_space=True, repeats_last_character=True
    ),
    49: TokenRule(str, lookahead_states=(11, 12), repeats_last_character=True),
    50: TokenRule(str, pushback_chars=3),  # "can|not"
    51: TokenRule(_write_ampersand, pushback_chars=1),
    53: TokenRule(str, pushback_chars=4),
    54: TokenRule(_replace_characters(_NO_BREAK_SPACE | _BRACKET_TOKENS)),
}


# what the caption metrics throw away after tokenising (pycocoevalcap's list). Brackets are compared
# after lower-casing, so "-lrb-" stays, as it does there
PUNCTUATION_TOKENS = frozenset(
    (
        *("''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-"),
        *(".", "?", "!", ",", ":", "-", "--", "...", ";"),
    )
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_BREAK_CHARS = "\n\r\x0b\x0c\x85\u2028\u2029"
_LINE_BREAKS = str.maketrans(dict.fromkeys(_BREAK_CHARS, " "))
_WHITE_SPACE = frozenset(" \t\n\x0b\x0c\r\x85")
_MAX_CACHED_TEXTS = 1 << 14  # captions, and words, whose tokens are cached
_SURROGATE_UNIT = re.compile("[\ud800-\udfff]")


def replace_non_ascii(text: str) -> str:
    """Return the text with a space in place of each character outside ASCII.

    SODA and densevid_eval do the same.
    """
    return text if text.isascii() else _NOT_ASCII.sub(" ", text)


class Tokenizer:
    """Penn Treebank tokenizer of captions, with the same tokens as pycocoevalcap's Java program.

    A caption is one line: a line break inside it is read as a space. The Java program reads all
    captions as one file, in which such a line break shifts every later caption. Raises ModelError
    without the tokenizer's jar.
    """

    def __init__(self) -> None:
        self._automaton = load_automaton()
        cached = lru_cache(maxsize=_MAX_CACHED_TEXTS)
        self._tokenize_cached = cached(self._tokenize)
        # The tokens of a word of letters do not depend on its neighbours.
        self._tokenize_word = cached(self._join_tokens)

    def __call__(self, text: str) -> str:
        """Return the lower-cased tokens of a caption without punctuation, joined by spaces.

        The caption metrics compare captions in this form.
        """
        return self._tokenize_cached(text)

    def all_tokens(self, text: str) -> list[str]:
        """Return the lower-cased tokens of a caption, punctuation included."""
        units = _utf16_units(text.translate(_LINE_BREAKS)) + "\n"
        return [_join_surrogates(token.lower()) for token in self._written_tokens(units)]

    def _tokenize(self, text: str) -> str:
        if not text.replace(" ", "a").isalpha() or not text.isascii():
            return self._join_tokens(text)
        return " ".join(filter(None, map(self._tokenize_word, text.split())))

    def _join_tokens(self, text: str) -> str:
        # A token can hold a space only as a no-break space, so that splitting at spaces is safe.
        return " ".join(token for token in self.all_tokens(text) if token not in PUNCTUATION_TOKENS)

    def _written_tokens(self, line: str) -> Iterator[str]:
        """Yield the written text of each token of one line. line: one character per UTF-16 unit."""
        units = [self._automaton.classes[ord(unit)] for unit in line]
        dead_ends: set[tuple[int, int]] = set()
        start = 0
        while start < len(line):
            action, end = self._automaton.longest_token(units, start, START_STATE, dead_ends)
            if end == start:
                start += 1
                continue
            rule = RULES_BY_ACTION[action]
            if rule.lookahead_states is not None:
                end = self._automaton.split_lookahead(units, start, end, *rule.lookahead_states)
            stop, next_start = _token_bounds(rule, line, start, end)
            if rule.format_token is not None:
                yield rule.format_token(line[start:stop])
            start = next_start


def _token_bounds(rule: TokenRule, line: str, start: int, end: int) -> tuple[int, int]:
    """Return the index behind the token's last unit, and the index at which the tokenizer goes on.

    They differ where a character belongs to two tokens: in "U.S." at the end of a sentence the last
    full stop also ends the sentence.

    Args:
        rule: rule for the token.
        line: the line, one character per UTF-16 unit.
        start: index of the first unit of the match.
        end: index behind the last unit of the match.
    """
    if rule.leaves_trailing_space:
        while end > start and line[end - 1] in _WHITE_SPACE:
            end -= 1
    if rule.takes_first_character:
        return start + 1, start + 1
    if rule.repeats_last_character and not (rule.leaves_trailing_space and end - start == 2):
        return end, max(end - 1, start + 1)
    end -= rule.pushback_chars
    if rule.repeats_last_character:
        # "I." at an end is a word and a full stop
        end -= 1
    return end, end


def _utf16_units(text: str) -> str:
    """Return the text with one character per UTF-16 unit, as Java sees it.

    A character beyond U+FFFF becomes two surrogates.
    """
    if text.isascii():
        return text
    data = text.encode("utf-16-le", "surrogatepass")
    return "".join(map(chr, struct.unpack(f"<{len(data) // 2}H", data)))


def _join_surrogates(token: str) -> str:
    """Return the token with each surrogate pair joined into one character.

    A single surrogate becomes U+FFFD.
    """
    if token.isascii() or not _SURROGATE_UNIT.search(token):
        return token
    return token.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
