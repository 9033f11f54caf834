import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from vision_samples import photo

from stepline.errors import ModelError, ShapeError
from stepline.text import embed
from stepline.vision import VisionSettings, conse, load_backbone
from stepline.vision.conse import ConSEBackbone, class_names, read_class_vectors


def test_the_classes_are_in_their_standard_order():
    names = class_names()
    assert len(names) == 1000
    known = {0: "tench", 1: "goldfish", 207: "golden retriever", 292: "tiger", 409: "analog clock", 504: "coffee mug"}
    known |= {567: "frying pan", 659: "mixing bowl", 813: "spatula", 909: "wok", 954: "banana", 999: "toilet"}
    assert {row: names[row].startswith(name) for row, name in known.items()} == dict.fromkeys(known, True)
    assert len(set(names)) == 1000


def test_the_stored_vectors_are_the_embeddings_of_the_names():
    rows = [0, 134, 517, 954, 999]
    names = class_names()
    assert_allclose(read_class_vectors()[rows], embed([names[row] for row in rows]), atol=1e-3)  # stored as float16


def test_vectors_of_other_names_are_refused(tmp_path, monkeypatch):
    other = tmp_path / "names.txt"
    other.write_text("tench\n")
    monkeypatch.setattr(conse, "NAMES", other)
    with pytest.raises(ModelError, match="not made from"):
        read_class_vectors()


def test_a_picture_is_the_weighted_mean_of_its_likeliest_names():
    chances = torch.tensor([[0.6, 0.2, 0.15, 0.05]])
    backbone = ConSEBackbone(lambda _: chances.log(), np.eye(4, dtype=np.float32), likeliest=2, text_model="minilm")
    vector = backbone.encode_images(np.zeros((1, 8, 8, 3), np.uint8))
    assert_allclose(vector, [[0.6 / 0.4**0.5, 0.2 / 0.4**0.5, 0, 0]], atol=1e-6)  # |(.6, .2)| = sqrt(.4)


def test_the_right_photo_is_found_for_a_caption():
    backbone = load_backbone(VisionSettings())
    photos = np.stack([photo("flower.jpg"), photo("china.jpg")])
    fit = backbone.encode_texts(["a flower in bloom", "a temple roof"]) @ backbone.encode_images(photos).T  # (K, B)
    assert fit.argmax(1).tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 8, 8, 1), (2, 0, 8, 3)])
def test_pictures_of_another_shape_are_refused(shape):
    backbone = ConSEBackbone(lambda _: None, np.eye(4, dtype=np.float32), likeliest=2, text_model="minilm")
    with pytest.raises(ShapeError, match="pictures must be"):
        backbone.encode_images(np.zeros(shape, np.uint8))
