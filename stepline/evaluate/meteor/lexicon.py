"""METEOR's English word lists, read out of its jar: synonyms, irregular forms, function words, abbreviations."""

import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stepline.errors import ModelError
from stepline.evaluate.meteor.normalise import ALWAYS, BEFORE_NUMBERS
from stepline.evaluate.official import METEOR_JAR, fingerprint, official_file

_NO_SETS: frozenset[str] = frozenset()
# regular endings and what replaces them, in the order in which they are tried (nouns, verbs, adjectives)
_ENDINGS = (
    ("s", ""),
    ("ses", "s"),
    ("xes", "x"),
    ("zes", "z"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("men", "man"),
    ("ies", "y"),
    ("s", ""),
    ("ies", "y"),
    ("es", "e"),
    ("es", ""),
    ("ed", "e"),
    ("ed", ""),
    ("ing", "e"),
    ("ing", ""),
    ("er", ""),
    ("est", ""),
    ("er", "e"),
    ("est", "e"),
)


@dataclass(frozen=True)
class Lexicon:
    """synsets: word -> ids of its synonym sets, in one line. bases: irregular form -> its base words."""

    synsets: dict[str, str]
    bases: dict[str, list[str]]
    function_words: frozenset[str]
    prefixes: dict[str, int]

    def synonym_sets(self, word: str) -> frozenset[str]:
        """Return the synonym sets of a word and of its base form; two words with one in common are synonyms."""
        forms = self.bases.get(word)
        if forms is None:
            forms = [self._base(word)]
        return self._sets(word).union(*map(self._sets, forms))

    def _sets(self, word: str) -> frozenset[str]:
        line = self.synsets.get(word)
        return frozenset(line.split()) if line is not None else _NO_SETS

    def _base(self, word: str) -> str:
        """Return the base form by the regular endings, as WordNet's morphology does; "" when none is known."""
        if word.endswith("ss") or len(word) <= 2:
            return word
        added = "ful" if word.endswith("ful") else ""  # appended to what is found, as the program does
        for ending, new in _ENDINGS:
            if word.endswith(ending):
                base = word[: len(word) - len(ending)] + new
                if base in self.synsets:
                    return base + added
        return ""


@cache
def load_lexicon(folder: Path | None = None) -> Lexicon:
    """Return the word lists of the installed jar, or of the one in `folder`.

    Raises ModelError when the jar is missing, damaged or not METEOR 1.5.
    """
    jar = official_file(METEOR_JAR, folder)
    fingerprint(jar)
    try:
        with zipfile.ZipFile(jar) as archive:
            synonyms, exceptions, functions, prefixes = (
                archive.read(name).decode("utf-8").splitlines()
                for name in (
                    "synonym/english.synsets",
                    "synonym/english.exceptions",
                    "function/english.words",
                    "nonbreaking/english.prefixes",
                )
            )
    except (KeyError, OSError, zipfile.BadZipFile, UnicodeDecodeError) as error:
        raise ModelError(f"{jar}: not METEOR 1.5 ({error}); pip install 'stepline[evaluate]'") from error
    return Lexicon(
        dict(zip(synonyms[::2], synonyms[1::2], strict=True)),
        _irregular(exceptions),
        frozenset(functions),
        _abbreviations(prefixes),
    )


def _irregular(lines: list[str]) -> dict[str, list[str]]:
    """Read pairs of lines: a base word, the forms it takes."""
    bases: dict[str, list[str]] = {}
    for base, forms in zip(lines[::2], lines[1::2], strict=True):
        for form in forms.split():
            bases.setdefault(form, []).append(base)
    return bases


def _abbreviations(lines: list[str]) -> dict[str, int]:
    found = {}
    for line in lines:
        parts = line.split()
        if parts and not parts[0].startswith("#"):
            found[parts[0]] = BEFORE_NUMBERS if parts[1:2] == ["#NUMERIC_ONLY#"] else ALWAYS
    return found
