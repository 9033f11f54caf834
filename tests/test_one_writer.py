"""One run writes to an OUT at a time: a second is told whose it is, or waits; one that was killed
keeps nobody out."""

import fcntl
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from option_words import option_words

from stepline.errors import SettingsError, StoreError
from stepline.files.locks import LOCK_NAME, lock_output
from stepline.pipeline import batch
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import Request, StepsSettings
from stepline.settings import load_settings

HOLDER = """
import sys, time
from pathlib import Path
from stepline.files.locks import lock_output
with lock_output(Path(sys.argv[1]), "out"):
    print("held", flush=True)
    time.sleep(600)
"""
TRAINING = ("--features", "store")
COMMANDS = {
    "train nasva": ("train", "nasva", *TRAINING, "--steps", "records", "--out"),
    "train procx": ("train", "procx", *TRAINING, "--steps", "records", "--out"),
    "train wys2": ("train", "wys2", *TRAINING, "--key-steps", "records", "--out"),
    "refine": ("refine", "records", *TRAINING, "--out"),
    "features extract": ("features", "extract", "videos", "--out"),
    "features import": ("features", "import", "arrays", "--out"),
    "text-base build": ("text-base", "build", "recipes.json", "--out"),
    "sieve-swap": ("sieve-swap", "records", "--text-base", "base", "--out"),
    "curate": ("curate", "videos.csv", "--out"),
    "predict": "predict ht-step --aligner net --features f --reference r --out".split(),
}


@pytest.fixture
def holder():
    """Start processes that hold a lock: holder(lock) -> process."""
    running = []

    def start(lock):
        program = [sys.executable, "-c", HOLDER, str(lock)]
        process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_second_run_on_an_out_gets_one_line_that_names_the_process(
    command, tmp_path, monkeypatch, stepline
):
    monkeypatch.chdir(tmp_path)
    Path("videos.csv").write_text("video\nv.mp4\n")
    Path("v.mp4").touch()
    out = Path("out")
    others = {"predict": Path(".out.lock"), "curate": out / "driver.json"}
    lock = others.get(command, out / LOCK_NAME)
    with lock_output(lock, out):
        result = stepline(*COMMANDS[command], out)
    assert (result.exit_code, result.stdout) == (1, "")
    line = rf"stepline: \S*out: process {os.getpid()} on .* works on it; wait for its end, or give another folder\n"
    assert re.fullmatch(line, result.stderr), result.stderr
    assert not out.exists()  # neither left anything behind


def test_a_killed_run_keeps_no_one_out(tmp_path, holder):
    lock = tmp_path / "out" / LOCK_NAME
    first = holder(lock)
    refused = pytest.raises(SettingsError, match=f"out: process {first.pid} on")
    with refused, lock_output(lock, "out"):
        pass
    first.kill()
    first.wait()
    with lock_output(lock, "out") as killed:
        assert killed
    assert not lock.exists()
    with lock_output(lock, "out") as killed:
        assert not killed


def test_one_who_waits_says_for_whom_and_goes_on_when_that_one_is_killed(tmp_path, holder, caplog):
    lock = tmp_path / LOCK_NAME
    first = holder(lock)
    noticed = threading.Event()
    caplog.handler.addFilter(lambda record: noticed.set() or True)
    with ThreadPoolExecutor(1) as thread, caplog.at_level(logging.WARNING):
        thread.submit(lambda: (noticed.wait(120), first.kill()))
        with lock_output(lock, "out/v", wait=True) as killed:
            assert killed
    (message,) = [record.getMessage() for record in caplog.records]
    holder = f"process {first.pid} on {os.uname().nodename}"
    assert message == f"out/v: {holder} works on it; waiting for its end"


