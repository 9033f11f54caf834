"""Corrections of a record by people, kept as edits next to the machine's record.

Nothing is ever overwritten. A video has a list of corrections. Its length is the revision.
`apply_corrections` applies those that are not undone to the machine's record. `check_correction`
checks whether one more fits. An undo is a correction too, and a redo is the undo of it. Two edits are
independent where they touch different fields or steps: then either order gives the same record.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from stepline.errors import StoreError
from stepline.library.transcript_edits import (
    SentenceEdit,
    SentenceId,
    SentenceTable,
    edited_sentences,
)
from stepline.library.video_edits import VideoEdit, apply_video_edit, edited_field
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
    current_status,
)
from stepline.writing.waits import with_wait

StepId = Annotated[str, Field(min_length=1, max_length=200)]
StepText = Annotated[str, Field(max_length=2000, pattern=r"\S")]
PersonName = Annotated[str, Field(max_length=80, pattern=r"\S")]
CorrectionId = Annotated[str, Field(min_length=1, max_length=80)]
EditedField = tuple[str, str]  # (step id, field) that a correction touches

STEP_FIELDS = ("text", "kind", "span", "at", "status")  # that people correct
STEP_ORDER_FIELD: EditedField = ("", "order")
MAX_EDITS = 10_000  # of one correction
# P(shown) of a step with a person's status
STATUS_SCORES: dict[Status, float | None] = {
    "seen": 1.0,
    "placed": None,
    "said_only": 0.0,
    "not_found": 0.0,
}


class ChangeEdit(FrozenModel):
    """New values for fields of a step. None leaves a field as it is.

    Attributes:
        step: id of the step.
        text: new text.
        kind: new kind, such as "do".
        span: seconds of the video, replaces the best span.
        at: second of the video at which the step is best seen, which its picture shows.
        status: the person's verdict. The score becomes 1 for seen, None for placed, else 0.
        is_written: whether the writer wrote the text, from words that people corrected.
    """

    do: Literal["change"]
    step: StepId
    text: StepText | None = None
    kind: StepKind | None = None
    span: Span | None = None
    at: Seconds | None = None
    status: Annotated[Status | None, BeforeValidator(current_status)] = None
    is_written: Annotated[bool, Field(exclude_if=lambda is_written: not is_written)] = False


class AddEdit(FrozenModel):
    """A new step that the machine missed.

    Attributes:
        id: id of the new step.
        text: text of the new step. None, with a sentence: the writer writes it from the sentence.
        span: seconds in which the video shows it, None if it does not.
        after: id of the step before it, None for the first position.
        kind: kind of the new step.
        sentence: index in the machine's record of the sentence that it is made of. The step is
            placed where the sentence is said.
    """

    do: Literal["add"]
    id: StepId
    text: StepText | None = None
    span: Span | None = None
    after: StepId | None = None
    kind: StepKind = "do"
    sentence: Annotated[SentenceId | None, Field(exclude_if=lambda id: id is None)] = None

    @model_validator(mode="after")
    def _check_text(self) -> "AddEdit":
        if self.text is None and self.sentence is None:
            raise ValueError("a new step needs a text, or the sentence that it is made of")
        return self


class DeleteEdit(FrozenModel):
    """Deletion of the step with the id `step`."""

    do: Literal["delete"]
    step: StepId


class SplitEdit(FrozenModel):
    """Split of a step into two.

    Attributes:
        step: id of the step, which its first half keeps.
        at: second of the video at which it is split.
        id: id of the second half.
        texts: text of the first half and of the second half.
    """

    do: Literal["split"]
    step: StepId
    at: Seconds
    id: StepId
    texts: tuple[StepText, StepText]


class MergeEdit(FrozenModel):
    """Merge of steps into one.

    Attributes:
        steps: ids of the steps. The merged step keeps the first id.
        text: text of the merged step. None: the texts joined by "; ".
    """

    do: Literal["merge"]
    steps: Annotated[tuple[StepId, ...], Field(min_length=2)]
    text: StepText | None = None


class OrderEdit(FrozenModel):
    """New order of all steps, given by their ids."""

    do: Literal["order"]
    steps: Annotated[tuple[StepId, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_unique(self) -> "OrderEdit":
        if len(set(self.steps)) < len(self.steps):
            raise ValueError("an order names each step once")
        return self


StepEdit = ChangeEdit | AddEdit | DeleteEdit | SplitEdit | MergeEdit | OrderEdit
Edit = Annotated[StepEdit | SentenceEdit | VideoEdit, Field(discriminator="do")]


class NewCorrection(FrozenModel):
    """One change by a person, as it is sent: edits, or the undo of an earlier correction.

    Attributes:
        by: name of the person.
        base: revision that the person saw: the number of corrections that the video had then.
        window: id of the person's browser window. Corrections of one window never conflict.
        record: hash of the machine's record that the person saw, "" if unknown. With a correction
            of steps or sentences, the hash of the record that it is made for is stored.
        edits: the edits in their order, empty for an undo.
        undoes: id of the correction that is undone, None for edits.
        id: id chosen by the client, so that a correction that is sent twice counts once.
    """

    by: PersonName
    base: Annotated[int, Field(ge=0)]
    window: Annotated[str, Field(max_length=80)] = ""
    record: Annotated[str, Field(max_length=80)] = ""
    edits: Annotated[tuple[Edit, ...], Field(max_length=MAX_EDITS)] = ()
    undoes: str | None = None
    id: CorrectionId | None = None

    @model_validator(mode="after")
    def _edits_or_undoes(self) -> "NewCorrection":
        if bool(self.edits) == (self.undoes is not None):
            raise ValueError("a correction holds edits, or the one that it undoes")
        return self


class Correction(NewCorrection):
    """A correction of a video.

    Attributes:
        id: id of the correction, unique within the video.
        video: id of the video.
        when: time of the correction in seconds since 1970, UTC.
    """

    id: CorrectionId
    video: str
    when: Annotated[float, Field(ge=0.0)]


class ConflictError(StoreError):
    """Other people changed the same fields after the revision that a correction is based on.

    Attributes:
        theirs: the corrections of the other people, oldest first.
    """

    def __init__(self, theirs: Sequence[Correction], fields: Iterable[EditedField]) -> None:
        names = ", ".join(sorted({name for _, name in fields}))
        super().__init__(
            f"{theirs[-1].by} has changed {names} since you read it; look at their change, then "
            "send yours again"
        )
        self.theirs = tuple(theirs)


class RecordChangedError(StoreError):
    """The video was processed again, and the steps of the machine's record changed."""

    def __init__(self) -> None:
        super().__init__(
            "the video was processed again since it was opened here, and its steps changed; look "
            "at the new steps, then make the change again"
        )


