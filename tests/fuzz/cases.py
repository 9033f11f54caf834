"""A run in odd surroundings, and disks that are against it."""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Case:
    """One run. before: what is odd, done in the fork; signal and after: sent so many seconds after
    its begin."""

    kind: str
    name: str
    arguments: list[str]
    before: Callable[[], object] = lambda: None
    signal: int = 0
    after: float = 0.0
    encoding: str = "utf-8"
    found: list[str] = field(default_factory=list)


# MS_RDONLY, MS_NOEXEC, MS_REC, MS_PRIVATE
READ_ONLY, NO_EXECUTION, EVERYTHING, PRIVATE = 1, 8, 16384, 1 << 18
OWN_MOUNTS, OWN_USERS = 0x20000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER


# kind -> flags and options of its mount
DISKS = {
    "read-only": (READ_ONLY, ""),
    "full": (0, "size=4k"),
    "nearly full": (0, "size=20k"),
    "few inodes": (0, "nr_inodes=3"),
    "no execution": (NO_EXECUTION, ""),
    "nobody's": (0, "mode=000"),
}


def mount(place, flags, options):
    """Put an empty disk in memory over a folder, for this process alone. Raises PermissionError
    where none may."""
    libc = ctypes.CDLL(None, use_errno=True)
    apart = OWN_MOUNTS | (OWN_USERS if os.geteuid() else 0)
    private = (b"none", b"/", None, EVERYTHING | PRIVATE, None)
    if libc.unshare(apart) or libc.mount(*private):
        raise PermissionError("no mounts of its own")
    if libc.mount(b"tmpfs", os.fsencode(place), b"tmpfs", flags, options.encode()):
        raise OSError(ctypes.get_errno(), options)
