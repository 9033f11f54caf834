"""Builds records from annotation rows. Spans are checked, never corrected, and faults are listed.

Also ids of YouTube videos, with and without the prefix "v_" of ActivityNet's and PDVC's files.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from stepline.limits import MAX_SECOND, is_storable
from stepline.records import Record, Rejected, RejectedKind, Sentence, Span, Step, Transcript, Video


@dataclass(frozen=True)
class DatasetEntry:
    """One item of a dataset, as a reader yields it.

    Attributes:
        id: id of the item.
        record: the annotation as a record. None: the whole item was rejected.
        subset: name of the split as the dataset writes it. None: the dataset states none.
        rejected: rows that were left out of the record, and why.
    """

    id: str
    record: Record | None
    subset: str | None
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True)
class DatasetRecords:
    """All records of a dataset, in memory.

    Attributes:
        name: name of the dataset.
        records: records in the order of the file.
        rejected: rows and items that were left out, and why.
        subsets: record id -> name of the split, for the records that have one.
    """

    name: str
    records: tuple[Record, ...]
    rejected: tuple[Rejected, ...]
    subsets: Mapping[str, str]

    def reasons(self) -> dict[str, int]:
        """Return "kind: reason" -> number of rejected rows, the most frequent reason first."""
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
    """Return why a span cannot be a span of a video, None if it can.

    Args:
        start: start in seconds.
        end: end in seconds.
        duration: duration of the video in seconds. None: unknown.
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
    """Return why the first faulty text cannot be stored, None if all texts can be stored."""
    for text in texts:
        if not is_storable(text):
            return BAD_TEXT
        if not text:
            return NO_TEXT
    return None


class RecordBuilder:
    """Builds the record of one item while a reader goes through its rows.

    Rows that do not fit are rejected. `entry` returns the result.
    """

    def __init__(self, id: str, *, video: str | None = None, duration: float | None = None) -> None:
        """Begin a record.

        Args:
            id: id of the record.
            video: id of its video. None: the id of the record.
            duration: duration of the video in seconds. None: unknown. An invalid duration is
                rejected.
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
        """Add a row to the rejected rows. A text that cannot be stored is left out of the report.

        Args:
            what: kind of the rejected thing, such as "span".
            text: text of the step or sentence.
            reason: why it is rejected, one of the constants of this module.
            value: the offending value as text.
        """
        text = text if is_storable(text) else ""
        value = value if is_storable(value) else ""
        self.rejected.append(Rejected(what, reason, text=text, id=self.id, value=value))

    def validate_span(
        self, start: float, end: float, text: str, what: RejectedKind = "span"
    ) -> Span | None:
        """Return a span in seconds. A span that does not fit into the video is rejected, giving
        None.

        Args:
            start: start in seconds.
            end: end in seconds.
            text: text of the step or sentence, for the rejected row.
            what: kind of the rejected row.
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
        """Add one span of a step. If the step exists already, the span is added to its spans.

        Args:
            id: id of the step.
            text: text of the step.
            start: start in seconds.
            end: end in seconds.
            keeps_step: if the span does not fit, True keeps the step without a span, because
                annotators looked for the step. False leaves the step out.
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
        """Add a step that annotators looked for, without a span so far.

        Args:
            id: id of the step.
            text: text of the step.
            speech: span in which the step is spoken. None: unknown.
        """
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
        """Add one spoken sentence. Return its span, or None if it is rejected.

        Args:
            text: the sentence.
            start: start in seconds.
            end: end in seconds.
            visibility: 1 if annotators judged that the video shows the sentence, 0 if they judged
                that it does not. None: not judged.
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

    def build_entry(
        self,
        *,
        subset: str | None = None,
        task: str | None = None,
        recipe: Iterable[str] = (),
        from_model: bool = False,
        language: str | None = None,
    ) -> DatasetEntry:
        """Return the finished entry of the dataset.

        Args:
            subset: name of the split. None: the dataset states none.
            task: what the video shows according to the dataset, such as the name of a dish.
            recipe: lines of the written recipe or article.
            from_model: True if a model wrote the steps. They are then no human reference.
            language: language of the transcript.
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
    """Return a text, or None if it is empty or cannot be stored."""
    return None if not text or not is_storable(text) else text


def rejected_entry(
    id: str, reason: str, *, subset: str | None = None, value: str = ""
) -> DatasetEntry:
    """Return the entry of an item that is rejected as a whole.

    Args:
        id: id of the item.
        reason: why it is rejected.
        subset: name of the split. None: the dataset states none.
        value: the offending value as text.
    """
    return DatasetEntry(id, None, subset, (Rejected("video", reason, id=id, value=value),))


# ---------------------------------------------------------------- ids


ID_PREFIX = "v_"
# what yt-dlp names a file by default: "Title [id]"
ID_IN_BRACKETS = re.compile(r"\[([\w-]{11})\][^\[\]]*$", re.ASCII)
ID_CHARS = 11  # of a YouTube id, which may itself begin with "v_"
PREFIXED_ID_CHARS = ID_CHARS + len(ID_PREFIX)


def strip_id_prefix(video: str) -> str:
    """Return a YouTube id without the prefix "v_" and without the title of a downloaded file.

    Some files put that prefix before the eleven characters of an id. yt-dlp puts the title before
    it: "Fold a crane [3oK7LxzSPto]".
    """
    in_brackets = ID_IN_BRACKETS.search(video)
    if in_brackets is not None:
        return in_brackets[1]
    return video.removeprefix(ID_PREFIX) if len(video) == PREFIXED_ID_CHARS else video


def shared_prefix(ids: Collection[str]) -> str:
    """Return the prefix "v_" if all ids have it, else "".

    At least one id must have the length of a YouTube id with the prefix. No id may have the length
    of a YouTube id without it.
    """
    lengths = set(map(len, ids))
    if PREFIXED_ID_CHARS not in lengths or ID_CHARS in lengths:
        return ""
    return ID_PREFIX if all(id.startswith(ID_PREFIX) for id in ids) else ""
