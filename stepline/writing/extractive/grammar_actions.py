"""Actions that the grammar finds in a spoken sentence, chosen and pruned by the tagger.

A clause is an action of a step where the tagger lets one begin with its verb. Its
complements (what, with what, how much, until when, where) stay where the tagger keeps them.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.text.narration.words import WORD_EDITS, spoken_words
from stepline.writing.extractive.clauses import (
    KIND_OF_SUBJECT,
    RELATIVE_WORDS,
    Clause,
    find_clauses,
    has_child,
)
from stepline.writing.extractive.english import base_form, parse
from stepline.writing.extractive.off_topic import SPEECH_VERBS, STATIVE_VERBS, is_talk_or_state
from stepline.writing.extractive.phrases import NOUN_TAGS, imperative_phrase, verb_complements
from stepline.writing.extractive.segments import (
    CONDITION_OPENERS,
    SCREEN_VERBS,
    SUBORDINATE_WORDS,
    Segment,
    cut_at_verb,
    split_into_segments,
)
from stepline.writing.extractive.step_editor import DraftStep, DraftWord

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

    from stepline.text.narration import SentenceTags

MIN_ACTION_PROBABILITY = 0.3  # P that an action begins with the verb that the grammar found
# P that an action begins with a word that the grammar takes for a part of another one
MIN_PASSED_OVER_PROBABILITY = 0.45
# P(a joined verb is kept) from which it is an action too: "keep it warm and WAIT".
MIN_JOINED_VERB_KEEP_PROBABILITY = 0.5
MAX_JOINED_WORDS = 22  # of a step that two actions make; a recipe's line is hardly longer
# Mean P(kept) of a clause's objects, from which it is an action whatever its verb.
MIN_OBJECT_KEEP_PROBABILITY = 0.6

FeatureRows = npt.NDArray[np.float64]
# index of a pronoun among the sentence's spoken words -> its name, None where unsure
WordResolver = Callable[[int], str | None]


def grammar_drafts(
    text: str, sentence_index: int, tags: "SentenceTags", resolve: WordResolver
) -> list[DraftStep]:
    """Return the actions of one sentence that the tagger accepts, as draft steps, in order.

    Args:
        text: of the sentence.
        sentence_index: index of the sentence in the narration.
        tags: the tagger's probabilities for the sentence and its W words.
        resolve: index of a pronoun among the W words -> its name, None where unsure.
    """
    words = spoken_words(text)
    # for each word between spaces its place among the spoken words, or that of the one before
    word_index_of = []
    word_index = -1
    for word in text.split():
        word_index += bool(spoken_words(word))
        word_index_of.append(max(word_index, 0))
    edits = tags.edit_probabilities
    drafts: list[DraftStep] = []
    action_probability = edits[:, WORD_EDITS.index("verb")] + edits[:, WORD_EDITS.index("next")]
    begins_action = action_probability[word_index_of] >= MIN_PASSED_OVER_PROBABILITY
    for segment, doc in _parsed_segments(text, begins_action):

        def spoken_index(token: "Token", segment: Segment = segment) -> int:
            return word_index_of[segment.word_index(token.idx)]

        def keep_probability(token: "Token") -> float:
            return 1 - float(edits[spoken_index(token), WORD_EDITS.index("drop")])

        def name(token: "Token") -> str | None:
            return resolve(spoken_index(token))

        for clause in find_clauses(doc, has_added_you=segment.has_added_you):
            # "you don't HAVE TO drain it" forbids nothing, and "they are ARE done" orders nothing
            governor = clause.verb.head.lemma_
            is_free = (
                clause.is_negated and clause.verb.dep_ == "xcomp" and governor in ("have", "need")
            )
            if is_free or (clause.verb.lemma_ == "be" and clause.verb.lower_ != "be"):
                continue
            # "you WANT it thick", "let me SHOW you": a state or talk
            lemma = clause.verb.lemma_
            is_order = lemma in ("need", "see") or (lemma == "have" and clause.kind == "imperative")
            if lemma in STATIVE_VERBS | SPEECH_VERBS and is_talk_or_state(clause) and not is_order:
                continue
            # An action counts by its verb, as the rest of the one before, or by its objects, a
            # prohibition always: "do not MAKE it wet".
            verb = spoken_index(clause.verb)
            first_probability = edits[verb, WORD_EDITS.index("verb")]
            next_probability = edits[verb, WORD_EDITS.index("next")]
            continues_action = (
                bool(drafts)
                and (clause.joined_verb is not None or clause.verb.dep_ == "conj")
                and keep_probability(clause.verb) >= MIN_JOINED_VERB_KEEP_PROBABILITY
            )
            is_prohibition = (
                clause.is_negated and clause.kind == "imperative" and not is_talk_or_state(clause)
            )
            if (
                first_probability + next_probability < MIN_ACTION_PROBABILITY
                and not continues_action
                and not is_prohibition
                and _mean_noun_keep_probability(clause, keep_probability)
                < MIN_OBJECT_KEEP_PROBABILITY
            ):
                continue
            phrase, tokens = imperative_phrase(clause, name, keep_probability)
            word_indices = sorted({spoken_index(token) for token in tokens})
            draft = _draft_step(phrase, word_indices, sentence_index, clause.is_negated, verb)
            # In YouCook2's captions annotators join 82 % of actions on a pronoun to the action
            # before, 79 % of those without an object, and 9 % of those with a new object.
            joined = None
            is_further = next_probability > first_probability or continues_action
            if drafts and is_further and not _names_an_object(clause):
                is_choice = verb > 0 and words[verb - 1].lower() == "or"
                joined = _join_drafts(drafts[-1], draft, "or" if is_choice else "and")
            if joined is None:
                drafts.append(draft)
            else:
                drafts[-1] = joined
    return drafts


def _parsed_segments(
    text: str, begins_action: npt.NDArray[np.bool_]
) -> "list[tuple[Segment, Doc]]":
    """Return the segments of a sentence with their parses.

    A segment is cut before each word that the tagger begins an action with and that the parser
    takes for a part of another one: "stir that in | TURN it up | PUT the lid back on".

    begins_action: for each word between spaces whether the tagger begins an action with it.
    """
    segments = list(split_into_segments(text))
    pending = list(zip(segments, parse([segment.text for segment in segments]), strict=True))
    parsed: list[tuple[Segment, Doc]] = []
    while pending:
        segment, doc = pending.pop(0)
        verb = _passed_over_verb(segment, doc, begins_action)
        if verb is None:
            parsed.append((segment, doc))
        else:
            parts = cut_at_verb(segment, verb)
            pending[:0] = zip(parts, parse([part.text for part in parts]), strict=True)
    return parsed


def _passed_over_verb(
    segment: Segment, doc: "Doc", begins_action: npt.NDArray[np.bool_]
) -> "Token | None":
    """Return the first word of a segment that begins an action and that is no verb of a clause."""
    verbs = {clause.verb for clause in find_clauses(doc, has_added_you=segment.has_added_you)}
    # An order that is the whole segment is not cut.
    for token in doc[2 * segment.has_added_you :]:
        if _begins_run_on(token, verbs):
            return token
        before = token.nbor(-1) if token.i else None
        is_word = before is None or before.whitespace_
        if token in verbs or not is_word or not begins_action[segment.word_index(token.idx)]:
            continue
        # "select EXPORT as": a label
        if before is not None and before.lower_ in SCREEN_VERBS:
            continue
        # "the dill, CUT thin" and "the garlic that I GRATED" have their object in front, and "your elbows
        # TURNED out" its subject.
        has_subject = token.dep_ == "relcl" or has_child(token, ("nsubj",))
        if token.tag_ == "VBN" or (token.tag_ == "VBD" and has_subject):
            continue
        is_inside = not verbs.isdisjoint(token.ancestors)
        if not (is_inside and _belongs_to_action(token)) and base_form(token.text, token):
            return token
    return None


def _begins_run_on(subject: "Token", verbs: "set[Token]") -> bool:
    """Return whether a person begins a clause below an action without a conjunction: "put it in the pan
    YOU can cover it". A relative clause has no object of its own: "the part you'll cut".

    verbs: those of the segment's clauses.
    """
    verb = subject.head
    is_subject = subject.dep_ == "nsubj" and subject.lower_ in KIND_OF_SUBJECT and subject.i > 2
    if not is_subject or verb in verbs or verbs.isdisjoint(verb.ancestors):
        return False
    before = [token.lower_ for token in subject.doc[: subject.i]]
    # "make sure, once it is dry, YOU sand it"
    is_whole = before[-1] != "," or verb.head.lemma_ == "ensure"
    inside = before[verb.left_edge.i :] if is_whole else before[-1:]
    is_linked = not (CONDITION_OPENERS - {"until"}).isdisjoint(before)
    is_linked |= subject.nbor(-1).dep_ == "cc" or not (
        SUBORDINATE_WORDS | RELATIVE_WORDS
    ).isdisjoint(inside)
    return not is_linked and any(
        token.dep_ in ("dobj", "ccomp") for token in verb.subtree if token.i > verb.i
    )


def _belongs_to_action(token: "Token") -> bool:
    """Return whether a word below an action's verb in the parse states no order of its own: a
    modifier, a participle, the verb after "to", "by" and "let it", a verb with its own "I", "when" or
    "will", and a noun behind an article."""
    is_carried = token.dep_ in ("ccomp", "xcomp") and token.head.lemma_ in ("let", "make", "help")
    if is_carried or token.tag_ == "VBG" or token.dep_ in ("pcomp", "amod", "compound", "acl"):
        return True
    has_dependent = any(
        child.dep_ in ("aux", "auxpass", "mark") or child.lower_ in KIND_OF_SUBJECT
        for child in token.lefts
    )
    is_noun = token.pos_ not in ("VERB", "AUX") and not has_child(token, ("dobj",))
    return has_dependent or (is_noun and token.n_lefts > 0)


def _draft_step(
    text: str, word_indices: Sequence[int], sentence_index: int, is_negated: bool, verb: int | None
) -> DraftStep:
    """Return a draft step whose first word carries the whole text. Its other words are empty and
    only name the spoken words that the step comes from.

    Args:
        text: text of the step.
        word_indices: indices of the spoken words that the step comes from.
        sentence_index: index of the sentence in the narration.
        is_negated: whether the step says what not to do.
        verb: index of the verb among the spoken words, None for a verb that nobody spoke.
    """
    first, *others = word_indices
    words = (DraftWord(text, first), *(DraftWord("", index) for index in others))
    return DraftStep(words, sentence_index, is_negated, verb)


def _names_an_object(clause: Clause) -> bool:
    """Return whether an action has a noun as its object, so that it is a separate step."""
    objects = [child for child in clause.verb.children if child.dep_ == "dobj"]
    return any(child.pos_ in NOUN_TAGS for child in objects)


def _join_drafts(previous: DraftStep, draft: DraftStep, conjunction: str) -> DraftStep | None:
    """Return two actions of a sentence as one step, None where they are too long together, or where
    one says what not to do."""
    text = f"{previous.words[0].text} {conjunction} {draft.words[0].text}"
    if previous.is_negated or draft.is_negated or len(text.split()) > MAX_JOINED_WORDS:
        return None
    word_indices = sorted({*previous.word_indices, *draft.word_indices})
    return _draft_step(text, word_indices, previous.sentence_index, False, previous.verb)


def grammar_features(texts: Sequence[str]) -> FeatureRows:
    """Return two features of each sentence, (S, 2), each 0 or 1.

    Column 0: it holds an imperative. Column 1: it states an action of "you", "we" or "I". Questions and
    clauses of talk and state do not count.
    """
    features = np.zeros((len(texts), 2))
    # Parsed in one pass, which takes a third of the time of a pass per sentence.
    segments = []
    for row, text in enumerate(texts):
        if not text.endswith("?"):
            segments += [(row, segment) for segment in split_into_segments(text)]
    docs = parse([segment.text for _, segment in segments])
    for (row, segment), doc in zip(segments, docs, strict=True):
        for clause in find_clauses(doc, has_added_you=segment.has_added_you):
            if not clause.is_past and not is_talk_or_state(clause):
                features[row, int(clause.kind not in ("imperative", "title"))] = 1.0
    return features


def _mean_noun_keep_probability(
    clause: Clause, keep_probability: "Callable[[Token], float]"
) -> float:
    """Return the mean P(a token is part of the step) over the nouns in a verb's complements, 0
    without nouns."""
    probabilities = []
    for part in verb_complements(clause):
        probabilities += [keep_probability(token) for token in part if token.pos_ in NOUN_TAGS]
    return sum(probabilities) / len(probabilities) if probabilities else 0.0
