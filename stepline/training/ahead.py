"""Reading ahead: threads make the next batches while the network learns from this one."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Generic, TypeVar

J = TypeVar("J")
R = TypeVar("R")

EACH = 2  # batches that a thread may be ahead


class Ahead(Generic[R]):
    """The results of `work` on each of `jobs`, in their order; waited: seconds that the caller waited for them.

    workers: threads; with 0 there are none, and each result is made when it is asked for. An error that `work` raises
    is raised where its result would have come.
    """

    def __init__(self, jobs: Iterable[J], work: Callable[[J], R], workers: int) -> None:
        self._results = self._make(iter(jobs), work, workers)
        self.waited = 0.0

    def __iter__(self) -> Iterator[R]:
        return self._results

    def close(self) -> None:
        """Stop the threads."""
        self._results.close()

    def _make(self, jobs: Iterator[J], work: Callable[[J], R], workers: int) -> Generator[R, None, None]:
        if not workers:
            for job in jobs:
                began = time.perf_counter()
                made = work(job)
                self.waited += time.perf_counter() - began
                yield made
            return
        with ThreadPoolExecutor(workers, thread_name_prefix="ahead") as pool:
            waiting: deque[Future[R]] = deque(pool.submit(work, job) for job in islice(jobs, EACH * workers))
            try:
                while waiting:
                    began = time.perf_counter()
                    made = waiting.popleft().result()
                    self.waited += time.perf_counter() - began
                    waiting.extend(pool.submit(work, job) for job in islice(jobs, 1))
                    yield made
            finally:
                for future in waiting:
                    future.cancel()
