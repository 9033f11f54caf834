"""Follows work on a stream: reports how far it is, and ends it when it is no longer useful."""

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, get_ident
from typing import TypeAlias, TypeVar, cast

# the stage's name, the second reached, the duration
Progress: TypeAlias = Callable[[str, float, float], None]

T = TypeVar("T")

TRIM_SECONDS = 300.0  # seconds of video; rare enough to cost nothing


class StoppedError(Exception):
    """Ends the work of one thread where the other has failed. Never leaves `pipeline`."""


def with_progress(
    items: Iterable[object],
    kind: type[T],
    stage: str,
    duration: float,
    progress: Progress | None,
    stop: Event | None,
) -> Iterator[T]:
    """Yield the items of one kind, reporting how far into the video each one is. Raises
    StoppedError at `stop`.

    Every TRIM_EVERY seconds of the video, memory that was freed in between goes back to the system.
    """
    trimmed = 0.0
    for item in items:
        if stop is not None and stop.is_set():
            raise StoppedError(stage)
        if isinstance(item, kind):
            second = float(getattr(item, "time", getattr(item, "start", 0.0)))
            if second >= trimmed + TRIM_SECONDS:
                trim_memory()
                trimmed = second
            if progress is not None:
                progress(stage, second, duration)
            yield item


def read_ahead(items: Iterable[T], count: int) -> Generator[T]:
    """Yield the items. Another thread makes up to `count` of them ahead. What it raises is raised
    here."""
    iterator = iter(items)
    end = object()
    own_threads: list[int] = []

    def note_thread() -> None:
        own_threads.append(get_ident())

    pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead", initializer=note_thread)
    coming = deque(pool.submit(next, iterator, end) for _ in range(count))
    try:
        while (item := coming.popleft().result()) is not end:
            coming.append(pool.submit(next, iterator, end))
            yield cast(T, item)
    finally:
        # the garbage collector may end this in the thread that reads ahead, which cannot wait
        # for itself
        can_wait = get_ident() not in own_threads
        pool.shutdown(wait=can_wait, cancel_futures=True)


LARGE_BYTES = 1 << 27  # bytes; Whisper's largest arrays have 54 MB
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of glibc's malloc.h
MAX_ARENAS = 2  # of glibc, which else has eight per core


def _mallopt() -> Callable[[int, int], int] | None:
    """Return what sets glibc's memory allocation, or None where another C library is used."""
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none


def share_arenas() -> None:
    """Make glibc's threads share a few pools of memory, where it is the C library. Elsewhere do
    nothing.

    Each thread would have a pool of its own, and what one has freed serves no other: 45 MiB of the
    main job. It holds for the whole process, and for threads that start later.
    """
    mallopt = _mallopt()
    if mallopt is not None:
        mallopt(M_ARENA_MAX, MAX_ARENAS)


def reuse_large_blocks() -> None:
    """Let glibc keep blocks up to LARGE for their next use, where it is the C library. Elsewhere do
    nothing.

    Above 32 MiB it maps each block again, and every page of it is a fault: a third of the time of
    Whisper's encoder. What is kept goes back with `trim_memory`, and of more than 32 MiB in one
    piece by itself, as before.
    """
    mallopt = _mallopt()
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(
            M_TRIM_THRESHOLD, LARGE_BYTES // 2
        )  # two of them next to each other, as MKL asks for them


def trim_memory() -> None:
    """Return freed memory to the system, where the C library can. Elsewhere do nothing.

    glibc keeps what several threads freed, so that a long video would hold the recogniser's memory
    to its end.
    """
    import psutil

    trim = getattr(psutil, "heap_trim", None)  # musl has none
    if trim is not None:
        trim()
