"""Python processes that Stepline starts: a module of the package or of an installed one.

    process = start_module("pip", ["download", "numpy"], stdout=subprocess.DEVNULL)

A child finds modules where this process does, but never in the folder that the user happens to be
in. It has no variable of the interpreter's that the user did not mean for it. It has no descriptor
but those it is given, and it ends when this process does, however that ends.
"""

import contextlib
import ctypes
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeAlias

Stream: TypeAlias = int | IO[Any] | None  # as of `subprocess`

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
PARENT_POLL_SECONDS = 1.0  # between looks at who the parent is
# Variables of the interpreter that a child has from this process. Others, such as PYTHONSTARTUP and
# PYTHONINSPECT, change what it runs.
INTERPRETER_VARIABLES = frozenset(
    (
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED",
        "PYTHONHOME",
        "PYTHONIOENCODING",
        "PYTHONMALLOC",
        "PYTHONNOUSERSITE",
        "PYTHONPYCACHEPREFIX",
        "PYTHONUSERBASE",
        "PYTHONUTF8",
        "PYTHONWARNINGS",
    )
)
# each says how many threads some library uses for numbers
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
LARGE_BLOCK_BYTES = 1 << 27  # Whisper's largest arrays have 54 MB
# options of mallopt, from glibc's malloc.h
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
MAX_ARENAS = 2  # per process; glibc's default is eight per core
# Linux kills a child when the THREAD that started it ends: this one ends with the process only.
_starter = ThreadPoolExecutor(1, thread_name_prefix="stepline-start")
PACKAGE_ROOT = Path(__file__).resolve().parents[1]  # the folder that holds `stepline`
_is_own = False


def start_module(
    module: str,
    arguments: Sequence[str] = (),
    *,
    stdout: Stream = None,
    stderr: Stream = None,
    variables: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Start `python -m module arguments` in a process group of its own.

    Args:
        module: that is run.
        arguments: of its command line.
        stdout: as of `subprocess`.
        stderr: as of `subprocess`.
        variables: of the environment, in addition to those of `child_environment`.
        pass_fds: the only descriptors that it has, except its streams.

    Raises OSError where the system has no room for a process.
    """
    # -P keeps the current folder out of the child's path.
    launcher = [sys.executable, "-P", "-m", __name__, str(os.getpid())]
    # From the one thread that ends with the process, not with a caller's thread.
    return _starter.submit(
        subprocess.Popen,
        [*launcher, module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        close_fds=True,
        pass_fds=pass_fds,
        env=child_environment() | dict(variables or {}),
        start_new_session=True,
    ).result()


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kill a process that `start_module` started, with all that it has started, and wait for its
    end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def child_environment() -> dict[str, str]:
    """Return the environment of a child: this process's, with the folders of `module_folders`."""
    environment = {}
    for name, value in os.environ.items():
        if not name.startswith("PYTHON") or name in INTERPRETER_VARIABLES:
            environment[name] = value
    environment["PYTHONPATH"] = os.pathsep.join(module_folders())
    # What the child itself starts leaves the current folder out too.
    environment["PYTHONSAFEPATH"] = "1"
    # A relative folder of PATH is one of wherever the user is.
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    environment["PATH"] = os.pathsep.join(folders)
    return environment


def worker_variables(threads: int) -> dict[str, str]:
    """Return the variables of a worker among others, so that together they take no more than the
    machine's cores.

    threads: that each library of the worker's uses.
    """
    counts = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return counts | {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}


def module_folders() -> list[str]:
    """Return the folders of `sys.path`, without the current one.

    `python -m` and an empty part of PYTHONPATH put the current folder there unasked. It stays where
    PYTHONPATH names it in full, or where Stepline itself is in it.
    """
    named = {str(PACKAGE_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    current = None
    with contextlib.suppress(FileNotFoundError):  # it was removed
        current = os.path.realpath(os.getcwd())
    folders = []
    for folder in filter(os.path.isabs, sys.path):
        if folder in named or os.path.realpath(folder) != current:
            folders.append(folder)
    if str(PACKAGE_ROOT) not in map(os.path.realpath, folders):
        folders.append(str(PACKAGE_ROOT))
    return folders


def end_with_parent(parent: int) -> None:
    """Kill this process when its parent ends, however that ends."""
    # The thread below sees it a second late, and not while foreign code holds the interpreter's
    # lock. Linux helps.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


def claim_process() -> None:
    """Say that this process runs one of Stepline's own programs, not a program that imports it."""
    global _is_own
    _is_own = True


def is_own_process() -> bool:
    """Whether this process runs one of Stepline's own programs, so that no one else needs what it
    leaves out."""
    return _is_own


def _set_malloc_option(option: int, value: int) -> None:
    """Call glibc's mallopt. Do nothing where another C library is used."""
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(option, value)


def limit_malloc_arenas() -> None:
    """Make the threads of this process share a few malloc arenas, where glibc is the C library.

    By default each thread has an arena of its own, and what one thread has freed serves no other:
    45 MiB of the main job. It holds for threads that start later.
    """
    _set_malloc_option(M_ARENA_MAX, MAX_ARENAS)


def reuse_large_blocks() -> None:
    """Make malloc keep freed blocks up to LARGE_BLOCK_BYTES for reuse, where glibc is the C library.

    Above 32 MiB it maps each block again, and every page of it is a fault: a third of the time of
    Whisper's encoder. `trim_memory` returns what is kept. More than 32 MiB in one piece is returned
    without it, as before.
    """
    _set_malloc_option(M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    # two of them next to each other, as MKL asks for them
    _set_malloc_option(M_TRIM_THRESHOLD, LARGE_BLOCK_BYTES // 2)


def trim_memory() -> None:
    """Return freed memory to the system, where the C library can. Elsewhere do nothing.

    glibc keeps what several threads freed, so that a long video would hold the recogniser's memory
    to its end.
    """
    import psutil

    trim = getattr(psutil, "heap_trim", None)  # musl has none
    if trim is not None:
        trim()


def main() -> None:
    """Run a module as `python -m` does: `PARENT MODULE ARGUMENTS`."""
    from stepline import processes as child_processes

    parent, module, *arguments = sys.argv[1:]
    end_with_parent(int(parent))
    child_processes.claim_process()  # of the module, which this one runs as __main__ is not
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
