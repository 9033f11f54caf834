"""Where a step is said: from its likeness to the narration to seconds of the video (NaSVA, section
3.1).

    T_SN = softmax(g(S) g(N)^T / nu)     (K, S)  step to narration
    Y_SV = T_SN Y_NV                     (K, T)  step to second
    c_k  = argmax_t Y_SV                 grown left and right while Y_SV >= zeta Y_SV[c_k]

Letters: K steps, S sentences, T seconds. Left open by the paper and chosen here: the value of nu,
cosine likeness, which seconds a narration covers (`narration_labels`), ties (the earliest second).

The user's own lines (a recipe) as steps: each said where the narration most resembles it, if
anywhere.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.grounding.settings import CoarseSettings, LabelRule
from stepline.numeric import cosine_matrix, sigmoid, softmax
from stepline.records import Alignment, Matrix, Rejected, Sentence, Span, Step, Transcript
from stepline.writing.types import instruction_kind

# Cosine by which another text may be ahead of one while the narration goes on. On 24 real clips,
# without it and with it:
#
#     not said yet, but believed said           .50    .20
#     of another clip, but believed said        .28    .09
#     said, and found at its sentence           .92    .89
#
# On drawn videos .10 takes the first from .67 to .17, and .90 are found either way.
MAX_RIVAL_LEAD = 0.15

# The best cosines of a video's own lines and of another's: mean and standard deviation of the 282
# headings of 53 real tutorials and their transcripts (benchmarks/said_lines.py). A line counts as
# said from this chance on: of those headings .98 do, .99 with `likeness` alone, of another
# tutorial's .22, not .43; of real clips' .99 for 1, .22 for .40.
SAID_COSINE = (0.66, 0.13)
UNSAID_COSINE = (0.35, 0.12)
MIN_SAID_PROBABILITY = 0.05
MIXTURE_ROUNDS = 50  # the fraction that is said settles in fewer


def coarse_spans(
    steps: Sequence[Step],
    sentences: Sequence[Sentence],
    similarity: Matrix,
    *,
    duration: float,
    settings: CoarseSettings | None = None,
) -> tuple[tuple[Step, ...], tuple[Rejected, ...]]:
    """Return the steps with `said` set to where the sentences most like them are spoken, and those
    dropped.

    similarity: (K, S) cosine, row = step. `score` of a placed step is its best Y_SV; its `sources`
    are the sentences that overlap the window and weigh at least 1/S in T_SN. Raises ShapeError for
    any other shape.
    Source: NaSVA, section 3.1.
    """
    settings = settings or CoarseSettings()
    scores = coarse_scores(steps, sentences, similarity, duration=duration, settings=settings)
    weights = softmax(similarity / settings.temperature)
    placed: list[Step] = []
    dropped: list[Rejected] = []
    for step, row, weight in zip(steps, scores.scores, weights, strict=True):
        best = float(row.max(initial=0.0))
        if not row.size or row.max() < settings.floor:
            reason = f"best alignment score {best:.2f} is below {settings.floor:.2f}"
            dropped.append(Rejected(what="step", text=step.text, reason=reason))
            continue
        start, end = grow_window(row, int(row.argmax()), settings.grow)
        said = Span(float(start), min(float(end), duration))
        sources = tuple(
            n
            for n, sentence in enumerate(sentences)
            if sentence.span.overlap(said) > 0 and weight[n] >= 1 / len(weight)
        )
        update = {"said": said, "score": min(1.0, best), "sources": sources}
        placed.append(step.model_copy(update=update))
    return tuple(placed), tuple(dropped)


def coarse_scores(
    steps: Sequence[Step],
    sentences: Sequence[Sentence],
    similarity: Matrix,
    *,
    duration: float,
    settings: CoarseSettings | None = None,
) -> Alignment:
    """Return Y_SV as probabilities (K, T), one column a second. Raises ShapeError if similarity is
    not (K, S)."""
    settings = settings or CoarseSettings()
    if similarity.shape != (len(steps), len(sentences)):
        want = f"({len(steps)}, {len(sentences)})"
        raise ShapeError(f"similarity must be {want}, steps by sentences, not {similarity.shape}")
    labels = narration_labels([s.span for s in sentences], math.ceil(duration), settings.label_rule)
    chained = softmax(similarity / settings.temperature) @ labels  # (K, S) @ (S, T) -> (K, T)
    values = np.minimum(chained.round(6), 1.0).astype(np.float32)  # rounded, so that true ties tie
    return Alignment(tuple(step.text for step in steps), values, 1.0, "probability")


def narration_labels(spans: Sequence[Span], seconds: int, rule: LabelRule) -> Matrix:
    """Return Y_NV (S, T) of zeros and ones: which seconds each narration covers.

    covering: every second t that it touches, [t, t+1) meets the span; never empty.
    inclusive: start <= t <= end for whole t, both ends in, as NaSVA's released loss does; empty for
    a span between two whole seconds.
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
    """Return [start, end) rows around `center` whose score is at least `fraction` of the score
    there."""
    # float32: a neighbour exactly at the fraction stays in
    floor = fraction * row[center] - 1e-6
    start, end = center, center + 1
    while start > 0 and row[start - 1] >= floor:
        start -= 1
    while end < len(row) and row[end] >= floor:
        end += 1
    return start, end


