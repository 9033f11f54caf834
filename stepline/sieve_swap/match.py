"""Nearest human-written step of each narration segment, or why it has none (section 4.2, eq. 6).

`match_nearest_steps` searches the steps for each segment alone, as the paper does. `match_by_line_model`
aligns the narration with the steps of one document, by the model that aligns a user's own lines
(`grounding/line_model.py`). A segment is a sentence, or several short sentences merged (appendix A.2).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.grounding.line_model import LinePosterior, match_lines
from stepline.records import Matrix, Sentence, Span
from stepline.sieve_swap.agreement import find_contradiction
from stepline.sieve_swap.settings import SwapSettings
from stepline.sieve_swap.text_base.base import TextBase, TextStep


@dataclass(frozen=True)
class NarrationSegment:
    """A part of the narration that is matched with a written step.

    Attributes:
        text: text of its sentences.
        span: start and end in seconds.
        sources: indices of its sentences in the narration, ascending.
    """

    text: str
    span: Span
    sources: tuple[int, ...]


def narration_segments(
    sentences: Sequence[Sentence], settings: SwapSettings
) -> list[NarrationSegment]:
    """Return the narration as segments: single sentences, or merged ones if `merge` is "before".

    Two consecutive segments merge if both are shorter than `longest_merged` and less than
    `merge_gap` seconds apart. A merged segment can merge again with the next sentence. So no
    segment is longer than 2 x longest_merged + merge_gap. The paper leaves that open. Sentences
    without text are left out.

    Args:
        sentences: sentences of one video, in order.
        settings: settings that say which segments merge.
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
        last = merged[-1] if merged else segment
        is_short = max(last.span.duration, segment.span.duration) < settings.longest_merged
        if merged and is_short and is_close(last.span, segment.span, settings):
            merged[-1] = join_segments([last, segment])
        else:
            merged.append(segment)
    return merged


def is_close(first: Span, second: Span, settings: SwapSettings) -> bool:
    """Return whether the second span begins less than `settings.merge_gap` seconds after the first
    ends."""
    return second.start - first.end < settings.merge_gap


def join_segments(parts: Sequence[NarrationSegment]) -> NarrationSegment:
    """Return consecutive segments as one segment, from the first start to the latest end."""
    text = " ".join(part.text for part in parts)
    sources: list[int] = []
    for part in parts:
        sources += part.sources
    start = min(part.span.start for part in parts)
    end = max(part.span.end for part in parts)
    return NarrationSegment(text, Span(start, end), tuple(sources))


DocumentIds = npt.NDArray[np.int64]

MAX_ORDERED_DOCUMENTS = 20  # paired with a video, the most likely first, whose order is tried
NO_SIMILAR_STEP = "no step is near enough"
NO_DOCUMENT = "the video has no document"
STEP_NOT_SPOKEN = "it states no step of the document that fits best"

# least probability that a segment states a certain step, and that the step is stated at all. With
# "line-model" a segment needs both to pass the sieve.
MIN_SPOKEN_PROBABILITY = 0.5

COSINE_ROUNDING = 1e-6  # of a cosine of float32 vectors, so that equal texts reach a threshold of 1


@dataclass(frozen=True)
class StepMatch:
    """A narration segment and the written step that replaces it.

    Attributes:
        segment: the segment.
        step: the written step.
        similarity: cosine of their text vectors.
    """

    segment: NarrationSegment
    step: TextStep
    similarity: float


@dataclass(frozen=True)
class UnswappedSegment:
    """A segment that passes the sieve but keeps its wording, since no similar step agrees with it.

    Attributes:
        segment: the segment.
        similarity: cosine with the nearest step.
    """

    segment: NarrationSegment
    similarity: float


@dataclass(frozen=True)
class SieveRejection:
    """A segment that the sieve rejects.

    Attributes:
        segment: the segment.
        reason: why it is rejected, one of a few constants, so that reasons can be counted.
    """

    segment: NarrationSegment
    reason: str


SegmentOutcome = StepMatch | UnswappedSegment | SieveRejection


def match_nearest_steps(
    narration: Sequence[NarrationSegment],
    vectors: Matrix,
    base: TextBase,
    documents: DocumentIds | None,
    settings: SwapSettings,
) -> list[SegmentOutcome]:
    """Return the outcome of each segment by its nearest steps: swapped, kept as it is, or rejected.

    A segment whose nearest step has a cosine below `settings.floor` is rejected. With
    `settings.check`, a step that contradicts the segment is passed over for the next nearest one,
    up to `settings.candidates`. If no step agrees and reaches `settings.swap_similarity`,
    `settings.unswapped` decides whether the segment is kept as it is.

    Args:
        narration: S segments.
        vectors: (S, D) unit vectors of their texts.
        base: the text base.
        documents: numbers of the documents whose steps are searched. None: all documents.
        settings: thresholds and checks.
    """
    if not narration or (documents is not None and not len(documents)):
        return [SieveRejection(segment, NO_DOCUMENT) for segment in narration]
    # As many steps as may have to give way.
    count = settings.candidates if settings.check else 1
    rows, cosines = base.find_nearest_steps(vectors, count, documents=documents)
    is_near = (cosines >= settings.floor - COSINE_ROUNDING) & (rows >= 0)
    # Every near step is read once.
    near_rows = np.unique(rows[is_near])
    steps = dict(zip(near_rows.tolist(), base.steps(near_rows), strict=True))
    # The nearest step that changes nothing of what was said.
    outcomes: list[SegmentOutcome] = []
    for n, segment in enumerate(narration):
        near_steps = [steps[row] for row in rows[n][is_near[n]].tolist()]
        candidates = list(zip(near_steps, cosines[n][is_near[n]].tolist(), strict=True))
        outcomes.append(_match_first_consistent_step(segment, candidates, settings))
    return outcomes


