"""Which change of the screen a step makes, and which label is clicked for it.

Steps and changes keep their order, and each change belongs to one step at most (dynamic
programming). Four things speak for a pair. The first is how near in time the words and the change
are. The second is how well the words name a line that is on screen before the change. The others
are where the cursor is, and whether the step names what appears. How far the words run ahead or
behind is a habit of the speaker, estimated from the video itself.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np
import numpy.typing as npt

from stepline.grounding.screens.reading import (
    ScreenEvent,
    ScreenLine,
    ScreenReading,
    is_same_text,
    join_typed,
)
from stepline.records import Sentence, Span, Step
from stepline.text import embed
from stepline.text.narration.words import FUNCTION_WORDS
from stepline.vision.faces import box_iou

# log odds, set by hand as those of `clicks`
FULL_LABEL_LOG_ODDS = 4.0  # of a label all of whose words are said
FURTHER_WORD_LOG_ODDS = 0.5  # of each further word that is said of a label
FULL_STEP_LOG_ODDS = 2.0  # of a label that holds all content words of a step
COSINE_LOG_ODDS = 2.0  # of a label that means what the step does: times the cosine
MIN_SURE_LETTERS = (
    4  # of the words that are said, from which a label counts in full; one says nothing
)
MIN_WORD_RATIO = 0.8  # of the letters of two words that are one, misheard or in another form
MIN_STEM_LETTERS = 4  # letters of a word that may be the beginning of another form of it
MAX_ENDING_LETTERS = 3  # letters that such another form has more
Floats = npt.NDArray[np.float64]
# log odds, set by hand on three of the made apps, none on those that are scored
CURSOR_INSIDE_LOG_ODDS = 2.5  # of a label on which the cursor is
MAX_CURSOR_AWAY_LOG_ODDS = 2.0  # at most against a label from which the cursor is away
CURSOR_REACH_FRACTION = 0.15  # of the picture's height: as far away counts 1
WINDOW_TITLE_LOG_ODDS = 1.5  # of a label whose words are over what opens
FIELD_NAME_LOG_ODDS = 1.0  # of the name of a field in which one line is then written
PRESSED_LABEL_LOG_ODDS = 1.0  # of a label that looks pressed or chosen then
MAX_TOUCHED_LINES = 3  # lines around which something changes, beyond which that says nothing
NAMED_RESULT_LOG_ODDS = 1.5  # of a change in which what the step names appears
NO_TEXT_CHANGE_LOG_ODDS = 1.0  # against a change without any text that comes or goes
MAX_CARET_PIXELS = 8  # px, at most
MAX_CARET_AREA_FRACTION = 0.05  # share of the picture of such a change
MIN_PAIR_LOG_ODDS = 2.5  # log odds from which a step makes a change
MIN_LABEL_LOG_ODDS = 2.0  # log odds from which a label is named
# Words of a label, beyond which a line is a sentence that names what is clicked, and not a label.
# The 71 labels of the made recordings have 5 at most.
MAX_LABEL_WORDS = 8
MIN_CLICKED_LABELS = 2  # that steps of a video click, below which one may be named by chance
# s between the middle of the words and the change: before a video says how far, and the least
INITIAL_LAG_SECONDS = 0.5
INITIAL_LAG_SPREAD_SECONDS = 3.0
MIN_SPREAD = 1.2
INITIAL_LAGS_SECONDS = (
    -2.5,
    0.5,
    3.5,
)  # from which the lag of a video is sought; the best sum counts
CHANGE_WINDOW_SECONDS = 30.0  # s, over which a change could lie anywhere
MAX_LAG_SECONDS = 7.0  # s from its words within which a step is sought
SURE_LABEL_LOG_ODDS = 3.0  # log odds of a label whose lag is counted
PRIOR_LAG_SPREAD_SECONDS = 2.0  # s, of the lags of speakers
LAG_ROUNDS = 3  # in which steps are placed and the lag is estimated again
LAG_PRIOR_STEPS = 2.0  # steps that the lag before the video counts as
# s of a span before and after its change, at most
LEAD_SECONDS = 1.0
TAIL_SECONDS = 1.5
SPAN_DECIMALS = 3  # of a second


class LabelMatcher:
    """Scores which of L lines on screen each of K steps names."""

    def __init__(self, steps: Sequence[str], words: Sequence[str], lines: Sequence[str]) -> None:
        """steps: their texts. words: all that is said for each. lines: texts, each once."""
        self._steps = [content_words(text) for text in steps]
        self._words = [set(split_words(text)) for text in words]
        self._numbers = {text: number for number, text in enumerate(lines)}
        self._lines = [label_words(text) for text in lines]
        lower = [text.lower() for text in lines]
        line_vectors = embed(lower)
        cosines = embed(steps) @ line_vectors.T  # (K, L)
        # lines of pages are long and like everything
        usual = np.median(cosines, axis=1, keepdims=True)
        self._cosines = np.maximum(cosines - usual, 0.0)

    def log_odds(self, step: int, line: str) -> float:
        """Return the log odds that a step names a line, by words and meaning."""
        number = self._numbers[line]
        label = self._lines[number]

        # how much of the label the step says
        label_letters = sum(map(len, label))
        named = [word for word in label if is_said(word, self._words[step])]
        letters = sum(map(len, named))
        share = letters / max(1, label_letters)
        surety = (letters - 1) / (MIN_SURE_LETTERS - 1)
        surety = min(1.0, max(0.0, surety))

        # how much of the step the label says
        own_words = set(label)
        step_words = self._steps[step]
        covered = [word for word in step_words if is_said(word, own_words)]
        coverage = len(covered) / max(1, len(step_words))

        # Together with how alike step and label are in meaning.
        meaning = float(self._cosines[step, number])
        further_words = max(0, len(named) - 1)
        total = FULL_LABEL_LOG_ODDS * share**2 * surety
        total += FURTHER_WORD_LOG_ODDS * share * further_words
        total += FULL_STEP_LOG_ODDS * coverage
        total += COSINE_LOG_ODDS * meaning
        return total

    def named_share(self, step: int, line: str) -> float:
        """Return the share of a line's letters whose words the step says, 0 for short ones."""
        label = self._lines[self._numbers[line]]
        named = [word for word in label if is_said(word, self._words[step])]
        letters = sum(map(len, named))
        if letters < MIN_SURE_LETTERS:
            return 0.0
        return letters / sum(map(len, label))


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return re.findall(r"\w+", text.lower())


