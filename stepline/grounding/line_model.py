"""Alignment of the lines of a list with the sentences of a narration: a hidden Markov model.

Example with three lines and four sentences. The result is P(said) of each line, and where:

    0 "Welcome back to my kitchen."   2 "I let it run under the cold tap to rinse the pasta."
    1 "Now I drain the pasta."        3 "See you next week."

    'Drain the pasta'    P(said) 1.00, P(in sentence 1) 0.99
    'Chop the parsley'   P(said) 0.02, below 0.01 in every sentence
    'Rinse the pasta'    P(said) 1.00, P(in sentence 2) 0.98

A state is a line that is being said, or the pause after a line, in which no line is said. Lines are
said mostly in order. A line may be skipped, repeated or late, each with a penalty. With e the features of
`line_features` and F the penalty factor of a jump over lines, the weight of a path is the product of

    line k continues    stay     exp(w . e_k(s) + bias)
    line k to line j    direct   F(j - k) exp(w . e_j(s) + bias)
    pause k to line j   enter    F(j - k) exp(w . e_j(s) + bias)
    line k to pause k, pause k to pause k: 1;  lines left at the end: exp(end) each

    P(k at s)     by forward and backward sums over all paths
    P(k never)    the sum over the paths without line k, divided by the sum over all
    P(said k)     a logistic regression on P(k never), the best evidence of the line and of the list;
                  while the narration continues, at most 1 - P(k never)

The features of a line and a sentence, whose weights are `w`:

    cosine       of the line and the sentence
    contrast     this cosine, less its mean over the lines
    context      the cosine with the mean of the sentence and its two neighbours
    words        the fraction of the IDF mass of the line's words and numbers in the sentence
    near words   the same fraction in the sentence and its two neighbours
    position     distance of the sentence's relative position from the line's
    length       log of the number of words in the sentence
    step         log odds that the sentence describes a step, where known

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

from stepline.numeric import logit, sigmoid, unit_rows
from stepline.records import Matrix

Array = npt.NDArray[np.float64]

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
MIN_WORD_LETTERS = 3  # shorter words are ignored
MIN_IDF_MASS = 1e-9  # against a division by zero
MIN_STEP_MARGIN = 0.02  # distance of P(describes a step) from 0 and 1
# an English ending after three letters or more, and the letter that was doubled before it
ENDING_PATTERN = re.compile(r"(?<=[a-z]{3})(?:ing|ed|ies|es|s|er|y|e)$")
DOUBLE_PATTERN = re.compile(r"([b-df-hj-np-tv-z])\1$")
WORD_PATTERN = re.compile(r"[^\W\d_]+|\d+(?:[.,/]\d+)?")
MAX_EXPONENT = 30.0  # of a state's weight, against overflow
MIN_NEVER_PROBABILITY = 1e-4  # distance of P(never) from 0 and 1, for finite log odds
WORDS_PER_LINE = 8  # a sentence of twice as many words may say two lines
MAX_SENTENCE_PARTS = 4
# of a finished narration, from which a sentence says one line at most
MIN_SENTENCES_PER_LINE = 2
# neighbours of the most likely sentence belong to the same passage, if they have this fraction of its
# posterior, and at most this many nats less evidence
SAME_PASSAGE_FRACTION = 0.5
SAME_PASSAGE_NATS = 1.0
MIN_MASS = 1e-12  # of a row, against a division by zero
# limit of memory: values of the lists with one line left out, computed at once
MAX_LEAVE_ONE_OUT_VALUES = 2_000_000


def line_features(
    lines: Sequence[str],
    sentences: Sequence[str],
    line_vectors: Matrix,
    sentence_vectors: Matrix,
    step_probabilities: npt.NDArray[np.float64] | None = None,
) -> Array:
    """Return the features of each line and sentence, (K, S, F), in the order of FEATURE_NAMES.

    Args:
        lines: K texts of the list.
        sentences: S texts of the narration.
        line_vectors: (K, D) vectors of the lines by a sentence encoder.
        sentence_vectors: (S, D) vectors of the sentences by the same encoder.
        step_probabilities: (S,) P(the sentence describes a step). None: unknown, the feature is 0.
    """
    # cosines with each sentence, and with its mean over neighbours
    line_rows = unit_rows(np.asarray(line_vectors, np.float64))
    sentence_rows = unit_rows(np.asarray(sentence_vectors, np.float64))
    cosine = line_rows @ sentence_rows.T  # (K, S)
    context = line_rows @ unit_rows(sum_with_neighbours(sentence_rows)).T
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


def sum_with_neighbours(rows: Array) -> Array:
    """Return each row plus the row before it and the row after it, (N, D). rows: (N, D)."""
    total = rows.copy()
    total[1:] += rows[:-1]
    total[:-1] += rows[1:]
    return total


def word_overlap(lines: Sequence[str], sentences: Sequence[str]) -> tuple[Array, Array]:
    """Return the fraction of each line's words that each sentence contains, weighted by IDF, (K, S).

    The second result is the same for the sentence together with its two neighbours.

    Args:
        lines: K texts of the list.
        sentences: S texts of the narration.
    """
    spoken = [content_words(sentence) for sentence in sentences]
    frequency: Counter[str] = Counter()
    for sentence_stems in spoken:
        frequency.update(sentence_stems)
    shape = (len(lines), len(sentences))
    words = np.zeros(shape)
    near_words = np.zeros(shape)
    for k, line in enumerate(lines):
        # sorted, so that float sums are the same in every run
        stems = sorted(content_words(line))
        if not stems:
            continue
        # IDF of each word in this narration, finite also for a word that is never said.
        counts = np.array([frequency[stem] for stem in stems], dtype=np.float64)
        masses = np.log((len(sentences) + 1) / (counts + 0.5))
        shares = masses / max(float(masses.sum()), MIN_IDF_MASS)
        sentence_shares = np.zeros((len(stems), len(sentences)))
        for row, stem in zip(sentence_shares, stems, strict=True):
            row[:] = [stem in sentence_stems for sentence_stems in spoken]
        words[k] = shares @ sentence_shares
        # A word that neighbours repeat counts only once.
        near_shares = sum_with_neighbours(sentence_shares.T).T
        near_words[k] = shares @ np.minimum(near_shares, 1.0)
    return words, near_words


def content_words(text: str) -> set[str]:
    """Return the set of the stems of a text's words of 3 letters or more, and of its numbers."""
    return {
        strip_ending(word)
        for word in WORD_PATTERN.findall(text.lower())
        if word[0].isdigit() or len(word) >= MIN_WORD_LETTERS
    }


