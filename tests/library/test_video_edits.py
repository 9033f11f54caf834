"""Titles, tags and metadata: edits of the video as a whole, which outlive a new record."""

from functools import partial

import correction_samples
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepline.errors import DatasetError, StoreError
from stepline.library.corrected_library import CorrectedLibrary, video_id
from stepline.library.corrections import (
    ConflictError,
    apply_corrections,
    check_correction,
    corrects_steps,
    first_undone,
)
from stepline.library.training_data import export_corrected
from stepline.library.video_edits import MAX_METADATA, MAX_TAGS
from stepline.records import Record, Span, Step, Video
from stepline.storage import from_json, read_record, to_json, write_record

ID = video_id("v0.json")


def record(text="Slice the lemons", title="Lemonade"):
    step = Step(id="a", text=text, spans=(Span(1.0, 2.0),), status="placed")
    return Record(id="v0", video=Video(id="v0", title=title), steps=(step,))


correction = partial(correction_samples.correction, video=ID)


def tag(text):
    return {"do": "tag", "tag": text}


def untag(text):
    return {"do": "untag", "tag": text}


def metadata(name, value):
    return {"do": "metadata", "name": name, "value": value}


def video_after(*edits):
    return apply_corrections(record(), [correction(0, *edits)]).record.video


def test_tags_and_metadata_are_set_and_removed_whatever_the_case_of_their_letters():
    tags = (tag("  Safety\n101 "), tag("forklift"), tag("SAFETY 101"), untag("Forklift"))
    assert video_after(*tags).tags == ("SAFETY 101",)
    names = (metadata("Course", "A1"), metadata("Owner", "Ann"), metadata("course", "B2"))
    assert video_after(*names).metadata == {"course": "B2", "Owner": "Ann"}
    assert video_after(metadata("Course", "A1"), metadata("COURSE", None)).metadata == {}


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (tag("\u200b"), "tag .* holds no visible character; write a word"),
        (metadata("\u2060", "x"), "name .* holds no visible character"),
        (metadata("x", "\x01\u200b"), "value .* holds no visible character"),
        ({"do": "title", "title": "\u200b"}, "title .* holds no visible character"),
    ],
)
def test_a_text_that_no_one_sees_is_refused(edit, reason):
    with pytest.raises(StoreError, match=reason):
        check_correction(record(), [], correction(0, edit))


@pytest.mark.parametrize(
    "edit",
    [
        *(tag(text) for text in ("", " ", "x" * 61)),
        *(metadata(name, "x") for name in ("", "x" * 61)),
        *(metadata("x", value) for value in ("x" * 301, " ")),
        {"do": "title", "title": "x" * 201},
    ],
)
def test_a_text_that_is_empty_or_too_long_is_not_an_edit(edit):
    with pytest.raises(ValueError, match="string_too_long|string_pattern_mismatch"):
        correction(0, edit)


def test_a_video_has_some_tags_and_names_and_no_more():
    tags = [tag(f"tag {number}") for number in range(MAX_TAGS + 1)]
    names = [metadata(f"name {number}", "x") for number in range(MAX_METADATA + 1)]
    check_correction(record(), [], correction(0, *tags[1:], *names[1:]))
    with pytest.raises(StoreError, match="at most 30 tags; remove one first"):
        check_correction(record(), [], correction(0, *tags))
    with pytest.raises(StoreError, match="at most 30 names of metadata; remove one first"):
        check_correction(record(), [], correction(0, *names))


def test_different_tags_and_names_never_clash_and_the_same_do():
    first = correction(0, tag("Safety"), metadata("Course", "A1"))
    check_correction(record(), [first], correction(1, tag("Forklift"), base=0, by="bob"))
    check_correction(record(), [first], correction(1, metadata("Owner", "x"), base=0, by="bob"))
    with pytest.raises(ConflictError, match="ann has changed tag safety since you read it"):
        check_correction(record(), [first], correction(1, untag("SAFETY"), base=0, by="bob"))
    with pytest.raises(ConflictError, match="ann has changed metadata course since you read it"):
        other = correction(1, metadata("course", "B2"), base=0, by="bob")
        check_correction(record(), [first], other)


def test_an_undo_brings_tags_and_metadata_back_and_only_corrections_of_steps_are_of_steps():
    corrections = [
        correction(0, tag("Safety"), metadata("Course", "A1")),
        correction(1, untag("Safety"), metadata("Course", None)),
        correction(2, undoes="c1"),
    ]
    video = apply_corrections(record(), corrections).record.video
    assert (video.tags, video.metadata) == (("Safety",), {"Course": "A1"})
    assert not any(map(corrects_steps, corrections))
    change = correction(0, tag("x"), {"do": "change", "step": "a", "text": "Cut them"})
    assert corrects_steps(change)
    assert first_undone(correction(1, undoes="c0"), {"c0": change}) is change


