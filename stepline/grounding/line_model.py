"""Which sentences of a narration speak of each line of a list: a hidden Markov model.

Four sentences go in, with three lines. P(said) of each line comes out, and where it is said:

    0 "Welcome back to my kitchen."   2 "I let it run under the cold tap to rinse the pasta."
    1 "Now I drain the pasta."        3 "See you next week."

    'Drain the pasta'    P(said) 1.00, P(in sentence 1) 0.99
    'Chop the parsley'   P(said) 0.02, below 0.01 in every sentence
    'Rinse the pasta'    P(said) 1.00, P(in sentence 2) 0.98

A state is a line being said, or the pause after one, in which nothing of the list is said. Lines
are said in order more or less: a line may be skipped, said again, or come late, each at a price.
With e the features of `line_features` and F the price of a jump over lines, a path weighs

    line k goes on      stay     exp(w . e_k(s) + bias)
    line k to line j    direct   F(j - k) exp(w . e_j(s) + bias)
    pause k to line j   enter    F(j - k) exp(w . e_j(s) + bias)
    line k to pause k, pause k to pause k: 1;  lines left at the end: exp(end) each

    P(k at s)     by forward and backward sums over all paths
    P(k never)    the sum of the paths without line k, over the sum of all
    P(said k)     a logistic regression of that, of the line's best evidence and of the whole list's;
                  while the narration goes on, at most 1 - P(k never)

The features of a line and a sentence, whose weights are `w`:

    cosine       of the line and the sentence
    contrast     that cosine, less the mean over the lines: what a sentence says of all alike counts
                 for none
    context      the cosine with the mean of the sentence and its two neighbours
    words        the share of the IDF mass of the line's words and numbers that the sentence holds
    near words   the share that the sentence and its neighbours hold
    position     how far the sentence's place in the narration is from the line's in the list
    length       of the sentence: the logarithm of its words
    step         log odds that the sentence tells a step, as far as known

`lab/fit_line_model.py` fits the numbers in `line_model.json`. Letters: K lines, S sentences,
F features, T seconds, D width.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from stepline.errors import ShapeError
from stepline.numeric import logit, sigmoid, unit_rows
from stepline.records import Matrix

Features = npt.NDArray[np.float64]

FEATURE_NAMES = (
    "cosine",
    "contrast",
    "context",
    "words",
    "near_words",
    "position",
    "length",
    "step",
)
MIN_WORD_LETTERS = 3  # shorter words say little
MIN_IDF_MASS = 1e-9  # of IDF, against a division by zero
MIN_STEP_MARGIN = 0.02  # of P(describes a step) from 0 and 1
# an English ending after three letters or more, and the letter that was doubled before it
ENDING_PATTERN = re.compile(r"(?<=[a-z]{3})(?:ing|ed|ies|es|s|er|y|e)$")
DOUBLE_PATTERN = re.compile(r"([b-df-hj-np-tv-z])\1$")
WORD_PATTERN = re.compile(r"[^\W\d_]+|\d+(?:[.,/]\d+)?")
Array = npt.NDArray[np.float64]
MAX_EXPONENT = 30.0  # of a state's weight; more makes no difference to a probability
MIN_NEVER_PROBABILITY = 1e-4  # and as far from 1, so that its log odds stay finite
WORDS_PER_LINE = 8  # of a sentence, from which on twice as many it may tell two lines
MAX_SENTENCE_PARTS = 4
# share of the most likely sentence's posterior, and nats below its evidence, down to which its
# neighbours belong to the same passage
SAME_PASSAGE_FRACTION = 0.5
SAME_PASSAGE_NATS = 1.0
MIN_MASS = 1e-12  # of a row, against a division by zero
MAX_LEAVE_ONE_OUT_VALUES = (
    2_000_000  # numbers of the lists, each with one line left out, summed together
)


def line_features(
    lines: Sequence[str],
    sentences: Sequence[str],
    line_vectors: Matrix,
    sentence_vectors: Matrix,
    step_probabilities: npt.NDArray[np.float64] | None = None,
) -> Features:
    """Return the features (K, S, F) in the order of FEATURE_NAMES.

    line_vectors: (K, D), sentence_vectors: (S, D), of one sentence encoder.
    step_probabilities: (S,) P(the sentence describes a step). None: unknown, and the feature is 0.
    """
    # Cosines with each sentence, and with it among its neighbours.
    line_rows = unit_rows(np.asarray(line_vectors, np.float64))
    sentence_rows = unit_rows(np.asarray(sentence_vectors, np.float64))
    cosine = line_rows @ sentence_rows.T  # (K, S)
    context = line_rows @ unit_rows(sum_with_neighbours(sentence_rows)).T
    # Words that lines and sentences share.
    words, near_words = word_overlap(lines, sentences)
    shape = cosine.shape
    features = (
        cosine,
        cosine - cosine.mean(axis=0, keepdims=True),
        context,
        words,
        near_words,
        position_distance(*shape),
        np.broadcast_to(sentence_lengths(sentences), shape),
        np.broadcast_to(step_log_odds(step_probabilities, shape[1]), shape),
    )
    return np.stack(features, axis=-1)


def sum_with_neighbours(rows: Features) -> Features:
    """Return each row (N, D) plus the one before and the one after it."""
    total = rows.copy()
    total[1:] += rows[:-1]
    total[:-1] += rows[1:]
    return total


def word_overlap(lines: Sequence[str], sentences: Sequence[str]) -> tuple[Features, Features]:
    """Return the IDF-weighted share of each line's words that a sentence holds, (K, S), and the same
    of the sentence with its two neighbours."""
    spoken = [content_words(sentence) for sentence in sentences]
    frequency: Counter[str] = Counter()
    for sentence_stems in spoken:
        frequency.update(sentence_stems)
    shape = (len(lines), len(sentences))
    words = np.zeros(shape)
    near_words = np.zeros(shape)
    for k, line in enumerate(lines):
        # sorted, so that the sums are the same in every run
        stems = sorted(content_words(line))
        if not stems:
            continue
        # A word's IDF in this narration. The half keeps that of a word never said finite.
        counts = np.array([frequency[stem] for stem in stems], dtype=np.float64)
        masses = np.log((len(sentences) + 1) / (counts + 0.5))
        shares = masses / max(float(masses.sum()), MIN_IDF_MASS)
        sentence_shares = np.zeros((len(stems), len(sentences)))
        for row, stem in zip(sentence_shares, stems, strict=True):
            row[:] = [stem in sentence_stems for sentence_stems in spoken]
        words[k] = shares @ sentence_shares
        # A word that neighbours repeat counts once.
        near_shares = sum_with_neighbours(sentence_shares.T).T
        near_words[k] = shares @ np.minimum(near_shares, 1.0)
    return words, near_words


def content_words(text: str) -> set[str]:
    """Return the stems of a text's words, and its numbers."""
    stems = set()
    for word in WORD_PATTERN.findall(text.lower()):
        if word[0].isdigit():
            stems.add(word)
        elif len(word) >= MIN_WORD_LETTERS:
            stems.add(without_ending(word))
    return stems