def strip_ending(word: str) -> str:
    """Return the stem of an English word in lower case: "chop" for "chopped", "chops" and "chop"."""
    return DOUBLE_PATTERN.sub(r"\1", ENDING_PATTERN.sub("", word))


def position_distance(lines: int, sentences: int) -> Array:
    """Return the distance of the relative positions of each line and sentence, (K, S), 0 to 1.

    Args:
        lines: K, number of lines.
        sentences: S, number of sentences.
    """
    line_positions = (np.arange(lines) + 0.5) / max(1, lines)
    sentence_positions = (np.arange(sentences) + 0.5) / max(1, sentences)
    return np.abs(line_positions[:, None] - sentence_positions)


def sentence_lengths(sentences: Sequence[str]) -> Array:
    """Return the log of the number of words of each sentence divided by 8, (S,)."""
    counts = [max(1, len(sentence.split())) for sentence in sentences]
    return np.log(np.array(counts, dtype=np.float64) / 8.0)


def step_log_odds(probabilities: npt.NDArray[np.float64] | None, sentences: int) -> Array:
    """Return the log odds that each sentence describes a step, less their mean, (S,).

    Args:
        probabilities: (S,) P(the sentence describes a step). None: unknown, the result is 0.
        sentences: S, number of sentences.
    """
    if probabilities is None:
        return np.zeros(sentences)
    odds: Array = logit(np.asarray(probabilities, np.float64), MIN_STEP_MARGIN)
    if len(odds):
        odds = odds - odds.mean()
    return odds


