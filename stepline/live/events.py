"""The files of a live run: the log of its events, a WebVTT file, and its feature rows.

The log is the state of the run. Every event is on disk before it is emitted, so that a run which was
killed can resume.
"""

import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from stepline.errors import StoreError
from stepline.files.append_log import AppendLog
from stepline.files.atomic_files import check_plain_file, write_atomic
from stepline.limits import parse_json
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
    with_current_status,
)

if TYPE_CHECKING:
    from stepline.grounding.speech import TaskGraph

Kind = Literal[
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
EmitEvent = Callable[..., None]  # `LiveSession.emit_event`

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

    event: Kind
    """kind of the event"""
    number: int
    """number of the event, from 0 on, over all runs of one log"""
    at: Seconds
    """second of the source at which the event was emitted"""
    settled: Seconds = 0.0
    """second of the source before which no sentence changes any more"""
    wall: float | None = None
    """time of "started" in seconds since 1970, None for other events"""
    source: str | None = None
    """file, address (without password and query) or devices of the source"""
    digest: str | None = None
    """hash of an address with password and query, None if it has neither"""
    sentence: Sentence | None = Field(None, description='the sentence of "heard"')
    step: str | None = None
    """id of the step that the event is about"""
    text: str | None = None
    """text of the step; without a text, "revised" takes the step back"""
    kind: StepKind | None = None
    """kind of the step"""
    said: Span | None = None
    """seconds in which the step is spoken"""
    sources: tuple[int, ...] | None = None
    """numbers of the sentences that the step comes from"""
    second: Seconds | None = None
    """second at which the step began to be shown, or is most likely shown"""
    spans: tuple[Span, ...] | None = None
    """seconds in which the step was shown, the best span first"""
    status: Status | None = None
    """status of a step that is shown or has ended"""
    basis: Basis | None = None
    """which evidence made the step `seen`"""
    doubt: str | None = None
    """why a placed step may not be shown"""
    score: Probability | None = None
    """P(the step is shown)"""
    seconds: float | None = None
    """length of a gap, or of the whole source, in seconds"""
    reason: str | None = None
    """why the event was emitted"""
    record: str | None = None
    """path of the record that --at-end wrote"""
    follows: str | None = None
    """the most likely next line, in "line" events of earlier releases"""
    skipped: tuple[str, ...] | None = None
    """ids of lines that were passed over, in "line" events of earlier releases"""

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> "LiveEvent":
        """Return the event in a line of a log. Statuses of release 0.1.0 become those of today."""
        with contextlib.suppress(ValueError, AttributeError):  # pydantic names what is wrong
            text = json_data if isinstance(json_data, str) else bytes(json_data)
            json_data = json.dumps(with_current_status(parse_json(text)))
        return super().model_validate_json(json_data, **options)

    @model_serializer(mode="wrap")
    def _dump_known_fields(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class LiveStep(FrozenModel):
    """The state of a step after the events of a live run."""

    step: Step
    """the step with the values of its last event"""
    revised: bool = False
    """whether its text was changed or taken back"""
    shown: bool = False
    """whether it was reported as shown"""
    ended: bool = False
    """whether it was reported as ended"""
    withdrawn: bool = False
    """whether it was taken back"""

    def with_changes(self, step_fields: dict[str, Any], **flags: bool) -> "LiveStep":
        """Return a copy with other values.

        Args:
            step_fields: name -> new value of fields of `step`.
            flags: new values of the other fields.
        """
        return self.model_copy(update={"step": self.step.model_copy(update=step_fields), **flags})


class LiveLog:
    """The log of a run's events on disk, with the sentences and steps that result from them.

    Memory holds all sentences, but only the last SENTENCES_WITH_WORDS of them with their words.
    Raises StoreError if the file is not such a log, or cannot be written.

    Attributes:
        path: path of the log file.
        sentences: all sentences, in the order of the events.
        steps: all steps by id, in the order of the events.
        first: the first event, None for an empty log.
        last: the last event, None for an empty log.
        line: the last event that named the current line of a recipe, None before the first.
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
        """Second of the source at which a run resumes. All speech before it is in the log."""
        end = self.sentences[-1].span.end if self.sentences else 0.0
        return max(end, self._settled)

    @property
    def transcript(self) -> Transcript:
        """All sentences so far, sorted by their start."""
        ordered = sorted(self.sentences, key=lambda sentence: sentence.span.start)
        return Transcript(sentences=tuple(ordered))


def _step_after_event(step: LiveStep | None, event: LiveEvent) -> LiveStep | None:
    """Return the state of a step after an event, None if nothing changes.

    step: state of the step before the event, None for a new step.
    """
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
            "doubt": event.doubt,
            "score": event.score,
        }
        return step.with_changes(update, ended=True)
    return None


FLOAT_BYTES = 4  # bytes per number in the file of features


@dataclass
class RunFiles:
    """The files of a live run.

    Attributes:
        id: id of the run's record.
        log: log of the events.
        vtt: path of the WebVTT file of the steps that have ended. None: it is not written.
        rows: path of the file of T feature rows of width D, None without pictures.
        row_count: number of rows in this file.
    """

    id: str
    log: LiveLog
    vtt: Path | None = None
    rows: Path | None = None
    row_count: int = 0

    def write_vtt(self) -> None:
        """Write the steps that have ended to the WebVTT file, in the order of time."""
        if self.vtt is None:
            return
        ended = tuple(live_step.step for live_step in self.log.present_steps if live_step.ended)
        transcript = self.log.transcript
        record = Record(id=self.id, video=Video(id=self.id), transcript=transcript, steps=ended)
        write_atomic(self.vtt, webvtt(record))

    def read_rows(self, first: int, last: int, width: int) -> Matrix | None:
        """Return feature rows that an earlier run wrote, (last - first, width) float32.

        There are fewer rows at the end of the file. None without a file.

        Args:
            first: number of the first row.
            last: number of the last row + 1.
            width: numbers per row.
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
        """Append the feature rows that are not in the file yet.

        Args:
            first: number that the first row of `values` has in the file, from 0.
            values: T feature rows of width D.
        """
        if self.rows is None or first + len(values) <= self.row_count:
            return
        new_rows = np.ascontiguousarray(values[self.row_count - first :], np.float32)
        try:
            check_plain_file(self.rows)
            with self.rows.open("ab") as file:
                file.write(new_rows.tobytes())
        except OSError as error:
            raise StoreError(
                f"{self.rows}: cannot be written ({error.strerror}); free some space"
            ) from error
        self.row_count = first + len(values)
