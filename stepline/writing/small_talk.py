"""Finds the steps of a model that are talk to the audience ("subscribe to the channel"), by the extractive rules."""

from collections.abc import Sequence

from stepline.writing.chat import refusal
from stepline.writing.clauses import find_clauses
from stepline.writing.english import parse
from stepline.writing.spoken import segments

# The reasons that hold for any wording; the others concern spoken grammar.
TALK = ("chat", "talk about the video", "an announcement")


def small_talk(texts: Sequence[str]) -> list[str | None]:
    """Return for each step why it is talk to the audience, None for one that is work (or that no rule knows)."""
    pieces = [(place, piece) for place, text in enumerate(texts) for piece in segments(text, 1)]
    reasons: list[list[str | None]] = [[] for _ in texts]
    for (place, piece), doc in zip(pieces, parse([piece.text for _, piece in pieces]), strict=True):
        reasons[place] += [refusal(clause) for clause in find_clauses(doc, ordered=piece.ordered)]
    return [_talk(found) for found in reasons]


def _talk(reasons: Sequence[str | None]) -> str | None:
    """Return the reason when every clause of a step is talk."""
    talk = [reason for reason in reasons if reason is not None and reason.startswith(TALK)]
    return talk[0] if talk and len(talk) == len(reasons) else None
