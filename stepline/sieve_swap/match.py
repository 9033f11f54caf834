"""Nearest human-written step of each piece of narration, or why it has none (section 4.2, eq. 6).

For instance, `align_in_order` with floor 0.6, of 3 sentences and 2 steps:

    similarity    step 0    step 1
    sentence 0    0.8       0.1         step 0, it gains 0.8 - 0.6 = 0.2
    sentence 1    0.2       0.3         idle, both are under 0.6
    sentence 2    0.1       0.9         step 1, it gains 0.3         -> [0, -1, 1], total 0.5

`nearest_steps` looks each piece up by itself, as the paper does. `ordered_steps` aligns the
narration with the steps of one document in its order, by dynamic programming with an idle state
(`align_in_order`). `steps_by_line_model` aligns them by the model that places a user's own lines
(`grounding/line_model.py`). A piece is a sentence, or short neighbours merged (appendix A.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.grounding.line_model import LinePosterior, match_lines
from stepline.records import Matrix, Sentence, Span
from stepline.sieve_swap.agreement import change
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.text_base.base import TextBase
from stepline.sieve_swap.text_base.documents import TextStep
from stepline.sieve_swap.text_base.vectors import Rows


@dataclass(frozen=True)
class NarrationSegment:
    """Narration as it is looked up. span: seconds. sources: indices of its sentences, ascending."""

    text: str
    span: Span
    sources: tuple[int, ...]


def segments(sentences: Sequence[Sentence], settings: SwapSettings) -> list[NarrationSegment]:
    """Return the narration in pieces: each sentence one, or short neighbours merged where `merge`
    is "before".

    Two consecutive pieces merge when both are shorter than `longest_merged` and less than
    `merge_gap` seconds apart. A merged piece counts by its own length when the next sentence comes,
    so that none is longer than 2 x longest_merged + merge_gap. The paper leaves that open.
    Sentences without text are left out.
    """
    single = []
    for index, sentence in enumerate(sentences):
        text = sentence.text.strip()
        if text:
            single.append(NarrationSegment(text, sentence.span, (index,)))
    if settings.merge == "after":
        return single
    merged: list[NarrationSegment] = []
    for segment in single:
        if merged and _are_short_neighbours(merged[-1], segment, settings):
            merged[-1] = join([merged[-1], segment])
        else:
            merged.append(segment)
    return merged


def _are_short_neighbours(
    first: NarrationSegment, second: NarrationSegment, settings: SwapSettings
) -> bool:
    if max(first.span.duration, second.span.duration) >= settings.longest_merged:
        return False
    return near(first.span, second.span, settings)


def near(first: Span, second: Span, settings: SwapSettings) -> bool:
    """Return whether two spans are less than `merge_gap` seconds apart. Overlapping ones have no
    gap."""
    return second.start - first.end < settings.merge_gap


def join(parts: Sequence[NarrationSegment]) -> NarrationSegment:
    """Return consecutive segments as one, from the first's start to the latest end."""
    text = " ".join(part.text for part in parts)
    sources: list[int] = []
    for part in parts:
        sources += part.sources
    start = min(part.span.start for part in parts)
    end = max(part.span.end for part in parts)
    return NarrationSegment(text, Span(start, end), tuple(sources))


StepIndices: TypeAlias = npt.NDArray[np.int64]

IDLE_SENTENCE = -1  # the sentence states no step


