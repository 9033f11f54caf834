"""Progress reports, cancellation and prefetching for iterators over a video."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event, get_ident
from typing import TypeVar, cast

from stepline.processes import trim_memory

# the stage's name, the second reached, the duration
Progress = Callable[[str, float, float], None]

T = TypeVar("T")

# seconds of video between two calls of trim_memory; rare enough to cost nothing
TRIM_SECONDS = 300.0


class StoppedError(Exception):
    """Raised in a thread to end it after another thread failed. `pipeline` catches it."""


def with_progress(
    items: Iterable[object],
    kind: type[T],
    stage: str,
    duration: float,
    progress: Progress | None,
    stop: Event | None,
) -> Iterator[T]:
    """Yield the items of one class, and report progress for each of them.

    After each TRIM_SECONDS of the video, freed memory is returned to the system.

    Args:
        items: objects. Those of `kind` have an attribute `time` or `start`, in seconds of the
            video.
        kind: class of the items that are yielded. Other items are dropped.
        stage: name of the stage in progress reports.
        duration: duration of the video in seconds.
        progress: receives the reports. None means no reports.
        stop: StoppedError is raised once this event is set. None means never.
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
    """Yield the items of an iterable that a background thread reads in advance.

    Errors of the iterable are raised here.

    Args:
        items: the iterable.
        count: maximal number of items read in advance.
    """
    iterator = iter(items)
    end = object()
    pool = ThreadPoolExecutor(1, thread_name_prefix="read-ahead")
    pool_thread = pool.submit(get_ident).result()
    prefetched = deque(pool.submit(next, iterator, end) for _ in range(count))
    try:
        while (item := prefetched.popleft().result()) is not end:
            prefetched.append(pool.submit(next, iterator, end))
            yield cast(T, item)
    finally:
        # The garbage collector may end this in the background thread, which cannot wait for itself.
        pool.shutdown(wait=get_ident() != pool_thread, cancel_futures=True)
