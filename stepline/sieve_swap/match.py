"""Nearest human-written step of each piece of narration, or why it has none (section 4.2, eq. 6).

`nearest_steps` looks each piece up by itself, as the paper does. `ordered_steps` aligns the
narration with the steps of one document in its order, by dynamic programming with an idle state
(`align_in_order`), `steps_by_line_model` by the model that places a user's own lines
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
from stepline.text_base.base import TextBase
from stepline.text_base.documents import TextStep


@dataclass(frozen=True)
class NarrationSegment:
    """Narration as it is looked up. span: seconds; sources: indices of its sentences, ascending."""

    text: str
    span: Span
    sources: tuple[int, ...]


def segments(sentences: Sequence[Sentence], settings: SwapSettings) -> list[NarrationSegment]:
    """Return the narration in pieces: each sentence one, or short neighbours merged where `merge`
    is "before".

    Two consecutive pieces merge when both are shorter than `longest_merged` and less than
    `merge_gap` seconds lie between them. A merged piece counts by its own length when the next
    sentence comes, so that none outgrows 2 x longest_merged + merge_gap; the paper leaves that
    open. Sentences without text are left out.
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
    longest = max(first.span.duration, second.span.duration)
    return longest < settings.longest_merged and near(first.span, second.span, settings)


def near(first: Span, second: Span, settings: SwapSettings) -> bool:
    """Tell whether less than `merge_gap` seconds lie between two spans; overlapping ones have no
    gap."""
    return second.start - first.end < settings.merge_gap


def join(parts: Sequence[NarrationSegment]) -> NarrationSegment:
    """Return consecutive segments as one, from the first's start to the latest end."""
    text = " ".join(part.text for part in parts)
    sources = tuple(index for part in parts for index in part.sources)
    span = Span(min(part.span.start for part in parts), max(part.span.end for part in parts))
    return NarrationSegment(text, span, sources)


StepIndices: TypeAlias = npt.NDArray[np.int64]

IDLE_SENTENCE = -1  # the sentence tells no step


def align_in_order(similarity: Matrix, floor: float) -> tuple[StepIndices, float]:
    """Return the step of each sentence, IDLE for none, and the total gain; step numbers never go
    back.

    similarity: (S, K) cosine of sentence and step. A sentence at a step gains similarity - floor,
    an idle one 0; the total is the greatest there is. Several sentences may tell one step, and
    steps may be left out. Ties prefer idle, then the earlier step. Source: beyond the paper, which
    takes each sentence's nearest step by itself.
    """
    if similarity.ndim != 2:
        raise ShapeError(f"similarity must be (sentences, steps), not {similarity.shape}")
    sentences, steps = similarity.shape
    gain = similarity.astype(np.float64) - floor
    # best[k + 1]: most that the sentences so far can gain when the last step told is at most k.
    best = np.zeros(steps + 1)
    # the sentence tells exactly step k, and that beats idling
    tells = np.zeros((sentences, steps), dtype=bool)
    came_from = np.zeros((sentences, steps + 1), dtype=np.int64)
    for row in range(sentences):
        with_step = best[1:] + gain[row]
        tells[row] = with_step > best[1:]
        gains = np.concatenate([best[:1], np.maximum(with_step, best[1:])])
        best = np.maximum.accumulate(gains)
        # the first place whose gain is the running maximum
        is_new = np.concatenate([[True], best[1:] > best[:-1]])
        came_from[row] = np.maximum.accumulate(np.where(is_new, np.arange(steps + 1), 0))
    # back from the last sentence
    assigned = np.full(sentences, IDLE_SENTENCE, dtype=np.int64)
    place = steps
    for row in range(sentences - 1, -1, -1):
        place = int(came_from[row, place])
        if place and tells[row, place - 1]:
            assigned[row] = place - 1
    return assigned, float(best[-1])


DocumentIds: TypeAlias = npt.NDArray[np.int64]

