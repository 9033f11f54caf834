import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from aligner_samples import batch, tiny
from safetensors import safe_open
from safetensors.torch import save_file
from torch.testing import assert_close

from stepline.errors import ModelError
from stepline.models.nasva import model as rows
from stepline.models.nasva.checkpoint import (
    NETWORK,
    NO_SPACE,
    load_aligner,
    read_aligner,
    read_released_weights,
    rename_released_weight,
    write_aligner,
)
from stepline.models.nasva.loss import grounding_loss
from stepline.models.nasva.model import Aligner, compute_dot_products
from stepline.models.nasva.settings import AlignerLossSettings
from stepline.models.training.batches import Batch
from stepline.models.training.network import FeatureSpace
from stepline.vision import VisionSettings


def test_a_checkpoint_says_whose_features_it_was_trained_on(tmp_path):
    network = Aligner(tiny())
    write_aligner(network, tmp_path / "said.safetensors", FeatureSpace("conse", "minilm"))
    write_aligner(network, tmp_path / "silent.safetensors")
    assert load_aligner(tmp_path / "said.safetensors").space == FeatureSpace("conse", "minilm")
    assert load_aligner(tmp_path / "silent.safetensors").space == NO_SPACE
    assert read_aligner(tmp_path / "said.safetensors").settings == tiny()


@pytest.mark.parametrize(
    ("text", "vision"), [("conse", {}), ("clip:model", {"backbone": "clip", "path": Path("model")})]
)
def test_a_network_trained_with_a_backbones_texts_fits_that_backbone(tmp_path, text, vision):
    path = tmp_path / "run.safetensors"
    settings = VisionSettings(**vision)
    write_aligner(Aligner(tiny()), path, FeatureSpace(settings.backbone, text))
    load_aligner(path).check_space(settings.backbone, settings.text_space, rate=1.0)


def test_another_file_is_not_a_checkpoint(tmp_path):
    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("no tensors")
    for name in ("other", "text", "absent"):
        with pytest.raises(ModelError, match="not a grounding network of Stepline"):
            NETWORK.load(tmp_path / f"{name}.safetensors")


def test_a_folder_gives_its_best_network_else_the_final_one(tmp_path):
    for name in ("last", "aligner", "best"):
        (tmp_path / f"{name}.safetensors").write_bytes(b"")
        if name != "last":
            assert NETWORK.find_file(tmp_path).name == f"{name}.safetensors"


