"""The object baseline: a clip counts as shown when most of the things that are named can be seen (WYS2, section 4).

Differs: the paper's detector is Detic; here the 1,000 classes of the `conse` backbone stand for it. Letters: R frames.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from stepline.errors import ShapeError
from stepline.records import Matrix
from stepline.vision.conse import class_names
from stepline.writing.extractive.english import parse

ENOUGH = 0.6  # share of the named things that must be seen; WYS2, section 4
SEEN = 0.05  # probability from which a class counts as seen; the paper names no such number


@dataclass(frozen=True)
class Overlap:
    """The things a narration names that have a class, and which of them are seen."""

    named: tuple[str, ...]
    seen: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share of the named things that is seen; 0 when nothing is named that could be."""
        return len(self.seen) / len(self.named) if self.named else 0.0

    @property
    def shown(self) -> bool:
        """Tell whether enough is seen."""
        return self.share >= ENOUGH


def object_overlaps(texts: Sequence[str], probabilities: Sequence[Matrix], *, floor: float = SEEN) -> list[Overlap]:
    """Return the overlap of each text and its clip, whose class probabilities are (R, 1000).

    A noun stands for the classes that have it as a name, or as the last word of one ("bowl": "mixing bowl"); nouns that
    no class has cannot be looked for and do not count. Raises ShapeError when arrays do not fit.
    """
    if len(texts) != len(probabilities):
        raise ShapeError(f"{len(texts)} texts and {len(probabilities)} clips; give one clip a text")
    classes = _classes()
    found = []
    for nouns, rows in zip(named_things(texts), probabilities, strict=True):
        if rows.ndim != 2 or rows.shape[1] != len(class_names()) or not len(rows):
            raise ShapeError(f"class probabilities must be (R, {len(class_names())}), R > 0, not {rows.shape}")
        best = rows.max(axis=0)
        named = tuple(noun for noun in nouns if noun in classes)
        found.append(Overlap(named, tuple(noun for noun in named if best[list(classes[noun])].max() >= floor)))
    return found


def named_things(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the nouns of each text as single base forms, each once."""
    docs = parse(texts)
    return [tuple(dict.fromkeys(token.lemma_.lower() for token in doc if token.pos_ == "NOUN")) for doc in docs]


@cache
def _classes() -> dict[str, tuple[int, ...]]:
    """Return the classes that a noun may name."""
    known: dict[str, list[int]] = {}
    for row, names in enumerate(class_names()):
        for noun in sorted(_heads(names.split(","))):
            known.setdefault(noun, []).append(row)
    return {noun: tuple(rows) for noun, rows in known.items()}


def _heads(names: Iterable[str]) -> set[str]:
    words = [re.findall(r"[a-z'-]+", name.lower()) for name in names]
    return {parts[-1] for parts in words if parts}
