"""Timing of several ways to do one thing, in turn, in one process."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial

import torch

MATRIX_SIZE = 2048  # of the product that measures the peak rate


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and CPU seconds of some work."""
    wall_start = time.perf_counter()
    cpu_start = time.process_time()
    work()
    return time.perf_counter() - wall_start, time.process_time() - cpu_start


def alternate(
    sides: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, dict[str, float]]:
    """Return what each side takes, all in turn in each round. Each has to be warm."""
    wall_seconds: dict[str, list[float]] = {name: [] for name in sides}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, work in sides.items():
            wall, cpu = timed(work)
            wall_seconds[name].append(wall)
            cpu_seconds[name].append(cpu)
    times = {}
    for name in sides:
        times[name] = {
            "wall_min_s": min(wall_seconds[name]),
            "wall_median_s": statistics.median(wall_seconds[name]),
            "cpu_min_s": min(cpu_seconds[name]),
            "cpu_median_s": statistics.median(cpu_seconds[name]),
        }
    return times


def cpu_cells(row: Mapping[str, float], ours: Mapping[str, float], decimals: int) -> str:
    """Return the least and the median CPU seconds of a side, and both as ratios to ours."""
    seconds = []
    ratios = []
    for key in ("cpu_min_s", "cpu_median_s"):
        seconds.append(f"{row[key]:8.{decimals}f}")
        ratios.append(f"{row[key] / ours[key]:7.2f}x")
    return " ".join(seconds) + " ".join(ratios)


def peak_rate() -> float:
    """Return the best GFLOP/s of a 2048 x 2048 float32 product: in CPU seconds at one thread, else
    by the clock."""
    a = torch.randn(MATRIX_SIZE, MATRIX_SIZE)
    b = torch.randn(MATRIX_SIZE, MATRIX_SIZE)
    clock = int(torch.get_num_threads() == 1)
    product = partial(torch.mm, a, b)
    seconds = min(timed(product)[clock] for _ in range(6))
    return 2 * MATRIX_SIZE**3 / seconds / 1e9