@dataclass(frozen=True)
class LineWeights:
    """The fitted parameters of the hidden Markov model and of P(said).

    Attributes:
        evidence: weight of each feature, in the order of FEATURE_NAMES.
        bias: constant that is added to the weighted features.
        stay: log score of a transition: the same line goes on in the next sentence.
        direct: log score of a line that follows another line without a pause.
        enter: log score of a line that follows a pause.
        skip: log score of skipping one line of the list.
        skip_more: log score of each further line that is skipped.
        again: log score of repeating a line.
        back: log score of a jump back by one line.
        back_more: log score of each further line of a jump back.
        end: log score of each line that remains unsaid at the end of the narration.
        said_weights: weights of `said_features`, for P(said) of a finished narration.
        said_bias: constant of the same regression.
        said_so_far: weights of `said_features`, for P(said) of a narration that continues.
        said_so_far_bias: constant of the same regression.
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


@dataclass(frozen=True)
class LinePosterior:
    """Where and whether a narration of S sentences says each of K lines.

    Attributes:
        posterior: (K, S) P(line k is being said in sentence s).
        said_probabilities: (K,) P(line k is said in any sentence).
        evidence: (K, S) weighted features of line and sentence, in nats.
        log_evidence: log of the total weight of all paths. It is higher for a list that fits better.
        words: (K, S) fraction of the IDF mass of a line's words in a sentence. None without lines or
            sentences.
    """

    posterior: Array
    said_probabilities: Array
    evidence: Array
    log_evidence: float = 0.0
    words: Array | None = None

    def passage_of(self, line: int) -> tuple[int, ...]:
        """Return the indices of the consecutive sentences that most likely say a line.

        line: index of the line.
        """
        row = self.posterior[line]
        evidence = self.evidence[line]
        if not row.size:
            return ()
        best = int(row.argmax())
        is_near = row >= SAME_PASSAGE_FRACTION * row[best]
        is_near &= evidence >= evidence[best] - SAME_PASSAGE_NATS
        # consecutive sentences around the best one
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
) -> LinePosterior:
    """Return where and whether a narration says each line of a list.

    Args:
        lines: K texts in the order of the list.
        sentences: S texts of the narration.
        line_vectors: (K, D) MiniLM vectors of the lines.
        sentence_vectors: (S, D) MiniLM vectors of the sentences.
        step_probabilities: (S,) P(the sentence describes a step). None: unknown.
        so_far: whether the narration is still running, so that later lines may still be said.
    """
    shape = (len(lines), len(sentences))
    if 0 in shape:
        return LinePosterior(np.zeros(shape), np.zeros(len(lines)), np.zeros(shape))
    features = line_features(lines, sentences, line_vectors, sentence_vectors, step_probabilities)
    if so_far:
        # The relative position in an unfinished narration is unknown.
        features[..., FEATURE_NAMES.index("position")] = 0.0
    parts = None
    if so_far or len(sentences) < MIN_SENTENCES_PER_LINE * len(lines):
        parts = sentence_parts(sentences)
    return match_features(features, load_line_weights(), parts=parts, so_far=so_far)


def sentence_parts(sentences: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return how many lines each sentence can say, (S,): 1 to 4, one per 8 words."""
    counts = [len(sentence.split()) // WORDS_PER_LINE for sentence in sentences]
    return np.clip(np.array(counts, np.int64), 1, MAX_SENTENCE_PARTS)


def match_features(
    features: Array,
    weights: LineWeights,
    *,
    parts: npt.NDArray[np.int64] | None = None,
    so_far: bool = False,
) -> LinePosterior:
    """Return where and whether each line is said, from the features of lines and sentences.

    Args:
        features: (K, S, F) features from `line_features`.
        weights: fitted parameters.
        parts: (S,) how many lines each sentence can say, from `sentence_parts`. None: one, as where
            the narration has MIN_SENTENCES_PER_LINE.
        so_far: whether the narration is still running, so that later lines may still be said.
    """
    # A long sentence may say several lines, so it is several positions of the chain.
    if parts is None:
        parts = np.ones(features.shape[1], np.int64)
    features_of_parts = np.repeat(features, parts, axis=1)
    chain = StepTextHmm(features_of_parts, weights, so_far=so_far)
    posterior, total = chain.posterior()
    # Back to sentences: each has the maximum of its parts.
    firsts = np.cumsum(parts) - parts
    posterior = np.maximum.reduceat(posterior, firsts, axis=1)
    never = chain.log_never(total)
    rows = said_features(features, never)
    probabilities = said_probability(rows, weights, so_far=so_far)
    if so_far:
        # The regression is evaluated after every sentence, and one false yes is never taken back.
        probabilities = np.minimum(probabilities, 1 - np.exp(never))
    evidence = features @ np.array(weights.evidence)  # (K, S)
    words = features[..., FEATURE_NAMES.index("words")]
    return LinePosterior(posterior, probabilities, evidence, total, words)


@dataclass(frozen=True)
class ForwardSums:
    """Forward probabilities after a sentence, for N lists that leave out different lines.

    Attributes:
        line: (N, K) probability that line k is being said. Together with `pause`, each row sums to 1.
        pause: (N, K + 1) probability of the pause after line k. Pause 0 is before the first line.
        scale: (N,) factor by which the sums of this sentence were divided.
    """

    line: Array
    pause: Array
    scale: Array


class StepTextHmm:
    """Forward-backward algorithm over all paths of a list of K lines through S sentences."""

    def __init__(self, features: Array, weights: LineWeights, *, so_far: bool = False) -> None:
        # The evidence of each line in each sentence.
        lines = features.shape[0]
        exponents = features @ np.array(weights.evidence)
        exponents = np.minimum(exponents + weights.bias, MAX_EXPONENT)  # (K, S)
        self._evidence = np.exp(exponents).T  # (S, K)
        # transitions out of a pause and out of a line
        jumps = np.exp(transition_log_scores(lines, weights))  # (K + 1, K)
        self._from_pause = jumps * np.exp(weights.enter)
        self._from_line = jumps[1:] * np.exp(weights.direct)  # (K, K)
        np.fill_diagonal(self._from_line, np.exp(weights.stay))
        # the end of the narration, by the lines that remain
        lines_left = np.arange(lines, -1, -1, dtype=np.float64)  # from pause 0 on
        # A narration that continues may end anywhere in the list.
        self._ending = np.ones(lines + 1) if so_far else np.exp(weights.end * lines_left)

    def posterior(self) -> tuple[Array, float]:
        """Return P(line k is being said in sentence s), (K, S), and the log of the weight of all paths."""
        # Forward, with all lines allowed.
        past = list(self._forward(np.ones((1, self._lines))))
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
        total = sum(float(np.log(state.scale[0])) for state in past) + float(np.log(end))
        return np.minimum(rows.T, 1.0), total

    def log_never(self, total: float) -> Array:
        """Return log P(line k is never said), (K,).

        total: log of the weight of all paths, from `posterior`.
        """
        # The list without each line, as many lists at once as the limit of memory allows.
        part = max(1, MAX_LEAVE_ONE_OUT_VALUES // self._lines)
        logarithms = np.zeros(self._lines)
        for first in range(0, self._lines, part):
            rows = np.arange(first, min(first + part, self._lines))
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
        """Yield the forward probabilities after each sentence, for N lists.

        is_allowed: (N, K) 1 for a line of the list, 0 for a line that is left out.
        """
        line = np.zeros(is_allowed.shape)
        pause = np.zeros((len(is_allowed), self._lines + 1))
        pause[:, 0] = 1.0
        for evidence in self._evidence:
            # A sentence says a line, or is a pause after the last line.
            arriving = line @ self._from_line + pause @ self._from_pause
            arriving *= evidence
            arriving *= is_allowed
            pausing = pause.copy()
            pausing[:, 1:] += line
            # Scaled to sum 1, since the products of a long narration underflow.
            scale = arriving.sum(axis=1) + pausing.sum(axis=1)
            line = arriving / scale[:, None]
            pause = pausing / scale[:, None]
            yield ForwardSums(line, pause, scale)

    def _end_sum(self, state: ForwardSums) -> Array:
        return np.asarray(state.line @ self._ending[1:] + state.pause @ self._ending)


def transition_log_scores(lines: int, weights: LineWeights) -> Array:
    """Return the log score of a transition from each position to each line, (K + 1, K).

    Position 0 is the start of the list, position k is line k.

    Args:
        lines: K, number of lines.
        weights: fitted parameters.
    """
    positions = np.arange(lines + 1)
    distance = positions[1:] - positions[:, None]
    skip = weights.skip + weights.skip_more * (distance - 2)
    back = weights.back + weights.back_more * (-distance - 1)
    rules = [distance >= 2, distance == 1, distance == 0]
    return np.select(rules, [skip, 0.0, weights.again], back)


def said_features(features: Array, log_never: Array) -> Array:
    """Return the features of the logistic regression of P(said), (K, 8).

    Three are of the line: log odds of being said by the paths, best cosine, best fraction of words. Five
    are of the whole list: the means of best cosine, best words, cosine and best near words, and the log of
    the number of sentences, since the maximum over more sentences is higher by chance.

    Args:
        features: (K, S, F) features from `line_features`.
        log_never: (K,) log P(line k is never said).
    """
    never = np.clip(np.exp(log_never), MIN_NEVER_PROBABILITY, 1 - MIN_NEVER_PROBABILITY)
    best = dict(zip(FEATURE_NAMES, features.max(axis=1).T, strict=True))  # name -> (K,)
    cosine = features[..., FEATURE_NAMES.index("cosine")]
    columns = np.broadcast_arrays(
        -logit(never),
        best["cosine"],
        best["words"],
        best["cosine"].mean(),
        best["words"].mean(),
        cosine.mean(),
        best["near_words"].mean(),
        np.log(features.shape[1]),
    )
    return np.stack(columns, axis=1)


def said_probability(rows: Array, weights: LineWeights, *, so_far: bool) -> Array:
    """Return P(line k is said), (K,), by logistic regression.

    Args:
        rows: (K, 8) features from `said_features`.
        weights: fitted parameters.
        so_far: whether the narration is still running, which has its own regression.
    """
    numbers = weights.said_so_far if so_far else weights.said_weights
    bias = weights.said_so_far_bias if so_far else weights.said_bias
    return np.asarray(sigmoid(rows @ np.array(numbers) + bias), np.float64)


@functools.cache
def load_line_weights() -> LineWeights:
    """Return the fitted parameters of the line model, from a file of the package."""
    file = resources.files("stepline.grounding") / "line_model.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    evidence = content.pop("evidence")
    in_order = tuple(float(evidence[name]) for name in FEATURE_NAMES)
    for name in ("said_weights", "said_so_far"):
        content[name] = tuple(content[name])
    return LineWeights(evidence=in_order, **content)
