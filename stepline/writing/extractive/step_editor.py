"""A spoken sentence edited into steps: what the tagger keeps of its words, put as orders.

"Now I'm going to chop my garlic and then I add it to the pan." gives two steps. With words
counted from 0, words 4 to 6 become 'chop the garlic'. Words 10 to 14 become 'add it to the pan'.
`step_names` finds what "it" means.

The tagger says of each word whether it stays and whether an action begins with it. Grammar smooths
that over whole phrases, gives verbs their base form and puts what was said in front of an action in
its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from stepline.text.narration.tagger import SentenceReading
from stepline.text.narration.words import NO_VERB, WORD_EDITS, Edit, bare_word, mark_after
from stepline.writing.extractive.english import base_form, word_set

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

MIN_KEEP: Final = 0.5  # P that a word or phrase is part of the step
MIN_ACTION: Final = 0.45  # P that an action begins with a word
MIN_FRONT_VERB: Final = 0.5  # P that an editor puts some verb in front
# The same two where the sentence surely describes a step, and none was made out.
MIN_LIKELIEST_ACTION: Final = 0.25
MIN_LIKELIEST_FRONT_VERB: Final = 0.2
NEGATION_REACH: Final = 4  # words between "don't" and what is not to be done
MAX_STEP_WORDS: Final = 30

JOINT_WORDS: Final = word_set("and then so but or now also")
CLAUSE_SUBJECTS: Final = word_set(
    """
    i you we they he she i'm you're we're they're i'll you'll we'll i've you've we've it's that's
    there's here's let's he's she's
    """
)
SUBORDINATE_WORDS: Final = word_set("until till so when where before if that as once while after")
NEGATION_WORDS: Final = word_set("not never dont don't doesn't didn't won't can't cannot shouldn't")
# With these a phrase in front says when, where or how. It stays in front of the order.
FRONT_OPENERS: Final = word_set(
    """
    with when once if after before in on at for until till as while to without using by from during
    over under through every because whenever unless inside into onto
    """
)
HANGING_WORDS: Final = word_set(
    """
    and or but then so with to of for in into onto until if the a an our your my at by from as that
    """
)
DETERMINER_WORDS: Final = word_set("a an the my our your his her their some this that these those")
PRONOUN_WORDS: Final = word_set("it this that these those them they him her he she one ones")
# One speaker's own things are "the" things of a step.
OWN_WORDS: Final = word_set("my our")
# These stay with their noun: "the hair on the right side of MY head".
ARTICLE_WORDS: Final = OWN_WORDS | word_set("a an the your")
# Endings of a spoken verb, each with what replaces it in the base form.


@dataclass(frozen=True)
class DraftWord:
    """A word of a step. place: of the spoken word it is, None for one put in front."""

    text: str
    place: int | None
    is_pronoun: bool = False


@dataclass(frozen=True)
class DraftStep:
    """A step before its pronouns have names.

    sentence: the number of the one it rests on.
    verb: the place of its first verb, None for one that was put in front.
    """

    words: tuple[DraftWord, ...]
    sentence: int
    is_negated: bool = False
    verb: int | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """The places of its spoken words, in order."""
        places = [word.place for word in self.words if word.place is not None]
        return tuple(sorted(places))

    @property
    def gap_count(self) -> int:
        """How often spoken words were left out between two of its own."""
        shown_words = [word for word in self.words if word.text]
        own = [word.place for word in shown_words if word.place is not None]
        return sum(after > before + 1 for before, after in pairwise(own))

    @property
    def text(self) -> str:
        """The words as a step, small letter first."""
        texts = [word.text for word in self.words if word.text]
        line = " ".join(texts).strip(" ,.!?;:-")
        is_name = line[1:2].isupper()
        if is_name:
            return line
        return line[:1].lower() + line[1:]


@dataclass(frozen=True)
class _Action:
    """An action and where it lies: the words before it, from `begin`, itself, what follows it."""

    begin: int
    head: int
    end: int
    starts_step: bool


class SentenceEditor:
    """Edits one sentence: its words, what the tagger says of them, and its parse."""

    def __init__(
        self, words: Sequence[str], reading: SentenceReading, doc: "Doc", number: int
    ) -> None:
        self.words = words
        self.reading = reading
        self.number = number
        self.tokens = tokens_of_words(words, doc)
        self.keep = _smoothed(words, reading, doc, self.tokens)  # (W,) bool

    def steps(self, front_verbs: Sequence[str]) -> list[DraftStep]:
        """Return the steps that the sentence describes, in order, none where no action is found."""
        actions = self._actions()
        if not actions:
            return self._with_front_verb(front_verbs)
        drafts: list[DraftStep] = []
        for action in actions:
            draft = self._draft(action)
            if draft is None:
                continue
            if drafts and not action.starts_step and not draft.is_negated:
                drafts[-1] = _joined(drafts[-1], draft)
            else:
                drafts.append(draft)
        return [draft for draft in drafts if len(draft.words) > 1]

    def likeliest_step(self, front_verbs: Sequence[str]) -> list[DraftStep]:
        """Return the most likely step, for a sentence that surely describes one, or none."""
        heads = self._heads(MIN_LIKELIEST_ACTION)
        if not heads:
            return self._with_front_verb(front_verbs, MIN_LIKELIEST_FRONT_VERB)
        chances = self.action_chances
        head = max(heads, key=lambda place: float(chances[place]))
        later_heads = [place for place in heads if place > head]
        after = min(later_heads, default=len(self.words))
        end = self._joint_before(head, after)
        draft = self._draft(_Action(head, head, end, starts_step=True))
        if draft is None or not self._has_noun(draft.words[1:]):
            return []
        return [draft]

    @property
    def action_chances(self) -> np.ndarray:
        """P(an action begins with the word), (W,)."""
        chances: np.ndarray = self._edit_chances("verb") + self._edit_chances("next")
        return chances

    def _edit_chances(self, edit: Edit) -> np.ndarray:
        """Return P(the edit) of each word, (W,)."""
        chances: np.ndarray = self.reading.edits[:, WORD_EDITS.index(edit)]
        return chances

    def _heads(self, least: float) -> list[int]:
        """Return the places of verbs with which an action begins, by a chance of at least `least`."""
        heads = []
        for place in np.flatnonzero(self.action_chances >= least).tolist():
            if base_form(self.words[place], self.tokens[place]) is not None:
                heads.append(place)
        return heads

    def _actions(self) -> list[_Action]:
        """Return the actions of the sentence in order."""
        first_chances = self._edit_chances("verb")
        next_chances = self._edit_chances("next")
        heads = self._heads(MIN_ACTION)
        actions: list[_Action] = []
        begin = 0
        for head, after in pairwise([*heads, len(self.words)]):
            end = self._joint_before(head, after)
            starts_step = not actions or first_chances[head] >= next_chances[head]
            actions.append(_Action(begin, head, end, starts_step))
            begin = end
        return actions

    def _joint_before(self, head: int, after: int) -> int:
        """Return where the words begin that come before the next action."""
        for place in range(head + 1, after):
            if self._begins_clause(place):
                after = place
                break
        if after == len(self.words) or self._begins_clause(after):
            return after
        for place in range(after - 1, head, -1):
            if bare_word(self.words[place]) in JOINT_WORDS:
                return place
            if mark_after(self.words[place - 1]) == "none":
                continue
            if place > head + 1:
                return place
            return after
        return after

    def _begins_clause(self, place: int) -> bool:
        """Return whether a new clause with its own subject begins, which the step does not keep."""
        if self.keep[place] or bare_word(self.words[place]) not in CLAUSE_SUBJECTS:
            return False
        before = bare_word(self.words[place - 1])
        return before not in SUBORDINATE_WORDS

    def _draft(self, action: _Action) -> DraftStep | None:
        """Return the step of one action, None where what to avoid would become an order."""
        head = action.head
        is_negated = self._is_negated(action)
        if is_negated and not self._says_not(action):
            return None
        if not is_negated and _is_joined_to_negated(self.words, head):
            return None

        # the verb as an order
        spoken_verb = self.words[head]
        verb = base_form(spoken_verb, self.tokens[head]) or bare_word(spoken_verb)
        order = [DraftWord(verb, head)]
        if is_negated:
            order.insert(0, DraftWord("do not", None))

        # what was said before and after it
        before = self._kept(action.begin, head, skip_negation=True)
        after = self._kept(head + 1, action.end)
        if after and after[0].text == "of":
            has_amount = after[0].place == head + 1
            if not has_amount:
                after = after[1:]  # "add a bit of water": "a bit" was dropped
        has_object = self._has_object(after)
        front, moved = self._in_front(before, has_object=has_object)
        words = [*front, *order, *moved, *after]
        return DraftStep(tuple(_trimmed(words)), self.number, is_negated, head)

    def _is_negated(self, action: _Action) -> bool:
        """Return whether a "not" comes before the action within its own clause."""
        first = max(action.begin, action.head - NEGATION_REACH)
        for place in reversed(range(first, action.head)):
            word = bare_word(self.words[place])
            if word in NEGATION_WORDS or word.endswith("n't"):
                return True
            if word in JOINT_WORDS or mark_after(self.words[place]) != "none":
                return False
        return False

    def _says_not(self, action: _Action) -> bool:
        """Return whether the tagger keeps the "not". A warning always does."""
        if self.reading.is_warning:
            return True
        places = range(action.begin, action.head)
        return any(self.keep[place] and _is_negation(self.words[place]) for place in places)

    def _in_front(
        self, before: list[DraftWord], *, has_object: bool
    ) -> tuple[list[DraftWord], list[DraftWord]]:
        """Return what stays in front of the order and what is moved behind its verb.

        "When it is dry, sand it" stays. "the garlic, you chop finely" is "Chop the garlic finely".
        """
        words = _without_joint(before)
        if not words:
            return [], []
        first = bare_word(words[0].text)
        if first in FRONT_OPENERS and len(words) > 1:
            last = _without_mark(words.pop())
            words.append(replace(last, text=f"{last.text},"))
            return words, []
        if len(words) == 1 and first.endswith("ly"):
            return words, []
        if self._has_noun(words) and not has_object:
            return [], [_without_mark(word) for word in words]
        return [], []

    def _token(self, word: DraftWord) -> "Token | None":
        if word.place is None:
            return None
        return self.tokens[word.place]

    def _has_noun(self, words: Sequence[DraftWord]) -> bool:
        return any(_is_noun(self._token(word)) for word in words)

    def _has_object(self, words: Sequence[DraftWord]) -> bool:
        """Return whether a thing is named, or a pronoun said, before any preposition."""
        for word in words:
            token = self._token(word)
            if word.is_pronoun or _is_noun(token):
                return True
            if token is not None and token.pos_ == "ADP" and token.dep_ != "prt":
                return False
        return False

    def _kept(self, begin: int, end: int, *, skip_negation: bool = False) -> list[DraftWord]:
        """Return the words from `begin` to `end` that stay, as they are in a step."""
        name_chances = self._edit_chances("name")
        drop_chances = self._edit_chances("drop")
        words = []
        for place in range(begin, end):
            bare = bare_word(self.words[place])
            is_pronoun = bare in PRONOUN_WORDS and not self._is_determiner(place)
            stays = self.keep[place]
            if skip_negation and _is_negation(bare):
                stays = False
            if is_pronoun and name_chances[place] > drop_chances[place] / 2:
                stays = True
            if stays:
                words.append(DraftWord(self._plain_word(place), place, is_pronoun))
        return words

    def _plain_word(self, place: int) -> str:
        """Return a word as a step has it, in small letters unless it is a name."""
        word = _plain(self.words[place])
        token = self.tokens[place]
        is_name = token is None or token.pos_ == "PROPN"
        is_capitalised = word[:1].isupper() and word[1:].islower()
        if is_capitalised and not is_name:
            return word.lower()
        return word

    def _is_determiner(self, place: int) -> bool:
        token = self.tokens[place]
        return token is not None and token.pos_ == "DET" and token.head.i > token.i

    def _with_front_verb(
        self, front_verbs: Sequence[str], least: float = MIN_FRONT_VERB
    ) -> list[DraftStep]:
        """Return the kept words behind the verb that an editor would put there, or none."""
        chances = self.reading.verbs.copy()
        no_verb = front_verbs.index(NO_VERB)
        if 1 - chances[no_verb] < least:
            return []
        chances[no_verb] = 0.0
        verb = front_verbs[int(np.argmax(chances))]
        words = self._kept(0, len(self.words))
        words = _without_joint(words)
        if not self._has_noun(words):
            return []
        words.insert(0, DraftWord(verb, None))
        return [DraftStep(tuple(_trimmed(words)), self.number)]


def _is_joined_to_negated(words: Sequence[str], head: int) -> bool:
    """Return whether a mere "and" joins the verb at a place to what is not to be done.

    "Don't tighten it AND leave it out" forbids both.
    """
    is_joined = False
    for place in reversed(range(head)):
        word = bare_word(words[place])
        if mark_after(words[place]) != "none":
            return False
        if is_joined and (word in NEGATION_WORDS or word.endswith("n't")):
            return True
        is_joined |= word == "and"
    return False


def _is_noun(token: "Token | None") -> bool:
    return token is not None and token.pos_ in ("NOUN", "PROPN")


def _without_joint(words: Sequence[DraftWord]) -> list[DraftWord]:
    """Return the words without the "and then" that they begin with."""
    first = 0
    while first < len(words) and bare_word(words[first].text) in JOINT_WORDS:
        first += 1
    return list(words[first:])


def _without_mark(word: DraftWord) -> DraftWord:
    return replace(word, text=word.text.rstrip(",.;:"))


def _joined(first: DraftStep, second: DraftStep) -> DraftStep:
    """Return two actions as one step: "Peel the apple and slice it"."""
    words = list(first.words)
    words[-1] = _without_mark(words[-1])
    words.append(DraftWord("and", None))
    words += second.words
    return replace(first, words=tuple(words))


def _trimmed(words: list[DraftWord]) -> list[DraftWord]:
    """Return the words without what hangs at their end, and no more than a step may have."""
    words = words[:MAX_STEP_WORDS]
    while len(words) > 1 and bare_word(words[-1].text) in HANGING_WORDS:
        words = words[:-1]
    return words


def _plain(word: str) -> str:
    """Return a word as a step has it: no mark but a comma, "the" for "my"."""
    has_comma = mark_after(word) == "comma"
    bare = word.strip('.!?;:…—–"“”()[],')
    if bare.lower() in OWN_WORDS:
        return "the"
    if has_comma:
        return f"{bare},"
    return bare


def _is_negation(word: str) -> bool:
    bare = bare_word(word)
    return bare in NEGATION_WORDS or bare.endswith("n't") or bare == "do"


def tokens_of_words(words: Sequence[str], doc: "Doc") -> "list[Token | None]":
    """Return the parser's token of each word, the first with a letter.

    doc: of the words joined by spaces.
    """
    by_place: list[Token | None] = [None] * len(words)
    starts = np.cumsum([0, *(len(word) + 1 for word in words)])
    for token in doc:
        place = int(np.searchsorted(starts, token.idx, side="right")) - 1
        is_word = any(letter.isalnum() for letter in token.text)
        if place < len(words) and by_place[place] is None and is_word:
            by_place[place] = token
    return by_place


def _smoothed(
    words: Sequence[str], reading: SentenceReading, doc: "Doc", tokens: "Sequence[Token | None]"
) -> np.ndarray:
    """Return which words stay, (W,): a noun phrase, with its preposition, stays or goes whole."""
    chance = 1 - reading.edits[:, WORD_EDITS.index("drop")]
    keep = chance >= MIN_KEEP
    place_of = {}
    for place, token in enumerate(tokens):
        if token is not None:
            place_of[token.i] = place
    for chunk in doc.noun_chunks:
        # The words of the phrase. One pronoun alone is judged by itself.
        places = [place_of[token.i] for token in chunk if token.i in place_of]
        naming = [place for place in places if bare_word(words[place]) not in DETERMINER_WORDS]
        if not naming:
            continue
        if len(naming) == 1 and bare_word(words[naming[0]]) in PRONOUN_WORDS:
            continue

        # the phrase
        stays = float(np.mean(chance[naming])) >= MIN_KEEP
        if stays:
            keep[naming] = True
            keep[[place for place in places if bare_word(words[place]) in ARTICLE_WORDS]] = True
        else:
            keep[places] = False

        # its preposition
        before = chunk.root.head
        if before.pos_ == "ADP" and before.i in place_of and chunk.root.dep_ == "pobj":
            place = place_of[before.i]
            likely = keep[place] or chance[place] >= MIN_KEEP / 2
            keep[place] = stays and likely
    return keep
