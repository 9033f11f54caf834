"""Corrections of a record by people: what they changed, kept as edits beside what the machine said.

Nothing is ever overwritten. A video has a list of corrections; its length is the revision.
`corrected` applies those that are not undone to the machine's record, `check_correction` says
whether one more may be taken. An undo is a correction too, and a redo is the undo of it. Two edits
are independent where they touch different fields or steps: then either order gives the same record.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue, model_validator

from stepline.errors import StoreError
from stepline.outputs.text import one_line
from stepline.records import (
    FrozenModel,
    Record,
    Seconds,
    Span,
    Status,
    Step,
    StepKind,
    covering_span,
)

StepId: TypeAlias = Annotated[str, Field(min_length=1, max_length=200)]
StepText: TypeAlias = Annotated[str, Field(max_length=2000, pattern=r"\S")]
PersonName: TypeAlias = Annotated[str, Field(max_length=80, pattern=r"\S")]
Place: TypeAlias = tuple[str, str]  # (step id, field) that a correction touches

FIELDS = ("text", "kind", "span", "at", "status")
ORDER: Place = ("", "order")
MOST_EDITS = 10_000  # of one correction


class ChangeEdit(FrozenModel):
    """New values for fields of a step; None leaves a field as it is.

    span: takes the place of the best one. status: the person's verdict, so its score becomes 1 or
    0.
    """

    do: Literal["change"]
    step: StepId
    text: StepText | None = None
    kind: StepKind | None = None
    span: Span | None = None
    at: Seconds | None = None
    status: Status | None = None


class AddEdit(FrozenModel):
    """A step that the machine missed, shown in `span`; it follows the step `after`, None for the
    first place."""

    do: Literal["add"]
    id: StepId
    text: StepText
    span: Span | None = None
    after: StepId | None = None
    kind: StepKind = "do"


class DeleteEdit(FrozenModel):
    """A step that is none."""

    do: Literal["delete"]
    step: StepId


class SplitEdit(FrozenModel):
    """A step that is two: up to second `at` and, as the new step `id`, from there."""

    do: Literal["split"]
    step: StepId
    at: Seconds
    id: StepId
    texts: tuple[StepText, StepText]


class MergeEdit(FrozenModel):
    """Steps that are one, which keeps the first one's id; text None joins theirs."""

    do: Literal["merge"]
    steps: Annotated[tuple[StepId, ...], Field(min_length=2)]
    text: StepText | None = None


