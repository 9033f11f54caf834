"""Builds records from annotation rows. Spans are checked, never corrected, and faults are listed.

Also ids of YouTube videos, with and without the prefix "v_" of ActivityNet's and PDVC's files.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from stepline.limits import MAX_SECOND, is_storable
from stepline.records import Record, Rejected, RejectedKind, Sentence, Span, Step, Transcript, Video


@dataclass(frozen=True)
class DatasetEntry:
    """One item of a dataset as its reader yields it.

    Attributes:
        id: of the item.
        record: None where the whole item is rejected.
        subset: name of the split, as the dataset writes it.
        rejected: what was left out of the record, and why.
    """

    id: str
    record: Record | None
    subset: str | None = None
    rejected: tuple[Rejected, ...] = ()


@dataclass(frozen=True)
class DatasetRecords:
    """A whole dataset in memory.

    Attributes:
        name: of the dataset.
        records: in the file's order.
        rejected: everything that was left out, and why.
        subsets: record id -> split, for the records that have one.
    """

    name: str
    records: tuple[Record, ...]
    rejected: tuple[Rejected, ...] = ()
    subsets: Mapping[str, str] = field(default_factory=dict)

    def reasons(self) -> dict[str, int]:
        """Return "what: reason" -> number of rejected rows, the most frequent first."""
        return dict(Counter(f"{row.what}: {row.reason}" for row in self.rejected).most_common())


NOT_FINITE = "the times are not finite numbers"
NEGATIVE_START = "starts before the video does"
TOO_LATE = f"lies past {MAX_SECOND:.0f} s"
REVERSED_SPAN = "ends before it starts"
EMPTY_SPAN = "has no length"
STARTS_PAST = "starts at or after the end of the video"
ENDS_PAST = "ends after the end of the video"
NO_TEXT = "has no text"
BAD_TEXT = "its text is not valid Unicode"
REPEATED_SPAN = "the same span of the same step is there twice"
BAD_DURATION = f"is not a finite number above 0, or more than {MAX_SECOND:.0f} s"
REPEATED_ID = "its id was read before"
NO_ID = "has no id"


def span_flaw(start: float, end: float, duration: float | None) -> str | None:
    """Return why [start, end) does not fit into a video, None when it fits.

    Args:
        start: seconds.
        end: seconds.
        duration: of the video in seconds, None where it is not known.
    """
    if not (math.isfinite(start) and math.isfinite(end)):
        return NOT_FINITE
    if start < 0:
        return NEGATIVE_START
    if end == start:
        return EMPTY_SPAN
    if end < start:
        return REVERSED_SPAN
    if end > MAX_SECOND:
        return TOO_LATE
    if duration is None or end <= duration:
        return None
    if start >= duration:
        return STARTS_PAST
    return ENDS_PAST


def text_flaw(*texts: str) -> str | None:
    """Return why the first faulty text cannot be stored, None when all texts can."""
    for text in texts:
        if not is_storable(text):
            return BAD_TEXT
        if not text:
            return NO_TEXT
    return None


class RecordBuilder:
    """Collects the annotation of one item while its rows are read. `entry` returns the result."""

    def __init__(self, id: str, *, video: str | None = None, duration: float | None = None) -> None:
        """Begin a record.

        Args:
            id: of the record.
            video: id of its video. None: the same.
            duration: of the video in seconds, None where it is not known. A bad one is rejected.
        """
        self.id = id
        self.video = id if video is None else video
        self.duration = duration
        self.rejected: list[Rejected] = []
        self.steps: dict[str, Step] = {}
        self.sentences: list[Sentence] = []
        if duration is not None and not 0 < duration <= MAX_SECOND:
            self.duration = None
            self.reject("duration", "", BAD_DURATION, repr(duration))

    def reject(self, what: RejectedKind, text: str, reason: str, value: str = "") -> None:
        """Add a row to `rejected`. Text that cannot be stored is not quoted.

        Args:
            what: kind of the thing.
            text: of the step or sentence.
            reason: one of the constants above.
            value: what was found instead of what is allowed.
        """
        text = text if is_storable(text) else ""
        value = value if is_storable(value) else ""
        self.rejected.append(Rejected(what, reason, text=text, id=self.id, value=value))

    def validate_span(
        self, start: float, end: float, text: str, what: RejectedKind = "span"
    ) -> Span | None:
        """Return a span in seconds, or None where it does not fit and is rejected.

        text and what: of the rejected row.
        """
        reason = span_flaw(start, end, self.duration)
        if reason is None:
            return Span(start, end)
        value = f"[{start:g}, {end:g}]"
        if self.duration is not None:
            value = f"{value} of {self.duration:g} s"
        self.reject(what, text, reason, value)
        return None

    def add_span(
        self,
        id: str,
        text: str,
        start: float,
        end: float,
        *,
        keeps_step: bool = False,
        alternatives: Iterable[str] = (),
    ) -> None:
        """Add one span of a step, after the other spans of a step that exists already.

        Args:
            id: of the step.
            text: of the step.
            start: seconds.
            end: seconds.
            keeps_step: where the span does not fit, the step stays without a span, since people
                looked for it.
            alternatives: other wordings of the step.
        """
        text = text.strip()
        # Where the step stays, only the span is rejected.
        what: RejectedKind = "span" if keeps_step or id in self.steps else "step"
        span = self.validate_span(start, end, text, what)
        if span is None and not keeps_step:
            return
        spans = () if span is None else (span,)
        others = [other.strip() for other in alternatives if other.strip()]
        self._add_to_step(id, text, spans, alternatives=tuple(others))

    def add_step(self, id: str, text: str, *, speech: Span | None = None) -> None:
        """Add a step that was looked for and has no span so far. speech: when it is spoken."""
        self._add_to_step(id, text.strip(), (), speech=speech)

    def _add_to_step(
        self,
        id: str,
        text: str,
        spans: tuple[Span, ...],
        *,
        speech: Span | None = None,
        alternatives: tuple[str, ...] = (),
    ) -> None:
        step = self.steps.get(id)
        if step is None:
            flaw = text_flaw(text, id, *alternatives)
            if flaw is not None:
                self.reject("step", text, flaw)
                return
            self.steps[id] = Step(
                id=id, text=text, spans=spans, said=speech, alternatives=alternatives
            )
        elif set(spans) & set(step.spans):
            span = spans[0]
            self.reject("span", text, REPEATED_SPAN, f"[{span.start}, {span.end}]")
        else:
            self.steps[id] = step.model_copy(update={"spans": step.spans + spans})

    def add_sentence(
        self, text: str, start: float, end: float, *, visibility: float | None = None
    ) -> Span | None:
        """Add one spoken sentence and return its span, None where it is rejected.

        Args:
            text: of the sentence.
            start: seconds.
            end: seconds.
            visibility: 1 or 0 where people judged whether the video shows it, else None.
        """
        text = text.strip()
        flaw = text_flaw(text)
        if flaw is not None:
            self.reject("sentence", text, flaw)
            return None
        span = self.validate_span(start, end, text, "sentence")
        if span is not None:
            self.sentences.append(Sentence(text=text, span=span, shown=visibility))
        return span

    def entry(
        self,
        *,
        subset: str | None = None,
        task: str | None = None,
        recipe: Iterable[str] = (),
        from_model: bool = False,
        language: str | None = None,
    ) -> DatasetEntry:
        """Return the finished entry.

        Args:
            subset: name of the split.
            task: what the dataset says the video shows.
            recipe: lines of the written recipe or article.
            from_model: the steps were written by a model, so they are no human reference.
            language: of the transcript.
        """
        # Without an id that can be stored there is no record.
        flaw = text_flaw(self.id, self.video)
        if flaw is not None:
            self.reject("video", "", NO_ID if flaw == NO_TEXT else flaw)
            return DatasetEntry(self.id, None, subset, tuple(self.rejected))
        steps = tuple(self.steps.values())
        # The record lists what was rejected, too.
        dropped = []
        for row in self.rejected:
            reason = f"{row.what} {row.reason}"
            if row.value:
                reason = f"{reason}: {row.value}"
            dropped.append(Rejected("annotation", reason, text=row.text))
        transcript = None
        if self.sentences:
            sentences = sorted(self.sentences, key=lambda sentence: sentence.span.start)
            transcript = Transcript(language=text_or_none(language), sentences=tuple(sentences))
        record = Record(
            id=self.id,
            video=Video(id=self.video, duration=self.duration, task=text_or_none(task)),
            transcript=transcript,
            recipe=tuple(filter(is_storable, recipe)),
            steps=steps if from_model else (),
            reference=() if from_model else steps,
            dropped=tuple(dropped),
        )
        return DatasetEntry(self.id, record, subset, tuple(self.rejected))


def text_or_none(text: str | None) -> str | None:
    """Return a text, None where it is empty or cannot be stored."""
    return None if not text or not is_storable(text) else text


def rejected_entry(
    id: str, reason: str, *, subset: str | None = None, value: str = ""
) -> DatasetEntry:
    """Return the entry of an item without a record. value: what was found instead."""
    rejection = Rejected("video", reason, id=id, value=value)
    return DatasetEntry(id, None, subset, (rejection,))


# ---------------------------------------------------------------- ids


ID_PREFIX = "v_"
ID_CHARS = 11  # of a YouTube id, which may itself begin with "v_"
PREFIXED_ID_CHARS = ID_CHARS + len(ID_PREFIX)


def plain_id(video: str) -> str:
    """Return a YouTube id without the prefix "v_", which some files put before its eleven letters."""
    return video.removeprefix(ID_PREFIX) if len(video) == PREFIXED_ID_CHARS else video


def shared_prefix(ids: Collection[str]) -> str:
    """Return the prefix "v_" where all ids have it, else "".

    At least one id must be as long as a YouTube id with the prefix, and none as long as one without.
    """
    lengths = set(map(len, ids))
    if PREFIXED_ID_CHARS not in lengths or ID_CHARS in lengths:
        return ""
    return ID_PREFIX if all(id.startswith(ID_PREFIX) for id in ids) else ""
