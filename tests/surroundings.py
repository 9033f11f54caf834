"""Commands in surroundings that are against them: disks of their own, other users, little memory,
clocks that jump. Each is a prefix of a command, or a reason why this machine has none."""

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65534
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")  # of Linux's first control groups
ANY_GROUPS = Path("/sys/fs/cgroup")  # of the second
FILL_SCRIPT = 'mount -t tmpfs -o size="$1" none "$2" && cp -a "$3/." "$2" && shift 3 && exec "$@"'
READ_ONLY_SCRIPT = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift 1 && exec "$@"'
# The command twice: on a disk that is too small, then with room; what it said and made is copied.
TWICE_SCRIPT = """
size=$1 room=$2 out=$3 copy=$4
shift 4
mount -t tmpfs -o size="$size" none "$out" || exit 99
"$@" >/dev/null 2>"$copy/first.txt"
echo $? >"$copy/first.code"
mount -o remount,size="$room" "$out"
"$@" >/dev/null 2>"$copy/second.txt"
echo $? >"$copy/second.code"
cp -a "$out" "$copy/out"
"""
JOIN_SCRIPT = 'echo $$ > "$1" && shift 1 && exec "$@"'

# Python reads it at its start: time.time() is off by what a file says, from one call to the next.
CLOCK_MODULE = """
import os, time
_real_time = time.time
def _shifted_time():
    with open(os.environ["TEST_CLOCK_FILE"]) as file:
        return _real_time() + float(file.read() or 0)
time.time = _shifted_time
"""


def own_mounts():
    """The prefix of a command with mounts of its own; skips where this user may have none."""
    prefix = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if shutil.which("unshare") is None:
        pytest.skip("no `unshare` on PATH")
    if subprocess.run([*prefix, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may have no mounts of its own")
    return prefix


def small_disk(size, folder, source):
    """The prefix of a command that finds in `folder` a disk of so many bytes with the files of
    `source`."""
    return [*own_mounts(), "sh", "-c", FILL_SCRIPT, "sh", str(size), str(folder), str(source)]


def full_then_larger_disk(size, room, folder, copy):
    """The prefix of a command that is run twice with a disk in `folder`, of `size` and of `room`
    bytes; `copy` gets the text and exit code of each, and what is in the folder at the end."""
    sizes = [str(size), str(room), str(folder), str(copy)]
    return [*own_mounts(), "sh", "-c", TWICE_SCRIPT, "sh", *sizes]


def read_only_disk(folder):
    """The prefix of a command that can write nothing in `folder`."""
    return [*own_mounts(), "sh", "-c", READ_ONLY_SCRIPT, "sh", str(folder)]


def other_user():
    """The prefix of a command of a user who owns nothing; skips where this user cannot be
    another."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user; the other tests run as one already")
    if shutil.which("setpriv") is None:
        pytest.skip("no `setpriv` on PATH")
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


@contextmanager
def memory_limit(size):
    """Yield the prefix of a command that, with all it starts, has so many bytes of memory, and a
    function that sets another limit; skips where no control group can be made."""
    if (MEMORY_GROUPS / "memory.limit_in_bytes").exists():
        group = MEMORY_GROUPS / f"stepline-test-{os.getpid()}"
        name = "memory.limit_in_bytes"
    else:
        group = ANY_GROUPS / f"stepline-test-{os.getpid()}"
        name = "memory.max"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made ({error.strerror})")
    try:
        try:
            (group / name).write_text(str(size))
        except OSError as error:
            pytest.skip(f"no memory limit can be set ({error.strerror})")
        prefix = ["sh", "-c", JOIN_SCRIPT, "sh", str(group / "cgroup.procs")]
        yield prefix, lambda other: (group / name).write_text(str(other))
    finally:
        group.rmdir()


class JumpingClock:
    """A clock of a command that tests move: its `variables` are the command's."""

    def __init__(self, folder, root):
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(CLOCK_MODULE)
        self._file = folder / "clock"
        self.jump(0.0)
        paths = os.pathsep.join((str(folder), str(root)))
        self.variables = {"PYTHONPATH": paths, "TEST_CLOCK_FILE": str(self._file)}

    def jump(self, seconds):
        """Be off by so many seconds from here on."""
        new = self._file.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._file)
