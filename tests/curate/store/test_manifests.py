import json
import os
import shutil
import time
from dataclasses import replace

import numpy as np
import pytest
from fake_stages import STAGES, recipe, videos

from stepline.curate.driver import RunRequest, run_recipe
from stepline.curate.stage import StageFailure
from stepline.curate.status import run_status
from stepline.curate.store import manifests
from stepline.curate.store.lock import LOCK_NAME, driver_name, lock_run
from stepline.curate.store.manifests import (
    MANIFESTS_FOLDER,
    disk_keys,
    key_number,
    stage_failures,
    store_keys,
)
from stepline.curate.store.results import ResultStore
from stepline.curate.store.run_log import RunLog, log_totals, read_timings
from stepline.files.remote import RemotePath

READ = STAGES["read"]
KEYS = [f"{number:02x}" + "ab" * 31 for number in (3, 3 * 16, 250)]
TEXTS = {"a": "one", "b": "odd", "c": "silent", "d": "two", "e": "three"}


def numbers(*keys):
    return sorted(map(key_number, keys))


def settle(folder):
    """Have every folder below one look as if nothing had happened in it for a minute."""
    ago = time.time() - 60
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            os.utime(path, (ago, ago))


@pytest.fixture
def disk(tmp_path):
    """Three results on a disk."""
    results = ResultStore(RemotePath(str(tmp_path)))
    for key in KEYS:
        results.write(READ, key, b"text")
    return results


def test_folders_that_did_not_change_are_not_listed_again(disk, monkeypatch):
    settle(disk.out.local / "cells")
    assert disk_keys(disk.out, "read").tolist() == numbers(*KEYS)
    monkeypatch.setattr(os, "listdir", lambda folder: pytest.fail(f"{folder} is listed"))
    assert disk_keys(disk.out, "read").tolist() == numbers(*KEYS)


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "just changed"])
def test_a_result_that_came_or_went_is_known_immediately(disk, settled):
    if settled:
        settle(disk.out.local / "cells")
    disk_keys(disk.out, "read")
    (path,) = disk.out.local.glob(f"cells/read/*/{KEYS[0]}*")
    path.unlink()
    other = KEYS[1][:2] + "cd" * 31
    disk.write(READ, other, b"more")
    (path.parent / f".{KEYS[0]}.77-1.partial.json").touch()  # what is being written
    assert disk_keys(disk.out, "read").tolist() == numbers(other, *KEYS[1:])
    shutil.rmtree(disk.out.local / "cells")
    assert disk_keys(disk.out, "read").tolist() == []


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 cut off", b"not even that"])
def test_a_damaged_manifest_is_made_again(disk, data):
    disk_keys(disk.out, "read")
    disk.add_failure(READ, "cd" * 32, StageFailure("a", "read", "hang", "slow"))
    stage_failures(disk.out, "read")
    for path in (disk.out.local / MANIFESTS_FOLDER).iterdir():
        path.write_bytes(data)
    assert disk_keys(disk.out, "read").tolist() == numbers(*KEYS)
    assert list(stage_failures(disk.out, "read")) == [key_number("cd" * 32)]


def test_a_run_that_no_one_may_write_to_has_a_status(disk, monkeypatch):
    monkeypatch.setattr(manifests, "write_manifest", lambda path, content: False)
    assert disk_keys(disk.out, "read").tolist() == numbers(*KEYS)


def test_of_failures_only_new_ones_are_read(results, monkeypatch):
    for number, kind in enumerate(("hang", "crash")):
        results.add_failure(
            READ, f"{number}a" * 32, StageFailure(str(number), "read", kind, "it was")
        )
    assert [failure.kind for failure in stage_failures(results.out, "read").values()] == [
        "hang",
        "crash",
    ]
    # the retry
    results.add_failure(READ, "0a" * 32, StageFailure("0", "read", "memory", "it was more"))
    read, asked = RemotePath.read, []
    monkeypatch.setattr(
        RemotePath, "read", lambda path, *part: asked.append(path.name) or read(path, *part)
    )
    assert stage_failures(results.out, "read")[key_number("0a" * 32)].attempts == 2
    assert [name for name in asked if len(name) > 60] == [f"{'0a' * 32}.json"]


@pytest.fixture
def store(tmp_path):
    """Three results in an object store, whose driver has written down what it listed."""
    results = ResultStore(RemotePath(f"memory://{tmp_path.name}-manifests"))
    for key in KEYS:
        results.write(READ, key, b"text")
    results.save_manifests(["read"])
    return results


def test_a_store_is_not_listed_where_its_last_driver_wrote_down_what_there_is(store, monkeypatch):
    listed, keys = [], manifests.listed_keys
    monkeypatch.setattr(
        manifests, "listed_keys", lambda folder: listed.append(folder.name) or keys(folder)
    )
    monkeypatch.setattr(manifests.random, "randrange", lambda count: 3)
    assert store_keys(store.out, "read", "").tolist() == numbers(*KEYS)
    assert listed == ["03"]
    (store.out / f"cells/read/03/{KEYS[0]}.json").remove()  # by somebody who wants it done again
    assert store_keys(store.out, "read", "").tolist() == numbers(*KEYS[1:])
    assert listed == ["03", "03", "read"]


