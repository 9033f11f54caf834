"""What a recogniser and a live speaker do to a sentence: fillers, false starts, misheard words,
lost punctuation."""

import re
from random import Random

from made_transcripts.tables import choices

from stepline.writing.extractive.english import word_set

# how often ...
FILLER_RATE = 0.035  # ... a filler comes before a word
REPEATED_WORD_RATE = 0.005  # ... a word is said twice
MISHEARD_WORD_RATE = 0.05  # ... a word of the table is heard as another
LOST_WORD_RATE = 0.005  # ... a word is not heard at all
PUNCTUATED_VIDEO_RATE = 0.4  # ... a video is written with capitals and full stops
FILLER_WORDS = (
    "um",
    "uh",
    "like",
    "you know",
    "kind of",
    "basically",
    "just",
    "right",
    "sort of",
    "I mean",
    "actually",
)
OPENER_WORDS = ("so", "okay", "alright", "okay so", "um", "and", "now", "well", "yeah so")
OPENER_RATE = 0.25  # how often a sentence begins with an opener
NEGATION_WORDS = word_set("not don't never no without skip")
NUMBER_PATTERN = re.compile(
    r"^(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty|hundred"
    r"|half|quarters?|thirds?|eighths?|sixteenths?|point|zero|and|a|an|third|quarter|eighth|to|or"
    r"|minutes?|hours?|degrees|inch|inches)$"
)


def spoken(text: str, rng: Random) -> str:
    """Return the words as a speaker lets them out and a recogniser hears them, all without
    punctuation.

    Numbers and negations stay as they are, so that the truth about them stays known.
    """
    words: list[str] = []
    if rng.random() < OPENER_RATE:
        words.append(rng.choice(OPENER_WORDS))
    for word in re.sub(r"[^\w\s'-]", " ", text).split():
        words += _heard(word, rng)
    return " ".join(words)


def _heard(word: str, rng: Random) -> list[str]:
    plain = word.lower()
    if NUMBER_PATTERN.match(plain) or plain in NEGATION_WORDS:
        return [word]
    if rng.random() < LOST_WORD_RATE:
        return []
    table = choices("misheard.txt")
    if plain in table and rng.random() < MISHEARD_WORD_RATE:
        return [rng.choice(table[plain])]
    words = []
    if rng.random() < FILLER_RATE:
        words.append(rng.choice(FILLER_WORDS))
    words.append(word)
    if rng.random() < REPEATED_WORD_RATE:
        words.append(word)
    return words


def punctuated(text: str) -> str:
    """Return the sentence with a capital and a full stop, as a better recogniser writes it."""
    if not text:
        return text
    return text[:1].upper() + text[1:] + "."