@dataclass(frozen=True)
class CorrectedRecord:
    """A record after its corrections were applied.

    Attributes:
        record: the record with corrected steps, title, tags and metadata.
        machine: step id -> field -> the machine's value, for each field that people changed. A
            deleted step has all its fields here, a step that a person added is not included.
        revision: number of corrections, including undone ones.
        sentences: index in the machine's record of each sentence of the corrected transcript.
        person_texts: ids of the steps whose text a person wrote.
    """

    record: Record
    machine: dict[str, dict[str, JsonValue]]
    revision: int
    sentences: tuple[int, ...] = ()
    person_texts: frozenset[str] = frozenset()


def apply_corrections(record: Record, corrections: Sequence[Correction]) -> CorrectedRecord:
    """Return a record with its corrections applied, except for those that are undone.

    Args:
        record: the machine's record.
        corrections: corrections of the video, oldest first.

    Raises StoreError if a correction does not fit the record.
    """
    # the edits that are not undone, in their order
    sentences = SentenceTable(record.sentences)
    steps = _StepTable(record, _preceding_step_ids(record, corrections), sentences)
    video = record.video
    for correction in active_corrections(corrections):
        for edit in correction.edits:
            if isinstance(edit, VideoEdit):
                video = apply_video_edit(video, edit)
            elif isinstance(edit, SentenceEdit):
                sentences.apply(edit)
            else:
                steps.apply(edit)
    ordered_steps = steps.ordered_steps()

    # where the machine's record differs from what people made of it
    current = {step.id: step_fields(step) for step in ordered_steps}
    machine: dict[str, dict[str, JsonValue]] = {}
    for step in record.steps:
        fields = step_fields(step)
        if step.id in current:
            now = current[step.id]
            fields = {name: value for name, value in fields.items() if now[name] != value}
        if fields:
            machine[step.id] = fields
    update = {"steps": ordered_steps, "video": video}
    corrected_record = _with_sentences(record.model_copy(update=update), sentences)
    # A text that was changed back is the machine's again.
    person_texts = frozenset(
        id for id in steps.person_texts if id not in steps.machine or "text" in machine.get(id, {})
    )
    return CorrectedRecord(
        corrected_record, machine, len(corrections), sentences.ids(), person_texts
    )


