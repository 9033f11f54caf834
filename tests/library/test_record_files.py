"""The files of a library's folder: each change is seen at once, and what is unchanged is not read
again."""

import os

import pytest

from stepline.library import record_files as module
from stepline.library.record_files import RecordFolder, record_files
from stepline.outputs.shared_folder import SHARE_MARK


@pytest.fixture
def clock(monkeypatch):
    """Yield a clock that a test moves on."""
    seconds = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: seconds[0])

    def wait(more):
        seconds[0] += more

    return wait


@pytest.fixture
def reads(monkeypatch):
    """Yield a list that holds each folder that is read."""
    calls = []
    scandir = os.scandir

    def counted(path):
        calls.append(str(path))
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", counted)
    return calls


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "more").mkdir()
    for name in ("b.json", "a.json", "more/c.json", "a.mp4", ".hidden.json"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def settled(folder, clock):
    """A folder whose listings are older than a tick of the clock."""
    files = RecordFolder(folder)
    files.files()
    clock(3.0)
    files.files()
    return files


def test_json_files_are_listed_by_path_and_hidden_ones_are_not(folder):
    assert list(record_files(folder)) == ["a.json", "b.json", "more/c.json"]
    assert record_files(folder)["a.json"] == (os.stat(folder / "a.json").st_mtime_ns, 2)
    assert record_files(folder / "none") == {}


def test_an_unchanged_folder_is_not_read_again(folder, clock, reads):
    files = settled(folder, clock)
    reads.clear()
    assert list(files.files()) == ["a.json", "b.json", "more/c.json"]
    assert reads == []


def test_one_folder_that_changed_is_read_and_no_other(folder, clock, reads):
    files = settled(folder, clock)
    reads.clear()
    (folder / "more" / "d.json").write_text("{}")
    assert "more/d.json" in files.files()
    assert reads == [f"{folder}/more"]


def test_a_file_that_is_written_over_in_its_place_has_another_stamp(folder, clock):
    files = settled(folder, clock)
    before = files.files()
    with (folder / "a.json").open("r+") as file:
        file.write('{"more": 1}')
    after = files.files()
    assert after["a.json"] != before["a.json"]
    assert after["b.json"] == before["b.json"]


def test_two_changes_within_a_tick_of_the_clock_are_both_seen(folder, clock):
    files = settled(folder, clock)
    stamp = os.stat(folder).st_mtime_ns + 10**10
    for name in ("d.json", "e.json"):
        (folder / name).write_text("{}")
        os.utime(folder, ns=(stamp, stamp))  # as a coarse clock has it
        assert name in files.files()


def test_a_folder_whose_time_never_changes_is_read_again_after_a_while(folder, clock):
    files = settled(folder, clock)
    stamp = os.stat(folder).st_mtime_ns
    (folder / "d.json").write_text("{}")
    os.utime(folder, ns=(stamp, stamp))
    clock(11.0)
    assert "d.json" in files.files()


def test_deleted_records_are_no_longer_listed(folder, clock):
    files = settled(folder, clock)
    (folder / "a.json").unlink()
    (folder / "more" / "c.json").unlink()
    (folder / "more").rmdir()
    assert list(files.files()) == ["b.json"]


def test_a_shared_folder_below_is_left_out_with_all_in_it(folder):
    shared = folder / "more" / "shared" / "deep"
    shared.mkdir(parents=True)
    (shared / "d.json").write_text("{}")
    (shared.parent / SHARE_MARK).touch()
    assert list(record_files(folder)) == ["a.json", "b.json", "more/c.json"]
    assert list(record_files(shared.parent)) == ["deep/d.json"]


def test_links_that_lead_elsewhere_are_left_out(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "far.json").write_text("{}")
    (folder / "far.json").symlink_to(elsewhere / "far.json")
    (folder / "near.json").symlink_to(folder / "a.json")
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "nowhere.json").symlink_to(folder / "no.json")
    (folder / "walk").symlink_to(elsewhere)
    assert list(record_files(folder)) == ["a.json", "b.json", "more/c.json", "near.json"]
    assert "far.json" in record_files(folder, (elsewhere.resolve(),))


def test_a_link_that_takes_the_place_of_a_file_is_noticed(folder, clock, tmp_path_factory):
    files = settled(folder, clock)
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "far.json"
    elsewhere.write_text("{}")
    (folder / "a.json").unlink()
    (folder / "a.json").symlink_to(elsewhere)
    assert list(files.files()) == ["b.json", "more/c.json"]
