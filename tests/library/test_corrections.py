"""Corrections: what people changed is applied, undone and refused where two clash; the machine's
word is kept."""

import pytest
from correction_samples import correction
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stepline.errors import StoreError
from stepline.library.corrections import (
    STEP_FIELDS,
    ConflictError,
    active_corrections,
    apply_corrections,
    check_correction,
    step_fields,
    touched_fields,
)
from stepline.records import Record, Sentence, Span, Step, Transcript, Video

IDS = ("s1", "s2", "s3", "s4")


def machine_record():
    steps, said = [], []
    for n, id in enumerate(IDS):
        start = 10.0 * n
        shown = {"spans": (Span(start, start + 8),), "at": start + 4, "status": "placed"}
        steps.append(Step(id=id, text=f"do {id}", score=0.7, sources=(n,), **shown))
        said.append(Sentence(text=f"we do {id}", span=Span(start, start + 3)))
    transcript = Transcript(sentences=tuple(said))
    video = Video(id="v", duration=60.0)
    return Record(id="v", video=video, transcript=transcript, steps=tuple(steps))


def after(*edits):
    """The steps once each edit was taken, one correction each."""
    taken = []
    for number, edit in enumerate(edits):
        new = correction(number, edit)
        check_correction(machine_record(), taken, new)
        taken.append(new)
    return apply_corrections(machine_record(), taken)


def test_a_title_is_corrected_undone_and_clashes_with_another():
    first = correction(0, {"do": "title", "title": "Iced  lemonade"})
    changed = apply_corrections(machine_record(), [first])
    video = changed.record.video
    assert (video.title, video.title_source) == ("Iced lemonade", "user")
    assert (changed.record.steps, changed.machine) == (machine_record().steps, {})
    undone = apply_corrections(machine_record(), [first, correction(1, undoes="c0")])
    assert undone.record == machine_record()
    other = correction(1, {"do": "title", "title": "Sour water"}, base=0, by="bob")
    with pytest.raises(ConflictError, match="ann has changed title since you read it"):
        check_correction(machine_record(), [first], other)
    step = correction(1, {"do": "change", "step": "s1", "text": "Other"}, base=0, by="bob")
    check_correction(machine_record(), [first], step)


def span(start, end):
    return {"start": start, "end": end}


def test_a_change_keeps_what_the_machine_said():
    result = after(
        {"do": "change", "step": "s2", "text": " stir\nit ", "kind": "avoid"},
        {"do": "change", "step": "s3", "span": span(25.0, 28.0), "status": "said_only"},
        {"do": "delete", "step": "s4"},
        # changed back, it is the machine's again
        *({"do": "change", "step": "s1", "text": text} for text in ("whisk", "do s1")),
    )
    second, third = result.record.steps[1:]
    assert (second.text, second.kind) == ("stir it", "avoid")
    assert (third.spans, third.status, third.score) == ((Span(25.0, 28.0),), "said_only", 0.0)
    assert third.at is None  # 24 s is no longer inside
    assert result.machine == {
        "s2": {"text": "do s2", "kind": "do"},
        "s3": {"span": span(20.0, 28.0), "at": 24.0, "status": "placed"},
        "s4": step_fields(machine_record().steps[3]),
    }
    assert result.revision == 5


def test_a_split_step_is_two_and_merged_it_is_one_again():
    split = {"do": "split", "step": "s2", "at": 13.0, "id": "new", "texts": ["pour", "stir"]}
    steps = after(split).record.steps
    assert [(step.id, step.text, step.spans[0], step.at) for step in steps[1:3]] == [
        ("s2", "pour", Span(10.0, 13.0), None),
        ("new", "stir", Span(13.0, 18.0), 14.0),
    ]
    merged = after(split, {"do": "merge", "steps": ["s2", "new"], "text": "do s2"})
    assert merged.record.steps[1].spans == machine_record().steps[1].spans
    assert len(merged.record.steps) == 4


def test_merged_steps_cover_their_spans_and_cite_all_their_sentences():
    result = after({"do": "merge", "steps": ["s2", "s3"]})
    step = result.record.steps[1]
    assert (step.id, step.text) == ("s2", "do s2; do s3")
    assert (step.spans, step.sources) == ((Span(10.0, 28.0),), (1, 2))
    assert set(result.machine) == {"s2", "s3"}
    avoid = {"do": "change", "step": "s3", "kind": "avoid"}
    with pytest.raises(StoreError, match="mark both alike first"):
        after(avoid, {"do": "merge", "steps": ["s2", "s3"]})


