import json
import os

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from safetensors.numpy import save_file

from stepline.errors import ModelError, SettingsError, ShapeError, StoreError
from stepline.features.files import (
    find_feature_file,
    read_feature_file,
    read_text_features,
    write_feature_file,
)
from stepline.records import FeatureSequence
from stepline.vision import VisionSettings, load_backbone

VALUES = np.array([[3, 4], [0, 2], [0, 0]], dtype=np.float32)  # (T, D)
UNIT = [[0.6, 0.8], [0, 1], [0, 0]]


def write(path, values=VALUES):
    """Write features in the format that the name says."""
    if path.name.endswith(".npy"):
        np.save(path, values)
    elif path.suffix == ".npz":
        np.savez(path, features=values, start=np.arange(len(values)))
    elif path.suffix == ".safetensors":
        save_file({"features": values}, path)
    else:
        torch.save(torch.from_numpy(values), path)
    return path


@pytest.mark.parametrize(
    "name", ["v.npy", "v.mp4.npy", "v.npz", "v.safetensors", "v.pth", "v.pth.tar", "v.pt"]
)
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_every_format_gives_the_same_unit_rows(name, kind, tmp_path):
    features = read_feature_file(write(tmp_path / name, VALUES.astype(kind)), rate=2.0)
    assert_allclose(features.values, UNIT, atol=1e-6)
    assert features.values.dtype == np.float32
    assert (features.rate, features.backbone) == (2.0, "precomputed")


def test_rows_stay_as_they_are_where_a_network_wants_them_so(tmp_path):
    path = write(tmp_path / "v.npy")
    assert np.array_equal(read_feature_file(path, unit=False).values, VALUES)
    told = {"text": ["cut", "stir", "rest"], "features": torch.from_numpy(VALUES)}
    torch.save(told, tmp_path / "texts.pth")
    settings = VisionSettings(
        backbone="precomputed", path=path, texts=tmp_path / "texts.pth", unit=False
    )
    backbone = load_backbone(settings)
    assert np.array_equal(backbone.features("v").values, VALUES)
    assert np.array_equal(backbone.encode_texts(["stir"]), VALUES[1:2])
    assert settings.text_space == "precomputed"
    assert VisionSettings().text_space == "minilm"


def test_a_bfloat16_tensor_is_read(tmp_path):
    torch.save(torch.from_numpy(VALUES).bfloat16(), tmp_path / "v.pth")
    assert_allclose(read_feature_file(tmp_path / "v.pth").values, UNIT, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.zeros((3,), np.float32), r"\(T, D\)"),
        (np.zeros((1, 3, 2), np.float32), r"\(T, D\)"),
        (np.zeros((0, 2), np.float32), r"\(T, D\)"),
        (np.zeros((3, 2), np.int64), "int64"),
        (np.array([[1, 2], [np.nan, 1]], np.float32), "row 1 holds NaN"),
        (np.array([[np.inf, 2]], np.float16), "row 0 holds NaN or infinity"),
        (np.array([[1e300, 2]], np.float64), "row 0"),
        (np.zeros((3, 5), np.float32), "5 wide"),
    ],
)
def test_what_is_not_a_table_of_numbers_is_refused_in_one_line(values, words, tmp_path):
    with pytest.raises(ShapeError, match=words) as caught:
        read_feature_file(write(tmp_path / "v.npy", values), width=2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["v.npy", "v.npz", "v.safetensors", "v.pth", "v.pth.tar", "v.txt"])
@pytest.mark.parametrize("content", [b"", b"rubbish", b"\x80\x02}q\x00."])
def test_a_damaged_file_is_refused_in_one_line(name, content, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises((StoreError, ShapeError), match=r"v\.") as caught:
        read_feature_file(path)
    assert "\n" not in str(caught.value)


class Evil:
    def __reduce__(self):
        return (os.mkdir, ("evil",))


@pytest.mark.parametrize("name", ["v.npy", "v.pth"])
def test_a_file_that_would_run_code_is_refused_unrun(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "v.npy":
        np.save(name, np.array([Evil()], dtype=object), allow_pickle=True)
    else:
        torch.save({"features": Evil()}, name)
    with pytest.raises(StoreError, match=name):
        read_feature_file(tmp_path / name)
    assert not (tmp_path / "evil").exists()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"absent\.npy"):
        read_feature_file(tmp_path / "absent.npy")


def test_several_arrays_need_a_name(tmp_path):
    np.savez(tmp_path / "v.npz", a=VALUES, b=VALUES)
    with pytest.raises(StoreError, match="a, b"):
        read_feature_file(tmp_path / "v.npz")


@pytest.mark.parametrize("times", [[1.0, 2.0], np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])])
def test_the_released_text_features_are_read(times, tmp_path):
    released = {"vid": "v", "start": times, "end": times, "text": ["cut", "fold"]}
    released["features"] = torch.ones(2, 3).half()
    torch.save(released, tmp_path / "v.pth")
    texts = read_text_features(tmp_path / "v.pth")
    assert texts.texts == ("cut", "fold")
    assert texts.values.tolist() == [[1, 1, 1]] * 2


