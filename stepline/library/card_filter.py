"""Which videos of a library are asked for: by words, tags, metadata and state."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stepline.library.corrected_library import CorrectedLibrary, VideoCard, VideoState
from stepline.library.video_edits import text_key


@dataclass(frozen=True)
class CardFilter:
    """What a video must have: all words in its title, tags or metadata, all tags, all metadata.

    metadata: NAME:VALUE, or NAME alone for any value. state: None for any. Letters of either case
    count as the same.
    """

    words: str = ""
    tags: Sequence[str] = ()
    metadata: Sequence[str] = ()
    state: VideoState | None = None

    @property
    def asks_nothing(self) -> bool:
        """Whether every video fits."""
        return not (self.words.split() or self.tags or self.metadata or self.state)

    def choose(self, cards: Iterable[VideoCard]) -> list[VideoCard]:
        """Return the cards that fit, in their order."""
        if self.asks_nothing:
            return list(cards)
        words = self.words.casefold().split()
        tags = {text_key(tag) for tag in self.tags}
        pairs = [tuple(map(text_key, text.partition(":")[::2])) for text in self.metadata]
        chosen = []
        for card in cards:
            if self.state not in (None, card.state) or not tags <= _tag_keys(card):
                continue
            text = _text(card)
            values = {text_key(name): text_key(value) for name, value in card.metadata.items()}
            has_pairs = all(_holds(values, name, value) for name, value in pairs)
            if has_pairs and all(word in text for word in words):
                chosen.append(card)
        return chosen


def chosen_names(library: CorrectedLibrary, chosen: CardFilter) -> frozenset[str] | None:
    """Return the names of the record files of the videos that fit; None where every video does."""
    if chosen.asks_nothing:
        return None
    return frozenset(library.video(card.id).name for card in chosen.choose(library.videos()))


def count_tags(cards: Iterable[VideoCard]) -> dict[str, int]:
    """Return how many cards have each tag, sorted by tag."""
    return _counts(tag for card in cards for tag in card.tags)


def count_metadata(cards: Iterable[VideoCard]) -> dict[str, int]:
    """Return how many cards have each name in their metadata, sorted by name."""
    return _counts(name for card in cards for name in card.metadata)


def _counts(texts: Iterable[str]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    spellings: dict[str, str] = {}
    for text in texts:
        key = text_key(text)
        counts[key] += 1
        spellings.setdefault(key, text)
    return {spellings[key]: counts[key] for key in sorted(counts)}


def _tag_keys(card: VideoCard) -> set[str]:
    return {text_key(tag) for tag in card.tags}


def _text(card: VideoCard) -> str:
    pairs = [f"{name}: {value}" for name, value in card.metadata.items()]
    return "\n".join([card.title, *card.tags, *pairs]).casefold()


def _holds(values: dict[str, str], name: str, value: str) -> bool:
    return name in values and value in ("", values[name])
