import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from numpy.testing import assert_allclose
from vision_samples import NOISE, photo

from stepline.errors import ModelError, ShapeError
from stepline.networks.weights import find_weights
from stepline.text import embed
from stepline.vision import VisionSettings, conse, load_backbone
from stepline.vision.conse import ConSEBackbone, class_names, read_class_vectors
from stepline.vision.efficientnet import EfficientNetLite0, list_convolutions, resize


def test_the_classes_are_in_their_standard_order():
    names = class_names()
    assert len(names) == 1000
    known = {0: "tench", 1: "goldfish", 207: "golden retriever", 292: "tiger"}
    known |= {409: "analog clock", 504: "coffee mug", 567: "frying pan", 659: "mixing bowl"}
    known |= {813: "spatula", 909: "wok", 954: "banana", 999: "toilet"}
    assert {row: names[row].startswith(name) for row, name in known.items()} == dict.fromkeys(
        known, True
    )
    assert len(set(names)) == 1000


def test_the_stored_vectors_are_the_embeddings_of_the_names():
    rows = [0, 134, 517, 954, 999]
    names = class_names()
    # stored as float16
    assert_allclose(read_class_vectors()[rows], embed([names[row] for row in rows]), atol=1e-3)


def test_the_network_is_loaded_once_for_many_videos_and_any_number_of_threads(monkeypatch):
    load_backbone(VisionSettings())
    # a second one cannot be made
    monkeypatch.setattr("stepline.vision.efficientnet.EfficientNetLite0", None)
    load_backbone(VisionSettings(classes=5))
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    load_backbone(VisionSettings())


def test_vectors_of_other_names_are_refused(tmp_path, monkeypatch):
    other = tmp_path / "names.txt"
    other.write_text("tench\n")
    monkeypatch.setattr(conse, "NAMES_FILE", other)
    with pytest.raises(ModelError, match="not made from"):
        read_class_vectors()


def test_a_picture_is_the_weighted_mean_of_its_most_likely_names():
    chances = np.array([[0.6, 0.2, 0.15, 0.05]])
    backbone = ConSEBackbone(
        lambda _: np.log(chances), np.eye(4, dtype=np.float32), class_count=2, text_model="minilm"
    )
    vector = backbone.encode_images(np.zeros((1, 8, 8, 3), np.uint8))
    # |(.6, .2)| = sqrt(.4)
    assert_allclose(vector, [[0.6 / 0.4**0.5, 0.2 / 0.4**0.5, 0, 0]], atol=1e-6)


def test_the_right_photo_is_found_for_a_caption():
    backbone = load_backbone(VisionSettings())
    photos = np.stack([photo("flower.jpg"), photo("china.jpg")])
    # (K, B)
    texts = backbone.encode_texts(["a flower in bloom", "a temple roof"])
    fit = texts @ backbone.encode_images(photos).T
    assert fit.argmax(1).tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(2, 8, 8), (2, 8, 8, 1), (2, 0, 8, 3)])
def test_pictures_of_another_shape_are_refused(shape):
    backbone = ConSEBackbone(
        lambda _: None, np.eye(4, dtype=np.float32), class_count=2, text_model="minilm"
    )
    with pytest.raises(ShapeError, match="pictures must be"):
        backbone.encode_images(np.zeros(shape, np.uint8))


@pytest.fixture(scope="module")
def network():
    return EfficientNetLite0(find_weights("efficientnet-lite0"))


@pytest.fixture(scope="module")
def weights():
    return torch.load(find_weights("efficientnet-lite0"), weights_only=True)


def plain_scores(weights, pictures):
    """The network as TensorFlow defines it: "same" padding, BatchNorm apart, no folding, no
    turning."""
    hidden = (pictures.permute(0, 3, 1, 2).float() - 127) / 128
    for part in list_convolutions():
        before = hidden
        for conv in part:
            kernel, side = conv.shape[2], hidden.shape[2]
            total = max((-(-side // conv.stride) - 1) * conv.stride + kernel - side, 0)
            hidden = F.pad(hidden, (total // 2, total - total // 2) * 2)
            hidden = F.conv2d(
                hidden, weights[f"{conv.name}.weight"], stride=conv.stride, groups=conv.groups
            )
            names = ("running_mean", "running_var", "weight", "bias")
            norm = [weights[f"{conv.norm}.{name}"] for name in names]
            hidden = F.batch_norm(hidden, *norm, eps=1e-3)
            hidden = F.relu6(hidden) if conv.has_relu6 else hidden
            hidden = hidden + before if conv.has_residual else hidden
    return F.linear(hidden.mean((2, 3)), weights["_fc.weight"], weights["_fc.bias"])


def test_the_scores_are_those_of_the_network_as_published(network, weights):
    images = np.ascontiguousarray(
        np.stack([photo("flower.jpg")[:224, :224], photo("china.jpg")[:224, :224]])
    )
    expected = plain_scores(weights, torch.from_numpy(images))
    scores = network(images)
    assert_allclose(scores, expected, atol=3e-5)  # scores reach 10
    assert_allclose(torch.from_numpy(scores).softmax(1), expected.softmax(1), atol=1e-5)


@pytest.mark.parametrize(
    "size", [(256, 455), (455, 256), (224, 300), (100, 80), (9, 3), (720, 1280), (2000, 230)]
)
def test_an_image_is_resized_to_the_pixels_that_torch_makes(size):
    image = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    planes = torch.from_numpy(image).permute(2, 0, 1)[None]
    expected = F.interpolate(planes, (224, 224), mode="bilinear", antialias=True)[0].permute(
        1, 2, 0
    )
    np.testing.assert_array_equal(resize(image), expected)


def test_the_network_has_the_published_size():
    assert len(list_convolutions()) == 18
    shapes = [conv.shape for part in list_convolutions() for conv in part]
    convolutions = sum(int(np.prod(shape)) for shape in shapes)
    norms = 2 * sum(shape[0] for shape in shapes)
    assert convolutions + norms + 1280 * 1000 + 1000 == 4_652_008


@pytest.mark.parametrize(("name", "expected"), [("flower.jpg", "daisy"), ("china.jpg", "palace")])
def test_photos_are_recognised(network, name, expected):
    scores = network(photo(name)[None])[0]
    likeliest = [class_names()[row] for row in np.argsort(-scores)[:5]]
    assert expected in likeliest


def test_any_size_of_picture_is_taken(network):
    assert network(NOISE[:2]).shape == (2, 1000)
    assert network(NOISE[:1, :9, :3]).shape == (1, 1000)


def test_missing_unknown_and_misshapen_weights_are_named(weights, tmp_path):
    path = tmp_path / "lite0.pth"
    for name, change in (
        ("_fc.bias", None),
        ("_fc.extra", torch.zeros(1)),
        ("_conv_stem.weight", torch.zeros(3, 3)),
    ):
        broken = copy.copy(weights)
        broken.pop(name, None)
        if change is not None:
            broken[name] = change
        torch.save(broken, path)
        with pytest.raises(ModelError, match=name):
            EfficientNetLite0(path)


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("evil"),))


@pytest.mark.parametrize("content", [Evil(), [1, 2]])
def test_a_checkpoint_that_is_not_a_state_dict_is_refused_unrun(content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(content, tmp_path / "lite0.pth")
    with pytest.raises(ModelError, match="state dict") as caught:
        EfficientNetLite0(tmp_path / "lite0.pth")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "evil").exists()


def test_a_file_that_is_not_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "x.pth").write_bytes(b"rubbish")
    with pytest.raises(ModelError, match=r"x\.pth"):
        EfficientNetLite0(tmp_path / "x.pth")
