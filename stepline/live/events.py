"""The files of a live run: the log of its events, a WebVTT file, and its feature rows.

The log is the state of the run. Every event is on disk before it is emitted, so that a run which was
killed can resume.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from stepline.errors import StoreError
from stepline.files.append_log import AppendLog
from stepline.files.atomic_files import check_own_file, write_atomic
from stepline.outputs.subtitles import webvtt
from stepline.records import (
    Basis,
    FrozenModel,
    Matrix,
    Probability,
    Record,
    Seconds,
    Sentence,
    Span,
    Status,
    Step,
    StepKind,
    Transcript,
    Video,
)

if TYPE_CHECKING:
    from stepline.grounding.speech import TaskGraph

Kind: TypeAlias = Literal[
    "started",
    "heard",
    "step_said",
    "step_shown",
    "step_ended",
    "revised",
    "line",
    "waiting",  # only in logs of earlier releases, as "next" and "drift"
    "next",
    "drift",
    "gap",
    "finished",
]
EmitEvent: TypeAlias = Callable[..., None]  # `LiveSession.emit_event`

SENTENCES_WITH_WORDS = 50  # last sentences whose words stay in memory


@dataclass(frozen=True)
class LiveOptions:
    """Options of a live run.

    Attributes:
        lag: seconds of later evidence for which the report of a shown step waits.
        texts: lines of a recipe to follow.
        graph: the comparison that the lines come from, None for other lines.
    """

    lag: float = 2.0
    texts: tuple[str, ...] = ()
    graph: "TaskGraph | None" = None


class LiveEvent(FrozenModel):
    """An event of a live run: one line of its log. Fields that are None are not stored."""

    event: Kind = Field(description="what became known")
    number: int = Field(description="from 0 on, over all runs that share the log")
    at: Seconds = Field(description="the source's second when it was emitted")
    settled: Seconds = Field(0.0, description="second before which all sound was read for good")
    wall: float | None = Field(None, description='s since 1970, of "started" alone')
    source: str | None = Field(None, description="of an address, without password and query")
    digest: str | None = Field(
        None, description="of an address with them, distinguishes it from others"
    )
    sentence: Sentence | None = Field(None, description='of "heard"')
    step: str | None = Field(None, description="id of the step that it is about")
    text: str | None = Field(None, description='of the step; "revised" without one takes it back')
    kind: StepKind | None = Field(None, description="of the step")
    said: Span | None = Field(None, description="where the step is spoken")
    sources: tuple[int, ...] | None = Field(
        None, description="numbers of the sentences that the step rests on"
    )
    second: Seconds | None = Field(
        None, description="at which the step began to be shown, or is most likely shown"
    )
    spans: tuple[Span, ...] | None = Field(
        None, description="in which the step was shown, the best first"
    )
    status: Status | None = Field(None, description="of a step that has ended")
    basis: Basis | None = Field(None, description="what that status rests on")
    score: Probability | None = Field(None, description="P(the step is shown)")
    seconds: float | None = Field(None, description="how long a gap is, or how long the source was")
    reason: str | None = Field(None, description="why it was emitted")
    record: str | None = Field(None, description="path of the record that --at-end wrote")
    follows: str | None = Field(
        None, description='of "line" in earlier releases: the most likely next line'
    )
    skipped: tuple[str, ...] | None = Field(
        None, description='of "line" in earlier releases: the lines that were passed over'
    )

    @model_serializer(mode="wrap")
    def _dump_known_fields(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class LiveStep(FrozenModel):
    """The state of a step after the events of a live run."""

    step: Step
    revised: bool = False
    shown: bool = False
    ended: bool = False
    withdrawn: bool = Field(False, description="it was taken back")

    def with_changes(self, step_fields: dict[str, Any], **flags: bool) -> "LiveStep":
        """Return a copy with other values of step fields and flags."""
        return self.model_copy(update={"step": self.step.model_copy(update=step_fields), **flags})


class LiveLog:
    """The log of a run's events on disk, with the sentences and steps that result from them.

    Memory holds the words of the last SENTENCES_WITH_WORDS sentences and the last event. Everything
    else is only on disk. Raises StoreError where the file holds anything else, or cannot be written.

    Attributes:
        path: path of the log file.
        sentences: all sentences, in the order of the events.
        steps: all steps by id, in the order of the events.
        first: the first event, None for an empty log.
        last: the last event.
        line: the last event about a recipe's lines.
        count: number of events.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sentences: list[Sentence] = []
        self.steps: dict[str, LiveStep] = {}
        self.last: LiveEvent | None = None
        self.first: LiveEvent | None = None
        self.line: LiveEvent | None = None
        self.count = 0
        self._settled = 0.0
        kind = "an event of a live run"
        for event in AppendLog(path, LiveEvent, lambda event: event.number, kind):
            self._apply_event(event)
        # One key for all events, so that memory holds only the last one.
        self._log = AppendLog(path, LiveEvent, lambda _: "the last", kind)

    def add(self, event: Kind, at: float, **fields: Any) -> LiveEvent:
        """Append an event to the log and return it.

        Args:
            event: kind of the event.
            at: second of the source at which the event is emitted.
            fields: other fields of `LiveEvent`.
        """
        new = LiveEvent(event=event, number=self.count, at=round(max(at, 0.0), 3), **fields)
        self._log.add(new)
        self._apply_event(new)
        return new

    def _apply_event(self, event: LiveEvent) -> None:
        """Update the sentences and steps with an event."""
        self.first = self.first or event
        self.last = event
        self.count = event.number + 1
        self._settled = max(self._settled, event.settled)
        # Memory stays bounded, since older words are on disk.
        if event.sentence is not None:
            self.sentences.append(event.sentence)
            if len(self.sentences) > SENTENCES_WITH_WORDS:
                index = -SENTENCES_WITH_WORDS - 1
                self.sentences[index] = self.sentences[index].model_copy(update={"words": ()})
        if event.event == "line":
            self.line = event
        if event.step is not None:
            step = _step_after_event(self.steps.get(event.step), event)
            if step is not None:
                self.steps[event.step] = step

    @property
    def present_steps(self) -> list[LiveStep]:
        """The steps that were not withdrawn."""
        return [step for step in self.steps.values() if not step.withdrawn]

    @property
    def resume_second(self) -> float:
        """The second at which a run resumes. All speech before it is in the log."""
        end = self.sentences[-1].span.end if self.sentences else 0.0
        return max(end, self._settled)

    @property
    def transcript(self) -> Transcript:
        """All sentences so far."""
        return Transcript(sentences=_sorted_by_start(self.sentences))


