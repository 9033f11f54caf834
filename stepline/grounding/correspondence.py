"""Whether the pictures of a whole video belong to its speech, and whether the speech instructs.

No network here recognises actions, so a single step can hardly be matched to a picture. A whole
video can:

    topic   the objects in the pictures are related to the words
    text    text in the picture is being said (burned-in captions, titles, cards)

    log odds = w_topic (topic - usual) + w_text text     pictures of this video against those of another

`text` is a log Bayes factor of coincidences: h of n trials, against a chance probability whose odds
are raised by a fixed ratio in matching pictures. The three weights are a logistic
regression on real clips, with their own pictures against those of all others
(`lab/correspondence.py`). docs/real_clips.md has results on video makers that were not in the fit.
The task is that of Arandjelovic and Zisserman 2017, "Look, Listen and Learn", without a network.
Letters: S sentences, T seconds, D width.

A talk, an advert or the news shows no step, even if some sentence reads like one. The writer's
scorer of sentences decides this (stepline/writing/extractive/step_score.py). For a language that it
does not know, `instruction_log_bayes` counts the sentences that describe a step.
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

CHANCE_LINE_PROBABILITY = 0.03  # P(a line of text is being said) in a video with other pictures
LINE_ODDS_RATIO = 8.0  # of a line that is being said in matching pictures, against chance
MIN_SAID_FRACTION = 0.6  # of a line's words that must be said, for the line to count as said
TEXT_MARGIN_SECONDS = 2.0  # before and after a line is visible, in which it may be said
MAX_TEXT_SECONDS = 20.0  # text that is visible longer is a watermark
MIN_WORD_LETTERS = 3  # shorter words do not count
MIN_LINE_WORDS = 2  # shorter lines do not count, except
LONG_WORD_LETTERS = 6  # letters of a single word that counts as a line: "REPEAT"
# more trials count as 20, since one editor's choices are not independent
MAX_COINCIDENCE_TRIALS = 20
# Beta distribution of the fraction of sentences that describe a step, in 53 how-to transcripts of
# TutorialVQA. Mean .51
HOW_TO_BETA = (7.1, 6.9)
# the same fraction in a film script (50 parts of 40 sentences) and a lecture
TALK_FRACTION = 0.091
# a warning of the video, and the doubt of a step
TALK_WARNING = "the speech hardly instructs, as in a talk: perhaps the video is no how-to"
PICTURES_DO_NOT_FIT = "the pictures of the whole video do not confirm its words"


@dataclass(frozen=True)
class CorrespondenceWeights:
    """Fitted weights of the two kinds of evidence that the frames of a video belong to its
    speech.

    Attributes:
        topic: weight of `Correspondence.topic`, less `usual_topic`.
        usual_topic: cosine that is no evidence for or against.
        text: weight of the evidence that on-screen text is being said.
        mean_pictures: name of the backbone -> mean unit feature vector of frames of how-to videos,
            D numbers.
    """

    topic: float
    usual_topic: float
    text: float
    mean_pictures: dict[str, list[float]]


@dataclass(frozen=True)
class Correspondence:
    """Evidence that the pictures of a video belong to its speech.

    Attributes:
        topic: cosine of the mean sentence vector and the mean picture, None if unknown.
        text: log Bayes factor that text in the picture is being said, 0 if unknown.
    """

    topic: float | None
    text: float

    @property
    def is_known(self) -> bool:
        """Whether the topic or on-screen text gives any evidence."""
        return bool(self.text or self.topic is not None)

    def log_odds(self, weights: CorrespondenceWeights | None = None) -> float:
        """Return the log odds that the pictures belong to this speech, not to that of another video.

        weights: fitted weights. None: those of the package.
        """
        w = weights or load_weights()
        topic = self.topic - w.usual_topic if self.topic is not None else 0.0
        return w.topic * topic + w.text * self.text


def measure_correspondence(
    sentences: Sequence[Sentence],
    *,
    features: FeatureSequence | None = None,
    sentence_vectors: Matrix | None = None,
    on_screen: Sequence[TimedText] = (),
    weights: CorrespondenceWeights | None = None,
) -> Correspondence:
    """Return the evidence that the pictures of a video belong to its speech.

    There are two kinds: the cosine between the topics of pictures and speech, and spoken text in the
    picture (log Bayes factor).

    Args:
        sentences: S sentences with their times.
        features: feature rows of the pictures, width D. None: the topic is unknown.
        sentence_vectors: (S, D) text vectors of the sentences, in the space of the features. None: the
            topic is unknown.
        on_screen: lines of text in the picture, with their times.
        weights: fitted weights with the mean feature vector of a picture, per backbone. None: those of
            the package.
    """
    # The topic, where the mean picture of the backbone is known.
    topic = None
    if features is not None and sentence_vectors is not None:
        centre = (weights or load_weights()).mean_pictures.get(features.backbone)
        if centre is not None:
            topic = _topic_cosine(features.values, sentence_vectors, np.array(centre))
    return Correspondence(topic, _said_line_evidence(on_screen, sentences))


def coincidence_log_bayes(
    hits: int, trials: int, chance_probability: float, odds_ratio: float
) -> float:
    """Return the log Bayes factor of coincidences: raised odds of a hit against chance.

    More than 20 trials count as 20.

    Args:
        hits: number of trials with a coincidence.
        trials: number of trials.
        chance_probability: P(a trial is a hit) by chance.
        odds_ratio: odds of a hit in matching pictures, divided by the odds by chance.
    """
    if not trials or not 0 < chance_probability < 1:
        return 0.0
    raised_odds = chance_probability * odds_ratio
    matching_probability = raised_odds / (1 - chance_probability + raised_odds)
    misses = trials - hits
    hit_nats = hits * math.log(matching_probability / chance_probability)
    miss_nats = misses * math.log((1 - matching_probability) / (1 - chance_probability))
    return (hit_nats + miss_nats) * min(1.0, MAX_COINCIDENCE_TRIALS / trials)


def instruction_log_bayes(with_step: int, sentences: int) -> float:
    """Return the log Bayes factor that speech gives instructions, against other speech such as a
    talk, by how many of its sentences describe a step.

    Args:
        with_step: number of sentences that describe a step.
        sentences: number of all sentences.
    """
    other_speech = sentences - with_step
    # A beta-binomial against a binomial, whose common factor cancels out.
    a, b = HOW_TO_BETA
    how_to = _log_beta(with_step + a, other_speech + b) - _log_beta(a, b)
    step_nats = with_step * math.log(TALK_FRACTION)
    return how_to - step_nats - (other_speech * math.log(1 - TALK_FRACTION))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _topic_cosine(pictures: Matrix, speech: Matrix, centre: Array) -> float | None:
    """Return the cosine of the mean sentence vector and the centred mean picture, None if unknown.

    Args:
        pictures: (N, D) feature rows of the pictures.
        speech: (S, D) text vectors of the sentences.
        centre: (D,) mean feature of how-to pictures, which is subtracted.
    """
    is_known = np.isfinite(pictures).all(axis=1)
    if not is_known.any() or not len(speech):
        return None
    return cosine(pictures[is_known].mean(axis=0) - centre, speech.mean(axis=0))


def _said_line_evidence(lines: Sequence[TimedText], sentences: Sequence[Sentence]) -> float:
    """Return the log Bayes factor that text in the picture is said while it is visible.

    Args:
        lines: lines of text in the picture.
        sentences: the sentences of the speech.
    """
    spoken: dict[int, set[str]] = defaultdict(set)  # second -> words that are said around it
    for sentence in sentences:
        words = _words(sentence.text)
        first = max(0, int(sentence.span.start - TEXT_MARGIN_SECONDS))
        for t in range(first, math.ceil(sentence.span.end + TEXT_MARGIN_SECONDS)):
            spoken[t] |= words

    # second at which lines appear, one trial for all of them -> whether one of them is said
    screens: dict[int, bool] = {}
    counted: set[frozenset[str]] = set()
    for line in sorted(lines, key=lambda line: line.span.start):
        # A line counts once, if it is long enough and no watermark.
        words_on_screen = frozenset(_words(line.text))
        long_word = any(len(word) >= LONG_WORD_LETTERS for word in words_on_screen)
        if len(words_on_screen) < MIN_LINE_WORDS and not long_word:
            continue
        if line.span.duration > MAX_TEXT_SECONDS or words_on_screen in counted:
            continue
        counted.add(words_on_screen)
        start = int(line.span.start)
        # Words that are said while it is visible.
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
    """Return whether a line of text in the picture has 2 words of 3 letters or more."""
    return len(_words(line)) >= MIN_LINE_WORDS


def is_said(line: str, speech: str) -> bool:
    """Return whether at least 60 % of the words of a line are also in the speech.

    Args:
        line: text in the picture.
        speech: text of what is said.
    """
    words = _words(line)
    common = words & _words(speech)
    return bool(words) and len(common) >= MIN_SAID_FRACTION * len(words)


def _words(text: str) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {word for word in words if len(word) >= MIN_WORD_LETTERS}


@functools.cache
def load_weights() -> CorrespondenceWeights:
    """Return the fitted weights of `Correspondence.log_odds`, from a file of the package."""
    file = resources.files("stepline.grounding") / "correspondence.json"
    tree = json.loads(file.read_text(encoding="utf-8"))
    return CorrespondenceWeights(**tree["weights"])