def without_ending(word: str) -> str:
    """Return an English word without its ending: of "chopped", "chops" and "chop" alike "chop"."""
    return DOUBLE_PATTERN.sub(r"\1", ENDING_PATTERN.sub("", word))


def position_distance(lines: int, sentences: int) -> Features:
    """Return (K, S): how far each sentence is from where a line is said if all take as long."""
    line_places = (np.arange(lines) + 0.5) / max(1, lines)
    sentence_places = (np.arange(sentences) + 0.5) / max(1, sentences)
    return np.abs(line_places[:, None] - sentence_places)


def sentence_lengths(sentences: Sequence[str]) -> Features:
    """Return (S,): the logarithm of the number of words, against a sentence of eight."""
    counts = [max(1, len(sentence.split())) for sentence in sentences]
    return np.log(np.array(counts, dtype=np.float64) / 8.0)


def step_log_odds(probabilities: npt.NDArray[np.float64] | None, sentences: int) -> Features:
    """Return (S,): log odds that a sentence describes a step, less their mean, 0 where unknown."""
    if probabilities is None:
        return np.zeros(sentences)
    odds: Features = logit(np.asarray(probabilities, np.float64), MIN_STEP_MARGIN)
    if len(odds):
        odds = odds - odds.mean()
    return odds


@dataclass(frozen=True)
class LineWeights:
    """The fitted numbers. Those not named here are logarithms of the prices in the module's table.

    evidence: of each feature, in the order of FEATURE_NAMES.
    said_weights: of the features of `said_features`.
    said_so_far: the same of a narration that goes on.
    """

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
    said_weights: tuple[float, ...]
    said_bias: float
    said_so_far: tuple[float, ...]
    said_so_far_bias: float

    def __post_init__(self) -> None:
        if len(self.evidence) != len(FEATURE_NAMES):
            raise ShapeError(
                f"the line model has {len(self.evidence)} weights of evidence, and must have"
                f" {len(FEATURE_NAMES)}; run lab/fit_line_model.py"
            )


