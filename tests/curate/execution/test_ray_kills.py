"""Ray runs whose driver, actors, workers and nodes are killed -9, and buckets that are cut off;
they take minutes."""

import contextlib
import json
import os
import signal
import sys
import time

import pytest
from fake_stages import videos
from kills import begun, finish, run_with_kills, start_driver, tree, wait_for_end, workers_of

from stepline.curate.stage import VideoItem
from stepline.files.remote import RemotePath
from stepline.workers import descendant_pids

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.filterwarnings(
        *(f"ignore::{name}" for name in ("DeprecationWarning", "ResourceWarning", "FutureWarning"))
    ),
]
KILLS = 20
COUNT = 24
TEXTS = {f"v{number:02d}": f"slow 1.0 {'x' * number}" for number in range(COUNT)} | {
    "bad": "corrupt",
    "crash": "segfault",
}
OUTAGE = 60.0  # seconds


def code_of(items, out, **engine):
    """A driver's code: all fake stages over some items."""
    return (
        "import warnings; warnings.simplefilter('ignore'); from fake_stages import *; "
        "from stepline.curate.driver import RunRequest, run_recipe; "
        f"items = [VideoItem(*each) for each in {[(item.id, item.video, '1') for item in items]!r}]; "
        f"run_recipe(RunRequest(recipe(**{engine!r}), {str(out)!r}, STAGES), items)"
    )


@pytest.fixture
def whole(tmp_path, monkeypatch):
    """The videos, and what the local engine makes of them."""
    pytest.importorskip("ray", reason="needs Ray: pip install -c constraints.txt 'stepline[ray]'")
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    items = videos(tmp_path / "in", TEXTS)
    finish(code_of(items, tmp_path / "whole", workers=2), tmp_path / "cache")
    return items


def test_twenty_kills_of_drivers_actors_and_workers_cost_no_byte(tmp_path, whole):
    code = code_of(whole, tmp_path / "killed", engine="ray", workers=2)
    moments = {"between": (0.0, 1.0), "units": (1, 4), "drivers": 0.5, "seed": 5}
    killed = run_with_kills(code, tmp_path / "killed", tmp_path / "cache", KILLS, **moments)
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    times = begun(tmp_path / "killed")
    again = sum(count - 1 for unit, count in times.items() if unit[1] != "crash")
    print(f"killed {dict(killed)}, {len(times)} units, {again} begun again")
    assert sum(killed.values()) == KILLS
    # A driver takes the unit of each of two workers with it.
    assert again <= 2 * killed["driver"] + killed["actor"] + killed["worker"]


def test_nodes_of_a_cluster_that_are_killed_cost_no_byte(tmp_path, whole, monkeypatch):
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        code = code_of(whole, tmp_path / "killed", engine="ray", workers=2)
        driver, lost = None, 0
        for _ in range(3):
            node = cluster.add_node(num_cpus=1)
            driver = driver or start_driver(code, tmp_path / "cache")
            raylet = node.all_processes["raylet"][0].process.pid
            before, ends = sum(begun(tmp_path / "killed").values()), time.monotonic() + 120
            while not workers_of(raylet) or sum(begun(tmp_path / "killed").values()) < before + 4:
                assert time.monotonic() < ends, "no actor worked on the second node"
                if driver.poll() is not None:
                    break
                time.sleep(0.1)
            workers = workers_of(raylet)
            lost += driver.poll() is None
            cluster.remove_node(node, allow_graceful=False)
            for worker in workers:
                wait_for_end(worker)
        _, said = driver.communicate(timeout=500)
        assert driver.returncode == 0, said.decode()
    finally:
        cluster.shutdown()
    assert lost >= 2
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")


@pytest.mark.parametrize("engine", ["local", "ray"])
def test_a_bucket_that_is_cut_off_for_a_minute_costs_no_byte_and_no_second_run(
    tmp_path, whole, bucket, engine
):
    there = []
    for item in whole:
        RemotePath(f"s3://bucket/in/{item.id}.txt").put(tmp_path / "in" / f"{item.id}.txt")
        there.append(VideoItem(item.id, f"s3://bucket/in/{item.id}.txt", "1"))
    driver = start_driver(
        code_of(there, "s3://bucket/out", engine=engine, workers=2, seconds=600.0),
        tmp_path / "cache",
    )
    out, ends = RemotePath("s3://bucket/out"), time.monotonic() + 300
    while len(list((out / "cells/read").list())) < 5:
        assert driver.poll() is None, driver.stderr.read().decode()
        assert time.monotonic() < ends
        time.sleep(0.2)
    bucket.cut()
    time.sleep(OUTAGE)
    still = driver.poll() is None
    bucket.restore()
    _, said = driver.communicate(timeout=500)
    assert still
    assert driver.returncode == 0, said.decode()
    for entry in out.list():
        (out / entry.name).fetch(tmp_path / "fetched" / entry.name)
    assert tree(tmp_path / "fetched") == tree(tmp_path / "whole")


def test_a_notice_of_the_end_costs_what_is_in_flight_alone(tmp_path, whole):
    """SIGTERM to every process of a run at once, as a machine that goes down sends it; then the run
    goes on."""
    code = code_of(whole, tmp_path / "killed", engine="ray", workers=2)
    driver = start_driver(code, tmp_path / "cache")
    while len(begun(tmp_path / "killed")) < 12:
        assert driver.poll() is None, driver.stderr.read().decode()
        time.sleep(0.1)
    workers = workers_of(driver.pid)
    for process in (driver.pid, *descendant_pids(driver.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    driver.communicate(timeout=120)
    for worker in workers:
        wait_for_end(worker)
    blamed = {
        json.loads(path.read_text())["id"] for path in (tmp_path / "killed").glob("failures/*/*")
    }
    assert blamed <= {"bad", "crash"}
    finish(code, tmp_path / "cache")
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    times = begun(tmp_path / "killed")
    assert sum(count - 1 for unit, count in times.items() if unit[1] != "crash") <= 2 + 2
