"""ProcX on disk: what is read back is the same network, and any other file is one line."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from silent_videos import DOINGS, TINY, WIDTH

from stepline.errors import ModelError
from stepline.files.digests import sha256
from stepline.models.procx.batch import stack_videos
from stepline.models.procx.checkpoint import TrainingFeatures, load_model, write_model
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import VocabularySettings
from stepline.models.procx.vocabulary import train_vocabulary
from stepline.records import FeatureSequence

WORDS = train_vocabulary(DOINGS, VocabularySettings(size=300))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    torch.manual_seed(0)
    network = ProcX(TINY, len(WORDS)).eval()
    path = tmp_path_factory.mktemp("network") / "procx.safetensors"
    write_model(network, WORDS, path, TrainingFeatures("drawn", 2.0, unit=True))
    return network, path


def header(path):
    with safe_open(path, framework="pt") as file:
        return json.loads(file.metadata()["stepline"])


def rewritten(path, place, tree=None, weights=None):
    """Write the file again with another header or other weights."""
    metadata = {"stepline": json.dumps(tree or header(path))}
    save_file(weights or load_file(path), place, metadata=metadata)
    return place


def test_what_is_read_is_what_was_written(written):
    network, path = written
    loaded = load_model(path.parent)  # a folder is searched
    assert loaded.vocabulary == WORDS
    assert loaded.training_features == TrainingFeatures("drawn", 2.0, unit=True)
    assert loaded.sha256 == sha256(path)
    assert not loaded.model.training
    seen = stack_videos([np.ones((9, WIDTH), np.float32)], [9.0], TINY.rows)
    with torch.no_grad():
        assert torch.equal(loaded.model(seen).predictions.boxes, network(seen).predictions.boxes)


def test_another_kind_of_file_is_one_line(written, tmp_path):
    _, path = written
    (tmp_path / "text.safetensors").write_text("hello")
    changes = {"kind": "stepline.nasva.aligner"}, {"version": 2}
    changes += ({"vocabulary": {"tokens": ["a"], "lower": True}},)
    for number, tree in enumerate({**header(path), **change} for change in changes):
        rewritten(path, tmp_path / f"{number}.safetensors", tree)
    rewritten(path, tmp_path / "list.safetensors", [1])
    cut = tmp_path / "cut.safetensors"
    shutil.copy(path, cut)
    cut.write_bytes(cut.read_bytes()[:-100])
    for file in sorted(tmp_path.glob("*.safetensors")):
        with pytest.raises(ModelError, match="give one that `stepline train procx` wrote") as error:
            load_model(file)
        assert "\n" not in str(error.value)
    with pytest.raises(ModelError, match="no such file"):
        load_model(tmp_path / "none")
    with pytest.raises(ModelError, match="holds none of"):
        load_model(tmp_path)
    (tmp_path / "last.safetensors").write_text("")
    with pytest.raises(ModelError, match="not finished"):
        load_model(tmp_path)


def test_weights_that_do_not_fit_are_named(written, tmp_path):
    _, path = written
    weights = load_file(path)
    nan = weights | {"reference.weight": torch.full_like(weights["reference.weight"], torch.nan)}
    with pytest.raises(ModelError, match=r"reference\.weight holds NaN"):
        load_model(rewritten(path, tmp_path / "nan.safetensors", weights=nan))
    fewer = {name: value for name, value in weights.items() if name != "reference.weight"}
    with pytest.raises(ModelError, match=r"reference\.weight is missing"):
        load_model(rewritten(path, tmp_path / "fewer.safetensors", weights=fewer))
    more = weights | {"more": torch.ones(1)}
    with pytest.raises(ModelError, match="more is unknown"):
        load_model(rewritten(path, tmp_path / "more.safetensors", weights=more))


def test_features_of_another_kind_are_refused(written):
    loaded = load_model(written[1])
    values = np.ones((4, WIDTH), np.float32)
    loaded.check_features(FeatureSequence(values, 2.0, "drawn"))
    loaded.check_features(FeatureSequence(values, 2.0, "precomputed"))
    with pytest.raises(ModelError, match="trained on features of 'drawn', given are 's3d'"):
        loaded.check_features(FeatureSequence(values, 2.0, "s3d"))
    with pytest.raises(ModelError, match="trained at 2 rows per second, given are 1"):
        loaded.check_features(FeatureSequence(values, 1.0, "drawn"))
    with pytest.raises(ModelError, match="8 wide, drawn features are 3 wide"):
        loaded.check_features(FeatureSequence(values[:, :3], 2.0, "drawn"))


def test_scale_is_that_of_the_training(written, tmp_path):
    network, path = written
    load_model(path).check_row_scale(unit=True)
    raw = tmp_path / "raw.safetensors"
    write_model(network, WORDS, raw, TrainingFeatures("drawn"))
    load_model(raw).check_row_scale(unit=True)  # it gives rows a length of its own
    as_given = ProcX(network.settings.model_copy(update={"standardise": False}), len(WORDS))
    write_model(as_given, WORDS, raw, TrainingFeatures("drawn"))
    with pytest.raises(ModelError, match="not on rows of length 1"):
        load_model(raw).check_row_scale(unit=True)
