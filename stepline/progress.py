"""Follows work on a stream: reports how far it is, and ends it when it is no longer useful."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, get_ident
from typing import TypeAlias, TypeVar, cast

from stepline.processes import trim_memory

# the stage's name, the second reached, the duration
Progress: TypeAlias = Callable[[str, float, float], None]

T = TypeVar("T")

# seconds of video between two calls of trim_memory; rare enough to cost nothing
TRIM_SECONDS = 300.0


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

    Every TRIM_SECONDS of the video, memory that was freed in between goes back to the system.
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
    pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
    pool_thread = pool.submit(get_ident).result()
    coming = deque(pool.submit(next, iterator, end) for _ in range(count))
    try:
        while (item := coming.popleft().result()) is not end:
            coming.append(pool.submit(next, iterator, end))
            yield cast(T, item)
    finally:
        # the garbage collector may end this in the thread that reads ahead, which cannot wait
        # for itself
        pool.shutdown(wait=get_ident() != pool_thread, cancel_futures=True)