def _match_first_consistent_step(
    segment: NarrationSegment, candidates: Sequence[tuple[TextStep, float]], settings: SwapSettings
) -> SegmentOutcome:
    """Return the match with the most similar step that does not contradict the narration, or why there
    is none.

    Args:
        segment: the segment of narration.
        candidates: (step, cosine), the most similar one first.
        settings: least cosine, and whether contradictions are checked.
    """
    if not candidates:
        return SieveRejection(segment, NO_SIMILAR_STEP)
    _, best_cosine = candidates[0]
    reason = NO_SIMILAR_STEP
    for step, cosine in candidates:
        if cosine < settings.swap_similarity - COSINE_ROUNDING:
            break
        contradiction_reason = _contradiction(segment.text, step, settings)
        if contradiction_reason is None:
            return StepMatch(segment, step, cosine)
        if reason == NO_SIMILAR_STEP:
            reason = contradiction_reason
    return _outcome_without_step(segment, reason, best_cosine, settings)


def _contradiction(narration: str, step: TextStep, settings: SwapSettings) -> str | None:
    """Return why a step contradicts the narration. None if it agrees, or if `check` is off."""
    return find_contradiction(narration, step.text) if settings.check else None


def _outcome_without_step(
    segment: NarrationSegment, reason: str, cosine: float, settings: SwapSettings
) -> SegmentOutcome:
    """Return the outcome of a segment that passes the sieve but has no step to replace it.

    Args:
        segment: the segment.
        reason: why it has no step.
        cosine: cosine with the nearest step.
        settings: settings that say whether such a segment is kept.
    """
    if settings.unswapped == "own words":
        return UnswappedSegment(segment, cosine)
    return SieveRejection(segment, reason)


def match_by_line_model(
    narration: Sequence[NarrationSegment],
    vectors: Matrix,
    base: TextBase,
    documents: DocumentIds,
    settings: SwapSettings,
) -> list[SegmentOutcome]:
    """Return the outcome of each segment by the one document that explains the narration best.

    The line model of `grounding/line_model.py` aligns the steps of a document with the segments,
    roughly in order. A segment passes the sieve if its probability of stating a step is at least
    one half. A step replaces it only if the step reaches `swap_similarity` and does not contradict
    the segment.

    Args:
        narration: S segments.
        vectors: (S, D) MiniLM vectors of their texts.
        base: the text base.
        documents: numbers of the documents that are tried, the most likely first. In a tie the
            earlier document wins.
        settings: thresholds and checks.
    """
    if not narration or not len(documents):
        return [SieveRejection(segment, NO_DOCUMENT) for segment in narration]
    # the document that explains the narration best
    texts = [segment.text for segment in narration]
    document_fits: list[tuple[LinePosterior, list[TextStep], Matrix]] = []
    for document in documents[:MAX_ORDERED_DOCUMENTS]:
        rows = base.step_rows(int(document))
        steps = base.steps(rows)
        step_vectors = base.vectors(rows)
        posterior = match_lines([step.text for step in steps], texts, step_vectors, vectors)
        document_fits.append((posterior, steps, step_vectors))
    best, steps, step_vectors = max(document_fits, key=lambda fit: fit[0].log_evidence)
    # The step that each segment states, if it passes the sieve.
    is_spoken = best.said_probabilities >= MIN_SPOKEN_PROBABILITY
    probabilities = best.posterior * is_spoken[:, None]  # (K, S)
    similarity = vectors @ step_vectors.T  # (S, K)
    outcomes: list[SegmentOutcome] = []
    for row, segment in enumerate(narration):
        column = int(probabilities[:, row].argmax())
        if probabilities[column, row] < MIN_SPOKEN_PROBABILITY:
            outcomes.append(SieveRejection(segment, STEP_NOT_SPOKEN))
            continue
        step = steps[column]
        cosine = float(similarity[row, column])
        contradiction_reason = _contradiction(segment.text, step, settings)
        if contradiction_reason is None and cosine >= settings.swap_similarity - COSINE_ROUNDING:
            outcomes.append(StepMatch(segment, step, cosine))
        else:
            outcomes.append(
                _outcome_without_step(
                    segment, contradiction_reason or NO_SIMILAR_STEP, cosine, settings
                )
            )
    return outcomes


def merge_matches(
    outcomes: Sequence[SegmentOutcome], settings: SwapSettings
) -> list[SegmentOutcome]:
    """Return the outcomes, with adjacent matches of one step merged.

    Matches merge if they are less than `merge_gap` seconds apart and no other segment lies between
    them. The merged match has the greater similarity. Two matches stay separate if their joined
    text contradicts the step, for example by a negation in one of them.

    Args:
        outcomes: outcomes of all segments of one video, in order.
        settings: gap and checks.
    """
    merged: list[SegmentOutcome] = []
    for outcome in outcomes:
        last = merged[-1] if merged else None
        # Only two neighbours that both have a step can be one. It may be joined with the next, too.
        if (
            isinstance(last, StepMatch)
            and isinstance(outcome, StepMatch)
            and _can_merge(last, outcome, settings)
        ):
            joined_segment = join_segments([last.segment, outcome.segment])
            merged[-1] = StepMatch(
                joined_segment, last.step, max(last.similarity, outcome.similarity)
            )
        else:
            merged.append(outcome)
    return merged


def _can_merge(first: StepMatch, second: StepMatch, settings: SwapSettings) -> bool:
    if first.step.id != second.step.id:
        return False
    text = f"{first.segment.text} {second.segment.text}"
    is_near = is_close(first.segment.span, second.segment.span, settings)
    return is_near and _contradiction(text, first.step, settings) is None
