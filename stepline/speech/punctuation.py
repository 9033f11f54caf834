"""Restores punctuation in English captions that have none, as speech recognisers write them.

The speaker ends "pasta" at 12.4 s and begins "then" at 14.5 s:

    'first you drain the pasta then you rinse it with cold water'
    ->  'First you drain the pasta. Then you rinse it with cold water.'

A small network gives the probability of each punctuation mark after each word. A silence between
two words makes the end of a sentence more likely.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from stepline.numeric import softmax
from stepline.records import Word
from stepline.speech.sentences import ends_sentence
from stepline.text.narration.punctuation import load_punctuation_model
from stepline.text.narration.words import (
    COMMON_ENGLISH_WORDS,
    OUTER_PUNCTUATION,
    PUNCTUATION_CLASSES,
    bare_word,
    looks_english,
    word_set,
)

MIN_STOPS_PER_WORD = 0.02  # full stops of a text with punctuation
MIN_WORDS = 40  # of a text whose punctuation can be judged
# Log odds of a full stop per second of silence, fitted on six transcripts (docs/writing.md).
STOP_LOG_ODDS = 0.5  # speech has more full stops than written text
STOP_LOG_ODDS_PER_SECOND = 1.0
MAX_SILENCE_SECONDS = 3.0
PUNCTUATION_MARKS = {"none": "", "comma": ",", "stop": ".", "question": "?"}
MIN_MARK_PROBABILITY = 1e-6
# English conjunctions that open a dependent clause, and words that may come before them.
DEPENDENT_OPENERS = word_set(
    "when whenever if unless once while as because since after before until till whereas which"
)
SENTENCE_OPENERS = word_set("and so but now then or um uh well okay")
MAX_DEPENDENT_WORDS = 12  # longer clauses hold their main clause too often
CERTAIN_STOP_PROBABILITY = 0.9  # P(full stop) from which a full stop always stays


def lacks_punctuation(words: Sequence[Word], language: str | None) -> bool:
    """Return whether the words are English and have almost no sentence-final punctuation.

    Args:
        words: words of the whole transcript.
        language: language of the speech, None if unknown.
    """
    if language is not None and language.lower().split("-")[0] not in ("en", "english"):
        return False
    if len(words) < MIN_WORDS:
        return False
    stop_count = sum(ends_sentence(word.text) for word in words)
    bare_words = [word.text.strip(OUTER_PUNCTUATION + " ").lower() for word in words]
    return stop_count < MIN_STOPS_PER_WORD * len(words) and looks_english(bare_words)


def restore_punctuation(words: Sequence[Word]) -> list[Word]:
    """Return the words with punctuation, and a capital letter after each full stop.

    Raises ModelError if the weights of the sentence encoder are missing.
    """
    # Captions put brackets around unclear words.
    texts = [word.text.strip().strip("[]") for word in words]
    probabilities = load_punctuation_model().predict_punctuation(texts)  # (W, 4)
    logits = np.log(np.maximum(probabilities, MIN_MARK_PROBABILITY))
    stop = PUNCTUATION_CLASSES.index("stop")
    # Silence after a word speaks for a full stop.
    logits[:, stop] += STOP_LOG_ODDS + STOP_LOG_ODDS_PER_SECOND * _silences_after(words)
    probabilities = softmax(logits)
    best_marks = probabilities.argmax(axis=1)
    _join_dependent_clauses(texts, best_marks, probabilities[:, stop])
    # A caption may begin with a capital. Words that are lower-case elsewhere lose it.
    lower_words = {text for text in texts if text.islower()} | COMMON_ENGLISH_WORDS
    punctuated = []
    starts_sentence = True
    for plain, number, word in zip(texts, best_marks, words, strict=True):
        mark = PUNCTUATION_MARKS[PUNCTUATION_CLASSES[int(number)]]
        text = plain
        if starts_sentence or plain == "i" or plain.startswith("i'"):
            text = plain[:1].upper() + plain[1:]
        elif plain.istitle() and plain.lower() in lower_words:
            text = plain.lower()
        if mark and text[-1:].isalnum():
            text += mark
        space = " " if word.text.startswith(" ") else ""
        punctuated.append(word.model_copy(update={"text": space + text}))
        starts_sentence = mark in (".", "?")
    return punctuated


def _join_dependent_clauses(
    texts: Sequence[str], best_marks: np.ndarray, stop_probabilities: np.ndarray
) -> None:
    """Replace the full stop between a dependent clause and its main clause by a comma, in place.

    "When it is dry. Sand it." is one sentence, and so is "It looks good. Because it is dry.". Of
    the full stops before and after the clause, the less likely one is replaced.

    Args:
        texts: W words.
        best_marks: (W,) class number of the punctuation mark after each word.
        stop_probabilities: (W,) P(full stop) after each word.
    """
    stop = PUNCTUATION_CLASSES.index("stop")
    comma = PUNCTUATION_CLASSES.index("comma")
    clause_start = 0
    for end in np.flatnonzero(best_marks == stop).tolist():
        if _is_dependent_clause(texts[clause_start : end + 1], best_marks[clause_start:end]):
            after = stop_probabilities[end] if end + 1 < len(texts) else 1.0
            before = stop_probabilities[clause_start - 1] if clause_start else 1.0
            weaker = end if after <= before else clause_start - 1
            is_uncertain = stop_probabilities[weaker] < CERTAIN_STOP_PROBABILITY
            if best_marks[weaker] == stop and is_uncertain:
                best_marks[weaker] = comma
        clause_start = end + 1


def _is_dependent_clause(texts: Sequence[str], marks: np.ndarray) -> bool:
    """Return whether a text is short, has no punctuation and begins like a dependent clause.

    Args:
        texts: its words.
        marks: (W,) class number of the punctuation mark after each word.
    """
    if len(texts) > MAX_DEPENDENT_WORDS or marks.any():
        return False
    words = (word for word in map(bare_word, texts) if word not in SENTENCE_OPENERS)
    return next(words, None) in DEPENDENT_OPENERS


def _silences_after(words: Sequence[Word]) -> np.ndarray:
    """Return the seconds of silence after each word, (W,). 0 if times are unknown."""
    silences = np.zeros(len(words))
    for number, (word, following) in enumerate(pairwise(words)):
        if word.span is None or following.span is None:
            continue
        silence = following.span.start - word.span.end
        silences[number] = min(max(0.0, silence), MAX_SILENCE_SECONDS)
    return silences
