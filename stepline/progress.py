"""Follows work on a stream: reports how far it is, and ends it when it is of no use any more."""

from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import TypeAlias, TypeVar

Progress: TypeAlias = Callable[[str, float, float], None]  # the stage's name, the second reached, the duration

T = TypeVar("T")

TRIM_EVERY = 300.0  # seconds of video; rare enough to cost nothing


class StoppedError(Exception):
    """Ends the work of one thread where the other has failed; never leaves `pipeline`."""


def with_progress(
    items: Iterable[object], kind: type[T], stage: str, duration: float, progress: Progress | None, stop: Event | None
) -> Iterator[T]:
    """Yield the items of one kind, reporting how far into the video each one is. Raises StoppedError at `stop`.

    Every TRIM_EVERY seconds of the video, memory that was freed meanwhile goes back to the system.
    """
    trimmed = 0.0
    for item in items:
        if stop is not None and stop.is_set():
            raise StoppedError(stage)
        if isinstance(item, kind):
            second = float(getattr(item, "time", getattr(item, "start", 0.0)))
            if second >= trimmed + TRIM_EVERY:
                trim_memory()
                trimmed = second
            if progress is not None:
                progress(stage, second, duration)
            yield item


def trim_memory() -> None:
    """Return freed memory to the system, where the C library can; elsewhere do nothing.

    glibc keeps what several threads freed, so that a long video would hold the recogniser's memory to its end.
    """
    import psutil

    trim = getattr(psutil, "heap_trim", None)  # musl has none
    if trim is not None:
        trim()
