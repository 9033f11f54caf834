"""Actions that the grammar finds in a spoken sentence, chosen and pruned by the tagger.

A clause is an action of a step where the tagger lets one begin with its verb. Its
complements (what, with what, how much, until when, where) stay where the tagger keeps them.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from stepline.text.narration.words import WORD_EDITS, spoken_words
from stepline.writing.extractive.clauses import Clause, find_clauses
from stepline.writing.extractive.english import parse
from stepline.writing.extractive.off_topic import off_topic_reason
from stepline.writing.extractive.phrases import NOUN_TAGS, imperative_phrase, verb_complements
from stepline.writing.extractive.segments import Segment, split_into_segments
from stepline.writing.extractive.step_editor import DraftStep, DraftWord

if TYPE_CHECKING:
    from spacy.tokens import Token

    from stepline.text.narration import SentenceTags

MIN_ACTION_PROBABILITY: Final = 0.3  # P that an action begins with the verb that the grammar found
# Mean P(kept) of a clause's objects, from which it is an action whatever its verb.
MIN_OBJECT_KEEP_PROBABILITY: Final = 0.6

FeatureRows = npt.NDArray[np.float64]
# index of a pronoun among the sentence's spoken words -> its name, None where unsure
WordResolver = Callable[[int], str | None]


def grammar_drafts(
    text: str, sentence: int, tags: "SentenceTags", resolve: WordResolver
) -> list[DraftStep]:
    """Return the actions of one sentence that the tagger accepts, as draft steps, in order.

    Args:
        text: of the sentence.
        sentence: its index in the narration.
        tags: the tagger's probabilities for the sentence and its W words.
        resolve: index of a pronoun among the W words -> its name, None where unsure.
    """
    # for each word between spaces its place among the spoken words, or that of the one before
    word_index_of = []
    word_index = -1
    for word in text.split():
        word_index += bool(spoken_words(word))
        word_index_of.append(max(word_index, 0))
    edits = tags.edits
    segments = list(split_into_segments(text))
    docs = parse([segment.text for segment in segments])
    drafts = []
    for segment, doc in zip(segments, docs, strict=True):

        def spoken_index(token: "Token", segment: Segment = segment) -> int:
            return word_index_of[segment.word_index(token.idx)]

        def keep_probability(token: "Token") -> float:
            return 1 - float(edits[spoken_index(token), WORD_EDITS.index("drop")])

        def name(token: "Token") -> str | None:
            return resolve(spoken_index(token))

        for clause in find_clauses(doc, has_added_you=segment.has_added_you, after_then=True):
            # An action counts by its verb, or by its objects.
            verb = spoken_index(clause.verb)
            probability = edits[verb, [WORD_EDITS.index("verb"), WORD_EDITS.index("next")]].sum()
            if (
                probability < MIN_ACTION_PROBABILITY
                and _mean_keep_probability(clause, keep_probability) < MIN_OBJECT_KEEP_PROBABILITY
            ):
                continue
            phrase, tokens = imperative_phrase(clause, name, keep_probability)
            # The first word carries the whole text. The others only say what it rests on.
            first, *others = sorted({spoken_index(token) for token in tokens})
            words = (DraftWord(phrase, first), *(DraftWord("", index) for index in others))
            drafts.append(DraftStep(words, sentence, clause.is_negated, verb))
    return drafts


def grammar_features(texts: Sequence[str]) -> FeatureRows:
    """Return two features of each sentence, (S, 2), each 0 or 1.

    Column 0: it holds an order. Column 1: it states an action of "you", "we" or "I". Clauses that
    `off_topic_reason` rejects do not count.
    """
    # The pieces of all sentences are parsed in one batch.
    segments: list[Segment] = []
    rows: list[int] = []
    for row, text in enumerate(texts):
        sentence_pieces = list(split_into_segments(text))
        segments += sentence_pieces
        rows += [row] * len(sentence_pieces)
    docs = parse([segment.text for segment in segments])
    features = np.zeros((len(texts), 2))
    for row, segment, doc in zip(rows, segments, docs, strict=True):
        for clause in find_clauses(
            doc, has_added_you=segment.has_added_you, after_then=segment.after_then
        ):
            if off_topic_reason(clause, is_question=segment.is_question) is not None:
                continue
            if clause.voice in ("order", "title", "passive"):
                features[row, 0] = 1.0
            else:
                features[row, 1] = 1.0
    return features


def _mean_keep_probability(clause: Clause, keep_probability: "Callable[[Token], float]") -> float:
    """Return the mean P(kept) of the nouns in a clause, 0 without any."""
    probabilities = []
    for part in verb_complements(clause):
        probabilities += [keep_probability(token) for token in part if token.pos_ in NOUN_TAGS]
    return sum(probabilities) / len(probabilities) if probabilities else 0.0