TOO_FAR = "no step is near enough"
NOT_IN_ORDER = "no step of the document that fits best is near enough, in its order"
NO_DOCUMENT = "the video has no document"
NOT_TOLD = "it tells no step of the document that fits best"

# of a step being told in this piece of narration, and of its being told at all, from which the
# piece passes the sieve of "line-model"
MIN_TOLD_PROBABILITY = 0.5

COSINE_ROUNDING = 1e-6  # of a cosine of float32 vectors, so that equal texts reach a threshold of 1


@dataclass(frozen=True)
class Match:
    """A piece of narration and the step that it tells; similarity: their cosine."""

    segment: NarrationSegment
    step: TextStep
    similarity: float


@dataclass(frozen=True)
class KeptAsSaid:
    """A piece of narration that tells a step, though no written one is near enough and agrees: it
    keeps its words."""

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
    """Return for each segment its nearest step that keeps what was said; documents: search the
    steps of these only.

    vectors: (S, D) unit. No step as near as `floor`: sieved out. With `check`, one that changes a
    number, a unit or a negation gives way to the next nearest, up to `candidates`. None of them
    nearer than `swap_similarity` and in agreement: `unswapped` says what becomes of the segment.
    """
    if not narration or (documents is not None and not len(documents)):
        return [SieveRejection(segment, NO_DOCUMENT) for segment in narration]
    count = settings.candidates if settings.check else 1
    rows, cosines = base.nearest(vectors, count, documents=documents)
    is_near = (cosines >= settings.floor - COSINE_ROUNDING) & (rows >= 0)
    near_rows = np.unique(rows[is_near])
    steps: dict[int, TextStep] = {}
    if len(near_rows):
        steps = dict(zip(near_rows.tolist(), base.steps(near_rows), strict=True))
    outcomes: list[SegmentOutcome] = []
    for n, segment in enumerate(narration):
        near_steps = [steps[row] for row in rows[n][is_near[n]].tolist()]
        candidates = list(zip(near_steps, cosines[n][is_near[n]].tolist(), strict=True))
        outcomes.append(_first_that_agrees(segment, candidates, settings))
    return outcomes


def _first_that_agrees(
    segment: NarrationSegment, candidates: Sequence[tuple[TextStep, float]], settings: SwapSettings
) -> SegmentOutcome:
    if not candidates:
        return SieveRejection(segment, TOO_FAR)
    reason = TOO_FAR
    for step, cosine in candidates:
        if cosine < settings.swap_similarity - COSINE_ROUNDING:
            break
        changed = _change(segment.text, step, settings)
        if changed is None:
            return Match(segment, step, cosine)
        if reason == TOO_FAR:
            reason = changed
    return _unmatched(segment, reason, candidates[0][1], settings)


def _change(narration: str, step: TextStep, settings: SwapSettings) -> str | None:
    """Return what a step changes of what was said; None for nothing, or where nobody checks."""
    if not settings.check:
        return None
    return change(narration, step.text, new_numbers=settings.new_numbers)


