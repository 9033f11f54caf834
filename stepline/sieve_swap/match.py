"""Nearest human-written step of each piece of narration, or why it has none (section 4.2, eq. 6).

`nearest_steps` looks each piece up by itself, as the paper does. `ordered_steps` aligns the
narration with the steps of one document in its order, by dynamic programming with an idle state
(`align_in_order`). A piece is a sentence, or short neighbours merged (appendix A.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
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
    single = [
        NarrationSegment(sentence.text.strip(), sentence.span, (index,))
        for index, sentence in enumerate(sentences)
        if sentence.text.strip()
    ]
    if settings.merge == "after":
        return single
    merged: list[NarrationSegment] = []
    for segment in single:
        if merged and _short_neighbours(merged[-1], segment, settings):
            merged[-1] = join([merged[-1], segment])
        else:
            merged.append(segment)
    return merged


def _short_neighbours(
    first: NarrationSegment, second: NarrationSegment, settings: SwapSettings
) -> bool:
    longest = settings.longest_merged
    short = first.span.duration < longest and second.span.duration < longest
    return short and near(first.span, second.span, settings)


def near(first: Span, second: Span, settings: SwapSettings) -> bool:
    """Tell whether less than `merge_gap` seconds lie between two spans; overlapping ones have no
    gap."""
    return second.start - first.end < settings.merge_gap


def join(parts: Sequence[NarrationSegment]) -> NarrationSegment:
    """Return consecutive segments as one, from the first's start to the latest end."""
    text = " ".join(part.text for part in parts)
    span = Span(min(part.span.start for part in parts), max(part.span.end for part in parts))
    return NarrationSegment(text, span, tuple(index for part in parts for index in part.sources))


Assigned: TypeAlias = npt.NDArray[np.int64]

IDLE = -1  # the sentence tells no step


def align_in_order(similarity: Matrix, floor: float) -> tuple[Assigned, float]:
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
    taken = np.zeros((sentences, steps), dtype=bool)
    came_from = np.zeros((sentences, steps + 1), dtype=np.int64)
    for row in range(sentences):
        told = best[1:] + gain[row]
        taken[row] = told > best[1:]
        reached = np.concatenate([[best[0]], np.where(taken[row], told, best[1:])])
        best = np.maximum.accumulate(reached)
        came_from[row] = _first_reaching(reached, best)
    return _traced(taken, came_from), float(best[-1])


def _first_reaching(values: npt.NDArray[np.float64], best: npt.NDArray[np.float64]) -> Assigned:
    """Return, for each place, the first place whose value is the running maximum there."""
    new = np.concatenate([[True], best[1:] > best[:-1]])
    return np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))


def _traced(taken: npt.NDArray[np.bool_], came_from: Assigned) -> Assigned:
    sentences, steps = taken.shape
    assigned = np.full(sentences, IDLE, dtype=np.int64)
    place = steps
    for row in range(sentences - 1, -1, -1):
        place = int(came_from[row, place])
        if place and taken[row, place - 1]:
            assigned[row] = place - 1
    return assigned


DocumentIds: TypeAlias = npt.NDArray[np.int64]

FAR = "no step is near enough"
UNORDERED = "no step of the document that fits best is near enough, in its order"
UNPAIRED = "the video has no document"

ROUNDING = 1e-6  # of a cosine of float32 vectors, so that equal texts reach a threshold of 1


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
    told: Sequence[NarrationSegment],
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
    if not told or (documents is not None and not len(documents)):
        return [SieveRejection(segment, UNPAIRED) for segment in told]
    rows, cosines = base.nearest(
        vectors, settings.candidates if settings.check else 1, documents=documents
    )
    near_enough = (cosines >= settings.floor - ROUNDING) & (rows >= 0)
    wanted = np.unique(rows[near_enough])
    steps = dict(zip(wanted.tolist(), base.steps(wanted), strict=True)) if len(wanted) else {}
    outcomes: list[SegmentOutcome] = []
    for place, segment in enumerate(told):
        tried = [
            (steps[int(row)], float(cosine))
            for row, cosine in zip(
                rows[place][near_enough[place]], cosines[place][near_enough[place]], strict=True
            )
        ]
        outcomes.append(_first_that_agrees(segment, tried, settings))
    return outcomes


