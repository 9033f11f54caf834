"""The base forms of spoken verbs: of "adding" it is "add", of "cut" (past) "cut".

The parser's lemma counts where it takes the word for a verb. Else the ending decides.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from stepline.narration.words import bare_word
from stepline.writing.extractive.english import parser, verbs

if TYPE_CHECKING:
    from spacy.tokens import Token

PAST_ENDINGS: Final = (("ing", "e"), ("ing", ""), ("ied", "y"), ("ed", "e"), ("ed", ""))
PRESENT_ENDINGS: Final = (("ies", "y"), ("es", ""), ("s", ""))


@cache
def _verb_exceptions() -> dict[str, str]:
    """Return irregular form -> base form, of the parser's lemmatizer."""
    lookups = parser().get_pipe("lemmatizer").lookups
    table = lookups.get_table("lemma_exc")["verb"]
    return {form: bases[0] for form, bases in table.items() if bases}


def base_form(word: str, token: "Token | None") -> str | None:
    """Return the base form of a spoken verb, None for another word: "adding" is "add"."""
    bare = bare_word(word)
    known_verbs = verbs()
    exceptions = _verb_exceptions()
    if bare in exceptions and bare not in known_verbs:
        return exceptions[bare]
    if token is not None and token.pos_ == "VERB":
        lemma: str = token.lemma_.lower()
        if lemma in known_verbs:
            return lemma
    if bare in known_verbs:
        return bare

    # by the ending, without a doubled letter last
    for stem in _stems(bare, PAST_ENDINGS):
        if stem in known_verbs:
            return stem
    for stem in _stems(bare, (("ing", ""), ("ed", ""))):
        is_doubled = stem[-1:] == stem[-2:-1]
        if is_doubled and stem[:-1] in known_verbs:
            return stem[:-1]
    for stem in _stems(bare, PRESENT_ENDINGS):
        if stem in known_verbs:
            return stem
    return None


def _stems(word: str, endings: Sequence[tuple[str, str]]) -> list[str]:
    """Return the word with each ending that it has replaced. endings: ending, what replaces it."""
    stems = []
    for ending, replacement in endings:
        if word.endswith(ending):
            stems.append(word.removesuffix(ending) + replacement)
    return stems
