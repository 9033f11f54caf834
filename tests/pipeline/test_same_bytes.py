"""A record is the same bytes whatever threads the environment names and however many cores there
are."""

import os
import shutil
import subprocess
import sys

import pytest

from stepline.cli.steps import DEMO_VIDEO
from stepline.processes import THREAD_VARIABLES

ONE_CORE = ("taskset", "-c", "0")
needs_taskset = pytest.mark.skipif(
    shutil.which("taskset") is None, reason="needs taskset, of util-linux"
)


def record_bytes(video, out, *, threads=None, prefix=(), options=()):
    """The record that the main job writes in a process of its own. threads: None: not named."""
    environment = {name: os.environ[name] for name in os.environ.keys() - {*THREAD_VARIABLES}}
    if threads is not None:
        environment |= dict.fromkeys(THREAD_VARIABLES, threads)
    command = [*prefix, sys.executable, "-m", "stepline", "steps", str(video), "--out", str(out)]
    subprocess.run([*command, *options], env=environment, check=True, capture_output=True)
    return (out / f"{video.stem}.json").read_bytes()


@pytest.mark.slow
@needs_taskset
def test_four_threads_on_one_core_write_the_record_of_the_machine_as_it_is(tmp_path):
    part = ("--to", "15")
    expected = record_bytes(DEMO_VIDEO, tmp_path / "plain", options=part)
    crowded = tmp_path / "crowded"
    found = record_bytes(DEMO_VIDEO, crowded, threads="4", prefix=ONE_CORE, options=part)
    assert found == expected


@pytest.fixture(scope="module")
def clip(shared_path):
    return shared_path("clips/squat_jump.mp4")


@pytest.fixture(scope="module")
def plain_record(clip, tmp_path_factory):
    return record_bytes(clip, tmp_path_factory.mktemp("plain"))


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2", "4"])
def test_a_clip_has_the_same_record_on_any_number_of_threads(clip, plain_record, threads, tmp_path):
    assert record_bytes(clip, tmp_path, threads=threads) == plain_record


@pytest.mark.slow
@needs_taskset
def test_a_clip_has_the_same_record_on_one_core(clip, plain_record, tmp_path):
    assert record_bytes(clip, tmp_path, prefix=ONE_CORE) == plain_record
