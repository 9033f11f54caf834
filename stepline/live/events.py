"""What a live run tells: events, kept in a log that is its state, and a WebVTT file that grows.

A run that was killed goes on from its log: every event is on disk before anybody hears of it.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import SerializerFunctionWrapHandler, model_serializer

from stepline.append_log import AppendLog
from stepline.atomic_files import write_atomic
from stepline.outputs.subtitles import webvtt
from stepline.records import (
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
    "waiting",
    "next",
    "gap",
    "drift",
    "finished",
]


WORDED = 50  # sentences at the end whose words are kept in memory


class LiveEvent(FrozenModel):
    """One line of a live run. at: the source's second when it was told; the other fields as
    docs/live.md lists them.

    Only what is known is stored.
    """

    event: Kind
    number: int  # from 0 on, over all runs that share the log
    at: Seconds
    settled: Seconds = 0.0  # second before which all sound was read for good
    wall: float | None = None  # s since 1970, of "started" alone
    source: str | None = None
    sentence: Sentence | None = None
    step: str | None = None
    text: str | None = None
    kind: StepKind | None = None
    said: Span | None = None
    sources: tuple[int, ...] | None = None
    second: Seconds | None = None
    spans: tuple[Span, ...] | None = None
    status: Status | None = None
    score: Probability | None = None
    seconds: float | None = None
    reason: str | None = None
    record: str | None = None
    follows: str | None = None  # of "line", the line that is likeliest next
    skipped: tuple[str, ...] | None = None

    @model_serializer(mode="wrap")
    def _stored(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in dump(self).items() if value is not None}


class LiveStep(FrozenModel):
    """A step of a live run: as it was last told, and what was told of it. withdrawn: it was taken
    back."""

    step: Step
    revised: bool = False
    shown: bool = False
    ended: bool = False
    withdrawn: bool = False


class LiveLog:
    """The events of a run and what they add up to: sentences and steps, in the order in which they
    were told.

    Of sentences before the last WORDED the words are on disk alone, as all events are but the last.
    Raises StoreError where the file holds anything else, or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sentences: list[Sentence] = []
        self.steps: dict[str, LiveStep] = {}
        self.last: LiveEvent | None = None
        self.first: LiveEvent | None = None
        self.line: LiveEvent | None = None  # of a recipe, the last one told
        self.count, self._settled = 0, 0.0
        for event in AppendLog(
            path, LiveEvent, lambda event: event.number, "an event of a live run"
        ):
            self._fold(event)
        self._log = AppendLog(path, LiveEvent, lambda _: "the last", "an event of a live run")

    def add(self, event: Kind, at: float, **fields: Any) -> LiveEvent:
        """Keep an event and return it. fields: as of LiveEvent."""
        new = LiveEvent(event=event, number=self.count, at=round(max(at, 0.0), 3), **fields)
        self._log.add(new)
        self._fold(new)
        return new

    def _fold(self, event: LiveEvent) -> None:
        self.first, self.last, self.count = self.first or event, event, event.number + 1
        self._settled = max(self._settled, event.settled)
        if event.sentence is not None:
            self.sentences.append(event.sentence)
            if len(self.sentences) > WORDED:
                self.sentences[-WORDED - 1] = self.sentences[-WORDED - 1].model_copy(
                    update={"words": ()}
                )
        if event.event == "line":
            self.line = event
        if event.step is None:
            return
        known = self.steps.get(event.step)
        if event.event == "step_said" and event.text is not None:
            told = Step(
                id=event.step,
                text=event.text,
                kind=event.kind or "do",
                said=event.said,
                sources=event.sources or (),
            )
            self.steps[event.step] = (
                LiveStep(step=told) if known is None else known.model_copy(update={"step": told})
            )
        elif known is not None and event.event == "revised":
            update: dict[str, Any] = {
                "said": event.said or known.step.said,
                "sources": event.sources or (),
            }
            update |= (
                {"text": event.text, "kind": event.kind or "do"} if event.text is not None else {}
            )
            changed = {
                "revised": True,
                "withdrawn": event.text is None,
                "step": known.step.model_copy(update=update),
            }
            self.steps[event.step] = known.model_copy(update=changed)
        elif known is not None and event.event == "step_shown":
            self.steps[event.step] = known.model_copy(update={"shown": True})
        elif known is not None and event.event == "step_ended":
            update = {
                "spans": event.spans or (),
                "at": event.second,
                "status": event.status,
                "score": event.score,
            }
            self.steps[event.step] = known.model_copy(
                update={"ended": True, "step": known.step.model_copy(update=update)}
            )

    @property
    def position(self) -> float:
        """Second from which a run goes on: all that was said before it is told, or is no speech."""
        heard = self.sentences[-1].span.end if self.sentences else 0.0
        return max(heard, self._settled)

    @property
    def transcript(self) -> Transcript:
        """All sentences so far."""
        ordered = sorted(self.sentences, key=lambda sentence: sentence.span.start)
        return Transcript(sentences=tuple(ordered))


class GrowingVtt:
    """A WebVTT file of the steps that have ended: one write appends each cue, so that every reader
    finds it whole.

    Where a cue belongs before another that is there, the file is replaced as a whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: str | None = None

    def update(self, id: str, steps: Iterable[LiveStep], sentences: Sequence[Sentence]) -> None:
        """Have the file hold the steps that have ended, by their order in time."""
        ended = [each.step for each in steps if each.ended and not each.withdrawn]
        transcript = Transcript(
            sentences=tuple(sorted(sentences, key=lambda sentence: sentence.span.start))
        )
        text = webvtt(Record(id=id, video=Video(id=id), transcript=transcript, steps=tuple(ended)))
        if self._written is None or not text.startswith(self._written):
            write_atomic(self._path, text)
        elif len(text) > len(self._written):
            with self._path.open("ab", buffering=0) as file:
                file.write(text[len(self._written) :].encode())
        self._written = text
