"""Steps that are written again, because people corrected the sentences that they rest on.

    correction, kept = rewrite_steps(record, earlier, correction, WritingSettings())

The writer that the record names reads the corrected sentences with their neighbours. What it writes
is added to the correction, so both are stored, and undone, together.
"""

import logging
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from threading import Lock

from stepline.errors import SteplineError
from stepline.library.corrections import (
    AddEdit,
    ChangeEdit,
    Correction,
    apply_corrections,
    check_correction,
)
from stepline.library.transcript_edits import SentenceEdit, edited_sentences
from stepline.records import Record, Step, Transcript
from stepline.settings import validate
from stepline.writing import WritingSettings, write_steps

log = logging.getLogger(__name__)

CONTEXT_SENTENCES = 30  # that the writer reads before and after the corrected ones
PERSON_REASON = "a person wrote its text"
NO_STEP_REASON = "the writer finds no step in its words"
DROPPED_REASON = "its sentence was dropped"

_writer_lock = Lock()  # one at a time, since a parser takes all cores


def rewrite_steps(
    record: Record, earlier: Sequence[Correction], correction: Correction, settings: WritingSettings
) -> tuple[Correction, dict[str, str]]:
    """Return a correction with new texts for the steps whose sentences it changes.

    Also returns step id -> reason, for those steps whose text stays.

    Args:
        record: the machine's record.
        earlier: corrections of the video, oldest first.
        correction: the new one.
        settings: which language model writes, where the record's writer is one.

    Raises StoreError if the correction does not fit the record, ConflictError if others changed the
    same.
    """
    changed: set[int] = set()
    added: set[str] = set()  # steps that are made of sentences, without a text of their own
    for edit in correction.edits:
        if isinstance(edit, SentenceEdit):
            changed.update(edited_sentences(edit))
        elif isinstance(edit, AddEdit) and edit.text is None:
            added.add(edit.id)
    is_stored = any(other.id == correction.id for other in earlier)
    if is_stored or not (changed or added) or record.models.get("writer") is None:
        return correction, {}
    check_correction(record, earlier, correction)
    before = apply_corrections(record, earlier)
    after = apply_corrections(record, [*earlier, correction])

    # the steps that rest on the changed sentences, and what is left of their words
    cited = {*added}
    for step in before.record.steps:
        if not changed.isdisjoint(before.sentences[source] for source in step.sources):
            cited.add(step.id)
    steps = [step for step in after.record.steps if step.id in cited]
    kept = {step.id: DROPPED_REASON for step in steps if not step.sources}
    steps = [step for step in steps if step.sources]
    if not steps:
        return correction, kept
    try:
        record_settings = _record_settings(record, settings, is_sure=bool(added))
        written = _write_again(after.record, steps, record_settings)
    except SteplineError as error:
        # The words are saved in any case, and the person learns why the steps are not.
        log.warning("%s: no step is written again: %s", record.id, error)
        return correction, kept | {step.id: str(error) for step in steps}

    edits = []
    machine_kinds = {step.id: step.kind for step in record.steps}
    for step in after.record.steps:
        new = written.get(step.id)
        # Another step is written again only if one of its sentences went to a new text, or came.
        if step not in steps and (new is None or new.sources == step.sources):
            continue
        if step.id in after.person_texts:
            kept[step.id] = PERSON_REASON
        elif new is None:
            kept[step.id] = NO_STEP_REASON
        elif (new.text, new.kind) != (step.text, step.kind):
            # A kind that a person chose stays.
            kind = new.kind if machine_kinds.get(step.id, step.kind) == step.kind else None
            edits.append(
                ChangeEdit(do="change", step=step.id, text=new.text, kind=kind, is_written=True)
            )
    return correction.model_copy(update={"edits": (*correction.edits, *edits)}), kept


def _record_settings(
    record: Record, settings: WritingSettings, *, is_sure: bool
) -> WritingSettings:
    """Return settings with the writer of a record and how much it wrote.

    A record may be a stranger's, so it never says which server or file a language model is.

    is_sure: whether a person says that the sentences are steps, so unlikely ones count too.
    """
    stored = record.settings.get("writing")
    values = {"writer": record.models["writer"]}
    if isinstance(stored, Mapping):
        values |= {name: stored[name] for name in ("steps", "detail") if name in stored}
    if is_sure:
        values["steps"] = "all"
    return validate(WritingSettings, settings.model_dump(mode="json") | values)


def _write_again(
    record: Record, steps: Sequence[Step], settings: WritingSettings
) -> dict[str, Step]:
    """Return step id -> the step that the writer makes of the same sentences.

    It also has other steps that share a sentence with the new texts.

    Args:
        record: the corrected record.
        steps: the steps, each with a sentence.
        settings: which writer, and how it writes.
    """
    sources = {source for step in steps for source in step.sources}
    first = max(0, min(sources) - CONTEXT_SENTENCES)
    sentences = record.sentences[first : max(sources) + 1 + CONTEXT_SENTENCES]
    transcript = (record.transcript or Transcript()).model_copy(update={"sentences": sentences})
    origin = record.video.origin
    with _writer_lock:
        written = write_steps(transcript, settings, title=(origin and origin.title) or "")

    # all sentences of the new texts: one may take over an action of the next step
    new_steps = [
        new.model_copy(update={"sources": tuple(first + source for source in new.sources)})
        for new in written.steps
    ]
    reached = sources.union(*(new.sources for new in new_steps if sources & set(new.sources)))
    # every pair that shares a sentence, the most similar texts first
    pairs = [
        (SequenceMatcher(None, step.text, new.text, autojunk=False).ratio(), step.id, new)
        for step in record.steps
        if reached & set(step.sources)
        for new in new_steps
        if set(new.sources) & set(step.sources)
    ]
    pairs.sort(key=lambda pair: -pair[0])
    matched: dict[str, Step] = {}
    taken = set()
    for _, id, new in pairs:
        if id not in matched and new.id not in taken:
            matched[id] = new
            taken.add(new.id)
    return matched
