"""Talk to the audience among the steps that a language model wrote: "subscribe to the channel"."""

from collections.abc import Sequence
from typing import Final

from stepline.narration import load_tagger
from stepline.narration.words import SENTENCE_KINDS

# P(talk) of a step from which it is dropped. Of 19 steps that hold words of a channel ("peel a thumb
# sized piece of ginger", "click the comment button") all that are work lie below.
MIN_TALK: Final = 0.9
TALK_REASON: Final = "chat: talk to the audience, not a step of the work"


def talk_reasons(texts: Sequence[str]) -> list[str | None]:
    """Return for each English step why it is talk to the audience, None for one that is work.

    Raises ModelError when the sentence encoder is not installed.
    """
    talk = SENTENCE_KINDS.index("talk")
    readings = load_tagger().read_sentences(texts)
    return [TALK_REASON if float(r.kinds[talk]) >= MIN_TALK else None for r in readings]
