"""`stepline refine` on a tiny simulated dataset on disk: records and stores in, placed records and
a network out."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from option_words import option_words
from simulated_stores import write_simulated
from transcripts import transcript_of

from lab.simulate import SimulationSettings, simulate
from stepline.cli import main
from stepline.cli.options import PRESETS_FOLDER
from stepline.errors import DatasetError, SettingsError, ShapeError
from stepline.features import FeatureStore, FeatureWriter, RowTexts
from stepline.grounding.settings import CoarseSettings
from stepline.models.nasva import refine
from stepline.models.nasva.checkpoint import load_aligner, read_aligner
from stepline.models.nasva.refine import (
    NO_LABEL_REASON,
    RefineSources,
    _VideoReader,
    make_refined_records,
    refine_dataset,
)
from stepline.models.nasva.settings import AlignerDataSettings, RefineRunSettings
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.settings import load_settings
from stepline.storage import read_parquet, write_parquet

SMALL = (
    "model.width=32 model.heads=2 model.encoder_layers=1 model.decoder_layers=1 "
    "model.feed_forward=64 model.projection=16 train.epochs=2 train.learning_rate=2e-3 "
    "rounds.teacher_epochs=1 rounds.teachers=1"
).split()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Records of 12 videos, and stores of the features and step vectors of all but the last."""
    return write_simulated(tmp_path_factory.mktemp("dataset"), 12, without_features=1)


def command(dataset, out, *more):
    sources = option_words(features=dataset / "features", step_vectors=dataset / "steps", out=out)
    given = [part for pair in SMALL for part in ("--set", pair)]
    return ["refine", str(dataset / "records.parquet"), *map(str, sources), *given, *more]


def test_the_command_places_steps_and_a_rerun_does_nothing_again(dataset, tmp_path):
    out = tmp_path / "out"
    first = CliRunner().invoke(main, command(dataset, out, "--json"), catch_exceptions=False)
    assert first.exit_code == 0, first.stderr
    told = json.loads(first.stdout)
    assert [one["number"] for one in told["rounds"]] == [0, 1]
    assert "11 videos refined, 1 left out" in first.stderr
    assert "there are no features of its video" in first.stderr
    refined = list(read_parquet(out / "refined.parquet"))
    given = {record.id: record for record in read_parquet(dataset / "records.parquet")}
    assert len(refined) == 11
    for record in refined:
        assert len(record.steps) == len(given[record.id].steps)  # nothing is dropped by default
        assert {step.status for step in record.steps} == {"seen"}
        assert all(0 < step.spans[0].duration <= 8.0 for step in record.steps)
        assert record.transcript == given[record.id].transcript
    assert read_aligner(out / "aligner.safetensors").settings.video_width == 128
    assert load_aligner(out / "aligner.safetensors").space.video == "world-usual"
    teacher = out / "round-0" / "teacher-0.safetensors"
    before = teacher.stat().st_mtime_ns
    again = CliRunner().invoke(main, command(dataset, out), catch_exceptions=False)
    assert again.exit_code == 0
    assert teacher.stat().st_mtime_ns == before
    assert "aligner:" not in again.stderr
    assert again.stdout.splitlines()[0].split() == ["round", "texts", "kept", "moved", "iou"]


def test_narrations_are_learnt_next_to_the_steps(dataset, tmp_path):
    samples = simulate(0, SimulationSettings(videos=12, held_out=0.0)).videos
    with FeatureWriter(tmp_path / "said") as said:
        for sample in samples:
            lines = RowTexts(tuple(one.text for one in sample.record.transcript.sentences))
            rows = sample.vectors("narration")
            said.add(sample.id, rows, rate=1.0, backbone="world", texts=lines)
    records = str(dataset / "records.parquet")
    vectors = (str(dataset / "steps"), records, str(tmp_path / "said"))
    steps = {}

    def note(name, told):
        steps[name] = told.step_count

    settings = load_settings(RefineRunSettings, None, [*SMALL, "rounds.rounds=0"])
    sources = RefineSources(records, dataset / "features", *vectors)
    refine_dataset(sources, tmp_path / "out", settings, note)
    assert steps == {"aligner": 2 * 3}  # 22 samples in batches of 8, 2 epochs


