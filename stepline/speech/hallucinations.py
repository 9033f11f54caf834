"""Detects hallucinated sentences: text where nobody speaks, and loops of repeated words.

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
MIN_WORD_REPEATS = 6  # in a row from which one word is a loop: "no, no, no, no" is speech


def find_repetitions(words: Sequence[str]) -> set[int]:
    """Return the indices of words in a loop, in which one phrase repeats many times in a row."""
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
# fraction of a window's sentences that are dropped, from which unlikely ones are dropped too
MIN_DROPPED_FRACTION = 0.5
# A sentence is dropped below these: mean voice probability, mean word probability, and
# log-probability plus voice probability. Chosen on real clips.
MIN_VOICE_PROBABILITY = 0.2
MIN_WORD_PROBABILITY = 0.45
MIN_VOICE_AND_LOG_PROBABILITY = -0.35
# A stock phrase ("Thank you.") is accepted from these on.
CLEAR_VOICE_PROBABILITY = 0.5
CLEAR_LOG_PROBABILITY = -0.4
REPETITION_REASON = "the recogniser repeated itself"


def is_low_confidence_reason(reason: str) -> bool:
    """Return whether a sentence was rejected for unlikely words or for a loop of words.

    Speech in another language, or noise, gives both.

    reason: result of `hallucination_reason`.
    """
    return reason == REPETITION_REASON or "unsure" in reason


@dataclass(frozen=True)
class SpeechEvidence:
    """Measurements that show whether a sentence was really spoken.

    Attributes:
        voice_probability: mean P(voice) in the span of the sentence.
        log_probability: mean log-probability of the tokens of its window, None if unknown.
    """

    voice_probability: float
    log_probability: float | None


def hallucination_reasons(
    sentences: Sequence[Sentence], evidence: Sequence[SpeechEvidence], settings: AsrSettings
) -> list[str | None]:
    """Return, for each sentence, why it is a hallucination. None for a real sentence.

    Args:
        sentences: sentences of one window, or of windows that were recognised together.
        evidence: measurements of each sentence.
        settings: settings of speech recognition, with the thresholds.
    """
    repeated = repeated_sentences(sentences)
    reasons = [
        REPETITION_REASON
        if index in repeated
        else hallucination_reason(sentence, sentence_evidence, settings)
        for index, (sentence, sentence_evidence) in enumerate(zip(sentences, evidence, strict=True))
    ]
    # Where half of a window is dropped, its unlikely sentences are dropped too.
    dropped_count = sum(reason is not None for reason in reasons)
    if sentences and dropped_count >= MIN_DROPPED_FRACTION * len(sentences):
        for index, sentence_evidence in enumerate(evidence):
            likelihood = sentence_evidence.log_probability
            if reasons[index] is not None or likelihood is None:
                continue
            if likelihood < CLEAR_LOG_PROBABILITY:
                neighbour_reason = f"the words are unsure ({_probability_text(likelihood)})"
                reasons[index] = f"what is next to it is not believed, and {neighbour_reason}"
    return reasons


def hallucination_reason(
    sentence: Sentence, evidence: SpeechEvidence, settings: AsrSettings
) -> str | None:
    """Return why one sentence is a hallucination, judged without its neighbours.

    None for a real sentence.

    Args:
        sentence: the sentence.
        evidence: its mean P(voice) and log-probability.
        settings: settings of speech recognition, with the thresholds.
    """
    voice, likelihood = evidence.voice_probability, evidence.log_probability
    if not any(letter.isalnum() for letter in sentence.text):
        return "no words, only symbols"
    if voice < MIN_VOICE_PROBABILITY:
        return f"no voice is heard there ({voice:.0%} sure of one)"
    if likelihood is not None and likelihood < settings.log_probability:
        return f"the recogniser was unsure of what is said ({_probability_text(likelihood)})"
    if sentence.confidence is not None and sentence.confidence < MIN_WORD_PROBABILITY:
        return f"the recogniser was unsure of the words ({sentence.confidence:.0%} sure of each)"
    # Likely words make up for little voice, and clear voice for unlikely words.
    if likelihood is not None and likelihood + voice < MIN_VOICE_AND_LOG_PROBABILITY:
        words = _probability_text(likelihood)
        return f"little voice ({voice:.0%} sure) and unsure words ({words})"
    plain = " ".join(re.sub(r"[^\w' ]", " ", sentence.text.lower().replace("’", "'")).split())
    # A stock phrase is accepted only where voice and words are clear.
    is_unlikely = likelihood is not None and likelihood < CLEAR_LOG_PROBABILITY
    if (voice < CLEAR_VOICE_PROBABILITY or is_unlikely) and STOCK_PHRASES.fullmatch(plain):
        return "a stock phrase that Whisper writes where no one speaks"
    return None


def _probability_text(log_probability: float) -> str:
    """Return the geometric mean probability of a token as text in per cent.

    log_probability: mean natural log-probability of the tokens.
    """
    return f"{math.exp(log_probability):.0%} sure of each part of a word"