@dataclass(frozen=True)
class LinePosterior:
    """Which sentences say each line.

    posterior: (K, S) P(line k is being said in sentence s).
    said_probabilities: (K,) P(said anywhere).
    evidence: (K, S) nats by which the sentence itself speaks for the line.
    log_evidence: of the list. The greater of two lists fits the narration better.
    """

    posterior: Array
    said_probabilities: Array
    evidence: Array
    log_evidence: float = 0.0

    @property
    def places(self) -> Array:
        """(K, S): P(line is said in the sentence | it is said). Rows sum to 1, or are 0."""
        mass = self.posterior.sum(axis=1, keepdims=True)
        mass = np.maximum(mass, MIN_MASS)
        return np.asarray(self.posterior / mass)

    def sentences_of(self, line: int) -> tuple[int, ...]:
        """Return the run of sentences that say the line where it is most likely, () without any.

        A neighbour belongs to it whose posterior and evidence are both near the most likely's.
        """
        row = self.posterior[line]
        evidence = self.evidence[line]
        if not row.size:
            return ()
        best = int(row.argmax())
        is_near = row >= SAME_PASSAGE_FRACTION * row[best]
        is_near &= evidence >= evidence[best] - SAME_PASSAGE_NATS
        # A run without a gap around the best sentence.
        first = best
        last = best
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
    """Return where and whether the narration says each line.

    line_vectors: (K, D), sentence_vectors: (S, D), of MiniLM.
    step_probabilities: (S,) P(the sentence describes a step), where known.
    so_far: the narration goes on, so that lines not reached yet cost nothing.
    """
    line_weights = weights or load_line_weights()
    shape = (len(lines), len(sentences))
    # Without lines or sentences there is nothing to match.
    if 0 in shape:
        no_prior = np.zeros(shape)
        return LinePosterior(
            posterior=no_prior, said_probabilities=np.zeros(len(lines)), evidence=no_prior
        )
    features = line_features(lines, sentences, line_vectors, sentence_vectors, step_probabilities)
    if so_far:
        # where a line is in the list says nothing of where in an unfinished narration it is
        features[..., FEATURE_NAMES.index("position")] = 0.0
    parts = sentence_parts(sentences)
    return match_features(features, line_weights, parts=parts, so_far=so_far)


