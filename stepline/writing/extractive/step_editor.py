"""A spoken sentence edited into steps: the words that the tagger keeps, in the imperative.

"Now I'm going to chop my garlic and then I add it to the pan." gives two steps. With words
counted from 0, words 4 to 6 become 'chop the garlic'. Words 10 to 14 become 'add it to the pan'.
`antecedents` finds what "it" means.

The tagger gives each word the probabilities that it stays and that an action begins with it. The
parser makes whole phrases stay or go, gives verbs their base form, and moves an object that was
spoken before its verb behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepline.text.narration.adapted_encoder import Array
from stepline.text.narration.tagger import SentenceTags
from stepline.text.narration.words import NO_VERB, WORD_EDITS, Edit, bare_word, punctuation_after
from stepline.writing.extractive.english import base_form, word_set

if TYPE_CHECKING:
    from spacy.tokens import Doc, Token

MIN_KEEP_PROBABILITY = 0.5  # P that a word or phrase is part of the step
MIN_ACTION_PROBABILITY = 0.45  # P that an action begins with a word
MIN_FRONT_VERB_PROBABILITY = 0.5  # P that an editor puts some verb in front
MAX_STEP_WORDS = 30
MAX_STUTTER_WORDS = 3

CONNECTIVE_WORDS = word_set("and then so but or now also")
CLAUSE_SUBJECTS = word_set(
    """
    i you we they he she i'm you're we're they're i'll you'll we'll i've you've we've it's that's
    there's here's let's he's she's
    """
)
NEGATION_WORDS = word_set("not never dont don't doesn't didn't won't can't cannot shouldn't")
NON_FINAL_WORDS = word_set(
    """
    and or but then so with to of for in into onto until if the a an our your my at by from as that
    """
)
DETERMINER_WORDS = word_set("a an the my our your his her their some this that these those")
PRONOUN_WORDS = word_set("it this that these those them they him her he she one ones")
# One speaker's own things are "the" things of a step.
POSSESSIVE_WORDS = word_set("my our")
# These stay with their noun: "the hair on the right side of MY head".
ARTICLE_WORDS = POSSESSIVE_WORDS | word_set("a an the your")


@dataclass(frozen=True)
class DraftWord:
    """A word of a draft step.

    Attributes:
        text: as it appears in the step.
        index: index of the spoken word in its sentence, None for a word that nobody spoke.
        is_pronoun: whether its antecedent may replace it.
    """

    text: str
    index: int | None
    is_pronoun: bool = False


@dataclass(frozen=True)
class DraftStep:
    """A step of one sentence, before its pronouns are replaced by their antecedents.

    Attributes:
        words: in the order of the step.
        sentence_index: index of the source sentence in the narration.
        is_negated: whether it says what not to do.
        verb: index of its first verb among the spoken words, None for a verb that nobody spoke.
    """

    words: tuple[DraftWord, ...]
    sentence_index: int
    is_negated: bool = False
    verb: int | None = None

    @property
    def word_indices(self) -> tuple[int, ...]:
        """The sorted indices of its words among the spoken words of the sentence."""
        return tuple(sorted(word.index for word in self.words if word.index is not None))

    @property
    def gap_count(self) -> int:
        """The number of places where spoken words are left out between two words of the step."""
        spoken_indices = [word.index for word in self.words if word.text and word.index is not None]
        return sum(after > before + 1 for before, after in pairwise(spoken_indices))

    @property
    def text(self) -> str:
        """The text of the step. It begins with a small letter, unless the first word is an acronym."""
        texts = " ".join(word.text for word in self.words).split()
        step_text = " ".join(_without_stutter(texts)).strip(" ,.!?;:-")
        is_acronym = step_text[1:2].isupper()
        return step_text if is_acronym else step_text[:1].lower() + step_text[1:]


class SentenceEditor:
    """Turns one spoken sentence into draft steps, by the tagger and the parser."""

    def __init__(self, words: Sequence[str], tags: SentenceTags, doc: "Doc", number: int) -> None:
        """Find the tokens of the words, and which words stay.

        Args:
            words: the W spoken words of the sentence.
            tags: the tagger's probabilities of the sentence and its words.
            doc: the parser's document of the words, joined by spaces.
            number: index of the sentence in the narration.
        """
        self.words = words
        self.tags = tags
        self.number = number
        self.tokens = tokens_of_words(words, doc)
        self.is_kept = _keep_mask(words, tags, doc, self.tokens)  # (W,) bool

    def steps(self, front_verbs: Sequence[str]) -> list[DraftStep]:
        """Return the draft steps of the sentence, in order. The list is empty if the sentence has
        no action.

        front_verbs: V verbs that the tagger can put in front of a sentence without a verb, in the
        order of `SentenceTags.front_verb_probabilities`.
        """
        # Word by word, what is not to be done could turn into its opposite.
        if any(
            word in NEGATION_WORDS or word.endswith("n't") for word in map(bare_word, self.words)
        ):
            return []
        # Each action has the words up to the next verb, or to the subject before it. Of 29 steps with
        # words left out between, eight were of use. What is acted on may come first: "the BRACKET is
        # screwed to the wall".
        heads = self._action_heads()
        drafts: list[DraftStep] = []
        begin = 0
        for head, after in pairwise([*heads, len(self.words)]):
            end = next(filter(self._begins_clause, range(head + 1, after)), after)
            token = self.tokens[head]
            is_passive = token is not None and any(word.dep_ == "auxpass" for word in token.lefts)
            moved = self._keep_words_in_range(begin, head) if is_passive else []
            verb = base_form(self.words[head], token) or bare_word(self.words[head])
            order = DraftWord(verb, head)
            words = _trim_draft_words([order, *self._keep_words_in_range(head + 1, end)])
            draft = DraftStep((order, *moved, *words[1:]), self.number, verb=head)
            if len(draft.words) > 1 and not replace(draft, words=tuple(words)).gap_count:
                drafts.append(draft)
            begin = end
        return drafts if heads else self._prepend_verb(front_verbs)

    def _edit_probabilities(self, edit: Edit) -> Array:
        """Return P(the edit) of each word, (W,)."""
        return self.tags.edit_probabilities[:, WORD_EDITS.index(edit)]

    def _action_heads(self) -> list[int]:
        """Return the indices of the verbs that an action begins with."""
        probabilities = self._edit_probabilities("verb") + self._edit_probabilities("next")
        return [
            index
            for index in np.flatnonzero(probabilities >= MIN_ACTION_PROBABILITY).tolist()
            if base_form(self.words[index], self.tokens[index]) is not None
        ]

    def _begins_clause(self, index: int) -> bool:
        """Return whether a clause begins at a word that is its subject and that the step omits."""
        return not self.is_kept[index] and bare_word(self.words[index]) in CLAUSE_SUBJECTS

    def _keep_words_in_range(self, begin: int, end: int) -> list[DraftWord]:
        """Return the spoken words of a range that stay in the step.

        Args:
            begin: index of the first word.
            end: index after the last word.
        """
        name_probabilities = self._edit_probabilities("name")
        drop_probabilities = self._edit_probabilities("drop")
        words = []
        for index in range(begin, end):
            bare_text = bare_word(self.words[index])
            is_pronoun = bare_text in PRONOUN_WORDS and not self._is_determiner(index)
            is_named = is_pronoun and name_probabilities[index] > drop_probabilities[index] / 2
            if is_named or self.is_kept[index]:
                words.append(DraftWord(self._step_word_at(index), index, is_pronoun))
        return words

    def _step_word_at(self, index: int) -> str:
        """Return a spoken word as the step writes it: in lower case unless it is a name."""
        word = _step_word(self.words[index])
        token = self.tokens[index]
        is_name = token is None or token.pos_ == "PROPN"
        is_capitalised = word[:1].isupper() and word[1:].islower()
        return word.lower() if is_capitalised and not is_name else word

    def _is_determiner(self, index: int) -> bool:
        token = self.tokens[index]
        return token is not None and token.pos_ == "DET" and token.head.i > token.i

    def _prepend_verb(self, front_verbs: Sequence[str]) -> list[DraftStep]:
        """Return one draft step for a sentence without a verb: a verb of `front_verbs`, then the
        words of the sentence that the tagger keeps.

        The verb is the one that an editor most likely puts in front. The list is empty if the kept
        words hold no noun, or if P(an editor puts any verb in front) is too low.

        front_verbs: V verbs that the tagger can put in front of a sentence, in the order of
        `SentenceTags.verbs`. The entry `NO_VERB` means that no verb is put in front.
        """
        probabilities = self.tags.front_verb_probabilities.copy()
        no_verb = front_verbs.index(NO_VERB)
        if 1 - probabilities[no_verb] < MIN_FRONT_VERB_PROBABILITY:
            return []
        probabilities[no_verb] = 0.0
        verb = front_verbs[int(np.argmax(probabilities))]
        kept = self._keep_words_in_range(0, len(self.words))
        words = list(dropwhile(lambda word: bare_word(word.text) in CONNECTIVE_WORDS, kept))
        tokens = [self.tokens[word.index] for word in words if word.index is not None]
        if not any(token is not None and token.pos_ in ("NOUN", "PROPN") for token in tokens):
            return []
        words = _trim_draft_words([DraftWord(verb, None), *words])
        return [DraftStep(tuple(words), self.number)]


def _trim_draft_words(words: list[DraftWord]) -> list[DraftWord]:
    """Return at most MAX_STEP_WORDS words, without articles and conjunctions at the end."""
    words = words[:MAX_STEP_WORDS]
    while len(words) > 1 and bare_word(words[-1].text) in NON_FINAL_WORDS:
        words.pop()
    return words


def _without_stutter(words: Sequence[str]) -> list[str]:
    """Return the words without up to three that are said twice in a row: "point cut point cut the
    ends". Numbers stay."""
    kept: list[str] = []
    for word in words:
        kept.append(word)
        for count in range(1, MAX_STUTTER_WORDS + 1):
            said = [bare_word(other) for other in kept[-2 * count :]]
            is_number = any(any(map(str.isdigit, other)) for other in said)
            if len(said) == 2 * count and said[:count] == said[count:] and not is_number:
                del kept[-2 * count : -count]
    return kept


