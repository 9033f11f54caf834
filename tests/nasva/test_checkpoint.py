import pytest
from aligner_samples import tiny
from safetensors.torch import save_file

from stepline.errors import ModelError
from stepline.nasva.checkpoint import FeatureSpace, read_aligner, read_space, write_aligner
from stepline.nasva.model import Aligner


def test_a_checkpoint_says_whose_features_it_was_trained_on(tmp_path):
    network = Aligner(tiny())
    write_aligner(network, tmp_path / "said.safetensors", FeatureSpace("conse", "minilm"))
    write_aligner(network, tmp_path / "silent.safetensors")
    assert read_space(tmp_path / "said.safetensors") == FeatureSpace("conse", "minilm")
    assert read_space(tmp_path / "silent.safetensors") is None
    assert read_aligner(tmp_path / "said.safetensors").settings == tiny()


def test_another_file_is_no_checkpoint(tmp_path):
    import torch

    save_file({"weight": torch.zeros(2)}, tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("no tensors")
    for name in ("other", "text", "absent"):
        with pytest.raises(ModelError, match="not a grounding network of Stepline"):
            read_space(tmp_path / f"{name}.safetensors")
