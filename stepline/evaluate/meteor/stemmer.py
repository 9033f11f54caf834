"""The English (Porter2) stemmer as it was when METEOR 1.5 was built.

Later Snowball releases changed the algorithm ("added" -> "add", "biologist" -> "biolog"), which changes METEOR scores,
so that no current package fits. Source: the published definition, snowballstem.org/algorithms/english, state of 2014.

METEOR's own normalisation of a line (`-norm`): punctuation and clitics become words, then lower case.

The order of the replacements is the program's; several overlap only because one pass never looks twice at a character.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

_VOWELS = frozenset("aeiouy")
_DOUBLES = frozenset(["bb", "dd", "ff", "gg", "mm", "nn", "pp", "rr", "tt"])
_BEFORE_LI = frozenset("cdeghkmnrt")
_WHOLE = {  # words with a stem of their own
    "skis": "ski",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "idly": "idl",
    "gently": "gentl",
    "ugly": "ugli",
    "early": "earli",
    "only": "onli",
    "singly": "singl",
    **dict.fromkeys(("sky",), "sky"),
    **{word: word for word in ("news", "howe", "atlas", "cosmos", "bias", "andes")},
}
_AFTER_PLURAL = frozenset(
    ["inning", "outing", "canning", "herring", "earring", "proceed", "exceed", "succeed"]
)  # left alone once a plural ending is gone
_LONG_STARTS = ("gener", "commun", "arsen")  # the first region starts after these
_STEP_2 = (
    ("ization", "ize"),
    ("ational", "ate"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("iveness", "ive"),
    ("tional", "tion"),
    ("biliti", "ble"),
    ("lessli", "less"),
    ("entli", "ent"),
    ("ation", "ate"),
    ("alism", "al"),
    ("aliti", "al"),
    ("ousli", "ous"),
    ("iviti", "ive"),
    ("fulli", "ful"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("abli", "able"),
    ("izer", "ize"),
    ("ator", "ate"),
    ("alli", "al"),
    ("bli", "ble"),
    ("ogi", "og"),
    ("li", ""),
)
_STEP_3 = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("alize", "al"),
    ("icate", "ic"),
    ("iciti", "ic"),
    ("ative", ""),
    ("ical", "ic"),
    ("ness", ""),
    ("ful", ""),
)
_STEP_4 = (
    "ement",
    "ance",
    "ence",
    "able",
    "ible",
    "ment",
    "ant",
    "ent",
    "ism",
    "ate",
    "iti",
    "ous",
    "ive",
    "ize",
    "ion",
    "al",
    "er",
    "ic",
)


@lru_cache(maxsize=1 << 17)
def stem(word: str) -> str:
    """Return the stem of a lower-cased word; words of one or two letters stay."""
    if word in _WHOLE:
        return _WHOLE[word]
    if len(word) <= 2:
        return word
    word = _mark(word.removeprefix("'"))
    first, second = _regions(word)
    word = _plural(_possessive(word))
    if word in _AFTER_PLURAL:
        return word
    word = _past(word, first)
    word = _y_to_i(word)
    word = _derived(word, first)
    word = _derived_again(word, first, second)
    word = _last_suffix(word, second)
    return _final(word, first, second).replace("Y", "y")


def _mark(word: str) -> str:
    """Write the y that is a consonant (first letter, or after a vowel) as Y."""
    letters = list(word)
    for index, letter in enumerate(letters):
        if letter == "y" and (index == 0 or letters[index - 1] in _VOWELS):
            letters[index] = "Y"
    return "".join(letters)


def _regions(word: str) -> tuple[int, int]:
    """Return where the two regions start in which suffixes may go."""
    start = next((len(prefix) for prefix in _LONG_STARTS if word.startswith(prefix)), None)
    first = start if start is not None else _after_consonant(word, 0)
    return first, _after_consonant(word, first)


def _after_consonant(word: str, start: int) -> int:
    """Return the place after the first consonant that follows a vowel, from `start` on."""
    for index in range(start + 1, len(word)):
        if word[index] not in _VOWELS and word[index - 1] in _VOWELS:
            return index + 1
    return len(word)


def _possessive(word: str) -> str:
    for ending in ("'s'", "'s", "'"):
        if word.endswith(ending):
            return word[: -len(ending)]
    return word


def _plural(word: str) -> str:
    if word.endswith("sses"):
        return word[:-2]
    if word.endswith(("ied", "ies")):
        return word[:-2] if len(word) > 4 else word[:-1]
    if word.endswith(("us", "ss")) or not word.endswith("s"):
        return word
    return word[:-1] if _has_vowel(word[:-2]) else word


def _has_vowel(text: str) -> bool:
    return any(letter in _VOWELS for letter in text)


def _past(word: str, first: int) -> str:
    """Take off -ed and -ing."""
    for ending in ("eedly", "eed"):
        if word.endswith(ending):
            return word[: -len(ending)] + "ee" if len(word) - len(ending) >= first else word
    for ending in ("ingly", "edly", "ing", "ed"):
        if word.endswith(ending):
            base = word[: -len(ending)]
            return _repair(base, first) if _has_vowel(base) else word
    return word


def _repair(word: str, first: int) -> str:
    """Give back the e, or take off the doubled letter, that -ed and -ing brought."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word[-2:] in _DOUBLES:
        return word[:-1]
    return word + "e" if len(word) <= first and _short_end(word) else word


def _short_end(word: str) -> bool:
    """Tell whether a word ends in a short syllable."""
    if len(word) == 2:
        return word[0] in _VOWELS and word[1] not in _VOWELS
    if len(word) < 3:
        return False
    before, vowel, last = word[-3], word[-2], word[-1]
    return before not in _VOWELS and vowel in _VOWELS and last not in _VOWELS and last not in "wxY"


