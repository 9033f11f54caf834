"""How well the words of a step name a line on the screen."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import numpy as np

from stepline.text import embed
from stepline.text.narration.words import FUNCTION_WORDS

# log odds, set by hand as those of `clicks`
FULL_LABEL = 4.0  # of a label all of whose words are said
MORE_WORDS = 0.5  # of each further word that is said of a label
FULL_STEP = 2.0  # of a label that holds all content words of a step
LIKE_MEANING = 2.0  # of a label that means what the step does: times the cosine
SURE_LETTERS = 4  # of the words that are said, from which a label counts in full; one says nothing
MIN_WORD_RATIO = 0.8  # of the letters of two words that are one, misheard or in another form
MIN_STEM = 4  # letters of a word that may be the beginning of another form of it
MAX_ENDING = 3  # letters that such another form has more


class LabelMatcher:
    """What K steps say of L lines on screen."""

    def __init__(self, steps: Sequence[str], words: Sequence[str], lines: Sequence[str]) -> None:
        """steps: their texts. words: all that is said for each. lines: texts, each once."""
        self._steps = [content_words(text) for text in steps]
        self._words = [set(split_words(text)) for text in words]
        self._numbers = {text: number for number, text in enumerate(lines)}
        self._lines = [label_words(text) for text in lines]
        lower = [text.lower() for text in lines]
        line_vectors = embed(lower)
        cosines = embed(steps) @ line_vectors.T  # (K, L)
        # lines of pages are long and like everything
        usual = np.median(cosines, axis=1, keepdims=True)
        self._cosines = np.maximum(cosines - usual, 0.0)

    def log_odds(self, step: int, line: str) -> float:
        """Return the log odds that a step names a line, by words and meaning."""
        number = self._numbers[line]
        label = self._lines[number]

        # how much of the label the step says
        label_letters = sum(map(len, label))
        named = [word for word in label if is_said(word, self._words[step])]
        letters = sum(map(len, named))
        share = letters / max(1, label_letters)
        surety = (letters - 1) / (SURE_LETTERS - 1)
        surety = min(1.0, max(0.0, surety))

        # how much of the step the label says
        own_words = set(label)
        step_words = self._steps[step]
        covered = [word for word in step_words if is_said(word, own_words)]
        coverage = len(covered) / max(1, len(step_words))

        # Together with how alike step and label are in meaning.
        meaning = float(self._cosines[step, number])
        further_words = max(0, len(named) - 1)
        total = FULL_LABEL * share**2 * surety
        total += MORE_WORDS * share * further_words
        total += FULL_STEP * coverage
        total += LIKE_MEANING * meaning
        return total

    def named_share(self, step: int, line: str) -> float:
        """Return the share of a line's letters whose words the step says, 0 for short ones."""
        number = self._numbers[line]
        label = self._lines[number]
        named = [word for word in label if is_said(word, self._words[step])]
        letters = sum(map(len, named))
        if letters < SURE_LETTERS:
            return 0.0
        label_letters = sum(map(len, label))
        return letters / label_letters


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def content_words(text: str) -> list[str]:
    """Return the words of a text without those that say nothing of its subject."""
    return [word for word in split_words(text) if word not in FUNCTION_WORDS]


def label_words(text: str) -> list[str]:
    """Return the content words of a label, all its words where it has none."""
    return content_words(text) or split_words(text)


def is_said(word: str, others: set[str]) -> bool:
    """Whether a word is among others, in some form or nearly."""
    return word in others or any(_is_alike(word, other) for other in others)


def _is_alike(word: str, other: str) -> bool:
    shorter, longer = sorted((word, other), key=len)
    if len(shorter) < MIN_STEM:
        return False
    ending = len(longer) - len(shorter)
    if longer.startswith(shorter) and ending <= MAX_ENDING:
        return True
    matcher = SequenceMatcher(None, word, other)
    return matcher.ratio() >= MIN_WORD_RATIO
