"""Estimates whether the picture shows what is said, without a trained detector: P(shown) of every
sentence in the clip in which it is said (WYS2, section 3).

Logistic regressions combine the evidence below. They are fitted to real clips and measured on clips
of other makers (`lab/fit_judge.py`). The numbers are in docs/wys2.md:

    cited      whether a step rests on the sentence: chat is hardly ever shown
    on screen  P(such a step is shown) in the best second of the clip, by the grounding, which itself uses the wording,
               the times of speech, the objects that are named and seen, and motion
    wording    where nothing was grounded: P(shown | the words), learnt on real videos (`text.visibility`)

Letters: S sentences, K steps, T feature rows.
"""

import functools
import json
from collections.abc import Sequence
from importlib import resources
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.numeric import logit, sigmoid
from stepline.records import Alignment, Matrix, Span, Step, Transcript
from stepline.text.visibility import predict_visibility

Array: TypeAlias = npt.NDArray[np.float64]

MIN_CLIP_SECONDS = 3.0  # of the clip in which a sentence is judged; WYS2, section 4
PROBABILITY_MARGIN = 1e-3  # how far from 0 and 1 a probability that is evidence is kept


def estimate_shown_by_words(wording: Matrix, cited: Sequence[bool]) -> tuple[float, ...]:
    """Return P(the picture shows it while it is said) of each sentence, estimated from its words,
    (S,).

    Args:
        wording: (S, 384) MiniLM vectors of the S sentences.
        cited: whether a step was written from each sentence.

    Raises ShapeError when the arguments differ in length.
    """
    count = len(cited)
    if count != len(wording):
        raise ShapeError(f"{len(wording)} sentence vectors need as many flags, not {count}")
    evidence = logit(predict_visibility(wording), PROBABILITY_MARGIN)
    rows = np.column_stack([evidence, np.asarray(cited, dtype=np.float64), np.ones(count)])
    return _predict_probabilities(rows, load_regression_weights("words"))


def estimate_shown_by_grounding(
    transcript: Transcript,
    steps: Sequence[Step],
    alignment: Alignment,
    *,
    seconds: float = MIN_CLIP_SECONDS,
) -> tuple[float, ...]:
    """Return P(the picture shows it while it is said) of each sentence, estimated from the grounded
    steps, (S,).

    Args:
        transcript: transcript with S sentences.
        steps: K steps with the times at which they are shown.
        alignment: (K, T) scores of K steps in T feature rows. Scores of kind "probability" are P(step
            k is shown in row t).
        seconds: least length of the clip in which a sentence is judged.

    Raises ShapeError when steps and alignment differ in number.
    """
    rows = make_regression_rows(
        *collect_grounding_evidence(transcript, steps, alignment, seconds=seconds)
    )
    return _predict_probabilities(rows, load_regression_weights("grounding"))


def make_regression_rows(cited: Array, on_screen: Array) -> Array:
    """Return the inputs of the logistic regression, (S, 3): log odds of being on screen (0 for
    uncited sentences), `cited`, and 1.

    Args:
        cited: (S,) 1 if a step was written from the sentence, otherwise 0.
        on_screen: (S,) probability that such a step is shown while the sentence is said.
    """
    log_odds = logit(on_screen, PROBABILITY_MARGIN)
    return np.column_stack([cited * log_odds, cited, np.ones(len(cited))])


def collect_grounding_evidence(
    transcript: Transcript,
    steps: Sequence[Step],
    alignment: Alignment,
    *,
    seconds: float = MIN_CLIP_SECONDS,
) -> tuple[Array, Array]:
    """Return whether a step was written from each sentence (S,), and the probability that such a
    step is shown in the sentence's clip (S,).

    The probability is the largest of the clip's rows if the alignment holds probabilities.
    Otherwise it is the step's score, if its best span overlaps the clip.

    Args:
        transcript: transcript with S sentences.
        steps: K steps with the times at which they are shown.
        alignment: (K, T) scores of K steps in T feature rows.
        seconds: least length of the clip of a sentence.

    Raises ShapeError when steps and alignment differ in number.
    """
    row_count = len(alignment.scores)
    if row_count != len(steps):
        raise ShapeError(f"{len(steps)} steps need as many rows of alignment, not {row_count}")
    sentences = transcript.sentences
    cited = np.zeros(len(sentences))
    on_screen = np.zeros(len(sentences))
    # A sentence that several steps rest on has the most likely one.
    for row, step in enumerate(steps):
        for source in step.sources:
            clip = widen_span(sentences[source].span, seconds)
            cited[source] = 1.0
            p = 0.0
            # Only probabilities are read in the clip itself.
            if alignment.kind == "probability":
                p = float(alignment.scores[row, alignment.rows(clip)].max(initial=0.0))
            elif step.spans and step.spans[0].overlap(clip) > 0:
                p = step.score or 0.0
            on_screen[source] = max(on_screen[source], p)
    return cited, on_screen


def widen_span(span: Span, seconds: float = MIN_CLIP_SECONDS) -> Span:
    """Return a span widened around its middle to at least `seconds`: the clip in which a sentence
    is judged."""
    start = max(0.0, span.start - max(0.0, seconds - span.duration) / 2)
    return Span(start, max(span.end, start + seconds))


def _predict_probabilities(rows: Array, weights: Array) -> tuple[float, ...]:
    return tuple(sigmoid(rows @ weights).tolist())


@functools.cache
def load_regression_weights(kind: str) -> Array:
    """Return the weights of a fitted logistic regression, (3,): of the evidence, of being cited by a
    step, and the intercept.

    kind: regression "words" of `estimate_shown_by_words`, or "grounding" of `estimate_shown_by_grounding`.
    """
    file = resources.files("stepline.models.wys2").joinpath("judge.json")
    return np.array(json.loads(file.read_text(encoding="utf-8"))[kind], dtype=np.float64)