def _with_sentences(record: Record, table: SentenceTable) -> Record:
    """Return the record with the sentences of a table, and what cites them with their new indices."""
    sentences = table.sentences()
    if record.transcript is None or sentences == record.sentences:
        return record
    transcript = record.transcript.model_copy(update={"sentences": sentences})
    update: dict[str, Any] = {"transcript": transcript}
    for name in ("steps", "materials", "tools", "yields", "times"):
        update[name] = tuple(
            row.model_copy(update={"sources": table.current_sources(row.sources)})
            for row in getattr(record, name)
        )
    return record.model_copy(update=update)


def step_fields(step: Step) -> dict[str, JsonValue]:
    """Return the fields of a step that people correct, as JSON values.

    "span" is the best span as {"start": s, "end": s}, None if the step has none.
    """
    span: JsonValue = None
    if step.spans:
        span = {"start": step.spans[0].start, "end": step.spans[0].end}
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
    # From the newest on: an undo that was undone itself takes nothing back.
    for correction in reversed(corrections):
        if correction.undoes is not None and correction.id not in undone:
            undone.add(correction.undoes)
    return [correction for correction in corrections if correction.id not in undone]


def edits_of_person(correction: Correction) -> tuple[Edit, ...]:
    """Return the edits of a correction without those that the writer added."""
    edits = correction.edits
    return tuple(edit for edit in edits if not (isinstance(edit, ChangeEdit) and edit.is_written))


def first_undone(correction: Correction, by_id: Mapping[str, Correction]) -> Correction:
    """Return the correction with edits that an undo, or a chain of undos, takes back or gives back.

    A correction with edits is returned itself, and so is an undo of an unknown one.

    by_id: the video's corrections by id.
    """
    while earlier := by_id.get(correction.undoes or ""):
        correction = earlier
    return correction


def corrects_steps(correction: Correction) -> bool:
    """Return whether a correction edits steps or sentences.

    It is False if only the video's title, tags or metadata change, and for an undo.
    """
    return not all(isinstance(edit, VideoEdit) for edit in correction.edits)


def step_corrections(corrections: Sequence[Correction]) -> list[Correction]:
    """Return the corrections of steps and sentences that are not undone, oldest first, without the
    undos."""
    return list(filter(corrects_steps, active_corrections(corrections)))


