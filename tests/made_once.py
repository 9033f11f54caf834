"""What several tests read and is costly to make: made once in a run, whichever worker needs it
first."""

import fcntl
import os

MARK = "is-whole"  # the file that says that a folder holds all of it


def made_once(tmp_path_factory, name, make):
    """Return the folder of this name that all workers of the run share, after `make(folder)` filled
    it. A worker that comes second waits for the first one."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # each worker has a folder of its own below it
    folder = root / f"made-once-{name}"
    folder.mkdir(exist_ok=True)
    with (root / f"made-once-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MARK).exists():
            make(folder)
            (folder / MARK).touch()
    return folder
