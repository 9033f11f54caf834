from dataclasses import replace
from pathlib import Path

import pytest
from fake_stages import STAGES

from stepline.curate.stage import StageFailure
from stepline.curate.store.results import ResultStore, StageFolders
from stepline.errors import StoreError
from stepline.files.remote import RemotePath

KEY = "ab" * 32
OTHER = "cd" * 32
READ = STAGES["read"]
SLOW = StageFailure("a", "read", "hang", "slow")


@pytest.fixture
def out(tmp_path):
    """OUT in an object store."""
    return RemotePath(f"memory://{tmp_path.name}-out")


def test_what_a_killed_run_left_of_a_file_is_fetched_again(tmp_path, monkeypatch, out):
    for machine in ("first", "second"):
        monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / machine))
        folder = StageFolders(out).prepare_folder(STAGES["total"], KEY)
        (folder / "rows.txt").write_text("whole" if machine == "second" else "wh")
    StageFolders(out).mark_complete("total", KEY)  # the second one ended
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "first"))
    assert (StageFolders(out).local_folder("total", KEY) / "rows.txt").read_text() == "whole"


@pytest.mark.parametrize("where", ["disk", "store"])
def test_folders_of_other_keys_are_named_with_their_size(tmp_path, monkeypatch, where, out):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    folders = StageFolders(RemotePath(str(tmp_path / "out")) if where == "disk" else out)
    for key in (KEY, OTHER):
        (folders.prepare_folder(STAGES["total"], key) / "rows.txt").write_text("twelve bytes")
        folders.mark_complete("total", key)
    unused = {f"stages/total/{OTHER}": 12}
    assert folders.unused_folders({"total": KEY, "publish": KEY}) == unused
    assert folders.unused_folders({"publish": KEY}) == {}


def test_a_folder_begins_empty_but_where_its_stage_goes_on(tmp_path):
    folders = StageFolders(RemotePath(str(tmp_path)))
    folder = folders.prepare_folder(STAGES["total"], KEY)
    (folder / "half").touch()
    assert (folders.prepare_folder(replace(STAGES["total"], resumes=True), KEY) / "half").exists()
    assert not (folders.prepare_folder(STAGES["total"], KEY) / "half").exists()
    assert not folders.is_complete("total", KEY)
    assert isinstance(folder, Path)


def test_a_result_and_a_failure_are_there_again(results):
    assert not results.has_result(READ, KEY)
    results.write_result(READ, KEY, b"text")
    gone = StageFailure("a", "read", "crash", "gone")
    assert [results.add_failure(READ, OTHER, one).attempts for one in (SLOW, gone)] == [1, 2]
    for store in (results, ResultStore(results.out)):
        assert store.has_result(READ, KEY)
        assert store.read_result(READ, KEY) == b"text"
        assert store.find_failure(READ, OTHER) == replace(gone, attempts=2)
        assert store.find_failure(READ, KEY) is None
        assert not store.has_result(READ, OTHER)


def test_a_failure_in_a_store_is_read_once(tmp_path, monkeypatch):
    ResultStore(RemotePath(f"memory://{tmp_path.name}")).add_failure(READ, OTHER, SLOW)
    results, asked, read = ResultStore(RemotePath(f"memory://{tmp_path.name}")), [], RemotePath.read
    monkeypatch.setattr(RemotePath, "read", lambda out: asked.append(out.name) or read(out))
    assert results.find_failure(READ, OTHER) == results.find_failure(READ, OTHER)
    assert len(asked) == 1
    assert results.add_failure(READ, OTHER, SLOW).attempts == 2
    assert results.find_failure(READ, OTHER).attempts == 2


def test_one_of_many_machines_asks_for_keys_without_a_listing(tmp_path, monkeypatch):
    out = RemotePath(f"memory://{tmp_path.name}")
    ResultStore(out).write_result(READ, KEY, b"text")
    monkeypatch.setattr(RemotePath, "list", lambda out: pytest.fail("it listed"))
    results = ResultStore(out, listed=False)
    assert results.has_result(READ, KEY)
    assert not results.has_result(READ, OTHER)
    assert results.find_failure(READ, OTHER) is None


@pytest.mark.parametrize("where", ["disk", "store"])
def test_a_listing_knows_keys_alone_and_what_came_since(tmp_path, where):
    out = RemotePath(str(tmp_path / "out") if where == "disk" else f"memory://{tmp_path.name}-keys")
    first, other = "00" * 32, "ff" * 32
    ResultStore(out).write_result(READ, first, b"text")
    # what is being written, and what is no key
    for name in (f"cd/.{OTHER}.77-1.partial.json", "README.md", f"ab/{KEY}0.json"):
        (out / f"cells/read/{name}").write(b"half")
    results = ResultStore(out)
    known = [results.has_result(READ, key) for key in (first, KEY, OTHER)]
    assert known == [True, False, False]
    results.write_result(READ, KEY, b"text")
    results.add_key(READ, other)  # another process has written it
    assert all(results.has_result(READ, key) for key in (first, KEY, other))


def test_a_damaged_failure_is_named(results):
    results.add_failure(READ, OTHER, SLOW)
    (results.out / f"failures/read/{OTHER}.json").write("{}")
    with pytest.raises(StoreError, match="not written by Stepline"):
        ResultStore(results.out).find_failure(READ, OTHER)
