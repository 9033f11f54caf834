"""Actions that the grammar finds in a spoken sentence, chosen and pruned by the tagger.

A clause is an action of a step where the tagger lets one begin with its verb. What the clause says
of it (what, with what, how much, until when, where) stays where the tagger keeps its words.
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
    MIN_UNTIL_KEEP,
    NOUN_TAGS,
    UNTIL_WORDS,
    is_rest,
    parts_of,
)
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.off_topic import off_topic_reason
from stepline.writing.extractive.phrases import Phrase, imperative_phrase
from stepline.writing.extractive.segments import Segment, split_into_segments

if TYPE_CHECKING:
    from spacy.tokens import Token

    from stepline.text.narration import SentenceReading

MIN_ACTION: Final = 0.3  # P that an action begins with the verb that the grammar found
MAX_JOINED_WORDS: Final = 22  # of a step that two actions make; a recipe's line is hardly longer
# P(a joined verb is part of the step) from which it is an action too: "keep it warm and WAIT".
MIN_KEPT_VERB: Final = 0.5
# Mean chance of the things that a clause acts on, from which it is an action whatever its verb.
MIN_KEPT_OBJECTS: Final = 0.6
# Words between two actions that may still be one step.
MAX_WORDS_BETWEEN: Final = 6

# Mean chance of the words of a phrase behind an action, from which it belongs to the step.
MIN_KEPT_PHRASE: Final = 0.6
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
# the place of a pronoun among the sentence's spoken words -> its name, None where none is sure
PlaceResolver = Callable[[int], str | None]


@dataclass(frozen=True)
class GrammarAction:
    """One action as a step. text: an order. verb: the place of its verb among the spoken words,
    places: of all its words. is_further: it goes on with the step before. is_negated: not to do."""

    text: str
    verb: int
    places: tuple[int, ...]
    is_further: bool = False
    is_negated: bool = False


def grammar_actions(
    text: str, reading: "SentenceReading", resolve: PlaceResolver
) -> list[GrammarAction]:
    """Return the actions of one sentence that the tagger lets be, in order, further ones joined."""
    # for each word between spaces its place among the spoken words, or that of the one before
    place_of = []
    count = -1
    for word in text.split():
        count += bool(spoken_words(word))
        place_of.append(max(count, 0))
    pieces = list(split_into_segments(text))
    docs = parse([piece.text for piece in pieces])
    actions: list[GrammarAction] = []
    for piece, doc in zip(pieces, docs, strict=True):
        clauses = find_clauses(doc, ordered=piece.ordered, sequenced=True)
        for clause in clauses:
            if is_rest(clause):
                continue
            has_begun = bool(actions)
            action = _action(clause, piece, place_of, reading, resolve, has_begun=has_begun)
            joined = None
            if actions and action is not None:
                joined = _joined(actions[-1], action)
            if joined is not None:
                actions[-1] = joined
            elif action is not None:
                actions.append(action)
    return _with_phrases_behind(actions, text, reading)


def _with_phrases_behind(
    actions: Sequence[GrammarAction], text: str, reading: "SentenceReading"
) -> list[GrammarAction]:
    """Return the actions with the phrases behind them that the tagger keeps.

    These are phrases that the parser hung on something else: "cut off the ends, FROM THE BOTTOM".
    """
    words = spoken_words(text)
    keep = keep_at(reading.edits)
    longer = []
    for action, following in zip_longest(actions, actions[1:]):
        # The words between this action and the next.
        begin = action.places[-1] + 1
        limit = len(words) if following is None else following.places[0]
        end = begin
        # Whole phrases, as long as the tagger keeps them and a preposition opens them.
        while end < limit:
            phrase_end = _end_of_phrase(words, end, limit)
            phrase_places = range(end, phrase_end)
            is_kept = sum(map(keep, phrase_places)) / len(phrase_places) >= MIN_KEPT_PHRASE
            opens = bare_word(words[end]) in PHRASE_OPENERS
            if not is_kept or not opens:
                break
            end = phrase_end
        until = _until_clause(words, range(end, limit), keep)
        # The longer step must still fit a line of a recipe.
        behind = [*range(begin, end), *until]
        length = len(action.text.split()) + len(behind)
        if behind and length <= MAX_JOINED_WORDS:
            behind_words = [words[place] for place in behind]
            phrase = " ".join(behind_words).strip(" ,.!?;:-")
            text = f"{action.text} {phrase}"
            action = replace(action, text=text, places=(*action.places, *behind))
        longer.append(action)
    return longer


def _until_clause(
    words: Sequence[str], places: range, keep: Callable[[int], float]
) -> Sequence[int]:
    """Return the places of the clause that says until when, where the tagger does not refuse it.

    "Fry it for ten minutes or so TILL IT'S GOLDEN": the parser hung it on "so".
    """
    for begin in places[: MAX_WORDS_BEFORE_UNTIL + 1]:
        if bare_word(words[begin]) not in UNTIL_WORDS:
            continue
        clause = range(begin, _end_of_phrase(words, begin, places.stop))
        is_kept = sum(map(keep, clause)) / len(clause) >= MIN_UNTIL_KEEP
        if is_kept and len(clause) >= MIN_UNTIL_WORDS:
            return clause
        break
    return ()


def _end_of_phrase(words: Sequence[str], begin: int, limit: int) -> int:
    """Return where the phrase ends that begins at a place: behind its mark."""
    for place in range(begin, limit):
        if mark_after(words[place]) != "none":
            return place + 1
    return limit


def grammar_findings(texts: Sequence[str]) -> Findings:
    """Return what grammar alone finds in each sentence, (S, 2).

    The columns: an order, and an action said with "you", "we" or "I". Neither is talk by the rules
    of `off_topic`.
    """
    # The pieces of all sentences are parsed in one batch.
    pieces: list[Segment] = []
    rows: list[int] = []
    for row, text in enumerate(texts):
        own_pieces = list(split_into_segments(text))
        pieces += own_pieces
        rows += [row] * len(own_pieces)
    docs = parse([piece.text for piece in pieces])
    findings = np.zeros((len(texts), 2))
    for row, piece, doc in zip(rows, pieces, docs, strict=True):
        for clause in find_clauses(doc, ordered=piece.ordered, sequenced=piece.sequenced):
            if off_topic_reason(clause, question=piece.question) is not None:
                continue
            if clause.voice in ("order", "title", "passive"):
                findings[row, 0] = 1.0
            else:
                findings[row, 1] = 1.0
    return findings


def _action(
    clause: Clause,
    piece: Segment,
    place_of: Sequence[int],
    reading: "SentenceReading",
    resolve: PlaceResolver,
    *,
    has_begun: bool,
) -> GrammarAction | None:
    """Return the action of a clause.

    None where the tagger lets none begin with its verb, or where a "not" would be lost.
    """
    edits = reading.edits
    keep_word = keep_at(edits)

    def place(token: "Token") -> int:
        index = piece.word_index(token.idx)
        return place_of[index]

    def keep(token: "Token") -> float:
        return keep_word(place(token))

    def name(token: "Token") -> str | None:
        return resolve(place(token))

    # whether the tagger lets an action begin here
    verb = place(clause.verb)
    first_chance = float(edits[verb, WORD_EDITS.index("verb")])
    next_chance = float(edits[verb, WORD_EDITS.index("next")])
    is_joined = clause.chain is not None or clause.verb.dep_ == "conj"
    goes_on = has_begun and is_joined and keep(clause.verb) >= MIN_KEPT_VERB
    is_likely = first_chance + next_chance >= MIN_ACTION
    # An action counts by its verb, as the rest of the one before, or by its objects.
    if not is_likely and not goes_on and _mean_keep(clause, keep) < MIN_KEPT_OBJECTS:
        return None
    if clause.negated and not reading.is_warning:
        keeps_not = _keeps_not(piece, place_of, verb, keep_word)
        if not keeps_not:
            return None

    # the action
    phrase: Phrase = imperative_phrase(clause, name, keep)
    places = sorted({place(token) for token in phrase.tokens})
    is_further = next_chance > first_chance or goes_on
    if _names_an_object(clause):
        is_further = False
    return GrammarAction(phrase.text, verb, tuple(places), is_further, clause.negated)


def _names_an_object(clause: Clause) -> bool:
    """Return whether an action has an object of its own, which makes it a step of its own.

    Annotators of YouCook2's captions put some actions into one step with the action before. It is
    82 % of those that act on a pronoun, 79 % of those without an object and 9 % of those with a new
    object.
    """
    objects = [child for child in clause.verb.children if child.dep_ == "dobj"]
    return any(child.pos_ in NOUN_TAGS for child in objects)


def _mean_keep(clause: Clause, keep: "Callable[[Token], float]") -> float:
    """Return the mean chance that the things stay which a clause acts on, 0 without any."""
    chances = []
    for part in parts_of(clause):
        chances += [keep(token) for token in part if token.pos_ in NOUN_TAGS]
    return sum(chances) / len(chances) if chances else 0.0


def keep_at(edits: "object") -> Callable[[int], float]:
    """Return what gives P(kept) of the word at a place."""
    drop = WORD_EDITS.index("drop")

    def keep(place: int) -> float:
        return 1 - float(edits[place, drop])  # type: ignore[index]

    return keep


def _keeps_not(
    piece: Segment, place_of: Sequence[int], verb: int, keep: Callable[[int], float]
) -> bool:
    """Return whether the tagger keeps the "not" in front of a verb."""
    for word in piece.words:
        place = place_of[word.index]
        is_not = word.bare.endswith("n't") or word.bare in NEGATION_WORDS
        if is_not and place <= verb and keep(place) >= MIN_ACTION:
            return True
    return False


def _joined(before: GrammarAction, action: GrammarAction) -> GrammarAction | None:
    """Return two actions as one step, None where the later does not continue the step."""
    if not action.is_further or before.is_negated or action.is_negated:
        return None
    between = action.places[0] - before.places[-1] - 1
    text = f"{before.text} and {action.text}"
    if between > MAX_WORDS_BETWEEN or len(text.split()) > MAX_JOINED_WORDS:
        return None
    places = sorted({*before.places, *action.places})
    return replace(before, text=text, places=tuple(places))