def test_an_added_step_follows_the_one_it_was_put_after_whatever_becomes_of_that():
    add = {"do": "add", "id": "a", "text": "wait", "span": span(9.0, 9.5), "after": "s1"}
    first = {"do": "add", "id": "b", "text": "begin", "after": None}
    order = {"do": "order", "steps": ["s4", "s3", "s2", "s1"]}
    ids = [step.id for step in after(add, first, {"do": "delete", "step": "s1"}).record.steps]
    assert ids == ["b", "a", "s2", "s3", "s4"]
    ids = [step.id for step in after(add, first, order).record.steps]
    assert ids == ["b", "s4", "s3", "s2", "s1", "a"]
    added = after(add).record.steps[1]
    assert (added.status, added.basis, added.score) == ("seen", "person", 1.0)
    assert after(add).machine == {}


def test_a_person_who_moves_a_placed_step_has_seen_it_unless_they_say_otherwise():
    moved = {"do": "change", "step": "s3", "span": span(25.0, 28.0)}
    step = after(moved).record.steps[2]
    assert (step.status, step.basis, step.score) == ("seen", "person", 1.0)
    # in either order
    said = {"do": "change", "step": "s3", "status": "placed"}
    for edits in ((moved, said), (said, moved)):
        step = after(*edits).record.steps[2]
        assert (step.status, step.basis, step.score) == ("placed", None, None)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ({"do": "delete", "step": "s9"}, "'s9' is not in the video"),
        ({"do": "split", "step": "s1", "at": 8.0, "id": "n", "texts": ["a", "b"]}, "second inside"),
        ({"do": "add", "id": "s1", "text": "a"}, "an id of its own"),
        ({"do": "add", "id": "n", "text": "a", "after": "s9"}, "'s9' never was"),
        ({"do": "merge", "steps": ["s1", "s9"]}, "'s9' is not in the video"),
        ({"do": "change", "step": "s1", "span": span(5.0, 90.0)}, "90 s is after the end"),
        ({"do": "change", "step": "s1", "at": 61.0}, "after the end of the video, 60 s"),
        ({"do": "add", "id": "n", "text": "a", "span": span(70.0, 71.0)}, "71 s is after"),
    ],
)
def test_an_edit_that_makes_no_sense_of_the_record_is_refused(edit, reason):
    with pytest.raises(StoreError, match=reason):
        check_correction(machine_record(), [], correction(0, edit))


@pytest.mark.parametrize(
    "tree",
    [
        {"do": "change", "step": "s1", "text": " "},
        {"do": "change", "step": "s1", "span": {"start": 5, "end": 5}},
        {"do": "change", "step": "s1", "at": -1},
        {"do": "order", "steps": ["s1", "s1"]},
        {"do": "merge", "steps": ["s1"]},
        {"do": "add", "id": "n"},
        {"do": "destroy", "step": "s1"},
    ],
)
def test_an_edit_of_the_wrong_form_is_refused(tree):
    with pytest.raises(ValueError, match="validation error"):
        correction(0, tree)


def test_undo_and_redo_are_corrections_too():
    taken = [correction(0, {"do": "change", "step": "s1", "text": "whisk"})]
    for number in range(1, 6):  # undo, redo, undo, redo, undo
        new = correction(number, undoes=f"c{number - 1}")
        check_correction(machine_record(), taken, new)
        taken.append(new)
        text = "do s1" if number % 2 else "whisk"
        assert apply_corrections(machine_record(), taken).record.steps[0].text == text
    assert len(taken) == apply_corrections(machine_record(), taken).revision == 6
    for undone in ("c0", "c7"):
        with pytest.raises(StoreError, match="not there to undo"):
            check_correction(machine_record(), taken, correction(6, undoes=undone))


def test_an_undo_waits_for_what_rests_on_it():
    add = correction(0, {"do": "add", "id": "n", "text": "wait", "after": "s1"})
    other = correction(1, {"do": "change", "step": "n", "text": "wait a minute"}, by="bob")
    undo = correction(2, undoes="c0")
    with pytest.raises(ConflictError, match="bob has changed text since you read it") as error:
        check_correction(machine_record(), [add, other], undo)
    assert error.value.theirs == (other,)
    taken = [add, other, correction(2, undoes="c1"), correction(3, undoes="c0")]
    check_correction(machine_record(), taken[:3], taken[3])
    assert apply_corrections(machine_record(), taken).record == machine_record()
    with pytest.raises(ConflictError):  # its step is not there
        check_correction(machine_record(), taken, correction(4, undoes="c2"))