def test_what_a_killed_driver_wrote_down_of_a_store_is_not_believed(store):
    ResultStore(store.out).save_manifests(["read"], "the killed one")
    later = "77" * 32
    ResultStore(store.out).write(READ, later, b"text")
    # while it works: a little old
    assert store_keys(store.out, "read", "the killed one").tolist() == numbers(*KEYS)
    assert store_keys(store.out, "read", "").tolist() == numbers(later, *KEYS)
    assert store_keys(store.out, "read", "the next one").tolist() == numbers(later, *KEYS)


@pytest.mark.parametrize("where", ["disk", pytest.param("bucket", marks=pytest.mark.slow)])
def test_a_status_follows_whatever_happened_to_a_run(tmp_path, monkeypatch, where, request):
    if where == "bucket":
        request.getfixturevalue("bucket")
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", TEXTS)
    out = RemotePath(str(tmp_path / "out") if where == "disk" else "s3://bucket/run")
    # a phase behind a dataset stage
    whole = replace(STAGES["publish"], needs=("total", "double", "share"), takes=())
    stages, names = {**STAGES, "publish": whole}, list(STAGES)
    asked = RunRequest(recipe(stages=names), out.url, stages)
    run_recipe(asked, items)
    found = run_status(out, stages)
    assert {stage.name: (stage.done, stage.never, stage.waiting) for stage in found.stages} == {
        "read": (3, 0, 0),
        "count": (3, 2, 0),
        "double": (3, 2, 0),
        "total": (1, 0, 0),
        "share": (3, 2, 0),
        "publish": (1, 0, 0),
    }
    assert found == run_status(out, stages)
    with monkeypatch.context() as patched:
        patched.setattr(
            "stepline.curate.status.read_items", lambda out: pytest.fail("it looks at each video")
        )
        assert found == run_status(out, stages)
    (first, *_), kept = list((out / "cells/double").list()), run_status(out, stages)
    (out / f"cells/double/{first.name}").remove()
    monkeypatch.setattr(manifests.random, "randrange", lambda count: int(first.name[:2], 16))
    lost = {stage.name: stage for stage in run_status(out, stages).stages}
    assert (lost["double"].done, lost["double"].waiting, lost["total"].waiting) == (2, 1, 1)
    assert lost["share"].waiting == 3  # its total is not known to be whole
    run_recipe(asked, items)
    again = run_status(out, stages)
    assert [stage.done for stage in again.stages] == [stage.done for stage in kept.stages]
    assert again.failures == kept.failures
    run_recipe(replace(asked, retry_failed=True), [*items[:1], *items[2:]])
    assert [failure.id for failure in run_status(out, stages).failures] == ["c"]
    assert run_status(out, stages).videos == 4
    if where == "disk":
        assert run_status(out, stages) == run_status(
            RemotePath(str(without_manifests(out.local, tmp_path))), stages
        )


def without_manifests(folder, tmp_path):
    """A copy of a run that has lost its manifests."""
    return shutil.copytree(
        folder, tmp_path / "copy", ignore=shutil.ignore_patterns(MANIFESTS_FOLDER)
    )


def test_logs_are_counted_as_far_as_their_process_has_not(tmp_path, monkeypatch):
    out = RemotePath(str(tmp_path))
    log = RunLog(out)
    log.write("run", videos=2)
    for number in range(3):
        log.write("end", stage="read", cpu=0.5 + number)
    (whole,) = log_totals(out)
    log.copy()
    log.write("end", stage="count", cpu=4.0)  # after the totals, as when the process is killed
    (counted,) = log_totals(out)
    assert (whole.tasks, whole.cpu, whole.began > 0) == ({"read": 3}, {"read": 4.5}, True)
    assert (counted.tasks, counted.cpu) == ({"read": 3, "count": 1}, {"read": 4.5, "count": 4.0})
    (file,) = (tmp_path / "timings").iterdir()
    assert counted.last == [line["at"] for line in read_timings(out)][-1]
    file.write_bytes(file.read_bytes()[:200])  # another's, of the same name
    assert log_totals(out)[0].read == {}
    log.close()


def test_a_killed_drivers_note_is_not_a_driver_at_work(tmp_path):
    out = RemotePath(f"memory://{tmp_path.name}-note")
    assert driver_name(out) == ""
    with lock_run(out) as lock:
        assert driver_name(out) == lock.name != ""
    (out / LOCK_NAME).write(json.dumps({"name": "dead", "at": time.time() - 3600}))
    assert driver_name(out) == ""


def test_numbers_of_keys_are_those_of_their_first_digits():
    keys = [f"{number:016x}{'0' * 48}" for number in (0, 1, 2**64 - 1)]
    found = manifests._numbers(
        [f"{key}.json" for key in keys] + ["README.md", f".{keys[0]}.json", f"{keys[0]}0.json"]
    )
    assert found.dtype == np.uint64
    assert found.tolist() == [0, 1, 2**64 - 1]


@pytest.mark.parametrize("listed", [[], [0], [7], [3, 7, 2**64 - 1]])
def test_keys_are_found_among_others_as_numpy_does(listed):
    keys, others = np.array([7, 0, 5, 2**64 - 1, 7], np.uint64), np.array(listed, np.uint64)
    assert manifests.are_among(keys, others).tolist() == np.isin(keys, others).tolist()
