"""Other people's feature files into a store: what cannot be features is left out, and said."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepline.errors import StoreError
from stepline.features.flaws import DROPPED, OTHER_ID, TWICE, UNREADABLE, Dropped, read_dropped, write_dropped
from stepline.features.index import UNKNOWN
from stepline.features.sources import Content, Found, contents, find_features
from stepline.features.writer import SHARD_BYTES, FeatureWriter


@dataclass(frozen=True)
class Imported:
    """What an import did. added: ids; rows: of them; already: items that the store held before."""

    added: tuple[str, ...]
    rows: int
    already: int
    dropped: tuple[Dropped, ...]


def import_features(
    source: Path,
    folder: Path,
    *,
    rate: float = 1.0,
    backbone: str | None = None,
    width: int | None = None,
    ending: str | None = None,
    shard_bytes: int = SHARD_BYTES,
    report: Callable[[str], None] | None = None,
) -> Imported:
    """Add the feature files of a folder, a .tar or one file to the store in `folder`, and return what was done.

    rate: rows a second, and backbone: who made them, for files that do not say so themselves. width: what all must
    be; else the first to be stored decides. Items that the store holds are not read again, so that an import that was
    killed goes on. What was dropped is in `dropped.jsonl`, with its reason. Raises StoreError without any feature file.
    """
    with FeatureWriter(folder, width=width, shard_bytes=shard_bytes) as writer:
        run = _Run(writer, rate, backbone)
        for found in find_features(source, ending):
            run.take(found)
            if report is not None:
                report(found.id)
    kept = [each for each in read_dropped(folder / DROPPED) if not _below(each.place, source) and each.id not in writer]
    write_dropped([*kept, *run.dropped], folder / DROPPED)
    return Imported(tuple(run.added), run.rows, run.already, tuple(run.dropped))


def _below(place: str, source: Path) -> bool:
    return place == str(source) or place.startswith((f"{source}/", f"{source}:"))


def _rate(content: Content, rate: float) -> float:
    """Return the rows a second that a file states, else the given ones."""
    stated = content.metadata.get("rate", str(rate))
    try:
        found = float(stated)
    except ValueError:
        found = float("nan")
    if not (math.isfinite(found) and found > 0):
        raise StoreError(f"{content.id}: rate {stated!r} is no number of rows a second; write the features again")
    return found


class _Run:
    """One import: what came so far."""

    def __init__(self, writer: FeatureWriter, rate: float, backbone: str | None) -> None:
        self._writer, self._rate, self._backbone = writer, rate, backbone
        self._places: dict[str, str] = {}  # id -> where it was first found, in this run
        self.added: dict[str, None] = {}  # in order
        self.rows = 0
        self.already = 0
        self.dropped: list[Dropped] = []

    def take(self, found: Found) -> None:
        """Add what a file holds, or note why not."""
        if found.id in self._writer and found.id not in self._places:
            self._places[found.id] = found.place
            self.already += 1
            return
        try:
            for content in contents(found):
                self._add(content, found.place)
        except StoreError as error:
            self.dropped.append(Dropped(found.id, found.place, UNREADABLE, str(error)))

    def _add(self, content: Content, place: str) -> None:
        first = self._places.setdefault(content.id, place)
        flaw: tuple[str, str] | None = None
        if content.id in self._writer and content.id not in self.added and first == place:
            self.already += 1
            return
        if content.said not in (None, content.id):
            flaw = OTHER_ID, str(content.said)
        flaw = flaw or self._writer.flaw(content.id, content.values, content.lines)
        if flaw is not None:
            reason, value = flaw
            self.dropped.append(Dropped(content.id, place, reason, first if reason == TWICE else value))
            return
        rate = _rate(content, self._rate)
        backbone = self._backbone or content.metadata.get("backbone", UNKNOWN)
        self._writer.add(content.id, content.values, rate=rate, backbone=backbone, lines=content.lines)
        self.added[content.id] = None
        self.rows += len(content.values)
