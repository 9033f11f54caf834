"""Filter of a library's videos by words, tags, metadata and state."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepline.library.corrected_library import CorrectedLibrary, VideoCard, VideoState
from stepline.library.video_edits import text_key


@dataclass(frozen=True)
class CardFilter:
    """Conditions that a video must all meet, without regard to upper and lower case.

    Attributes:
        words: words separated by spaces. Each must be in the title, tags or metadata.
        tags: the video must have all of these tags.
        metadata: the video must have all of these: "NAME:VALUE", or "NAME" for any value.
        state: "new" or "corrected", None for either.
    """

    words: str = ""
    tags: Sequence[str] = ()
    metadata: Sequence[str] = ()
    state: VideoState | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the filter has no condition."""
        return not (self.words.split() or self.tags or self.metadata or self.state)

    def filter_cards(self, cards: Iterable[VideoCard]) -> list[VideoCard]:
        """Return the cards that match the filter, in the given order."""
        # Both sides are compared in one case of letters.
        words = self.words.casefold().split()
        tags = set(map(text_key, self.tags))
        pairs = list(map(_metadata_pair, self.metadata))
        matches = []
        for card in cards:
            has_state = self.state in (None, card.state)
            has_labels = tags <= set(map(text_key, card.tags)) and _has_metadata(card, pairs)
            if has_state and has_labels and _title_has_words(card, words):
                matches.append(card)
        return matches


def matching_record_files(
    library: CorrectedLibrary, card_filter: CardFilter
) -> frozenset[str] | None:
    """Return the record files of the videos that match a filter, None for an empty filter.

    The files are paths relative to the library's folder.

    Args:
        library: the library.
        card_filter: the filter.
    """
    if card_filter.is_empty:
        return None
    cards = card_filter.filter_cards(library.videos())
    return frozenset(library.video(card.id).name for card in cards if card.damage is None)


def count_tags(cards: Iterable[VideoCard]) -> dict[str, int]:
    """Return tag -> number of cards that have it, sorted by tag. Case is ignored."""
    return _count_ignoring_case(tag for card in cards for tag in card.tags)


def count_metadata(cards: Iterable[VideoCard]) -> dict[str, int]:
    """Return name of metadata -> number of cards that have it, sorted by name. Case is ignored."""
    return _count_ignoring_case(name for card in cards for name in card.metadata)


def _count_ignoring_case(texts: Iterable[str]) -> dict[str, int]:
    # Spellings that differ by the case of letters are counted together, under the first.
    counts: Counter[str] = Counter()
    spellings: dict[str, str] = {}
    for text in texts:
        key = text_key(text)
        counts[key] += 1
        spellings.setdefault(key, text)
    return {spellings[key]: counts[key] for key in sorted(counts)}


def _metadata_pair(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return text_key(name), text_key(value)


def _has_metadata(card: VideoCard, pairs: Sequence[tuple[str, str]]) -> bool:
    values = {text_key(name): text_key(value) for name, value in card.metadata.items()}
    # An empty value is any.
    return all(name in values and value in ("", values[name]) for name, value in pairs)


def _title_has_words(card: VideoCard, words: Sequence[str]) -> bool:
    # A value is found by "name: value" as well.
    metadata = [f"{name}: {value}" for name, value in card.metadata.items()]
    folded = "\n".join([card.title, *card.tags, *metadata]).casefold()
    return all(word in folded for word in words)