def _step_word(word: str) -> str:
    """Return a word as it appears in a step: no punctuation but a comma, "the" for "my"."""
    bare_text = word.strip('.!?;:…—–"“”()[],')
    if bare_text.lower() in POSSESSIVE_WORDS:
        return "the"
    return f"{bare_text}," if punctuation_after(word) == "comma" else bare_text


def tokens_of_words(words: Sequence[str], doc: "Doc") -> "list[Token | None]":
    """Return the parser's first alphanumeric token of each word, None without one.

    doc: of the words joined by spaces.
    """
    token_of_word: list[Token | None] = [None] * len(words)
    word_offsets = np.cumsum([0, *(len(word) + 1 for word in words)])
    for token in doc:
        index = int(np.searchsorted(word_offsets, token.idx, side="right")) - 1
        is_word = any(letter.isalnum() for letter in token.text)
        if index < len(words) and token_of_word[index] is None and is_word:
            token_of_word[index] = token
    return token_of_word


def _keep_mask(
    words: Sequence[str], tags: SentenceTags, doc: "Doc", tokens: "Sequence[Token | None]"
) -> npt.NDArray[np.bool_]:
    """Return a mask (W,), True for words that stay in a step. A noun phrase and its preposition stay
    or go as a whole.

    Args:
        words: the W spoken words.
        tags: the tagger's probabilities.
        doc: the parser's document of the words.
        tokens: of `tokens_of_words`.
    """
    probability = 1 - tags.edit_probabilities[:, WORD_EDITS.index("drop")]
    is_kept = probability >= MIN_KEEP_PROBABILITY
    word_index_of = {token.i: index for index, token in enumerate(tokens) if token is not None}
    for chunk in doc.noun_chunks:
        # The words of the phrase. One pronoun alone is judged by itself.
        word_indices = [word_index_of[token.i] for token in chunk if token.i in word_index_of]
        naming_indices = [
            index for index in word_indices if bare_word(words[index]) not in DETERMINER_WORDS
        ]
        naming_words = [bare_word(words[index]) for index in naming_indices]
        if not naming_words or (len(naming_words) == 1 and naming_words[0] in PRONOUN_WORDS):
            continue

        # the phrase
        word_is_kept = float(np.mean(probability[naming_indices])) >= MIN_KEEP_PROBABILITY
        if word_is_kept:
            is_kept[naming_indices] = True
            is_kept[
                [index for index in word_indices if bare_word(words[index]) in ARTICLE_WORDS]
            ] = True
        else:
            is_kept[word_indices] = False

        # its preposition
        before = chunk.root.head
        if before.pos_ == "ADP" and before.i in word_index_of and chunk.root.dep_ == "pobj":
            index = word_index_of[before.i]
            is_likely = is_kept[index] or probability[index] >= MIN_KEEP_PROBABILITY / 2
            # the "of" of "a bit of salt" goes with the "bit"
            measure = word_index_of.get(before.head.i, index)
            is_kept[index] = (
                word_is_kept and is_likely and (before.lower_ != "of" or is_kept[measure])
            )
    return is_kept
