"""What every training run keeps to, whatever network it trains: one folder is one run, a run that is
started again ends with the same bytes, and what is left out is listed."""

import json
from dataclasses import replace

import numpy as np
import pytest
from file_bytes import file_bytes

from stepline.errors import SettingsError
from stepline.features import FeatureStore, FeatureWriter
from stepline.models.nasva.checkpoint import NETWORK
from stepline.models.nasva.refine import RefineSources, refine_dataset
from stepline.models.nasva.settings import (
    AlignerDataSettings,
    AlignerNetworkSettings,
    AlignerRunSettings,
    RefineRunSettings,
    SelfTrainSettings,
)
from stepline.models.nasva.train import AlignerSources, train_aligner_run
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    DataSettings,
    ModelSettings,
    ProcxRunSettings,
    ProcxTrainSettings,
    VocabularySettings,
)
from stepline.models.procx.train import ProcxSources, train_procx_run
from stepline.models.training.run import TrainingRun, run_training
from stepline.models.training.settings import TrainSettings
from stepline.models.training.sources import (
    iterate_labelled_texts,
    read_records,
    store_text_vectors,
)
from stepline.models.wys2.dataset import gather_clips
from stepline.models.wys2.settings import (
    ClipSettings,
    DetectorSettings,
    LabelSettings,
    Wys2Settings,
)
from stepline.models.wys2.train import DetectorClips, train_detector_run
from stepline.records import Record, Sentence, Span, Step, Transcript, Video
from stepline.storage import write_parquet

VIDEOS = 8
SECONDS = 16
WIDTH = 6  # of a feature row
SHORT = {"epochs": 2, "batch": 4, "learning_rate": 1e-3, "save_every": 2}
TRAINING = TrainSettings(**SHORT)
ALIGNER = AlignerNetworkSettings(
    width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=8, projection=4
)
CAPTIONER = CaptionerSettings(
    width=8, heads=2, text_layers=1, joint_layers=1, feed_forward=8, projection=4
)
ATTENTION = AttentionSettings(width=8, heads=2, levels=2)
SIZES = {"rows": 8, "encoder_layers": 1, "decoder_layers": 1, "feed_forward": 8, "queries": 4}
PROCX = ModelSettings(attention=ATTENTION, captioner=CAPTIONER, **SIZES)


def record(number):
    """A video with two steps, which are shown where they are said, and one sentence of chat."""
    lines = ["cut the onion", "fry it in butter", "thank you"]
    spans = [Span(2.0, 5.0), Span(8.0, 11.0), Span(12.0, 14.0)]
    said = zip(lines[:2], spans, strict=False)
    steps = tuple(
        Step(id=str(k), text=text, spans=(span,), said=span) for k, (text, span) in enumerate(said)
    )
    sentences = tuple(
        Sentence(text=text, span=span) for text, span in zip(lines, spans, strict=True)
    )
    id = f"v{number}"
    return Record(
        id=id,
        video=Video(id=id, duration=float(SECONDS)),
        steps=steps,
        reference=tuple(step.model_copy(update={"said": None}) for step in steps),
        transcript=Transcript(sentences=sentences),
    )


