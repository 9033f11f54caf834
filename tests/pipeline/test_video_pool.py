"""Folders of videos: several processes, a bar, a line per video, and a clean end."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from stepline.cli import progress
from stepline.cli.steps import DEMO_VIDEO
from stepline.errors import SteplineError
from stepline.media.container import claimed_duration
from stepline.media.settings import MediaSettings
from stepline.networks.device import core_count
from stepline.pipeline import batch as video_pool
from stepline.pipeline.batch import VideoPool, VideoWorkerSetup, make_picklable, max_parallel_videos
from stepline.pipeline.output_files import OutputOptions
from stepline.pipeline.request import StepsSettings
from stepline.pipeline.sources import find_sources

GIB = 2**30
MAX_SECONDS = 120.0  # that a test waits for what must happen
BLIND = ("--backbone", "none")


@pytest.fixture
def films(small_video, captions_file, tmp_path):
    """A folder with three small videos that have captions' words as their lines, and a file that is
    no video."""
    folder = tmp_path / "films"
    folder.mkdir()
    for name in ("a", "b", "c"):
        shutil.copyfile(small_video, folder / f"{name}.mp4")
    (folder / "bad.mp4").write_bytes(b"not a video")
    (tmp_path / "lines.txt").write_text("slice the lemons\nwhisk sugar into water\n")
    return folder


def job(films, out, *options):
    return ("steps", films, "--texts", films.parent / "lines.txt", "--out", out, *options)


def test_several_processes_write_the_bytes_of_one(films, tmp_path, stepline):
    for jobs in ("1", "2"):
        result = stepline(*job(films, tmp_path / jobs, "--jobs", jobs))
        assert result.exit_code == 1, result.output
        assert "3 of 4 videos done, 1 failed" in result.stderr
        assert f"stepline: {films}/bad.mp4: not a video" in result.stderr
    names = sorted(file.name for file in (tmp_path / "1").iterdir())
    assert {"a.json", "b.json", "c.json", "a.html"} <= set(names)
    assert names == sorted(file.name for file in (tmp_path / "2").iterdir())
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_each_of_several_videos_has_a_line_and_what_is_done_is_not_printed_again(
    films, tmp_path, stepline
):
    (films / "bad.mp4").unlink()
    command = job(films, tmp_path / "out", *BLIND, "--jobs", "1")
    first = stepline(*command)
    assert [line.partition(":")[0] for line in first.stdout.splitlines()] == ["a", "b", "c"]
    assert "wrote" not in first.stderr
    again = stepline(*command)
    assert (again.exit_code, again.stdout) == (0, "")
    summary = "3 of 3 videos done, 0 failed; 3 were done before (--force does them again)"
    assert again.stderr.splitlines()[-1] == summary
    # machines get every record, whoever made it, in the order of the videos
    lines = stepline(*command[:-1], "2", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a", "b", "c"]


def test_a_quiet_run_over_a_folder_says_only_what_is_wrong(films, tmp_path, stepline):
    result = stepline(*job(films, tmp_path / "out", *BLIND, "--jobs", "1", "-q"))
    assert result.stdout == ""
    # the file that is no video, and three films without speech
    kinds = [line.partition(": ")[0] for line in result.stderr.splitlines()]
    assert sorted(kinds) == ["stepline"] + 3 * ["warning"]


def test_chapters_that_are_left_out_say_why(films, tmp_path, stepline):
    one = list(job(films / "a.mp4", tmp_path / "out", *BLIND))
    one[one.index("--texts") + 1] = tmp_path / "lines.txt"
    reason = "no chapters: 16 s of video; 3 chapters of 10 s need 30 s"
    result = stepline(*one)
    assert result.exit_code == 0
    assert reason in result.stderr.splitlines()
    # of several videos only where chapters are asked for
    several = job(films, tmp_path / "out", *BLIND, "--jobs", "1")
    assert reason not in stepline(*several).stderr
    assert f"a: {reason}" in stepline(*several, "--format", "chapters").stderr.splitlines()


def test_verbose_prints_the_table_of_each_video_and_the_time_of_each_line(films, tmp_path):
    command = [sys.executable, "-m", "stepline", "-v"]
    command += map(str, job(films, tmp_path / "out", *BLIND, "--jobs", "2"))
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout.count("Slice the lemons") == 3
    assert f"wrote {tmp_path}/out/a.json" in result.stderr
    logged = [line for line in result.stderr.splitlines() if " I stepline" in line]
    assert logged
    assert "INFO:stepline" not in result.stderr
    for line in logged:
        time.strptime(line.partition(" ")[0][:19], "%Y-%m-%dT%H:%M:%S")


def living_children():
    """The workers of this process that run; one that was killed may wait to be collected, and
    Python's own tracker of resources is none."""
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            words = " ".join(child.cmdline())
            if child.status() != psutil.STATUS_ZOMBIE and "resource_tracker" not in words:
                found.append(child)
    return found


