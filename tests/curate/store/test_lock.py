import fcntl
import json
import os
import subprocess
import sys
import threading
import time

import pytest

from stepline.curate.store.lock import CLAIM_SUFFIX, LOCK_NAME, lock_owner, lock_run
from stepline.errors import SettingsError
from stepline.files.remote import RemotePath


def note(name, age=0):
    """What a driver of another machine writes into its lock, so many seconds ago."""
    return json.dumps({"host": "far", "process": 7, "at": time.time() - age, "name": name}).encode()


@pytest.fixture(params=["disk", "memory"])
def out(request, tmp_path):
    """OUT on a disk and in an object store."""
    return RemotePath(
        str(tmp_path / "out") if request.param == "disk" else f"memory://{tmp_path.name}-out"
    )


def test_one_driver_holds_out_at_a_time(out):
    assert lock_owner(out) is None
    with lock_run(out):
        assert "process" in lock_owner(out)
        with pytest.raises(SettingsError, match="works on it"), lock_run(out):
            pass
    assert lock_owner(out) is None
    with lock_run(out) as lock:
        assert not lock.was_killed


def test_a_dead_drivers_sign_of_life_in_a_store_grows_stale(tmp_path):
    out = RemotePath(f"memory://{tmp_path.name}-stale")
    (out / LOCK_NAME).write(note("", age=3600))
    assert lock_owner(out) is None
    with lock_run(out):
        assert "process" in lock_owner(out)


def test_one_who_asks_who_holds_out_keeps_no_driver_out(tmp_path):
    out = RemotePath(str(tmp_path))
    (tmp_path / LOCK_NAME).touch()
    with (tmp_path / LOCK_NAME).open("rb") as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        threading.Timer(0.05, lambda: fcntl.flock(asking, fcntl.LOCK_UN)).start()
        with lock_run(out):
            pass


def test_of_two_drivers_that_begin_together_in_a_store_without_conditions_the_last_to_sign_has_it(
    tmp_path, monkeypatch
):
    out = RemotePath(f"memory://{tmp_path.name}-race")

    def overtaken(place, data):
        place.write(data)
        place.write(note("theirs"))
        return True

    monkeypatch.setattr(RemotePath, "create", overtaken)
    with pytest.raises(SettingsError, match="process 7 on far works on it"), lock_run(out):
        pass
    assert "process 7" in lock_owner(out)  # its sign stays


def test_of_two_drivers_that_find_a_dead_one_the_second_to_claim_its_place_goes(
    tmp_path, monkeypatch
):
    out = RemotePath(f"memory://{tmp_path.name}-dead")
    (out / LOCK_NAME).write(note("dead", age=3600))
    create, faster = RemotePath.create, []

    def overtaken(place, data):
        """Let another driver come in between the look at the dead one's note and the claim to
        it."""
        if place.url.endswith(CLAIM_SUFFIX) and not faster:
            faster.append(lock_run(out))
            faster[0].__enter__()
        return create(place, data)

    monkeypatch.setattr(RemotePath, "create", overtaken)
    with pytest.raises(SettingsError, match="works on it"), lock_run(out):
        pass
    assert not (out / f"{LOCK_NAME}{CLAIM_SUFFIX}").exists()
    assert "process" in lock_owner(out)
    faster[0].__exit__(None, None, None)
    assert lock_owner(out) is None


def test_a_dead_claim_to_a_dead_drivers_place_keeps_no_one_out(tmp_path):
    out = RemotePath(f"memory://{tmp_path.name}-claims")
    for name in (LOCK_NAME, f"{LOCK_NAME}{CLAIM_SUFFIX}"):
        (out / name).write(note(name, age=3600))
    with lock_run(out) as lock:
        assert lock.was_killed
    assert [entry.name for entry in out.list()] == []


def test_a_driver_that_slept_until_another_took_its_place_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("stepline.curate.store.lock.HEARTBEAT_SECONDS", 0.01)
    out = RemotePath(f"memory://{tmp_path.name}-slept")
    theirs = note("theirs")
    with lock_run(out) as lock:
        lock.require_ownership()
        (out / LOCK_NAME).write(theirs)
        while lock.other_owner is None:
            time.sleep(0.01)
        with pytest.raises(SettingsError, match="process 7 on far works on it"):
            lock.require_ownership()
    assert (out / LOCK_NAME).read() == theirs


DRIVER = """
import sys, time
from pathlib import Path
from stepline.files import locks
from stepline.files.remote import RemotePath
from stepline.curate.store.lock import lock_run
from stepline.errors import SettingsError

out, gate = sys.argv[1], Path(sys.argv[2])
owner, name = (RemotePath, "create") if "://" in out else (locks, "lock_file_now")
take = getattr(owner, name)

def when_told(*arguments, **options):
    "Wait between the look, which finds nobody, and the taking."
    print("looked", flush=True)
    while not gate.exists():
        time.sleep(0.01)
    return take(*arguments, **options)

setattr(owner, name, when_told)
try:
    with lock_run(RemotePath(out)):
        print("has it", flush=True)
        sys.stdin.read()
except SettingsError as error:
    print(error, flush=True)
"""


@pytest.mark.parametrize("where", ["disk", "s3", "gs"])
def test_of_two_drivers_that_both_looked_before_either_took_one_has_out(where, tmp_path, request):
    if where != "disk":
        request.getfixturevalue({"s3": "bucket", "gs": "google_bucket"}[where])
    out = str(tmp_path / "out") if where == "disk" else f"{where}://bucket/out"
    gates = [tmp_path / "first", tmp_path / "second"]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", DRIVER, out]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": paths}
    drivers = [subprocess.Popen([*command, str(gate)], **pipes) for gate in gates]
    try:
        assert [driver.stdout.readline() for driver in drivers] == ["looked\n", "looked\n"]
        told = []
        # the first has it before the second takes
        for driver, gate in zip(drivers, gates, strict=True):
            gate.touch()
            told.append(next(line for line in driver.stdout if line != "looked\n"))
    finally:
        for driver in drivers:
            driver.communicate("")
    assert told[0] == "has it\n"
    assert f"process {drivers[0].pid}" in told[1]
    assert "works on it" in told[1]
