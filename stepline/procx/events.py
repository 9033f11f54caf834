"""What of a record is to be found in its video: spans with sentences, and what is said around them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stepline.procx.data_settings import DataSettings, Wording
from stepline.records import Record, Sentence, Span, Step


@dataclass(frozen=True, slots=True)
class Event:
    """Seconds of a video, and the sentences that are right for them, the one to be said first."""

    start: float
    end: float
    texts: tuple[str, ...]


def events(record: Record, settings: DataSettings) -> Iterator[Event]:
    """Yield what is to be found, in the record's order: as many events as a step of people has spans.

    A step that Stepline wrote or swapped has one, the best where it is shown, else where it is said.
    """
    target = settings.target or "steps"
    if target == "narration":
        for sentence in record.transcript.sentences if record.transcript else ():
            yield Event(sentence.span.start, sentence.span.end, (sentence.text,))
        return
    told: tuple[Step, ...] = getattr(record, target)
    for step in told:
        for span in _places(step) if target == "steps" else step.spans:
            yield Event(span.start, span.end, _wordings(step, settings.wording))


def said_around(sentences: Iterable[Sentence], around: float, start: float, end: float) -> str:
    """Return what is said from `around` seconds before the start until as many after the end, as one text."""
    near = (one.text for one in sentences if one.span.end > start - around and one.span.start < end + around)
    return " ".join(near)


def _places(step: Step) -> tuple[Span, ...]:
    return step.spans[:1] or ((step.said,) if step.said is not None else ())


def _wordings(step: Step, wording: Wording) -> tuple[str, ...]:
    if wording == "own":
        return (step.text,)
    if wording == "said":
        return ((*step.alternatives, step.text)[0],)
    return (step.text, *step.alternatives)
