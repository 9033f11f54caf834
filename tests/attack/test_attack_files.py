"""What links, pipes and files of others in the places that Stepline writes to may try."""

import os

import pytest

from stepline.errors import StoreError
from stepline.locks import LOCK_NAME, NOTE_START, lock_output, owner_note

PRECIOUS = b"what a person wrote\n"


@pytest.fixture
def precious(tmp_path):
    """A file of the user's outside of the folder that is attacked."""
    path = tmp_path / "precious.txt"
    path.write_bytes(PRECIOUS)
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    return path


# ---------------------------------------------------------------- locks


def test_a_lock_that_is_a_link_is_refused_and_its_target_stays(folder, precious):
    lock = folder / LOCK_NAME
    lock.symlink_to(precious)
    with pytest.raises(StoreError, match="is a link.*remove it"), lock_output(lock, folder):
        pass
    assert precious.read_bytes() == PRECIOUS
    assert lock.is_symlink()


def test_a_lock_that_is_a_link_to_nothing_makes_no_file(folder, tmp_path):
    lock = folder / LOCK_NAME
    lock.symlink_to(tmp_path / "nothing")
    with pytest.raises(StoreError, match="is a link"), lock_output(lock, folder):
        pass
    assert not (tmp_path / "nothing").exists()


def test_a_lock_that_is_a_second_name_of_a_file_is_refused(folder, precious):
    os.link(precious, folder / LOCK_NAME)
    with (
        pytest.raises(StoreError, match="has another name too"),
        lock_output(folder / LOCK_NAME, folder),
    ):
        pass
    assert precious.read_bytes() == PRECIOUS


def test_a_file_of_another_in_the_place_of_a_lock_stays(folder):
    lock = folder / LOCK_NAME
    for content in (PRECIOUS, b"{}", b"\x00" * 5000):
        lock.write_bytes(content)
        with pytest.raises(StoreError, match="holds something else"), lock_output(lock, folder):
            pass
        assert lock.read_bytes() == content


def test_a_pipe_in_the_place_of_a_lock_holds_nobody_up(folder):
    lock = folder / LOCK_NAME
    os.mkfifo(lock)
    with pytest.raises(StoreError, match="no plain file"), lock_output(lock, folder):
        pass


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
