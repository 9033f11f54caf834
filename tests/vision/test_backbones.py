"""The contract that every row of BACKBONES keeps. A new backbone needs one row in MAKERS here."""

import functools
import subprocess
import sys

import numpy as np
import pytest
from checkpoints import write_clip, write_internvideo, write_s3d
from numpy.testing import assert_allclose
from vision_samples import NOISE

from stepline.cli.options import PluginChoice
from stepline.errors import ModelError, SettingsError
from stepline.plugins import BUILT_IN_NAMES
from stepline.vision import BACKBONES, VisionSettings, load_backbone, s3d

TEXTS = ["cut the banana", "fold the paper in half", "cut", "fold"]


def make_clip(folder):
    pytest.importorskip("transformers")
    return VisionSettings(backbone="clip", path=write_clip(folder))


def make_precomputed(folder):
    np.save(folder / "v.npy", np.ones((3, 5), np.float32))
    np.savez(
        folder / "texts.npz", text=np.array(TEXTS), features=np.eye(4, 5, dtype=np.float32) + 1
    )
    return VisionSettings(backbone="precomputed", path=folder / "v.npy", texts=folder / "texts.npz")


def from_path(backbone, write, *given):
    return lambda folder: VisionSettings(backbone=backbone, path=write(folder, *given))


MAKERS = {
    "conse": lambda folder: VisionSettings(),
    "clip": make_clip,
    "internvideo": from_path("internvideo", write_internvideo),
    "s3d": from_path("s3d", write_s3d, TEXTS),
    "s3d-mixed5c": from_path("s3d-mixed5c", write_s3d, TEXTS),
    "precomputed": make_precomputed,
}
ROWS_ALONE = "s3d-mixed5c"  # keeps the lengths of its rows, in whose space no text lies


def test_settings_and_commands_offer_exactly_the_backbones_of_the_table():
    offered = tuple(PluginChoice("backbones").choices)
    assert (*BACKBONES, "none") == BUILT_IN_NAMES["backbones"] == offered


SEEING = [name for name in BACKBONES if name != "precomputed"]


@pytest.fixture(scope="module", autouse=True)
def small_clips():
    """S3D sees clips of 64 pixels, for speed alone: tests/vision/test_s3d.py has those of 224."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(s3d, "CLIP_SIDE", 64)
        yield


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Load a backbone, once for all tests: make(name)."""
    return functools.cache(lambda name: load_backbone(MAKERS[name](tmp_path_factory.mktemp(name))))


@pytest.fixture(scope="module")
def noise_rows(make):
    """The rows of NOISE by a backbone: noise_rows(name)."""
    return functools.cache(lambda name: make(name).encode_images(NOISE))


def test_every_backbone_is_under_contract():
    assert list(MAKERS) == list(BACKBONES)


@pytest.mark.parametrize("name", BACKBONES)
def test_texts_become_unit_rows_alike_each_time(name, make):
    backbone = make(name)
    rows = backbone.encode_texts(TEXTS)
    width = 512 if name == ROWS_ALONE else backbone.dim
    assert rows.shape == (len(TEXTS), width)
    assert rows.dtype == np.float32
    assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert rows.tobytes() == backbone.encode_texts(TEXTS).tobytes()
    assert_allclose(
        np.concatenate([backbone.encode_texts([text]) for text in TEXTS]), rows, atol=1e-5
    )
    assert backbone.encode_texts([]).shape == (0, width)


@pytest.mark.parametrize("name", SEEING)
def test_pictures_become_rows_alike_each_time_of_unit_length_where_texts_are(
    name, make, noise_rows
):
    backbone = make(name)
    rows = noise_rows(name)
    assert rows.shape == (len(NOISE), backbone.dim)
    assert rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5) == (name != ROWS_ALONE)
    assert rows.tobytes() == backbone.encode_images(NOISE).tobytes()


@pytest.mark.parametrize("name", SEEING)
def test_batch_size_does_not_matter(name, make, noise_rows):
    backbone = make(name)
    alone = np.concatenate(
        [backbone.encode_images(NOISE[row : row + 1]) for row in range(len(NOISE))]
    )
    assert_allclose(alone, noise_rows(name), atol=1e-5)
    assert backbone.encode_images(NOISE[:0]).shape == (0, backbone.dim)


def test_ready_features_have_the_contract_of_features(make):
    backbone = make("precomputed")
    assert backbone.features("v").values.shape == (3, backbone.dim)
    with pytest.raises(ModelError):
        backbone.encode_images(NOISE)


def test_none_has_nothing_to_load():
    with pytest.raises(SettingsError, match="conse"):
        load_backbone(VisionSettings(backbone="none"))


def test_importing_vision_and_text_stays_light():
    heavy = ("torch", "transformers", "av", "spacy")
    code = f"import stepline.vision, stepline.text, sys; print([name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
