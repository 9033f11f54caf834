"""Follows work on a stream: tells how far it is, and ends it when it is of no use any more."""

from collections.abc import Callable, Iterable, Iterator
from threading import Event
from typing import TypeAlias, TypeVar

Progress: TypeAlias = Callable[[str, float, float], None]   # the stage's name, the second reached, the duration

T = TypeVar("T")


class StoppedError(Exception):
    """Ends the work of one thread where the other has failed; never leaves `pipeline`."""


def watched(
    items: Iterable[object],
    kind: type[T],
    stage: str,
    duration: float,
    progress: Progress | None,
    stop: Event | None,
) -> Iterator[T]:
    """Yield the items of one kind, reporting how far into the video each one is. Raises StoppedError at `stop`."""
    for item in items:
        if stop is not None and stop.is_set():
            raise StoppedError(stage)
        if isinstance(item, kind):
            if progress is not None:
                progress(stage, float(getattr(item, "time", getattr(item, "start", 0.0))), duration)
            yield item