def sentence_parts(sentences: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return (S,): how many lines each sentence can say one after the other. A long one several."""
    parts = []
    for sentence in sentences:
        count = len(sentence.split()) // WORDS_PER_LINE
        count = max(1, count)
        parts.append(min(count, MAX_SENTENCE_PARTS))
    return np.array(parts, np.int64)


def match_features(
    features: Features,
    weights: LineWeights,
    *,
    parts: npt.NDArray[np.int64] | None = None,
    so_far: bool = False,
) -> LinePosterior:
    """Return where and whether each line is said, from features (K, S, F).

    parts: (S,) of `sentence_parts`. None: each sentence says one line at most.
    """
    # A long sentence may say several lines, so it is several places of the chain.
    if parts is None:
        parts = np.ones(features.shape[1], np.int64)
    features_of_parts = np.repeat(features, parts, axis=1)
    chain = LineChain(features_of_parts, weights, so_far=so_far)
    posterior, total = chain.posterior()
    # Back to sentences: each has the best of its parts.
    firsts = np.cumsum(parts) - parts
    posterior = np.maximum.reduceat(posterior, firsts, axis=1)
    # Whether each line is said at all.
    never = chain.log_never(total)
    rows = said_features(features, never)
    probabilities = said_probability(rows, weights, so_far=so_far)
    if so_far:
        # asked after every sentence, the regression alone has many chances to err
        probabilities = np.minimum(probabilities, 1 - np.exp(never))
    evidence = features @ np.array(weights.evidence)  # (K, S)
    return LinePosterior(posterior, probabilities, evidence, total)


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
        # The evidence of each line in each sentence.
        lines = features.shape[0]
        exponents = features @ np.array(weights.evidence)
        exponents = np.minimum(exponents + weights.bias, MAX_EXPONENT)  # (K, S)
        self._evidence = np.exp(exponents).T  # (S, K)
        # The prices of jumps, out of a pause and out of a line.
        prices = jump_prices(lines, weights)  # (K + 1, K)
        jumps = np.exp(prices)
        self._from_pause = jumps * np.exp(weights.enter)
        self._from_line = jumps[1:] * np.exp(weights.direct)  # (K, K)
        np.fill_diagonal(self._from_line, np.exp(weights.stay))
        # The prices of ending, by the lines that are left.
        lines_left = np.arange(lines, -1, -1, dtype=np.float64)  # from pause 0 on
        end_prices = weights.end * lines_left
        self._ending = np.exp(end_prices)
        # A narration that goes on may be anywhere in the list.
        if so_far:
            self._ending = np.ones(lines + 1)

    def posterior(self) -> tuple[Array, float]:
        """Return P(line k at s), (K, S), and the logarithm of the sum over all paths."""
        # Forward, with all lines allowed.
        everything = np.ones((1, self._lines))
        past = list(self._forward(everything))
        end = self._end_sum(past[-1])[0]
        # Backward, divided by the same scales, so that the products are probabilities.
        line_future = self._ending[1:] / end
        pause_future = self._ending / end
        rows = np.zeros((len(past), self._lines))
        for s in reversed(range(len(past))):
            state = past[s]
            rows[s] = state.line[0] * line_future
            arriving = self._evidence[s] * line_future
            scale = state.scale[0]
            line_future = self._from_line @ arriving + pause_future[1:]
            line_future = line_future / scale
            pause_future = self._from_pause @ arriving + pause_future
            pause_future = pause_future / scale
        # The product of all scales is the sum over all paths.
        logarithms = []
        for state in past:
            scale = state.scale[0]
            logarithms.append(float(np.log(scale)))
        total = sum(logarithms)
        total += float(np.log(end))
        return np.minimum(rows.T, 1.0), total

    def log_never(self, total: float) -> Array:
        """Return the logarithm of P(line k is said nowhere), (K,). total: of all paths."""
        # A list without each line, as many lists together as memory should hold.
        part = max(1, MAX_LEAVE_ONE_OUT_VALUES // self._lines)
        logarithms = np.zeros(self._lines)
        for first in range(0, self._lines, part):
            end = min(first + part, self._lines)
            rows = np.arange(first, end)
            is_allowed = np.ones((len(rows), self._lines))
            is_allowed[rows - first, rows] = 0.0
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
            # A sentence says a line, or is a pause after the last one.
            arriving = line @ self._from_line + pause @ self._from_pause
            arriving *= evidence
            arriving *= is_allowed
            resting = pause.copy()
            resting[:, 1:] += line
            # Scaled to sum 1, since the products of a long narration underflow.
            scale = arriving.sum(axis=1) + resting.sum(axis=1)
            line = arriving / scale[:, None]
            pause = resting / scale[:, None]
            yield ForwardSums(line, pause, scale)

    def _end_sum(self, state: ForwardSums) -> Array:
        of_lines = state.line @ self._ending[1:]
        return np.asarray(of_lines + state.pause @ self._ending)


def jump_prices(lines: int, weights: LineWeights) -> Array:
    """Return the logarithm of F of going from position 0 to K to each line, (K + 1, K)."""
    positions = np.arange(lines + 1)
    distance = positions[1:] - positions[:, None]
    # From distance 2 on lines are skipped, the first at one price, the others at another.
    skip = weights.skip + weights.skip_more * (distance - 2)
    back = weights.back + weights.back_more * (-distance - 1)
    rules = [distance >= 2, distance == 1, distance == 0]
    following = np.zeros(distance.shape)
    return np.select(rules, [skip, following, weights.again], back)


def said_features(features: Features, log_never: Array) -> Array:
    """Return the features (K, 8) of the logistic regression of P(said).

    The line: log odds that a path describes it, its best cosine, its best share of words.
    The list: the means of best cosine, best words, cosine and best words nearby.
    Also the logarithm of the number of sentences. The more there are, the better is the best of
    them by chance.
    """
    lines, sentences, _ = features.shape
    never = np.exp(log_never)
    never = np.clip(never, MIN_NEVER_PROBABILITY, 1 - MIN_NEVER_PROBABILITY)
    # Of the line itself.
    best = features.max(axis=1)  # (K, F)
    best_cosine = best[:, FEATURE_NAMES.index("cosine")]
    best_words = best[:, FEATURE_NAMES.index("words")]
    near_words = best[:, FEATURE_NAMES.index("near_words")]
    cosine = features[..., FEATURE_NAMES.index("cosine")]
    columns = [-logit(never), best_cosine, best_words]
    # Of the whole list, the same for every line.
    of_list = [
        best_cosine.mean(),
        best_words.mean(),
        cosine.mean(),
        near_words.mean(),
        np.log(sentences),
    ]
    for value in of_list:
        columns.append(np.full(lines, value))
    return np.stack(columns, axis=1)


def said_probability(rows: Array, weights: LineWeights, *, so_far: bool = False) -> Array:
    """Return P(said) of each line, (K,). rows: (K, 8) of `said_features`."""
    numbers = weights.said_weights
    bias = weights.said_bias
    if so_far:
        numbers = weights.said_so_far
        bias = weights.said_so_far_bias
    log_odds = rows @ np.array(numbers) + bias
    return np.asarray(sigmoid(log_odds), np.float64)


@functools.cache
def load_line_weights() -> LineWeights:
    """Return the fitted numbers that come with the package."""
    file = resources.files("stepline.grounding") / "line_model.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    evidence = content.pop("evidence")
    in_order = []
    for name in FEATURE_NAMES:
        in_order.append(float(evidence[name]))
    for name in ("said_weights", "said_so_far"):
        content[name] = tuple(content[name])
    return LineWeights(evidence=tuple(in_order), **content)
