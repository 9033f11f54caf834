"""Timing of several ways to do one thing, in turn, in one process."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and CPU seconds of some work."""
    wall, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - used


def alternate(
    sides: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, dict[str, float]]:
    """Return what each side takes, all in turn in each round. Each has to be warm."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            taken[name].append(timed(work))
    return {
        name: {
            "wall_min_s": min(wall for wall, _ in pairs),
            "wall_median_s": statistics.median(wall for wall, _ in pairs),
            "cpu_min_s": min(used for _, used in pairs),
            "cpu_median_s": statistics.median(used for _, used in pairs),
        }
        for name, pairs in taken.items()
    }


def peak_rate() -> float:
    """Return the best GFLOP/s of a 2048 x 2048 float32 product: in CPU seconds at one thread, else
    by the clock."""
    a, b = torch.randn(2048, 2048), torch.randn(2048, 2048)
    kind = int(torch.get_num_threads() == 1)
    return 2 * 2048**3 / min(timed(partial(torch.mm, a, b))[kind] for _ in range(6)) / 1e9
