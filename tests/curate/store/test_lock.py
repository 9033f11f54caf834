import fcntl
import json
import threading
import time

import pytest

from stepline.curate.remote import RemotePath
from stepline.curate.store.lock import NAME, lock_owner, lock_run
from stepline.errors import SettingsError


@pytest.fixture(params=["disk", "memory"])
def out(request, tmp_path):
    """OUT on a disk and in an object store."""
    return RemotePath(str(tmp_path / "out") if request.param == "disk" else f"memory://{tmp_path.name}-out")


def test_one_driver_holds_out_at_a_time(out):
    assert lock_owner(out) is None
    with lock_run(out):
        assert "process" in lock_owner(out)
        with pytest.raises(SettingsError, match="works on it"), lock_run(out):
            pass
    assert lock_owner(out) is None
    with lock_run(out) as killed:
        assert not killed


def test_a_dead_drivers_sign_of_life_in_a_store_grows_stale(tmp_path):
    out = RemotePath(f"memory://{tmp_path.name}-stale")
    (out / NAME).write(json.dumps({"host": "far", "process": 7, "at": time.time() - 3600, "name": ""}))
    assert lock_owner(out) is None
    with lock_run(out):
        assert "process" in lock_owner(out)


def test_one_who_asks_who_holds_out_keeps_no_driver_out(tmp_path):
    out = RemotePath(str(tmp_path))
    (tmp_path / NAME).touch()
    with (tmp_path / NAME).open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.05, lambda: fcntl.flock(asking, fcntl.LOCK_UN)).start()
        with lock_run(out):
            pass


def test_of_two_drivers_that_begin_at_once_in_a_store_the_last_to_sign_has_it(tmp_path, monkeypatch):
    out, write = RemotePath(f"memory://{tmp_path.name}-race"), RemotePath.write

    def overtaken(place, data):
        write(place, data)
        write(place, json.dumps({"host": "far", "process": 7, "at": time.time(), "name": "theirs"}))

    monkeypatch.setattr(RemotePath, "write", overtaken)
    with pytest.raises(SettingsError, match="process 7 on far works on it"), lock_run(out):
        pass
    assert "process 7" in lock_owner(out)  # its sign stays
