"""Training runs of ProcX: folder, resuming, seeds, processes."""

import json
from pathlib import Path

import pytest
import torch
from http_client import free_port
from option_words import option_words
from silent_videos import OPTIONS, SECONDS, TINY, features, records, train_command, write_videos
from two_processes import be_one_of_two

from stepline.cli import main
from stepline.errors import ModelError, SettingsError
from stepline.features import FeatureStore
from stepline.features.files import write_feature_file
from stepline.models.procx.batch import StepSample
from stepline.models.procx.checkpoint import TrainingFeatures, load_model, write_model
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import ProcxRunSettings, VocabularySettings
from stepline.models.procx.train import ProcxSources, train_procx, train_procx_run
from stepline.models.procx.vocabulary import train_vocabulary
from stepline.models.training.run import LOG_FILE
from stepline.models.training.settings import CHECKPOINT_FILE
from stepline.settings import load_settings
from stepline.storage import read_record, write_parquet

QUICK = ("train.epochs=3", "train.batch=3", "train.save_every=2", "vocabulary.size=300")  # 6 steps


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    store, flat = write_videos(folder)
    write_parquet(records(), folder / "swapped.parquet")
    return store, f"youcook2:{flat}", folder / "swapped.parquet"


def chosen(*settings):
    return load_settings(ProcxRunSettings, None, [*OPTIONS, *QUICK, *settings])


def told(folder):
    return json.loads((folder / "run.json").read_text())


def test_from_training_to_a_score(tmp_path, stores, stepline):
    store, flat, _ = stores
    longer = ("train.epochs=60", "train.batch=6", "train.learning_rate=1e-2", "vocabulary.size=300")
    made = stepline(*train_command(store, flat, tmp_path / "run", *longer, options=("--json",)))
    assert made.exit_code == 0, made.stderr
    assert json.loads(made.stdout)["files"] == [str(tmp_path / "run" / "procx.safetensors")]
    loaded = load_model(tmp_path / "run")
    assert loaded.training_features == TrainingFeatures("drawn", 1.0)
    assert loaded.model.settings == TINY
    prediction = tmp_path / "p.json"
    options = ("--model", tmp_path / "run", "--features", store)
    reference = ("--reference", flat.partition(":")[2])
    assert stepline("predict", "youcook2", *options, *reference, "--out", prediction).exit_code == 0
    scored = stepline("evaluate", "youcook2", "--predictions", prediction, *reference, "--json")
    assert scored.exit_code == 0, scored.stderr
    report = json.loads(scored.stdout)
    assert report["metrics"]["SODA_d"]["value"] > 0.6  # by two halves: 0.50
    assert (report["videos"], report["missing"], report["extra"]) == (6, [], [])
    ready = tmp_path / "v0.safetensors"
    write_feature_file(features(records()[0]), ready)
    given = option_words(describe=tmp_path / "run", out=tmp_path / "out", format="vtt")
    described = stepline("steps", ready, *given)
    assert described.exit_code == 0, described.stderr
    record = read_record(tmp_path / "out" / "v0.json")
    assert len(record.steps) == 2
    assert record.models["describer"] == {"network": loaded.sha256, "speech": False}
    assert record.settings["inputs"]["describer"] == loaded.sha256
    assert (tmp_path / "out" / "v0.vtt").is_file()
    rows = json.loads(prediction.read_text())["results"]["v0"]
    assert [row["sentence"] for row in rows] == [step.text for step in record.steps]