def content_words(text: str) -> list[str]:
    """Return the words of a text without those that say nothing of its subject."""
    return [word for word in split_words(text) if word not in FUNCTION_WORDS]


def label_words(text: str) -> list[str]:
    """Return the content words of a label, all its words where it has none."""
    return content_words(text) or split_words(text)


def is_said(word: str, others: set[str]) -> bool:
    """Whether a word is among others, in some form or nearly."""
    return word in others or any(_is_alike(word, other) for other in others)


def _is_alike(word: str, other: str) -> bool:
    shorter, longer = sorted((word, other), key=len)
    if len(shorter) < MIN_STEM_LETTERS:
        return False
    ending = len(longer) - len(shorter)
    if longer.startswith(shorter) and ending <= MAX_ENDING_LETTERS:
        return True
    return SequenceMatcher(None, word, other).ratio() >= MIN_WORD_RATIO


@dataclass(frozen=True)
class Click:
    """The change of the screen that a step makes.

    label: the line that is clicked, None where none is known
    span: s, around the change
    log_odds: of the pair
    """

    step: str
    event: ScreenEvent
    label: ScreenLine | None
    span: Span
    log_odds: float


def place_clicks(
    steps: Sequence[Step], sentences: Sequence[Sentence], reading: ScreenReading
) -> tuple[Click, ...]:
    """Return the change that each step makes, in the order of the steps. Steps that make none are
    left out, and all of them where fewer than MIN_CLICKED_LABELS click something that is known."""
    said = [(step.said, step) for step in steps if step.said]
    said.sort(key=lambda pair: pair[0].start)
    narrated = [step for _, step in said]
    events = [event for event in join_typed(reading.events) if not _is_caret(event)]
    if not narrated or not events:
        return ()

    # what screen and time say of each pair
    words = []
    for step in narrated:
        spoken_texts = [sentences[index].text for index in step.sources]
        words.append(" ".join([step.text, *spoken_texts]))
    evidence, labels, naming = _screen_evidence(narrated, words, events, reading)
    starts = np.array([event.start for event in events])
    middles = np.array([span.center for span, _ in said])
    lags = starts - middles[:, None]  # (K, E)
    tries = [_fitted_scores(evidence, lags, naming, lag) for lag in INITIAL_LAGS_SECONDS]
    scores, _ = max(tries, key=lambda fit: _fit_log_odds(*fit))

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


