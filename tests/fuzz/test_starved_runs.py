"""`train`, `refine` and `sieve-swap` killed at any moment, on disks that are full or read-only, as
another user, and under a memory limit: one line that says why, and the next run ends with the bytes
of one that nobody disturbed."""

import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import kills
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from long_runs import contents, long_runs
from surroundings import NOBODY, full_then_larger_disk, memory_limit, other_user, read_only_disk

pytestmark = pytest.mark.slow  # minutes in all; every run of them ends commands many times

NAMES = pytest.mark.parametrize("name", ["train", "refine", "sieve-swap"])
ROOM_BYTES = 64 * 2**20
LITTLE_MEMORY_BYTES = 60 * 2**20  # torch alone has more


@pytest.fixture(scope="module")
def runs():
    """The runs, with inputs that every user can read, as pytest's own folders are not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield long_runs(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
    """What an undisturbed run leaves, and the seconds in which it writes: whole(name)."""
    made = {}

    def run(name):
        if name not in made:
            out = tmp_path_factory.mktemp("whole") / name
            process = runs[name].start(out)
            while process.poll() is None and not kills.has_file(out):
                time.sleep(0.005)
            begun = time.monotonic()
            assert process.wait() == 0
            made[name] = contents(out), time.monotonic() - begun
        return made[name]

    return run


def assert_one_line(text):
    """The last line is the error, whatever a run reported before; no trace is told."""
    lines = [line for line in text.splitlines() if line]
    assert "Traceback" not in text
    assert lines[-1].startswith("stepline: "), text
    assert not any(line.startswith("stepline: ") for line in lines[:-1]), text
    return lines[-1]


@NAMES
@pytest.mark.parametrize("count", [1, 12])
def test_kills_at_any_moment_change_no_byte(runs, whole, tmp_path, name, count):
    rng = random.Random(f"{name} {count}")
    expected, seconds = whole(name)
    killed = 0
    out = tmp_path / "out"
    for _ in range(count):
        process = runs[name].start(out)
        killed += kills.kill_while_it_writes(process, out, seconds, rng)
    done = runs[name].run(out)
    assert done.returncode == 0, done.stderr
    assert contents(out) == expected
    print(f"{name}: {killed} of {count} killed while they wrote")


@NAMES
@pytest.mark.parametrize("share", [n / 8 for n in range(8)])
def test_a_full_disk_is_reported_and_the_next_run_has_every_byte(
    runs, whole, tmp_path, name, share
):
    expected, _ = whole(name)
    size = max(4096, int(share * sum(map(len, expected.values()))))
    out = tmp_path / "out"
    copy = tmp_path / "copy"
    for folder in (out, copy):
        folder.mkdir()
    done = runs[name].run(out, prefix=full_then_larger_disk(size, ROOM_BYTES, out, copy))
    assert done.returncode == 0, done.stderr
    line = assert_one_line((copy / "first.txt").read_text())
    assert (copy / "first.code").read_text() == "1\n", line
    assert "o space left" in line, line
    assert (copy / "second.code").read_text() == "0\n", (copy / "second.txt").read_text()
    assert contents(copy / "out") == expected


@NAMES
def test_a_read_only_disk_is_reported_in_a_line(runs, tmp_path, name):
    out = tmp_path / "out"
    out.mkdir()
    done = runs[name].run(out, prefix=read_only_disk(out))
    assert done.returncode == 1, done.stderr
    assert "does not allow writing" in assert_one_line(done.stderr)
    assert list(out.iterdir()) == []


@NAMES
def test_a_folder_of_another_user_is_reported_in_a_line(runs, tmp_path, name):
    done = runs[name].run(tmp_path / "out", prefix=other_user())
    assert done.returncode == 1, done.stderr
    assert "ermission denied" in assert_one_line(done.stderr)


@NAMES
def test_one_without_a_home_or_rights_does_as_any_other(runs, whole, name):
    expected = dict(whole(name)[0])
    prefix = other_user()
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        weights = os.environ["STEPLINE_WEIGHTS"]
        if name == "sieve-swap":
            shutil.copytree(weights, folder / "weights")
            weights = folder / "weights"
        (folder / "out").mkdir()
        os.chown(folder / "out", NOBODY, NOBODY)
        variables = {"HOME": "/none", "STEPLINE_WEIGHTS": str(weights)}
        done = runs[name].run(folder / "out", prefix=prefix, **variables)
        assert done.returncode == 0, done.stderr
        made = contents(folder / "out")
        for files in (made, expected):
            files.pop("run.json", None)  # names the commit, which git tells its owner alone
        assert made == expected
    finally:
        shutil.rmtree(folder)


@NAMES
def test_little_memory_leaves_nothing_that_the_next_run_trusts(runs, whole, tmp_path, name):
    """The kernel ends it somewhere: by a signal, or by an error that is one line."""
    expected, _ = whole(name)
    out = tmp_path / "out"
    with memory_limit(LITTLE_MEMORY_BYTES) as (prefix, _):
        done = runs[name].run(out, prefix=prefix)
    assert done.returncode in (1, -9, 137), done.stderr
    assert "Traceback" not in done.stderr
    done = runs[name].run(out)
    assert done.returncode == 0, done.stderr
    assert contents(out) == expected
