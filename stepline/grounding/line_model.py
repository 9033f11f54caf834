"""Which sentences of a narration speak of which line of a list: a hidden Markov model.

A state is a line being told, or the pause after one, in which nothing of the list is told. Lines
are told in order more or less: a line may be skipped, told again, or come late, each at a price.
With e the evidence of `line_features` and F the price of a jump over lines, a path weighs

    line k goes on      stay     exp(w . e_k(s) + bias)
    line k to line j    direct   F(j - k) exp(w . e_j(s) + bias)
    pause k to line j   enter    F(j - k) exp(w . e_j(s) + bias)
    line k to pause k, pause k to pause k: 1;  lines left at the end: exp(end) each

    P(k at s)     by forward and backward sums over all paths
    P(k never)    the sum of the paths without line k, over the sum of all
    P(said k)     a logistic regression of that, of the line's best evidence and of the whole list's

`benchmarks/fit_line_model.py` fits the numbers in `line_model.json`. Letters: K lines, S sentences,
F features, T seconds.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.grounding.line_features import FEATURE_NAMES, Features, line_features
from stepline.numeric import logit, sigmoid
from stepline.records import Matrix

Array = npt.NDArray[np.float64]

MAX_EXPONENT = 30.0  # of a state's weight; more makes no difference to a probability
MIN_NEVER_PROBABILITY = 1e-4  # and as far from 1, so that its log odds stay finite
WORDS_PER_LINE = 8  # of a sentence, from which on twice as many it may tell two lines
MAX_SENTENCE_PARTS = 4
# share of the likeliest sentence's posterior, and nats below its evidence, down to which its
# neighbours belong to the same telling
SAME_TELLING_FRACTION = 0.5
SAME_TELLING_NATS = 1.0
MIN_MASS = 1e-12  # of a row, against a division by zero
MAX_LEFT_OUT = 2_000_000  # numbers of the lists, each with one line left out, summed at once


@dataclass(frozen=True)
class LineWeights:
    """The fitted numbers. evidence: of each feature, in the order of FEATURE_NAMES; the others are
    logarithms of the prices in the module's table. said: of the features of `said_features`;
    said_so_far: the same of a narration that goes on."""

    evidence: tuple[float, ...]
    bias: float
    stay: float
    direct: float
    enter: float
    skip: float
    skip_more: float
    again: float
    back: float
    back_more: float
    end: float
    said: tuple[float, ...]
    said_bias: float
    said_so_far: tuple[float, ...]
    said_so_far_bias: float

    def __post_init__(self) -> None:
        if len(self.evidence) != len(FEATURE_NAMES):
            raise ShapeError(
                f"the line model has {len(self.evidence)} weights of evidence, and must have"
                f" {len(FEATURE_NAMES)}; run benchmarks/fit_line_model.py"
            )


@dataclass(frozen=True)
class LinePosterior:
    """posterior: (K, S) P(line k is being told in sentence s). said: (K,) P(told anywhere).
    evidence: (K, S) nats by which the sentence itself speaks for the line."""

    posterior: Array
    said: Array
    evidence: Array

    @property
    def places(self) -> Array:
        """(K, S): of a line that is told, how its telling spreads over the sentences; rows sum to
        1, or are 0."""
        mass = self.posterior.sum(axis=1, keepdims=True)
        return np.asarray(self.posterior / np.maximum(mass, MIN_MASS))

    def sentences_of(self, line: int) -> tuple[int, ...]:
        """Return the run of sentences that tell the line where it is likeliest; () without any.

        A neighbour belongs to it whose posterior and evidence are both near the likeliest's.
        """
        row = self.posterior[line]
        if not row.size:
            return ()
        best = int(row.argmax())
        is_near = row >= SAME_TELLING_FRACTION * row[best]
        is_near &= self.evidence[line] >= self.evidence[line, best] - SAME_TELLING_NATS
        first = last = best
        while first > 0 and is_near[first - 1]:
            first -= 1
        while last + 1 < len(row) and is_near[last + 1]:
            last += 1
        return tuple(range(first, last + 1))


def match_lines(
    lines: Sequence[str],
    sentences: Sequence[str],
    line_vectors: Matrix,
    sentence_vectors: Matrix,
    *,
    step_probabilities: Array | None = None,
    so_far: bool = False,
    weights: LineWeights | None = None,
) -> LinePosterior:
    """Return where and whether the narration tells each line.

    line_vectors: (K, D), sentence_vectors: (S, D), of MiniLM. step_probabilities: (S,) P(the
    sentence tells a step), where known. so_far: the narration goes on, so that lines not reached
    yet cost nothing.
    """
    line_weights = weights or load_line_weights()
    shape = (len(lines), len(sentences))
    if 0 in shape:
        return LinePosterior(np.zeros(shape), np.zeros(len(lines)), np.zeros(shape))
    features = line_features(lines, sentences, line_vectors, sentence_vectors, step_probabilities)
    if so_far:
        # where a line stands in the list says nothing of where in an unfinished narration it is
        features[..., FEATURE_NAMES.index("position")] = 0.0
    return match_features(features, line_weights, parts=sentence_parts(sentences), so_far=so_far)


def sentence_parts(sentences: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return (S,): how many lines each sentence can tell one after the other; a long one several."""
    words = np.array([len(sentence.split()) for sentence in sentences])
    parts: npt.NDArray[np.int64] = np.clip(words // WORDS_PER_LINE, 1, MAX_SENTENCE_PARTS)
    return parts


def match_features(
    features: Features,
    weights: LineWeights,
    *,
    parts: npt.NDArray[np.int64] | None = None,
    so_far: bool = False,
) -> LinePosterior:
    """Return what `match_lines` does, of ready features (K, S, F). parts: (S,) of `sentence_parts`;
    None: each sentence tells one line at most."""
    if parts is None:
        parts = np.ones(features.shape[1], np.int64)
    chain = LineChain(np.repeat(features, parts, axis=1), weights, so_far=so_far)
    posterior, total = chain.posterior()
    firsts = np.cumsum(parts) - parts
    posterior = np.maximum.reduceat(posterior, firsts, axis=1)
    never = chain.log_never(total)
    said = said_probability(said_features(features, never), weights, so_far=so_far)
    evidence = features @ np.array(weights.evidence)  # (K, S)
    return LinePosterior(posterior, said, evidence)


@dataclass(frozen=True)
class ForwardSums:
    """After one sentence: of the lines (N, K) and the pauses (N, K + 1), together 1, and what they
    were divided by, (N,). N: lists, each with other lines left out."""

    line: Array
    pause: Array
    scale: Array


class LineChain:
    """The sums over all paths of one list through one narration."""

    def __init__(self, features: Features, weights: LineWeights, *, so_far: bool = False) -> None:
        lines = features.shape[0]
        exponents = features @ np.array(weights.evidence) + weights.bias  # (K, S)
        self._evidence = np.exp(np.minimum(exponents, MAX_EXPONENT)).T  # (S, K)
        jumps = np.exp(jump_prices(lines, weights))  # (K + 1, K)
        self._from_pause = jumps * np.exp(weights.enter)
        self._from_line = jumps[1:] * np.exp(weights.direct)  # (K, K)
        np.fill_diagonal(self._from_line, np.exp(weights.stay))
        lines_left = np.arange(lines, -1, -1, dtype=np.float64)  # from pause 0 on
        self._ending = np.exp(weights.end * lines_left)
        if so_far:
            self._ending = np.ones(lines + 1)

    def posterior(self) -> tuple[Array, float]:
        """Return P(line k at s), (K, S), and the logarithm of the sum over all paths."""
        past = list(self._forward(np.ones((1, self._lines))))
        end = self._end_sum(past[-1])[0]
        line_future = self._ending[1:] / end
        pause_future = self._ending / end
        rows = np.zeros((len(past), self._lines))
        for s in range(len(past) - 1, -1, -1):
            rows[s] = past[s].line[0] * line_future
            arriving = self._evidence[s] * line_future
            scale = past[s].scale[0]
            line_future = (self._from_line @ arriving + pause_future[1:]) / scale
            pause_future = (self._from_pause @ arriving + pause_future) / scale
        total = sum(float(np.log(state.scale[0])) for state in past) + float(np.log(end))
        return np.minimum(rows.T, 1.0), total

    def log_never(self, total: float) -> Array:
        """Return the logarithm of P(line k is told nowhere), (K,). total: of all paths."""
        part = max(1, MAX_LEFT_OUT // self._lines)
        logarithms = np.zeros(self._lines)
        for first in range(0, self._lines, part):
            rows = np.arange(first, min(first + part, self._lines))
            is_allowed = np.ones((len(rows), self._lines))
            is_allowed[np.arange(len(rows)), rows] = 0.0
            for state in self._forward(is_allowed):
                logarithms[rows] += np.log(state.scale)
            logarithms[rows] += np.log(self._end_sum(state))
        return np.minimum(logarithms - total, 0.0)

    @property
    def _lines(self) -> int:
        return len(self._ending) - 1

    def _forward(self, is_allowed: Array) -> Iterator[ForwardSums]:
        """Yield the forward sums after each sentence. is_allowed: (N, K), 0 for a line left out."""
        line = np.zeros(is_allowed.shape)
        pause = np.zeros((len(is_allowed), self._lines + 1))
        pause[:, 0] = 1.0
        for evidence in self._evidence:
            arriving = (line @ self._from_line + pause @ self._from_pause) * evidence
            arriving *= is_allowed
            resting = pause.copy()
            resting[:, 1:] += line
            scale = arriving.sum(axis=1) + resting.sum(axis=1)
            line = arriving / scale[:, None]
            pause = resting / scale[:, None]
            yield ForwardSums(line, pause, scale)

    def _end_sum(self, state: ForwardSums) -> Array:
        return np.asarray(state.line @ self._ending[1:] + state.pause @ self._ending)


def jump_prices(lines: int, weights: LineWeights) -> Array:
    """Return the logarithm of F of going from position 0 to K to each line, (K + 1, K)."""
    distance = np.arange(1, lines + 1) - np.arange(lines + 1)[:, None]
    skip = weights.skip + weights.skip_more * (distance - 2)
    back = weights.back + weights.back_more * (-distance - 1)
    rules = [distance >= 2, distance == 1, distance == 0]
    return np.select(rules, [skip, np.zeros(distance.shape), weights.again], back)


def said_features(features: Features, log_never: Array) -> Array:
    """Return what P(said) rests on, (K, 8).

    The line: log odds that a path tells it, its best cosine, its best share of words. The list: the
    means of best cosine, best words, cosine and best words nearby; the logarithm of the number of
    sentences, for the more there are, the better is the best of them by chance.
    """
    lines, sentences, _ = features.shape
    never = np.clip(np.exp(log_never), MIN_NEVER_PROBABILITY, 1 - MIN_NEVER_PROBABILITY)
    best = features.max(axis=1)  # (K, F)
    best_cosine = best[:, FEATURE_NAMES.index("cosine")]
    best_words = best[:, FEATURE_NAMES.index("words")]
    near_words = best[:, FEATURE_NAMES.index("near_words")]
    cosine = features[..., FEATURE_NAMES.index("cosine")]
    columns = [-logit(never), best_cosine, best_words]
    of_list = (best_cosine.mean(), best_words.mean(), cosine.mean(), near_words.mean())
    columns += [np.full(lines, value) for value in (*of_list, np.log(sentences))]
    return np.stack(columns, axis=1)


def said_probability(rows: Array, weights: LineWeights, *, so_far: bool = False) -> Array:
    """Return P(said) of each line, (K,). rows: (K, 8) of `said_features`."""
    numbers = weights.said
    bias = weights.said_bias
    if so_far:
        numbers = weights.said_so_far
        bias = weights.said_so_far_bias
    return np.asarray(sigmoid(rows @ np.array(numbers) + bias), np.float64)


@functools.cache
def load_line_weights() -> LineWeights:
    """Return the fitted numbers that come with the package."""
    file = resources.files("stepline.grounding") / "line_model.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    evidence = content.pop("evidence")
    in_order = tuple(float(evidence[name]) for name in FEATURE_NAMES)
    for name in ("said", "said_so_far"):
        content[name] = tuple(content[name])
    return LineWeights(evidence=in_order, **content)
