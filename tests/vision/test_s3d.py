"""S3D-G against what the official code gave for weights in closed form."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import write_s3d
from small_video import encode_video
from vision_samples import frame

from stepline.errors import ModelError, SettingsError, ShapeError
from stepline.media import Frame
from stepline.vision import VisionSettings, load_backbone
from stepline.vision.s3d import (
    CLIP_SIDE,
    TextTower,
    WordDictionary,
    prepare,
    read_dictionary,
    read_s3d,
)
from stepline.vision.s3d_network import S3D

PARITY = Path(__file__).parents[3] / "shared" / "s3d_parity" / "expected.json"
WORDS = 66_249  # of the released dictionary
BOUND = 1e-5  # relative L2


@pytest.fixture(scope="module")
def official():
    if not PARITY.exists():
        pytest.skip(f"{PARITY} is not here")
    return json.loads(PARITY.read_text())


@pytest.fixture(scope="module")
def network():
    return filled(S3D())


def filled(module, prefix=""):
    """The module with the parity case's weights: a wave over each tensor's elements, as its README
    says."""
    module.load_state_dict(
        {name: wave(prefix + name, value) for name, value in module.state_dict().items()}
    )
    return module.eval()


def wave(name, like):
    if name.endswith("num_batches_tracked"):
        return torch.zeros((), dtype=torch.int64)
    i = np.arange(like.numel(), dtype=np.int64)
    shift = sum(name.encode()) % 97
    if like.ndim >= 2:
        is_table = name.endswith("word_embd.weight")
        height = 1.0 if is_table else 2.7 / np.sqrt(like.numel() / like.shape[0])
        values = height * np.sin(0.37 * i + shift + (i * i) % 10007)
    else:
        sine = np.sin(0.37 * i + shift)
        of = {"running_mean": 0.05 * sine, "running_var": 1 + 0.2 * sine**2, "bias": 0.05 * sine}
        values = of.get(name.rpartition(".")[2], 1 + 0.1 * sine)
    return torch.from_numpy(values.astype(np.float32)).reshape(like.shape)


def clips(shape):
    return torch.from_numpy(
        (0.5 + 0.5 * np.sin(0.013 * np.arange(np.prod(shape)))).astype(np.float32)
    ).reshape(shape)


def distance(given, wanted):
    given, wanted = np.asarray(given, np.float64), np.asarray(wanted, np.float64)
    return np.linalg.norm(given - wanted) / np.linalg.norm(wanted)


def assert_same(output, wanted):
    flat = output.flatten()
    assert list(output.shape) == wanted["shape"]
    assert abs(float(flat.double().norm()) / wanted["l2"] - 1) < BOUND
    usual = wanted["l2"] / np.sqrt(flat.numel())  # the samples may all be zero
    spread = flat[:: wanted["stride"]][:16]
    for sample, values in ((flat[:16], wanted["first16"]), (spread, wanted["every_stride16"])):
        values = np.array(values)
        assert np.linalg.norm(sample.numpy() - values) < BOUND * max(
            np.linalg.norm(values), 4 * usual
        )


@pytest.mark.parametrize("case", range(3))
def test_every_block_gives_what_the_official_code_gives(official, network, case):
    wanted = official["cases"][case]
    with torch.no_grad():
        stages = dict(network.stages(clips(wanted["input_shape"])))
        joint = network(clips(wanted["input_shape"]))
        pooled = network.pooled(clips(wanted["input_shape"]))
    assert_same(stages.pop("space_to_depth"), wanted["space_to_depth"])
    assert list(stages) == list(wanted["blocks"])
    for name, output in stages.items():
        assert_same(output, wanted["blocks"][name])
    assert distance(joint, wanted["video_embedding"]) < BOUND
    assert distance(pooled, wanted["mixed_5c_pooled"]) < BOUND


def test_parameters_are_as_many_as_published(official):
    with torch.device("meta"):
        video, words = S3D(), TextTower(WORDS + 1)
    count = [sum(weight.numel() for weight in module.parameters()) for module in (video, words)]
    told = [official["parameters"][name] for name in ("video", "text_module")]
    assert count == [9_670_800, 21_540_536] == told


def test_names_and_shapes_are_those_of_the_released_file(official):
    with torch.device("meta"):
        video, words = S3D().state_dict(), TextTower(WORDS + 1).state_dict()
    ours = {**video, **{f"text_module.{name}": value for name, value in words.items()}}
    assert {name: list(value.shape) for name, value in ours.items()} == {
        name: entry["shape"] for name, entry in official["state_dict"].items()
    }


def test_texts_give_what_the_official_code_gives(official):
    wanted = official["text"]
    tokens = WordDictionary([f"w{place + 1}" for place in range(WORDS)]).tokens(wanted["sentences"])
    assert tokens.tolist() == wanted["tokens"]
    with torch.no_grad():
        joint = filled(TextTower(WORDS + 1), "text_module.")(tokens)
    assert distance(joint, wanted["text_embedding"]) < BOUND


def test_tan_keeps_the_place_of_an_unknown_word():
    dictionary = WordDictionary(["cut", "banana"])
    assert dictionary.tokens(["Cut THE banana!"])[0, :4].tolist() == [1, 2, 0, 0]
    assert dictionary.tokens(["Cut THE banana!"], "tan")[0, :4].tolist() == [1, 0, 2, 0]
    assert dictionary.tokens(["cut " * 40]).shape == (1, 16)
    assert dictionary.tokens(["cut " * 40], "tan").shape == (1, 32)


def test_tan_never_counts_padding():
    torch.manual_seed(0)
    words = TextTower(3).eval()
    with torch.no_grad():
        words.word_embd.weight[0] = 50.0  # were padding a word, it would win
        alone = words(torch.tensor([[1]]))
        torch.testing.assert_close(words(torch.tensor([[1, 0]]), "tan"), alone)
        torch.testing.assert_close(words(torch.tensor([[0, 1, 0, 0]]), "tan"), alone)
        assert not torch.allclose(words(torch.tensor([[1, 0]])), alone)
        assert torch.isfinite(words(torch.tensor([[0, 0]]), "tan")).all()


@pytest.mark.parametrize(
    "shape", [(1, 3, 15, 64, 64), (1, 3, 16, 63, 64), (1, 1, 16, 64, 64), (3, 16, 64, 64)]
)
def test_clips_of_odd_sides_are_refused(network, shape):
    with pytest.raises(ShapeError, match="even"):
        network(torch.zeros(shape))


def test_training_reaches_every_weight():
    torch.manual_seed(0)
    network = S3D().train()
    network(torch.rand(2, 3, 4, 32, 32)).square().sum().backward()
    assert [name for name, weight in network.named_parameters() if weight.grad is None] == []


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    return write_s3d(tmp_path_factory.mktemp("s3d"), ["cut the banana"])


def changed(weights, tmp_path, change):
    content = torch.load(weights, weights_only=True)
    change(content)
    torch.save(content, tmp_path / "changed.pth")
    return tmp_path / "changed.pth"


def test_released_names_are_read_even_without_the_counts_of_batches(weights, tmp_path):
    def older(content):
        for name in [name for name in content if name.endswith("num_batches_tracked")]:
            del content[name]

    video, words = read_s3d(changed(weights, tmp_path, older), 4)
    whole = torch.load(weights, weights_only=True)
    assert all(torch.equal(value, whole[name]) for name, value in video.state_dict().items())
    assert torch.equal(words.word_embd.weight, whole["text_module.word_embd.weight"])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state: state.pop("mixed_4d.gating_b1.fc.bias"), "4d.gating_b1.fc.bias is missing"),
        (lambda state: state.update(extra=torch.zeros(1)), "extra is unknown"),
        (lambda state: state.update({"fc.weight": torch.zeros(5, 5)}), r"fc.weight is \(5, 5\)"),
        (lambda state: state["fc.bias"].fill_(float("nan")), "fc.bias holds NaN"),
        (lambda state: state.update({"fc.weight": "text"}), "no tensors by name"),
    ],
)
def test_weights_that_do_not_fit_are_named(weights, tmp_path, change, told):
    with pytest.raises(ModelError, match=told):
        read_s3d(changed(weights, tmp_path, change), 4)


def test_a_dictionary_of_another_size_is_reported(weights):
    with pytest.raises(ModelError, match="3 word vectors for a dictionary of 9 words"):
        read_s3d(weights, 10)


def test_a_file_that_is_not_a_checkpoint_is_refused(tmp_path):
    (tmp_path / "broken.pth").write_bytes(b"not a checkpoint")
    with pytest.raises(ModelError, match="broken.pth"):
        read_s3d(tmp_path / "broken.pth", 4)


@pytest.mark.parametrize(
    "array", [np.array([["a"]]), np.array([1, 2]), np.array(["a", "a"]), np.array([{}], object)]
)
def test_an_invalid_dictionary_is_refused(tmp_path, array):
    np.save(tmp_path / "d.npy", array)
    with pytest.raises(ModelError, match="s3d_dict.npy"):
        read_dictionary(tmp_path / "d.npy")


def test_a_missing_dictionary_or_path_is_reported(tmp_path):
    with pytest.raises(ModelError, match="s3d_dict.npy"):
        load_backbone(VisionSettings(backbone="s3d", path=tmp_path / "s3d.pth"))
    with pytest.raises(SettingsError, match="vision.path"):
        load_backbone(VisionSettings(backbone="s3d"))


def test_a_clip_is_the_middle_224_of_256_pixels_from_0_to_1():
    """NaSVA, supplement 6.1."""
    frames = torch.full((1, 2, 256, 320, 3), 255, dtype=torch.uint8)
    frames[:, :, :16] = frames[:, :, -16:] = 0  # 16 px above and below are cut off,
    frames[:, :, :, :48] = frames[:, :, :, -48:] = 0  # and 48 px at each side
    prepared = prepare(frames)
    assert prepared.shape == (1, 3, 2, CLIP_SIDE, CLIP_SIDE)
    assert torch.equal(prepared, torch.ones_like(prepared))


class FirstAndLast:
    """Encodes a clip of four pictures as the grey levels of its first and its last."""

    name, dim, clip_frames = "ends", 2, 4

    def encode_clips(self, clips):
        return clips[:, [0, -1], 0, 0, 0].astype(np.float32)

    def encode_images(self, pictures):
        raise AssertionError("a backbone of clips is shown clips")

    def encode_texts(self, texts):
        return np.zeros((len(texts), 2), np.float32)


@pytest.mark.parametrize(
    ("frames", "batch", "rows"),
    [
        ([((k + 0.5) / 4, k) for k in range(12)], 4, [[0, 3], [4, 7], [8, 11]]),
        # the nearest of the second, where a part has none, and a neighbour's row
        ([(0.4, 1), (0.6, 2), (1.9, 3)], 1, [[1, 2], [3, 3]]),
        ([(0.1, 1), (2.9, 5)], 4, [[1, 1], [1, 1], [5, 5]]),
    ],
)
def test_a_row_of_a_clip_backbone_is_shown_the_frames_of_its_second(frames, batch, rows):
    frames = [frame(*pair) for pair in frames]
    assert encode_video(frames, FirstAndLast(), batch=batch).values.tolist() == rows


def test_a_picture_that_changes_its_size_within_a_second_starts_the_second_again():
    frames = [frame(0.1, 1), Frame(0.6, np.full((30, 30, 3), 9, np.uint8))]
    assert encode_video(frames, FirstAndLast()).values.tolist() == [[9, 9]]