def test_text_features_come_from_npz_and_safetensors_too(tmp_path):
    np.savez(tmp_path / "t.npz", text=np.array(["cut", "fold"]), features=VALUES[:2])
    told = {"text": json.dumps(["cut", "fold"])}
    save_file({"features": VALUES[:2]}, tmp_path / "t.safetensors", metadata=told)
    first, second = (read_text_features(tmp_path / f"t.{kind}") for kind in ("npz", "safetensors"))
    assert first.texts == second.texts == ("cut", "fold")
    assert_allclose(first.values, second.values)


def test_texts_and_rows_must_pair(tmp_path):
    np.savez(tmp_path / "t.npz", text=np.array(["cut"]), features=VALUES)
    with pytest.raises(ShapeError, match="1 texts but 3 rows"):
        read_text_features(tmp_path / "t.npz")
    with pytest.raises(StoreError, match="no 'text'"):
        read_text_features(write(tmp_path / "v.npy"))


def test_a_video_is_found_in_the_folder_or_one_below(tmp_path):
    (tmp_path / "ab").mkdir()
    below = write(tmp_path / "ab" / "ab12.pth.tar")
    here = write(tmp_path / "x.y.mp4.npy")
    assert find_feature_file(tmp_path, "ab12") == below
    assert find_feature_file(tmp_path, "x.y") == here
    for absent in ("ab", "../x.y", ""):
        with pytest.raises(StoreError, match=r"video"):
            find_feature_file(tmp_path, absent)


def backbone(tmp_path, **options):
    return load_backbone(VisionSettings(backbone="precomputed", **options))


def test_texts_are_looked_up_and_missing_ones_named(tmp_path):
    np.savez(tmp_path / "t.npz", text=np.array(["cut", "fold"]), features=VALUES[:2])
    ready = backbone(tmp_path, path=write(tmp_path / "v.npy"), texts=tmp_path / "t.npz")
    assert ready.dim == 2
    assert_allclose(ready.encode_texts(["fold", "cut"]), [[0, 1], [0.6, 0.8]], atol=1e-6)
    assert_allclose(ready.features("any").values, UNIT, atol=1e-6)
    with pytest.raises(StoreError, match=r"'mix' \(1 of 2"):
        ready.encode_texts(["mix", "cut"])


def test_what_ready_features_cannot_do_is_said(tmp_path):
    with pytest.raises(SettingsError, match=r"vision\.path"):
        backbone(tmp_path)
    ready = backbone(tmp_path, path=write(tmp_path / "v.npy"))
    with pytest.raises(ModelError, match="cannot encode 2 pictures"):
        ready.encode_images(np.zeros((2, 4, 4, 3), np.uint8))
    with pytest.raises(SettingsError, match=r"vision\.texts"):
        ready.encode_texts(["cut"])


def test_our_own_files_say_their_rate_and_backbone_and_keep_half_precision(tmp_path):
    values = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    write_feature_file(FeatureSequence(values, 2.0, "conse"), tmp_path / "f.safetensors")
    back = read_feature_file(tmp_path / "f.safetensors", rate=1.0, unit=False)
    assert (back.rate, back.backbone, back.values.dtype) == (2.0, "conse", np.float32)
    np.testing.assert_allclose(back.values, values, atol=5e-4)


@pytest.mark.parametrize("data", [b"", b"\x00" * 64, b"{}"])
def test_what_is_not_a_feature_file_is_refused(data, tmp_path):
    path = tmp_path / "f.safetensors"
    path.write_bytes(data)
    with pytest.raises(StoreError, match="cannot be read"):
        read_feature_file(path)
