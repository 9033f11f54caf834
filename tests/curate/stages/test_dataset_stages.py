"""The stages over the whole dataset: gathering, videos that came before, swapping, training and
placing for good."""

import json
from dataclasses import replace

import numpy as np
import pytest
from curate_cells import gathered, record, transcript
from file_bytes import file_bytes

from stepline.curate.stage import Recipe, StageFailure, VideoItem, reject_video
from stepline.curate.stages import gather, train
from stepline.curate.stages.intermediate import (
    CoarseSteps,
    GroundedSteps,
    JudgedTranscript,
    ProbeResult,
    dump_result,
    pack_arrays,
    pack_features,
)
from stepline.errors import DatasetError, SettingsError, StoreError
from stepline.features import FeatureStore
from stepline.pipeline.pictures import VisualFeatures
from stepline.pipeline.speech import Speech
from stepline.records import FeatureSequence, Span, Step
from stepline.settings import load_settings
from stepline.sieve_swap.text_base import build_base
from stepline.storage import read_parquet

STAGES = ("probe", "transcribe", "encode", "coarse", "ground", "judge")
THINGS = ("onion", "carrot", "potato", "tomato", "pepper", "lemon")
SMALL = [
    f"{stage}.{setting}"
    for stage in ("train", "refine")
    for setting in (
        "model.width=16 model.heads=2 model.encoder_layers=1 model.decoder_layers=1 "
        "model.feed_forward=16 model.projection=8 train.epochs=1"
    ).split()
]


def recipe(*more):
    listed = str(list(STAGES)).replace("'", '"')
    settings = [f"stages={listed}", *SMALL, "refine.rounds.teacher_epochs=1", *more]
    return load_settings(Recipe, None, settings)


def cells(number):
    """A video of 12 s in which two steps are told and shown, no two videos alike."""
    rng = np.random.default_rng(number)
    thing = THINGS[number % len(THINGS)]
    said = transcript(f"Chop the {thing} {number} now.", f"Then fry the {thing} in pan {number}.")
    steps = tuple(
        Step(id=str(n + 1), text=f"{verb} the {thing}", said=said.sentences[n].span, sources=(n,))
        for n, verb in enumerate(("chop", "fry"))
    )
    update = {"spans": (Span(1.0, 4.0),), "status": "placed", "score": 0.7}
    shown = tuple(step.model_copy(update=update) for step in steps)
    values = rng.standard_normal((12, 24)).astype(np.float32)
    probe = ProbeResult(duration=12.0, picture=True, sound=True, digest=f"digest {number}")
    coarse = CoarseSteps(duration=12.0, transcript=said, steps=steps, warnings=("dark",))
    grounded = GroundedSteps(steps=shown, kind="probability")
    return {
        "probe": dump_result(probe),
        "transcribe": dump_result(Speech(transcript=said)),
        "encode": pack_features(VisualFeatures(FeatureSequence(values, 1.0, "conse"), end=12.0)),
        "coarse": dump_result(coarse),
        "ground": pack_arrays(grounded, {"scores": np.full((2, 12), 0.1, np.float32)}),
        "judge": dump_result(JudgedTranscript(transcript=said, judge="grounding")),
    }


def over(folder, settings, count=6, names="video {}", wide=(), **more):
    """Return what `gather` gets; the last video is a copy of the first. wide: videos whose
    features have another width."""
    rows = [cells(number) for number in range(count)]
    rows.append(rows[0])
    items = [
        VideoItem(names.format(number), title=f"Title {number}", task="frying")
        for number in range(count + 1)
    ]
    for number in wide:
        features = FeatureSequence(np.ones((12, 25), dtype=np.float32), 1.0, "conse")
        rows[number]["encode"] = pack_features(VisualFeatures(features, end=12.0))

    def results(stage):
        yield from ((item, row[stage]) for item, row in zip(items, rows, strict=True))

    return replace(gathered(folder, settings, {}), items=items, results=results, **more)


