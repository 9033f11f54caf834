"""How well each line of a list fits each sentence of a narration: the evidence of `line_model`.

    cosine       of the line and the sentence
    contrast     that cosine, less the mean over the lines: what a sentence says of all alike counts
                 for none
    context      the cosine with the mean of the sentence and its two neighbours
    words        the share of the IDF mass of the line's words and numbers that the sentence holds
    near words   the share that the sentence and its neighbours hold
    position     how far the sentence's place in the narration is from the line's in the list
    length       of the sentence: the logarithm of its words
    step         log odds that the sentence tells a step, as far as known

Letters: K lines, S sentences, F features, D width.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.numeric import logit, unit_rows
from stepline.records import Matrix

Features = npt.NDArray[np.float64]

FEATURE_NAMES = (
    "cosine",
    "contrast",
    "context",
    "words",
    "near_words",
    "position",
    "length",
    "step",
)
MIN_WORD_LETTERS = 3  # shorter words say little
MIN_MASS = 1e-9  # of IDF, against a division by zero
MIN_STEP_MARGIN = 0.02  # of P(describes a step) from 0 and 1
# an English ending after three letters or more, and the letter that was doubled before it
ENDING_PATTERN = re.compile(r"(?<=[a-z]{3})(?:ing|ed|ies|es|s|er|y|e)$")
DOUBLE_PATTERN = re.compile(r"([b-df-hj-np-tv-z])\1$")
WORD_PATTERN = re.compile(r"[^\W\d_]+|\d+(?:[.,/]\d+)?")


def line_features(
    lines: Sequence[str],
    sentences: Sequence[str],
    line_vectors: Matrix,
    sentence_vectors: Matrix,
    step_probabilities: npt.NDArray[np.float64] | None = None,
) -> Features:
    """Return the features (K, S, F) in the order of FEATURE_NAMES.

    line_vectors: (K, D), sentence_vectors: (S, D), of one sentence encoder.
    step_probabilities: (S,) P(the sentence describes a step). None: unknown, and the feature is 0.
    """
    # Cosines with each sentence, and with it among its neighbours.
    line_rows = unit_rows(np.asarray(line_vectors, np.float64))
    sentence_rows = unit_rows(np.asarray(sentence_vectors, np.float64))
    cosine = line_rows @ sentence_rows.T  # (K, S)
    context_rows = unit_rows(sum_with_neighbours(sentence_rows))
    context = line_rows @ context_rows.T
    # Words that lines and sentences share.
    overlap = word_overlap(lines, sentences)
    shape = cosine.shape
    features = (
        cosine,
        cosine - cosine.mean(axis=0, keepdims=True),
        context,
        overlap.words,
        overlap.near_words,
        position_distance(*shape),
        np.broadcast_to(sentence_lengths(sentences), shape),
        np.broadcast_to(step_log_odds(step_probabilities, shape[1]), shape),
    )
    return np.stack(features, axis=-1)


def sum_with_neighbours(rows: Features) -> Features:
    """Return each row (N, D) plus the one before and the one after it."""
    total = rows.copy()
    total[1:] += rows[:-1]
    total[:-1] += rows[1:]
    return total


@dataclass(frozen=True)
class WordOverlap:
    """The shares of the lines' words that sentences hold, (K, S) each."""

    words: Features
    near_words: Features


def word_overlap(lines: Sequence[str], sentences: Sequence[str]) -> WordOverlap:
    """Return which part of each line's words the sentences hold. Rare words of the narration weigh
    more."""
    spoken = [content_words(sentence) for sentence in sentences]
    frequency: Counter[str] = Counter()
    for sentence_stems in spoken:
        frequency.update(sentence_stems)
    shape = (len(lines), len(sentences))
    words = np.zeros(shape)
    near_words = np.zeros(shape)
    for k, line in enumerate(lines):
        # sorted, so that the sums are the same in every run
        stems = sorted(content_words(line))
        if not stems:
            continue
        # A word's IDF in this narration. The half keeps that of a word never said finite.
        counts = np.array([frequency[stem] for stem in stems], dtype=np.float64)
        masses = np.log((len(sentences) + 1) / (counts + 0.5))
        shares = masses / max(float(masses.sum()), MIN_MASS)
        holds = np.zeros((len(stems), len(sentences)))
        for row, stem in zip(holds, stems, strict=True):
            row[:] = [stem in sentence_stems for sentence_stems in spoken]
        words[k] = shares @ holds
        # A word that neighbours repeat counts once.
        holds_near = sum_with_neighbours(holds.T).T
        near_words[k] = shares @ np.minimum(holds_near, 1.0)
    return WordOverlap(words, near_words)


def content_words(text: str) -> set[str]:
    """Return the stems of a text's words, and its numbers."""
    stems = set()
    for word in WORD_PATTERN.findall(text.lower()):
        if word[0].isdigit():
            stems.add(word)
        elif len(word) >= MIN_WORD_LETTERS:
            stems.add(without_ending(word))
    return stems


def without_ending(word: str) -> str:
    """Return an English word without its ending: of "chopped", "chops" and "chop" alike "chop"."""
    stem = ENDING_PATTERN.sub("", word)
    return DOUBLE_PATTERN.sub(r"\1", stem)


def position_distance(lines: int, sentences: int) -> Features:
    """Return (K, S): how far each sentence is from where a line is said if all take as long."""
    line_places = (np.arange(lines) + 0.5) / max(1, lines)
    sentence_places = (np.arange(sentences) + 0.5) / max(1, sentences)
    return np.abs(line_places[:, None] - sentence_places)


def sentence_lengths(sentences: Sequence[str]) -> Features:
    """Return (S,): the logarithm of the number of words, against a sentence of eight."""
    counts = [max(1, len(sentence.split())) for sentence in sentences]
    return np.log(np.array(counts, dtype=np.float64) / 8.0)


def step_log_odds(probabilities: npt.NDArray[np.float64] | None, sentences: int) -> Features:
    """Return (S,): log odds that a sentence describes a step, less their mean, 0 where unknown."""
    if probabilities is None:
        return np.zeros(sentences)
    odds: Features = logit(np.asarray(probabilities, np.float64), MIN_STEP_MARGIN)
    if len(odds):
        odds = odds - odds.mean()
    return odds