def test_narrations_of_another_encoder_are_refused_before_any_training(dataset, tmp_path):
    with FeatureWriter(tmp_path / "said") as said:
        vectors = np.ones((2, 5), dtype=np.float32)
        lines = RowTexts(("Chop.", "Boil."), (1.0, 4.0), (3.0, 6.0))
        id = next(iter(FeatureStore(dataset / "features")))
        said.add(id, vectors, rate=1.0, backbone="minilm", texts=lines)
    told, records = [], str(dataset / "records.parquet")
    texts = (str(dataset / "steps"), str(tmp_path / "said"))
    sources = RefineSources(records, dataset / "features", *texts)
    with pytest.raises(ShapeError, match="of 'minilm', 5 wide, the steps' of 'world', 128 wide"):
        refine_dataset(sources, tmp_path / "out", progress=lambda *given: told.append(given))
    assert told == []


def test_evaluation_videos_are_in_no_round(dataset, tmp_path):
    barred = sorted(FeatureStore(dataset / "features"))[:2]
    (tmp_path / "excluded.txt").write_text("".join(f"{id}\tht-step\n" for id in barred))
    exclude, out = ("--exclude", str(tmp_path / "excluded.txt")), tmp_path / "out"
    done = CliRunner().invoke(main, command(dataset, out, *exclude))
    assert done.exit_code == 0, done.stderr
    refined = {record.video.id for record in read_parquet(out / "refined.parquet")}
    assert refined.isdisjoint(barred)
    told = [json.loads(line) for line in (out / "omitted.jsonl").read_text().splitlines()]
    assert {one["video"] for one in told if one["reason"] == "it is excluded"} == set(barred)


def said_spans(record, seconds, settings=None):
    """Where each step of a record is said, in a video of so many seconds."""
    reader = _VideoReader(None, None, settings or RefineRunSettings())
    return reader._get_said_spans(record, seconds)


def test_steps_are_linked_to_the_narration_by_the_text_encoder_that_is_named(monkeypatch, dataset):
    """NaSVA, sections 3.1 and 3.2: g is the backbone's own text encoder."""
    loaded = []

    def load(name):
        """Return an encoder: one direction per last word, of length 3 but for MiniLM."""
        loaded.append(name)
        words = ["onion", "rice"]
        rows = np.eye(2, dtype=np.float32) * np.float32(1.0 if name == "minilm" else 3.0)
        return lambda texts: rows[[words.index(text.split()[-1]) for text in texts]]

    monkeypatch.setattr(refine, "load_text_encoder", load)
    steps = (Step(id="0", text="boil rice"), Step(id="1", text="chop the onion"))
    sentences = (
        Sentence(text="now the onion", span=Span(2.0, 4.0)),
        Sentence(text="and rice", span=Span(8.0, 9.0)),
    )
    record = Record(
        id="v", video=Video(id="v"), steps=steps, transcript=Transcript(sentences=sentences)
    )

    def link(step_vectors="minilm", vectors=None, **coarse):
        settings = RefineRunSettings(said="likeness", coarse=CoarseSettings(**coarse))
        reader = _VideoReader(None, vectors, settings, frozenset(), step_vectors)
        return reader._get_said_spans(record, 10.0)

    # Scores are at most 1 also where an encoder's vectors are longer, so the places are the same.
    expected = link()
    assert expected[0].start == 8.0
    assert expected[1].start == 2.0
    assert link(encoder="internvideo:w.ckpt") == expected
    assert link("clip:folder", encoder="backbone") == expected
    assert loaded == ["minilm", "internvideo:w.ckpt", "clip:folder"]
    # A store of vectors names its backbone, and no weights.
    store = str(dataset / "steps")
    assert link(store, SimpleNamespace(backbone="world"), encoder="backbone") == expected
    assert loaded[-1] == "minilm"
    with pytest.raises(SettingsError, match=r"set coarse.encoder=internvideo:WEIGHTS, or minilm"):
        link(store, SimpleNamespace(backbone="internvideo"), encoder="backbone")
    paper = load_settings(RefineRunSettings, preset=PRESETS_FOLDER / "refine" / "paper.toml")
    assert paper.coarse.encoder == "backbone"