def steps_from_texts(
    texts: Sequence[str],
    transcript: Transcript,
    sentence_vectors: Matrix,
    text_vectors: Matrix,
    *,
    so_far: bool = False,
    settings: CoarseSettings | None = None,
) -> tuple[Step, ...]:
    """Return one step a text, in the order given, with `said` and `sources` where the narration
    speaks of it.

    sentence_vectors: (S, D), text_vectors: (K, D), of one sentence encoder. A text that no sentence
    resembles (cosine below `likeness`, or hardly likely by `said_probabilities`, or the floor of section
    3.1) keeps said=None; so does every text when nobody speaks.
    so_far: the narration goes on, so that the sentence most like a text may be like another one
    more; then another text may be ahead by at most MAX_RIVAL_LEAD.
    Raises ShapeError when the vectors do not fit.
    """
    settings = settings or CoarseSettings()
    steps = tuple(
        Step(id=str(number), text=text, kind=instruction_kind(text))
        for number, text in enumerate(texts, start=1)
    )
    sentences = transcript.sentences
    if not steps or not sentences:
        return steps
    _check_vectors(text_vectors, sentence_vectors, (len(steps), len(sentences)))
    similarity = cosine_matrix(text_vectors, sentence_vectors).astype(np.float32)  # (K, S)
    best = similarity.max(axis=1)
    is_spoken = best >= settings.likeness
    if so_far:
        rivals = similarity[:, similarity.argmax(axis=1)].max(axis=0)
        is_spoken &= best >= rivals - MAX_RIVAL_LEAD
    else:
        is_spoken &= said_probabilities(best) >= MIN_SAID_PROBABILITY
    spoken = [steps[k] for k in np.flatnonzero(is_spoken)]
    duration = float(math.ceil(max(sentence.span.end for sentence in sentences)))
    placed, _ = coarse_spans(
        spoken, sentences, similarity[is_spoken], duration=duration, settings=settings
    )
    by_id = {step.id: step.model_copy(update={"score": None}) for step in placed}
    return tuple(by_id.get(step.id, step) for step in steps)


def said_probabilities(best: Matrix) -> Matrix:
    """Return P(said) of each line of a list (K,), from its best cosine with any sentence (K,), of
    MiniLM.

    The lines said and the others are two normal distributions, SAID_COSINE and UNSAID_COSINE. How
    many are said is the most likely number for this list, from an even start: where none of the
    others is, a line needs a higher cosine.
    """
    log_odds = np.zeros(len(best), np.float64)
    for (mean, spread), sign in ((SAID_COSINE, 1.0), (UNSAID_COSINE, -1.0)):
        # beyond its mean a line is not less likely said
        deviation = (np.minimum(best, SAID_COSINE[0]) - mean) / spread
        log_odds += sign * (-0.5 * deviation**2 - math.log(spread))
    fraction = 0.5
    for _ in range(MIXTURE_ROUNDS):
        probabilities = sigmoid(log_odds + math.log(fraction / (1 - fraction)))
        fraction = float(probabilities.sum() + 1) / (len(best) + 2)
    return np.asarray(probabilities, np.float32)


def _check_vectors(texts: Matrix, sentences: Matrix, shape: tuple[int, int]) -> None:
    if texts.ndim != 2 or sentences.ndim != 2 or texts.shape[1] != sentences.shape[1]:
        raise ShapeError(
            f"text vectors {texts.shape} and sentence vectors {sentences.shape} must share their width"
        )
    if (len(texts), len(sentences)) != shape:
        raise ShapeError(
            f"need one vector a text and a sentence: {shape}, not {(len(texts), len(sentences))}"
        )
