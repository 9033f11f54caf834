"""Restores punctuation in English captions that have none, as speech recognisers write them.

The speaker ends "pasta" at 12.4 s and begins "then" at 14.5 s:

    'first you drain the pasta then you rinse it with cold water'
    ->  'First you drain the pasta. Then you rinse it with cold water.'

A small network gives the probability of each mark after each word. A silence between two words
makes the end of a sentence more likely.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from stepline.numeric import softmax
from stepline.records import Word
from stepline.speech.sentences import ends_sentence
from stepline.text.narration.punctuation import load_punctuation_model
from stepline.text.narration.words import (
    FUNCTION_WORDS,
    OUTER_PUNCTUATION,
    PUNCTUATION_MARKS,
    bare_word,
    looks_english,
    word_set,
)

MIN_STOPS_PER_WORD: Final = 0.02  # full stops from which the punctuation is taken seriously
MIN_WORDS: Final = 40  # fewer are too few to tell how a text is punctuated
# Log odds of a full stop a second of silence, fitted on six transcripts (docs/writing.md).
STOP_LOG_ODDS: Final = 0.5  # speech is cut more often than a writer would
STOP_LOG_ODDS_PER_SECOND: Final = 1.0
MAX_SILENCE_SECONDS: Final = 3.0
PUNCTUATION_MARKS: Final = {"none": "", "comma": ",", "stop": ".", "question": "?"}
MIN_MARK_PROBABILITY: Final = 1e-6
# English conjunctions that begin a clause which needs another, and what may come before them.
DEPENDENT_OPENERS: Final = word_set(
    "when whenever if unless once while as because since after before until till whereas which"
)
SENTENCE_OPENERS: Final = word_set("and so but now then or um uh well okay")
MAX_DEPENDENT_WORDS: Final = 12  # longer ones hold their main clause too often
CERTAIN_STOP_PROBABILITY: Final = 0.9  # P(full stop) from which it still stays


def lacks_punctuation(words: Sequence[Word], language: str | None) -> bool:
    """Return whether the words are English and have almost no sentence-final punctuation."""
    if language is not None and language.lower().split("-")[0] not in ("en", "english"):
        return False
    if len(words) < MIN_WORDS:
        return False
    stops = 0
    bare_words = []
    for word in words:
        stops += ends_sentence(word.text)
        bare_words.append(word.text.strip(OUTER_PUNCTUATION + " ").lower())
    return False if stops >= MIN_STOPS_PER_WORD * len(words) else looks_english(bare_words)


def restore_punctuation(words: Sequence[Word]) -> list[Word]:
    """Return the words with punctuation, and a capital letter after each full stop.

    Raises ModelError when the sentence encoder is missing.
    """
    # P(mark) after each word, by the network alone.
    texts = [_plain_text(word.text) for word in words]
    probabilities = load_punctuation_model().predict_punctuation(texts)  # (W, 4)
    logits = np.log(np.maximum(probabilities, MIN_MARK_PROBABILITY))
    stop = PUNCTUATION_MARKS.index("stop")
    # Silence after a word speaks for a full stop.
    stop_log_odds = STOP_LOG_ODDS + STOP_LOG_ODDS_PER_SECOND * _silences(words)
    logits[:, stop] += stop_log_odds
    probabilities = softmax(logits)
    best_marks = probabilities.argmax(axis=1)
    _join_dependent_clauses(texts, best_marks, probabilities[:, stop])
    # A caption may begin with a capital. Words that are written small elsewhere lose it.
    lower_words = {text for text in texts if text.islower()} | FUNCTION_WORDS
    marked = []
    starts_sentence = True
    for plain, number, word in zip(texts, best_marks, words, strict=True):
        mark = PUNCTUATION_MARKS[int(number)]
        sign = PUNCTUATION_MARKS[mark]
        space = " " if word.text.startswith(" ") else ""
        text = space + plain
        if starts_sentence or plain == "i" or plain.startswith("i'"):
            text = _capitalised(text)
        elif plain.istitle() and plain.lower() in lower_words:
            text = text.lower()  # a caption began with it
        if sign and text[-1:].isalnum():
            text += sign
        marked.append(word.model_copy(update={"text": text}))
        starts_sentence = sign in (".", "?")
    return marked


def _join_dependent_clauses(
    texts: Sequence[str], best_marks: np.ndarray, stops: np.ndarray
) -> None:
    """Replace, in place, the full stop between a dependent clause and its main clause by a comma.

    "When it is dry. Sand it." is one sentence, and so is "It looks good. Because it is dry.". The
    less likely of the stops before and after the clause is replaced.

    best: the mark after each word. stops: P(full stop) after each word, (W,).
    """
    stop = PUNCTUATION_MARKS.index("stop")
    comma = PUNCTUATION_MARKS.index("comma")
    ends = np.flatnonzero(best_marks == stop).tolist()
    clause_start = 0
    for end in ends:
        clause = slice(clause_start, end + 1)
        if _is_dependent(texts[clause], best_marks[clause_start:end]):
            stop_after = float(stops[end]) if end + 1 < len(texts) else 1.0
            stop_before = float(stops[clause_start - 1]) if clause_start else 1.0
            weaker_stop = end if stop_after <= stop_before else clause_start - 1
            if best_marks[weaker_stop] == stop and stops[weaker_stop] < CERTAIN_STOP_PROBABILITY:
                best_marks[weaker_stop] = comma
        clause_start = end + 1


def _is_dependent(texts: Sequence[str], marks: np.ndarray) -> bool:
    """Return whether a short text without marks starts as a dependent clause."""
    if len(texts) > MAX_DEPENDENT_WORDS or marks.any():
        return False
    for text in texts:
        word = bare_word(text)
        if word not in SENTENCE_OPENERS:
            return word in DEPENDENT_OPENERS
    return False


def _plain_text(text: str) -> str:
    """Return a word without the brackets that captions put around unclear words."""
    return text.strip().strip("[]")


def _silences(words: Sequence[Word]) -> np.ndarray:
    """Return the seconds of silence after each word, (W,), 0 where times are unknown."""
    silences = np.zeros(len(words))
    for number, (word, following) in enumerate(pairwise(words)):
        if word.span is None or following.span is None:
            continue
        silence = following.span.start - word.span.end
        silences[number] = min(max(0.0, silence), MAX_SILENCE_SECONDS)
    return silences


def _capitalised(text: str) -> str:
    word = text.lstrip()
    return text.removesuffix(word) + word[:1].upper() + word[1:]
