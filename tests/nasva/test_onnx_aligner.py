"""The network as ONNX operators gives what torch gives, without torch."""

import sys

import numpy as np
import onnxruntime
import pytest
import torch
from aligner_samples import tiny

from stepline.errors import ModelError, ShapeError
from stepline.models.nasva.align import score_texts
from stepline.models.nasva.checkpoint import load_aligner, write_aligner
from stepline.models.nasva.model import Aligner
from stepline.models.nasva.onnx_aligner import OnnxAligner
from stepline.models.nasva.settings import AlignerNetworkSettings, AlignerSettings
from stepline.models.training.network import FeatureSpace
from stepline.records import FeatureSequence

RNG = np.random.default_rng(0)


def network(**settings):
    torch.manual_seed(0)
    made = Aligner(tiny(**settings)).eval()
    for weight in made.parameters():
        weight.data += 0.1 * torch.randn_like(weight)  # none is 0 or 1
    return made


def by_onnx(made):
    return OnnxAligner(
        made.settings, {name: weight.numpy() for name, weight in made.state_dict().items()}
    )


def drawn(settings, rows, texts):
    video = RNG.normal(size=(rows, settings.video_width)).astype(np.float32)
    return video, RNG.normal(size=(texts, settings.text_width)).astype(np.float32)


@pytest.mark.parametrize("mode", ["step", "narration"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"form": "paper"},
        {"alignability": True},
        {"feature_scale": "none"},
        {"encoder_layers": 0},
    ],
    ids=["released", "paper", "alignability", "unscaled", "shallow"],
)
def test_scores_are_those_of_torch_whatever_the_number_of_rows_and_texts(settings, mode):
    made = network(**settings)
    graph, options = by_onnx(made), AlignerSettings(mode=mode, whole=40, window=30, stride=15)
    for rows, texts in ((1, 1), (7, 3), (40, 1), (99, 5), (3, 0)):
        video, text = drawn(made.settings, rows, texts)
        video[0] = 0.0  # a row without direction
        features = FeatureSequence(video, 1.0, "x")
        wanted, found = (
            score_texts(each, features, text, settings=options) for each in (made, graph)
        )
        np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-5)
        assert (found.alignable is None) == (wanted.alignable is None)
        if found.alignable is not None:
            np.testing.assert_allclose(found.alignable, wanted.alignable, atol=1e-5)


@pytest.mark.parametrize("form", ["released", "paper"])
def test_networks_of_the_papers_size_agree_on_the_longest_video_that_is_aligned_whole(form):
    made = network(**AlignerNetworkSettings(form=form).model_dump())
    video, text = drawn(made.settings, 1200, 40)
    wanted = score_texts(made, FeatureSequence(video, 1.0, "x"), text)
    np.testing.assert_allclose(
        by_onnx(made)(video, text, ordered=False)[0], wanted.scores, atol=1e-5
    )


def test_arrays_that_do_not_fit_are_refused():
    graph = by_onnx(network())
    video, text = drawn(graph.settings, 5, 2)
    for given in (
        (video[:, 1:], text),
        (video, text[:, 1:]),
        (video[:0], text),
        (video * np.nan, text),
    ):
        with pytest.raises(ShapeError):
            graph(*given, ordered=False)
    many = drawn(graph.settings, 5, graph.settings.text_positions + 1)
    assert graph(*many, ordered=False)[0].shape == (len(many[1]), 5)
    with pytest.raises(ShapeError, match="texts in order are more than"):
        graph(*many, ordered=True)


@pytest.mark.parametrize("change", ["missing", "unknown", "shape", "nan"])
def test_other_weights_are_refused_by_name(change):
    made = network()
    weights = {name: weight.numpy() for name, weight in made.state_dict().items()}
    if change == "missing":
        del weights["text_out.bias"]
    elif change == "unknown":
        weights["more.bias"] = np.zeros(3, np.float32)
    else:
        weights["text_out.bias"] = (
            np.zeros(3, np.float32) if change == "shape" else weights["text_out.bias"] * np.nan
        )
    with pytest.raises(ModelError, match="more.bias" if change == "unknown" else "text_out.bias"):
        OnnxAligner(made.settings, weights)


def test_a_run_is_exported_and_runs_elsewhere(tmp_path, stepline):
    made = network()
    write_aligner(made, tmp_path / "best.safetensors", FeatureSpace("conse", "minilm"))
    found = stepline("train", "export-onnx", tmp_path, "--out", tmp_path / "a.onnx")
    assert (found.exit_code, found.stderr) == (0, f"wrote {tmp_path / 'a.onnx'}\n")
    video, text = drawn(made.settings, 9, 4)
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"))
    (scores,) = session.run(
        ["scores"], {"video": video, "text": text, "ordered": np.array(0, np.float32)}
    )
    wanted = score_texts(made, FeatureSequence(video, 1.0, "x"), text)
    np.testing.assert_allclose(scores, wanted.scores, atol=1e-5)
    (tmp_path / "x.safetensors").write_bytes(b"x")
    refused = stepline(
        "train", "export-onnx", tmp_path / "x.safetensors", "--out", tmp_path / "b.onnx"
    )
    assert refused.exit_code == 1
    assert "not a grounding network of Stepline" in refused.stderr
    assert not (tmp_path / "b.onnx").exists()


def test_without_torch_a_network_is_loaded_as_a_graph(tmp_path, monkeypatch):
    write_aligner(network(), tmp_path / "best.safetensors", FeatureSpace("conse", "minilm"))
    assert isinstance(load_aligner(tmp_path).aligner, Aligner)
    monkeypatch.setitem(sys.modules, "torch", None)
    loaded = load_aligner(tmp_path)
    assert isinstance(loaded.aligner, OnnxAligner)
    assert loaded.space == FeatureSpace("conse", "minilm")