def encode(texts):
    """A random vector a text."""
    rows = [np.random.default_rng([*text.encode()]).normal(size=WIDTH) for text in texts]
    return np.array(rows, np.float32)


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A store of the videos' features, their records, and a store of the steps' vectors; one more
    record has no features."""
    folder = tmp_path_factory.mktemp("sources")
    rng = np.random.default_rng(0)
    with FeatureWriter(folder / "store") as writer:
        for number in range(VIDEOS):
            rows = rng.normal(size=(SECONDS, WIDTH)).astype(np.float32)
            writer.add(f"v{number}", rows, rate=1.0, backbone="drawn")
    records = folder / "records.parquet"
    write_parquet(map(record, range(VIDEOS + 1)), records)
    texts = iterate_labelled_texts(read_records(str(records)), "step")
    store_text_vectors(texts, encode, folder / "texts", name="drawn")
    return folder


def nasva(sources, folder, seed):
    data, train = AlignerDataSettings(held_out=0.3), TrainSettings(**SHORT, seed=seed)
    settings = AlignerRunSettings(model=ALIGNER, data=data, train=train)
    files = {"steps": "records.parquet", "step_vectors": "texts"}
    texts = {name: str(sources / file) for name, file in files.items()}
    texts = AlignerSources(sources / "store", **texts)
    train_aligner_run(texts, folder, settings)


def procx(sources, folder, seed):
    settings = ProcxRunSettings(
        model=PROCX,
        data=DataSettings(held_out=0.3),
        vocabulary=VocabularySettings(size=300),
        train=ProcxTrainSettings(**SHORT, seed=seed),
    )
    texts = ProcxSources(sources / "store", str(sources / "records.parquet"))
    train_procx_run(texts, folder, settings)


def wys2(sources, folder, seed):
    settings = Wys2Settings(
        clips=ClipSettings(resolve=False),
        labels=LabelSettings(kind="vr"),
        detector=DetectorSettings(hidden=8, width=4),
        train=TrainSettings(**SHORT, seed=seed),
    )
    records = read_records(str(sources / "records.parquet"))
    clips = gather_clips(records, FeatureStore(sources / "store"), encode, settings.clips)
    train_detector_run(DetectorClips(clips), folder, settings)


def refine(sources, folder, seed):
    settings = RefineRunSettings(
        model=ALIGNER,
        train=TrainSettings(**SHORT, seed=seed),
        rounds=SelfTrainSettings(rounds=1, teachers=1, teacher_epochs=1),
    )
    dataset = RefineSources(
        str(sources / "records.parquet"), sources / "store", step_vectors=str(sources / "texts")
    )
    refine_dataset(dataset, folder, settings)


# how each network is trained, and the file of the final one
RUNS = {
    nasva: "aligner.safetensors",
    procx: "procx.safetensors",
    wys2: "detector.safetensors",
    refine: "aligner.safetensors",
}
runs = pytest.mark.parametrize("train", RUNS, ids=lambda train: train.__name__)


def contents(folder):
    """Every file of a run by its name; the report of self-training holds CPU seconds."""
    return file_bytes(folder, lambda path: path.name != "report.json")


@runs
def test_a_run_that_is_started_again_leaves_the_same_bytes(train, sources, tmp_path):
    train(sources, tmp_path / "one", 0)
    once = contents(tmp_path / "one")
    assert RUNS[train] in once
    train(sources, tmp_path / "one", 0)
    assert contents(tmp_path / "one") == once
    train(sources, tmp_path / "two", 0)
    assert contents(tmp_path / "two") == once


@runs
def test_another_run_is_refused_and_changes_nothing(train, sources, tmp_path):
    train(sources, tmp_path, 0)
    before = contents(tmp_path)
    with pytest.raises(SettingsError, match="another run, with other settings or sources"):
        train(sources, tmp_path, 1)
    assert contents(tmp_path) == before


@runs
def test_a_video_without_features_is_counted_as_omitted(train, sources, tmp_path):
    train(sources, tmp_path, 0)
    reason = "there are no features of its video"
    if (tmp_path / "omitted.jsonl").exists():
        (line,) = (tmp_path / "omitted.jsonl").read_text().splitlines()
        row = json.loads(line)
        assert (row["video"], row["reason"]) == (f"v{VIDEOS}", reason)
    else:
        assert reason in json.dumps(json.loads((tmp_path / "run.json").read_text())["omitted"])


@pytest.mark.parametrize("train", [nasva, procx], ids=lambda train: train.__name__)
def test_the_best_network_on_held_out_videos_is_kept_as_well(train, sources, tmp_path):
    train(sources, tmp_path, 0)
    assert (tmp_path / "best.safetensors").is_file()


def test_a_run_claims_its_folder_before_it_trains_and_writes_what_training_returns(tmp_path):
    def write(network, path):
        path.write_text(network)

    def train(keep_best):
        assert json.loads((tmp_path / "run.json").read_text()) == {"seed": 1, "videos": 3}
        assert (tmp_path / "omitted.jsonl").read_text() == '{"video": "a"}\n'
        keep_best("better")
        return "last"

    names = ("best", "final")
    spec = replace(NETWORK, file_names=names)
    run = TrainingRun(
        tmp_path, spec, {"seed": 1}, write, facts={"videos": 3}, omitted=[{"video": "a"}]
    )
    assert run_training(run, train) == "last"
    assert (tmp_path / "best").read_text() == "better"
    assert (tmp_path / "final").read_text() == "last"
