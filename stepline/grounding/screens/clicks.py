"""Matching of steps to changes of the screen, and of the label that is clicked.

Steps and changes keep their order, and each change belongs to at most one step (dynamic programming).
Four kinds of evidence score a pair: the time between words and change, how well the words name a line
that is on the screen before the change, the position of the cursor, and whether the step names what
appears. The lag between words and changes is a habit of the speaker, estimated from the video.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

from stepline.grounding.screens.changes import enclosing_box
from stepline.grounding.screens.reading import (
    ScreenEvent,
    ScreenLine,
    ScreenReading,
    is_same_text,
    join_typed_changes,
    lines_with_new_text,
)
from stepline.numeric import match_in_order
from stepline.records import Sentence, Span, Step
from stepline.text import embed
from stepline.text.narration.words import COMMON_ENGLISH_WORDS
from stepline.vision.on_screen_text import box_iou

# log odds, set by hand
FULL_LABEL_LOG_ODDS = 4.0  # of a label all of whose words are said
FULL_STEP_LOG_ODDS = 2.0  # of a label that has all content words of a step
COSINE_LOG_ODDS = 2.0  # times the cosine of label and step
# letters of a label that are said, from which it counts in full; one letter does not count
MIN_SURE_LETTERS = 4
MIN_WORD_RATIO = 0.8  # similarity of two words that count as the same, misheard or inflected
MIN_STEM_LETTERS = 4  # letters of a word that may be the stem of another word
MAX_ENDING_LETTERS = 3  # further letters of this other word
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
# log odds, set by hand on three made apps that are not in the results
CURSOR_INSIDE_LOG_ODDS = 2.5  # of a label under the cursor
MAX_CURSOR_AWAY_LOG_ODDS = 2.0  # limit against a label that is far from the cursor
CURSOR_REACH_FRACTION = 0.15  # of the picture's height: a distance that counts 1 against a label
WINDOW_TITLE_LOG_ODDS = 1.5  # of a label whose text is the title of what opens
FIELD_NAME_LOG_ODDS = 1.0  # of a label that is replaced by one line of typed text
PRESSED_LABEL_LOG_ODDS = 1.0  # of a label that looks pressed or selected then
MAX_TOUCHED_LINES = 3  # more lines in changed areas are no evidence
NAMED_RESULT_LOG_ODDS = 1.5  # of a change in which text appears that the step names
MAX_CARET_PIXELS = 8  # width of a text cursor
MIN_PAIR_LOG_ODDS = 2.5  # from which a step and a change match
MIN_LABEL_LOG_ODDS = 2.0  # from which a label counts as clicked
# A longer line is no label. The 71 labels of the made recordings have at most 5 words.
MAX_LABEL_WORDS = 8
MIN_CLICKED_LABELS = 2  # in a video, since a single label may be named by chance
# from the middle of the words to the change: prior mean, its standard deviation, and the minimum of
# the fitted standard deviation
INITIAL_LAG_SECONDS = 0.5
INITIAL_LAG_DEVIATION_SECONDS = 3.0
MIN_LAG_DEVIATION_SECONDS = 1.2
INITIAL_LAGS_SECONDS = (-2.5, 0.5, 3.5)  # of the fit of a video's lag; the best fit counts
CHANGE_WINDOW_SECONDS = 30.0  # width of the uniform distribution of changes without a relation
MAX_LAG_SECONDS = 7.0  # between words and change
SURE_LABEL_LOG_ODDS = 3.0  # from which a pair counts in the fit of the lag
PRIOR_LAG_DEVIATION_SECONDS = 2.0  # standard deviation of the lag over speakers
LAG_ROUNDS = 3  # iterations of matching and of the fit of the lag
LAG_PRIOR_STEPS = 2.0  # weight of the prior lag, in steps
# seconds of a span before and after its change, at most
LEAD_SECONDS = 1.0
TAIL_SECONDS = 1.5
SPAN_DECIMALS = 3  # decimals of the seconds of a span


class LabelMatcher:
    """Scores how well each of K steps names each of L lines of text on the screen."""

    def __init__(self, steps: Sequence[str], words: Sequence[str], lines: Sequence[str]) -> None:
        """Compute the words and the cosines of steps and lines.

        Args:
            steps: texts of K steps.
            words: for each step, its text and the sentences that say it, joined.
            lines: L different lines of text on the screen.
        """
        self._steps = [content_words(text) for text in steps]
        self._said_words = [set(split_words(text)) for text in words]
        self._line_index = {text: number for number, text in enumerate(lines)}
        self._lines = [label_words(text) for text in lines]
        line_vectors = embed([text.lower() for text in lines])
        cosines = embed(steps) @ line_vectors.T  # (K, L)
        # Long lines of pages are similar to everything.
        median = np.median(cosines, axis=1, keepdims=True)
        self._cosines = np.maximum(cosines - median, 0.0)

    def log_odds(self, step: int, line: str) -> float:
        """Return the log odds that a step names a line, by common words and by the cosine.

        Args:
            step: index of the step.
            line: text of the line, one of the L lines.
        """
        number = self._line_index[line]
        label = self._lines[number]

        # the fraction of the label that the step says
        named = self._named_words(step, label)
        letters = sum(map(len, named))
        share = letters / max(1, sum(map(len, label)))
        surety = float(np.clip((letters - 1) / (MIN_SURE_LETTERS - 1), 0.0, 1.0))

        # the fraction of the step that the label has
        line_words = set(label)
        step_words = self._steps[step]
        covered = [word for word in step_words if is_said(word, line_words)]
        coverage = len(covered) / max(1, len(step_words))

        cosine = float(self._cosines[step, number])
        total = FULL_LABEL_LOG_ODDS * share**2 * surety
        total += FULL_STEP_LOG_ODDS * coverage
        total += COSINE_LOG_ODDS * cosine
        return total

    def named_fraction(self, step: int, line: str) -> float:
        """Return the fraction of a line's letters that are in words that the step says.

        It is 0 if these words have fewer than 4 letters in total.

        Args:
            step: index of the step.
            line: text of the line, one of the L lines.
        """
        label = self._lines[self._line_index[line]]
        letters = sum(map(len, self._named_words(step, label)))
        return letters / sum(map(len, label)) if letters >= MIN_SURE_LETTERS else 0.0

    def _named_words(self, step: int, label: Sequence[str]) -> list[str]:
        return [word for word in label if is_said(word, self._said_words[step])]


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def content_words(text: str) -> list[str]:
    """Return the words of a text in lower case, without common English words."""
    return [word for word in split_words(text) if word not in COMMON_ENGLISH_WORDS]


def label_words(text: str) -> list[str]:
    """Return the content words of a label, or all its words if it has no content words."""
    return content_words(text) or split_words(text)


def is_said(word: str, others: set[str]) -> bool:
    """Return whether a word, or a similar one, is among others.

    A word is similar if it has the same stem, or is likely misheard.
    """
    return word in others or any(_is_similar_word(word, other) for other in others)


def _is_similar_word(word: str, other: str) -> bool:
    shorter, longer = sorted((word, other), key=len)
    if len(shorter) < MIN_STEM_LETTERS:
        return False
    ending = len(longer) - len(shorter)
    if longer.startswith(shorter) and ending <= MAX_ENDING_LETTERS:
        return True
    return SequenceMatcher(None, word, other).ratio() >= MIN_WORD_RATIO


@dataclass(frozen=True)
class Click:
    """The change of the screen that a step causes.

    Attributes:
        step: id of the step.
        event: the change of the screen.
        label: the line of text that is clicked, None if it is unknown.
        span: seconds of the change, with up to 1 s before and 1.5 s after it.
        log_odds: log odds that the step causes this change.
    """

    step: str
    event: ScreenEvent
    label: ScreenLine | None
    span: Span
    log_odds: float


def place_clicks(
    steps: Sequence[Step], sentences: Sequence[Sentence], reading: ScreenReading
) -> tuple[Click, ...]:
    """Return the change of the screen that each step causes, in the order of the narration.

    Steps without such a change are left out. The result is () if fewer than 2 clicked labels are found.

    Args:
        steps: steps with `said` and `sources`.
        sentences: sentences of the narration, which the `sources` of the steps index.
        reading: the changes of the screen, with the text on it.
    """
    said = [(step.said, step) for step in steps if step.said]
    said.sort(key=lambda pair: pair[0].start)
    narrated = [step for _, step in said]
    events = [event for event in join_typed_changes(reading.events) if not _is_caret(event)]
    if not narrated or not events:
        return ()

    # evidence of each pair by screen and time
    words = []
    for step in narrated:
        spoken_texts = [sentences[index].text for index in step.sources]
        words.append(" ".join([step.text, *spoken_texts]))
    evidence, labels, naming_log_odds = _screen_evidence(narrated, words, events, reading)
    starts = np.array([event.start for event in events])
    middles = np.array([span.center for span, _ in said])
    lags = starts - middles[:, None]  # (K, E)
    is_over = np.array([[event.end < span.start for event in events] for span, _ in said])
    fits = [
        _fit_scores(evidence, lags, naming_log_odds, lag, is_over) for lag in INITIAL_LAGS_SECONDS
    ]
    scores, _ = max(fits, key=lambda fit: _fit_log_odds(*fit))

    # the best pairs
    pairs = _best_pairs(scores)
    if sum(labels[k][e] is not None for k, e in pairs) < MIN_CLICKED_LABELS:
        return ()
    clicks = []
    for k, e in pairs:
        label = labels[k][e]
        if label is not None and len(label.text.split()) > MAX_LABEL_WORDS:
            label = None
        span = _click_span(events, e)
        score = float(scores[k, e])
        clicks.append(Click(narrated[k].id, events[e], label, span, score))
    return tuple(clicks)


def _fit_scores(
    evidence: Floats, lags: Floats, naming_log_odds: Floats, lag: float, is_over: Flags
) -> tuple[Floats, float]:
    """Return (K, E) log odds that step k causes change e, and the speaker's lag in seconds.

    The log odds also count how often steps of this video name what is clicked.

    Args:
        evidence: (K, E) log odds by what the screen shows, for K steps and E changes.
        lags: (K, E) seconds from the middle of the words to the change.
        naming_log_odds: (K, E) log odds that the words of the step name the best label.
        lag: initial value of the speaker's lag.
        is_over: (K, E) whether the change is over before the words. Such a pair is possible only for
            a speaker whose lag is negative, who speaks after the click.
    """
    scores = evidence + _lag_log_odds(lags, lag, INITIAL_LAG_DEVIATION_SECONDS)
    for _ in range(LAG_ROUNDS):
        # the lag of pairs that are sure by their words
        sure = [
            lags[k, e]
            for k, e in _best_pairs(scores)
            if naming_log_odds[k, e] >= SURE_LABEL_LOG_ODDS
        ]
        lag, deviation = _speaker_lag(sure)
        scores = evidence + _lag_log_odds(lags, lag, deviation)
        # the odds that a step of this video names what it clicks
        unsure_count = len(lags) - len(sure)
        odds = (len(sure) + 1) / (unsure_count + 1)
        scores += math.log(odds)
    if lag >= 0:
        scores[is_over] = -np.inf
    return scores, lag


def _fit_log_odds(scores: Floats, lag: float) -> float:
    """Return the log odds of the best pairs and of the speaker's lag, for a fit of `_fit_scores`.

    Args:
        scores: (K, E) log odds that step k causes change e.
        lag: the speaker's lag in seconds.
    """
    lag_cost = (lag - INITIAL_LAG_SECONDS) ** 2 / (2 * PRIOR_LAG_DEVIATION_SECONDS**2)
    return float(sum(scores[k, e] for k, e in _best_pairs(scores))) - lag_cost


def _is_caret(event: ScreenEvent) -> bool:
    """Return whether a change without text is a blinking text cursor, or has no text before it."""
    if event.appeared or event.vanished:
        return False
    left, _, right, _ = enclosing_box(event.patches)
    return right - left <= MAX_CARET_PIXELS or not event.before


def _screen_evidence(
    steps: Sequence[Step],
    words: Sequence[str],
    events: Sequence[ScreenEvent],
    reading: ScreenReading,
) -> tuple[Floats, list[list[ScreenLine | None]], Floats]:
    """Return log odds (K, E), labels [K][E] and naming log odds (K, E) of K steps and E changes.

    The first are the log odds by the screen that step k causes change e. A label is the line that the
    step clicks then, None if it is unknown. The last are the log odds that the step names this line.

    Args:
        steps: K steps.
        words: for each step, its text and the sentences that say it, joined.
        events: E changes of the screen.
        reading: the screen reading, for the height of the frames.
    """
    lines = {line.text for event in events for line in (*event.before, *event.appeared)}
    matcher = LabelMatcher([step.text for step in steps], words, sorted(lines))
    shape = (len(steps), len(events))
    evidence = np.zeros(shape)
    naming_log_odds = np.zeros(shape)
    labels: list[list[ScreenLine | None]] = []
    for k in range(len(steps)):
        row: list[ScreenLine | None] = []
        for e, event in enumerate(events):
            label, label_log_odds, best = _best_label(matcher, k, event, reading.height)
            results = [matcher.named_fraction(k, line.text) for line in event.appeared]
            evidence[k, e] = max(0.0, best) + NAMED_RESULT_LOG_ODDS * max(results, default=0.0)
            naming_log_odds[k, e] = label_log_odds
            row.append(label if best >= MIN_LABEL_LOG_ODDS else None)
        labels.append(row)
    return evidence, labels, naming_log_odds


def _best_label(
    matcher: LabelMatcher, step: int, event: ScreenEvent, height: int
) -> tuple[ScreenLine | None, float, float]:
    """Return the line that a step most likely clicks, with two log odds of it.

    The first are by the words only, the second by all evidence. They are 0 and -inf without any line.

    Args:
        matcher: scores how well steps name lines.
        step: index of the step.
        event: the change of the screen.
        height: height of the frames in pixels.
    """
    best: tuple[ScreenLine | None, float, float] = (None, 0.0, -math.inf)
    touched = [line for line in event.before if _is_touched(line, event)]
    for line in event.before:
        # Running text is no label: one does not end like a sentence, but perhaps with an ellipsis.
        if line.text.endswith(".") and not line.text.endswith(".."):
            continue
        by_words = matcher.log_odds(step, line.text)
        total = by_words + _cursor_log_odds(line, event, height)
        total += _change_log_odds(line, event, touched)
        if total > best[2]:
            best = (line, by_words, total)
    return best


def _is_touched(line: ScreenLine, event: ScreenEvent) -> bool:
    """Return whether a patch of the change overlaps a line that does not vanish."""
    if line in event.vanished:
        return False
    return any(box_iou(line.box, patch) > 0 for patch in event.patches)


def _change_log_odds(line: ScreenLine, event: ScreenEvent, touched: Sequence[ScreenLine]) -> float:
    """Return the log odds that a line was clicked, by how the screen changes.

    Args:
        line: a line of text before the change.
        event: the change of the screen.
        touched: lines that stay while the screen changes at their position.
    """
    total = 0.0
    # Where no other text is new, the line only moved.
    opens = lines_with_new_text(event.appeared, event.before)
    if opens and any(is_same_text(line.text, other.text) for other in event.appeared):
        total += WINDOW_TITLE_LOG_ODDS
    # A line that is replaced in its place is a field that was filled.
    if line in event.vanished and len(event.appeared) == 1:
        (typed,) = event.appeared
        if box_iou(line.box, typed.box) > 0:
            total += FIELD_NAME_LOG_ODDS
    if line in touched and len(touched) <= MAX_TOUCHED_LINES:
        total += PRESSED_LABEL_LOG_ODDS
    return total


def _cursor_log_odds(line: ScreenLine, event: ScreenEvent, height: int) -> float:
    """Return the log odds that a line was clicked, by the position of the cursor.

    They are 0 if the position is unknown. height: height of the frames in pixels.
    """
    if event.cursor is None:
        return 0.0
    cursor_x, cursor_y = event.cursor
    x, y, end_x, end_y = line.box
    # Half a line's height around a label still counts as inside.
    margin = (end_y - y) / 2
    across = max(x - margin - cursor_x, cursor_x - end_x - margin, 0.0)
    down = max(y - margin - cursor_y, cursor_y - end_y - margin, 0.0)
    distance = math.hypot(across, down)
    if distance == 0:
        return CURSOR_INSIDE_LOG_ODDS
    return -min(MAX_CURSOR_AWAY_LOG_ODDS, distance / (CURSOR_REACH_FRACTION * height))


def _lag_log_odds(lags: Floats, mean: float, deviation: float) -> Floats:
    """Return (K, E) log odds that words and change belong together, by the lag between them.

    They compare a normal density with a uniform one, and are -inf for lags beyond 7 s.

    Args:
        lags: (K, E) seconds from the middle of the words to the change.
        mean: mean of the normal density, in seconds.
        deviation: standard deviation of the normal density, in seconds.
    """
    normalized = (lags - mean) / deviation
    density = np.exp(-(normalized**2) / 2) / (deviation * math.sqrt(2 * math.pi))
    # the constant keeps a far pair possible
    odds: Floats = np.log(density * CHANGE_WINDOW_SECONDS + 1e-2)
    odds[np.abs(lags) > MAX_LAG_SECONDS] = -np.inf
    return odds


def _speaker_lag(lags: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the standard deviation of a speaker's lag, shrunk to the prior.

    lags: seconds from words to changes, of pairs that are certain by their words.
    """
    if not lags:
        return INITIAL_LAG_SECONDS, INITIAL_LAG_DEVIATION_SECONDS
    # Few lags have little weight against the prior.
    weight = len(lags) / (len(lags) + LAG_PRIOR_STEPS)
    median = float(np.median(lags))
    deviations = np.abs(np.array(lags) - median)
    # 1.48 times the median deviation is the standard deviation of a normal.
    deviation = 1.48 * float(np.median(deviations))
    middle = weight * median + (1 - weight) * INITIAL_LAG_SECONDS
    deviation = weight * deviation + (1 - weight) * INITIAL_LAG_DEVIATION_SECONDS
    return middle, max(MIN_LAG_DEVIATION_SECONDS, deviation)


def _best_pairs(scores: Floats) -> list[tuple[int, int]]:
    """Return the pairs (step, change) with the greatest total of log odds above 2.5.

    Steps and changes are both in order, and each is in at most one pair.

    scores: (K, E) log odds that step k causes change e.
    """
    return sorted(match_in_order(scores, MIN_PAIR_LOG_ODDS).items())


def _click_span(events: Sequence[ScreenEvent], number: int) -> Span:
    """Return the span of a change, with up to 1 s before and 1.5 s after it.

    The span stays between the changes before and after.

    Args:
        events: all changes, sorted by time.
        number: index of the change.
    """
    event = events[number]
    before = events[number - 1].end if number else 0.0
    after = events[number + 1].start if number + 1 < len(events) else math.inf
    start = min(event.start, max(event.start - LEAD_SECONDS, before))
    end = max(event.end, min(event.end + TAIL_SECONDS, after))
    return Span(round(max(0.0, start), SPAN_DECIMALS), round(end, SPAN_DECIMALS))
