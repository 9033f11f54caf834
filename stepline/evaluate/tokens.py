"""Captions as SODA and densevid_eval compare them: ASCII alone, Treebank tokens, no punctuation."""

import logging

from stepline.evaluate.events import Event
from stepline.evaluate.ptb import Tokenizer, only_ascii

logger = logging.getLogger(__name__)


class CaptionTokens:
    """Turns events into the tokens of their captions; warns once of a caption that an English scorer cannot read."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer()
        self._warned = False

    def of(self, event: Event) -> str:
        """Return the tokens of one event's caption, joined by spaces."""
        caption = event[2]
        tokens = self._tokenizer(only_ascii(caption))
        if not tokens and not self._warned and any(letter.isalnum() for letter in caption):
            logger.warning("%.40r: no ASCII letter; the English scorers read it, and all like it, as empty", caption)
            self._warned = True
        return tokens
