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
    """Return the English sentences with pronouns replaced by nouns: "chop it" -> "chop the onion".

    Only where one noun can be the antecedent, and only in clauses with an action. Raises ModelError
    without the parser.
    """
    mentions = Mentions()
    resolved = []
    for number, doc in enumerate(parse(sentences)):
        resolved.append(_resolve_sentence(doc, number, mentions))
    return resolved


def _resolve_sentence(doc: "Doc", sentence: int, mentions: Mentions) -> str:
    """Return one sentence with its pronouns replaced, and add its nouns to the mentions."""
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
