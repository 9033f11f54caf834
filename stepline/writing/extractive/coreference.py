"""Sentences with the nouns that their pronouns stand for, where that is safe; elsewhere the pronoun
stays."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stepline.writing.extractive.clauses import find_clauses
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.phrases import imperative_phrase
from stepline.writing.extractive.pronouns import Mentions, mentions_before, mentions_in, mentions_of

if TYPE_CHECKING:
    from spacy.tokens import Doc


def resolve_pronouns(sentences: Sequence[str]) -> list[str]:
    """Return the sentences of one narration, in order, "chop it" as "chop the onion" where only an
    onion can be meant.

    English; what stands for a thing in clauses that tell no action stays as it is. Raises
    ModelError without the parser.
    """
    mentions = Mentions()
    return [_resolved(doc, number, mentions) for number, doc in enumerate(parse(sentences))]


def _resolved(doc: "Doc", sentence: int, mentions: Mentions) -> str:
    """Return one sentence with its pronouns named, and remember what it names."""
    names: dict[int, str] = {}  # of pronouns, by token
    clauses = find_clauses(doc)
    for clause in clauses:
        if before := mentions_before(clause.verb):
            mentions.add(sentence, before)
        worded = imperative_phrase(clause, lambda token: mentions.resolve(token.lower_, sentence))
        names |= worded.resolved
        mentions.add(sentence, mentions_of(clause.verb, worded.resolved))
    if not clauses and (named := mentions_in(doc)):
        mentions.add(sentence, named)
    return "".join(
        (f"the {names[token.i]}" if token.i in names else token.text) + token.whitespace_
        for token in doc
    )
