"""Which step each piece of narration tells, or why it tells none (section 4.2, eq. 6)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.records import Matrix
from stepline.sieve_swap.agreement import change
from stepline.sieve_swap.monotone import IDLE, monotone
from stepline.sieve_swap.segments import Segment, join, near
from stepline.sieve_swap.settings import MatchSettings
from stepline.sieve_swap.text_base.base import TextBase
from stepline.sieve_swap.text_base.lines import TextStep

Documents: TypeAlias = npt.NDArray[np.int64]

FAR = "no step is near enough"
UNORDERED = "no step of the document that fits best is near enough, in its order"
UNPAIRED = "the video has no document"

ROUNDING = 1e-6   # of a cosine of float32 vectors, so that equal texts reach a threshold of 1


@dataclass(frozen=True)
class Match:
    """A piece of narration and the step that it tells; similarity: their cosine."""

    segment: Segment
    step: TextStep
    similarity: float


@dataclass(frozen=True)
class Miss:
    """A piece of narration that is sieved out. reason: one of a few, fit for counting."""

    segment: Segment
    reason: str


Outcome: TypeAlias = Match | Miss


def nearest_steps(
    told: Sequence[Segment], vectors: Matrix, base: TextBase, documents: Documents | None, settings: MatchSettings
) -> list[Outcome]:
    """Return for each segment its nearest step that keeps what was said; documents: search the steps of these only.

    vectors: (S, D) unit. A step below `similarity` is never taken; with `check`, one that changes a number, a unit or
    a negation gives way to the next nearest, up to `candidates`.
    """
    if not told or (documents is not None and not len(documents)):
        return [Miss(segment, UNPAIRED) for segment in told]
    rows, cosines = base.nearest(vectors, settings.candidates if settings.check else 1, documents=documents)
    near_enough = (cosines >= settings.similarity - ROUNDING) & (rows >= 0)
    wanted = np.unique(rows[near_enough])
    steps = dict(zip(wanted.tolist(), base.steps(wanted), strict=True)) if len(wanted) else {}
    outcomes: list[Outcome] = []
    for place, segment in enumerate(told):
        tried = [
            (steps[int(row)], float(cosine))
            for row, cosine in zip(rows[place][near_enough[place]], cosines[place][near_enough[place]], strict=True)
        ]
        outcomes.append(_first_that_agrees(segment, tried, settings))
    return outcomes


def _first_that_agrees(segment: Segment, tried: Sequence[tuple[TextStep, float]], settings: MatchSettings) -> Outcome:
    refused = FAR
    for step, cosine in tried:
        changed = change(segment.text, step.text, new_numbers=settings.new_numbers) if settings.check else None
        if changed is None:
            return Match(segment, step, cosine)
        refused = changed if refused == FAR else refused
    return Miss(segment, refused)


def ordered_steps(
    told: Sequence[Segment], vectors: Matrix, base: TextBase, documents: Documents, settings: MatchSettings
) -> list[Outcome]:
    """Return for each segment a step of the one document whose steps, told in its order, fit best.

    documents: those tried, the likeliest first; ties prefer the earlier. Steps that change what was said are not taken.
    """
    best_gain, best_rows = 0.0, np.full(len(told), IDLE, dtype=np.int64)
    best_cosines = np.zeros(len(told), dtype=np.float32)
    for document in documents[: settings.ordered_documents]:
        rows = base.rows_of(int(document))
        similarity = vectors @ base.vectors(rows).T                              # (S, K)
        allowed = _without_changes(told, similarity, base.steps(rows), settings)
        assigned, gain = monotone(allowed, settings.similarity)
        if gain > best_gain:
            place = np.maximum(assigned, 0)
            best_gain, best_rows = gain, np.where(assigned == IDLE, IDLE, rows[place])
            best_cosines = np.take_along_axis(similarity, place[:, None], axis=1)[:, 0]
    taken = best_rows[best_rows != IDLE]
    steps = iter(base.steps(taken) if len(taken) else [])
    missed = UNORDERED if len(documents) else UNPAIRED
    return [
        Miss(segment, missed) if row == IDLE else Match(segment, next(steps), float(cosine))
        for segment, row, cosine in zip(told, best_rows, best_cosines, strict=True)
    ]


def _without_changes(
    told: Sequence[Segment], similarity: Matrix, steps: Sequence[TextStep], settings: MatchSettings
) -> Matrix:
    """Return the similarity with -1 where a step near enough changes what was said."""
    if not settings.check:
        return similarity
    allowed: Matrix = similarity.copy()
    for row, column in np.argwhere(similarity >= settings.similarity):
        if change(told[row].text, steps[column].text, new_numbers=settings.new_numbers) is not None:
            allowed[row, column] = -1.0
    return allowed


def merge_matches(outcomes: Sequence[Outcome], settings: MatchSettings) -> list[Outcome]:
    """Return the outcomes with contiguous matches of one step as one, if less than `merge_gap` seconds lie between.

    Contiguous: no other piece of narration, kept or sieved, stands between. The greatest similarity is kept. Where the
    joined narration contradicts the step (a negation of the one half, say) the matches stay apart.
    """
    merged: list[Outcome] = []
    for outcome in outcomes:
        last = merged[-1] if merged else None
        if isinstance(last, Match) and isinstance(outcome, Match) and _one_telling(last, outcome, settings):
            whole = join([last.segment, outcome.segment])
            merged[-1] = Match(whole, last.step, max(last.similarity, outcome.similarity))
        else:
            merged.append(outcome)
    return merged


def _one_telling(first: Match, second: Match, settings: MatchSettings) -> bool:
    if first.step.id != second.step.id or not near(first.segment.span, second.segment.span, settings):
        return False
    whole = f"{first.segment.text} {second.segment.text}"
    return not settings.check or change(whole, first.step.text, new_numbers=settings.new_numbers) is None