def _first_that_agrees(
    segment: NarrationSegment, tried: Sequence[tuple[TextStep, float]], settings: SwapSettings
) -> SegmentOutcome:
    reason = FAR
    for step, cosine in tried:
        if cosine < settings.swap_similarity - ROUNDING:
            break
        changed = (
            change(segment.text, step.text, new_numbers=settings.new_numbers)
            if settings.check
            else None
        )
        if changed is None:
            return Match(segment, step, cosine)
        reason = changed if reason == FAR else reason
    return (
        _unmatched(segment, reason, tried[0][1], settings)
        if tried
        else SieveRejection(segment, FAR)
    )


def _unmatched(
    segment: NarrationSegment, reason: str, cosine: float, settings: SwapSettings
) -> SegmentOutcome:
    """Return what becomes of a segment that passes the sieve and has no step; cosine: of its
    nearest."""
    return (
        KeptAsSaid(segment, cosine)
        if settings.unswapped == "own words"
        else SieveRejection(segment, reason)
    )


def ordered_steps(
    told: Sequence[NarrationSegment],
    vectors: Matrix,
    base: TextBase,
    documents: DocumentIds,
    settings: SwapSettings,
) -> list[SegmentOutcome]:
    """Return for each segment a step of the one document whose steps, told in its order, fit best.

    documents: those tried, the likeliest first; ties prefer the earlier. Steps that change what was
    said are not taken.
    """
    best_gain, best_rows = 0.0, np.full(len(told), IDLE, dtype=np.int64)
    best_cosines: Matrix = np.zeros(len(told), dtype=np.float32)
    for document in documents[: settings.ordered_documents]:
        rows = base.rows_of(int(document))
        similarity = vectors @ base.vectors(rows).T  # (S, K)
        allowed = _without_changes(told, similarity, base.steps(rows), settings)
        assigned, gain = align_in_order(allowed, settings.floor)
        if gain > best_gain:
            place = np.maximum(assigned, 0)
            best_gain, best_rows = gain, np.where(assigned == IDLE, IDLE, rows[place])
            told_at = np.take_along_axis(similarity, place[:, None], axis=1)[:, 0]
            best_cosines = np.where(
                assigned == IDLE, _refused(similarity, allowed, settings.floor), told_at
            )
    taken = best_rows[best_rows != IDLE]
    steps = iter(base.steps(taken) if len(taken) else [])
    missed = UNORDERED if len(documents) else UNPAIRED
    outcomes: list[SegmentOutcome] = []
    for segment, row, cosine in zip(told, best_rows, best_cosines.tolist(), strict=True):
        step = None if row == IDLE else next(steps)
        if step is not None and cosine >= settings.swap_similarity - ROUNDING:
            outcomes.append(Match(segment, step, cosine))
        else:
            outcomes.append(
                _unmatched(segment, missed, cosine, settings)
                if cosine > 0
                else SieveRejection(segment, missed)
            )
    return outcomes


def _refused(similarity: Matrix, allowed: Matrix, floor: float) -> Matrix:
    """Return the cosine of each segment's nearest step (S,) where all near ones change what was
    said; 0 elsewhere."""
    only = (similarity >= floor).any(axis=1) & ~(allowed >= floor).any(axis=1)
    return np.where(only, similarity.max(axis=1, initial=0.0), 0.0).astype(np.float32)


def _without_changes(
    told: Sequence[NarrationSegment],
    similarity: Matrix,
    steps: Sequence[TextStep],
    settings: SwapSettings,
) -> Matrix:
    """Return the similarity with -1 where a step near enough changes what was said."""
    if not settings.check:
        return similarity
    allowed: Matrix = similarity.copy()
    for row, column in np.argwhere(similarity >= settings.floor):
        if change(told[row].text, steps[column].text, new_numbers=settings.new_numbers) is not None:
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
        if (
            isinstance(last, Match)
            and isinstance(outcome, Match)
            and _one_telling(last, outcome, settings)
        ):
            whole = join([last.segment, outcome.segment])
            merged[-1] = Match(whole, last.step, max(last.similarity, outcome.similarity))
        else:
            merged.append(outcome)
    return merged


def _one_telling(first: Match, second: Match, settings: SwapSettings) -> bool:
    if first.step.id != second.step.id or not near(
        first.segment.span, second.segment.span, settings
    ):
        return False
    whole = f"{first.segment.text} {second.segment.text}"
    return (
        not settings.check
        or change(whole, first.step.text, new_numbers=settings.new_numbers) is None
    )
