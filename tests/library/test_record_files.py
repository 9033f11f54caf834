"""The JSON files of a library's folder."""

import os

import pytest

from stepline.library.record_files import record_files
from stepline.outputs.shared_folder import SHARE_MARK


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "more").mkdir()
    for name in ("b.json", "a.json", "more/c.json", "a.mp4", ".hidden.json"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def test_json_files_are_listed_by_path_and_hidden_ones_are_not(folder):
    assert list(record_files(folder)) == ["a.json", "b.json", "more/c.json"]
    assert record_files(folder)["a.json"] == (os.stat(folder / "a.json").st_mtime_ns, 2)
    assert record_files(folder / "none") == {}


def test_a_file_that_is_written_over_in_its_place_has_another_stamp(folder):
    before = record_files(folder)
    with (folder / "a.json").open("r+") as file:
        file.write('{"more": 1}')
    after = record_files(folder)
    assert after["a.json"] != before["a.json"]
    assert after["b.json"] == before["b.json"]


def test_shared_folders_below_and_links_that_lead_elsewhere_are_left_out(folder, tmp_path_factory):
    shared = folder / "more" / "shared" / "deep"
    shared.mkdir(parents=True)
    (shared / "d.json").write_text("{}")
    (shared.parent / SHARE_MARK).touch()
    assert list(record_files(shared.parent)) == ["deep/d.json"]
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "far.json").write_text("{}")
    (folder / "far.json").symlink_to(elsewhere / "far.json")
    (folder / "near.json").symlink_to(folder / "a.json")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "nowhere.json").symlink_to(folder / "no.json")
    (folder / "walk").symlink_to(elsewhere)
    assert list(record_files(folder)) == ["a.json", "b.json", "more/c.json", "near.json"]
    assert "far.json" in record_files(folder, (elsewhere.resolve(),))
