"""Finds the sentences that a model's step rests on: shared content words and nearness in meaning, in the told order.

Letters: K steps of one reply, S sentences of its chunk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.records import Dropped, Matrix, Step
from stepline.writing.chunks import Chunk
from stepline.writing.english import parse
from stepline.writing.merge import union

Embed = Callable[[Sequence[str]], Matrix]  # texts -> (N, D) unit rows

WORDS = 0.5  # weight of the shared share of a step's content words, beside a cosine
BACK = 0.1  # cost of citing an earlier sentence than the step before: models keep the told order, but for slips
SHARED = 0.6  # with this share of a step's content words said, WORD_FLOOR x floor is enough; one common verb is not
WORD_FLOOR = 0.5
BESIDE = 0.85  # a neighbour that scores this share of the best sentence is cited too
CONTENT = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "NUM"})  # spaCy's coarse tags of the words that carry a step
LIGHT = frozenset({"be", "have", "do", "go", "get", "make", "use", "take", "put", "let", "thing", "step"})  # no sign


@dataclass(frozen=True)
class Support:
    """How well each sentence supports each step: cosine and shared share of content words, both (K, S)."""

    cosine: Matrix
    shared: Matrix

    @property
    def score(self) -> Matrix:
        """The sum by which sentences are chosen, (K, S)."""
        return np.asarray(self.cosine + WORDS * self.shared, dtype=np.float32)


def cite(texts: Sequence[str], chunk: Chunk, *, floor: float, embed: Embed) -> tuple[list[Step], list[Dropped]]:
    """Return the texts as steps that cite sentences of the chunk, and those that no sentence supports.

    A sentence supports a step when their cosine is at least `floor`, or half of that where it says most of the step's
    content words.
    """
    support = measure(texts, [sentence.text for sentence in chunk.sentences], embed)
    chosen = in_order(support.score) if texts else []
    steps: list[Step] = []
    dropped: list[Dropped] = []
    for k, text in enumerate(texts):
        rows = _sources(support, k, chosen[k], floor)
        if rows:
            steps.append(_step(text, chunk, rows))
        else:
            dropped.append(Dropped(what="step", text=text, reason="no sentence supports it"))
    return steps, dropped


def measure(texts: Sequence[str], sentences: Sequence[str], embed: Embed) -> Support:
    """Return how well each of the S sentences supports each of the K texts."""
    if not texts:
        return Support(np.zeros((0, len(sentences)), np.float32), np.zeros((0, len(sentences)), np.float32))
    rows = embed([*texts, *sentences])
    cosine = np.asarray(rows[: len(texts)] @ rows[len(texts) :].T, dtype=np.float32)  # (K, S)
    words = content_words([*texts, *sentences])
    shared = [[_share(step, said) for said in words[len(texts) :]] for step in words[: len(texts)]]
    return Support(cosine, np.asarray(shared, dtype=np.float32).reshape(cosine.shape))  # (K, S)


def in_order(score: Matrix) -> list[int]:
    """Return one sentence a step: the best sum of scores, where each step back in time costs BACK.

    score: (K, S). Ties keep the earlier sentence.
    """
    best = score[0].astype(np.float64)  # (S,)
    came = np.zeros(score.shape, dtype=np.int64)  # (K, S): the sentence of the step before
    for k in range(1, len(score)):
        moves = best[:, None] - BACK * np.tri(len(best), k=-1)  # (S, S): from row to column; below = backwards
        came[k] = moves.argmax(axis=0)
        best = moves.max(axis=0) + score[k]
    path = [int(best.argmax())]
    for k in range(len(score) - 1, 0, -1):
        path.append(int(came[k, path[-1]]))
    return path[::-1]


def content_words(texts: Sequence[str]) -> list[frozenset[str]]:
    """Return the lemmas of each text's content words, in lower case."""
    return [
        frozenset(
            word.lemma_.lower() for word in doc if word.pos_ in CONTENT and word.lemma_.lower() not in LIGHT | {"-"}
        )
        for doc in parse(list(texts))
    ]


def _share(step: frozenset[str], said: frozenset[str]) -> float:
    return len(step & said) / len(step) if step else 0.0


def _sources(support: Support, k: int, chosen: int, floor: float) -> list[int]:
    """Return the chosen sentence, if it supports step k, and the neighbours that support it nearly as well."""
    score = support.score[k]
    cosine, shared = support.cosine[k], support.shared[k]
    supported = (cosine >= floor) | ((cosine >= WORD_FLOOR * floor) & (shared >= SHARED))
    if not supported[chosen]:
        others = np.flatnonzero(supported)
        if not len(others):
            return []
        chosen = int(others[score[others].argmax()])
    beside = [s for s in (chosen - 1, chosen + 1) if 0 <= s < len(score)]
    return sorted([chosen, *(s for s in beside if supported[s] and score[s] >= BESIDE * score[chosen])])


def _step(text: str, chunk: Chunk, rows: Sequence[int]) -> Step:
    return Step(
        id="0",
        text=text,
        sources=tuple(chunk.places[row] for row in rows),
        said=union(chunk.sentences[row].span for row in rows),
    )
