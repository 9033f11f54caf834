"""The base forms of spoken verbs: of "adding" it is "add", of "cut" (past) "cut".

The parser's lemma counts where it takes the word for a verb. Else the ending decides.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from stepline.text.narration.words import bare_word
from stepline.writing.extractive.english import parser, verbs

if TYPE_CHECKING:
    from spacy.tokens import Token

PAST_ENDINGS: Final = (("ing", "e"), ("ing", ""), ("ied", "y"), ("ed", "e"), ("ed", ""))
PLAIN_PAST_ENDINGS: Final = (("ing", ""), ("ed", ""))
PRESENT_ENDINGS: Final = (("ies", "y"), ("es", ""), ("s", ""))


@cache
def _verb_exceptions() -> dict[str, str]:
    """Return irregular form -> base form, of the parser's lemmatizer."""
    lookups = parser().get_pipe("lemmatizer").lookups
    table = lookups.get_table("lemma_exc")["verb"]
    exceptions = {}
    for form, bases in table.items():
        if bases:
            exceptions[form] = bases[0]
    return exceptions


def base_form(word: str, token: "Token | None") -> str | None:
    """Return the base form of a spoken verb, None for another word: "adding" is "add"."""
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
    for stem in _stems(bare):
        if stem in known_verbs:
            return stem
    return None


def _stems(word: str) -> list[str]:
    """Return what a word may be without its ending, the most likely first."""
    stems = _without_endings(word, PAST_ENDINGS)
    # "chopping" has a doubled letter last
    for stem in _without_endings(word, PLAIN_PAST_ENDINGS):
        last_two = stem[-2:]
        if len(set(last_two)) == 1:
            stems.append(stem[:-1])
    stems += _without_endings(word, PRESENT_ENDINGS)
    return stems


def _without_endings(word: str, endings: Sequence[tuple[str, str]]) -> list[str]:
    """Return the word with each ending that it has replaced. endings: ending, what replaces it."""
    stems = []
    for ending, replacement in endings:
        if word.endswith(ending):
            stem = word.removesuffix(ending)
            stems.append(stem + replacement)
    return stems
