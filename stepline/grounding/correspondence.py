"""Do the pictures belong to the speech, and does the speech instruct? Of the whole video, not of
one step.

No network here knows actions, so one step alone can hardly be matched to a picture. A video as a
whole can:

    cuts    editors cut where a sentence begins
    topic   the objects seen are near what is spoken of
    text    what stands in the picture is being said (burned-in captions, titles, cards)

    log odds = w_cuts cuts + w_topic (topic - usual) + w_text text     own pictures against those of another film

cuts and text are log Bayes factors of coincidences. Of n chances h fall together, by chance with
probability c, in pictures of your own with odds raised by a fixed gain. The four weights are a
logistic regression over pairs of real clips, own pictures against all others. They come from
`lab/correspondence.py`. docs/real_clips.md reports what holds on makers it was not fitted
on. The question is that of Arandjelovic and Zisserman 2017, "Look, Listen and Learn". No network
answers it here. Letters: S sentences, T seconds, D width.

A talk, an advert or the news, in which a sentence here and there reads like a step, shows none,
however well its pictures fit. The writer's scorer of sentences decides
(stepline/writing/extractive/step_score.py). Where it cannot read the language,
`instruction_log_bayes` weighs how many sentences describe a step.
"""

import functools
import json
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import numpy as np

from stepline.grounding.evidence import TimedText
from stepline.grounding.said_to_shown import Array
from stepline.numeric import cosine
from stepline.records import FeatureSequence, Matrix, Sentence

# seconds that a cut may come before or after the first word of a sentence
BEFORE_SECONDS = 0.8
AFTER_SECONDS = 0.5
CUT_ODDS_RATIO = 2.0  # of such a cut in pictures of your own, against chance
SAMPLE_SECONDS = 0.1  # between the seconds at which chance is measured
CHANCE_LINE_PROBABILITY = 0.03  # P(a line of text is being said) over another film's words
LINE_ODDS_RATIO = 12.0  # of that in pictures of your own, against chance
MIN_SAID_FRACTION = 0.6  # of a line's words, from which it counts as said
TEXT_MARGIN_SECONDS = 4.0  # around the time in which a line is shown
MAX_TEXT_SECONDS = 20.0  # what is shown longer is a watermark
MIN_WORD_LETTERS = 3  # of a word that counts
MIN_LINE_WORDS = 2  # of a line that counts
LONG_WORD_LETTERS = 5  # of a word that is a line by itself: "REPEAT"
MAX_COINCIDENCE_TRIALS = 20  # what one editor does alike is not independent
# Beta of the fraction of sentences that describe a step. 53 how-to transcripts of TutorialVQA, mean
# .51
HOW_TO_BETA = (7.1, 6.9)
# the same of a film script (50 parts of 40 sentences) and a lecture, as the extractive writer reads
# them
TALK_FRACTION = 0.091
PICTURES_DO_NOT_FIT = (
    "the pictures of the whole video hardly fit its words"  # why a step is "unclear"
)
MAX_CUT_NATS = 2.0  # that the cuts may say: another film can be cut alike


@dataclass(frozen=True)
class CorrespondenceWeights:
    """The fitted weights.

    mean_pictures: the mean unit row (D,) of how-to pictures by the name of the backbone.
    """

    cuts: float
    topic: float
    usual_topic: float  # the topic's cosine that says nothing
    text: float
    mean_pictures: dict[str, list[float]]


@dataclass(frozen=True)
class Correspondence:
    """Evidence that the pictures belong to the speech.

    cuts, text: nats, 0 where nothing is known.
    topic: a cosine, or unknown.
    """

    cuts: float
    topic: float | None
    text: float

    @property
    def known(self) -> bool:
        """Whether there is any evidence for or against correspondence."""
        return bool(self.cuts or self.text or self.topic is not None)

    def log_odds(self, weights: CorrespondenceWeights | None = None) -> float:
        """Return the log odds that the pictures belong to the speech, against those of another
        film."""
        w = weights or load_weights()
        topic = self.topic - w.usual_topic if self.topic is not None else 0.0
        return w.cuts * self.cuts + w.topic * topic + w.text * self.text


def correspondence(
    sentences: Sequence[Sentence],
    duration: float,
    *,
    cuts: Sequence[float] = (),
    features: FeatureSequence | None = None,
    sentence_vectors: Matrix | None = None,
    on_screen: Sequence[TimedText] = (),
    weights: CorrespondenceWeights | None = None,
) -> Correspondence:
    """Return what ties the pictures of a video of `duration` seconds to its speech.

    cuts: seconds. sentence_vectors: (S, D) in the space of the features. on_screen: what is written
    in the picture.
    """
    # The topic, where the usual picture of the backbone is known.
    topic = None
    if features is not None and sentence_vectors is not None:
        centre = (weights or load_weights()).mean_pictures.get(features.backbone)
        if centre is not None:
            topic = _topic(features.values, sentence_vectors, np.array(centre))
    # The cuts, against the beginnings of sentences in the video.
    starts = sorted(s.span.start for s in sentences if s.span.start < duration)
    cut_times = np.array(cuts, dtype=np.float64)
    cut_nats = _cuts_at_sentences(cut_times, np.array(starts), duration)
    return Correspondence(cut_nats, topic, _said_lines(on_screen, sentences))


