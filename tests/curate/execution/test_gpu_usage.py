"""How busy a GPU is, with a driver's tool that a script stands for."""

import os
import time

import pytest
from fake_stages import STAGES, recipe

from stepline.curate.execution import worker as module
from stepline.curate.execution.worker import (
    GpuUsage,
    TaskRequest,
    TaskRunner,
    WorkerSetup,
    busy_share,
    driver_number,
)
from stepline.curate.plan import StageTask
from stepline.curate.stage import VideoItem
from stepline.curate.store.run_log import LogTotals


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Put a script in place of nvidia-smi."""

    def install(script):
        tool = tmp_path / "bin" / "nvidia-smi"
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


def wait_for_looks(usage, count):
    taken, until = {}, time.monotonic() + 60
    while taken.get("gpu_looks", 0) < count and time.monotonic() < until:
        time.sleep(0.01)
        for name, value in usage.take().items():
            taken[name] = taken.get(name, 0.0) + value
    return taken


def test_the_driver_is_asked_for_the_gpu_that_torch_means(driver, monkeypatch):
    driver('[ "$3 $4" = "-i 6" ] && echo 75')
    assert busy_share("6") == 0.75
    assert busy_share("0") is None  # the script fails
    assert driver_number("cuda") == "0"
    assert driver_number("cuda:1") == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    assert driver_number("cuda:1") == "6"


@pytest.mark.parametrize("script", ["exit 1", "echo '[N/A]'", "echo"])
def test_where_no_driver_answers_nothing_is_known(driver, script):
    driver(script)
    usage = GpuUsage("cuda:0", interval=0.0)
    time.sleep(0.2)
    assert usage.take() == {}


def test_looks_are_summed_until_they_are_taken(driver):
    driver("echo 40")
    taken = wait_for_looks(GpuUsage("cuda:0", interval=0.01), 3)
    assert taken["gpu_looks"] >= 3
    assert taken["gpu_busy"] == pytest.approx(0.4 * taken["gpu_looks"], abs=1e-3)


def test_a_task_on_the_gpu_reports_it_and_the_log_adds_it_up(driver, tmp_path, monkeypatch):
    driver("echo 50")
    monkeypatch.setattr(module, "set_device", lambda name: None)  # no GPU is here
    runner = TaskRunner(WorkerSetup(recipe(), STAGES, str(tmp_path), device="cuda:0"))
    request = TaskRequest(
        StageTask(VideoItem("a", path=str(tmp_path)), "read", "ab" * 32, {}), gpu=True
    )
    totals, until = LogTotals(), time.monotonic() + 60
    while not totals.gpu_looks and time.monotonic() < until:
        totals.add({"event": "end", "stage": "read", **runner.run([request])[0].notes})
    assert totals.gpu_looks >= 1
    assert totals.gpu_busy == pytest.approx(totals.gpu_looks / 2)