def align_in_order(similarity: Matrix, floor: float) -> tuple[StepIndices, float]:
    """Return the step of each sentence, IDLE for none, and the total gain. Step numbers never go
    back.

    similarity: (S, K) cosine of sentence and step. A sentence at a step gains similarity - floor,
    an idle one 0. The total is the greatest possible. Several sentences may state one step, and
    steps may be left out. Ties prefer idle, then the earlier step. Source: beyond the paper, which
    takes each sentence's nearest step by itself.
    """
    if similarity.ndim != 2:
        raise ShapeError(f"similarity must be (sentences, steps), not {similarity.shape}")
    sentence_count, step_count = similarity.shape
    gain = similarity.astype(np.float64) - floor
    # best[k + 1]: the greatest gain of the sentences so far where their last step is at most k
    best = np.zeros(step_count + 1)
    indexes = np.arange(step_count + 1)
    # whether the sentence states step k itself, because that gains more than idling
    states_step = np.zeros((sentence_count, step_count), dtype=bool)
    came_from = np.zeros((sentence_count, step_count + 1), dtype=np.int64)
    for row in range(sentence_count):
        idle = best[1:]
        with_step = idle + gain[row]
        states_step[row] = with_step > idle
        step_gains = np.maximum(with_step, idle)
        gains = np.concatenate([best[:1], step_gains])
        best = np.maximum.accumulate(gains)
        # the first index whose gain is the running maximum
        is_higher = best[1:] > best[:-1]
        is_new = np.concatenate([[True], is_higher])
        new_indexes = np.where(is_new, indexes, 0)
        came_from[row] = np.maximum.accumulate(new_indexes)
    # back from the last sentence
    assigned = np.full(sentence_count, IDLE_SENTENCE, dtype=np.int64)
    index = step_count
    for row in reversed(range(sentence_count)):
        index = int(came_from[row, index])
        if index and states_step[row, index - 1]:
            assigned[row] = index - 1
    return assigned, float(best[-1])


DocumentIds: TypeAlias = npt.NDArray[np.int64]

MAX_ORDERED_DOCUMENTS = 20  # paired with a video, the most likely first, whose order is tried
TOO_FAR = "no step is near enough"
NOT_IN_ORDER = "no step of the document that fits best is near enough, in its order"
NO_DOCUMENT = "the video has no document"
NOT_TOLD = "it states no step of the document that fits best"

# that a step is stated in this piece of narration, and that it is stated at all. Both are needed to
# pass the sieve of "line-model".
MIN_TOLD_PROBABILITY = 0.5

COSINE_ROUNDING = 1e-6  # of a cosine of float32 vectors, so that equal texts reach a threshold of 1


@dataclass(frozen=True)
class Match:
    """A piece of narration and the step that it states. similarity: their cosine."""

    segment: NarrationSegment
    step: TextStep
    similarity: float


@dataclass(frozen=True)
class KeptAsSaid:
    """A piece of narration that states a step and keeps its words: no written step is near enough
    and agrees."""

    segment: NarrationSegment
    similarity: float


@dataclass(frozen=True)
class SieveRejection:
    """A piece of narration that is sieved out. reason: one of a few, fit for counting."""

    segment: NarrationSegment
    reason: str


SegmentOutcome: TypeAlias = Match | KeptAsSaid | SieveRejection


def nearest_steps(
    narration: Sequence[NarrationSegment],
    vectors: Matrix,
    base: TextBase,
    documents: DocumentIds | None,
    settings: SwapSettings,
) -> list[SegmentOutcome]:
    """Return for each segment its nearest step that keeps what was said. documents: search the
    steps of these only.

    vectors: (S, D) unit. A segment without a step as near as `floor` is sieved out. With `check`, a
    step that changes a number, a unit or a negation gives way to the next nearest, up to
    `candidates`. Where none of them is as near as `swap_similarity` and agrees, `unswapped` says
    what becomes of the segment.
    """
    if not narration or (documents is not None and not len(documents)):
        return [SieveRejection(segment, NO_DOCUMENT) for segment in narration]
    # As many steps as may have to give way.
    count = 1
    if settings.check:
        count = settings.candidates
    rows, cosines = base.nearest(vectors, count, documents=documents)
    floor = settings.floor - COSINE_ROUNDING
    is_near = (cosines >= floor) & (rows >= 0)
    # Every near step is read once.
    near_rows = np.unique(rows[is_near])
    steps = _steps_by_row(base, near_rows)
    # The nearest step that changes nothing of what was said.
    outcomes: list[SegmentOutcome] = []
    for n, segment in enumerate(narration):
        segment_rows = rows[n][is_near[n]]
        segment_cosines = cosines[n][is_near[n]]
        near_steps = [steps[row] for row in segment_rows.tolist()]
        candidates = list(zip(near_steps, segment_cosines.tolist(), strict=True))
        outcomes.append(_first_that_agrees(segment, candidates, settings))
    return outcomes


def _steps_by_row(base: TextBase, rows: Rows) -> dict[int, TextStep]:
    if not len(rows):
        return {}
    steps = base.steps(rows)
    return dict(zip(rows.tolist(), steps, strict=True))


