"""What a live run reports: events, kept in a log that is its state, and a WebVTT file that grows.

A run that was killed goes on from its log: every event is on disk before it is emitted.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from stepline.files.append_log import AppendLog
from stepline.files.atomic_files import write_atomic
from stepline.outputs.subtitles import webvtt
from stepline.records import (
    Basis,
    FrozenModel,
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

Kind: TypeAlias = Literal[
    "started",
    "heard",
    "step_said",
    "step_shown",
    "step_ended",
    "revised",
    "line",
    "waiting",  # of earlier releases, as "next"
    "next",
    "gap",
    "drift",
    "finished",
]
EmitEvent: TypeAlias = Callable[..., None]  # `LiveSession.emit_event`

SENTENCES_WITH_WORDS = 50  # at the end, whose words are kept in memory


class LiveEvent(FrozenModel):
    """One line of a live run. Only what is known is stored."""

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
    seconds: float | None = Field(
        None, description="how long a gap or drift is, or how long the source was"
    )
    reason: str | None = Field(None, description="why it was emitted")
    record: str | None = Field(None, description="path of the record that --at-end wrote")
    follows: str | None = Field(
        None, description='of "line" in earlier releases: the most likely next line'
    )
    skipped: tuple[str, ...] | None = Field(
        None, description='of "line" in earlier releases: the lines that were passed over'
    )

    @model_serializer(mode="wrap")
    def _stored(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class LiveStep(FrozenModel):
    """A step of a live run as the log has it, and what became of it."""

    step: Step
    revised: bool = False
    shown: bool = False
    ended: bool = False
    withdrawn: bool = Field(False, description="it was taken back")

    def changed(self, update: dict[str, Any], **flags: bool) -> "LiveStep":
        """Return it with other fields of the step, and other flags."""
        return self.model_copy(update={"step": self.step.model_copy(update=update), **flags})


class LiveLog:
    """The events of a run and what they add up to: sentences and steps, in the order of the events.

    Of sentences before the last SENTENCES_WITH_WORDS the words are on disk alone, as all events are
    but the last. Raises StoreError where the file holds anything else, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sentences: list[Sentence] = []
        self.steps: dict[str, LiveStep] = {}
        self.last: LiveEvent | None = None
        self.first: LiveEvent | None = None
        self.line: LiveEvent | None = None  # the last one about a recipe's lines
        self.count = 0
        self._settled = 0.0
        what = "an event of a live run"
        for event in AppendLog(path, LiveEvent, lambda event: event.number, what):
            self._fold(event)
        # One key for all events: of this log, memory holds the last one alone.
        self._log = AppendLog(path, LiveEvent, lambda _: "the last", what)

    def add(self, event: Kind, at: float, **fields: Any) -> LiveEvent:
        """Keep an event and return it. fields: as of LiveEvent."""
        new = LiveEvent(event=event, number=self.count, at=round(max(at, 0.0), 3), **fields)
        self._log.add(new)
        self._fold(new)
        return new

    def _fold(self, event: LiveEvent) -> None:
        """Take an event into what they add up to."""
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
            step = _changed_step(self.steps.get(event.step), event)
            if step is not None:
                self.steps[event.step] = step

    @property
    def present_steps(self) -> list[LiveStep]:
        """The steps that were not taken back."""
        return [step for step in self.steps.values() if not step.withdrawn]

    @property
    def position(self) -> float:
        """Second from which a run goes on: all speech before it is in the log, or is not speech."""
        end = self.sentences[-1].span.end if self.sentences else 0.0
        return max(end, self._settled)

    @property
    def transcript(self) -> Transcript:
        """All sentences so far."""
        return Transcript(sentences=_by_start(self.sentences))


def _changed_step(step: LiveStep | None, event: LiveEvent) -> LiveStep | None:
    """Return what an event makes of its step, None: nothing. step: as it was, None: not known."""
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
        return step.changed(update, revised=True, withdrawn=event.text is None)
    if event.event == "step_shown":
        return step.changed({}, shown=True)
    if event.event == "step_ended":
        # Where it was shown, for good.
        update = {
            "spans": event.spans or (),
            "at": event.second,
            "status": event.status,
            "basis": event.basis,
            "score": event.score,
        }
        return step.changed(update, ended=True)
    return None


def _by_start(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    return tuple(sorted(sentences, key=lambda sentence: sentence.span.start))


class GrowingVtt:
    """A WebVTT file of the steps that have ended: one write appends each cue, so that every reader
    finds it whole.

    Where a cue belongs before another that is there, the file is replaced as a whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: str | None = None

    def update(self, id: str, steps: Iterable[LiveStep], sentences: Sequence[Sentence]) -> None:
        """Write the steps that have ended to the file, by their order in time."""
        ended = tuple(step.step for step in steps if step.ended and not step.withdrawn)
        transcript = Transcript(sentences=_by_start(sentences))
        text = webvtt(Record(id=id, video=Video(id=id), transcript=transcript, steps=ended))
        # Readers see the file grow, unless a cue has to go between others.
        if self._written is None or not text.startswith(self._written):
            write_atomic(self._path, text)
        elif len(text) > len(self._written):
            with self._path.open("ab", buffering=0) as file:
                file.write(text[len(self._written) :].encode())
        self._written = text
