"""Python child processes that run a module, and memory settings of this process.

    process = start_module("pip", ["download", "numpy"], stdout=subprocess.DEVNULL)

A child has this process's module path without the current folder, few interpreter variables, no
other file descriptors, and ends with this process, even after a kill.
"""

import contextlib
import ctypes
import gc
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

Stream = int | IO[Any] | None  # as of `subprocess`

COLLECTED_OBJECTS = 20_000  # new objects from which Python looks for garbage; its default is 700
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of Linux's prctl
PARENT_POLL_SECONDS = 1.0  # between two checks that the parent lives
# Variables of the interpreter that a child inherits. Others, such as PYTHONSTARTUP and
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
# thread counts of numerical libraries
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
# held while a network is loaded, which takes several times its memory for a moment
loading_lock = threading.Lock()
# Linux kills a child when the THREAD that started it ends: this one ends with the process only.
_starter = ThreadPoolExecutor(1, thread_name_prefix="stepline-start")
PACKAGE_ROOT = Path(__file__).resolve().parents[1]  # the folder that holds `stepline`
_is_own = False


def start_module(
    module: str,
    arguments: Sequence[str] = (),
    *,
    stdout: Stream,
    stderr: Stream = None,
    variables: Mapping[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> "subprocess.Popen[bytes]":
    """Return a new process that runs `python -m module arguments` in a new process group.

    Args:
        module: name of the module.
        arguments: command line arguments of the module.
        stdout: as in `subprocess.Popen`.
        stderr: as in `subprocess.Popen`.
        variables: environment variables, in addition to those of `child_environment`.
        pass_fds: file descriptors that the child inherits in addition to stdin, stdout and stderr.

    Raises OSError if the system cannot start a process.
    """
    # -P keeps the current folder out of the child's path.
    launcher = [sys.executable, "-P", "-m", __name__, str(os.getpid())]
    # From the thread that ends with the process, not with a caller's thread.
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
    """Kill a process of `start_module` with all its descendants, and wait for its end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def child_environment() -> dict[str, str]:
    """Return the environment variables of a child process, with `import_folders` as PYTHONPATH."""
    environment = {}
    for name, value in os.environ.items():
        if not name.startswith("PYTHON") or name in INTERPRETER_VARIABLES:
            environment[name] = value
    environment["PYTHONPATH"] = os.pathsep.join(import_folders())
    # Processes that the child starts leave the current folder out too.
    environment["PYTHONSAFEPATH"] = "1"
    # A relative folder of PATH depends on the current folder.
    folders = [folder for folder in os.get_exec_path() if os.path.isabs(folder)]
    environment["PATH"] = os.pathsep.join(folders)
    return environment


@contextlib.contextmanager
def set_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process during a `with` block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def thread_limit_variables(threads: int) -> dict[str, str]:
    """Return environment variables that limit the numeric libraries of a process.

    threads: maximal number of threads of each library.
    """
    counts = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return counts | {"OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false"}


def import_folders() -> list[str]:
    """Return the folders of `sys.path` without the current folder.

    `python -m` and an empty part of PYTHONPATH add the current folder. It is kept if PYTHONPATH
    names its full path, or if it contains Stepline itself.
    """
    named = {str(PACKAGE_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)}
    current = None
    with contextlib.suppress(FileNotFoundError):  # it was removed
        current = os.path.realpath(os.getcwd())
    folders = [
        folder
        for folder in filter(os.path.isabs, sys.path)
        if folder in named or os.path.realpath(folder) != current
    ]
    if str(PACKAGE_ROOT) not in map(os.path.realpath, folders):
        folders.append(str(PACKAGE_ROOT))
    return folders


def end_with_parent(parent: int) -> None:
    """Make the system kill this process when its parent process ends, even if the parent is killed.

    parent: process id of the parent.
    """
    # The thread below is up to a second late, and waits while foreign code holds the interpreter
    # lock. Linux kills at once.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_POLL_SECONDS)
        os._exit(1)

    threading.Thread(target=watch_parent, daemon=True, name="parent").start()


def mark_own_process() -> None:
    """Mark this process as a program of Stepline, so that `is_own_process` returns True."""
    global _is_own
    _is_own = True
    # Imports and loads of networks make many objects that stay, so looking for garbage costs more there.
    gc.set_threshold(COLLECTED_OBJECTS)


def is_own_process() -> bool:
    """Return whether this process is a program of Stepline, not a program of the user.

    Programs of Stepline are its command line and the processes of `start_module`.
    """
    return _is_own


def _call_glibc(name: str, *arguments: int) -> None:
    """Call a function of glibc. Do nothing where another C library is used."""
    if sys.platform == "linux":
        function = getattr(ctypes.CDLL(None), name, None)  # musl has none
        if function is not None:
            function(*arguments)


def limit_malloc_arenas() -> None:
    """Make threads that start later share a few malloc arenas (glibc only).

    By default each thread has an arena, and no other thread can use the memory freed there.
    """
    _call_glibc("mallopt", M_ARENA_MAX, MAX_ARENAS)


def reuse_large_blocks() -> None:
    """Make malloc keep freed blocks of up to LARGE_BLOCK_BYTES for reuse (glibc only).

    By default malloc maps each block above 32 MiB anew, with a page fault per page. The faults take
    a third of the time of Whisper's encoder. `trim_memory` returns the kept blocks to the system.
    """
    _call_glibc("mallopt", M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
    # MKL needs two adjacent blocks of this size.
    _call_glibc("mallopt", M_TRIM_THRESHOLD, LARGE_BLOCK_BYTES // 2)


def trim_memory() -> None:
    """Return freed memory of this process to the operating system (glibc only).

    Otherwise glibc keeps it, and the memory of the recogniser stays in use until the video ends.
    """
    _call_glibc("malloc_trim", 0)


def main() -> None:
    """Run a module as `python -m` does, as a child that ends with its parent.

    Command line: `PARENT MODULE ARGUMENTS`, where PARENT is the parent's process id.
    """
    from stepline import processes as child_processes

    parent, module, *arguments = sys.argv[1:]
    end_with_parent(int(parent))
    # Of the imported module, which is another object than __main__.
    child_processes.mark_own_process()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
