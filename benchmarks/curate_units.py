"""Sentences and steps next to what they are about in the planted truth of `curate_corpus.py`. See
`curate_truth.py`."""

import re
from dataclasses import dataclass

from stepline.records import Record, Span, Step

SMALL = "a an the and to of in on with it its that this you your so now then up off out just is are"
SHARED = 0.5  # share of a step's words that its true step must have


@dataclass(frozen=True)
class Unit:
    """One sentence or step: where it is put, and where what it says is really shown (none:
    nowhere)."""

    video: str
    place: Span | None
    at: float | None
    shown: tuple[Span, ...]

    @property
    def aligned(self) -> bool:
        """The middle lies where it is shown."""
        return self.place is not None and any(self.place.center in span for span in self.shown)

    @property
    def hit(self) -> bool:
        """The best second lies where it is shown."""
        return self.at is not None and any(self.at in span for span in self.shown)

    @property
    def iou(self) -> float:
        """With the span where it is shown."""
        return (
            max((self.place.iou(span) for span in self.shown), default=0.0) if self.place else 0.0
        )


def words(text: str) -> set[str]:
    """Return what a text is about: its words without the smallest, cut to their stems."""
    return {word[:5] for word in re.findall(r"[a-z]+", text.lower())} - set(SMALL.split())


def true_step(step: Step, truth: Record) -> Step | None:
    """Return the true step that a written one stands for, by words. Of equals the one said
    nearest."""
    sentences = truth.transcript.sentences if truth.transcript else ()
    own, best = words(step.text), (0.0, 0.0)
    found = None
    for true in truth.reference:
        told = words(true.text).union(*(words(sentences[source].text) for source in true.sources))
        shared = len(own & told) / max(1, len(own))
        near = -abs(true.said.center - step.said.center) if true.said and step.said else -1e9
        if shared >= SHARED and (found is None or (shared, near) > best):
            found, best = true, (shared, near)
    return found


def narrations(record: Record, truth: Record) -> list[Unit]:
    """Return what is said, where it is said."""
    said = truth.transcript.sentences if truth.transcript else ()
    shown = {source: step.spans for step in truth.reference for source in step.sources}
    units = []
    for one in record.sentences:
        same = [
            n
            for n, true in enumerate(said)
            if one.span.overlap(true.span) >= half_of(one.span, true.span)
        ]
        spans = tuple(span for n in same for span in shown.get(n, ()))
        units.append(Unit(record.id, one.span, one.span.center, spans))
    return units


def half_of(one: Span, other: Span) -> float:
    """Return half the seconds of the shorter span."""
    return min(one.duration, other.duration) / 2


def units_of(record: Record, truth: Record, *, said: bool = False) -> dict[str, Unit]:
    """Return a unit per step, by step id. said: where it is said, not where it is shown."""
    found = {}
    for step in record.steps:
        true = true_step(step, truth)
        place = step.said if said else next(iter(step.spans), None)
        at = place.center if place is not None and (said or step.at is None) else step.at
        found[step.id] = Unit(record.id, place, at, true.spans if true else ())
    return found
