"""Runs of curate that are killed at random moments, and what to count of them."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
from file_bytes import file_bytes

from stepline.curate.execution.local import process_is_alive
from stepline.curate.execution.scheduler import MAX_OUTSIDE_KILLS
from stepline.curate.store.run_log import read_timings
from stepline.files.remote import RemotePath
from stepline.workers import descendant_pids


def start_driver(code, cache):
    """Start Python on some code, with this process's modules, and return it."""
    paths = os.pathsep.join(filter(None, sys.path))
    variables = {**os.environ, "PYTHONPATH": paths, "STEPLINE_CACHE": str(cache)}
    return subprocess.Popen([sys.executable, "-c", code], env=variables, stderr=subprocess.PIPE)


def finish(code, cache):
    """Run a driver to its end."""
    driver = start_driver(code, cache)
    _, said = driver.communicate(timeout=500)
    assert driver.returncode == 0, said.decode()


def run_with_kills(code, out, cache, kills, *, between, seed, drivers=0.5, units=(0, 0)):
    """Kill the driver, or one of its workers, at `kills` random moments `between` seconds apart;
    then finish.

    drivers: how often it is the driver. Of Ray's processes, actors are killed as well as workers.
    units: least and most that begin between two kills, however busy the machine is. No driver loses
    so many workers that a task counts as failed, however the kills fall. Returns how often each was
    killed.
    """
    rng, killed, lost = random.Random(seed), Counter(), 0
    driver = start_driver(code, cache)
    while sum(killed.values()) < kills:
        wanted = sum(begun(out).values()) + rng.randint(*units)
        while driver.poll() is None and sum(begun(out).values()) < wanted:
            time.sleep(0.05)
        time.sleep(rng.uniform(*between))
        if driver.poll() is not None:  # it came to its end before: what is left is little
            assert driver.returncode == 0, driver.stderr.read().decode()
            break
        workers = workers_of(driver.pid)
        if workers and lost < MAX_OUTSIDE_KILLS - 1 and rng.random() >= drivers:
            victim = rng.choice(sorted(workers))
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(victim, signal.SIGKILL)
                killed[workers[victim]] += 1
            lost += 1
            continue
        lost = 0
        driver.kill()
        driver.communicate()
        killed["driver"] += 1
        for worker in workers:
            wait_for_end(worker)
        driver = start_driver(code, cache)
    _, said = driver.communicate(timeout=500)
    assert driver.returncode == 0, said.decode()
    return killed


def kill_while_it_writes(process, out, seconds, rng):
    """Kill a process at a random moment of the `seconds` after its first file in `out`; return
    whether it still ran."""
    while process.poll() is None and not has_file(out):
        time.sleep(0.005)
    time.sleep(rng.uniform(0.0, seconds))
    process.kill()
    return process.wait() == -signal.SIGKILL


def has_file(folder):
    """Whether a folder that another process may be changing holds a file, or a link."""
    return any(names for _, _, names in os.walk(folder))


def workers_of(driver):
    """The worker processes and Ray's actors below a driver: process -> "worker" or "actor"."""
    found = {}
    for process in descendant_pids(driver):
        with contextlib.suppress(psutil.Error):
            line = " ".join(psutil.Process(process).cmdline())
            if "stepline.curate.execution.worker" in line:
                found[process] = "worker"
            elif line.startswith("ray::Actor"):
                found[process] = "actor"
    return found


def children(process):
    """The processes that a process has started."""
    try:
        return [child.pid for child in psutil.Process(process).children()]
    except psutil.NoSuchProcess:
        return []


def wait_for_end(process, seconds=60.0):
    """Wait until a process is gone, or only its parent's notice of it is left."""
    ends = time.monotonic() + seconds
    while process_is_alive(process):
        assert time.monotonic() < ends, f"process {process} outlives its driver"
        time.sleep(0.02)


def begun(out):
    """How often each task was begun: (stage, id) -> times."""
    lines = read_timings(RemotePath(str(out)))
    starts = (line for line in lines if line["event"] == "start" and line["id"])
    return Counter((line["stage"], line["id"]) for line in starts)


def tree(folder, but=()):
    """Every file that a dataset rests on, but how often failures were tried: name -> bytes.

    but: ids whose cells are left out, for a video that fails may have some that were made ahead of
    the failure.
    """
    lines = read_timings(RemotePath(str(folder)))
    keys = {line["key"] for line in lines if line["event"] == "start" and line["id"] in but}
    return {
        part: file_bytes(Path(folder) / part, lambda path: path.stem not in keys)
        for part in ("cells", "stages", "dataset")
    }