def test_records_and_features_are_gathered_and_what_came_before_is_left_out(tmp_path):
    failures = {"broken": StageFailure("broken", "probe", "error", "no picture")}
    refused = (reject_video("unwanted", "it is in another category"),)
    for name in ("gather", "again"):
        gather.run_gather(over(tmp_path / name, recipe(), failures=failures, refused=refused))
    records = list(read_parquet(tmp_path / "gather" / gather.RECORDS_FILE))
    ids = [f"video {number}" for number in range(6)]
    assert [one.id for one in records] == ids
    first = records[0]
    video = first.video
    assert (video.title, video.task, video.duration) == ("Title 0", "frying", 12.0)
    assert video.path is None  # of this machine; what publishes it knows where it lies
    assert [step.status for step in first.steps] == ["placed", "placed"]
    assert (first.models["judge"], first.models["vision"]) == ("grounding", "conse")
    assert first.warnings == ("dark",)
    assert sorted(FeatureStore(tmp_path / "gather" / gather.FEATURES_FOLDER)) == ids
    left_out = gather.read_stage_failures(tmp_path / "gather")
    assert {id: (one.stage, one.reason) for id, one in left_out.items()} == {
        "broken": ("probe", "no picture"),
        "unwanted": ("source", "it is in another category"),
        "video 6": ("gather", "it is a copy of video 0"),
    }
    files = file_bytes(tmp_path / "gather")
    assert len(files) == 4
    assert files == file_bytes(tmp_path / "again")


def test_features_that_fit_no_store_are_left_out_of_it_and_the_record_says_so(
    tmp_path, monkeypatch
):
    said = []
    monkeypatch.setattr(gather, "UNCALIBRATED_NOTE", "dark")  # a warning of these records
    placed = recipe("steps.nasva.aligner.path=network")
    gather.run_gather(over(tmp_path / "a", placed, count=2, names="a/{}", say=said.append))
    assert said[0] == "dark"
    (first, _) = read_parquet(tmp_path / "a" / gather.RECORDS_FILE)
    assert first.warnings[-1] == "its features are left out: its id is not a plain name 'a/0'"
    gather.run_gather(over(tmp_path / "b", recipe(), count=2, wide=[1]))
    first, second = read_parquet(tmp_path / "b" / gather.RECORDS_FILE)
    assert first.warnings[-1] == "dark"
    assert second.warnings[-1].startswith("its features are left out: ")
    assert sorted(FeatureStore(tmp_path / "b" / gather.FEATURES_FOLDER)) == ["video 0"]


def test_networks_are_trained_and_place_the_steps_for_good_the_same_each_time(tmp_path):
    settings = recipe(
        "place.shown_rate=0.5", "train.data.step_place=said", "refine.rounds.refine.agree=12.0"
    )
    gather.run_gather(over(tmp_path / "gather", settings, count=20))
    told = []
    for name in ("one", "two"):
        given = {"gather": tmp_path / "gather"}
        train.run_train(gathered(tmp_path / name / "train", settings, given))
        train.run_refine(
            replace(gathered(tmp_path / name / "refine", settings, given), say=told.append)
        )
    assert (tmp_path / "one/train/run/aligner.safetensors").is_file()
    assert "50% of the steps count as shown" in told
    records = list(read_parquet(tmp_path / "one/refine" / gather.RECORDS_FILE))
    assert len(records) == 20
    for refined in records:
        # One whose P(shown) is neither high nor low is placed, with a doubt.
        for step in refined.steps:
            assert bool(step.spans) == (step.status in ("seen", "placed"))
            assert (step.status == "placed") == (step.doubt is not None)
        assert refined.models["placing"] == {"network": "self-trained", "calibrated": True}
    network = "run/aligner.safetensors"
    rest = (f"refine/{name}" for name in (gather.RECORDS_FILE, gather.STAGE_FAILURES_FILE, network))
    for name in (f"train/{network}", *rest):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_training_on_no_video_and_swapping_without_a_base_say_so(tmp_path):
    settings = recipe()
    gather.run_gather(gathered(tmp_path / "gather", settings, {}))
    with pytest.raises(DatasetError, match="no video with features is left to train on"):
        train.run_train(gathered(tmp_path / "train", settings, {"gather": tmp_path / "gather"}))
    with pytest.raises(SettingsError, match="sieve_swap.base is not set"):
        train.run_sieve_swap(gathered(tmp_path / "swap", Recipe(), {"gather": tmp_path}))


