"""What the steps of a language model rest on: the sentences that support each step.

A step's sources are the sentences that share its content words and are near in meaning, in the
order of the speech.

Letters: K steps of one reply, S sentences of its chunk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepline.records import Matrix, Rejected, Step, covering_span
from stepline.writing.extractive.english import parse
from stepline.writing.llm.prompts import Chunk
from stepline.writing.types import MAX_ACTION_PAUSE_SECONDS

if TYPE_CHECKING:
    from spacy.tokens import Doc

Embed = Callable[[Sequence[str]], Matrix]  # texts -> (N, D) unit rows

WORD_OVERLAP_WEIGHT = 0.5  # of the shared fraction of a step's content words, next to a cosine
# cost of citing an earlier sentence than the step before: models keep the order of the speech, but
# for slips
BACKWARD_COST = 0.1
# With this fraction of a step's content words said, WORD_OVERLAP_FLOOR_FACTOR x floor is enough. One common verb
# is not.
MIN_WORD_OVERLAP = 0.6
WORD_OVERLAP_FLOOR_FACTOR = 0.5
# a neighbour that scores this fraction of the best sentence is cited too
MIN_NEIGHBOUR_SCORE = 0.85
# spaCy's coarse tags of the words that carry a step
CONTENT_TAGS = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "NUM"})
PARTICLE_TAGS = frozenset({"ADP", "ADV", "PART"})  # of "on" behind "turn"
# content words that say nothing of a step
LIGHT_LEMMAS = frozenset(
    {"be", "have", "do", "go", "get", "make", "use", "take", "put", "let", "thing", "step", "-"}
)


@dataclass(frozen=True)
class SupportScores:
    """How well each sentence supports each step: cosine and overlap of content words, both (K, S)."""

    cosine: Matrix
    word_overlap: Matrix

    @property
    def score(self) -> Matrix:
        """The weighted sum of cosine and word overlap, (K, S)."""
        total = self.cosine + WORD_OVERLAP_WEIGHT * self.word_overlap
        return np.asarray(total, dtype=np.float32)


def cite_sources(
    texts: Sequence[str], chunk: Chunk, *, floor: float, embed: Embed
) -> tuple[list[Step], list[Rejected]]:
    """Return the texts as steps that cite sentences of the chunk, and the unsupported texts.

    A sentence supports a step when their cosine is at least `floor`, or half of that where it says
    most of the step's content words.

    Args:
        texts: K steps of the model.
        chunk: S sentences.
        floor: cosine.
        embed: texts to unit vectors.
    """
    if not texts:
        return [], []
    # One sentence per step, in the order of the speech.
    sentences = [sentence.text for sentence in chunk.sentences]
    support = measure_support(texts, sentences, embed)
    path = align_in_order(support.score)
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for k, text in enumerate(texts):
        rows = _sources(support, chunk, k, path[k], floor)
        if not rows:
            rejected = Rejected(what="step", text=text, reason="no sentence supports it")
            dropped.append(rejected)
            continue
        step = Step(
            id="0",
            text=text,
            sources=tuple(chunk.indices[row] for row in rows),
            said=covering_span(chunk.sentences[row].span for row in rows),
        )
        steps.append(step)
    return steps, dropped


def measure_support(texts: Sequence[str], sentences: Sequence[str], embed: Embed) -> SupportScores:
    """Return how well each of the S sentences supports each of the K texts."""
    if not texts:
        no_rows = np.zeros((0, len(sentences)), np.float32)
        return SupportScores(no_rows, no_rows)
    count = len(texts)
    # How near they are in meaning.
    texts_and_sentences = [*texts, *sentences]
    rows = embed(texts_and_sentences)  # (K + S, D)
    cosine = np.asarray(rows[:count] @ rows[count:].T, dtype=np.float32)  # (K, S)
    # Which share of a step's words is said.
    words = content_words(texts_and_sentences)
    step_words = words[:count]
    sentence_words = words[count:]
    word_overlap = np.zeros(cosine.shape, dtype=np.float32)  # (K, S)
    for row, step in zip(word_overlap, step_words, strict=True):
        if step:
            row[:] = [len(step & sentence) / len(step) for sentence in sentence_words]
    return SupportScores(cosine, word_overlap)


def align_in_order(score: Matrix) -> list[int]:
    """Return the sentence index of each step: the best path, with BACKWARD_COST per step back in
    time.

    score: (K, S). Ties keep the earlier sentence.
    """
    # Viterbi: the best sum of a path that ends in each sentence.
    best = score[0].astype(np.float64)  # (S,)
    previous = np.zeros(score.shape, dtype=np.int64)  # (K, S): the sentence of the step before
    for k in range(1, len(score)):
        is_backward = np.tri(len(best), k=-1)  # (S, S): from row to column
        move_scores = best[:, None] - BACKWARD_COST * is_backward
        # argmax keeps the earlier of two equal sentences.
        previous[k] = move_scores.argmax(axis=0)
        best = move_scores.max(axis=0) + score[k]
    # The best path, read from its end.
    sentence = int(best.argmax())
    path = [sentence]
    for k in range(len(score) - 1, 0, -1):
        sentence = int(previous[k, sentence])
        path.append(sentence)
    return path[::-1]


def content_words(texts: Sequence[str]) -> list[frozenset[str]]:
    """Return the lower-case lemmas of each text's content words."""
    words = []
    for doc in parse(list(texts)):
        lemmas: set[str] = set()
        for word in doc:
            if word.pos_ in CONTENT_TAGS:
                lemmas.add(word.lemma_.lower())
        words.append(frozenset(lemmas - LIGHT_LEMMAS))
    return words


