"""Actions that the grammar finds in a spoken sentence, chosen and pruned by the tagger.

A clause is an action of a step where the tagger lets one begin with its verb. Its
complements (what, with what, how much, until when, where) stay where the tagger keeps them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from stepline.text.narration.words import WORD_EDITS, bare_word, mark_after, spoken_words, word_set
from stepline.writing.extractive.clauses import Clause, find_clauses
from stepline.writing.extractive.complements import (
    MIN_UNTIL_KEEP_PROBABILITY,
    NOUN_TAGS,
    UNTIL_WORDS,
    is_resting_clause,
    verb_complements,
)
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.off_topic import off_topic_reason
from stepline.writing.extractive.phrases import Phrase, imperative_phrase
from stepline.writing.extractive.segments import Segment, split_into_segments

if TYPE_CHECKING:
    from spacy.tokens import Token

    from stepline.text.narration import SentenceReading

MIN_ACTION_PROBABILITY: Final = 0.3  # P that an action begins with the verb that the grammar found
MAX_JOINED_WORDS: Final = 22  # of a step that two actions make; a recipe's line is hardly longer
# P(a joined verb is part of the step) from which it is an action too: "keep it warm and WAIT".
MIN_JOINED_VERB_KEEP_PROBABILITY: Final = 0.5
# Mean P(kept) of a clause's objects, from which it is an action whatever its verb.
MIN_OBJECT_KEEP_PROBABILITY: Final = 0.6
# Words between two actions that may still be one step.
MAX_WORDS_BETWEEN: Final = 6

# Mean P(kept) of the words of a phrase after an action, from which it belongs to the step.
MIN_PHRASE_KEEP_PROBABILITY: Final = 0.6
MAX_WORDS_BEFORE_UNTIL: Final = 4  # of what the step leaves out, in front of "until"
MIN_UNTIL_WORDS: Final = 3  # "until it boils"
# Words with which a phrase says where, how or until when.
PHRASE_OPENERS: Final = word_set(
    """
    at about above across after against along around before behind below beneath beside between by
    down during for from in inside into near off on onto out outside over past per right through to
    toward towards under underneath until till up upon with within without where parallel
    """
)
NEGATION_WORDS: Final = ("not", "never", "dont")

Findings = npt.NDArray[np.float64]
# index of a pronoun among the sentence's spoken words -> its name, None where unsure
WordResolver = Callable[[int], str | None]


@dataclass(frozen=True)
class GrammarAction:
    """One action as a step.

    Args:
        text: an imperative.
        verb: index of its verb among the spoken words.
        word_indices: of all its words.
        is_further: it continues the step before.
        is_negated: it says what not to do.
    """

    text: str
    verb: int
    word_indices: tuple[int, ...]
    is_further: bool = False
    is_negated: bool = False


def grammar_actions(
    text: str, reading: "SentenceReading", resolve: WordResolver
) -> list[GrammarAction]:
    """Return the actions of one sentence that the tagger accepts, in order, continuations joined.

    Args:
        text: of the sentence.
        reading: the tagger's probabilities.
        resolve: word index of a pronoun -> name, None where unsure.
    """
    # for each word between spaces its place among the spoken words, or that of the one before
    word_index_of = []
    word_index = -1
    for word in text.split():
        word_index += bool(spoken_words(word))
        word_index_of.append(max(word_index, 0))
    segments = list(split_into_segments(text))
    docs = parse([segment.text for segment in segments])
    actions: list[GrammarAction] = []
    for segment, doc in zip(segments, docs, strict=True):
        clauses = find_clauses(doc, has_added_you=segment.has_added_you, after_then=True)
        for clause in clauses:
            if is_resting_clause(clause):
                continue
            has_earlier_action = bool(actions)
            action = _clause_action(
                clause,
                segment,
                word_index_of,
                reading,
                resolve,
                has_earlier_action=has_earlier_action,
            )
            joined = None
            if actions and action is not None:
                joined = _joined_actions(actions[-1], action)
            if joined is not None:
                actions[-1] = joined
            elif action is not None:
                actions.append(action)
    return _with_following_phrases(actions, text, reading)


def _with_following_phrases(
    actions: Sequence[GrammarAction], text: str, reading: "SentenceReading"
) -> list[GrammarAction]:
    """Return the actions with the phrases after them that the tagger keeps.

    The parser attached these to something else: "cut off the ends, FROM THE BOTTOM".
    """
    words = spoken_words(text)
    keep_probability = keep_probability_at(reading.edits)
    extended_actions = []
    for action, following in zip_longest(actions, actions[1:]):
        # The words between this action and the next.
        start = action.word_indices[-1] + 1
        limit = len(words) if following is None else following.word_indices[0]
        end = start
        # Whole phrases, as long as the tagger keeps them and a preposition opens them.
        while end < limit:
            phrase_end = _end_of_phrase(words, end, limit)
            phrase_indices = range(end, phrase_end)
            is_kept = (
                sum(map(keep_probability, phrase_indices)) / len(phrase_indices)
                >= MIN_PHRASE_KEEP_PROBABILITY
            )
            is_opener = bare_word(words[end]) in PHRASE_OPENERS
            if not is_kept or not is_opener:
                break
            end = phrase_end
        until = _until_clause(words, range(end, limit), keep_probability)
        # The longer step must still fit a line of a recipe.
        following_indices = [*range(start, end), *until]
        length = len(action.text.split()) + len(following_indices)
        if following_indices and length <= MAX_JOINED_WORDS:
            following_words = [words[index] for index in following_indices]
            phrase = " ".join(following_words).strip(" ,.!?;:-")
            text = f"{action.text} {phrase}"
            action = replace(
                action, text=text, word_indices=(*action.word_indices, *following_indices)
            )
        extended_actions.append(action)
    return extended_actions


def _until_clause(
    words: Sequence[str], word_indices: range, keep_probability: Callable[[int], float]
) -> Sequence[int]:
    """Return the word indices of an "until" clause that the tagger keeps, empty without one.

    "Fry it for ten minutes or so TILL IT'S GOLDEN": the parser attached it to "so".
    """
    for start in word_indices[: MAX_WORDS_BEFORE_UNTIL + 1]:
        if bare_word(words[start]) not in UNTIL_WORDS:
            continue
        clause = range(start, _end_of_phrase(words, start, word_indices.stop))
        is_kept = sum(map(keep_probability, clause)) / len(clause) >= MIN_UNTIL_KEEP_PROBABILITY
        if is_kept and len(clause) >= MIN_UNTIL_WORDS:
            return clause
        break
    return ()


def _end_of_phrase(words: Sequence[str], start: int, limit: int) -> int:
    """Return the end of the phrase that begins at a word: after its punctuation."""
    for index in range(start, limit):
        if mark_after(words[index]) != "none":
            return index + 1
    return limit


def grammar_findings(texts: Sequence[str]) -> Findings:
    """Return what grammar finds in each sentence, (S, 2), each 0 or 1.

    The columns: an order, and an action with "you", "we" or "I". Neither is off-topic talk.
    """
    # The pieces of all sentences are parsed in one batch.
    segments: list[Segment] = []
    rows: list[int] = []
    for row, text in enumerate(texts):
        sentence_pieces = list(split_into_segments(text))
        segments += sentence_pieces
        rows += [row] * len(sentence_pieces)
    docs = parse([segment.text for segment in segments])
    findings = np.zeros((len(texts), 2))
    for row, segment, doc in zip(rows, segments, docs, strict=True):
        for clause in find_clauses(
            doc, has_added_you=segment.has_added_you, after_then=segment.after_then
        ):
            if off_topic_reason(clause, is_question=segment.is_question) is not None:
                continue
            if clause.voice in ("order", "title", "passive"):
                findings[row, 0] = 1.0
            else:
                findings[row, 1] = 1.0
    return findings


def _clause_action(
    clause: Clause,
    segment: Segment,
    word_index_of: Sequence[int],
    reading: "SentenceReading",
    resolve: WordResolver,
    *,
    has_earlier_action: bool,
) -> GrammarAction | None:
    """Return the action of a clause.

    None where the tagger accepts none at its verb, or where a "not" would be lost.
    """
    edits = reading.edits
    keep_of_word = keep_probability_at(edits)

    def spoken_index(token: "Token") -> int:
        index = segment.word_index(token.idx)
        return word_index_of[index]

    def keep_probability(token: "Token") -> float:
        return keep_of_word(spoken_index(token))

    def name(token: "Token") -> str | None:
        return resolve(spoken_index(token))

    # whether the tagger lets an action begin here
    verb = spoken_index(clause.verb)
    first_probability = float(edits[verb, WORD_EDITS.index("verb")])
    next_probability = float(edits[verb, WORD_EDITS.index("next")])
    is_joined = clause.joined_verb is not None or clause.verb.dep_ == "conj"
    continues_action = (
        has_earlier_action
        and is_joined
        and keep_probability(clause.verb) >= MIN_JOINED_VERB_KEEP_PROBABILITY
    )
    is_likely = first_probability + next_probability >= MIN_ACTION_PROBABILITY
    # An action counts by its verb, as the rest of the one before, or by its objects.
    if (
        not is_likely
        and not continues_action
        and _mean_keep(clause, keep_probability) < MIN_OBJECT_KEEP_PROBABILITY
    ):
        return None
    if clause.is_negated and not reading.is_warning:
        keeps_negation = _keeps_negation(segment, word_index_of, verb, keep_of_word)
        if not keeps_negation:
            return None

    # the action
    phrase: Phrase = imperative_phrase(clause, name, keep_probability)
    word_indices = sorted({spoken_index(token) for token in phrase.tokens})
    is_further = next_probability > first_probability or continues_action
    if _names_an_object(clause):
        is_further = False
    return GrammarAction(phrase.text, verb, tuple(word_indices), is_further, clause.is_negated)


def _names_an_object(clause: Clause) -> bool:
    """Return whether an action has a noun as its object, so that it is a separate step.

    In YouCook2's captions annotators join 82 % of actions on a pronoun to the action before, 79 %
    of those without an object, and 9 % of those with a new object.
    """
    objects = [child for child in clause.verb.children if child.dep_ == "dobj"]
    return any(child.pos_ in NOUN_TAGS for child in objects)


def _mean_keep(clause: Clause, keep_probability: "Callable[[Token], float]") -> float:
    """Return the mean P(kept) of the nouns in a clause, 0 without any."""
    probabilities = []
    for part in verb_complements(clause):
        probabilities += [keep_probability(token) for token in part if token.pos_ in NOUN_TAGS]
    return sum(probabilities) / len(probabilities) if probabilities else 0.0


def keep_probability_at(edits: "object") -> Callable[[int], float]:
    """Return a function: word index -> P(kept)."""
    drop = WORD_EDITS.index("drop")

    def keep_probability(index: int) -> float:
        return 1 - float(edits[index, drop])  # type: ignore[index]

    return keep_probability


def _keeps_negation(
    segment: Segment,
    word_index_of: Sequence[int],
    verb: int,
    keep_probability: Callable[[int], float],
) -> bool:
    """Return whether the tagger keeps the "not" before a verb."""
    for word in segment.words:
        index = word_index_of[word.index]
        is_negation = word.bare.endswith("n't") or word.bare in NEGATION_WORDS
        if is_negation and index <= verb and keep_probability(index) >= MIN_ACTION_PROBABILITY:
            return True
    return False


def _joined_actions(before: GrammarAction, action: GrammarAction) -> GrammarAction | None:
    """Return two actions as one step, None where the second does not continue the first."""
    if not action.is_further or before.is_negated or action.is_negated:
        return None
    between = action.word_indices[0] - before.word_indices[-1] - 1
    text = f"{before.text} and {action.text}"
    if between > MAX_WORDS_BETWEEN or len(text.split()) > MAX_JOINED_WORDS:
        return None
    word_indices = sorted({*before.word_indices, *action.word_indices})
    return replace(before, text=text, word_indices=tuple(word_indices))