def _first_that_agrees(
    segment: NarrationSegment, candidates: Sequence[tuple[TextStep, float]], settings: SwapSettings
) -> SegmentOutcome:
    if not candidates:
        return SieveRejection(segment, TOO_FAR)
    _, best_cosine = candidates[0]
    reason = TOO_FAR
    for step, cosine in candidates:
        if cosine < settings.swap_similarity - COSINE_ROUNDING:
            break
        changed = _change(segment.text, step, settings)
        if changed is None:
            return Match(segment, step, cosine)
        if reason == TOO_FAR:
            reason = changed
    return _unmatched(segment, reason, best_cosine, settings)


def _change(narration: str, step: TextStep, settings: SwapSettings) -> str | None:
    """Return what a step changes of what was said, None for nothing, or without `check`."""
    if not settings.check:
        return None
    return change(narration, step.text, new_numbers=settings.new_numbers)


def _unmatched(
    segment: NarrationSegment, reason: str, cosine: float, settings: SwapSettings
) -> SegmentOutcome:
    """Return what becomes of a segment that passes the sieve and has no step. cosine: of its
    nearest."""
    if settings.unswapped == "own words":
        return KeptAsSaid(segment, cosine)
    return SieveRejection(segment, reason)


def ordered_steps(
    narration: Sequence[NarrationSegment],
    vectors: Matrix,
    base: TextBase,
    documents: DocumentIds,
    settings: SwapSettings,
) -> list[SegmentOutcome]:
    """Return for each segment a step of the one document whose steps, in its order, fit best.

    documents: those tried, the most likely first. Ties prefer the earlier. Steps that change what
    was said are not taken.
    """
    best_gain = 0.0
    best_rows = np.full(len(narration), IDLE_SENTENCE, dtype=np.int64)
    best_cosines: Matrix = np.zeros(len(narration), dtype=np.float32)
    # The document whose steps, in their order, fit best.
    for document in documents[:MAX_ORDERED_DOCUMENTS]:
        rows = base.rows_of(int(document))
        similarity = vectors @ base.vectors(rows).T  # (S, K)
        allowed = _without_changes(narration, similarity, base.steps(rows), settings)
        assigned, gain = align_in_order(allowed, settings.floor)
        if gain > best_gain:
            best_gain = gain
            is_idle = assigned == IDLE_SENTENCE
            columns = np.maximum(assigned, 0)
            best_rows = np.where(is_idle, IDLE_SENTENCE, rows[columns])
            step_cosines = np.take_along_axis(similarity, columns[:, None], axis=1)
            # of segments whose near steps all change what was said: that of the nearest
            is_near = similarity >= settings.floor  # (S, K)
            is_refused = is_near.any(axis=1) & ~(allowed >= settings.floor).any(axis=1)
            idle_cosines = np.where(is_refused, similarity.max(axis=1, initial=0.0), 0.0)
            idle_cosines = idle_cosines.astype(np.float32)
            best_cosines = np.where(is_idle, idle_cosines, step_cosines[:, 0])
    steps = _steps_by_row(base, best_rows[best_rows != IDLE_SENTENCE])
    reason = NO_DOCUMENT if not len(documents) else NOT_IN_ORDER
    outcomes: list[SegmentOutcome] = []
    # What becomes of each segment.
    segment_rows = best_rows.tolist()
    for segment, row, cosine in zip(narration, segment_rows, best_cosines.tolist(), strict=True):
        step = steps.get(row)
        if step is not None and cosine >= settings.swap_similarity - COSINE_ROUNDING:
            outcomes.append(Match(segment, step, cosine))
        elif cosine > 0:
            outcomes.append(_unmatched(segment, reason, cosine, settings))
        else:
            outcomes.append(SieveRejection(segment, reason))
    return outcomes


