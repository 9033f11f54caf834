"""What a recogniser and a live speaker do to a sentence: fillers, false starts, misheard words,
lost punctuation."""

import re
from random import Random

from made_transcripts.tables import choices
from stepline.writing.extractive.english import word_set

FILLER = 0.035  # a word: a filler before it
AGAIN = 0.005  # a word: said twice
MISHEARD = 0.05  # a word of the table: heard as another
LOST = 0.005  # a word: not heard at all
PUNCTUATED = 0.4  # a video: written with capitals and full stops
FILLERS = (
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
OPENERS = ("so", "okay", "alright", "okay so", "um", "and", "now", "well", "yeah so")
OPENED = 0.25  # a sentence: begins with an opener
LOST_NEVER = word_set("not don't never no without skip")
NUMBERS = re.compile(
    r"^(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|\w+ty|hundred|half|quarters?|thirds?"
    r"|eighths?|sixteenths?|point|zero|and|a|an|third|quarter|eighth|to|or|minutes?|hours?|degrees|inch|inches)$"
)


def spoken(text: str, rng: Random) -> str:
    """Return the words as a speaker lets them out and a recogniser hears them, all without
    punctuation.

    Numbers and negations stay as they are, so that the truth about them stays known.
    """
    words: list[str] = []
    if rng.random() < OPENED:
        words.append(rng.choice(OPENERS))
    for word in re.sub(r"[^\w\s'-]", " ", text).split():
        words += _heard(word, rng)
    return " ".join(words)


def _heard(word: str, rng: Random) -> list[str]:
    if NUMBERS.match(word.lower()) or word.lower() in LOST_NEVER:
        return [word]
    if rng.random() < LOST:
        return []
    table = choices("misheard.txt")
    if word.lower() in table and rng.random() < MISHEARD:
        return [rng.choice(table[word.lower()])]
    before = [rng.choice(FILLERS)] if rng.random() < FILLER else []
    return [*before, word, word] if rng.random() < AGAIN else [*before, word]


def punctuated(text: str) -> str:
    """Return the sentence with a capital and a full stop, as a better recogniser writes it."""
    return text[:1].upper() + text[1:] + "." if text else text
