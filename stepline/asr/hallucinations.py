"""Nothing is written where nobody speaks: each sentence is kept, or dropped with its reason.

Finds words that a recogniser repeats because it is stuck, not because anybody says them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from stepline.asr.settings import AsrSettings
from stepline.records import Sentence

LONGEST_PHRASE = 12  # words of a phrase that may repeat
REPEATS = 4  # times in a row from which a phrase is a loop; people say a thing three times
REPEATS_OF_A_WORD = 6  # times for a single word: "no, no, no, no" is speech


def find_repetitions(words: Sequence[str]) -> set[int]:
    """Return the indices of the words that lie in a loop: one phrase said again and again without a break."""
    plain = [re.sub(r"[^\w']+", "", word.lower()) for word in words]
    return {index for phrase in range(1, LONGEST_PHRASE + 1) for index in _runs(plain, phrase)}


def _runs(words: Sequence[str], phrase: int) -> set[int]:
    """Return the indices in runs where each word equals the one `phrase` words before it, long enough to be a loop."""
    needed = (REPEATS_OF_A_WORD if phrase == 1 else REPEATS) * phrase
    found: set[int] = set()
    start = 0
    for index in range(phrase, len(words) + 1):
        if index < len(words) and words[index] == words[index - phrase]:
            continue
        if index - start >= needed:
            found.update(range(start, index))
        start = index - phrase + 1
    return found


STOCK = re.compile(
    r"((okay|so|and|that's it|well|all right|alright) )?(thank you|thanks)( (so|very) much)?( for \w+.*| everyone)?"
    r"|you|bye( bye)?|(please )?(like and )?(subscribe|share)\b.*|.*\bsubscribe to (my|our|the) channel.*"
    r"|(i'll |i will |we'll )?see you (all )?(again )?(in the )?(next|later|soon).*|to be continued|the end"
    r"|(sub)?(titles|titled|captions|captioned|transcribed|translated|transcription) (by|from)\b.*|.*\bamara org\b.*"
)  # end cards of the videos that Whisper learned from; it writes them over music and silence
MOSTLY = 0.5  # share of a window's sentences that are not believed, from which the rest is doubted too


@dataclass(frozen=True)
class SpeechEvidence:
    """What speaks for a sentence: mean P(voice) in its span; mean log-probability of its window, None = unknown."""

    voiced: float
    log_probability: float | None


def hallucination_reasons(
    found: Sequence[Sentence], evidence: Sequence[SpeechEvidence], settings: AsrSettings
) -> list[str | None]:
    """Return for each sentence of one window why it is not believed, or None when it is."""
    stuck = _stuck(found)
    reasons = [
        _LOOP if index in stuck else hallucination_reason(sentence, proof, settings)
        for index, (sentence, proof) in enumerate(zip(found, evidence, strict=True))
    ]
    doubted = sum(reason is not None for reason in reasons)
    if found and doubted >= MOSTLY * len(found):
        reasons = [reason or _company(proof, settings) for reason, proof in zip(reasons, evidence, strict=True)]
    return reasons


_LOOP = "the recogniser repeated itself"


def hallucination_reason(sentence: Sentence, evidence: SpeechEvidence, settings: AsrSettings) -> str | None:
    """Return why one sentence, taken alone, is not believed, or None when it is."""
    likely = evidence.log_probability
    if not any(letter.isalnum() for letter in sentence.text):
        return "no words, only symbols"
    if evidence.voiced < settings.voiced:
        return f"no voice is heard there (mean voice probability {evidence.voiced:.2f})"
    if likely is not None and likely < settings.log_probability:
        return f"the recogniser was unsure of what is said (mean log-probability {likely:.2f})"
    if sentence.confidence is not None and sentence.confidence < settings.word_probability:
        return f"the recogniser was unsure of the words (mean probability {sentence.confidence:.2f})"
    if likely is not None and likely + evidence.voiced < settings.belief:
        return f"little voice (probability {evidence.voiced:.2f}) and unsure words (log-probability {likely:.2f})"
    if STOCK.fullmatch(_plain(sentence.text)) and _weak(evidence, settings):
        return "a stock phrase that Whisper writes where nobody speaks"
    return None


def _weak(evidence: SpeechEvidence, settings: AsrSettings) -> bool:
    """Tell whether a phrase that is often invented lacks the evidence of clear speech."""
    likely = evidence.log_probability
    return evidence.voiced < settings.clear_voice or (likely is not None and likely < settings.clear_log_probability)


def _company(evidence: SpeechEvidence, settings: AsrSettings) -> str | None:
    """Return the doubt that falls on a sentence whose neighbours are mostly not believed."""
    likely = evidence.log_probability
    if likely is None or likely >= settings.clear_log_probability:
        return None
    return f"what stands beside it is not believed, and the words are unsure (log-probability {likely:.2f})"


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w' ]", " ", text.lower().replace("’", "'")).split())


def _stuck(found: Sequence[Sentence]) -> set[int]:
    """Return the indices of the sentences that hold words of a loop, or that are one themselves."""
    owners = [index for index, sentence in enumerate(found) for _ in sentence.words]
    return {owners[word] for word in find_repetitions([word.text for sentence in found for word in sentence.words])}