def test_videos_without_features_are_listed_and_scored_as_missing(tmp_path, stores, stepline):
    store, flat, _ = stores
    words = train_vocabulary(["cut the onion"], VocabularySettings(size=300))
    network, path = ProcX(TINY, len(words)), tmp_path / "procx.safetensors"
    write_model(network, words, path, TrainingFeatures("drawn"))
    tree = json.loads(Path(flat.partition(":")[2]).read_text())
    tree["gone"] = tree["v0"]
    (tmp_path / "yc2_val.json").write_text(json.dumps(tree))
    prediction, reference = tmp_path / "p.json", ("--reference", tmp_path / "yc2_val.json")
    given = option_words(model=tmp_path, features=store, out=prediction)
    run = ("predict", "youcook2", *given, *reference)
    made = stepline(*run)
    assert made.exit_code == 1
    assert "1 of 7 videos are not in" in made.stderr
    assert list(json.loads((tmp_path / "p.json.missing.json").read_text())) == ["gone"]
    assert stepline(*run, "--allow-missing").exit_code == 0
    scored = stepline("evaluate", "youcook2", "--predictions", prediction, *reference, "--json")
    assert json.loads(scored.stdout)["missing"] == ["gone"]
    for wrong in (("--aligner", tmp_path), ("--texts", tmp_path)):
        refused = stepline(*run, *wrong)
        assert refused.exit_code == 1
        assert "leave --" in refused.stderr
    assert "answered by --aligner" in stepline("predict", "ht-step", *run[2:]).stderr


def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path, stores):
    sources = ProcxSources(stores[0], str(stores[2]))
    settings = chosen("data.wording=said", "model.dropout=0.2", "data.held_out=0.3")

    def stop(progress):
        if progress.step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_procx_run(sources, tmp_path / "stopped", settings, report=stop)
    assert not (tmp_path / "stopped" / "procx.safetensors").exists()
    for name in ("stopped", "whole"):
        train_procx_run(sources, tmp_path / name, settings)
    for name in (CHECKPOINT_FILE, LOG_FILE, "procx.safetensors", "best.safetensors"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "stopped" / name).read_bytes() == whole, name
    with pytest.raises(SettingsError, match="another run"):
        train_procx_run(sources, tmp_path / "whole", chosen())


def test_a_network_learns_from_a_store_what_it_does_from_samples_in_memory(tmp_path, stores):
    settings = chosen("model.dropout=0.2")
    train_procx_run(ProcxSources(stores[0], str(stores[2])), tmp_path / "stored", settings)
    held = []
    for record in records():
        spans = tuple((span.start, span.end) for step in record.steps for span in step.spans)
        texts = tuple(step.text for step in record.steps)
        values = FeatureStore(stores[0]).read(record.id).values
        held.append(StepSample(record.id, values, float(SECONDS), spans, texts))
    words = load_model(tmp_path / "stored").vocabulary
    model = TINY.model_copy(update={"dropout": 0.2})
    given = {"loss": settings.loss, "settings": settings.train}
    train_procx(held, tmp_path / "held", vocabulary=words, model=model, **given)
    for name in (CHECKPOINT_FILE, LOG_FILE):
        stored = (tmp_path / "stored" / name).read_bytes()
        assert (tmp_path / "held" / name).read_bytes() == stored


def test_fine_tuning_goes_on_from_a_network_with_its_words(tmp_path, stores, stepline):
    store, flat, swapped = stores
    quick, words = (*QUICK, "loss.contrast=multiple"), ("--words", flat)
    first = train_command(store, swapped, tmp_path / "first", *quick, options=words)
    assert stepline(*first).exit_code == 0
    asked = option_words(features=store, reference=flat.partition(":")[2], out=tmp_path / "0.json")
    assert stepline("predict", "youcook2", "--model", tmp_path / "first", *asked).exit_code == 0
    sets = [*QUICK, "model.dropout=0.3", "train.device=cpu"]
    given = option_words(features=store, steps=flat, start=tmp_path / "first", set=sets)
    run = ("train", "procx", *given)
    made = stepline(*run, "--out", tmp_path / "second")
    assert made.exit_code == 0, made.stderr
    before, after = load_model(tmp_path / "first"), load_model(tmp_path / "second")
    assert after.vocabulary == before.vocabulary
    assert after.model.settings == before.model.settings.model_copy(update={"dropout": 0.3})
    assert told(tmp_path / "second")["sources"]["start"] == [str(tmp_path / "first"), before.sha256]
    moved = (after.model.reference.weight - before.model.reference.weight).abs().max()
    assert 0 < moved < 0.1  # on from there, not from fresh weights
    refused = stepline(*run, "--out", tmp_path / "third", "--set", "model.queries=9")
    assert refused.exit_code == 1
    assert "model.queries=9" in refused.stderr
    assert "leave --start out" in refused.stderr


