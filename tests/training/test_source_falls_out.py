"""A source of which nothing can be trained on is an error in one line that says the cure, whatever
is left of the others."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "nasva"))

from training_data import WIDTH, command, write_stores

from stepline.errors import StoreError
from stepline.features import FeatureWriter, RowTexts, open_video_store
from stepline.features.files import read_feature_file
from stepline.models.training.benchmark_answers import StoredFeatures


def one_line(done, *parts):
    assert done.exit_code == 1, done.output
    (line,) = [
        line for line in done.stderr.splitlines() if line.startswith(("error", "Error", "stepline"))
    ]
    for part in parts:
        assert part in line
    return line


@pytest.fixture
def stores(tmp_path):
    return write_stores(tmp_path / "stores", videos=3)


def write_text_vectors(folder, width, backbone, videos=3):
    with FeatureWriter(folder) as writer:
        for number in range(videos):
            lines = RowTexts(("step 0", "step 1"), (1.0, 5.0), (4.0, 8.0))
            rows = np.ones((2, width), np.float32)
            writer.add(f"v{number}", rows, rate=1.0, backbone=backbone, texts=lines)
    return folder


@pytest.mark.parametrize(
    ("width", "backbone", "reason"),
    [
        (WIDTH + 1, "drawn", "3 x its features have another width (text 13, not 12)"),
        (WIDTH, "other", "3 x its features come from another network (text other, not drawn)"),
    ],
)
def test_steps_with_vectors_of_another_encoder_than_the_narrations(
    tmp_path, stores, stepline, width, backbone, reason
):
    steps = write_text_vectors(tmp_path / "steps", width, backbone)
    arguments = command(stores, tmp_path / "run", "epochs=1")
    arguments[arguments.index("--steps") + 1] = str(steps)
    line = one_line(stepline(*arguments), str(steps), reason, "of the same encoder")
    assert "nothing of it is left to train on" in line
    assert not (tmp_path / "run" / "run.json").exists()


def test_steps_that_are_all_excluded(tmp_path, stores, stepline):
    steps = write_text_vectors(tmp_path / "steps", WIDTH, "drawn", videos=1)
    (tmp_path / "excluded.txt").write_text("v0 htm-align\n")
    arguments = command(stores, tmp_path / "run", "epochs=1")
    arguments[arguments.index("--steps") + 1] = str(steps)
    done = stepline(*arguments, "--exclude", str(tmp_path / "excluded.txt"))
    one_line(done, str(steps), "1 x it is excluded", "or its videos out of --exclude")


TRAINED = {
    "train procx": ("--steps", "records.json"),
    "train wys2": ("--key-steps", "records.json"),
    "refine": ("records.json",),
}


@pytest.mark.parametrize("name", TRAINED)
def test_text_vectors_are_not_features_of_videos(name, tmp_path, stores, stepline, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("records.json").write_text("{}")
    texts = str(stores / "step")
    done = stepline(*name.split(), *TRAINED[name], "--features", texts, "--out", "run")
    one_line(done, texts, "holds features of texts, not of videos; give those of the videos")


def test_a_benchmark_is_not_answered_from_text_vectors(tmp_path, stores):
    with pytest.raises(StoreError, match="holds features of texts, not of videos"):
        StoredFeatures(stores / "step")
    assert len(StoredFeatures(stores / "video").read("v0").values) == 18
    torch.save({"text": ["stir"], "features": torch.ones(1, 4)}, tmp_path / "v0.pth")
    with pytest.raises(StoreError, match="v0.pth: holds features of texts, not of videos"):
        StoredFeatures(tmp_path).read("v0")
    with pytest.raises(StoreError, match="give those of the videos"):
        read_feature_file(tmp_path / "v0.pth")
    with pytest.raises(StoreError, match="step: holds features of texts"):
        open_video_store(stores / "step")


def youcook2(path, *videos):
    rows = {id: {"duration": 18, "timestamps": [[1, 5]], "sentences": ["stir it"]} for id in videos}
    path.write_text(json.dumps(rows))
    return path


def test_a_vocabulary_of_no_words(tmp_path, stores, stepline):
    steps, none = youcook2(tmp_path / "train.json", "v0", "v1"), youcook2(tmp_path / "no.json")
    sources = ("--features", stores / "video", "--steps", f"youcook2:{steps}")
    done = stepline("train", "procx", *sources, "--words", f"youcook2:{none}", "--out", tmp_path)
    one_line(done, "no.json")


def test_an_empty_train_json_is_nothing_to_train_on(tmp_path, stores, stepline):
    empty = tmp_path / "train.json"
    empty.write_text("{}")
    sources = ("--features", stores / "video", "--steps", f"sieve-swap:{empty}")
    done = stepline("train", "procx", *sources, "--out", tmp_path / "run")
    one_line(done, "train.json")


def test_one_of_two_sources_of_key_steps(tmp_path, stepline):
    rows = np.ones((18, 4), np.float32)
    with FeatureWriter(tmp_path / "store") as writer:
        writer.add("v0", rows, rate=1.0, backbone="s3d")
    first, second = youcook2(tmp_path / "a.json", "v0"), youcook2(tmp_path / "b.json", "w0")
    captions = {id: {"text": ["stir it"], "start": [1], "end": [5]} for id in ("v0", "w0")}
    (tmp_path / "caption.json").write_text(json.dumps(captions))
    keys = ("--key-steps", f"youcook2:{first}", "--key-steps", f"youcook2:{second}")
    said = ("--narrations", f"howto100m:{tmp_path / 'caption.json'}")
    store = ("--features", tmp_path / "store", "--out", tmp_path / "run")
    done = stepline("train", "wys2", *keys, *said, *store)
    one_line(done, "b.json", "there are no features of its video", "give a store")


@pytest.mark.parametrize("name", ["train procx", "train nasva"])
def test_a_datasets_own_file_without_its_name_gets_the_cure(tmp_path, stores, stepline, name):
    bare = youcook2(tmp_path / "yc2_train.json", "v0")
    sources = ("--features", stores / "video", "--steps", bare, "--out", tmp_path / "run")
    one_line(stepline(*name.split(), *sources), f"NAME:PATH, such as youcook2:{bare}")
