"""Every system's network file keeps one contract: what is read is what was written, and any other
file is one line."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from stepline.errors import ModelError
from stepline.models.nasva import checkpoint as nasva_checkpoint
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.settings import AlignerNetworkSettings
from stepline.models.procx import checkpoint as procx_checkpoint
from stepline.models.procx.model import ProcX
from stepline.models.procx.settings import (
    AttentionSettings,
    CaptionerSettings,
    ModelSettings,
    VocabularySettings,
)
from stepline.models.procx.vocabulary import train_vocabulary
from stepline.models.training.network import NetworkFileFormat
from stepline.models.training.settings import CHECKPOINT_FILE
from stepline.models.wys2 import detector as wys2_detector
from stepline.models.wys2.settings import DetectorSettings

WORDS = train_vocabulary(["cut the onion", "stir the pan"], VocabularySettings(size=300))
LAYERS = {"encoder_layers": 1, "decoder_layers": 1, "feed_forward": 16}
SIZES = {"video_width": 6, "text_width": 6, "width": 8, "heads": 2, "text_positions": 4}
ALIGNER = AlignerNetworkSettings(**SIZES, **LAYERS)
SIZES = {"text_layers": 1, "joint_layers": 1, "feed_forward": 16, "projection": 8}
PROCX = ModelSettings(
    attention=AttentionSettings(width=16, heads=2, levels=2, points=2),
    captioner=CaptionerSettings(width=16, heads=2, **SIZES),
    features=6,
    rows=16,
    queries=4,
    most_steps=3,
    **LAYERS,
)


@dataclass(frozen=True)
class System:
    """A system's file, how it makes, writes and reads a network, and one of its weights."""

    file: NetworkFileFormat[Any, Any]
    make: Callable[[], nn.Module]
    write: Callable[[Any, Path], None]
    read: Callable[[Path], nn.Module]
    weight: str


DETECTOR = DetectorSettings(video_width=6, text_width=6, hidden=8, width=8)


def write_procx(network, path):
    features = procx_checkpoint.TrainingFeatures("drawn")
    procx_checkpoint.write_model(network, WORDS, path, features)


SYSTEMS = {
    "aligner": System(
        nasva_checkpoint.NETWORK,
        lambda: Aligner(ALIGNER),
        nasva_checkpoint.write_aligner,
        nasva_checkpoint.read_aligner,
        "decoder_norm.weight",
    ),
    "procx": System(
        procx_checkpoint.NETWORK,
        lambda: ProcX(PROCX, len(WORDS)),
        write_procx,
        lambda path: procx_checkpoint.load_model(path).model,
        "reference.weight",
    ),
    "detector": System(
        wys2_detector.NETWORK,
        lambda: wys2_detector.Detector(DETECTOR),
        wys2_detector.write_detector,
        lambda path: wys2_detector.read_detector(path)[1],
        "text.1.bias",
    ),
}


@pytest.fixture(params=SYSTEMS)
def system(request):
    return SYSTEMS[request.param]


@pytest.fixture
def path(system, tmp_path):
    torch.manual_seed(0)
    file = tmp_path / system.file.file_names[-1]
    system.write(system.make(), file)
    return file


def header(path):
    with safe_open(path, framework="pt") as file:
        return dict(json.loads(file.metadata()["stepline"]))


def rewrite(path, tree=None, weights=None):
    """Write a file again with another header or other weights."""
    tree = header(path) if tree is None else tree
    save_file(weights or load_file(path), path, metadata={"stepline": json.dumps(tree)})


def test_what_is_read_is_what_was_written(system, path):
    torch.manual_seed(0)
    wanted, found = system.make(), system.read(path)
    assert not found.training
    torch.testing.assert_close(dict(found.state_dict()), dict(wanted.state_dict()), atol=0, rtol=0)
    again = path.with_name("again.safetensors")
    system.write(wanted, again)
    assert again.read_bytes() == path.read_bytes()


def test_the_header_says_what_it_is(system, path):
    tree = header(path)
    assert (tree["kind"], tree.get("version")) == (system.file.kind, system.file.version)
    assert {"kind", "settings"} < tree.keys()


@pytest.mark.parametrize(
    "fault", ["kind", "version", "settings", "list", "none", "cut", "text", "absent"]
)
def test_any_other_file_is_refused_in_one_line(system, path, fault):
    tree = header(path)
    if fault in ("kind", "version"):
        rewrite(path, tree | {fault: 99})
    elif fault == "settings":
        rewrite(path, tree | {"settings": {"no such setting": 1}})
    elif fault == "list":
        rewrite(path, [1])
    elif fault == "none":
        save_file(load_file(path), path)
    elif fault == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif fault == "text":
        path.write_text("hello")
    else:
        path.unlink()
    with pytest.raises(
        ModelError, match=f"(not {system.file.title} of Stepline|no such file)"
    ) as error:
        system.read(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_numbers_are_named(system, path, value):
    weights = load_file(path)
    rewrite(path, weights=weights | {system.weight: torch.full_like(weights[system.weight], value)})
    with pytest.raises(
        ModelError, match=rf"{system.weight} holds NaN or infinity; give the right file"
    ):
        system.read(path)


def test_weights_of_another_name_or_shape_are_named(system, path):
    weights = load_file(path)
    known = {name: value for name, value in weights.items() if name != system.weight}
    rewrite(path, weights=known | {"other": weights[system.weight]})
    with pytest.raises(ModelError, match="other is unknown") as error:
        system.read(path)
    assert f"{system.weight} is missing" in str(error.value)
    rewrite(path, weights=weights | {system.weight: torch.zeros(1, 2, 3)})
    with pytest.raises(ModelError, match=rf"{system.weight} is \(1, 2, 3\), not \("):
        system.read(path)


def test_a_folder_gives_its_best_network_else_the_final_or_only_one(system, path):
    find, folder = system.file.find_file, path.parent
    assert find(path) == path
    assert find(folder) == path
    for name in reversed(system.file.file_names):
        (folder / name).write_bytes(path.read_bytes())
        assert find(folder) == folder / name
    for name in system.file.file_names:
        (folder / name).unlink()
    with pytest.raises(
        ModelError, match=f"holds none of {system.file.file_names[0]}.*; give the .safetensors file"
    ):
        find(folder)
    (folder / "mine.safetensors").write_bytes(b"")
    assert find(folder) == folder / "mine.safetensors"
    (folder / CHECKPOINT_FILE).write_bytes(b"")
    with pytest.raises(
        ModelError, match=f"the run is not finished; run {system.file.command} again to end it"
    ):
        find(folder)
    with pytest.raises(ModelError, match="no such file"):
        find(folder / "none")