def test_the_folder_reports_what_the_run_is(tmp_path, stores, stepline):
    excluded = tmp_path / "excluded.txt"
    excluded.write_text("v1\tyoucook2\n")
    given = ("--exclude", excluded, "--set", "model.queries=1")
    made = stepline(*train_command(*stores[:2], tmp_path / "run", *QUICK, options=given))
    assert made.exit_code == 0, made.stderr
    assert "5 videos have more steps than 1 queries" in made.stderr
    assert "left out 1: it is excluded" in made.stderr
    run = told(tmp_path / "run")
    assert run["data"] | {"tokens": 0} == {
        "videos": 5,
        "steps": 10,
        "crowded": 5,
        "held_out": 0,
        "tokens": 0,
        "omitted": {"it is excluded": 1},
    }
    assert run["settings"]["data"]["target"] == "reference"
    assert run["versions"]["torch"] == torch.__version__
    omitted = [
        json.loads(line) for line in (tmp_path / "run" / "omitted.jsonl").read_text().splitlines()
    ]
    assert [row["video"] for row in omitted] == ["v1"]


def test_train_procx_refuses_sources_that_do_not_match_in_one_line(tmp_path, stores, stepline):
    store, flat, swapped = stores
    words = train_vocabulary(["cut"], VocabularySettings(size=300))
    other = tmp_path / "other.safetensors"
    write_model(ProcX(TINY, len(words)), words, other, TrainingFeatures("s3d"))
    for says, steps, given in (
        ("no such file or folder", tmp_path / "none", ()),
        ("leave --subset out", swapped, ("--subset", "val")),
        ("no video is left to train on", flat, ("--subset", "val")),
        ("model.features=3", flat, ("--set", "model.features=3")),
        ("takes features of 's3d'", flat, ("--start", other)),
        ("not a ProcX network", flat, ("--start", swapped)),
        ("did you mean", flat, ("--set", "train.epoch=3")),
    ):
        failed = stepline(*train_command(store, steps, tmp_path / "out", *QUICK, options=given))
        assert failed.exit_code == 1, says
        assert says in failed.stderr
        assert len(failed.stderr.strip().splitlines()) == 1, failed.stderr
    with pytest.raises(ModelError, match="no such file"):
        train_procx_run(
            ProcxSources(store, flat), tmp_path / "out", chosen(), start=tmp_path / "none"
        )


def test_the_defaults_are_the_papers_whatever_else_is_set():
    settings = load_settings(ProcxRunSettings, None, ["train.epochs=3"])
    assert (settings.train.weight_decay, settings.train.clip, settings.train.batch) == (
        1e-3,
        0.1,
        8,
    )
    assert settings.train.learning_rate == 1e-4


pytest.importorskip("accelerate", reason="several processes need the extra `train`")

# contrast compares the sentences that one process holds, so that only without it two are as one
SETTINGS = (
    "train.epochs=4 train.batch=4 train.learning_rate=1e-3 vocabulary.size=300 "
    "data.held_out=0.2 loss.contrast_weight=0.0"
).split()


def one_of_two(rank, port, arguments):
    """What torchrun would start."""
    be_one_of_two(rank, port)
    main(arguments, standalone_mode=False)


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path, stepline):
    store, flat = write_videos(tmp_path, 9)
    told = {}
    for name in ("one", "two"):
        arguments = train_command(store, f"youcook2:{flat}", tmp_path / name, *SETTINGS)
        if name == "one":
            made = stepline(*arguments)
            assert made.exit_code == 0, made.stderr
        else:
            torch.multiprocessing.spawn(one_of_two, (free_port(), arguments), nprocs=2)
        lines = (tmp_path / name / LOG_FILE).read_text().splitlines()
        told[name] = [json.loads(line) for line in lines]
    assert len(told["one"]) == len(told["two"]) >= 8
    for key in ("loss", "score"):
        one, two = (
            [line[key] for line in lines if key in line] for lines in (told["one"], told["two"])
        )
        assert two == pytest.approx(one, abs=1e-3)
