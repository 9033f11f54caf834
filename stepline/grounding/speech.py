"""Where a step is said: coarse alignment of steps and narration (NaSVA, section 3.1).

    T_SN = softmax(g(S) g(N)^T / nu)     (K, S)  step to narration
    Y_SV = T_SN Y_NV                     (K, T)  step to second
    c_k  = argmax_t Y_SV                 grown left and right while Y_SV >= zeta Y_SV[c_k]

Letters: K steps, S sentences, T seconds. The paper leaves open, and this module chooses: the value of
nu, cosine similarity, the seconds that a narration covers (`narration_labels`), and ties (the earliest
second). Beyond the paper, T_SN may be the posterior of `line_model` (`coarse.matching`).

A user's own lines, such as a recipe, become steps that are said where `line_model` finds them.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.grounding.line_model import MIN_MASS, Array, match_lines
from stepline.grounding.settings import CoarseSettings, LabelRule
from stepline.numeric import cosine_matrix, softmax
from stepline.records import (
    FrozenModel,
    Matrix,
    Rejected,
    Sentence,
    Span,
    Step,
    StepKind,
    Transcript,
)
from stepline.writing.types import MAX_ACTION_PAUSE_SECONDS, instruction_kind

MIN_SAID_PROBABILITY = 0.5  # P(said), from which a user's own line counts as said
# In the first sentences of a narration the model knows too little. There a cosine is enough, which is
# that of the headings of 53 tutorials with their sentences, if no other line is much more similar.
MIN_MODEL_SENTENCES = 4
# Cosine of a line with a sentence that it cites, plus the fraction of its words in the sentence. Of
# lines of other recipes in lists of 119 videos of YouCook2, as many are then taken for said (.16) as
# lines of the video for not said (.18).
MIN_LINE_LIKENESS = 0.6
MIN_LINE_COSINE = 0.35  # of a user's own line with its sentence. MiniLM: unrelated texts < 0.3
EARLY_COSINE = 0.66
MAX_EARLY_LEAD = 0.15
# standard deviation in seconds of the sentences that count for the place of a line: of the mean distance
# of lines, and at most. YouCook2: 427 of 806 lines are placed right, by the passage alone 410. Real clips:
# as many
LINE_DEVIATION_FRACTION = 0.3
MAX_LINE_DEVIATION_SECONDS = 12.0
SHIFT_ROUNDS = 3
# Nats by which another sentence says a line better than those at its place, from which the line counts as
# out of order: as much as a jump back costs. YouCook2, 144 videos: 3 of 1,074 lines in order, none of them
# placed, and 89 of 366 that lost their place when moved to an end of the list. 78 of these get the right
# second. At 4 nats: 6, 2 of them placed, 131 and 108
MIN_ORDER_LEAD = 5.0
OUT_OF_ORDER = "out of the order of the list"  # in the doubt of a step


def place_steps(
    steps: Sequence[Step],
    sentences: Sequence[Sentence],
    step_vectors: Matrix,
    sentence_vectors: Matrix,
    *,
    duration: float,
    settings: CoarseSettings = CoarseSettings(),
    step_probabilities: npt.NDArray[np.float64] | None = None,
) -> tuple[tuple[Step, ...], tuple[Rejected, ...]]:
    """Return the steps with `said` set to where the narration says them, and the dropped steps.

    With `settings.matching` "softmax", this is `coarse_spans`. With "line-model", sentences are weighted
    by the posterior of `line_model`, which uses the order of the steps.

    Args:
        steps: K steps in the order of the text.
        sentences: S sentences with their times.
        step_vectors: (K, D) unit MiniLM vectors of the steps.
        sentence_vectors: (S, D) unit MiniLM vectors of the sentences.
        duration: duration of the video in seconds.
        settings: settings of the alignment.
        step_probabilities: (S,) P(the sentence describes a step), for the line model. None: unknown.

    Raises ShapeError if the vectors do not fit.
    """
    # The paper's softmax, also without steps or sentences.
    if settings.matching == "softmax" or not steps or not sentences:
        similarity = step_vectors @ sentence_vectors.T
        return coarse_spans(steps, sentences, similarity, duration=duration, settings=settings)
    _check_vector_shapes(step_vectors, sentence_vectors, (len(steps), len(sentences)))
    # T_SN is the posterior of the line model.
    match = match_lines(
        [step.text for step in steps],
        [sentence.text for sentence in sentences],
        step_vectors,
        sentence_vectors,
        step_probabilities=step_probabilities,
    )
    weights = match.posterior.astype(np.float32)
    return _align_by_weights(steps, sentences, weights, duration=duration, settings=settings)


def coarse_spans(
    steps: Sequence[Step],
    sentences: Sequence[Sentence],
    similarity: Matrix,
    *,
    duration: float,
    settings: CoarseSettings = CoarseSettings(),
) -> tuple[tuple[Step, ...], tuple[Rejected, ...]]:
    """Return the steps with `said` set to where the most similar sentences are said.

    The second result is the steps whose score is below `settings.floor`. The score of a step is its
    maximum of Y_SV (`coarse_scores`). Its `sources` are the sentences that overlap `said` and have a
    weight of 1/S or more.

    Args:
        steps: K steps.
        sentences: S sentences with their times.
        similarity: (K, S) cosine of each step and sentence.
        duration: duration of the video in seconds.
        settings: temperature and thresholds.

    Raises ShapeError if similarity is not (K, S). Source: NaSVA, section 3.1.
    """
    shape = (len(steps), len(sentences))
    if similarity.shape != shape:
        raise ShapeError(f"similarity must be {shape}, steps by sentences, not {similarity.shape}")
    weights = softmax(similarity / settings.temperature)
    return _align_by_weights(steps, sentences, weights, duration=duration, settings=settings)


def coarse_scores(weights: Matrix, sentences: Sequence[Sentence], duration: float) -> Matrix:
    """Return Y_SV = T_SN Y_NV, (K, T): how well each step matches what is said in each second.

    Args:
        weights: T_SN, (K, S), weight of each of S sentences for each of K steps. Rows sum to 1.
        sentences: S sentences with their times.
        duration: duration of the video in seconds. T is this number rounded up.

    Source: NaSVA, equation 3.
    """
    spans = [sentence.span for sentence in sentences]
    labels = narration_labels(spans, math.ceil(duration), "covering")
    # rounded, so that true ties tie
    values: Matrix = np.minimum((weights @ labels).round(6), 1.0).astype(np.float32)
    return values


def _align_by_weights(
    steps: Sequence[Step],
    sentences: Sequence[Sentence],
    weights: Matrix,
    *,
    duration: float,
    settings: CoarseSettings,
) -> tuple[tuple[Step, ...], tuple[Rejected, ...]]:
    """Return the steps with `said` set to the seconds around their best coarse score, and the steps that
    were dropped because that score is too low.

    Args:
        steps: K steps.
        sentences: S sentences with their times.
        weights: (K, S) weight of each sentence for each step, NaSVA's T_SN. `coarse_scores` makes its
            Y_SV, (K, T), of them.
        duration: duration of the video in seconds.
        settings: least score of a step, and fraction of its best score at which its span ends.
    """
    scores = coarse_scores(weights, sentences, duration)
    placed: list[Step] = []
    dropped: list[Rejected] = []
    for step, row, weight in zip(steps, scores, weights, strict=True):
        best = float(row.max(initial=0.0))
        if not row.size or row.max() < settings.floor:
            reason = f"best alignment score {best:.2f} is below {settings.floor:.2f}"
            dropped.append(Rejected(what="step", text=step.text, reason=reason))
            continue
        start, end = grow_window(row, int(row.argmax()), settings.grow)
        said_span = Span(float(start), min(float(end), duration))
        # Its sources are sentences in the span with more than the average weight.
        sources = [
            n
            for n, sentence in enumerate(sentences)
            if sentence.span.overlap(said_span) > 0 and weight[n] >= 1 / len(weight)
        ]
        update = {"said": said_span, "score": min(1.0, best), "sources": tuple(sources)}
        placed.append(step.model_copy(update=update))
    return tuple(placed), tuple(dropped)


def narration_labels(spans: Sequence[Span], seconds: int, rule: LabelRule) -> Matrix:
    """Return Y_NV, (S, T) zeros and ones: 1 for the seconds that each narration covers.

    Args:
        spans: spans of S narrations.
        seconds: T.
        rule: "covering": every second [t, t+1) that overlaps the span. "inclusive": every whole t with
            start <= t <= end, as in NaSVA's released loss. There may be no such t.
    """
    t = np.arange(seconds)
    labels = np.zeros((len(spans), seconds), dtype=np.float32)
    for row, span in zip(labels, spans, strict=True):
        if rule == "covering":
            row[(t < span.end) & (t + 1 > span.start)] = 1
        else:
            row[(t >= span.start) & (t <= span.end)] = 1
    return labels


def grow_window(
    row: Matrix | npt.NDArray[np.float64], center: int, fraction: float
) -> tuple[int, int]:
    """Return the longest range [start, end) around an index in which scores stay high.

    Args:
        row: (T,) scores.
        center: index from which the range grows to both sides.
        fraction: of the score at `center`, which all scores in the range reach.
    """
    # float32: a neighbour exactly at the fraction stays in
    floor = fraction * row[center] - 1e-6
    start = center
    end = center + 1
    while start > 0 and row[start - 1] >= floor:
        start -= 1
    while end < len(row) and row[end] >= floor:
        end += 1
    return start, end


class TaskGraph(FrozenModel):
    """The common steps of several videos of one task, from `stepline compare`.

    Attributes:
        lines: texts of K steps, in the order of most videos.
        kinds: kind of each of the K steps.
        videos: number of videos that were compared.
        before: (K, K) P(line i comes before line j) in a video that shows both.
    """

    lines: tuple[str, ...]
    kinds: tuple[StepKind, ...]
    videos: int
    before: tuple[tuple[float, ...], ...]


def steps_from_texts(
    texts: Sequence[str],
    transcript: Transcript,
    sentence_vectors: Matrix,
    text_vectors: Matrix,
    *,
    so_far: bool = False,
    step_probabilities: npt.NDArray[np.float64] | None = None,
    graph: TaskGraph | None = None,
    start: float = 0.0,
) -> tuple[Step, ...]:
    """Return a user's own lines as steps, with `said` set to where the narration says them.

    Of a finished narration, `at` is the second around which sentences say the line, also where that is
    too unlikely for `said`. `doubt` names the second of a sentence that says the line far better, but out
    of the order of the list.

    `said` stays None if P(said) by `line_model` is below 0.5, or if no sentence that the line cites is
    like it: MIN_LINE_LIKENESS, or MIN_LINE_COSINE while the narration is still running.

    Args:
        texts: K lines in the user's order. The steps have the same order.
        transcript: the S sentences of the narration.
        sentence_vectors: (S, D) MiniLM vectors of the sentences.
        text_vectors: (K, D) MiniLM vectors of the lines.
        so_far: whether the narration is still running, so that later lines may still be said.
        step_probabilities: (S,) P(the sentence describes a step). None: unknown.
        graph: the comparison of videos that the lines come from, for their kinds. None: no comparison.
        start: second of the video from which the times of the narration count.

    Raises ShapeError if the vectors do not fit.
    """
    steps = line_steps(texts, graph)
    sentences = transcript.sentences
    if not steps or not sentences:
        return steps
    _check_vector_shapes(text_vectors, sentence_vectors, (len(steps), len(sentences)))
    match = match_lines(
        texts,
        [sentence.text for sentence in sentences],
        text_vectors,
        sentence_vectors,
        step_probabilities=step_probabilities,
        so_far=so_far,
    )

    # which lines are said at all: the sentences that a line cites must be like it
    cosines = cosine_matrix(text_vectors, sentence_vectors)  # (K, S)
    best = match.posterior.argmax(axis=1).tolist()  # (K,)
    passages = [_near_best(match.passage_of(k), best[k], sentences) for k in range(len(steps))]
    likeness, least = cosines, MIN_LINE_COSINE
    if not so_far:
        likeness, least = cosines + match.words, MIN_LINE_LIKENESS
    cited = np.array([likeness[k, list(passage)].max() for k, passage in enumerate(passages)])
    is_said = (match.said_probabilities >= MIN_SAID_PROBABILITY) & (cited >= least)
    # In the first sentences a cosine may be enough.
    if so_far and len(sentences) < MIN_MODEL_SENTENCES:
        best_cosines = cosines.max(axis=1)  # (K,)
        best_sentences = cosines.argmax(axis=1)
        rivals = cosines.max(axis=0)[best_sentences]  # (K,) best at its sentence
        is_near = rivals - best_cosines <= MAX_EARLY_LEAD
        is_said |= (best_cosines >= EARLY_COSINE) & is_near
    centers = np.array([sentence.span.center for sentence in sentences])
    line_seconds = (sentences[-1].span.end - sentences[0].span.start) / len(steps)
    deviation = min(LINE_DEVIATION_FRACTION * line_seconds, MAX_LINE_DEVIATION_SECONDS)
    placed = []
    for k, step in enumerate(steps):
        first = sentences[passages[k][0]].span
        last = sentences[passages[k][-1]].span
        said_span = Span(first.start, max(first.end, last.end))
        update: dict[str, Any] = {}
        if is_said[k]:
            update = {"said": said_span, "sources": passages[k]}
        if not so_far:
            update["at"] = shift_to_mean(said_span.center, centers, match.posterior[k], deviation)
            # a sentence elsewhere that says this line far better, and no other line as well
            row = match.evidence[k]
            better = int(row.argmax())
            span = sentences[better].span
            if (
                row[better] - row[list(passages[k])].max() >= MIN_ORDER_LEAD
                and match.evidence[:, better].argmax() == k
                and likeness[k, better] >= least
                and span.pause(said_span) > MAX_LINE_DEVIATION_SECONDS
            ):
                minutes, second = divmod(int(start + span.start), 60)
                update["doubt"] = f"said at {minutes}:{second:02d}, {OUT_OF_ORDER}"
        placed.append(step.model_copy(update=update))
    return tuple(placed)


def shift_to_mean(start: float, centers: Array, weights: Array, deviation: float) -> float:
    """Return the second around which the weight of sentences is, near a first guess, by mean shift.

    Args:
        start: the first guess in seconds.
        centers: (S,) middle of each sentence in seconds.
        weights: (S,) weight of each sentence.
        deviation: standard deviation of the Gaussian kernel in seconds.

    Source: Fukunaga and Hostetler 1975.
    """
    second = start
    for _ in range(SHIFT_ROUNDS):
        near = weights * np.exp(-(((centers - second) / deviation) ** 2) / 2)
        if near.sum() < MIN_MASS:
            break
        second = float(np.average(centers, weights=near))
    return second


def _near_best(
    passage: tuple[int, ...], best: int, sentences: Sequence[Sentence]
) -> tuple[int, ...]:
    """Return the sentences of a passage that are said shortly before or after its best one."""
    span = sentences[best].span
    return tuple(
        index for index in passage if span.pause(sentences[index].span) <= MAX_ACTION_PAUSE_SECONDS
    )


def line_steps(texts: Sequence[str], graph: TaskGraph | None) -> tuple[Step, ...]:
    """Return a user's lines as steps without times, with ids from "1".

    Args:
        texts: the lines.
        graph: the comparison of videos that gives their kinds. None: the wording decides the kind.
    """
    kinds = map(instruction_kind, texts) if graph is None else graph.kinds
    return tuple(
        Step(id=str(number), text=text, kind=kind)
        for number, (text, kind) in enumerate(zip(texts, kinds, strict=True), start=1)
    )


def _check_vector_shapes(texts: Matrix, sentences: Matrix, shape: tuple[int, int]) -> None:
    if texts.ndim != 2 or sentences.ndim != 2 or texts.shape[1] != sentences.shape[1]:
        raise ShapeError(
            f"text vectors {texts.shape} and sentence vectors {sentences.shape} must share their "
            "width"
        )
    counts = (len(texts), len(sentences))
    if counts != shape:
        raise ShapeError(f"need one vector per text and per sentence: {shape}, not {counts}")
