"""Pieces of narration that are looked up as one: sentences, or short neighbours merged (appendix A.2)."""

from collections.abc import Sequence
from dataclasses import dataclass

from stepline.records import Sentence, Span
from stepline.sieve_swap.settings import SwapSettings


@dataclass(frozen=True)
class NarrationSegment:
    """Narration as it is looked up. span: seconds; sources: indices of its sentences, ascending."""

    text: str
    span: Span
    sources: tuple[int, ...]


def segments(sentences: Sequence[Sentence], settings: SwapSettings) -> list[NarrationSegment]:
    """Return the narration in pieces: each sentence one, or short neighbours merged where `merge` is "before".

    Two consecutive pieces merge when both are shorter than `longest_merged` and less than `merge_gap` seconds lie
    between them. A merged piece counts by its own length when the next sentence comes, so that none outgrows
    2 x longest_merged + merge_gap; the paper leaves that open. Sentences without text are left out.
    """
    single = [
        NarrationSegment(sentence.text.strip(), sentence.span, (index,))
        for index, sentence in enumerate(sentences)
        if sentence.text.strip()
    ]
    if settings.merge == "after":
        return single
    merged: list[NarrationSegment] = []
    for segment in single:
        if merged and _short_neighbours(merged[-1], segment, settings):
            merged[-1] = join([merged[-1], segment])
        else:
            merged.append(segment)
    return merged


def _short_neighbours(first: NarrationSegment, second: NarrationSegment, settings: SwapSettings) -> bool:
    longest = settings.longest_merged
    short = first.span.duration < longest and second.span.duration < longest
    return short and near(first.span, second.span, settings)


def near(first: Span, second: Span, settings: SwapSettings) -> bool:
    """Tell whether less than `merge_gap` seconds lie between two spans; overlapping ones have no gap."""
    return second.start - first.end < settings.merge_gap


def join(parts: Sequence[NarrationSegment]) -> NarrationSegment:
    """Return consecutive segments as one, from the first's start to the latest end."""
    text = " ".join(part.text for part in parts)
    span = Span(min(part.span.start for part in parts), max(part.span.end for part in parts))
    return NarrationSegment(text, span, tuple(index for part in parts for index in part.sources))
