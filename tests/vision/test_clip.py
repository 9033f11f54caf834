import sys

import numpy as np
import pytest
from checkpoints import write_clip
from numpy.testing import assert_allclose
from option_words import option_words
from vision_samples import NOISE

from stepline.errors import ModelError, SettingsError
from stepline.vision import VisionSettings, load_backbone

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")


def load(path, **options):
    return load_backbone(VisionSettings(backbone="clip", path=path, **options))


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_cosines_are_those_of_the_checkpoint(kind, tmp_path):
    backbone = load(write_clip(tmp_path, kind))
    texts = ["cut the banana", "fold"]
    model = transformers.AutoModel.from_pretrained(tmp_path).eval()
    processor = transformers.AutoProcessor.from_pretrained(tmp_path)
    padding = True if kind == "clip" else "max_length"
    inputs = processor(text=texts, images=list(NOISE), padding=padding, return_tensors="pt")
    with torch.inference_mode():
        whole = model(**inputs)
    expected = torch.nn.functional.cosine_similarity(
        whole.text_embeds[:, None], whole.image_embeds[None], dim=2
    )
    assert_allclose(
        backbone.encode_texts(texts) @ backbone.encode_images(NOISE).T, expected, atol=1e-5
    )


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_text_past_the_limit_is_cut(kind, tmp_path):
    assert load(write_clip(tmp_path, kind)).encode_texts(["fold the paper " * 50]).shape == (1, 16)


def test_texts_go_in_batches_that_change_nothing(tmp_path):
    write_clip(tmp_path)
    texts = ["cut", "cut the banana", "fold the paper", "banana"]
    rows = (load(tmp_path, batch=size).encode_texts(texts) for size in (1, 3))
    assert_allclose(*rows, atol=1e-5)


def test_a_checkpoint_with_a_weight_missing_is_refused(tmp_path):
    from safetensors.torch import load_file, save_file

    path = write_clip(tmp_path) / "model.safetensors"
    weights = load_file(path)
    del weights["visual_projection.weight"]
    save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"visual_projection\.weight"):
        load(tmp_path)


def test_a_text_encoder_alone_is_refused(tmp_path):
    write_clip(tmp_path)
    config = transformers.BertConfig(
        vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    transformers.BertModel(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"bert|cannot be loaded"):
        load(tmp_path)


@pytest.mark.parametrize("content", [None, "{", '{"model_type": "nonsense"}'])
def test_a_folder_that_is_not_a_checkpoint_is_refused_in_one_line(content, tmp_path):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match="cannot be loaded") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_path_is_never_taken_for_a_name_on_the_hub(tmp_path):
    with pytest.raises(ModelError, match="no such folder"):
        load(tmp_path / "openai" / "clip")


def test_either_a_path_or_a_hub_name_is_needed(tmp_path):
    for options in ({}, {"path": tmp_path, "hub": "openai/clip"}):
        with pytest.raises(SettingsError, match=r"vision\.hub"):
            load_backbone(VisionSettings(backbone="clip", **options))


def test_without_transformers_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match=r"stepline\[clip\]"):
        load(tmp_path)


def test_no_picture_gives_no_row(tmp_path):
    rows = load(write_clip(tmp_path)).encode_images(np.empty((0, 8, 8, 3), np.uint8))
    assert rows.shape == (0, 16)


@pytest.mark.slow
def test_a_checkpoint_in_a_folder_asks_no_hub(tmp_path, small_video, captions_file):
    import json

    from test_telemetry import COMMANDS, addresses_asked

    given = option_words(
        captions=captions_file, backbone="clip", weights=write_clip(tmp_path / "clip")
    )
    command = [str(part) for part in ("steps", small_video, *given, "--out", tmp_path / "out")]
    assert addresses_asked(tmp_path, "-c", COMMANDS, json.dumps([command]), 0) == []
    assert list((tmp_path / "out").glob("*.json"))