def name_different_things(one: str, other: str) -> bool:
    """Return whether each of two steps names something that the other does not, verbs aside.

    Such as other amounts, sides or directions: "turn it on" and "turn it off".
    """
    doc, other_doc = parse([one, other])
    words = _distinctive_words(doc)
    other_words = _distinctive_words(other_doc)
    return not words <= other_words and not other_words <= words


def _distinctive_words(doc: "Doc") -> set[str]:
    """Return the lemmas of a step's content words without verbs, and of the verbs' particles."""
    lemmas: set[str] = set()
    tag_before = ""
    for word in doc:
        tag = word.pos_
        # "on" of "turn on": behind its verb, and not one of the small words between two things
        is_particle = tag_before == "VERB" and tag in PARTICLE_TAGS
        if is_particle or (tag in CONTENT_TAGS and tag != "VERB"):
            lemmas.add(word.lemma_.lower())
        tag_before = tag
    return lemmas - LIGHT_LEMMAS


def _sources(support: SupportScores, chunk: Chunk, k: int, best: int, floor: float) -> list[int]:
    """Return the best sentence that supports a step, and neighbours that support it nearly as well."""
    score = support.score[k]
    cosine = support.cosine[k]
    has_word_overlap = support.word_overlap[k] >= MIN_WORD_OVERLAP
    is_supporting = cosine >= floor
    is_supporting |= has_word_overlap & (cosine >= WORD_OVERLAP_FLOOR_FACTOR * floor)
    supporting: list[int] = np.flatnonzero(is_supporting).tolist()
    if not supporting:
        return []
    # The path may lead through a sentence that does not support its step.
    if best not in supporting:
        best = max(supporting, key=lambda row: score[row])
    best_span = chunk.sentences[best].span
    min_score = MIN_NEIGHBOUR_SCORE * score[best]
    sources: list[int] = []
    for row in supporting:
        is_neighbour = abs(row - best) == 1 and score[row] >= min_score
        is_neighbour &= best_span.pause(chunk.sentences[row].span) <= MAX_ACTION_PAUSE_SECONDS
        if row == best or is_neighbour:
            sources.append(row)
    return sources