class OrderEdit(FrozenModel):
    """The steps in another order."""

    do: Literal["order"]
    steps: Annotated[tuple[StepId, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _once_each(self) -> "OrderEdit":
        if len(set(self.steps)) < len(self.steps):
            raise ValueError("an order names each step once")
        return self


Edit: TypeAlias = Annotated[
    ChangeEdit | AddEdit | DeleteEdit | SplitEdit | MergeEdit | OrderEdit, Field(discriminator="do")
]


class Correction(FrozenModel):
    """What a person changed at once: edits, or the id of an earlier correction that is undone.

    when: UTC, seconds since 1970. base: the revision that the person saw. window: of the person's
    browser, whose own corrections since then it does not clash with.
    """

    id: Annotated[str, Field(min_length=1, max_length=80)]
    video: str
    by: PersonName
    when: Annotated[float, Field(ge=0.0)]
    base: Annotated[int, Field(ge=0)]
    window: Annotated[str, Field(max_length=80)] = ""
    edits: Annotated[tuple[Edit, ...], Field(max_length=MOST_EDITS)] = ()
    undoes: str | None = None

    @model_validator(mode="after")
    def _edits_or_undoes(self) -> "Correction":
        if bool(self.edits) == (self.undoes is not None):
            raise ValueError("a correction holds edits, or the one that it undoes")
        return self


class ConflictError(StoreError):
    """Somebody else changed the same field of the same step since; `theirs` are those
    corrections."""

    def __init__(self, theirs: Sequence[Correction], places: Iterable[Place]) -> None:
        fields = sorted({field for _, field in places})
        super().__init__(
            f"{theirs[-1].by} changed {', '.join(fields)} meanwhile; look at their change, then send yours again"
        )
        self.theirs = tuple(theirs)


@dataclass(frozen=True)
class CorrectedRecord:
    """A record with its corrections. machine: by step id, what the machine had said for each field
    that differs.

    A deleted step is in `machine` with all its fields and in `record` no more; one that a person
    added in neither.
    """

    record: Record
    machine: dict[str, dict[str, JsonValue]]
    revision: int


def corrected(record: Record, corrections: Sequence[Correction]) -> CorrectedRecord:
    """Return the record with those corrections that are not undone. Raises StoreError where they
    are not its own."""
    steps = _StepTable(record, _anchors(record, corrections))
    for correction in active_corrections(corrections):
        for edit in correction.edits:
            steps.apply(edit)
    arranged = steps.arranged()
    now = {step.id: step_fields(step) for step in arranged}
    machine = {}
    for step in record.steps:
        said = step_fields(step)
        changed = {
            field: value
            for field, value in said.items()
            if step.id not in now or now[step.id][field] != value
        }
        if changed:
            machine[step.id] = changed
    return CorrectedRecord(record.model_copy(update={"steps": arranged}), machine, len(corrections))


def step_fields(step: Step) -> dict[str, JsonValue]:
    """Return the fields of a step that people correct, as JSON has them: span is the best one, or
    None."""
    span: JsonValue = (
        {"start": step.spans[0].start, "end": step.spans[0].end} if step.spans else None
    )
    return {
        "text": step.text,
        "kind": step.kind,
        "span": span,
        "at": step.at,
        "status": step.status,
    }


def active_corrections(corrections: Sequence[Correction]) -> list[Correction]:
    """Return the corrections that are not undone, oldest first."""
    undone: set[str] = set()
    for correction in reversed(corrections):
        if correction.undoes is not None and correction.id not in undone:
            undone.add(correction.undoes)
    return [correction for correction in corrections if correction.id not in undone]


def check_correction(record: Record, corrections: Sequence[Correction], new: Correction) -> None:
    """Raise ConflictError where others touched since what `new` touches, StoreError where it fits
    no step.

    Since: the revision that it was based on, or, for an undo, the correction undone, for what rests
    on that. What was done and undone since does not count.
    """
    by_id = {correction.id: correction for correction in corrections}
    active = active_corrections(corrections)
    if new.id in by_id:
        raise StoreError(f"correction {new.id!r} is there already; give a new one an id of its own")
    if new.base > len(corrections):
        raise StoreError(
            f"revision {new.base} is not known, {len(corrections)} is the last; load the video again"
        )
    since = [
        each for each in corrections[new.base :] if not new.window or each.window != new.window
    ]
    if new.undoes is not None:
        undone = by_id.get(new.undoes)
        if undone is None or undone not in active:
            raise StoreError(
                f"correction {new.undoes!r} is not there to undo, or is undone already"
            )
        since = list(corrections[corrections.index(undone) + 1 :])
    places = touched_places(new, by_id)
    within = {correction.id for correction in since}
    standing = [
        correction
        for correction in since
        if correction in active and correction.undoes not in within
    ]
    theirs = [correction for correction in standing if places & touched_places(correction, by_id)]
    if theirs:
        raise ConflictError(theirs, places & touched_places(theirs[-1], by_id))
    anchors = _anchors(record, corrections)
    for made, anchor in _made_steps(new):
        if made in anchors:
            raise StoreError(f"step {made!r} is there already; give a new one an id of its own")
        if anchor is not None and anchor not in anchors:
            raise StoreError(f"step {anchor!r} never was in the video; load the video again")
        anchors[made] = anchor
    corrected(record, [*corrections, new])


def touched_places(correction: Correction, by_id: Mapping[str, Correction]) -> frozenset[Place]:
    """Return what a correction touches: an undo what the undone one does.

    One that makes, removes, splits or joins steps touches them whole.
    """
    while correction.undoes is not None:
        correction = by_id[correction.undoes]
    places: set[Place] = set()
    for edit in correction.edits:
        match edit:
            case ChangeEdit():
                places |= {
                    (edit.step, field) for field in FIELDS if getattr(edit, field) is not None
                }
            case OrderEdit():
                places.add(ORDER)
            case AddEdit():
                places |= {(edit.id, field) for field in FIELDS}
            case DeleteEdit():
                places |= {(edit.step, field) for field in FIELDS}
            case SplitEdit():
                places |= {(step, field) for step in (edit.step, edit.id) for field in FIELDS}
            case MergeEdit():
                places |= {(step, field) for step in edit.steps for field in FIELDS}
    return frozenset(places)


def _made_steps(correction: Correction) -> Iterator[tuple[str, str | None]]:
    """Yield the id of each step that a correction makes, and of the one that it follows."""
    for edit in correction.edits:
        if isinstance(edit, AddEdit):
            yield edit.id, edit.after
        elif isinstance(edit, SplitEdit):
            yield edit.id, edit.step


def _anchors(record: Record, corrections: Sequence[Correction]) -> dict[str, str | None]:
    """Return every step that ever was, and the one that it follows, which is older, or stands
    before it."""
    ids = [step.id for step in record.steps]
    anchors: dict[str, str | None] = dict(zip(ids, [None, *ids], strict=False))
    for correction in corrections:
        anchors.update(_made_steps(correction))
    return anchors


class _StepTable:
    """The steps of a record while edits are applied."""

    def __init__(self, record: Record, anchors: Mapping[str, str | None]) -> None:
        self.machine = {step.id: step for step in record.steps}
        self.steps = dict(self.machine)
        self.anchors = anchors
        self.order: tuple[str, ...] = ()

    def apply(self, edit: Edit) -> None:
        match edit:
            case ChangeEdit():
                self.steps[edit.step] = _changed(self._step(edit.step), edit)
            case AddEdit():
                step = Step(id=edit.id, text=one_line(edit.text), kind=edit.kind)
                shown = (
                    {"spans": (edit.span,), "status": "shown", "score": 1.0}
                    if edit.span is not None
                    else {}
                )
                self.steps[edit.id] = step.model_copy(update=shown)
            case DeleteEdit():
                self._step(edit.step)
                del self.steps[edit.step]
            case SplitEdit():
                self._split(self._step(edit.step), edit)
            case MergeEdit():
                self._merge([self._step(id) for id in dict.fromkeys(edit.steps)], edit.text)
            case OrderEdit():
                self.order = edit.steps

    def arranged(self) -> tuple[Step, ...]:
        """Return the steps in their order; one that the order does not name comes after the one
        that it follows.

        Of several that follow one, those that people made come first, by their start: so it does
        not matter which was made first. A step that was moved away from its most likely second has
        none.
        """
        followers: dict[str | None, list[str]] = defaultdict(list)
        for id in self.anchors.keys() - set(self.order):
            followers[self.anchors[id]].append(id)
        for ids in followers.values():
            ids.sort(key=self._place_among_followers)
        arranged: list[Step] = []
        waiting = [*reversed(self.order), *reversed(followers[None])]  # the last one is next
        while waiting:
            id = waiting.pop()
            if id in self.steps:
                arranged.append(self._settled(self.steps[id]))
            waiting.extend(reversed(followers[id]))
        return tuple(arranged)

    def _place_among_followers(self, id: str) -> tuple[bool, float, str]:
        step = self.steps.get(id)
        return (
            id in self.machine,
            step.spans[0].start if step is not None and step.spans else 0.0,
            id,
        )

    def _settled(self, step: Step) -> Step:
        machine = self.machine.get(step.id)
        moved = machine is None or step.spans[:1] != machine.spans[:1] or step.at != machine.at
        outside = step.at is not None and not (step.spans and step.at in step.spans[0])
        return step.model_copy(update={"at": None}) if moved and outside else step

    def _step(self, id: str) -> Step:
        if id not in self.steps:
            raise StoreError(
                f"step {id!r} is not in the video, or is deleted; load the video again"
            )
        return self.steps[id]

    def _split(self, step: Step, edit: SplitEdit) -> None:
        span = step.spans[0] if step.spans else None
        if span is None or not span.start < edit.at < span.end:
            where = (
                f"it is at {span.start:g}-{span.end:g} s" if span is not None else "it has no place"
            )
            raise StoreError(
                f"step {step.id!r} cannot be split at {edit.at:g} s: {where}; choose a second inside"
            )
        parts = (Span(span.start, edit.at), Span(edit.at, span.end))
        first, second = (
            step.model_copy(update={"text": one_line(text), "spans": (part,)})
            for text, part in zip(edit.texts, parts, strict=True)
        )
        self.steps[step.id] = first.model_copy(update={"spans": (parts[0], *step.spans[1:])})
        self.steps[edit.id] = second.model_copy(update={"id": edit.id, "alternatives": ()})

    def _merge(self, steps: Sequence[Step], text: str | None) -> None:
        kept, *others = steps
        span = covering_span(step.spans[0] for step in steps if step.spans)
        self.steps[kept.id] = kept.model_copy(
            update={
                "text": one_line(text)
                if text is not None
                else "; ".join(step.text for step in steps),
                "spans": (span,) if span is not None else (),
                "said": covering_span(step.said for step in steps),
                "sources": tuple(sorted({source for step in steps for source in step.sources})),
            }
        )
        for step in others:
            del self.steps[step.id]


def _changed(step: Step, edit: ChangeEdit) -> Step:
    new: dict[str, object] = {}
    if edit.text is not None:
        new["text"] = one_line(edit.text)
    if edit.kind is not None:
        new["kind"] = edit.kind
    if edit.span is not None:
        new["spans"] = (edit.span, *step.spans[1:])
    if edit.at is not None:
        new["at"] = edit.at
    if edit.status is not None:
        scores = {"shown": 1.0, "unclear": None, "said": 0.0, "not found": 0.0}
        new |= {"status": edit.status, "score": scores[edit.status]}
    return step.model_copy(update=new)