LABELS = st.sampled_from(["Safety", "safety", "Forklift"])
VIDEO_EDITS = st.one_of(
    LABELS.map(tag),
    LABELS.map(untag),
    st.tuples(LABELS, st.sampled_from(["A1", "B2", None])).map(lambda pair: metadata(*pair)),
    LABELS.map(lambda title: {"do": "title", "title": title}),
)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(first=VIDEO_EDITS, second=VIDEO_EDITS)
def test_edits_of_two_people_clash_or_give_one_result_in_either_order(first, second):
    one, other = correction(0, first), correction(1, second, base=0, by="bob")
    try:
        check_correction(record(), [one], other)
    except ConflictError:
        return
    assert apply_corrections(record(), [one, other]) == apply_corrections(record(), [other, one])


def test_a_record_keeps_tags_and_metadata_in_json_and_one_without_looks_as_before():
    video = video_after(tag("Safety"), metadata("Course", "A1"))
    labelled = record().model_copy(update={"video": video})
    assert from_json(to_json(labelled)) == labelled
    assert '"tags"' not in to_json(record())
    assert '"metadata"' not in to_json(record())


@pytest.fixture
def library(tmp_path):
    write_record(record(), tmp_path / "v0.json")
    library = CorrectedLibrary(tmp_path)
    yield library
    library.close()


LABELLING = ({"do": "title", "title": "Pink"}, tag("Safety"), metadata("Course", "A1"))


def test_labels_outlive_a_record_that_is_made_again_whose_steps_are_the_new_ones(library):
    library.correct(ID, correction(0, *LABELLING))
    assert library.card(ID).state == "new"
    write_record(record("Squeeze the lemons", title="Other"), library.folder / "v0.json")
    both = library.corrected(ID).record
    assert both.steps[0].text == "Squeeze the lemons"
    assert (both.video.title, both.video.tags) == ("Pink", ("Safety",))
    (card,) = library.videos()
    assert (card.title, card.tags, card.metadata) == ("Pink", ("Safety",), {"Course": "A1"})
    assert read_record(library.folder / "v0.json").video.title == "Other"


def test_corrected_steps_stay_of_their_record_with_labels_before_and_after(library):
    change = {"do": "change", "step": "a", "text": "Cut them"}
    library.correct(ID, correction(0, *LABELLING))
    write_record(record("Squeeze the lemons"), library.folder / "v0.json")
    library.correct(ID, correction(1, change))
    assert library.card(ID).state == "corrected"
    write_record(record("Throw them away"), library.folder / "v0.json")
    library.correct(ID, correction(2, untag("Safety")))
    current = library.current(ID)
    assert current.machine_record.steps[0].text == "Squeeze the lemons"
    assert current.corrected.record.steps[0].text == "Cut them"
    assert current.corrected.record.video.tags == ()
    # Once they are undone, the file's steps are the present ones, of which no undone one is.
    library.correct(ID, correction(3, undoes="c1"))
    assert library.record(ID).steps[0].text == "Throw them away"
    with pytest.raises(StoreError, match="processed again"):
        library.correct(ID, correction(4, undoes="c3"))
    library.correct(ID, correction(4, undoes="c2"))
    library.correct(ID, correction(5, change))
    write_record(record("Squeeze the lemons"), library.folder / "v0.json")
    assert library.record(ID).steps[0].text == "Throw them away"
    assert library.corrected(ID).record.video.tags == ("Safety",)


def test_only_corrections_of_steps_that_stand_are_counted(library):
    def state():
        card = library.card(ID)
        assert library.videos() == [card]
        assert library.count_step_corrections(["v0.json"]) == card.corrections
        return card.state, card.corrections, card.revision

    change = {"do": "change", "step": "a", "text": "Cut them"}
    library.correct(ID, correction(0, *LABELLING))
    assert state() == ("new", 0, 1)
    library.correct(ID, correction(1, change))
    assert state() == ("corrected", 1, 2)
    library.correct(ID, correction(2, undoes="c1"))
    assert state() == ("new", 0, 3)
    with pytest.raises(DatasetError, match="no corrected video"):
        export_corrected(library, library.folder / "out", None)
    library.correct(ID, correction(3, undoes="c2"))  # a redo
    assert state() == ("corrected", 1, 4)


def test_two_processes_label_and_correct_one_video(library):
    other = CorrectedLibrary(library.folder)
    library.correct(ID, correction(0, tag("Safety")))
    other.correct(ID, correction(1, {"do": "change", "step": "a", "text": "Cut them"}))
    library.correct(ID, correction(2, tag("Forklift")))
    for each in (library, other):
        record = each.corrected(ID).record
        assert (record.steps[0].text, record.video.tags) == ("Cut them", ("Forklift", "Safety"))
    other.close()
