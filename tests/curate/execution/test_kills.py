import os
import signal
import subprocess
import time

import pytest
from fake_stages import STAGES, recipe, videos
from kills import begun, children, finish, run_with_kills, start_driver, tree, wait_for_end

from stepline.curate.driver import RunRequest, run_recipe
from stepline.errors import SettingsError

TEXTS = {f"v{number:02d}": f"slow 0.1 {'x' * number}" for number in range(10)} | {"bad": "corrupt", "crash": "segfault"}


def code_of(folder, out, workers=2):
    """A driver's code: all fake stages over the videos of a folder."""
    return (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # a background one ignores it
        "from fake_stages import *; from stepline.curate.driver import RunRequest, run_recipe; "
        "from pathlib import Path; "
        f"names = {sorted(TEXTS)!r}; folder = Path({str(folder)!r}); "
        "items = [Item(name, video=str(folder / (name + '.txt')), stamp='1') for name in names]; "
        f"run_recipe(RunRequest(recipe(workers={workers}), {str(out)!r}, STAGES), items)"
    )


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(tmp_path):
    videos(tmp_path / "in", TEXTS)
    finish(code_of(tmp_path / "in", tmp_path / "whole"), tmp_path / "cache")
    code = code_of(tmp_path / "in", tmp_path / "killed")
    killed = run_with_kills(code, tmp_path / "killed", tmp_path / "cache", 5, between=(1.5, 3.5), seed=3)
    assert killed
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    times = begun(tmp_path / "killed")
    fine = {unit: count for unit, count in times.items() if unit[1] != "crash"}
    assert sum(fine.values()) - len(fine) <= 2 * killed["driver"] + killed["worker"]
    assert not any((tmp_path / "cache" / "curate").iterdir())


def test_workers_end_with_a_driver_that_is_killed_and_its_lock_too(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "in").mkdir()
    for name in TEXTS:
        (tmp_path / "in" / f"{name}.txt").write_text("hang")
    driver = start_driver(code_of(tmp_path / "in", tmp_path / "out"), tmp_path / "cache")
    while not begun(tmp_path / "out"):
        time.sleep(0.1)
    items = videos(tmp_path / "in2", {"a": "fine"})
    with pytest.raises(SettingsError, match=f"process {driver.pid} on .* works on it"):
        run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items)
    workers = children(driver.pid)
    driver.kill()
    driver.communicate()
    assert workers
    for worker in workers:
        wait_for_end(worker)
    half = tmp_path / "out/cells/read/00" / f".key.{workers[0]}-1.partial.json"
    half.parent.mkdir(parents=True)
    half.touch()  # what a worker was writing
    assert run_recipe(RunRequest(recipe(), str(tmp_path / "out"), STAGES), items).failures == ()
    assert not half.exists()


def test_ctrl_c_ends_a_run_and_its_workers(tmp_path):
    (tmp_path / "in").mkdir()
    for name in TEXTS:
        (tmp_path / "in" / f"{name}.txt").write_text("hang")
    driver = start_driver(code_of(tmp_path / "in", tmp_path / "out"), tmp_path / "cache")
    while not begun(tmp_path / "out"):
        time.sleep(0.1)
    workers = children(driver.pid)
    driver.send_signal(signal.SIGINT)
    try:
        driver.communicate(timeout=20)
    except subprocess.TimeoutExpired:
        os.kill(driver.pid, signal.SIGKILL)
        raise
    assert workers
    for worker in workers:
        wait_for_end(worker)
    assert not any((tmp_path / "cache" / "curate").iterdir())
