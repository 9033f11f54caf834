"""Which steps, sentences and videos the stages over the dataset keep."""

from dataclasses import replace

import pytest
from curate_cells import gathered, record, transcript

from stepline.curate.settings import CleanSettings, VisibleSettings
from stepline.curate.stage import Recipe, StageFailure
from stepline.curate.stages import clean
from stepline.curate.stages.gather import RECORDS_FILE, read_stage_failures, write_dataset
from stepline.models.nasva.predict import NOT_CALIBRATED
from stepline.records import Span, Step
from stepline.storage import read_parquet

PLACED = {"spans": (Span(0.0, 4.0),), "status": "placed", "score": 0.9, "sources": (0,)}
SHOWN = Step(id="1", text="chop the onion", **PLACED)
SETTINGS = CleanSettings(written=0.5, supported=0.4, shown=0.5, placed=0.3)


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        (clean.StepScores(0.9, 0.8, 0.9, 0.5), None),
        (clean.StepScores(0.4, 0.8, 0.9, 0.5), clean.NO_STEP_WORDING),
        (clean.StepScores(0.9, 0.3, 0.9, 0.5), clean.NO_SUPPORT),
        (clean.StepScores(0.9, 0.8, 0.4, 0.5), clean.NOT_SHOWN),
        (clean.StepScores(0.9, 0.8, 0.9, 0.2), clean.PLACED_APART),
    ],
)
def test_a_step_goes_for_the_first_of_four_reasons(known, reason):
    assert clean.drop_reason(SHOWN, known, SETTINGS) == reason
    said = SHOWN.model_copy(update={"status": "said_only", "spans": ()})
    assert (
        clean.drop_reason(said, clean.StepScores(0.9, 0.8, 0.9, 1.0), SETTINGS) == clean.NOT_SHOWN
    )


def test_four_readers_judge_the_steps_of_a_record():
    said = transcript("Chop the onion into small pieces.", "My grandmother loved her garden.")
    update = {"id": "2", "text": "grandmother loved her garden", "sources": (1,)}
    idle = SHOWN.model_copy(update=update)
    unsaid = SHOWN.model_copy(update={"id": "3", "text": "pump up the tire"})
    steps = (SHOWN, idle, unsaid)
    made = clean.clean_record(record("a", *steps, said=said), steps, SETTINGS)
    assert [step.id for step in made.steps] == ["1"]
    assert [one.reason for one in made.dropped] == [clean.NO_STEP_WORDING, clean.NO_SUPPORT]
    longer = SHOWN.model_copy(update={"spans": (Span(0.0, 5.0),)})
    (kept,) = clean.clean_record(record("a", SHOWN, said=said), (longer,), SETTINGS).steps
    assert kept.spans == (Span(0.0, 5.0),)
    network = SETTINGS.model_copy(update={"spans": "network"})
    assert clean.clean_record(record("a", SHOWN, said=said), (longer,), network).steps == (SHOWN,)
    apart = SHOWN.model_copy(update={"spans": (Span(20.0, 24.0),)})
    astray = clean.clean_record(record("a", SHOWN, said=said), (apart,), SETTINGS)
    assert [one.reason for one in astray.dropped] == [clean.PLACED_APART]
    (known,) = clean.score_steps(record("a", SHOWN.model_copy(update={"sources": ()})), ())
    assert (known.support, known.agreement) == (0.0, 1.0)  # nobody else placed it


def test_a_video_without_a_clean_step_is_left_out_next_to_those_before(tmp_path):
    said = transcript("Chop the onion.")
    unseen = SHOWN.model_copy(update={"status": "said_only", "spans": ()})
    records = [record("a", SHOWN, said=said), record("b", unseen, said=said)]
    (tmp_path / "gather").mkdir()
    before = {"c": StageFailure("c", "filter", "left out", "it is too short")}
    write_dataset(tmp_path / "gather", records, before)
    clean.run_clean(gathered(tmp_path / "clean", Recipe(), {"gather": tmp_path / "gather"}))
    assert [one.id for one in read_parquet(tmp_path / "clean" / RECORDS_FILE)] == ["a"]
    left_out = read_stage_failures(tmp_path / "clean")
    reasons = {id: one.reason for id, one in left_out.items()}
    assert reasons == {"b": clean.TOO_FEW_STEPS, "c": "it is too short"}


