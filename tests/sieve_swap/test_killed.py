"""A run killed at any moment, and started again, ends with the bytes of an undisturbed one."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_collection import GARLIC, VIDEOS, digests, record, write_videos

RUN = """
import sys
from pathlib import Path
from small_base import SmallBase
from test_collection import settings
from stepline.sieve_swap.run import Job, run
from stepline.sieve_swap.report import write_report

base = SmallBase()
job = Job(Path(sys.argv[1]), base, Path(sys.argv[2]), settings(run={"shard": 2, "words": 1}), embed=base.embed)
print("begun", flush=True)
write_report(job, run(job))
"""


def start(videos, out):
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(videos), str(out)], cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True
    )


def finish(videos, out):
    began = time.monotonic()
    process = start(videos, out)
    process.communicate(timeout=300)
    assert process.returncode == 0
    return time.monotonic() - began


def killed_after_files(videos, out, count):
    """Kill a run with signal 9 as soon as `out` holds more than `count` files, finished or not; say how many it had."""
    process = start(videos, out)
    process.stdout.readline()
    while process.poll() is None and sum(1 for file in out.rglob("*") if file.is_file()) <= count:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_bytes(tmp_path):
    chance = random.Random(9)
    videos = write_videos(tmp_path / "in", [*VIDEOS, *(record(f"more{n}", "Garlic toast", GARLIC) for n in range(8))])
    finish(videos, tmp_path / "whole")
    expected = digests(tmp_path / "whole")
    kills = 0
    for turn in range(4):
        out = tmp_path / f"out{turn}"
        for _ in range(2):
            there = sum(1 for file in out.rglob("*") if file.is_file()) if out.exists() else 0
            kills += killed_after_files(videos, out, there + chance.randrange(len(expected) // 2)) == -signal.SIGKILL
        finish(videos, out)
        assert digests(out) == expected
    assert kills >= 4
