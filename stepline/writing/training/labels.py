"""What the tagger learns of each word: what becomes of it in the step.

The words of an editor's step are aligned with the words that were spoken, in their order. What has
a counterpart is part of the step, the rest is spoken_stems out. Source of editing by tags: Malmi et al.
2019 (LaserTagger).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stepline.narration.words import NO_VERB, WORD_EDITS, Edit, bare_word, spoken_words
from stepline.writing.extractive.english import parse, word_set
from stepline.writing.training.marked import MarkedSentence

SPOKEN_PRONOUNS: Final = word_set(
    "it this that these those them they he she him her one ones some everything guys stuff"
)
NEGATION_WORDS: Final = word_set("do not never don't don")
SPOKEN_NEGATIONS: Final = word_set("not never dont")
MIN_STEM_CHARS: Final = 3
WORD_ENDINGS: Final = ("ings", "ing", "ies", "ied", "ed", "es", "s")


@dataclass(frozen=True)
class EditLabels:
    """edits: an index into WORD_EDITS a spoken word. verb: what the editor put in front, or NO_VERB."""

    edits: tuple[int, ...]
    verb: str = NO_VERB


def word_stem(word: str) -> str:
    """Return a word without its ending, good enough to tell that "adding" and "add" are one."""
    word = bare_word(word)
    for ending in WORD_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= MIN_STEM_CHARS:
            word = word[: -len(ending)]
            break
    if len(word) > MIN_STEM_CHARS and word[-1] == word[-2]:
        word = word[:-1]
    return word.rstrip("e") if len(word) > MIN_STEM_CHARS else word


def align_words(spoken: Sequence[str], written: Sequence[str]) -> list[int | None]:
    """Return for each written word the spoken word that it is, the longest common subsequence first.

    Written words that are said elsewhere in the sentence get the first free place there.
    """
    spoken_stems = [word_stem(word) for word in spoken]
    written_stems = [word_stem(word) for word in written]
    # (S + 1, W + 1): longest common subsequence of what follows
    longest = np.zeros((len(spoken_stems) + 1, len(written_stems) + 1), np.int32)
    for i in range(len(spoken_stems) - 1, -1, -1):
        for j in range(len(written_stems) - 1, -1, -1):
            if spoken_stems[i] == written_stems[j]:
                longest[i, j] = longest[i + 1, j + 1] + 1
            else:
                longest[i, j] = max(longest[i + 1, j], longest[i, j + 1])
    places: list[int | None] = [None] * len(written_stems)
    i = j = 0
    while i < len(spoken_stems) and j < len(written_stems):
        if spoken_stems[i] == written_stems[j]:
            places[j] = i
            i, j = i + 1, j + 1
        elif longest[i + 1, j] >= longest[i, j + 1]:
            i += 1
        else:
            j += 1
    used = {place for place in places if place is not None}
    for j, stem in enumerate(written_stems):
        free = [i for i, word in enumerate(spoken_stems) if word == stem and i not in used]
        if places[j] is None and free and len(stem) >= MIN_STEM_CHARS:
            places[j] = free[0]
            used.add(free[0])
    return places


def edit_labels(sentences: Sequence[MarkedSentence]) -> list[EditLabels]:
    """Return what becomes of each spoken word of the sentences; all is dropped where no step is."""
    steps = [step for sentence in sentences for step in sentence.steps]
    actions = iter([_action_words(doc) for doc in parse([_as_clause(step) for step in steps])])
    return [_sentence_labels(sentence, actions) for sentence in sentences]


def _as_clause(step: str) -> str:
    """Put "you" before an order, which the parser then reads rightly."""
    words = step.split()
    return " ".join(["you", words[0].lower(), *words[1:]]) if words else "you"


def _action_words(doc: "object") -> list[tuple[str, bool]]:
    """Return the words of a parsed step, each with whether it is the verb of an action."""
    words: list[tuple[str, bool]] = []
    for token in doc:  # type: ignore[attr-defined]
        head = token
        while head.dep_ == "conj" and head.head is not head:
            head = head.head
        is_action = token.pos_ == "VERB" and head.dep_ == "ROOT"
        if re.search(r"\w", token.text):
            words.append((token.text, is_action))
    return words[1:]


def _sentence_labels(sentence: MarkedSentence, actions: "object") -> EditLabels:
    spoken = spoken_words(sentence.text)
    edits = [WORD_EDITS.index("drop")] * len(spoken)
    first_verb = NO_VERB
    for number, _ in enumerate(sentence.steps):
        words = next(actions)  # type: ignore[call-overload]
        places = align_words(spoken, [word for word, _ in words])
        first = next(
            (n for n, (word, _) in enumerate(words) if word.lower() not in NEGATION_WORDS), 0
        )
        for n, ((_, is_action), place) in enumerate(zip(words, places, strict=True)):
            if place is None:
                continue
            edit: Edit = "next" if is_action else "keep"
            if n == first:
                edit = "verb"
            edits[place] = WORD_EDITS.index(edit)
        if number == 0 and words and places[first] is None:
            first_verb = words[first][0].lower()
        _mark_names(edits, spoken, places)
        if first:
            _keep_negation(edits, spoken)
    return EditLabels(tuple(edits), first_verb)


def _keep_negation(edits: list[int], spoken: Sequence[str]) -> None:
    """Keep what forbids: "don't", "never"; the editor's "Do not" is that word."""
    for i, word in enumerate(spoken):
        bare = bare_word(word)
        if bare in SPOKEN_NEGATIONS or bare.endswith("n't"):
            edits[i] = WORD_EDITS.index("keep")


def _mark_names(edits: list[int], spoken: Sequence[str], places: Sequence[int | None]) -> None:
    """Mark the pronouns between two words of the step where the editor wrote something else."""
    for n, place in enumerate(places):
        if place is not None:
            continue
        before = [p for p in places[:n] if p is not None]
        after = [p for p in places[n + 1 :] if p is not None]
        begin = max(before[-1:], default=-1)
        end = min(after[:1], default=len(spoken))
        for i in range(begin + 1, end):
            is_pronoun = bare_word(spoken[i]) in SPOKEN_PRONOUNS
            if is_pronoun and edits[i] == WORD_EDITS.index("drop"):
                edits[i] = WORD_EDITS.index("name")
                return