def _fitted_scores(
    evidence: Floats, lags: Floats, naming: Floats, lag: float
) -> tuple[Floats, float]:
    """Return (K, E) log odds and the lag, s. They use the speaker's own lag, estimated from `lag`
    on. They also use how often steps of this video name what is clicked: hands that are filmed
    click nothing."""
    scores = evidence + _lag_log_odds(lags, lag, INITIAL_LAG_SPREAD_SECONDS)
    for _ in range(LAG_ROUNDS):
        # The lag of the pairs that words alone make sure.
        sure = [lags[k, e] for k, e in _best_pairs(scores) if naming[k, e] >= SURE_LABEL_LOG_ODDS]
        lag, spread = _speaker_lag(sure)
        scores = evidence + _lag_log_odds(lags, lag, spread)
        # The odds that a step of this video names what it clicks.
        unsure_count = len(lags) - len(sure)
        odds = (len(sure) + 1) / (unsure_count + 1)
        scores += math.log(odds)
    return scores, lag


def _fit_log_odds(scores: Floats, lag: float) -> float:
    """Return the log odds of the best pairs, less those against a speaker of that lag."""
    against_lag = (lag - INITIAL_LAG_SECONDS) ** 2 / (2 * PRIOR_LAG_SPREAD_SECONDS**2)
    return float(sum(scores[k, e] for k, e in _best_pairs(scores))) - against_lag


def _is_caret(event: ScreenEvent) -> bool:
    """Whether only a caret blinks, or nothing with text around it changes."""
    if event.appeared or event.vanished:
        return False
    width = event.box[2] - event.box[0]
    return width <= MAX_CARET_PIXELS or not event.before


def _screen_evidence(
    steps: Sequence[Step],
    words: Sequence[str],
    events: Sequence[ScreenEvent],
    reading: ScreenReading,
) -> tuple[Floats, list[list[ScreenLine | None]], Floats]:
    """Return (K, E) log odds of each pair by what is on screen, the label of each, and how well the
    words name it."""
    lines = {line.text for event in events for line in (*event.before, *event.appeared)}
    texts = [step.text for step in steps]
    matcher = LabelMatcher(texts, words, sorted(lines))
    shape = (len(steps), len(events))
    evidence = np.zeros(shape)
    naming = np.zeros(shape)
    labels: list[list[ScreenLine | None]] = []
    for k in range(len(steps)):
        row: list[ScreenLine | None] = []
        for e, event in enumerate(events):
            label, named, best = _best_label(matcher, k, event, reading.height)
            results = [matcher.named_share(k, line.text) for line in event.appeared]
            evidence[k, e] = max(0.0, best) + NAMED_RESULT_LOG_ODDS * max(results, default=0.0)
            # A small change without any text is hardly a click.
            has_text = event.appeared or event.vanished
            if not has_text and event.area < MAX_CARET_AREA_FRACTION:
                evidence[k, e] -= NO_TEXT_CHANGE_LOG_ODDS
            naming[k, e] = named
            row.append(label if best >= MIN_LABEL_LOG_ODDS else None)
        labels.append(row)
    return evidence, labels, naming


