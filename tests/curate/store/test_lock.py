import fcntl
import json
import threading
import time

import pytest

from stepline.curate.remote import Place
from stepline.curate.store.lock import NAME, holder, sole_driver
from stepline.errors import SettingsError


@pytest.fixture(params=["disk", "memory"])
def out(request, tmp_path):
    """OUT on a disk and in an object store."""
    return Place(str(tmp_path / "out") if request.param == "disk" else f"memory://{tmp_path.name}-out")


def test_one_driver_holds_out_at_a_time(out):
    assert holder(out) is None
    with sole_driver(out):
        assert "process" in holder(out)
        with pytest.raises(SettingsError, match="works on it"), sole_driver(out):
            pass
    assert holder(out) is None
    with sole_driver(out) as killed:
        assert not killed


def test_a_dead_drivers_sign_of_life_in_a_store_grows_stale(tmp_path):
    out = Place(f"memory://{tmp_path.name}-stale")
    (out / NAME).write(json.dumps({"host": "far", "process": 7, "at": time.time() - 3600, "name": ""}))
    assert holder(out) is None
    with sole_driver(out):
        assert "process" in holder(out)


def test_one_who_asks_who_holds_out_keeps_no_driver_out(tmp_path):
    out = Place(str(tmp_path))
    with sole_driver(out):
        pass
    with (tmp_path / NAME).open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.05, lambda: fcntl.flock(asking, fcntl.LOCK_UN)).start()
        with sole_driver(out):
            pass


def test_of_two_drivers_that_begin_at_once_in_a_store_the_last_to_sign_has_it(tmp_path, monkeypatch):
    out, write = Place(f"memory://{tmp_path.name}-race"), Place.write

    def overtaken(place, data):
        write(place, data)
        write(place, json.dumps({"host": "far", "process": 7, "at": time.time(), "name": "theirs"}))

    monkeypatch.setattr(Place, "write", overtaken)
    with pytest.raises(SettingsError, match="process 7 on far works on it"), sole_driver(out):
        pass
    assert "process 7" in holder(out)  # its sign stays
