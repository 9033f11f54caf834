"""Nothing is written where nobody speaks: each sentence is kept, or dropped with its reason."""

import re
from dataclasses import dataclass

from stepline.asr.settings import AsrSettings
from stepline.records import Sentence

STOCK = re.compile(
    r"(thank you|thanks)( (so|very) much)?( for (watching|listening|your attention).*)?|you|bye( bye)?|"
    r".*\bsubscribe\b.*|.*(thanks|thank you)( so much)? for watching.*|see you (in the )?next (time|video|one).*|"
    r"(sub)?titles? by.*|.*amara\.org.*|please like.*"
)   # what Whisper writes over music and silence: end cards of the videos it learned from


@dataclass(frozen=True)
class Evidence:
    """What speaks for a sentence: mean P(voice) in its span, mean log-probability and P(no speech) of its window."""

    voiced: float
    log_probability: float | None
    no_speech: float | None


def objection(sentence: Sentence, evidence: Evidence, settings: AsrSettings) -> str | None:
    """Return why the sentence is not believed, or None when it is."""
    if not any(letter.isalnum() for letter in sentence.text):
        return "no words, only symbols"
    if evidence.voiced < settings.voiced:
        return f"no voice heard there (mean voice probability {evidence.voiced:.2f})"
    if evidence.log_probability is not None and evidence.log_probability < settings.log_probability:
        return f"the recogniser was unsure (mean log-probability {evidence.log_probability:.2f})"
    if sentence.confidence is not None and sentence.confidence < settings.word_probability:
        return f"the recogniser was unsure of the words (mean probability {sentence.confidence:.2f})"
    return None