def _best_label(
    matcher: LabelMatcher, step: int, event: ScreenEvent, height: int
) -> tuple[ScreenLine | None, float, float]:
    """Return the line that a step most likely clicks, how well its words name it, and the log odds
    of both words and cursor."""
    best: tuple[ScreenLine | None, float, float] = (None, 0.0, -math.inf)
    touched = [line for line in event.before if _is_touched(line, event)]
    for line in event.before:
        named = matcher.log_odds(step, line.text)
        total = named + _cursor_log_odds(line, event, height)
        total += _change_log_odds(line, event, touched)
        if total > best[2]:
            best = (line, named, total)
    return best


def _is_touched(line: ScreenLine, event: ScreenEvent) -> bool:
    """Whether something changes around a line that stays."""
    if line in event.vanished:
        return False
    return any(box_iou(line.box, patch) > 0 for patch in event.patches)


def _change_log_odds(line: ScreenLine, event: ScreenEvent, touched: Sequence[ScreenLine]) -> float:
    """Return the log odds that a label was clicked, by what changed on the screen."""
    total = 0.0
    if any(is_same_text(line.text, other.text) for other in event.appeared):
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
    """Return the log odds that a label was clicked, by the cursor position, 0 without a cursor."""
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


def _lag_log_odds(lags: Floats, middle: float, spread: float) -> Floats:
    """Return the log odds that words and change belong together by their distance, a normal against
    a uniform one. It is -inf beyond MAX_LAG_SECONDS."""
    deviations = (lags - middle) / spread
    whole = spread * math.sqrt(2 * math.pi)
    density = np.exp(-(deviations**2) / 2) / whole
    # The least keeps a far pair possible.
    odds: Floats = np.log(density * CHANGE_WINDOW_SECONDS + 1e-2)
    odds[np.abs(lags) > MAX_LAG_SECONDS] = -np.inf
    return odds


def _speaker_lag(lags: Sequence[float]) -> tuple[float, float]:
    """Return the lag in seconds from words to changes, and its spread."""
    if not lags:
        return INITIAL_LAG_SECONDS, INITIAL_LAG_SPREAD_SECONDS
    # Few lags weigh little against what is usual.
    weight = len(lags) / (len(lags) + LAG_PRIOR_STEPS)
    median = float(np.median(lags))
    deviations = np.abs(np.array(lags) - median)
    # 1.48 times the median deviation is the standard deviation of a normal.
    spread = 1.48 * float(np.median(deviations))
    middle = weight * median + (1 - weight) * INITIAL_LAG_SECONDS
    spread = weight * spread + (1 - weight) * INITIAL_LAG_SPREAD_SECONDS
    return middle, max(MIN_SPREAD, spread)


def _best_pairs(scores: Floats) -> list[tuple[int, int]]:
    """Return the pairs (step, change) of the greatest sum over MIN_PAIR_LOG_ODDS, both in order, each
    once."""
    steps, events = scores.shape
    gain = np.maximum(scores - MIN_PAIR_LOG_ODDS, -1e9)
    total = np.zeros((steps + 1, events + 1))
    for k in range(steps):
        for e in range(events):
            with_pair = total[k, e] + float(gain[k, e])
            total[k + 1, e + 1] = max(total[k, e + 1], total[k + 1, e], with_pair)

    # back from the whole to the first pair
    pairs = []
    k = steps
    e = events
    while k and e:
        if total[k, e] == total[k - 1, e]:
            k -= 1
        elif total[k, e] == total[k, e - 1]:
            e -= 1
        else:
            k -= 1
            e -= 1
            pairs.append((k, e))
    return pairs[::-1]


def _click_span(events: Sequence[ScreenEvent], number: int) -> Span:
    """Return the seconds of a change, with what is free before and after it."""
    event = events[number]
    # What the changes before and after it leave free.
    before = events[number - 1].end if number else 0.0
    after = math.inf
    if number + 1 < len(events):
        after = events[number + 1].start
    lead = max(event.start - LEAD_SECONDS, before)
    tail = min(event.end + TAIL_SECONDS, after)
    start = max(0.0, min(event.start, lead))
    end = max(event.end, tail)
    return Span(round(start, SPAN_DECIMALS), round(end, SPAN_DECIMALS))
