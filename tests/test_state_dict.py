import io
import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

from stepline.errors import ModelError
from stepline.networks.state_dict import read_state_dict, read_tensors
from stepline.networks.weights import find_weights

TABLE = torch.arange(24.0).reshape(4, 6)
KINDS = "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
VIEWS = (TABLE, TABLE.T, TABLE[1:3, ::2], TABLE[2, 3])
CONTENT = {
    "module": torch.nn.BatchNorm1d(3).state_dict(),  # with `_metadata`
    "views of one storage": dict(zip("abcd", VIEWS, strict=True)),
    "kinds": {kind: TABLE.to(getattr(torch, kind)) for kind in KINDS},
    "parameters": OrderedDict(
        weight=torch.nn.Parameter(TABLE), empty=torch.zeros(0, 3), number=torch.tensor(3)
    ),
}


def assert_same(found, path):
    expected = torch.load(path, weights_only=True)
    assert list(found) == list(expected)
    for name, tensor in expected.items():
        plain = tensor.detach().float() if tensor.dtype == torch.bfloat16 else tensor.detach()
        assert (found[name].dtype, found[name].shape) == (plain.numpy().dtype, tuple(plain.shape))
        np.testing.assert_array_equal(found[name], plain.numpy())


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("content", CONTENT)
def test_every_tensor_is_what_torch_reads(content, zipped, tmp_path):
    torch.save(CONTENT[content], tmp_path / "x.pth", _use_new_zipfile_serialization=zipped)
    assert_same(read_state_dict(tmp_path / "x.pth"), tmp_path / "x.pth")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_trainer_s_checkpoint_is_read_for_its_state_dict(zipped, tmp_path):
    kinds = CONTENT["kinds"]
    whole = {"epoch": 3, "state_dict": kinds, "optimizer": [{"step": TABLE.double()}]}
    torch.save(whole, tmp_path / "x.ckpt", _use_new_zipfile_serialization=zipped)
    torch.save(kinds, tmp_path / "x.pth")
    assert_same(read_state_dict(tmp_path / "x.ckpt"), tmp_path / "x.pth")


def test_every_tensor_of_efficientnet_is_what_torch_reads():
    path = find_weights("efficientnet-lite0")
    assert_same(read_state_dict(path), path)


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("evil"),))


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        Evil(),
        [1, 2],
        {1, 2},
        *({"a": value} for value in (Evil(), 1, torch.nn.Linear(2, 2), np.ones(2))),
    ],
)
@pytest.mark.filterwarnings("ignore")  # torch's, of what is saved
def test_whatever_is_not_a_tensor_by_name_is_refused_unrun(content, zipped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(content, "x.pth", _use_new_zipfile_serialization=zipped)
    message = r"x\.pth: not a net's weights \(.*\); give another"
    with pytest.raises(ModelError, match=message) as caught:
        read_tensors(Path("x.pth"), "a net", "give another")
    assert "\n" not in str(caught.value)
    assert not Path("evil").exists()


def call(name, *given):
    """A pickle that calls a name, as torch's are written."""
    stack = b"".join(pickle.dumps(each, protocol=2)[2:-1] for each in given)
    called = name.replace(" ", "\n").encode()
    return b"\x80\x02}X\x01\x00\x00\x00ac" + called + b"\n(" + stack + b"tRs."


@pytest.mark.parametrize(
    "name", ["os system", "builtins eval", "torch load", "torch._utils _rebuild_sparse_tensor"]
)
def test_only_the_names_that_make_tensors_may_be_called(name, tmp_path):
    with zipfile.ZipFile(tmp_path / "x.pth", "w") as archive:
        archive.writestr("x/data.pkl", call(name, "touch evil"))
    with pytest.raises(ValueError, match=f"holds {name}, which no state dict has"):
        read_state_dict(tmp_path / "x.pth")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_file_cut_off_or_changed_anywhere_is_refused_or_read(zipped, tmp_path):
    """Nothing but ValueError, whatever a byte becomes."""
    whole, path, rng = io.BytesIO(), tmp_path / "x.pth", np.random.default_rng(0)
    torch.save(CONTENT["module"], whole, _use_new_zipfile_serialization=zipped)
    data, refused = whole.getvalue(), 0
    for number in range(400):
        changed = bytearray(data[: rng.integers(len(data))] if number % 2 else data)
        if not number % 2:
            changed[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(changed)
        try:
            read_state_dict(path)
        except ValueError:
            refused += 1
    assert refused > 200


def test_a_tensor_beyond_its_storage_and_compressed_numbers_are_refused(tmp_path):
    path = tmp_path / "x.pth"
    torch.save({"a": TABLE}, path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    larger = parts["x/data.pkl"].replace(b"K\x04K\x06", b"K\x05K\x06")
    for change, words in (
        ({"x/data/0": parts["x/data/0"][:-4]}, "92 bytes in place of 96"),
        ({"x/data.pkl": larger}, "cannot hold"),
        ({"x/byteorder": b"big"}, "big-endian"),
        ({}, "compressed"),
    ):
        form = zipfile.ZIP_STORED if change else zipfile.ZIP_DEFLATED
        with zipfile.ZipFile(path, "w", form) as archive:
            for name, data in (parts | change).items():
                archive.writestr(name, data)
        with pytest.raises(ValueError, match=words):
            read_state_dict(path)
