"""The sources of a language model's steps: the sentences that support each step.

A sentence supports a step if it shares its content words and is near in meaning. The sources of
successive steps follow the order of the speech.

Letters: K steps of one reply, S sentences of its chunk, D width of a vector.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from stepline.records import Matrix, Rejected, Sentence, Span, Step
from stepline.writing.extractive.english import parse
from stepline.writing.llm.prompts import Chunk
from stepline.writing.llm.replies import spoken_numbers
from stepline.writing.quantities import numbers
from stepline.writing.types import MAX_ACTION_PAUSE_SECONDS

if TYPE_CHECKING:
    from spacy.tokens import Doc

Embed = Callable[[Sequence[str]], Matrix]  # texts -> (N, D) unit rows

WORD_OVERLAP_WEIGHT = 0.5  # of the spoken fraction of a step's content words, next to a cosine
# Score that a step loses if its sentence is before that of the step before it: models nearly always
# keep the order of the speech.
BACKWARD_COST = 0.1
# From this spoken fraction of a step's content words on, a cosine of WORD_OVERLAP_FLOOR_FACTOR x
# floor is enough. One common verb is less than that.
MIN_WORD_OVERLAP = 0.6
WORD_OVERLAP_FLOOR_FACTOR = 0.5
# The next or previous sentence is cited too if its score is this fraction of the best sentence's.
MIN_NEIGHBOUR_SCORE = 0.85
MIN_NAME_DIGITS = (
    3  # of a name such as "5W-30", which is heard with other breaks between its digits
)
# A step begins with the first cited sentence whose score is this fraction of the best one's. Of what was
# tried on twelve narrations it has most steps within 2 and within 5 s of their labels.
MIN_TOLD_SCORE = 0.7
# Or it begins later, with the first of two of its words that are said within NEAR_WORDS words, if the
# sentence begins this many seconds before and has none of its words in the first second.
MIN_LEAD_SECONDS = 5.0
NEAR_WORDS = 6
# before and after the sources of a step, in which its numbers may be said, and other words of a step
# whose citation does not support it
NEAR_SENTENCES = 3
# spaCy's coarse tags of the words that carry a step
CONTENT_TAGS = frozenset({"NOUN", "PROPN", "VERB", "ADJ", "NUM"})
PARTICLE_TAGS = frozenset({"ADP", "ADV", "PART"})  # of a verb's particle, the "on" of "turn on"
# content words that say nothing of a step
LIGHT_LEMMAS = frozenset(
    {"be", "have", "do", "go", "get", "make", "use", "take", "put", "let", "thing", "step", "-"}
)


@dataclass(frozen=True)
class SupportScores:
    """How well each of S sentences supports each of K steps.

    Attributes:
        cosine: of their vectors, (K, S).
        word_overlap: fraction of the step's content words that the sentence holds, (K, S).
    """

    cosine: Matrix
    word_overlap: Matrix

    @property
    def score(self) -> Matrix:
        """The weighted sum of cosine and word overlap, (K, S)."""
        total = self.cosine + WORD_OVERLAP_WEIGHT * self.word_overlap
        return np.asarray(total, dtype=np.float32)


def cite_sources(
    texts: Sequence[str],
    chunk: Chunk,
    *,
    floor: float,
    embed: Embed,
    cited: Sequence[Sequence[int]] = (),
) -> tuple[list[Step], list[Rejected]]:
    """Return the texts as steps with source sentences, and the texts that no sentence supports.

    A sentence supports a step if their cosine is at least `floor`. Half of that is enough if it
    holds most of the step's content words.

    Args:
        texts: the K steps that the model wrote.
        chunk: the S sentences that they were written from.
        floor: the least cosine.
        embed: returns one unit vector per text, (N, D).
        cited: of each step, the numbers of sentences, from 1, that the model cites. They are taken
            if they support the step together. Empty: the sentences are found.
    """
    if not texts:
        return [], []
    # One sentence per step, in the order of the speech.
    sentences = [sentence.text for sentence in chunk.sentences]
    support = measure_support(texts, sentences, embed)
    score = support.score
    path = align_in_order(score)
    steps: list[Step] = []
    dropped: list[Rejected] = []
    cited_rows = [
        sorted({number - 1 for number in numbers if 1 <= number <= len(sentences)})
        for numbers in cited
    ] or [[]] * len(texts)
    told = [0]
    for k, text in enumerate(texts):
        rows = cited_rows[k]
        if not _support_together(support, k, rows, floor):
            found = _sources(support, chunk, k, path[k], floor)
            # Words that are said far from the cited sentences too: those tell the step.
            is_far = bool(rows and found) and (
                found[-1] < rows[0] - NEAR_SENTENCES or found[0] > rows[-1] + NEAR_SENTENCES
            )
            if not is_far:
                rows = found
        if not rows:
            dropped.append(Rejected(what="step", text=text, reason="no sentence supports it"))
            continue
        after = min((row for later in cited_rows[k + 1 :] for row in later), default=len(sentences))
        told = _told_run(rows, chunk, score[k], range(told[-1], after + 1))
        sources = tuple(chunk.indices[row] for row in rows)
        said = _told_span(text, [chunk.sentences[row] for row in told])
        steps.append(Step(id="0", text=text, sources=sources, said=said))
    return steps, dropped


def _told_run(rows: Sequence[int], chunk: Chunk, score: Matrix, in_order: range) -> list[int]:
    """Return the sentences in which a step is told, of those that it cites: a run without a long pause.

    Of several runs it is one in the order of the steps, then the one with the highest score. An
    announcement is before, another way to do it after. Sentences in front that only prepare the
    step are left out.

    Args:
        rows: indices of the cited sentences, in order.
        chunk: the sentences.
        score: how well each sentence supports the step, (S,).
        in_order: the sentences between the steps before and after.
    """
    runs = [list(rows[:1])]
    for before, row in pairwise(rows):
        if chunk.sentences[before].span.pause(chunk.sentences[row].span) > MAX_ACTION_PAUSE_SECONDS:
            runs.append([])
        runs[-1].append(row)
    run = max(runs, key=lambda run: (run[0] in in_order, float(score[run].sum())))
    min_score = MIN_TOLD_SCORE * float(score[run].max())
    return run[next(k for k, row in enumerate(run) if score[row] >= min_score) :]


def _told_span(text: str, sentences: Sequence[Sentence]) -> Span:
    """Return where sentences tell a step: from its first words there if these come late, else whole
    sentences."""
    start = sentences[0].span.start
    end = max(sentence.span.end for sentence in sentences)
    words = [(word.text, word.span.start) for s in sentences for word in s.words if word.span]
    step_words, *said_words = content_words([text, *(word for word, _ in words)])
    is_told = [not step_words.isdisjoint(lemmas) for lemmas in said_words]
    for k, (_, second) in enumerate(words):
        if is_told[k] and (second < start + 1.0 or sum(is_told[k : k + NEAR_WORDS]) > 1):
            if start + MIN_LEAD_SECONDS <= second < end:
                start = second
            break
    return Span(start, end)


def _support_together(support: SupportScores, k: int, rows: list[int], floor: float) -> bool:
    """Return whether sentences support a step: one of them has a cosine of at least `floor`, or all
    together say most of the step's words and one has a cosine not far below `floor`.

    Args:
        support: cosines and word overlap of all steps and sentences.
        k: index of the step.
        rows: indices of the sentences.
        floor: the least cosine.
    """
    if not rows:
        return False
    cosine = float(support.cosine[k, rows].max())
    overlap = float(support.word_overlap[k, rows].sum())
    least = WORD_OVERLAP_FLOOR_FACTOR * floor if overlap >= MIN_WORD_OVERLAP else floor
    return cosine >= least


def reject_unsaid(
    steps: Sequence[Step], chunk: Chunk, before: str = "", near: int = NEAR_SENTENCES
) -> tuple[list[Step], list[tuple[Step, Rejected]]]:
    """Return the steps whose numbers are all said near their sources, and the others, each with its
    rejection.

    Args:
        steps: of the chunk, with their sources.
        chunk: the sentences that they were written from.
        before: what was said just before the chunk, where that counts as near.
        near: how many sentences before and after a step's sources are near.
    """
    said_steps: list[Step] = []
    rejected: list[tuple[Step, Rejected]] = []
    for step in steps:
        unsaid = _unsaid_numbers(step, chunk, before, near)
        if unsaid:
            names = ", ".join(f"{number:g}" for number in sorted(unsaid))
            reason = f"names {names}, which is not said there"
            rejected.append((step, Rejected(what="step", text=step.text, reason=reason)))
        else:
            said_steps.append(step)
    return said_steps, rejected


def _unsaid_numbers(step: Step, chunk: Chunk, before: str, near: int) -> set[float]:
    first = chunk.indices.index(step.sources[0])
    last = chunk.indices.index(step.sources[-1])
    sentences = chunk.sentences[max(0, first - near) : last + near + 1]
    said = " . ".join([before, *(sentence.text for sentence in sentences)])
    unsaid = numbers(step.text) - spoken_numbers(said) - {1.0}
    # "5W-30" is heard as "530", "L14612" as "L 14 612".
    said_digits = "".join(re.findall(r"\d", said))
    for word in step.text.split():
        digits = "".join(re.findall(r"\d", word))
        if len(digits) >= MIN_NAME_DIGITS and digits in said_digits:
            unsaid -= numbers(word)
    return unsaid


def measure_support(texts: Sequence[str], sentences: Sequence[str], embed: Embed) -> SupportScores:
    """Return how well each of S sentences supports each of K > 0 texts: the cosine of their vectors and the
    share of the text's content words that the sentence says, each (K, S).

    embed: returns one unit vector per text, (N, D).
    """
    count = len(texts)
    # How near they are in meaning.
    texts_and_sentences = [*texts, *sentences]
    rows = embed(texts_and_sentences)  # (K + S, D)
    cosine = np.asarray(rows[:count] @ rows[count:].T, dtype=np.float32)  # (K, S)
    # Which fraction of a step's words is said.
    words = content_words(texts_and_sentences)
    word_overlap = [
        [len(step & sentence) / max(1, len(step)) for sentence in words[count:]]
        for step in words[:count]
    ]
    return SupportScores(cosine, np.array(word_overlap, dtype=np.float32))


def align_in_order(score: Matrix) -> list[int]:
    """Return the index of one sentence per step, so that the sum of their scores is highest. Each step
    whose sentence is before that of the previous step costs BACKWARD_COST.

    score: how well each sentence supports each step, (K, S). Of equal sums the earlier sentence wins.
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
    """Return the lower-case lemmas of each text's content words, without LIGHT_LEMMAS."""
    return [
        frozenset(word.lemma_.lower() for word in doc if word.pos_ in CONTENT_TAGS) - LIGHT_LEMMAS
        for doc in parse(list(texts))
    ]


