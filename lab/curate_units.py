"""Sentences and steps next to what they are about in the planted truth of `curate_corpus.py`. See
`curate_truth.py`."""

import re
from dataclasses import dataclass

from stepline.records import Record, Span, Step

SMALL_WORDS_TEXT = (
    "a an the and to of in on with it its that this you your so now then up off out just is are"
)
SMALL_WORDS = frozenset(SMALL_WORDS_TEXT.split())
MIN_SHARED_WORDS = 0.5  # share of a step's words that its true step must have
FAR_AWAY_SCORE = -1e9  # in place of - distance where a step is not said


@dataclass(frozen=True)
class Unit:
    """One sentence or step: where it is put, and where what it says is really shown (none:
    nowhere)."""

    video: str
    place: Span | None
    at: float | None
    shown_spans: tuple[Span, ...]

    @property
    def aligned(self) -> bool:
        """The middle lies where it is shown."""
        return self.place is not None and any(
            self.place.center in span for span in self.shown_spans
        )

    @property
    def hit(self) -> bool:
        """The best second lies where it is shown."""
        return self.at is not None and any(self.at in span for span in self.shown_spans)

    @property
    def iou(self) -> float:
        """With the span where it is shown."""
        if not self.place:
            return 0.0
        return max((self.place.iou(span) for span in self.shown_spans), default=0.0)


def words(text: str) -> set[str]:
    """Return what a text is about: its words without the smallest, cut to their stems."""
    stems = {word[:5] for word in re.findall(r"[a-z]+", text.lower())}
    return stems - SMALL_WORDS


def true_step(step: Step, truth: Record) -> Step | None:
    """Return the true step that a written one stands for, by words. Of equals the one said
    nearest."""
    sentences = truth.transcript.sentences if truth.transcript else ()
    own_words = words(step.text)
    match = None
    best = (0.0, 0.0)
    for true in truth.reference:
        true_words = words(true.text)
        for source in true.sources:
            true_words |= words(sentences[source].text)
        shared = len(own_words & true_words) / max(1, len(own_words))
        near = FAR_AWAY_SCORE
        if true.said and step.said:
            near = -abs(true.said.center - step.said.center)
        score = (shared, near)
        if shared >= MIN_SHARED_WORDS and (match is None or score > best):
            match = true
            best = score
    return match


def narrations(record: Record, truth: Record) -> list[Unit]:
    """Return what is said, where it is said."""
    true_sentences = truth.transcript.sentences if truth.transcript else ()
    spans_of_source = {}
    for step in truth.reference:
        for source in step.sources:
            spans_of_source[source] = step.spans
    units = []
    for sentence in record.sentences:
        shown_spans: list[Span] = []
        for number, true in enumerate(true_sentences):
            if is_same(sentence.span, true.span):
                shown_spans += spans_of_source.get(number, ())
        place = sentence.span
        units.append(Unit(record.id, place, place.center, tuple(shown_spans)))
    return units


def is_same(first: Span, second: Span) -> bool:
    """Say whether two spans overlap by half of the shorter one."""
    shorter = min(first.duration, second.duration)
    return first.overlap(second) >= shorter / 2


def units_of(record: Record, truth: Record, *, where_said: bool = False) -> dict[str, Unit]:
    """Return a unit per step, by step id. where_said: its place is where it is said."""
    units = {}
    for step in record.steps:
        true = true_step(step, truth)
        place = next(iter(step.spans), None)
        if where_said:
            place = step.said
        at = step.at
        if place is not None and (where_said or step.at is None):
            at = place.center
        true_spans = true.spans if true else ()
        units[step.id] = Unit(record.id, place, at, true_spans)
    return units
