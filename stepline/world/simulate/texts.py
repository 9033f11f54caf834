"""The words of the world: real verbs and nouns, and how each style puts them.

A line's words depend on its meaning and its `wording` number alone.
"""

from collections.abc import Sequence
from typing import Final

from stepline.world.simulate.lines import MISHEARD, NONE, SAID, Lines
from stepline.world.simulate.settings import RecogniserSettings
from stepline.world.simulate.words import (
    ABSENT_ENDS,
    CAPTIONS,
    CHATS,
    LEADS,
    NOUNS,
    OBJECT_CHATS,
    PLACES,
    PURPOSES,
    SOUND_ALIKES,
    TAILS,
    TITLE_WAYS,
    TITLES,
    VERBS,
)

VAGUE_ACTION: Final = {"narration": "do that with", "step": "prepare", "recipe": "prepare"}
MULTIPLIER: Final = 2654435761  # Knuth's, spreads neighbouring numbers
WORD_RANGE: Final = 1 << 32


def title(task: int) -> str:
    """Return a task's title; no two of the first thousand are equal."""
    way, dish = divmod(task, len(TITLES))
    return f"{TITLE_WAYS[way % len(TITLE_WAYS)]} {TITLES[dish]}" + (f" {way}" if way >= len(TITLE_WAYS) else "")


def texts(lines: Lines, heard: RecogniserSettings | None = None) -> tuple[str, ...]:
    """Return the words of every line; narrations as a recogniser writes them, when it is given."""
    say = {"narration": _narration, "step": _step, "recipe": _article}[lines.style]
    said = (say(lines, row) for row in range(len(lines)))
    if lines.style != "narration" or heard is None:
        return tuple(_sentence(text) for text in said)
    return tuple(_heard(text, int(lines.wording[row]), heard) for row, text in enumerate(said))


def captions(lines: Lines) -> tuple[str, ...]:
    """Return a person's caption of every line, as YouCook2's: no greeting, where or with what it is done."""
    return tuple(
        f"{_verb(lines, row)} the {_noun(lines, row)} {_pick(CAPTIONS, int(lines.wording[row]), 7)}"
        for row in range(len(lines))
    )


def _narration(lines: Lines, row: int) -> str:
    wording = int(lines.wording[row])
    if lines.chat[row] != NONE:
        return CHATS[int(lines.chat[row]) % len(CHATS)]
    if lines.step[row] == NONE:
        return _pick(OBJECT_CHATS, wording, 1).format(_noun(lines, row))
    said = f"{_pick(LEADS, wording, 2)} {_verb(lines, row)} {_object(lines, row)}"
    ends = TAILS if lines.window[row] != NONE else ABSENT_ENDS
    return f"{said} {_pick(ends, wording, 3)}".strip()


def _step(lines: Lines, row: int) -> str:
    if lines.chat[row] != NONE:
        return "follow the tip: " + CHATS[int(lines.chat[row]) % len(CHATS)]
    if lines.step[row] == NONE:
        return f"use the {_noun(lines, row)}"
    return f"{_verb(lines, row)} {_object(lines, row)} {_pick(PLACES, int(lines.wording[row]), 4)}".strip()


def _article(lines: Lines, row: int) -> str:
    return f"{_verb(lines, row)} the {_noun(lines, row)} {_pick(PURPOSES, int(lines.wording[row]), 5)}"


def _verb(lines: Lines, row: int) -> str:
    state = lines.said_action[row]
    if lines.action[row] == NONE or state not in (SAID, MISHEARD):
        return VAGUE_ACTION[lines.style]
    return VERBS[lines.action[row]] if state == SAID else _pick(SOUND_ALIKES, int(lines.wording[row]), 8)


def _noun(lines: Lines, row: int) -> str:
    misheard = lines.said_object[row] == MISHEARD
    return _pick(SOUND_ALIKES, int(lines.wording[row]), 9) if misheard else NOUNS[lines.object[row]]


def _object(lines: Lines, row: int) -> str:
    return "it" if lines.said_object[row] not in (SAID, MISHEARD) else f"the {_noun(lines, row)}"


def _heard(text: str, wording: int, settings: RecogniserSettings) -> str:
    """Return a sentence with its small words misheard at the recogniser's rate; content words were decided before."""
    words = [
        _pick(SOUND_ALIKES, wording, 20 + place)
        if len(word) <= 4 and _number(wording, 100 + place) < settings.word_error * WORD_RANGE
        else word
        for place, word in enumerate(text.split())
    ]
    return _sentence(" ".join(words)) if settings.punctuated else " ".join(words).replace(",", "").lower()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _pick(choices: Sequence[str], wording: int, salt: int) -> str:
    return choices[_number(wording, salt) % len(choices)]


def _number(wording: int, salt: int) -> int:
    """Return one of 2^32 numbers for a line's wording and a place in it."""
    mixed = (wording + 1) * MULTIPLIER + salt * 40503 * MULTIPLIER
    mixed ^= mixed >> 15
    mixed = (mixed * MULTIPLIER) & 0xFFFFFFFFFFFF
    return (mixed >> 13) % WORD_RANGE
