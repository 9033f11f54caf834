"""Talk to the audience among the steps that a language model wrote: "subscribe to the channel"."""

from collections.abc import Sequence
from typing import Final

from stepline.text.narration import load_tagger
from stepline.text.narration.words import SENTENCE_KINDS

# P(talk) of a step from which it is dropped. Of 18 steps of talk 14 are above. Of 27 that only hold
# words of a channel ("peel a thumb sized piece of ginger") or are strange, 2 are above.
MIN_TALK: Final = 0.9
# A step is read between these two: alone, or among talk, "cut the onion" passes for talk.
WORK_BEFORE: Final = "Now put the water on the heat."
WORK_AFTER: Final = "Then add the rest and stir it."
TALK_REASON: Final = "chat: talk to the audience, not a step of the work"


def talk_reasons(texts: Sequence[str]) -> list[str | None]:
    """Return for each English step why it is talk to the audience, None for one that is work.

    Raises ModelError when the sentence encoder is not installed.
    """
    talk = SENTENCE_KINDS.index("talk")
    tagger = load_tagger()
    reasons: list[str | None] = []
    for text in texts:
        sentence = text.rstrip(".") + "."
        _, reading, _ = tagger.read_sentences([WORK_BEFORE, sentence, WORK_AFTER])
        reason = None
        if float(reading.kinds[talk]) >= MIN_TALK:
            reason = TALK_REASON
        reasons.append(reason)
    return reasons