def worker_setup(out):
    settings = StepsSettings()
    return VideoWorkerSetup(settings, OutputOptions(out, ("json",)), {"texts": ("pour water",)})


def test_a_video_whose_process_is_killed_fails_alone(small_video, tmp_path):
    films = [tmp_path / "long.mp4", tmp_path / "small.mp4"]
    shutil.copyfile(DEMO_VIDEO, films[0])
    shutil.copyfile(small_video, films[1])
    outcomes = {}
    with VideoPool(worker_setup(tmp_path), size=1) as pool:
        sources = find_sources(films, tmp_path, StepsSettings())
        for outcome in pool.run(sources):
            if outcome is not None:
                outcomes[Path(outcome.label).name] = outcome
            elif not outcomes and (tmp_path / ".long.lock").exists():
                for child in living_children():
                    child.send_signal(signal.SIGKILL)
    assert "its process was ended (signal SIGKILL)" in str(outcomes["long.mp4"].error)
    assert outcomes["small.mp4"].result.record.id == "small"
    assert living_children() == []


def test_ctrl_c_ends_all_processes_and_leaves_nothing_half_written(tmp_path):
    films = tmp_path / "films"
    films.mkdir()
    for name in ("a", "b"):
        shutil.copyfile(DEMO_VIDEO, films / f"{name}.mp4")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "stepline", "steps", str(films), "--out", str(out)]
    with subprocess.Popen([*command, "--jobs", "2"], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + MAX_SECONDS
        while not list(out.glob(".*.lock")) and time.monotonic() < deadline:
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=MAX_SECONDS)
    assert (process.returncode, said) == (130, "stepline: stopped; what was finished is kept\n")
    assert len(children) >= 1
    assert not any(child.is_running() for child in children)
    assert list(out.glob("*")) == []


