"""What the steps of a language model rest on: the sentences, or pictures, that support each.

A step's sources are the sentences that share its content words and are near in meaning, in the
order of the speech.

Letters: K steps of one reply, S sentences of its chunk.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepline.records import Matrix, Rejected, Step, covering_span
from stepline.writing.extractive.english import parse
from stepline.writing.llm.prompts import Chunk

Embed = Callable[[Sequence[str]], Matrix]  # texts -> (N, D) unit rows

WORD_WEIGHT = 0.5  # of the shared fraction of a step's content words, next to a cosine
# cost of citing an earlier sentence than the step before: models keep the order of the speech, but
# for slips
BACKWARD_COST = 0.1
# with this fraction of a step's content words said, WORD_FLOOR x floor is enough; one common verb
# is not
MIN_SHARED_WORDS = 0.6
WORD_FLOOR = 0.5
# a neighbour that scores this fraction of the best sentence is cited too
MIN_NEIGHBOUR_SCORE = 0.85
# spaCy's coarse tags of the words that carry a step
CONTENT_TAGS = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "NUM"})
PARTICLE_TAGS = frozenset({"ADP", "ADV", "PART"})  # of "on" behind "turn"
PICTURE_STEP_REMARK = "seen, not said: a picture at {:.1f} s, by the writer"
PICTURE_REMARK = "for: the writer names what a picture at {:.1f} s shows"
_PICTURE_SECOND = re.compile(r"\ba picture at (\d+\.\d) s\b")  # in both of them
# content words that say nothing of a step
LIGHT_LEMMAS = frozenset(
    {"be", "have", "do", "go", "get", "make", "use", "take", "put", "let", "thing", "step", "-"}
)


@dataclass(frozen=True)
class Support:
    """How well each sentence supports each step: cosine and shared share of content words, both (K,
    S)."""

    cosine: Matrix
    shared: Matrix

    @property
    def score(self) -> Matrix:
        """The sum by which sentences are chosen, (K, S)."""
        return np.asarray(self.cosine + WORD_WEIGHT * self.shared, dtype=np.float32)


def cite_sources(
    texts: Sequence[str],
    chunk: Chunk,
    *,
    floor: float,
    embed: Embed,
    seconds: Sequence[Sequence[float]] = (),
    start: float = 0.0,
) -> tuple[list[Step], list[Rejected]]:
    """Return the texts as steps that cite sentences of the chunk, and those that no sentence
    supports.

    A sentence supports a step when their cosine is at least `floor`, or half of that where it says
    most of the step's content words. seconds: of the pictures that each text names, if any: half
    the floor is enough beside one, and a text that no sentence supports rests on the first alone.
    start: of the part of the video, for what is told of them.
    """
    support = measure_support(texts, [sentence.text for sentence in chunk.sentences], embed)
    path = choose_in_order(support.score) if texts else []
    steps: list[Step] = []
    dropped: list[Rejected] = []
    for k, text in enumerate(texts):
        pictures = seconds[k] if seconds else ()
        rows = _sources(support, k, path[k], floor * (WORD_FLOOR if pictures else 1.0))
        if not rows and not pictures:
            dropped.append(Rejected(what="step", text=text, reason="no sentence supports it"))
            continue
        remark = PICTURE_REMARK if rows else PICTURE_STEP_REMARK
        step = Step(
            id="0",
            text=text,
            sources=tuple(chunk.indices[row] for row in rows),
            said=covering_span(chunk.sentences[row].span for row in rows),
            at=None if rows else pictures[0],
            seen=tuple(remark.format(start + second) for second in pictures),
        )
        steps.append(step)
    return steps, dropped


def named_seconds(step: Step) -> list[float]:
    """Return the seconds, of the whole video, of the pictures that the writer says a step rests
    on."""
    return [float(second) for words in step.seen for second in _PICTURE_SECOND.findall(words)]


def measure_support(texts: Sequence[str], sentences: Sequence[str], embed: Embed) -> Support:
    """Return how well each of the S sentences supports each of the K texts."""
    if not texts:
        nothing = np.zeros((0, len(sentences)), np.float32)
        return Support(nothing, nothing)
    count = len(texts)
    rows = embed([*texts, *sentences])
    cosine = np.asarray(rows[:count] @ rows[count:].T, dtype=np.float32)  # (K, S)
    words = content_words([*texts, *sentences])
    shared = np.zeros(cosine.shape, dtype=np.float32)  # (K, S)
    for row, step in zip(shared, words[:count], strict=True):
        if step:
            row[:] = [len(step & sentence) / len(step) for sentence in words[count:]]
    return Support(cosine, shared)


def choose_in_order(score: Matrix) -> list[int]:
    """Return one sentence a step: the best sum of scores, where each step back in time costs
    BACKWARD_COST.

    score: (K, S). Ties keep the earlier sentence.
    """
    best = score[0].astype(np.float64)  # (S,)
    previous = np.zeros(score.shape, dtype=np.int64)  # (K, S): the sentence of the step before
    for k in range(1, len(score)):
        # (S, S): from row to column; below = backwards
        moves = best[:, None] - BACKWARD_COST * np.tri(len(best), k=-1)
        previous[k] = moves.argmax(axis=0)
        best = moves.max(axis=0) + score[k]
    path = [int(best.argmax())]
    for k in range(len(score) - 1, 0, -1):
        path.append(int(previous[k, path[-1]]))
    return path[::-1]


def content_words(texts: Sequence[str]) -> list[frozenset[str]]:
    """Return the lemmas of each text's content words, in lower case."""
    words = []
    for doc in parse(list(texts)):
        lemmas = {word.lemma_.lower() for word in doc if word.pos_ in CONTENT_TAGS}
        words.append(frozenset(lemmas - LIGHT_LEMMAS))
    return words


def say_different_things(one: str, other: str) -> bool:
    """Tell whether each of two steps names something that the other does not, verbs aside: other
    amounts, sides or directions, as in "turn it on" and "turn it off"."""
    words = []
    for doc in parse([one, other]):
        named = set()
        for word in doc:
            # "on" of "turn on": behind its verb, and not one of the small words between two things
            is_particle = (
                word.i > 0 and doc[word.i - 1].pos_ == "VERB" and word.pos_ in PARTICLE_TAGS
            )
            if is_particle or (word.pos_ in CONTENT_TAGS and word.pos_ != "VERB"):
                named.add(word.lemma_.lower())
        words.append(named - LIGHT_LEMMAS)
    return bool(words[0] - words[1]) and bool(words[1] - words[0])


def _sources(support: Support, k: int, best: int, floor: float) -> list[int]:
    """Return the best sentence, if it supports step k, and the neighbours that support it nearly as
    well."""
    score = support.score[k]
    cosine, shared = support.cosine[k], support.shared[k]
    said = (cosine >= WORD_FLOOR * floor) & (shared >= MIN_SHARED_WORDS)
    supporting = np.flatnonzero((cosine >= floor) | said).tolist()
    if not supporting:
        return []
    if best not in supporting:
        best = max(supporting, key=lambda row: score[row])
    least = MIN_NEIGHBOUR_SCORE * score[best]
    return [s for s in supporting if s == best or (abs(s - best) == 1 and score[s] >= least)]