def _unmatched(
    segment: NarrationSegment, reason: str, cosine: float, settings: SwapSettings
) -> SegmentOutcome:
    """Return what becomes of a segment that passes the sieve and has no step; cosine: of its
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
    """Return for each segment a step of the one document whose steps, told in its order, fit best.

    documents: those tried, the likeliest first; ties prefer the earlier. Steps that change what was
    said are not taken.
    """
    best_gain = 0.0
    best_rows = np.full(len(narration), IDLE_SENTENCE, dtype=np.int64)
    best_cosines: Matrix = np.zeros(len(narration), dtype=np.float32)
    for document in documents[: settings.ordered_documents]:
        rows = base.rows_of(int(document))
        similarity = vectors @ base.vectors(rows).T  # (S, K)
        allowed = _without_changes(narration, similarity, base.steps(rows), settings)
        assigned, gain = align_in_order(allowed, settings.floor)
        if gain > best_gain:
            best_gain = gain
            is_idle = assigned == IDLE_SENTENCE
            columns = np.maximum(assigned, 0)
            best_rows = np.where(is_idle, IDLE_SENTENCE, rows[columns])
            cosines = np.take_along_axis(similarity, columns[:, None], axis=1)[:, 0]
            # of segments whose near steps all change what was said: that of the nearest
            is_near = (similarity >= settings.floor).any(axis=1)
            is_refused = is_near & ~(allowed >= settings.floor).any(axis=1)
            nearest = np.where(is_refused, similarity.max(axis=1, initial=0.0), 0.0)
            best_cosines = np.where(is_idle, nearest.astype(np.float32), cosines)
    step_rows = best_rows[best_rows != IDLE_SENTENCE]
    steps = iter(base.steps(step_rows) if len(step_rows) else [])
    reason = NOT_IN_ORDER if len(documents) else NO_DOCUMENT
    outcomes: list[SegmentOutcome] = []
    for segment, row, cosine in zip(narration, best_rows, best_cosines.tolist(), strict=True):
        step = None if row == IDLE_SENTENCE else next(steps)
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
    """Return for each segment the step that it tells, of the one document that fits best, by
    `grounding/line_model.py`.

    vectors: (S, D) of MiniLM. documents: those tried, the likeliest first; ties prefer the earlier.
    A segment passes the sieve where P(it tells the step) is at least one half. It keeps its own
    words, or is dropped, where the step is not as near as `swap_similarity` or changes what was
    said.
    """
    if not narration or not len(documents):
        return [SieveRejection(segment, NO_DOCUMENT) for segment in narration]
    texts = [segment.text for segment in narration]
    fits: list[DocumentFit] = []
    for document in documents[: settings.ordered_documents]:
        rows = base.rows_of(int(document))
        steps = base.steps(rows)
        step_vectors = base.vectors(rows).astype(np.float32)
        match = match_lines([step.text for step in steps], texts, step_vectors, vectors)
        fits.append(DocumentFit(steps, vectors @ step_vectors.T, match))
    best = max(fits, key=lambda fit: fit.match.log_evidence)
    outcomes: list[SegmentOutcome] = []
    for row, (segment, place) in enumerate(zip(narration, best.segment_steps, strict=True)):
        if place is None:
            outcomes.append(SieveRejection(segment, NOT_TOLD))
            continue
        step = best.steps[place]
        cosine = float(best.similarity[row, place])
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
        """(S,): the step that each segment tells, None where none is likely enough."""
        is_told = self.match.said_probabilities >= MIN_TOLD_PROBABILITY
        posterior = self.match.posterior * is_told[:, None]  # (K, S)
        places: list[int | None] = []
        for column in posterior.T:
            place = int(column.argmax())
            places.append(place if column[place] >= MIN_TOLD_PROBABILITY else None)
        return places


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
    """Return the outcomes with contiguous matches of one step as one, if less than `merge_gap`
    seconds lie between.

    Contiguous: no other piece of narration, kept or sieved, stands between. The greatest similarity
    is kept. Where the joined narration contradicts the step (a negation of the one half, say) the
    matches stay apart.
    """
    merged: list[SegmentOutcome] = []
    for outcome in outcomes:
        last = merged[-1] if merged else None
        if not isinstance(last, Match) or not isinstance(outcome, Match):
            merged.append(outcome)
        elif _tell_one_step(last, outcome, settings):
            both = join([last.segment, outcome.segment])
            merged[-1] = Match(both, last.step, max(last.similarity, outcome.similarity))
        else:
            merged.append(outcome)
    return merged


def _tell_one_step(first: Match, second: Match, settings: SwapSettings) -> bool:
    if first.step.id != second.step.id:
        return False
    if not near(first.segment.span, second.segment.span, settings):
        return False
    text = f"{first.segment.text} {second.segment.text}"
    return _change(text, first.step, settings) is None
