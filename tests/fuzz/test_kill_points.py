"""A kill at any write, flush, rename or removal: the next run ends with the bytes of one that
nobody disturbed."""

import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from file_bytes import file_bytes

pytestmark = pytest.mark.slow  # minutes in all; every run of them ends commands many times

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("sieve_swap", "training")]

ALONE = "STEPLINE_TEST_ALONE"  # set where a test runs in a process of its own
POINTS = 8  # of a task that has more, so many are taken, evenly; each costs two runs


def in_a_process(task, folder, nth):
    """Run a task in a fork; kill it at its n-th change of the disk, half of a write done; return
    (status, changes)."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        try:
            changes = count_changes(nth)
            task(folder)
            os.write(theirs, str(changes[0]).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        counted = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), int(counted or 0)


def count_changes(nth):
    """Count this process's changes of the disk from here on, and end it by SIGKILL at the n-th; 0 =
    never."""
    import torch

    torch.set_num_threads(1)  # a fork has no others
    changes, write = [0], Path.write_bytes

    def watched(change):
        def counted(*arguments, **options):
            changes[0] += 1
            if changes[0] == nth:
                if change is write:
                    write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*arguments, **options)

        return counted

    for owner, names in (
        (Path, "write_bytes replace rename unlink"),
        (os, "fsync ftruncate replace rename"),
    ):
        for name in names.split():
            setattr(owner, name, watched(getattr(owner, name)))
    return changes


def contents(folder):
    """Name -> bytes of what a run has left; locks and logs of times apart."""
    clocked = ("log.jsonl", "train.jsonl")
    return file_bytes(folder, lambda path: path.suffix != ".lock" and path.name not in clocked)


def survives_every_kill(task, folder, prepare=lambda folder: None):
    """Hold a task to the bytes of its undisturbed run, for a kill at each of its changes."""
    task(folder / "warm")  # what it imports, once for all forks
    prepare(folder / "whole")
    status, changes = in_a_process(task, folder / "whole", 0)
    assert status == 0
    assert changes > 0
    expected = contents(folder / "whole")
    taken = range(1, changes + 1)
    if changes > POINTS:
        taken = sorted({1 + round(i * (changes - 1) / (POINTS - 1)) for i in range(POINTS)})
    for nth in taken:
        killed = folder / f"killed-{nth}"
        prepare(killed)
        assert in_a_process(task, killed, nth)[0] == -signal.SIGKILL
        assert in_a_process(task, killed, 0)[0] == 0, f"killed at change {nth} of {changes}"
        assert contents(killed) == expected, f"killed at change {nth} of {changes}"


@pytest.mark.parametrize("clips", [False, True])
def test_steps_killed_at_any_change_of_the_disk_end_with_the_same_bytes(
    small_video, captions_file, tmp_path, monkeypatch, clips
):
    """Also over the files of an earlier run with other settings, which are its own and go."""
    from stepline.outputs import OUTPUTS
    from stepline.pipeline import batch
    from stepline.pipeline.request import Request, StepsSettings
    from stepline.settings import load_settings

    request = Request(small_video, "small", captions_file)
    other, wanted = (
        load_settings(
            StepsSettings,
            None,
            ["vision.backbone=none", f"nasva.ground.shown_threshold={threshold}"],
        )
        for threshold in (0.9, 0.3)
    )
    understood = {settings: batch.understand(request, settings) for settings in (other, wanted)}
    # it writes nothing
    monkeypatch.setattr(batch, "understand", lambda request, settings, **_: understood[settings])

    def run(settings):
        def task(out):
            options = batch.OutputOptions(out, tuple(OUTPUTS), clips=clips)
            batch.run_video(request, settings, options)

        return task

    survives_every_kill(run(wanted), tmp_path, lambda folder: in_a_process(run(other), folder, 0))


def test_sieve_swap_killed_at_any_change_of_the_disk_ends_with_the_same_bytes(tmp_path):
    from small_base import SmallBase
    from test_sieve_swap_run import VIDEOS, settings, write_videos

    from stepline.sieve_swap.run import SieveSwapJob, run_job

    videos, base = write_videos(tmp_path / "in", VIDEOS), SmallBase()

    def task(folder):
        run_job(SieveSwapJob(videos, base, folder, settings(), embed=base.embed))

    survives_every_kill(task, tmp_path)


def test_training_killed_at_any_change_of_the_disk_ends_with_the_same_bytes(tmp_path):
    from test_loop import QUICK, network, task

    from stepline.models.training.loop import fit

    survives_every_kill(lambda folder: fit(network(), task(), QUICK, folder), tmp_path)


def test_an_import_killed_at_any_change_of_the_disk_ends_with_the_same_bytes(tmp_path):
    import numpy as np

    from stepline.features import import_features

    for name in "abcd":
        (tmp_path / "in").mkdir(exist_ok=True)
        np.save(tmp_path / "in" / f"{name}.npy", np.ones((5, 4), np.float32) * ord(name))

    def task(folder):
        import_features(tmp_path / "in", folder, shard_bytes=90)

    survives_every_kill(task, tmp_path)


def test_curation():
    """In a process without the threads of other tests: their locks stay locked for good in a
    fork."""
    words = ("-q", "-p", "no:cacheprovider", "-m", "slow", __file__, "-k", "driver")
    run = [sys.executable, "-m", "pytest", *words]
    alone = {"env": os.environ | {ALONE: "1"}, "timeout": 1000}
    done = subprocess.run(run, capture_output=True, text=True, **alone)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(ALONE not in os.environ, reason="test_curation runs it, alone")
def test_a_driver_of_curate_killed_at_any_change_of_the_disk_loses_nothing(tmp_path, monkeypatch):
    """The driver is killed; its workers end with it. Those are killed at random moments by
    test_kills.py."""
    from fake_stages import STAGES, recipe, videos

    from stepline.curate.driver import RunRequest, run_recipe

    monkeypatch.setenv("STEPLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    items = videos(tmp_path / "in", {"a": "some", "b": "words", "bad": "corrupt"})

    def task(folder):
        run_recipe(RunRequest(recipe(workers=1), str(folder), STAGES), items)

    status, changes = in_a_process(task, tmp_path / "whole", 0)
    assert status == 0

    def kept(folder):
        parts = [folder / part for part in ("cells", "stages", "dataset")]
        return [contents(part) for part in parts]

    for nth in range(1, changes + 1, max(1, changes // POINTS)):
        killed = tmp_path / f"killed-{nth}"
        assert in_a_process(task, killed, nth)[0] == -signal.SIGKILL
        assert in_a_process(task, killed, 0)[0] == 0
        assert kept(killed) == kept(tmp_path / "whole"), f"killed at change {nth} of {changes}"
