"""The clips that people are asked about: a step's words, and the seconds in which it may be shown.

The least sure come first: those whose P(shown) is nearest to one half. Of a video to train on each
step is asked about in the seconds that the grounding gives it. Of a held-out video it is asked also
where it is said. All of its clips are asked about, so that two ways of placing its steps can be
compared. An id changes with its words and seconds, so that no answer outlives what it was about.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepline.annotate import AnnotationClip
from stepline.annotate.clips import widen_clip
from stepline.curate.sampling import random_key
from stepline.records import Record, Span, Step

SAME_PLACE_IOU = 0.5  # from which two spans of a step are one place: one answer holds for both
MEASURED_SHARE = 1 / 3  # of the clips, at most: those of held-out videos
NOT_JUDGED = 0.5  # P(shown) of a step that nothing judged: as unsure as can be
ID_RANGE = 0xFFFFFF  # of the number that ends a clip's id, in hex


@dataclass(frozen=True)
class ReviewPlace:
    """Seconds in which a step of a video may be shown. p: P(shown) of the step."""

    video: str
    step: str
    text: str
    span: Span
    p: float

    @property
    def id(self) -> str:
        """Its name in the queue and in the answers."""
        content = f"{self.text} {self.span.start:.3f} {self.span.end:.3f}"
        number = random_key(0, content) % ID_RANGE
        return f"{self.video}/{self.step}/{number:06x}"

    @property
    def certainty(self) -> float:
        """How far P(shown) lies from one half: 0 to 0.5."""
        return abs(self.p - 0.5)

    def is_near(self, span: Span) -> bool:
        """Return whether an answer about this place holds for a span, too."""
        return self.span.iou(span) >= SAME_PLACE_IOU


def split_for_test(ids: Collection[str], share: float, seed: int) -> frozenset[str]:
    """Return a share of the videos, drawn by their ids. It is one at least where there are two."""
    if len(ids) < 2:
        return frozenset()
    # At least one to measure on, and one to train on.
    count = max(1, round(share * len(ids)))
    count = min(len(ids) - 1, count)
    order = sorted(ids, key=lambda id: random_key(seed, id))
    return frozenset(order[:count])


def step_places(record: Record, *, is_held_out: bool) -> list[ReviewPlace]:
    """Return where the steps of a record may be shown, by the record itself."""
    places = []
    for step in record.steps:
        # Where it is shown, and for a comparison where it is said.
        spans = list(step.spans[:1])
        if step.said is not None and (is_held_out or not spans):
            spans.append(step.said)
        first: ReviewPlace | None = None
        for span in spans:
            # Two spans that overlap enough are one place, so that no one is asked twice.
            if first is None or not first.is_near(span):
                place = place_of(record, step, span)
                first = first or place
                places.append(place)
    return places


def place_of(record: Record, step: Step, span: Span) -> ReviewPlace:
    """Return a step's place in some seconds."""
    p = step.score
    if p is None:
        p = NOT_JUDGED
    return ReviewPlace(record.id, step.id, step.text, span, p)


def review_queue(
    records: Iterable[Record], held_out: Collection[str], most: int
) -> list[ReviewPlace]:
    """Return the places to ask about, the least sure first: those of held-out videos, and of the
    others as many as are left of `most`.

    Held-out videos have a third of the clips at most, and each of them all of its places or none.
    """
    measured: list[ReviewPlace] = []
    others: list[ReviewPlace] = []
    for record in records:
        is_held_out = record.id in held_out
        places = step_places(record, is_held_out=is_held_out)
        if not is_held_out:
            others += places
        elif len(measured) + len(places) <= MEASURED_SHARE * most:
            # A held-out video is asked about whole, or not at all.
            measured += places
    others.sort(key=_order)
    places_left = most - len(measured)
    places = [*measured, *others[:places_left]]
    return sorted(places, key=_order)


def _order(place: ReviewPlace) -> tuple[float, str]:
    return place.certainty, place.id


def annotation_clips(
    places: Sequence[ReviewPlace], media: Mapping[str, Path], durations: Mapping[str, float]
) -> list[AnnotationClip]:
    """Return the clips to watch, in the order of the places. media: videos' files by id. Places of
    other videos have none."""
    clips = []
    for place in places:
        path = media.get(place.video)
        if path is not None:
            span = widen_clip(place.span, durations.get(place.video))
            clip = AnnotationClip(id=place.id, video=str(path), span=span, text=place.text)
            clips.append(clip)
    return clips
