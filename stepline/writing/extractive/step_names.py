"""Pronouns of steps: a name where it is sure, nothing where the step reads without, else as said."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stepline.text.narration import SentenceReading
from stepline.text.narration.words import WORD_EDITS, bare_word
from stepline.writing.extractive.antecedents import (
    POINTING_PRONOUNS,
    UNNAMEABLE_WORDS,
    AntecedentFinder,
    objectless_verbs,
)
from stepline.writing.extractive.complements import NOUN_TAGS
from stepline.writing.extractive.step_editor import DraftStep, DraftWord

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

# P(the pronoun stands for this) from which it is named. Names in six long transcripts were read one
# by one. All seven names of "it" and "them" from here on were right, three of the six between .8
# and it. "This" points at the picture: three of three were wrong, however sure.
MIN_NAME: Final = 0.9
# Words of these kinds may come before a thing that is named in front: "SO TWO onions, chop them".
FRONT_PARTS_OF_SPEECH: Final = ("CCONJ", "ADV", "INTJ", "SCONJ", "DET", "PRON")
NAME_PARTS_OF_SPEECH: Final = ("NUM", "ADJ", "NOUN", "PROPN")
# What these act on is work, not a thing: "repeat this on the other side".
WORK_VERBS: Final = frozenset(("do", "repeat", "redo"))
NAMEABLE_PRONOUNS: Final = frozenset(("it", "this", "that", "them", "these", "those", "they"))


class StepNamer:
    """Names the pronouns of one narration's steps. docs: its sentences, of words parted by a space."""

    def __init__(self, docs: "Sequence[Doc]", readings: Sequence[SentenceReading]) -> None:
        keeps = []
        self._tokens: list[list[int]] = []  # of each sentence, the first token of each word
        for doc, reading in zip(docs, readings, strict=True):
            stays = 1 - reading.edits[:, WORD_EDITS.index("drop")]
            token_keeps = []
            starts = []
            place = 0
            for token in doc:
                if token.i == 0 or doc[token.i - 1].whitespace_:
                    starts.append(token.i)
                keep = 0.0
                if place < len(stays):
                    keep = float(stays[place])
                token_keeps.append(keep)
                if token.whitespace_:
                    place += 1
            keeps.append(token_keeps)
            self._tokens.append(starts)
        self._docs = docs
        self._finder = AntecedentFinder(docs, keeps)

    def name_at(self, sentence: int, place: int) -> str | None:
        """Return what the pronoun at a word stands for, without an article, None where unsure."""
        token = self._pronoun(sentence, place)
        if token is None:
            return None
        pronoun = self._docs[sentence][token]
        if pronoun.lower_ in POINTING_PRONOUNS:
            return None
        fronted = _fronted_name(pronoun)
        if fronted is not None:
            return fronted
        antecedent = self._finder.find(sentence, token)
        if antecedent is None or antecedent.probability < MIN_NAME:
            return None
        name = antecedent.name
        if name.istitle():
            return name.lower()
        return name

    def likely_names(self, sentence: int, places: Sequence[int]) -> tuple[str, ...]:
        """Return what the pronouns at these words most likely stand for, sure or not."""
        names = []
        for place in places:
            token = self._pronoun(sentence, place)
            if token is None:
                continue
            antecedent = self._finder.find(sentence, token)
            if antecedent is not None:
                names.append(antecedent.name)
        return tuple(names)

    def _pronoun(self, sentence: int, place: int) -> int | None:
        """Return the token of the pronoun at a word, None for another word."""
        starts = self._tokens[sentence]
        if place >= len(starts):
            return None
        token = self._docs[sentence][starts[place]]
        is_work = token.dep_ == "dobj" and token.head.lemma_ in WORK_VERBS
        if is_work or token.lower_ not in NAMEABLE_PRONOUNS:
            return None
        return int(token.i)

    def with_names(self, draft: DraftStep) -> DraftStep | None:
        """Return the step with the names of its pronouns, None where only pronouns are left."""
        words: list[DraftWord] = []
        names: set[str] = set()
        for number, word in enumerate(draft.words):
            if not word.is_pronoun or word.place is None:
                words.append(word)
                continue
            name = self.name_at(draft.sentence, word.place)
            is_new = name is not None and name not in names and not _is_in_step(name, draft)
            if name is not None and is_new:
                names.add(name)
                words.append(replace(word, text=f"the {name}"))
            elif not _reads_without(draft.words, number):
                words.append(word)
        return replace(draft, words=tuple(words))


def _fronted_name(pronoun: "Token") -> str | None:
    """Return the thing that is named in front of the clause: "TWO ONIONS, chop THEM fine".

    None where the sentence begins otherwise, or where one and many do not agree.
    """
    front, between = _around_comma(pronoun)
    if pronoun.dep_ != "dobj" or not front:
        return None
    # Before the comma is one thing alone, and between that and the pronoun nothing is named.
    front_kinds = {token.pos_ for token in front}
    between_kinds = {token.pos_ for token in between}
    is_thing = front_kinds.issubset(NAME_PARTS_OF_SPEECH)
    if not is_thing or not between_kinds.isdisjoint(NOUN_TAGS):
        return None
    last = front[-1]
    if last.pos_ != "NOUN" or last.lemma_.lower() in UNNAMEABLE_WORDS:
        return None
    # One and many agree.
    is_many = last.tag_ == "NNS"
    if is_many != (pronoun.lower_ == "them"):
        return None
    name: str = last.doc[front[0].i : last.i + 1].text
    # A sentence begins with a capital, a step does not.
    return name[:1].lower() + name[1:]


def _around_comma(pronoun: "Token") -> "tuple[list[Token], list[Token]]":
    """Return the words before the first comma without those that only open, and those from there
    to the pronoun. Both are empty where no comma comes before it."""
    doc = pronoun.doc
    for comma in doc[: pronoun.i]:
        if comma.text != ",":
            continue
        front = list(doc[: comma.i])
        while front and front[0].pos_ in FRONT_PARTS_OF_SPEECH and front[0].lower_ != "no":
            del front[0]
        return front, list(doc[comma.i : pronoun.i])
    return [], []


def _is_in_step(name: str, draft: DraftStep) -> bool:
    return any(name in word.text for word in draft.words)


def _reads_without(words: Sequence[DraftWord], number: int) -> bool:
    """Return whether a step reads well without the pronoun at a place: "Stir [it] for a minute"."""
    is_last = number + 1 >= len(words)
    if is_last:
        return False
    verb = ""
    if number:
        verb = bare_word(words[number - 1].text)
    return verb in objectless_verbs()
