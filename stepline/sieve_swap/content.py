"""Content words: the lemmas of nouns, verbs, adverbs and adjectives (section 4.2), with numerals and units on demand.

The paper names the word classes and lemmatisation, not the tool; here it is spaCy's en_core_web_sm without its
parser. Names count as nouns: in titles the tagger takes most nouns for names.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from stepline.writing.word_sets import word_set

if TYPE_CHECKING:
    from spacy.tokens import Token

CLASSES = frozenset({"NOUN", "PROPN", "VERB", "ADV", "ADJ"})
NUMERAL = "NUM"
UNITS = word_set(
    """
    g gram kg kilogram mg milligram oz ounce lb pound ml milliliter millilitre l liter litre dl cl cup tbsp tablespoon
    tsp teaspoon pint quart gallon inch cm centimeter mm millimeter degree celsius fahrenheit sec second min minute
    hr hour day
    """
)
IDLE_PARTS = ("parser",)  # of the English model: no sentence structure is asked here
BATCH = 256  # texts a tagger call
LONGEST = 100_000  # characters of a text that are read; a transcript of ten minutes has about 9,000


def content_words(texts: Sequence[str], *, numerals: bool = False) -> Iterator[list[str]]:
    """Yield the content words of each text as lower-case lemmas, in order, repeats kept.

    numerals: also numerals and units of measure, as appendix A.1 counts them. Texts are read in lower case, since
    titles in capitals would be taken for names and keep their endings. Raises ModelError when spaCy's model is missing.
    """
    from stepline.writing.english import parser

    language = parser()
    lowered = (text[:LONGEST].lower() for text in texts)
    idle = [part for part in IDLE_PARTS if part in language.pipe_names]
    for document in language.pipe(lowered, batch_size=BATCH, disable=idle):
        yield [_lemma(token) for token in document if _counts(token, numerals)]


def _counts(token: "Token", numerals: bool) -> bool:
    if numerals and (token.pos_ == NUMERAL or token.like_num or token.lemma_ in UNITS):
        return True
    return token.pos_ in CLASSES and token.text[0].isalpha() and len(token.text) > 1


def _lemma(token: "Token") -> str:
    return str(token.lemma_)


@cache
def generic_words() -> frozenset[str]:
    """Return the lemmas that a title may share with any how-to: generic_words.txt beside this file."""
    text = files("stepline.sieve_swap").joinpath("generic_words.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


def title_words(titles: Sequence[str]) -> Iterator[list[str]]:
    """Yield the content words of each title that are not generic, each once, in order."""
    generic = generic_words()
    for words in content_words(titles):
        yield list(dict.fromkeys(word for word in words if word not in generic))