def name_different_things(one: str, other: str) -> bool:
    """Return whether each of two steps holds a content word, other than a verb, that the other lacks:
    another amount, side or direction ("turn it on", "turn it off")."""
    words, other_words = map(_distinctive_words, parse([one, other]))
    return not words <= other_words and not other_words <= words


def _distinctive_words(doc: "Doc") -> set[str]:
    """Return the lower-case lemmas of a step's content words other than verbs, and of its verbs'
    particles."""
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
    """Return the indices of the best sentence that supports a step and of the sentences next to it that
    support it nearly as well. The list is empty if no sentence supports it.

    Args:
        support: scores of all steps and sentences.
        chunk: the sentences. A neighbour after a long pause is left out.
        k: index of the step.
        best: index of the step's sentence by `align_in_order`.
        floor: the least cosine.
    """
    score = support.score[k]
    supporting = [row for row in range(len(score)) if _support_together(support, k, [row], floor)]
    if not supporting:
        return []
    # The path may lead through a sentence that does not support its step.
    if best not in supporting:
        best = max(supporting, key=lambda row: score[row])
    min_score = MIN_NEIGHBOUR_SCORE * score[best]
    sentences = chunk.sentences
    return [
        row
        for row in supporting
        if row == best
        or (
            abs(row - best) == 1
            and score[row] >= min_score
            and sentences[best].span.pause(sentences[row].span) <= MAX_ACTION_PAUSE_SECONDS
        )
    ]