def _step_after_event(step: LiveStep | None, event: LiveEvent) -> LiveStep | None:
    """Return a step after an event, or None if nothing changes. step: before it, None if new."""
    wording: dict[str, Any] = {"text": event.text, "kind": event.kind or "do"}

    # a new step, or one that is said again
    if event.event == "step_said" and event.text is not None:
        said = Step(id=event.step or "", **wording, said=event.said, sources=event.sources or ())
        if step is None:
            return LiveStep(step=said)
        return step.model_copy(update={"step": said})
    if step is None:
        return None
    if event.event == "revised":
        # Without a text the step is taken back.
        update: dict[str, Any] = {
            "said": event.said or step.step.said,
            "sources": event.sources or (),
        }
        if event.text is not None:
            update |= wording
        return step.with_changes(update, revised=True, withdrawn=event.text is None)
    if event.event == "step_shown":
        return step.with_changes({}, shown=True)
    if event.event == "step_ended":
        # Where it was shown, for good.
        update = {
            "spans": event.spans or (),
            "at": event.second,
            "status": event.status,
            "basis": event.basis,
            "score": event.score,
        }
        return step.with_changes(update, ended=True)
    return None


def _sorted_by_start(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    return tuple(sorted(sentences, key=lambda sentence: sentence.span.start))


def write_vtt(
    path: Path, id: str, steps: Iterable[LiveStep], sentences: Iterable[Sentence]
) -> None:
    """Write the steps that have ended to a WebVTT file, in the order of time.

    Args:
        path: path of the WebVTT file.
        id: id of the record.
        steps: all steps of the run.
        sentences: all sentences of the run.
    """
    ended = tuple(step.step for step in steps if step.ended and not step.withdrawn)
    transcript = Transcript(sentences=_sorted_by_start(sentences))
    record = Record(id=id, video=Video(id=id), transcript=transcript, steps=ended)
    write_atomic(path, webvtt(record))


FLOAT_BYTES = 4  # bytes per number in the file of features


@dataclass
class RunFiles:
    """The files of a live run.

    Attributes:
        id: of the record.
        log: the events.
        vtt: path of the WebVTT file of the steps that have ended, None without one.
        rows: path of the file of feature rows (T, D), None without pictures.
        row_count: number of rows in this file.
    """

    id: str
    log: LiveLog
    vtt: Path | None = None
    rows: Path | None = None
    row_count: int = 0

    def write_vtt(self) -> None:
        """Write the steps that have ended to the WebVTT file."""
        if self.vtt is not None:
            write_vtt(self.vtt, self.id, self.log.steps.values(), self.log.sentences)

    def read_rows(self, first: int, last: int, width: int) -> Matrix | None:
        """Return the feature rows `first` to `last` that an earlier run wrote, (T, width).

        The result is None without a file.
        """
        if self.rows is None or not self.rows.is_file():
            return None
        row_bytes = FLOAT_BYTES * width
        self.row_count = self.rows.stat().st_size // row_bytes
        first = min(self.row_count, first)
        last = min(self.row_count, last)
        values = np.fromfile(
            self.rows, np.float32, (last - first) * width, offset=first * row_bytes
        )
        return values.reshape(-1, width)

    def append_rows(self, first: int, values: Matrix) -> None:
        """Append the rows that are not in the file yet.

        Args:
            first: number of the first row in `values`.
            values: T feature rows of width D.
        """
        if self.rows is None or first + len(values) <= self.row_count:
            return
        new_rows = np.ascontiguousarray(values[self.row_count - first :], np.float32)
        try:
            check_own_file(self.rows)
            with self.rows.open("ab") as file:
                file.write(new_rows.tobytes())
        except OSError as error:
            raise StoreError(
                f"{self.rows}: cannot be written ({error.strerror}); free some space"
            ) from error
        self.row_count = first + len(values)