def _y_to_i(word: str) -> str:
    if len(word) > 2 and word[-1] in "yY" and word[-2] not in _VOWELS:
        return word[:-1] + "i"
    return word


def _derived(word: str, first: int) -> str:
    for ending, new in _STEP_2:
        if not word.endswith(ending):
            continue
        base = word[: -len(ending)]
        if len(base) < first or (ending == "ogi" and not base.endswith("l")):
            return word
        if ending == "li" and (not base or base[-1] not in _BEFORE_LI):
            return word
        return base + new
    return word


def _derived_again(word: str, first: int, second: int) -> str:
    for ending, new in _STEP_3:
        if word.endswith(ending):
            start = len(word) - len(ending)
            fits = start >= (second if ending == "ative" else first)
            return word[:start] + new if fits else word
    return word


def _last_suffix(word: str, second: int) -> str:
    for ending in _STEP_4:
        if word.endswith(ending):
            base = word[: -len(ending)]
            if len(base) < second or (ending == "ion" and not base.endswith(("s", "t"))):
                return word
            return base
    return word


def _final(word: str, first: int, second: int) -> str:
    """Take off a last e or l."""
    start = len(word) - 1
    if word.endswith("e"):
        goes = start >= second or (start >= first and not _short_end(word[:-1]))
        return word[:-1] if goes else word
    return word[:-1] if word.endswith("ll") and start >= second else word


_LETTERS = (
    "A-Za-z\u0160\u017d\u0161\u017e\u0178\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u04ff\u0500-\u0527"
    "\ua640-\ua66e\ua67e-\ua697\u1d00-\u1d7f"
)
_SIGNS = re.compile(rf"([^0-9{_LETTERS}\s.'`,\-\u2018\u2019])", re.ASCII)  # Java's \s is ASCII white space
_DOTS = re.compile(r"(\.{2,})")
_COMMAS = tuple(re.compile(pattern) for pattern in ("([^0-9]),([^0-9])", "([0-9]),([^0-9])", "([^0-9]),([0-9])"))
_SINGLE_QUOTES = re.compile("[`\u2018\u2019]")
_DOUBLE_QUOTES = re.compile("[\u201c\u201d]|''")
_INNER_DASH = re.compile(rf"([0-9{_LETTERS}.])-([0-9{_LETTERS}])")
_APOSTROPHES = (
    (re.compile(rf"([^{_LETTERS}])'([^{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([^{_LETTERS}0-9])'([{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([{_LETTERS}])'([^{_LETTERS}])"), r"\1 ' \2"),
    (re.compile(rf"([{_LETTERS}])'([{_LETTERS}])"), r"\1 '\2"),
    (re.compile(r"([0-9])'(s)"), r"\1 '\2"),
)
_LETTER = re.compile(f"[{_LETTERS}]")
_LOWER = re.compile("[a-z]")
_DIGIT = re.compile("[0-9]")
_BLANKS = re.compile("[ \u2000-\u200a\u202f\u205f\u3000\u00a0]+")
_BETWEEN_WORDS = re.compile("[ \t\n\r\f]+")

ALWAYS, BEFORE_NUMBERS = 1, 2  # how a prefix keeps its full stop


def words(line: str, prefixes: Mapping[str, int]) -> list[str]:
    """Return the lower-cased words of a line.

    prefixes: abbreviation -> ALWAYS or BEFORE_NUMBERS, as METEOR's list of non-breaking prefixes says.
    """
    return [word for word in _BETWEEN_WORDS.split(normalise(line, prefixes).lower()) if word]


def normalise(line: str, prefixes: Mapping[str, int]) -> str:
    """Return a line with its punctuation set apart, case kept."""
    if not (line.isascii() and line.replace(" ", "a").isalpha()):
        # two or more dots are a word of their own and part the line
        parts = _DOTS.split(line)
        line = " ".join(
            part if index % 2 else _apart(_SIGNS.sub(r" \1 ", f" {part} "), prefixes)
            for index, part in enumerate(parts)
        )
    return _BLANKS.sub(" ", line).strip()


def _apart(line: str, prefixes: Mapping[str, int]) -> str:
    """Set commas, quotes, dashes, clitics and full stops apart."""
    for comma in _COMMAS:
        line = comma.sub(r"\1 , \2", line)
    line = _DOUBLE_QUOTES.sub(' " ', _SINGLE_QUOTES.sub("'", line))
    line = line.replace("\u2013", "-").replace("--", "-")
    line = _INNER_DASH.sub(r"\1 \2", line)
    for apostrophe, apart in _APOSTROPHES:
        line = apostrophe.sub(apart, line)
    return _full_stops(line, prefixes)


def _full_stops(line: str, prefixes: Mapping[str, int]) -> str:
    """Set a full stop apart from the word before it, unless the word is an abbreviation."""
    tokens = [token for token in _BETWEEN_WORDS.split(line) if token]
    return "".join(_with_stop(tokens, index, prefixes) + " " for index in range(len(tokens)))


def _with_stop(tokens: list[str], index: int, prefixes: Mapping[str, int]) -> str:
    token = tokens[index]
    if len(token) < 2 or not token.endswith("."):
        return token
    stem, following = token[:-1], tokens[index + 1] if index + 1 < len(tokens) else ""
    kind = prefixes.get(stem)
    if "." in stem and _LETTER.search(stem):
        return stem.replace(".", "")
    if kind == ALWAYS or _LOWER.match(following):
        return token
    if kind == BEFORE_NUMBERS and _DIGIT.match(following):
        return token
    return stem + " ."