def test_a_folder_without_a_network_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"none of best\.safetensors, aligner\.safetensors; give"):
        NETWORK.find_file(tmp_path)
    (tmp_path / "last.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="not finished; run `stepline train nasva` again to end"):
        NETWORK.find_file(tmp_path)


CASES = {"tiny": ("tiny_", "tiny_checkpoint_fp32.pth"), "full": ("", "checkpoint_fp16.pth")}
FIELDS = ("video", "video_padding_mask", "text", "text_padding_mask", "time_mask")


@pytest.fixture(scope="session")
def parity(shared_path):
    return shared_path("nasva_parity")


def run(folder, size, mode):
    """Return the imported network, the official inputs as a batch, and what the released code gave
    for them."""
    prefix, checkpoint = CASES[size]
    settings, weights = read_released_weights(folder / checkpoint)
    model = Aligner(settings).eval()
    model.load_state_dict(weights)
    with np.load(folder / f"{prefix}inputs.npz") as file:
        given = dict(file)
    with np.load(folder / f"{prefix}expected.npz") as file:
        arrays = dict(file)
    order = torch.tensor([mode == "narration"] * 2)
    data = Batch(("a", "b"), *(torch.from_numpy(given[name]) for name in FIELDS), order)
    expected = json.loads((folder / f"{prefix}expected.json").read_text())["modes"][mode]
    return model, data, arrays, expected


@pytest.mark.parametrize("mode", ["narration", "step"])
@pytest.mark.parametrize("size", CASES)
@pytest.mark.parametrize("padding", ["left out", "kept"])
def test_it_does_what_the_released_code_does(parity, monkeypatch, size, mode, padding):
    monkeypatch.setattr(rows, "PACKING_PAYS", {"left out": 0, "kept": 1}[padding])
    model, data, arrays, expected = run(parity, size, mode)
    aligned = model(data)
    # what stands on padding is compared where it is made
    compared = np.ones(arrays[f"{mode}_cosine"].shape, bool)
    if padding == "left out":
        compared = ~(data.text_pad[:, :, None] | data.video_pad[:, None]).numpy()
    with torch.no_grad():
        assert np.abs(aligned.scores.numpy() - arrays[f"{mode}_cosine"])[compared].max() < 2e-6
        layers = compute_dot_products(aligned.text, aligned.video).numpy() / 0.07
        assert np.abs(layers - arrays[f"{mode}_layers_same_video"])[:, compared].max() < 2e-5
        best = aligned.scores.masked_fill(data.video_pad[:, None], -1).argmax(dim=2)
    official = arrays[f"{mode}_pred_time"][~data.text_pad.numpy()]
    assert best[~data.text_pad].tolist() == official.tolist()
    loss = grounding_loss(aligned, data, AlignerLossSettings(form="release")).mean
    assert loss.item() == pytest.approx(expected["loss"], abs=2e-5)
    loss.backward()
    norms = {name: weight.grad.norm().item() for name, weight in model.named_parameters()}
    for key, norm in expected["grad_norm"].items():
        if norm is not None:
            assert norms.pop(rename_released_weight(key)) == pytest.approx(norm, rel=2e-5), key
    assert set(norms.values()) <= {0.0}  # the places of texts that are in no order


@pytest.mark.parametrize("mode", ["narration", "step"])
def test_each_video_alone_scores_as_in_the_official_batch(parity, mode):
    model, data, arrays, _ = run(parity, "full", mode)
    seconds, texts = (~data.video_pad[1]).sum(), (~data.text_pad[1]).sum()
    alone = Batch(
        ("b",),
        data.video[1:, :seconds],
        data.video_pad[1:, :seconds],
        data.text[1:, :texts],
        data.text_pad[1:, :texts],
        data.positive[1:, :texts, :seconds],
        data.ordered[1:],
    )
    with torch.inference_mode():
        scores = model(alone).scores[0]
    assert np.abs(scores.numpy() - arrays[f"{mode}_cosine"][1, :texts, :seconds]).max() < 2e-6


def test_dead_heads_are_left_out_by_name_and_the_rest_kept(parity, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    settings, weights = read_released_weights(parity / CASES["tiny"][1])
    assert "alignable_head.weight" in caplog.text
    assert "timestamp_head.0.layers.2.bias" in caplog.text
    assert (settings.width, settings.projection, settings.encoder_layers) == (32, 16, 2)
    assert settings.feature_scale == "none"
    network = Aligner(settings)
    network.load_state_dict(weights)
    write_aligner(network, tmp_path / "nasva.safetensors")
    again = read_aligner(tmp_path / "nasva.safetensors")
    assert again.settings == settings
    assert_close(dict(again.state_dict()), weights, atol=0, rtol=0)


def changed(parity, tmp_path, change):
    """Return a copy of the official file with its state dict changed in place."""
    state = torch.load(parity / CASES["tiny"][1], weights_only=True)["model_state_dict"]
    change(state)
    torch.save({"model_state_dict": state}, tmp_path / "changed.pth")
    return tmp_path / "changed.pth"


def drop_first_layer(state):
    for key in list(state):
        if key.startswith("decoder.layers.0."):
            del state[key]


CHANGES = {
    "missing": (lambda state: state.pop("decoder.norm.bias"), "decoder_norm.bias is missing"),
    "extra": (lambda state: state.update(surprise=torch.zeros(2)), "surprise is unknown"),
    "shape": (
        lambda state: state.update({"decoder.norm.bias": torch.zeros(7)}),
        r"decoder_norm.bias is \(7,\), not \(32,\)",
    ),
    "nan": (lambda state: state["v_sim_proj.bias"].fill_(float("nan")), "video_out.bias holds NaN"),
    "layer": (drop_first_layer, "not NaSVA's released network"),
    "positions": (
        lambda state: state["visual_pos_enc.pe"].mul_(2),
        "other positions than the fixed",
    ),
    "empty": (lambda state: state.clear(), "not NaSVA's released network"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_checkpoint_is_refused_by_the_name_of_its_fault(parity, tmp_path, name):
    change, message = CHANGES[name]
    with pytest.raises(ModelError, match=message):
        read_released_weights(changed(parity, tmp_path, change))


class Trap:
    """What a hostile file carries: code that runs when it is unpickled."""

    def __reduce__(self):
        return (exec, ("raise SystemExit('ran')",))


def test_a_file_that_would_run_code_or_holds_no_weights_is_refused(tmp_path):
    path = tmp_path / "trap.pth"
    for content in ({"model_state_dict": Trap()}, {"model_state_dict": [1, 2]}, {"a": 1}, 7):
        torch.save(content, path)
        with pytest.raises(ModelError, match=r"trap\.pth"):
            read_released_weights(path)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ModelError, match="cannot be read as weights"):
        read_released_weights(path)
    with pytest.raises(ModelError, match="cannot be read as weights"):
        read_released_weights(tmp_path / "absent.pth")


def test_a_network_comes_back_from_disk_as_it_was(tmp_path):
    torch.manual_seed(0)
    model = Aligner(tiny(alignability=True, form="paper")).eval()
    write_aligner(model, tmp_path / "a.safetensors")
    write_aligner(model, tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()
    again = read_aligner(tmp_path / "a.safetensors")
    assert again.settings == model.settings
    assert not again.training
    assert torch.equal(again(batch()).scores, model(batch()).scores)


def test_a_file_of_other_weights_is_refused(tmp_path):
    model, path = Aligner(tiny()), tmp_path / "model.safetensors"
    weights = dict(model.state_dict())
    write_aligner(model, path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    save_file({key: weights[key] for key in list(weights)[1:]}, path, metadata=metadata)
    with pytest.raises(ModelError, match=f"{next(iter(weights))} is missing"):
        read_aligner(path)
    write_aligner(Aligner(tiny(width=36)), path)
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    save_file(weights, path, metadata=metadata)
    with pytest.raises(ModelError, match=r"is \(.*and \d+ more"):
        read_aligner(path)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ModelError, match="not a grounding network of Stepline"):
        read_aligner(path)
    save_file(weights, path)
    with pytest.raises(ModelError, match="kind None"):
        read_aligner(path)
