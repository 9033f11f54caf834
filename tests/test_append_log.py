"""A log of JSON lines under two processes at once, kills at any byte, and a full disk."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepline.errors import StoreError
from stepline.files.append_log import AppendLog
from stepline.records import FrozenModel

# A process that appends numbered entries and says each number once it is kept.
WRITER = """
import sys
from test_append_log import log
who, count = sys.argv[2], int(sys.argv[3])
entries = log(sys.argv[1])
for number in range(count):
    entries.add(type(entries).entry(id=f"{who}-{number}", text="x" * (37 * number % 600)))
    print(number, flush=True)
"""


class Entry(FrozenModel):
    id: str
    text: str = ""


class Log(AppendLog[Entry]):
    entry = Entry


def log(path):
    return Log(Path(path), Entry, lambda entry: entry.id, "an entry")


def writer(path, who, count):
    arguments = [sys.executable, "-c", WRITER, str(path), who, str(count)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)


def ids(path):
    return [entry.id for entry in log(path)]


def test_two_processes_keep_all_that_each_was_promised(tmp_path):
    path = tmp_path / "log.jsonl"
    here = log(path)  # made first, so that it must learn of what others append
    writers = [writer(path, who, 25) for who in ("a", "b")]
    for number in range(25):
        here.add(Entry(id=f"here-{number}"))
    numbers = [running.communicate()[0].split() for running in writers]
    assert [running.returncode for running in writers] == [0, 0]
    accepted = {
        f"{who}-{number}" for who, told in zip("ab", numbers, strict=True) for number in told
    }
    assert len(accepted) == 50
    kept = ids(path)
    assert sorted(kept) == sorted({*accepted, *(f"here-{number}" for number in range(25))})
    assert [entry.id for entry in here] == kept


def test_what_was_accepted_outlives_kills_at_any_moment(tmp_path):
    path, rng, accepted = tmp_path / "log.jsonl", random.Random(22), set()
    for turn in range(6):
        running = writer(path, f"w{turn}", 100_000)
        accepted |= {f"w{turn}-{running.stdout.readline().strip()}"}
        time.sleep(rng.random() / 10)
        running.send_signal(signal.SIGKILL)
        accepted |= {
            f"w{turn}-{line.strip()}"
            for line in running.communicate()[0].splitlines(keepends=True)
            if "\n" in line
        }
    here = log(path)
    here.add(Entry(id="last"))
    assert accepted | {"last"} <= set(ids(path))


@pytest.mark.parametrize("cut", [1, 2, 17, 30])
def test_a_last_line_cut_at_any_byte_is_removed_by_the_next_append(tmp_path, cut):
    path = tmp_path / "log.jsonl"
    log(path).add(Entry(id="a"))
    whole = path.read_bytes()
    path.write_bytes(
        whole + json.dumps({"id": "b", "text": "ä" * 20}, ensure_ascii=False).encode()[:cut]
    )
    again = log(path)
    assert [entry.id for entry in again] == ["a"]
    again.add(Entry(id="c"))
    assert path.read_bytes().startswith(whole)
    assert ids(path) == ["a", "c"]


def test_a_later_entry_of_the_same_key_replaces_the_earlier_whoever_wrote_it(tmp_path):
    path = tmp_path / "log.jsonl"
    one, other = log(path), log(path)
    one.add(Entry(id="a", text="first"))
    other.add(Entry(id="b"))
    other.add(Entry(id="a", text="second"))
    assert [(entry.id, entry.text) for entry in one] == [("a", "second"), ("b", "")]


def test_a_lock_that_another_holds_too_long_is_an_error_with_its_cure(tmp_path, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr("stepline.files.append_log.LOCK_WAIT_SECONDS", 0.05)
    entries = log(tmp_path / "log.jsonl")
    with (
        FileLock(tmp_path / "log.jsonl.lock"),
        pytest.raises(StoreError, match="held its lock.*try again"),
    ):
        entries.add(Entry(id="a"))
    entries.add(Entry(id="b"))
    assert ids(tmp_path / "log.jsonl") == ["b"]


def test_a_line_that_the_disk_did_not_take_whole_does_not_come_back(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    entries = log(path)
    entries.add(Entry(id="a"))

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            entries.add(Entry(id="b"))
    assert ids(path) == ["a"]
    path.write_bytes(b"")
    with pytest.raises(StoreError, match="became shorter"):
        entries.add(Entry(id="c"))


def test_a_line_that_only_partly_fits_is_taken_back(tmp_path):
    path = tmp_path / "log.jsonl"
    full = """
import resource, signal, sys
from test_append_log import Entry, log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
entries = log(sys.argv[1])
entries.add(Entry(id="a"))
resource.setrlimit(resource.RLIMIT_FSIZE, (40, resource.RLIM_INFINITY))
try:
    entries.add(Entry(id="b", text="x" * 100))
except Exception as error:
    print(type(error).__name__)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
entries.add(Entry(id="c"))
"""
    done = subprocess.run(
        [sys.executable, "-c", full, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert (done.stdout, done.returncode) == ("StoreError\n", 0), done.stderr
    assert ids(path) == ["a", "c"]
