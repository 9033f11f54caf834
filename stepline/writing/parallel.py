"""Runs work in a few threads until a deadline, and leaves behind what does not come back in time."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

GRACE = 1.0  # s beyond the deadline for work that watches it itself to come back


def run_all(work: Callable[[Item], Result], items: Sequence[Item], *, workers: int, until: float) -> dict[int, Result]:
    """Return the results by place; what is not there soon after the monotonic second `until` is missing.

    The first exception that `work` raises is raised here, and no further work begins. The threads are daemons: one
    that hangs in a library keeps neither the caller waiting nor the process alive.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result | None, Exception | None]] = queue.SimpleQueue()
    stopped = threading.Event()
    for place in range(len(items)):
        todo.put(place)

    def worker() -> None:
        while not stopped.is_set():
            try:
                place = todo.get_nowait()
            except queue.Empty:
                return
            try:
                done.put((place, work(items[place]), None))
            except Exception as error:  # noqa: BLE001 - it is raised in the caller's thread
                stopped.set()
                done.put((place, None, error))

    for _ in range(min(workers, len(items))):
        threading.Thread(target=worker, daemon=True, name="stepline-writer").start()
    try:
        return _collected(done, len(items), until + GRACE)
    finally:
        stopped.set()


def _collected(
    done: "queue.SimpleQueue[tuple[int, Result | None, Exception | None]]", count: int, until: float
) -> dict[int, Result]:
    results: dict[int, Result] = {}
    while len(results) < count:
        try:
            place, result, error = done.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        if error is not None:
            raise error
        results[place] = result  # type: ignore[assignment]
    return results
