"""What links, pipes and files of others in the places that Stepline writes to may try."""

import json
import os

import numpy as np
import pytest

from stepline.errors import StoreError
from stepline.files.append_log import AppendLog
from stepline.files.locks import LOCK_NAME, NOTE_START, lock_output, owner_note
from stepline.live.events import RunFiles
from stepline.media.links import LINK_RECORD_NAME, Link, _earlier_download, fetch_link, link_folder
from stepline.media.settings import LinkSettings
from stepline.models.training.run import StepLog
from stepline.review import Answer

PRECIOUS = b"what a person wrote\n"


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    return path


def assert_refused(lock, said):
    with pytest.raises(StoreError, match=said), lock_output(lock, lock.parent):
        pass


def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(folder, precious, tmp_path):
    lock = folder / LOCK_NAME
    lock.symlink_to(precious)
    assert_refused(lock, "is a link.*remove it")
    assert lock.is_symlink()
    lock.unlink()
    lock.symlink_to(tmp_path / "nothing")
    assert_refused(lock, "is a link")
    assert not (tmp_path / "nothing").exists()
    lock.unlink()
    os.link(precious, lock)
    assert_refused(lock, "has another name too")
    assert precious.read_bytes() == PRECIOUS
    lock.unlink()
    os.mkfifo(lock)  # it holds no one up
    assert_refused(lock, "not a plain file")


def test_a_file_of_another_in_the_place_of_a_lock_stays(folder):
    lock = folder / LOCK_NAME
    for content in (PRECIOUS, b"{}", b"\x00" * 5000):
        lock.write_bytes(content)
        assert_refused(lock, "is not a lock file")
        assert lock.read_bytes() == content


def test_a_lock_that_a_killed_run_left_is_taken(folder):
    lock = folder / LOCK_NAME
    lock.write_bytes(owner_note())
    with lock_output(lock, folder) as was_killed:
        assert was_killed
        assert lock.read_bytes().startswith(NOTE_START)
    assert not lock.exists()


def test_a_lock_that_was_replaced_is_not_removed_at_the_end(folder):
    lock = folder / LOCK_NAME
    with lock_output(lock, folder):
        lock.unlink()
        lock.write_bytes(PRECIOUS)
    assert lock.read_bytes() == PRECIOUS


def test_a_file_that_grows_does_so_through_no_link(folder, precious):
    path = folder / "file"
    path.symlink_to(precious)
    rows = RunFiles("v", None, rows=path)
    with pytest.raises(StoreError, match="is a link"):
        rows.append_rows(0, np.ones((2, 3), np.float32))
    with pytest.raises(StoreError, match="is a link"):
        StepLog(path, 0)
    precious.write_bytes(b"")  # as of an empty log
    log = AppendLog(path, Answer, lambda answer: answer.clip, "an answer")
    with pytest.raises(StoreError, match="a link"):
        log.add(Answer(clip="c", annotator="a", shown=True, confidence="very"))
    assert precious.read_bytes() == b""


URL = "http://127.0.0.1:1/film.mp4"


def link():
    own = LinkSettings(private=True)
    return Link(url=URL, settings=own, media_type="video/mp4", is_web_page=False)


@pytest.mark.parametrize("name", ["", ".film.mp4.part", "film.mp4"])
def test_a_download_goes_through_no_link(folder, precious, name):
    own = link_folder(URL, folder)
    if name:
        own.mkdir()
        (own / name).symlink_to(precious)
    else:
        own.symlink_to(precious.parent)
    with pytest.raises(StoreError, match="is a link"):
        fetch_link(link(), folder)
    assert precious.read_bytes() == PRECIOUS


@pytest.mark.parametrize("field", ["path", "captions"])
def test_what_was_earlier_download_before_is_in_the_folder_of_downloads(folder, precious, field):
    own = link_folder(URL, folder)
    own.mkdir()
    (own / "film.mp4").write_bytes(PRECIOUS)
    stored = {"path": "film.mp4", "captions": None, "origin": {"url": URL}, "size": len(PRECIOUS)}
    (own / LINK_RECORD_NAME).write_text(json.dumps(stored))
    assert fetch_link(link(), folder).path == own / "film.mp4"
    (own / LINK_RECORD_NAME).write_text(json.dumps(stored | {field: "../../precious.txt"}))
    assert _earlier_download(URL, folder) is None  # so it is fetched
