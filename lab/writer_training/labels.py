"""What the tagger learns of each word: what becomes of it in the step.

The words of an editor's step are aligned with the words that were spoken, in their order. What has
a counterpart is part of the step, the rest is left out. Source of editing by tags: Malmi et al.
2019 (LaserTagger).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from lab.writer_training.marked import MarkedSentence
from stepline.text.narration.words import NO_VERB, WORD_EDITS, Edit, bare_word, spoken_words
from stepline.writing.extractive.english import parse, word_set

SPOKEN_PRONOUNS: Final = word_set(
    "it this that these those them they he she him her one ones some everything guys stuff"
)
NEGATION_WORDS: Final = word_set("do not never don't don")
SPOKEN_NEGATIONS: Final = word_set("not never dont")
MIN_STEM_CHARS: Final = 3
WORD_ENDINGS: Final = ("ings", "ing", "ies", "ied", "ed", "es", "s")

Places: TypeAlias = list[int | None]  # of the spoken word that each written one is


@dataclass(frozen=True)
class EditLabels:
    """edits: an index into WORD_EDITS per spoken word. verb: what the editor put in front, or NO_VERB."""

    edits: tuple[int, ...]
    verb: str = NO_VERB


def word_stem(word: str) -> str:
    """Return a word without its ending, good enough to tell that "adding" and "add" are one."""
    word = bare_word(word)
    for ending in WORD_ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) >= MIN_STEM_CHARS:
            word = stem
            break
    # "Stirring" leaves "stirr", which loses a letter.
    if len(word) > MIN_STEM_CHARS and word[-1] == word[-2]:
        word = word[:-1]
    # "Slicing" leaves "slic", so "slice" loses its "e".
    if len(word) > MIN_STEM_CHARS:
        word = word.rstrip("e")
    return word


def align_words(spoken: Sequence[str], written: Sequence[str]) -> Places:
    """Return for each written word the spoken word that it is, the longest common subsequence first.

    Written words that are said elsewhere in the sentence get the first free place there.
    """
    spoken_stems = [word_stem(word) for word in spoken]
    written_stems = [word_stem(word) for word in written]
    spoken_count = len(spoken_stems)
    written_count = len(written_stems)

    # (S + 1, W + 1): longest common subsequence of what follows
    shape = (spoken_count + 1, written_count + 1)
    longest = np.zeros(shape, np.int32)
    for i in reversed(range(spoken_count)):
        for j in reversed(range(written_count)):
            if spoken_stems[i] == written_stems[j]:
                longest[i, j] = longest[i + 1, j + 1] + 1
            else:
                longest[i, j] = max(longest[i + 1, j], longest[i, j + 1])

    # its pairs
    places: Places = [None] * written_count
    i = 0
    j = 0
    while i < spoken_count and j < written_count:
        if spoken_stems[i] == written_stems[j]:
            places[j] = i
            i += 1
            j += 1
        elif longest[i + 1, j] >= longest[i, j + 1]:
            i += 1
        else:
            j += 1

    # words that are said elsewhere
    free = [number for number in range(spoken_count) if number not in places]
    for j, stem in enumerate(written_stems):
        if places[j] is not None or len(stem) < MIN_STEM_CHARS:
            continue
        equal = [number for number in free if spoken_stems[number] == stem]
        if equal:
            places[j] = equal[0]
            free.remove(equal[0])
    return places


def edit_labels(sentences: Sequence[MarkedSentence]) -> list[EditLabels]:
    """Return what becomes of each spoken word of the sentences. All is dropped where no step is."""
    clauses = []
    for sentence in sentences:
        clauses += [_as_clause(step) for step in sentence.steps]
    actions = map(_action_words, parse(clauses))
    return [_sentence_labels(sentence, actions) for sentence in sentences]


def _as_clause(step: str) -> str:
    """Put "you" before an order, which the parser then reads rightly."""
    words = step.split()
    if not words:
        return "you"
    words[0] = words[0].lower()
    return " ".join(["you", *words])


def _action_words(doc: "object") -> list[tuple[str, bool]]:
    """Return the words of a parsed step, each with whether it is the verb of an action."""
    words: list[tuple[str, bool]] = []
    for token in doc:  # type: ignore[attr-defined]
        # Joined verbs are actions where the first of them is the root.
        head = token
        while head.dep_ == "conj" and head.head is not head:
            head = head.head
        is_action = token.pos_ == "VERB" and head.dep_ == "ROOT"
        if re.search(r"\w", token.text):
            words.append((token.text, is_action))
    # without the "you" in front
    return words[1:]


def _sentence_labels(sentence: MarkedSentence, actions: "object") -> EditLabels:
    spoken = spoken_words(sentence.text)
    edits = [WORD_EDITS.index("drop")] * len(spoken)
    front_verb = NO_VERB
    for number, _ in enumerate(sentence.steps):
        tagged_words = next(actions)  # type: ignore[call-overload]
        words = [word for word, _ in tagged_words]
        places = align_words(spoken, words)
        first = _first_verb(words)
        for n, place in enumerate(places):
            if place is None:
                continue
            edit: Edit = "keep"
            if n == first:
                edit = "verb"
            elif tagged_words[n][1]:
                edit = "next"
            edits[place] = WORD_EDITS.index(edit)
        # The verb of the first step, where no one said it.
        if number == 0 and words and places[first] is None:
            front_verb = words[first].lower()
        _mark_names(edits, spoken, places)
        # The step begins with "Do not".
        if first:
            _keep_negation(edits, spoken)
    return EditLabels(tuple(edits), front_verb)


def _first_verb(words: Sequence[str]) -> int:
    """Return the place of the first word that forbids nothing: an order begins with its verb."""
    for place, word in enumerate(words):
        if word.lower() not in NEGATION_WORDS:
            return place
    return 0


def _keep_negation(edits: list[int], spoken: Sequence[str]) -> None:
    """Keep what forbids: "don't", "never". The editor's "Do not" is that word."""
    keep = WORD_EDITS.index("keep")
    for i, word in enumerate(spoken):
        bare = bare_word(word)
        if bare in SPOKEN_NEGATIONS or bare.endswith("n't"):
            edits[i] = keep


def _mark_names(edits: list[int], spoken: Sequence[str], places: Places) -> None:
    """Mark the pronouns between two words of the step where the editor wrote something else."""
    drop = WORD_EDITS.index("drop")
    for number, own_place in enumerate(places):
        if own_place is not None:
            continue
        # the spoken words between its neighbours
        begin = -1
        for place in places[:number]:
            if place is not None:
                begin = place
        end = len(spoken)
        for place in reversed(places[number + 1 :]):
            if place is not None:
                end = place
        for i in range(begin + 1, end):
            is_pronoun = bare_word(spoken[i]) in SPOKEN_PRONOUNS
            if is_pronoun and edits[i] == drop:
                edits[i] = WORD_EDITS.index("name")
                return
