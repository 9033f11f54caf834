"""Cuts a transcript into chunks of about ten sentences, and finds the sentences that talk to the model itself.

Source: NaSVA, section 3.1. Differs: the chunks are of equal size, where the paper's last one may be a lone sentence.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stepline.records import Sentence, Transcript

LONGEST = 6000  # characters of one chunk, some 1,500 tokens: room for prompt and reply in a context of 4,096

# Speech that is aimed at a language model, not at a viewer. The loss when it is wrong is one sentence, named in a note.
_ORDERS = re.compile(
    r"""
      \b(ignore|disregard|forget|override)\b .{0,40} \b(previous|prior|above|earlier|preceding|system|your)\b
          .{0,30} \b(instruction|prompt|rule|message|direction|order|training)s?\b
    | \b(system|hidden|original)\ prompt\b
    | \bas\ an?\ (ai|assistant)\b
    | \byou\ are\ (now\ )?(an?\ )?(ai\b|assistant|jailbroken|dan\b)
    | \b(respond|reply|output)\ (only\ |exactly\ |just\ )?(with|the\ (text|words?|following|string))\b
    | \bnew\ (instructions?|task)\s*:
    | </?\s*(transcript|system|assistant|user|script|iframe|img)\b
    | <\|.{0,30}?\|> | \[/?INST\]
    """,
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True)
class Chunk:
    """Neighbouring sentences of a transcript, in order; `places` are their indices in it."""

    number: int  # from 1
    places: tuple[int, ...]
    sentences: tuple[Sentence, ...]

    @property
    def text(self) -> str:
        """What is said, one sentence a line."""
        return "\n".join(sentence.text for sentence in self.sentences)


def cut(transcript: Transcript, size: int, withheld: Sequence[int] = ()) -> tuple[Chunk, ...]:
    """Return chunks of about `size` sentences and at most LONGEST characters, without the `withheld` sentences.

    A single sentence longer than that is a chunk of its own.
    """
    places = [i for i in range(len(transcript.sentences)) if i not in set(withheld)]
    groups = [part for group in _even(places, size) for part in _short(group, transcript.sentences)]
    return tuple(
        Chunk(number, tuple(group), tuple(transcript.sentences[i] for i in group))
        for number, group in enumerate(groups, start=1)
    )


def orders_to_the_model(transcript: Transcript) -> tuple[int, ...]:
    """Return the indices of the sentences that try to instruct a language model; they are withheld from it."""
    return tuple(i for i, sentence in enumerate(transcript.sentences) if _ORDERS.search(sentence.text))


def _even(places: Sequence[int], size: int) -> list[list[int]]:
    """Split into the fewest groups of at most `size`, their sizes one apart at most."""
    count = math.ceil(len(places) / size)
    edges = [round(i * len(places) / count) for i in range(count + 1)] if count else [0]
    return [list(places[a:b]) for a, b in pairwise(edges)]


def _short(group: list[int], sentences: Sequence[Sentence]) -> list[list[int]]:
    parts: list[list[int]] = [[]]
    held = 0
    for place in group:
        length = len(sentences[place].text) + 1
        if parts[-1] and held + length > LONGEST:
            parts.append([])
            held = 0
        parts[-1].append(place)
        held += length
    return [part for part in parts if part]
