"""Names of nouns, and which words are pronouns or cannot be their antecedents."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepline.writing.extractive.english import word_set

if TYPE_CHECKING:
    from spacy.tokens import Token

PRONOUNS = word_set("it that this them those these")
INDEFINITE_PRONOUNS = word_set("everything all both")  # names of their own, without an article
# Measures and parts: the thing itself comes after "of" ("a bit of glue", "two cups of flour").
MEASURE_NOUNS = word_set(
    """
    bit lot little piece cup tablespoon teaspoon spoon pinch handful pair couple kind sort type scoop splash
    dash bunch drop amount touch dollop drizzle sprinkle layer coat gram ounce pound inch foot set
    """
)
# Times, measures and talk: never what "it" means.
NON_ANTECEDENT_NOUNS = word_set(
    """
    minute second hour day time way thing step part video inch foot degree bit lot kind year week today boil
    simmer place hand finger guy everybody everyone someone people
    """
)
# Words of a noun phrase that name it. Articles, numbers and possessives do not.
_NAMING_RELATIONS = ("compound", "amod", "nmod")
_EMPTY_WORDS = word_set(
    "other same own little nice good first second whole entire next last few many more"
)


def _children(head: "Token", relations: Sequence[str]) -> "list[Token]":
    return [child for child in head.children if child.dep_ in relations]


def measured_things(token: "Token") -> "list[Token]":
    """Return the nouns after a measure: the glue of "a bit of glue". Empty for another noun."""
    things: list[Token] = []
    if token.lemma_.lower() in MEASURE_NOUNS:
        for child in _children(token, ("prep",)):
            if child.lower_ == "of":
                things += _children(child, ("pobj",))
    return things


def noun_name(token: "Token") -> str:
    """Return the noun with its modifiers: "our fresh lemon juice from before" -> "fresh lemon
    juice"."""
    words = []
    for child in _children(token, _NAMING_RELATIONS):
        if child.i >= token.i or child.lower_ in _EMPTY_WORDS:
            continue
        words.append(child)
        words += [nested for nested in _children(child, ("compound",)) if nested.i < child.i]
    words.sort(key=lambda word: word.i)
    return " ".join(word.text for word in [*words, token])