def coincidence_log_bayes(
    hits: int, trials: int, chance_probability: float, odds_ratio: float
) -> float:
    """Return the log Bayes factor of `hits` in that many chances: odds of a hit raised by `gain`
    against chance alone."""
    if not trials or not 0 < chance_probability < 1:
        return 0.0
    # In pictures of your own the odds of a hit are raised.
    raised_odds = chance_probability * odds_ratio
    own_probability = raised_odds / (1 - chance_probability + raised_odds)
    misses = trials - hits
    hit_nats = hits * math.log(own_probability / chance_probability)
    miss_nats = misses * math.log((1 - own_probability) / (1 - chance_probability))
    return (hit_nats + miss_nats) * min(1.0, MAX_COINCIDENCE_TRIALS / trials)


def instruction_log_bayes(with_step: int, sentences: int) -> float:
    """Return the log Bayes factor of instructions against other talk, where `with_step` of the
    sentences describe a step."""
    other_speech = sentences - with_step
    # A beta-binomial against a binomial, whose common factor cancels out.
    a, b = HOW_TO_BETA
    how_to = _log_beta(with_step + a, other_speech + b) - _log_beta(a, b)
    step_nats = with_step * math.log(TALK_FRACTION)
    return how_to - step_nats - (other_speech * math.log(1 - TALK_FRACTION))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _cuts_at_sentences(cuts: Array, starts: Array, duration: float) -> float:
    """Return the log Bayes factor that sentences begin at cuts more often than at other seconds."""
    if not len(cuts) or not len(starts):
        return 0.0
    # Chance is the share of the video that is near the beginning of a sentence.
    sampled_seconds = np.arange(SAMPLE_SECONDS / 2, duration, SAMPLE_SECONDS)
    chance_probability = float(_begins_near(sampled_seconds, starts).mean())
    hits = int(_begins_near(cuts, starts).sum())
    nats = coincidence_log_bayes(hits, len(cuts), chance_probability, CUT_ODDS_RATIO)
    return float(np.clip(nats, -MAX_CUT_NATS, MAX_CUT_NATS))


def _begins_near(times: Array, starts: Array) -> Array:
    """Return (N,): whether a sentence begins near each of the times (N,). starts: ascending."""
    first = np.searchsorted(starts, times - AFTER_SECONDS)
    next_starts = np.append(starts, np.inf)[first]
    return np.asarray(next_starts <= times + BEFORE_SECONDS)


def _topic(pictures: Matrix, speech: Matrix, centre: Array) -> float | None:
    """Return the cosine of the mean sentence and the mean picture, the latter less that of all
    how-to pictures."""
    is_known = np.isfinite(pictures).all(axis=1)
    if not is_known.any() or not len(speech):
        return None
    mean_picture = pictures[is_known].mean(axis=0)
    return cosine(mean_picture - centre, speech.mean(axis=0))


def _said_lines(lines: Sequence[TimedText], sentences: Sequence[Sentence]) -> float:
    """Return the log Bayes factor that the text in the picture is spoken then."""
    spoken: dict[int, set[str]] = defaultdict(set)  # second -> words that are said around it
    for sentence in sentences:
        words = _words(sentence.text)
        first = max(0, int(sentence.span.start - TEXT_MARGIN_SECONDS))
        end = math.ceil(sentence.span.end + TEXT_MARGIN_SECONDS)
        for t in range(first, end):
            spoken[t] |= words

    # second at which lines come, together one chance -> whether one of them is said
    screens: dict[int, bool] = {}
    counted: set[frozenset[str]] = set()
    for line in sorted(lines, key=lambda line: line.span.start):
        # A line counts once, if it has words enough and is not a watermark.
        words_on_screen = frozenset(_words(line.text))
        long_word = any(len(word) >= LONG_WORD_LETTERS for word in words_on_screen)
        if len(words_on_screen) < MIN_LINE_WORDS and not long_word:
            continue
        if line.span.duration > MAX_TEXT_SECONDS or words_on_screen in counted:
            continue
        counted.add(words_on_screen)
        start = int(line.span.start)
        # What is said while it can be read.
        near: set[str] = set()
        for t in range(start, math.ceil(line.span.end)):
            near |= spoken[t]
        if near:  # else no one speaks then
            common = len(words_on_screen & near)
            is_spoken = common >= MIN_SAID_FRACTION * len(words_on_screen)
            screens[start] = screens.get(start, False) or is_spoken
    hits = sum(screens.values())
    return coincidence_log_bayes(hits, len(screens), CHANCE_LINE_PROBABILITY, LINE_ODDS_RATIO)


def is_phrase(line: str) -> bool:
    """Whether a line of text in the picture holds two words or more."""
    return len(_words(line)) >= MIN_LINE_WORDS


def is_said(line: str, speech: str) -> bool:
    """Whether most of the words of a line of text in the picture are among those spoken."""
    words = _words(line)
    common = words & _words(speech)
    return bool(words) and len(common) >= MIN_SAID_FRACTION * len(words)


def _words(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {word for word in words if len(word) >= MIN_WORD_LETTERS}


@functools.cache
def load_weights() -> CorrespondenceWeights:
    """Return the weights that come with the package."""
    file = resources.files("stepline.grounding") / "correspondence.json"
    tree = json.loads(file.read_text(encoding="utf-8"))
    return CorrespondenceWeights(**tree["weights"])
