"""Punctuation for speech that has none: captions of a recogniser, which are cut by length alone.

The narration tagger says after each word whether a mark follows; silence between two words speaks
for the end of a sentence.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from stepline.asr.sentences import ends_sentence
from stepline.narration import load_tagger
from stepline.narration.words import OUTER_MARKS, WORD_MARKS, looks_english
from stepline.numeric import softmax
from stepline.records import Word

MIN_STOPS_PER_WORD: Final = 0.02  # full stops from which the punctuation is taken seriously
MIN_WORDS: Final = 40  # fewer are too few to tell how a text is punctuated
# Log odds of a full stop a second of silence, fitted on six transcripts (docs/writing.md).
STOP_LOG_ODDS: Final = 1.0  # speech is cut more often than a writer would
STOP_PER_SECOND: Final = 1.0
MAX_SILENCE_SECONDS: Final = 3.0
MARK_SIGNS: Final = {"none": "", "comma": ",", "stop": ".", "question": "?"}
MIN_CHANCE: Final = 1e-6


def lacks_punctuation(words: Sequence[Word], language: str | None) -> bool:
    """Return whether the words are English and hardly ever end a sentence."""
    if language is not None and language.lower().split("-")[0] not in ("en", "english"):
        return False
    stops = sum(ends_sentence(word.text) for word in words)
    if len(words) < MIN_WORDS or stops >= MIN_STOPS_PER_WORD * len(words):
        return False
    return looks_english([word.text.strip(OUTER_MARKS + " ").lower() for word in words])


def restore_punctuation(words: Sequence[Word]) -> list[Word]:
    """Return the words with the marks that a writer would put, capital letters behind full stops.

    Raises ModelError when the sentence encoder is missing.
    """
    chances = load_tagger().read_marks([word.text for word in words])  # (W, 4)
    logits = np.log(np.maximum(chances, MIN_CHANCE))
    logits[:, WORD_MARKS.index("stop")] += STOP_LOG_ODDS + STOP_PER_SECOND * _silences(words)
    best = softmax(logits).argmax(axis=1)
    marked = []
    begins = True
    for word, mark in zip(words, best, strict=True):
        sign = MARK_SIGNS[WORD_MARKS[int(mark)]]
        text = word.text.rstrip()
        if begins or text.strip() == "i" or text.strip().startswith("i'"):
            text = _capitalised(text)
        if sign and text[-1:].isalnum():
            text += sign
        marked.append(word.model_copy(update={"text": text}))
        begins = sign in (".", "?")
    return marked


def _silences(words: Sequence[Word]) -> np.ndarray:
    """Return the seconds of silence after each word, (W,); 0 where times are unknown."""
    silences = np.zeros(len(words))
    for number in range(len(words) - 1):
        span = words[number].span
        following = words[number + 1].span
        if span is not None and following is not None:
            silences[number] = min(max(0.0, following.start - span.end), MAX_SILENCE_SECONDS)
    return silences


def _capitalised(text: str) -> str:
    """Return a word, which may have a space before it, with its first letter large."""
    start = len(text) - len(text.lstrip())
    return text[:start] + text[start : start + 1].upper() + text[start + 1 :]