def check_correction(record: Record, corrections: Sequence[Correction], new: Correction) -> None:
    """Check whether a new correction can be added to a video.

    Raises ConflictError if other people changed the same fields after the revision `new.base`. For
    an undo, changes after the undone correction count. Changes that were undone do not count.
    Raises StoreError if `new` does not fit the steps.

    Args:
        record: the machine's record.
        corrections: the corrections of the video so far, oldest first.
        new: the correction to check.
    """
    by_id = {correction.id: correction for correction in corrections}
    active = active_corrections(corrections)
    if new.id in by_id:
        raise StoreError(f"correction {new.id!r} is there already; give a new one an id of its own")
    if new.base > len(corrections):
        reason = f"revision {new.base} is not known, {len(corrections)} is the last"
        raise StoreError(f"{reason}; load the video again")
    since = list(corrections[new.base :])
    if new.window:
        since = [correction for correction in since if correction.window != new.window]
    if new.undoes is not None:
        undone = by_id.get(new.undoes)
        if undone is None or undone not in active:
            reason = "is not there to undo, or is undone already"
            raise StoreError(f"correction {new.undoes!r} {reason}")
        since = list(corrections[corrections.index(undone) + 1 :])

    # what was done and undone since does not count
    fields = touched_fields(new, by_id)
    since_ids = {correction.id for correction in since}
    theirs = []
    shared_fields: frozenset[EditedField] = frozenset()
    for correction in since:
        if correction in active and correction.undoes not in since_ids:
            touched = fields & touched_fields(correction, by_id)
            if touched:
                theirs.append(correction)
                shared_fields = touched
    if theirs:
        raise ConflictError(theirs, shared_fields)

    # Each new step needs a new id, and an older step that it follows.
    preceding_ids = _preceding_step_ids(record, corrections)
    for id, preceding_id in _new_steps(new):
        if id in preceding_ids:
            raise StoreError(f"step {id!r} is there already; give a new one an id of its own")
        if preceding_id is not None and preceding_id not in preceding_ids:
            raise StoreError(f"step {preceding_id!r} never was in the video; load the video again")
        preceding_ids[id] = preceding_id
    _check_edits(apply_corrections(record, corrections).record, new)
    # It is applied once, which raises where it does not fit.
    apply_corrections(record, [*corrections, new])


def _check_edits(record: Record, new: Correction) -> None:
    duration = record.video.duration
    for edit in new.edits:
        # One step has one kind, so a warning would become a thing to do, or the reverse.
        merged = edit.steps if isinstance(edit, MergeEdit) else ()
        if len({step.kind for step in record.steps if step.id in merged}) > 1:
            raise StoreError(
                "a step to do and a step to avoid are not merged; mark both alike first"
            )
        # Pages round to tenths of a second.
        span = getattr(edit, "span", None)
        last = span.end if span else getattr(edit, "at", None) or 0.0
        if duration is not None and last > duration + 0.1:
            raise StoreError(
                f"{last:g} s is after the end of the video, {duration:g} s; choose a second inside"
            )


def touched_fields(
    correction: Correction, by_id: Mapping[str, Correction]
) -> frozenset[EditedField]:
    """Return the (step id, field) pairs that a correction changes.

    An undo changes those of the undone correction. Adding, deleting, splitting or merging steps
    changes all their fields. The step id is "" for sentences, the order of the steps and the
    video's title, tags and metadata.

    by_id: the video's corrections by id.
    """
    fields: set[EditedField] = set()
    for edit in first_undone(correction, by_id).edits:
        if isinstance(edit, VideoEdit):
            fields.add(("", edited_field(edit)))
            continue
        if isinstance(edit, SentenceEdit):
            fields.update(("", f"sentence {id + 1}") for id in edited_sentences(edit))
            continue
        match edit:
            case ChangeEdit():
                for field in STEP_FIELDS:
                    if getattr(edit, field) is not None:
                        fields.add((edit.step, field))
                continue
            case OrderEdit():
                fields.add(STEP_ORDER_FIELD)
                continue
            case AddEdit():
                steps: tuple[str, ...] = (edit.id,)
            case DeleteEdit():
                steps = (edit.step,)
            case SplitEdit():
                steps = (edit.step, edit.id)
            case MergeEdit():
                steps = edit.steps
        fields.update(product(steps, STEP_FIELDS))
    return frozenset(fields)


