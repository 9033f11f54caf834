"""Detects hallucinated sentences: text where nobody speaks, and loops of a recogniser that is
stuck.

A sentence is dropped, with a reason, for a loop of words, too little voice in its span, unlikely
words, a stock phrase, or neighbours that are mostly dropped.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.records import Sentence
from stepline.speech.settings import AsrSettings

MAX_PHRASE_WORDS = 20  # of a phrase that may repeat
MIN_PHRASE_REPEATS = 4  # in a row from which a phrase is a loop; people say a thing three times
MIN_WORD_REPEATS = 6  # the same of a single word: "no, no, no, no" is speech


def find_repetitions(words: Sequence[str]) -> set[int]:
    """Return the indices of the words in a loop: one phrase repeated many times without a break."""
    plain = [re.sub(r"[^\w']+", "", word.lower()) for word in words]
    indices: set[int] = set()
    for phrase in range(1, MAX_PHRASE_WORDS + 1):
        needed = (MIN_WORD_REPEATS if phrase == 1 else MIN_PHRASE_REPEATS) * phrase
        start = 0  # of a run in which each word equals the one `phrase` words before it
        for index in range(phrase, len(plain) + 1):
            if index < len(plain) and plain[index] == plain[index - phrase]:
                continue
            if index - start >= needed:
                indices.update(range(start, index))
            start = index - phrase + 1
    return indices


def repeated_sentences(sentences: Sequence[Sentence]) -> set[int]:
    """Return the indices of the sentences that contain words of a loop."""
    sentence_of_word = [index for index, sentence in enumerate(sentences) for _ in sentence.words]
    words = [word.text for sentence in sentences for word in sentence.words]
    return {sentence_of_word[word] for word in find_repetitions(words)}


# End cards of the videos that Whisper learned from. It writes them over music and silence.
STOCK_PHRASES = re.compile(
    r"((okay|so|and|that's it|well|all right|alright) )?"
    r"(thank you|thanks)( (so|very) much)?( for \w+.*| everyone)?"
    r"|you|bye( bye)?|(please )?(like and )?(subscribe|share)\b.*"
    r"|.*\bsubscribe to (my|our|the) channel.*"
    r"|(i'll |i will |we'll )?see you (all )?(again )?(in the )?(next|later|soon).*"
    r"|to be continued|the end"
    r"|(sub)?(titles|titled|captions|captioned|transcribed|translated|transcription)"
    r" (by|from)\b.*|.*\bamara org\b.*"
)
# fraction of a window's sentences not believed, from which the rest is doubted too
MIN_DOUBTED_NEIGHBOURS = 0.5
# A sentence is not believed below these: mean voice probability, mean word probability, and
# log-probability plus voice probability. Chosen on real clips.
MIN_VOICE_PROBABILITY = 0.2
MIN_WORD_PROBABILITY = 0.45
MIN_VOICE_AND_LOG_PROBABILITY = -0.35
# A stock phrase ("Thank you.") is believed from these on.
CLEAR_VOICE_PROBABILITY = 0.5
CLEAR_LOG_PROBABILITY = -0.4
REPETITION_REASON = "the recogniser repeated itself"


def is_low_confidence_reason(reason: str) -> bool:
    """Return whether a sentence was dropped for unlikely words, as another language or noise gives."""
    return reason == REPETITION_REASON or "unsure" in reason


@dataclass(frozen=True)
class SpeechEvidence:
    """Mean P(voice) in the span of a sentence and mean log-probability of its window. None =
    unknown.
    """

    voiced: float
    log_probability: float | None


def hallucination_reasons(
    sentences: Sequence[Sentence], evidence: Sequence[SpeechEvidence], settings: AsrSettings
) -> list[str | None]:
    """Return for each sentence of one window why it is a hallucination, or None for a good one."""
    repeated = repeated_sentences(sentences)
    reasons = [
        REPETITION_REASON
        if index in repeated
        else hallucination_reason(sentence, sentence_evidence, settings)
        for index, (sentence, sentence_evidence) in enumerate(zip(sentences, evidence, strict=True))
    ]
    # Where half of a window is doubted, its unsure sentences are doubted too.
    doubted = sum(reason is not None for reason in reasons)
    if sentences and doubted >= MIN_DOUBTED_NEIGHBOURS * len(sentences):
        for index, sentence_evidence in enumerate(evidence):
            likely = sentence_evidence.log_probability
            if reasons[index] is not None or likely is None:
                continue
            if likely < CLEAR_LOG_PROBABILITY:
                neighbour_reason = f"the words are unsure ({_probability_text(likely)})"
                reasons[index] = f"what is next to it is not believed, and {neighbour_reason}"
    return reasons


def hallucination_reason(
    sentence: Sentence, evidence: SpeechEvidence, settings: AsrSettings
) -> str | None:
    """Return why one sentence, without its neighbours, is a hallucination, or None for a good one."""
    likely = evidence.log_probability
    if not any(letter.isalnum() for letter in sentence.text):
        return "no words, only symbols"
    if evidence.voiced < MIN_VOICE_PROBABILITY:
        return f"no voice is heard there ({evidence.voiced:.0%} sure of one)"
    if likely is not None and likely < settings.log_probability:
        return f"the recogniser was unsure of what is said ({_probability_text(likely)})"
    if sentence.confidence is not None and sentence.confidence < MIN_WORD_PROBABILITY:
        return f"the recogniser was unsure of the words ({sentence.confidence:.0%} sure of each)"
    # Sure words make up for little voice, and clear voice for unsure words.
    if likely is not None and likely + evidence.voiced < MIN_VOICE_AND_LOG_PROBABILITY:
        return f"little voice ({evidence.voiced:.0%} sure) and unsure words ({_probability_text(likely)})"
    plain = " ".join(re.sub(r"[^\w' ]", " ", sentence.text.lower().replace("’", "'")).split())
    # A stock phrase is believed only where voice and words are clear.
    is_clear = evidence.voiced >= CLEAR_VOICE_PROBABILITY
    if likely is not None and likely < CLEAR_LOG_PROBABILITY:
        is_clear = False
    if STOCK_PHRASES.fullmatch(plain) and not is_clear:
        return "a stock phrase that Whisper writes where no one speaks"
    return None


def _probability_text(log_probability: float) -> str:
    """Return the mean log-probability of a token as text: its geometric mean probability in per
    cent.
    """
    return f"{math.exp(log_probability):.0%} sure of each part of a word"