def test_workers_share_the_cores(tmp_path, small_video):
    shares = set()
    with VideoPool(worker_setup(tmp_path), size=2) as pool:
        for _ in pool.run(find_sources([small_video], tmp_path, StepsSettings())):
            for child in living_children():
                with contextlib.suppress(psutil.Error):
                    shares.add(child.environ().get("OMP_NUM_THREADS"))
    assert shares == {str(max(1, core_count() // 2))}


@pytest.mark.parametrize(
    ("cores", "gibibytes", "threads", "jobs"),
    [(8, 32, None, 8), (8, 3, None, 3), (8, 0.2, None, 1), (8, 32, "2", 4), (2, 32, "4", 1)],
)
def test_a_machine_carries_as_many_as_its_cores_and_memory(
    cores, gibibytes, threads, jobs, monkeypatch
):
    monkeypatch.setattr(video_pool, "core_count", lambda: cores)
    monkeypatch.setattr(video_pool, "available_memory", lambda: int(gibibytes * GIB))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if threads is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
    assert max_parallel_videos(StepsSettings()) == jobs


def test_a_local_language_model_is_loaded_once():
    gguf = {"writing": {"writer": "llm", "llm": {"gguf": Path("m.gguf")}}}
    assert max_parallel_videos(StepsSettings.model_validate(gguf)) == 1


def test_the_memory_of_a_container_is_its_limit(tmp_path):
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert video_pool.available_memory(tmp_path) == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert video_pool.available_memory(tmp_path) > 2000


@pytest.fixture
def clock(monkeypatch):
    """The seconds of the clock of progress lines, in a list of one."""
    seconds = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: seconds[0])
    return seconds


def test_a_bar_says_how_many_failed_and_how_long_it_takes(clock):
    labels = [f"http://example.org/{number}.mp4" for number in range(2000)]
    folder = progress.FolderProgress(labels, [None] * 2000)
    assert folder.text() == "0 of 2,000 videos"
    clock[0] += 150.0
    for number in range(37):
        folder.add(labels[number], failed=number < 2, earlier=number >= 27)
    # 27 fresh ones took 150 s, and 1,963 are left: 10,906 s
    assert folder.text() == "37 of 2,000 videos, 2 failed, 3 h left"


def test_the_progress_of_a_folder_is_in_minutes_of_film(clock, monkeypatch):
    durations = {"a/short.mp4": 60.0, "a/done.mp4": 300.0}
    durations |= {"a/unknown.mp4": None, "a/long.mp4": 540.0}
    folder = progress.FolderProgress(list(durations), list(durations.values()))
    # the unknown one counts as the mean of the others, 300 s
    assert folder.text() == "0 of 4 videos, 0.0 of 20.0 min of film"
    folder.add("a/done.mp4", failed=False, earlier=True)
    clock[0] += 10.0
    folder.add("a/short.mp4", failed=False, earlier=False)
    # 60 s of film took 10 s, so the 840 that are left take 140. By the count of videos it would be 20
    assert folder.text() == "2 of 4 videos, 6.0 of 20.0 min of film, 2 min left"
    shown = []
    monkeypatch.setattr(folder, "show", shown.append)
    folder.show_counts("listening", 300.0, 300.0)
    folder.show_counts("looking", 180.0, 300.0)
    # its sound is half of it, and 60 % of its pictures three tenths
    assert shown[0].startswith("2 of 4 videos, 8.5 of 20.0 min of film, 115 s left")
    assert shown[1].startswith("2 of 4 videos, 10.0 of 20.0 min of film, 100 s left")
    assert shown[1].endswith("; unknown.mp4: looking 180 of 300 s")


def test_the_time_left_never_rises(clock):
    folder = progress.FolderProgress(["a", "b", "c"], [60.0, 60.0, 60.0])
    folder.show_counts("looking", 60.0, 60.0)
    clock[0] += 10.0
    assert "left" not in folder.text()  # one video that has not ended says too little
    folder.add("a", failed=False, earlier=False)
    assert folder.text().endswith(" 20 s left")
    clock[0] += 40.0
    assert folder.text().endswith(" 20 s left")
    folder.add("b", failed=False, earlier=False)
    assert folder.text().endswith(" 20 s left")  # 25 s by what a and b took
    folder.show_counts("looking", 48.0, 60.0)
    assert folder.text().endswith(" 15 s left")  # of which four fifths of a half are done
    folder.add("c", failed=False, earlier=False)
    assert folder.text() == "3 of 3 videos, 3.0 of 3.0 min of film"


def test_the_videos_in_work_are_named(monkeypatch):
    folder = progress.FolderProgress(["x/a.mp4", "x/b.mp4", "x/c.mp4"], [60.0] * 3, at_once=2)
    shown = []
    monkeypatch.setattr(folder, "show", shown.append)
    folder.show_counts()
    folder.add("x/b.mp4", failed=False, earlier=False)
    folder.add("x/c.mp4", failed=False, earlier=False)
    folder.show_counts()
    assert shown[0] == "0 of 3 videos, 0.0 of 3.0 min of film; a.mp4 and 1 more"
    assert shown[1].endswith("; a.mp4")


def test_the_length_of_a_video_is_read_from_its_header(small_video, tmp_path):
    assert claimed_duration(small_video, MediaSettings()) == pytest.approx(16.0, abs=0.2)
    assert claimed_duration(small_video, MediaSettings(max_duration=5.0)) is None
    (tmp_path / "text.mp4").write_text("no video")
    for path in (tmp_path / "text.mp4", tmp_path / "none.mp4", tmp_path):
        assert claimed_duration(path, MediaSettings()) is None


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (5400, "90 min"), (9000, "2 h")])
def test_a_rough_time_has_one_unit(seconds, text):
    assert progress.rough_time(seconds) == text


class TwoPartError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} {second}")


def test_an_error_reaches_the_parent_with_its_trace_whatever_its_class():
    copy = make_picklable(TwoPartError("broken", "thing"))
    assert (type(copy), str(copy)) == (RuntimeError, "TwoPartError: broken thing")
    plain = make_picklable(SteplineError("cut off; download it again"))
    assert (type(plain), str(plain)) == (SteplineError, "cut off; download it again")
    assert "SteplineError" in plain.__notes__[0]
