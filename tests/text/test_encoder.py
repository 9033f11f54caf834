import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stepline.errors import ModelError
from stepline.text import embed, encoder

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

WORDS = "[PAD] [UNK] [CLS] [SEP] cut the banana paper fold mix slowly now".split()
TEXTS = ["cut the banana", "fold", "mix slowly now " * 9, "fold the paper slowly"]
SIZES = {"vocab_size": len(WORDS), "hidden_size": 24, "num_hidden_layers": 2}
SIZES |= {"num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 64}


@pytest.fixture(params=["bert", "mpnet"])
def folder(request, tmp_path):
    """A tiny random model in the sentence-transformers layout."""
    torch.manual_seed(3)
    if request.param == "bert":
        model = transformers.BertModel(transformers.BertConfig(**SIZES))
    else:
        model = transformers.MPNetModel(transformers.MPNetConfig(**SIZES, pad_token_id=1))
        torch.nn.init.normal_(model.encoder.relative_attention_bias.weight)
    model.eval().save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    parts = ["Transformer", "Pooling", "Normalize"]
    modules = [
        {"path": "1_Pooling" if part == "Pooling" else "", "type": f"models.{part}"}
        for part in parts
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text(
        json.dumps({"pooling_mode_mean_tokens": True})
    )
    return tmp_path


def write_tokenizer(folder):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(
        models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))


def reference(folder, texts):
    """Mean-pooled unit vectors as transformers computes them, one text at a time, without
    padding."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = transformers.AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.inference_mode():
            rows.append(model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state.mean(1))
    return torch.nn.functional.normalize(torch.cat(rows), dim=1).numpy()


def test_bert_and_mpnet_give_the_vectors_of_transformers(folder):
    assert_allclose(embed(TEXTS, model=str(folder)), reference(folder, TEXTS), atol=1e-5)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's list of mappings")
def test_the_table_of_words_takes_no_memory(folder):
    embed(TEXTS, model=str(folder))
    assert str(folder) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_words_are_looked_up_in_the_file(tmp_path, kind):
    from safetensors.torch import save_file

    table = np.random.default_rng(0).normal(size=(7, 4)).astype(kind)
    save_file(
        {f"bert.{encoder.WORD_VECTORS_NAME}": torch.from_numpy(table)},
        tmp_path / "model.safetensors",
    )
    words = encoder.WordEmbeddingTable(tmp_path, SimpleNamespace(architecture="bert"))
    ids = np.array([[6, 0, 6], [2, 3, 0]])
    assert words[ids].dtype == np.float32
    assert np.array_equal(words[ids], table[ids].astype(np.float32))
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="cut short"):
        words[ids]


def test_first_token_pooling_is_read(folder):
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "cls"}))
    mean = reference(folder, TEXTS)
    assert np.abs(embed(TEXTS, model=str(folder)) - mean).max() > 1e-3


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "max"),
        (
            "modules.json",
            [{"path": "", "type": "x.Transformer"}, {"path": "1_Pooling", "type": "x.Dense"}],
            "Dense",
        ),
        ("config.json", {"model_type": "t5", "hidden_act": "relu"}, "t5"),
        ("config.json", {"model_type": "bert", "hidden_act": "gelu"}, "max_position_embeddings"),
        ("tokenizer.json", {}, "tokenizer"),
    ],
)
def test_another_kind_of_model_is_refused_in_one_line(folder, file, content, words):
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(ModelError, match=words) as caught:
        embed(["cut"], model=str(folder))
    assert "\n" not in str(caught.value)


def test_a_missing_an_unknown_and_a_misshapen_weight_are_named(folder):
    from safetensors.torch import load_file, save_file

    whole = load_file(folder / "model.safetensors")
    name = "encoder.layer.1.intermediate.dense.bias"
    for broken in (
        {key: value for key, value in whole.items() if key != name},
        whole | {"encoder.layer.1.intermediate.dense.bia": whole[name].clone()},
        whole | {name: whole[name][:-1].clone()},
    ):
        save_file(broken, folder / "model.safetensors")
        with pytest.raises(ModelError, match="intermediate.dense.bia"):
            embed(["cut"], model=str(folder))


def test_a_cut_off_weight_file_is_refused(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ModelError, match="cannot be read"):
        embed(["cut"], model=str(folder))


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ModelError, match="model.safetensors"):
        embed(["cut"], model=str(tmp_path))