def test_a_window_never_clashes_with_itself_but_two_of_one_person_do():
    first = correction(0, {"do": "change", "step": "s1", "text": "whisk"}, window="left")
    again = {"do": "change", "step": "s1", "text": "whisk well"}
    check_correction(machine_record(), [first], correction(1, again, base=0, window="left"))
    for window in ("right", ""):
        with pytest.raises(ConflictError):
            check_correction(machine_record(), [first], correction(1, again, base=0, window=window))


TEXTS = st.sampled_from(["pour", "stir", "wait"])
SECONDS = st.integers(1, 50).map(float)
STEPS = st.sampled_from(IDS)
SPANS = st.tuples(SECONDS, st.integers(1, 9)).map(lambda pair: span(pair[0], pair[0] + pair[1]))


def edit(do, **fields):
    return st.fixed_dictionaries({"do": st.just(do), **fields})


def split(id, new):
    at = 10.0 * IDS.index(id) + 3
    return {"do": "split", "step": id, "at": at, "id": new, "texts": ["a", "b"]}


def edits(new):
    """One edit of any kind; what it makes is called `new`."""
    return st.one_of(
        edit("change", step=STEPS, text=TEXTS),
        edit("change", step=STEPS, span=SPANS),
        edit("change", step=STEPS, at=SECONDS),
        edit("change", step=STEPS, status=st.sampled_from(["said", "shown"])),
        edit("add", id=st.just(new), text=TEXTS, span=SPANS, after=STEPS),
        edit("delete", step=STEPS),
        STEPS.map(lambda id: split(id, new)),
        st.permutations(IDS).map(lambda ids: {"do": "merge", "steps": ids[:2]}),
        st.permutations(IDS).map(lambda ids: {"do": "order", "steps": ids}),
    )


SOME = settings(max_examples=80, deadline=None, derandomize=True, database=None)


@SOME
@given(first=edits("x"), second=edits("y"))
def test_edits_are_taken_in_either_order_with_one_result_or_they_conflict(first, second):
    one, other = correction(0, first, base=0), correction(1, second, base=0, by="bob")
    clash = touched_fields(one, {}) & touched_fields(other, {})
    for before, late in ((one, other), (other, one)):
        if clash:
            with pytest.raises(ConflictError) as error:
                check_correction(machine_record(), [before], late)
            assert error.value.theirs == (before,)
        else:
            check_correction(machine_record(), [before], late)
    if not clash:
        pairs = ([one, other], [other, one])
        first, second = (apply_corrections(machine_record(), pair) for pair in pairs)
        assert first == second


@SOME
@given(first=edits("x"), second=edits("y"))
def test_undoing_all_gives_the_machines_record(first, second):
    taken = [correction(0, first)]
    assume(second["do"] in ("change", "order"))
    try:
        check_correction(machine_record(), taken, correction(1, second))
    except StoreError:  # of a step that the first removed
        assume(False)
    taken.append(correction(1, second))
    both = apply_corrections(machine_record(), taken)
    for number, undoes in ((2, "c1"), (3, "c0"), (4, "c3"), (5, "c2")):
        check_correction(machine_record(), taken, correction(number, undoes=undoes))
        taken.append(correction(number, undoes=undoes))
        if number == 3:
            result = apply_corrections(machine_record(), taken)
            assert (result.record, result.machine) == (machine_record(), {})
    result = apply_corrections(machine_record(), taken)
    assert (result.record, result.machine) == (both.record, both.machine)
    assert len(active_corrections(taken)) == 4


@SOME
@given(edit=edits("x"))
def test_every_field_that_differs_keeps_the_machines_value(edit):
    result = apply_corrections(machine_record(), [correction(0, edit)])
    now = {step.id: step_fields(step) for step in result.record.steps}
    for step in machine_record().steps:
        machine = step_fields(step)
        differing = {
            field: machine[field]
            for field in STEP_FIELDS
            if now.get(step.id, {}).get(field, ...) != machine[field]
        }
        assert result.machine.get(step.id, {}) == differing