def steps_by_line_model(
    narration: Sequence[NarrationSegment],
    vectors: Matrix,
    base: TextBase,
    documents: DocumentIds,
    settings: SwapSettings,
) -> list[SegmentOutcome]:
    """Return for each segment the step that it states, of the one document that fits best, by
    `grounding/line_model.py`.

    vectors: (S, D) of MiniLM. documents: those tried, the most likely first. Ties prefer the
    earlier. A segment passes the sieve where P(it states the step) is at least one half. It keeps
    its own words, or is dropped, where the step is not as near as `swap_similarity` or changes what
    was said.
    """
    if not narration or not len(documents):
        return [SieveRejection(segment, NO_DOCUMENT) for segment in narration]
    # the document that explains the narration best
    texts = [segment.text for segment in narration]
    fits: list[DocumentFit] = []
    for document in documents[:MAX_ORDERED_DOCUMENTS]:
        rows = base.rows_of(int(document))
        steps = base.steps(rows)
        step_vectors = base.vectors(rows).astype(np.float32)
        step_texts = [step.text for step in steps]
        match = match_lines(step_texts, texts, step_vectors, vectors)
        similarity = vectors @ step_vectors.T  # (S, K)
        fits.append(DocumentFit(steps, similarity, match))
    best = max(fits, key=lambda fit: fit.match.log_evidence)
    # The step that each segment states, if it passes the sieve.
    outcomes: list[SegmentOutcome] = []
    for row, (segment, column) in enumerate(zip(narration, best.segment_steps, strict=True)):
        if column is None:
            outcomes.append(SieveRejection(segment, NOT_TOLD))
            continue
        step = best.steps[column]
        cosine = float(best.similarity[row, column])
        changed = _change(segment.text, step, settings)
        if changed is None and cosine >= settings.swap_similarity - COSINE_ROUNDING:
            outcomes.append(Match(segment, step, cosine))
        else:
            outcomes.append(_unmatched(segment, changed or TOO_FAR, cosine, settings))
    return outcomes


@dataclass(frozen=True)
class DocumentFit:
    """The steps of a document, (K,), and how they fit a narration. similarity: (S, K) cosine."""

    steps: Sequence[TextStep]
    similarity: Matrix
    match: LinePosterior

    @property
    def segment_steps(self) -> list[int | None]:
        """(S,): the step that each segment states, None where no step is likely enough."""
        is_said = self.match.said_probabilities >= MIN_TOLD_PROBABILITY
        posterior = self.match.posterior * is_said[:, None]  # (K, S)
        steps: list[int | None] = []
        for probabilities in posterior.T:
            best = int(probabilities.argmax())
            is_likely = probabilities[best] >= MIN_TOLD_PROBABILITY
            steps.append(best if is_likely else None)
        return steps


def _without_changes(
    narration: Sequence[NarrationSegment],
    similarity: Matrix,
    steps: Sequence[TextStep],
    settings: SwapSettings,
) -> Matrix:
    """Return the similarity with -1 where a step near enough changes what was said."""
    allowed: Matrix = similarity.copy()
    for row, column in np.argwhere(similarity >= settings.floor):
        if _change(narration[row].text, steps[column], settings) is not None:
            allowed[row, column] = -1.0
    return allowed


def merge_matches(
    outcomes: Sequence[SegmentOutcome], settings: SwapSettings
) -> list[SegmentOutcome]:
    """Return the outcomes with contiguous matches of one step as one, if they are less than
    `merge_gap` seconds apart.

    Contiguous: no other piece of narration, sieved or not, is between them. The joined match has
    the greatest similarity. Where the joined narration contradicts the step (by a negation in one
    half, say) the matches stay apart.
    """
    merged: list[SegmentOutcome] = []
    last: SegmentOutcome | None = None
    for outcome in outcomes:
        # Only two neighbours that both have a step can be one.
        if (
            isinstance(last, Match)
            and isinstance(outcome, Match)
            and _state_one_step(last, outcome, settings)
        ):
            # The joined match may be joined with the next one, too.
            both = join([last.segment, outcome.segment])
            similarity = max(last.similarity, outcome.similarity)
            last = Match(both, last.step, similarity)
            merged[-1] = last
        else:
            merged.append(outcome)
            last = outcome
    return merged


def _state_one_step(first: Match, second: Match, settings: SwapSettings) -> bool:
    if first.step.id != second.step.id:
        return False
    if not near(first.segment.span, second.segment.span, settings):
        return False
    text = f"{first.segment.text} {second.segment.text}"
    return _change(text, first.step, settings) is None
