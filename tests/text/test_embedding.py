from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose

from stepline.errors import ModelError
from stepline.networks.device import Device
from stepline.networks.weights import find_weights
from stepline.text import embed, embedding

TEXTS = [
    "Cut the banana into slices.",
    "Slice the banana",
    "Tighten the bolt with a wrench",
    "",
    "peel",
]


def test_rows_are_unit_vectors_of_width_384():
    vectors = embed(TEXTS)
    assert vectors.shape == (5, 384)
    assert vectors.dtype == np.float32
    assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_no_texts_give_no_rows():
    assert embed([]).shape == (0, 384)


def test_a_paraphrase_is_nearer_than_another_action():
    cut, slice_, bolt, *_ = embed(TEXTS)
    assert cut @ slice_ > 0.8 > 0.3 > cut @ bolt


def test_neither_batch_size_nor_company_changes_a_vector():
    mixed = [*TEXTS, "a much longer text " * 30]
    together = embed(mixed, batch=32)
    assert_allclose(embed(mixed, batch=2), together, atol=1e-5)
    assert_allclose(np.concatenate([embed([text]) for text in mixed]), together, atol=1e-5)


def test_same_texts_give_the_same_bytes():
    assert embed(TEXTS).tobytes() == embed(TEXTS).tobytes()


def test_a_text_is_cut_at_the_longest_input():
    # 256 tokens with both marks
    assert_allclose(embed(["cut " * 300]), embed(["cut " * 254]), atol=1e-6)


def test_threads_share_one_model(monkeypatch):
    monkeypatch.setattr(embedding, "_loaded", {})
    with ThreadPoolExecutor(4) as threads:
        encoders = [
            done.result() for done in [threads.submit(embedding.load_encoder) for _ in range(4)]
        ]
    assert len(set(map(id, encoders))) == 1


def test_onnx_runtime_and_torch_give_the_same_vectors(monkeypatch):
    found = embed([*TEXTS, "mix " * 400])
    monkeypatch.setattr(embedding, "_loaded", {})
    monkeypatch.setattr(Device, "needs_torch", True)
    expected = embed([*TEXTS, "mix " * 400])
    assert (found.astype(np.float64) * expected).sum(1).min() >= 0.9999999


def test_an_unknown_model_is_named():
    with pytest.raises(ModelError, match="no-such-model"):
        embed(["a"], model="no-such-model")


@pytest.mark.filterwarnings("ignore")  # of the library that is only compared with
def test_vectors_are_those_of_sentence_transformers():
    library = pytest.importorskip("sentence_transformers")
    texts = [*TEXTS, "Über 200 °C — don't touch! 你好", "mix " * 400]
    expected = library.SentenceTransformer(str(find_weights("minilm")), device="cpu").encode(texts)
    assert_allclose(embed(texts), expected, atol=1e-5)
