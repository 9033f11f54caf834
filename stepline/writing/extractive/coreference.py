"""Sentences with the nouns that their pronouns stand for, where that is safe. Elsewhere the pronoun
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

    For English. What stands for a thing in clauses without an action stays as it is. Raises
    ModelError without the parser.
    """
    mentions = Mentions()
    resolved = []
    for number, doc in enumerate(parse(sentences)):
        resolved.append(_resolve_sentence(doc, number, mentions))
    return resolved


def _resolve_sentence(doc: "Doc", sentence: int, mentions: Mentions) -> str:
    """Return one sentence with its pronouns named, and remember what it names."""
    names: dict[int, str] = {}  # of pronouns, by token
    clauses = find_clauses(doc)
    for clause in clauses:
        earlier_mentions = mentions_before(clause.verb)
        if earlier_mentions:
            mentions.add(sentence, earlier_mentions)
        phrase = imperative_phrase(clause, lambda token: mentions.resolve(token.lower_, sentence))
        names |= phrase.resolved
        mentions.add(sentence, mentions_of(clause.verb, phrase.resolved))
    if not clauses:
        things = mentions_in(doc)
        if things:
            mentions.add(sentence, things)

    # the sentence with the names
    texts = []
    for token in doc:
        text = token.text
        if token.i in names:
            text = f"the {names[token.i]}"
        texts.append(text)
        texts.append(token.whitespace_)
    return "".join(texts)