def _new_steps(correction: Correction) -> Iterator[tuple[str, str | None]]:
    """Yield (id, id of the step before it) of each step that a correction creates.

    The second id is None at the first position.
    """
    for edit in correction.edits:
        if isinstance(edit, AddEdit):
            yield edit.id, edit.after
        elif isinstance(edit, SplitEdit):
            yield edit.id, edit.step


def _preceding_step_ids(record: Record, corrections: Sequence[Correction]) -> dict[str, str | None]:
    """Return step id -> id of the step before it, for each step that ever existed.

    Deleted steps are included. The first step has None.

    Args:
        record: the machine's record.
        corrections: corrections of the video, oldest first.
    """
    preceding_ids: dict[str, str | None] = {}
    before = None
    # Machine steps follow each other. Those that people made follow what they named.
    for step in record.steps:
        preceding_ids[step.id] = before
        before = step.id
    for correction in corrections:
        preceding_ids.update(_new_steps(correction))
    return preceding_ids


class _StepTable:
    """The steps of a record while edits are applied."""

    def __init__(
        self, record: Record, preceding_ids: Mapping[str, str | None], sentences: SentenceTable
    ) -> None:
        self.machine = {step.id: step for step in record.steps}
        self.steps = dict(self.machine)
        self.sentences = sentences
        self.judged: set[str] = set()  # ids of the steps whose status a person has chosen
        self.person_texts: set[str] = set()  # ids of the steps whose text a person wrote
        self.chosen_pictures: set[str] = set()  # ids of the steps whose `at` a person has chosen
        self.preceding_ids = preceding_ids
        self.order: tuple[str, ...] = ()

    def apply(self, edit: StepEdit) -> None:
        match edit:
            case ChangeEdit():
                self.steps[edit.step] = self._change(self._step(edit.step), edit)
            case AddEdit():
                self.steps[edit.id] = self._add(edit)
            case DeleteEdit():
                self._step(edit.step)
                del self.steps[edit.step]
            case SplitEdit():
                self._split(self._step(edit.step), edit)
            case MergeEdit():
                self._merge([self._step(id) for id in dict.fromkeys(edit.steps)], edit.text)
            case OrderEdit():
                self.order = edit.steps

    def ordered_steps(self) -> tuple[Step, ...]:
        """Return the steps in the order of the last OrderEdit.

        A step that this order does not name comes after the step that it was added to. If several
        steps follow one, those that people made come first, sorted by their start. So the order in
        which they were made does not matter.
        """
        # the steps that the order does not name, by the one that each follows
        followers: dict[str | None, list[str]] = defaultdict(list)
        for id in self.preceding_ids.keys() - set(self.order):
            followers[self.preceding_ids[id]].append(id)
        for ids in followers.values():
            ids.sort(key=self._sort_key)

        # depth first, so that what follows a step comes right behind it
        ordered_steps: list[Step] = []
        waiting = [*reversed(self.order), *reversed(followers[None])]  # the last one is next
        while waiting:
            id = waiting.pop()
            if id in self.steps:
                ordered_steps.append(
                    self._with_corrected_text(self._remove_moved_peak(self.steps[id]))
                )
            waiting.extend(reversed(followers[id]))
        return tuple(ordered_steps)

    def _sort_key(self, id: str) -> tuple[bool, float, str]:
        step = self.steps.get(id)
        start = step.spans[0].start if step is not None and step.spans else 0.0
        return id in self.machine, start, id

    def _remove_moved_peak(self, step: Step) -> Step:
        """Return the step with `at`, its most likely second, set to None if a corrected span excludes it."""
        if step.at is None or (step.spans and step.at in step.spans[0]):
            return step
        if step.id in self.chosen_pictures:
            return step
        # The machine's own second may be outside of its span. Then it stays.
        machine = self.machine.get(step.id)
        if machine and machine.spans[:1] == step.spans[:1] and machine.at == step.at:
            return step
        return step.model_copy(update={"at": None})

    def _with_corrected_text(self, step: Step) -> Step:
        """Return the step with the wait that its text states, if a person has written the text."""
        machine = self.machine.get(step.id)
        return step if machine and machine.text == step.text else with_wait(step)

    def _step(self, id: str) -> Step:
        if id not in self.steps:
            raise StoreError(
                f"step {id!r} is not in the video, or is deleted; load the video again"
            )
        return self.steps[id]

    def _add(self, edit: AddEdit) -> Step:
        text, span = edit.text, edit.span
        values: dict[str, Any] = _person_status("seen") if span else {}
        if text is not None:
            self.person_texts.add(edit.id)
        if edit.sentence is not None:
            # It is placed where it is said.
            sentence = self.sentences.current(edit.sentence)
            text = text or sentence.text.rstrip(".,;:!?… ") or sentence.text
            span = span or sentence.span
            values = {"said": span, "sources": (edit.sentence,), **_person_status("placed")}
        spans = () if span is None else (span,)
        return Step(id=edit.id, text=one_line(text or ""), kind=edit.kind, spans=spans, **values)

    def _change(self, step: Step, edit: ChangeEdit) -> Step:
        values: dict[str, Any] = edit.model_dump(include={"kind", "at"}, exclude_none=True)
        if edit.text is not None:
            values["text"] = one_line(edit.text)
            if edit.is_written:
                self.person_texts.discard(step.id)
            else:
                self.person_texts.add(step.id)
        if edit.at is not None:
            # The person's picture takes the place of the one with the click.
            machine = self.machine.get(step.id)
            values["target"] = machine.target if machine and machine.at == edit.at else None
            self.chosen_pictures.add(step.id)
        if edit.span is not None:
            values["spans"] = (edit.span, *step.spans[1:])
            # A person who says where a step is shown has seen it, unless a person says otherwise.
            if step.status in (None, "placed") and step.id not in self.judged:
                values |= _person_status("seen")
        if edit.status is not None:
            values |= _person_status(edit.status)
            self.judged.add(step.id)
        return step.model_copy(update=values)

    def _split(self, step: Step, edit: SplitEdit) -> None:
        span = step.spans[0] if step.spans else None
        if span is None or not span.start < edit.at < span.end:
            where = f"is at {span.start:g}-{span.end:g} s" if span else "has no place"
            raise StoreError(
                f"step {step.id!r} cannot be split at {edit.at:g} s: it {where}; choose a second "
                "inside"
            )

        # the first half keeps the id, and the further spans
        first, second = map(one_line, edit.texts)
        spans = (Span(span.start, edit.at), *step.spans[1:])
        self.steps[step.id] = step.model_copy(update={"text": first, "spans": spans})
        rest = (Span(edit.at, span.end),)
        new = {"id": edit.id, "text": second, "spans": rest, "alternatives": ()}
        self.steps[edit.id] = step.model_copy(update=new)
        self.person_texts.update((step.id, edit.id))

    def _merge(self, steps: Sequence[Step], text: str | None) -> None:
        first, *others = steps
        self.person_texts.add(first.id)

        # the span from the first to the last, and all that they rest on
        joined = "; ".join(step.text for step in steps) if text is None else one_line(text)
        span = covering_span(step.spans[0] for step in steps if step.spans)
        self.steps[first.id] = first.model_copy(
            update={
                "text": joined,
                "spans": () if span is None else (span,),
                "said": covering_span(step.said for step in steps),
                "sources": tuple(sorted({source for step in steps for source in step.sources})),
            }
        )
        for step in others:
            del self.steps[step.id]


def _person_status(status: Status) -> dict[str, Any]:
    """Return the fields of a step that follow from the status that a person gave it."""
    basis = "person" if status == "seen" else None
    return {"status": status, "basis": basis, "doubt": None, "score": STATUS_SCORES[status]}
