from pathlib import Path

import pytest
from fake_stages import STAGES

from stepline.curate.remote import RemotePath
from stepline.curate.store.results import StageFolders

KEY = "ab" * 32


@pytest.fixture
def out(tmp_path):
    """OUT in an object store."""
    return RemotePath(f"memory://{tmp_path.name}-out")


def test_what_a_killed_run_left_of_a_file_is_fetched_anew(tmp_path, monkeypatch, out):
    for machine in ("first", "second"):
        monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / machine))
        folder = StageFolders(out).begin(STAGES["total"], KEY)
        (folder / "rows.txt").write_text("whole" if machine == "second" else "wh")
    StageFolders(out).complete("total", KEY)  # the second one ended
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "first"))
    assert (StageFolders(out).local_folder("total", KEY) / "rows.txt").read_text() == "whole"


@pytest.mark.parametrize("where", ["disk", "store"])
def test_folders_of_other_keys_are_named_with_their_size(tmp_path, monkeypatch, where, out):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    folders = StageFolders(RemotePath(str(tmp_path / "out")) if where == "disk" else out)
    for key in (KEY, "cd" * 32):
        (folders.begin(STAGES["total"], key) / "rows.txt").write_text("twelve bytes")
        folders.complete("total", key)
    assert folders.unused({"total": KEY, "publish": KEY}) == {f"stages/total/{'cd' * 32}": 12}
    assert folders.unused({"publish": KEY}) == {}


def test_a_folder_begins_empty_but_where_its_stage_goes_on(tmp_path):
    from dataclasses import replace

    folders = StageFolders(RemotePath(str(tmp_path)))
    folder = folders.begin(STAGES["total"], KEY)
    (folder / "half").touch()
    assert (folders.begin(replace(STAGES["total"], resumes=True), KEY) / "half").exists()
    assert not (folders.begin(STAGES["total"], KEY) / "half").exists()
    assert not folders.is_complete("total", KEY)
    assert isinstance(folder, Path)