def test_of_many_writers_each_has_its_turn_alone(tmp_path):
    """Each removes the file that it locks: the next must not hold one that is gone beside one who
    made another."""
    lock, inside, most = tmp_path / "out" / LOCK_NAME, [], []

    def turns():
        for _ in range(10):
            with lock_output(lock, "out", wait=True):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(turns) for _ in range(4)]:
            done.result()
    assert most == [1] * 40
    assert not lock.exists()


def test_a_folder_that_goes_while_it_is_made_is_made_again(tmp_path, monkeypatch):
    """The system says that it exists, and its owner takes it away before one can see that it is a
    folder."""
    made, make = [], os.mkdir

    def mkdir(path, mode=0o777):
        made.append(path)
        if len(made) == 1:
            raise FileExistsError(17, "File exists", str(path))
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with lock_output(tmp_path / "out" / LOCK_NAME, "out"):
        assert len(made) == 2


def test_a_file_in_the_folder_s_place_is_named(tmp_path):
    (tmp_path / "out").write_text("mine")
    with pytest.raises(StoreError, match=r"out: cannot be made \(File exists\); give another"):
        lock_output(tmp_path / "out" / LOCK_NAME, "out").__enter__()


def test_a_disk_without_locks_holds_nothing_and_says_so(tmp_path, monkeypatch, caplog):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with lock_output(tmp_path / LOCK_NAME, "out"), lock_output(tmp_path / LOCK_NAME, "out"):
        pass
    assert "this disk has no locks" in caplog.text


def test_two_runs_over_one_video_make_it_once(
    small_video, captions_file, tmp_path, stepline, caplog
):
    begun, out, first = threading.Event(), tmp_path / "out", tmp_path / "first"

    def is_waiting(record):
        if "waiting" in record.getMessage():
            begun.set()
        return True

    def second():
        settings = load_settings(StepsSettings, None, ['vision.backbone="none"'])
        request = Request(small_video, "small", captions_file)
        return batch.run_video(request, settings, OutputOptions(out, ("json",)))

    caplog.handler.addFilter(is_waiting)
    with ThreadPoolExecutor(1) as thread, lock_output(out / ".small.lock", "out/small"):
        waiting = thread.submit(second)
        assert begun.wait(120)
        first.mkdir()
        given = option_words(captions=captions_file, backbone="none", format="json", out=first)
        made = stepline("steps", small_video, *given)
        assert made.exit_code == 0, made.stderr
        shutil.copy(first / "small.json", out)
    assert waiting.result().is_from_earlier_run


def test_a_video_of_the_same_name_that_another_run_wrote_in_between_is_not_overwritten(
    small_video, captions_file, tmp_path, stepline, monkeypatch
):
    other = shutil.copy(small_video, tmp_path / "small.mp4")
    common = ("--captions", captions_file, "--backbone", "none", "--format", "json", "--out")
    assert stepline("steps", other, *common, tmp_path / "first").exit_code == 0

    def delayed(id, out):
        (out / "small.json").write_bytes((tmp_path / "first" / "small.json").read_bytes())
        return lock_output(out / ".small.lock", out)

    monkeypatch.setattr(batch, "lock_video", delayed)
    (tmp_path / "out").mkdir()
    result = stepline("steps", small_video, *common, tmp_path / "out")
    assert result.exit_code == 1
    assert "out/small: another process has now written a video of that name" in result.stderr


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs a folder in which nobody can make one"
)
def test_a_folder_that_cannot_be_made_is_one_line_and_no_endless_wait(stepline, tmp_path):
    (tmp_path / "in").mkdir()
    result = stepline("features", "import", tmp_path / "in", "--out", "/proc/none")
    assert result.exit_code == 1
    assert "/proc/none: cannot be made" in result.stderr


def test_a_folder_whose_name_is_not_utf8_is_one_line(stepline, tmp_path):
    (tmp_path / "in").mkdir()
    result = stepline("features", "import", tmp_path / "in", "--out", f"{tmp_path}/\udcff")
    assert result.exit_code == 1
    assert "its name is not UTF-8" in result.stderr