def test_reasons_are_read_again_and_a_damaged_list_of_them_is_reported(tmp_path):
    # with line breaks of Unicode's own
    lost = {"a": StageFailure("a", "source", "left out", "its title is 'one\u2028two\x85'")}
    gather.write_dataset(tmp_path, [], lost)
    assert gather.read_stage_failures(tmp_path) == lost
    (tmp_path / gather.STAGE_FAILURES_FILE).write_text("{]\n")
    with pytest.raises(StoreError, match="not written by Stepline"):
        gather.read_stage_failures(tmp_path)


ONIONS = "today we chop three onions and fry them slowly in a deep pan with butter until they are soft and golden"
PAINT = "sand the board along its grain then brush on two thin coats of varnish and let them dry over night"


def signature(finder, id, text, duration=20.0):
    return gather.VideoSignature(id, duration, f"digest {id}", finder.minhash(transcript(text)))


def test_a_copy_or_the_same_speech_is_one_video_and_the_first_is_kept():
    finder = gather.DuplicateFinder(0.9)
    first = signature(finder, "a", ONIONS)
    assert finder.find_duplicate_reason(first) is None
    copy = replace(signature(finder, "b", PAINT), digest=first.digest)
    assert finder.find_duplicate_reason(copy) == "it is a copy of a"
    again = signature(finder, "b", ONIONS, 20.2)
    assert finder.find_duplicate_reason(again) == "it says the same as a"
    assert finder.find_duplicate_reason(signature(finder, "c", ONIONS, 40.0)) is None
    assert finder.find_duplicate_reason(signature(finder, "d", PAINT)) is None
    assert finder.minhash(transcript("hm")) is None
    finder = gather.DuplicateFinder(1.0)  # copies alone
    videos = [signature(finder, id, ONIONS) for id in "ab"]
    assert [finder.find_duplicate_reason(video) for video in videos] == [None, None]


STEPS = ["Peel two cloves of garlic.", "Rub the toast with garlic.", "Drizzle with olive oil."]
TOAST = {"id": "toast", "title": "Garlic toast", "licence": "CC0", "steps": STEPS}
SAID = (
    "hello dear friends",
    "peel two cloves of garlic",
    "rub the toast with the garlic",
    "thanks for watching",
)


def test_narrations_become_written_steps_and_a_video_without_a_document_is_left_out(tmp_path):
    (tmp_path / "toast.json").write_text(json.dumps([TOAST]))
    build_base([tmp_path / "toast.json"], tmp_path / "base")
    base = json.dumps(str(tmp_path / "base"))
    settings = [f"sieve_swap.base={base}", "sieve_swap.pairing.smallest_category=1"]
    recipe = load_settings(Recipe, None, settings)
    videos = [
        one.model_copy(update={"video": one.video.model_copy(update={"title": title})})
        for one, title in (
            (record("a", said=transcript(*SAID)), "Easy garlic toast"),
            (record("b", said=transcript("hammer the nail")), "Fix a roof"),
            (record("c", said=transcript(*SAID)), "More garlic toast"),
        )
    ]
    (tmp_path / "gather").mkdir()
    gather.write_dataset(tmp_path / "gather", videos, {})
    train.run_sieve_swap(gathered(tmp_path / "swap", recipe, {"gather": tmp_path / "gather"}))
    made, again = read_parquet(tmp_path / "swap" / gather.RECORDS_FILE)
    assert (made.id, again.id) == ("a", "c")
    assert [(step.text, step.licence) for step in made.steps] == [(one, "CC0") for one in STEPS[:2]]
    assert gather.read_stage_failures(tmp_path / "swap")["b"].reason == "no document goes with it"