def test_sentences_that_are_shown_become_steps_and_the_others_are_dropped(tmp_path):
    said = transcript("Chop the onion.", "I love this kitchen.")
    pairs = zip(said.sentences, (0.8, 0.2), strict=True)
    sentences = tuple(one.model_copy(update={"shown": p}) for one, p in pairs)
    judged = record("a", said=said.model_copy(update={"sentences": sentences}))
    made = clean.select_shown_sentences(judged, VisibleSettings(shown=0.5))
    (step,) = made.steps
    assert (step.text, step.spans, step.score) == ("Chop the onion.", (Span(0.0, 4.0),), 0.8)
    assert [one.text for one in made.dropped] == ["I love this kitchen."]
    (tmp_path / "gather").mkdir()
    write_dataset(tmp_path / "gather", [judged, record("b", said=said)], {})
    clean.run_visible(gathered(tmp_path / "visible", Recipe(), {"gather": tmp_path / "gather"}))
    assert [one.id for one in read_parquet(tmp_path / "visible" / RECORDS_FILE)] == ["a"]
    reason = read_stage_failures(tmp_path / "visible")["b"].reason
    assert reason == "no step found in 2 sentences"


def test_without_a_detector_no_reason_and_no_message_is_about_the_picture(tmp_path):
    told = record("a", SHOWN, said=transcript("Chop the onion.", "I love this kitchen."))
    doubtful = SHOWN.model_copy(update={"doubt": "the speech is a talk"})
    (tmp_path / "gather").mkdir()
    unsure = SHOWN.model_copy(update={"doubt": NOT_CALIBRATED})
    records = [told, record("b", doubtful), record("c", unsure)]
    write_dataset(tmp_path / "gather", records, {})
    messages = []
    dataset = gathered(tmp_path / "visible", Recipe(), {"gather": tmp_path / "gather"})
    clean.run_visible(replace(dataset, say=messages.append))
    (kept,) = read_parquet(tmp_path / "visible" / RECORDS_FILE)
    assert [(step.text, step.status) for step in kept.steps] == [("Chop the onion.", "placed")]
    assert [(one.text, one.reason) for one in kept.dropped] == [
        ("I love this kitchen.", "no placed step without a doubt rests on it")
    ]
    left_out = read_stage_failures(tmp_path / "visible")
    assert left_out["b"].reason == "no placed step without a doubt rests on its sentences"
    assert (
        f"each is {NOT_CALIBRATED}; `stepline train calibrate` with ht-step or crosstask fits"
        in left_out["c"].reason
    )
    assert messages == ["1 narrations with a step (nothing judged the picture) in 1 videos"]


@pytest.mark.parametrize(
    ("run", "reader"),
    [(clean.run_clean, "preceding_stage_records"), (clean.run_visible, "read_parquet")],
)
def test_records_are_written_one_at_a_time(run, reader, tmp_path, monkeypatch):
    said = transcript("Chop the onion.")
    (tmp_path / "gather").mkdir()
    write_dataset(tmp_path / "gather", [record(id, SHOWN, said=said) for id in "abc"], {})
    read, written = [], []

    def read_and_note(_):
        for one in read_parquet(tmp_path / "gather" / RECORDS_FILE):
            read.append(one.id)
            yield one

    def write(_, records, __):
        for one in records:
            written.append(one.id)
            assert read == written
        return len(written)

    monkeypatch.setattr(clean, reader, read_and_note)
    monkeypatch.setattr(clean, "write_dataset", write)
    run(gathered(tmp_path / "out", Recipe(), {"gather": tmp_path / "gather"}))
    assert written == [*"abc"]


@pytest.mark.parametrize(("further", "end"), [((), 14.0), (("sieve-swap",), 4.0)])
def test_steps_that_were_swapped_are_no_longer_those_of_the_grounding(further, end, tmp_path):
    said = transcript("Chop the onion.")
    other = SHOWN.model_copy(update={"spans": (Span(0.0, 14.0),)})
    for name, step in (("gather", other), ("refine", SHOWN)):
        (tmp_path / name).mkdir()
        write_dataset(tmp_path / name, [record("a", step, said=said)], {})
    folders = {name: tmp_path / name for name in ("gather", "refine")}
    folders |= dict.fromkeys(further, tmp_path / "refine")
    recipe = Recipe(stages=("ground",), clean=CleanSettings(placed=0.2))
    clean.run_clean(gathered(tmp_path / "clean", recipe, folders))
    (kept,) = read_parquet(tmp_path / "clean" / RECORDS_FILE)
    assert kept.steps[0].spans == (Span(0.0, end),)