def test_a_dataset_that_gives_only_spans_has_its_first_labels_there():
    steps = (
        Step(id="1", text="Boil", spans=(Span(3.0, 5.0), Span(8.0, 9.0))),
        Step(id="2", text="Stir"),
    )
    record = Record(id="a", video=Video(id="a"), steps=steps)
    assert said_spans(record, 12.0) == (Span(3.0, 5.0), None)


def test_such_a_dataset_has_no_narration_to_be_like():
    """The paper's preset asks for likeness; HowToStep as released holds steps and no transcript."""
    record = Record(
        id="v", video=Video(id="v"), steps=(Step(id="0", text="cut it", spans=(Span(2.0, 4.0),)),)
    )
    settings = RefineRunSettings(said="likeness")
    assert said_spans(record, 10.0, settings) == (Span(2.0, 4.0),)


def test_steps_without_a_place_are_linked_to_the_narration():
    spoken = {"Chop the onion now.": Span(2.0, 4.0), "Boil rice.": Span(8.0, 9.0)}
    sentences = tuple(Sentence(text=text, span=span) for text, span in spoken.items())
    steps = (Step(id="1", text="Boil the rice"), Step(id="2", text="Chop the onion"))
    record = Record(
        id="a",
        video=Video(id="a", duration=12.0),
        transcript=Transcript(sentences=sentences),
        steps=steps,
    )
    said = said_spans(record, 12.0)
    assert said == (Span(8.0, 9.0), Span(2.0, 4.0))
    assert said_spans(record, 5.0) == (None, Span(2.0, 4.0))


def test_the_line_model_links_steps_in_their_order_where_it_is_asked_for():
    spoken = (
        "We boil the rice.",
        "That comes much later in this video.",
        "So now chop the onion into small pieces.",
        "And then you can boil the rice in the big pan.",
    )
    record = Record(
        id="a",
        video=Video(id="a", duration=16.0),
        transcript=transcript_of(*spoken, every=4.0, seconds=3.0),
        steps=(Step(id="1", text="Chop the onion"), Step(id="2", text="Boil the rice")),
    )
    settings = RefineRunSettings(coarse=CoarseSettings(matching="line-model"))
    by_likeness = said_spans(record, 16.0)
    in_order = said_spans(record, 16.0, settings)
    assert by_likeness == (Span(8.0, 11.0), Span(0.0, 3.0))
    assert in_order == (Span(8.0, 11.0), Span(12.0, 15.0))


def test_a_dataset_without_features_is_an_error(dataset, tmp_path):
    strange = Record(id="a", video=Video(id="a"), steps=(Step(id="1", text="Boil"),))
    write_parquet([strange], tmp_path / "other.parquet")
    sources = RefineSources(
        str(tmp_path / "other.parquet"), dataset / "features", str(dataset / "steps")
    )
    with pytest.raises(ShapeError, match="no video has steps and features"):
        refine_dataset(sources, tmp_path / "out")
    assert "no features of its video" in (tmp_path / "out" / "omitted.jsonl").read_text()


def test_what_loses_its_label_is_dropped_with_its_reason():
    steps = (Step(id="1", text="Boil"), Step(id="2", text="Stir"))
    record = Record(id="r", video=Video(id="a"), steps=steps)
    given = iter([record, record, Record(id="o", video=Video(id="b"))])
    (done,) = make_refined_records(given, {"a": (None, Span(1.0, 2.0))})
    assert [(step.id, step.spans) for step in done.steps] == [("2", (Span(1.0, 2.0),))]
    assert [(one.text, one.reason) for one in done.dropped] == [("Boil", NO_LABEL_REASON)]


def test_a_data_set_whose_steps_people_placed_is_refused_by_that_name(tmp_path):
    reference = tmp_path / "yc2.json"
    reference.write_text("{}")
    sources = RefineSources(f"youcook2:{reference}", tmp_path)
    with pytest.raises(
        DatasetError, match="people placed its steps already; `stepline train nasva`"
    ):
        refine_dataset(sources, tmp_path / "out")


def test_videos_that_are_to_be_held_out_are_refused_as_no_network_is_chosen_by_them(tmp_path):
    settings = RefineRunSettings(data=AlignerDataSettings(held_out=0.1))
    with pytest.raises(SettingsError, match="data.held_out: refine trains on every video"):
        refine_dataset(RefineSources(str(tmp_path), tmp_path), tmp_path / "out", settings)
