"""The videos of a simulated run: how long each stage takes for each, drawn from what was measured.

V videos, S stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.curate.forecast.lines import line
from stepline.evaluate.statistics import Floats

TYPICAL = 1e-9  # s; below it a stage was not reached


@dataclass(frozen=True)
class Workload:
    """times: (V, S) seconds on a usual core, 0 where a stage is not reached. bytes: (V,) to fetch."""

    times: npt.NDArray[np.float32]
    bytes: npt.NDArray[np.float32]

    @property
    def seconds(self) -> float:
        """Worker seconds in all."""
        return float(self.times.sum(dtype=np.float64))


def workload(
    measured: Mapping[str, Floats],
    sizes: Floats,
    wanted: Floats,
    *,
    far: bool = False,
    bytes_a_second: float = 0.0,
    poison: float = 0.0,
    limit: float = 1800.0,
    seed: int = 0,
) -> Workload:
    """Return V videos of the `wanted` durations (V,).

    measured: stage -> (n,) seconds of each measured video, 0 where it was not reached; sizes: (n,) their durations. A
    video is a measured one drawn at random, its stages scaled along each stage's line through duration. far: the wanted
    durations lie far from the measured ones, where a line tells nothing; stages grow in proportion then. poison: share
    of videos that hang in their first stage until `limit` and end there. bytes_a_second: of the media.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.integers(len(sizes), size=len(wanted))
    columns = [_scaled(spent, sizes, wanted, drawn, far=far) for spent in measured.values()]
    times = np.stack(columns, axis=1).astype(np.float32)
    hung = generator.random(len(wanted)) < poison
    times[hung] = 0.0
    times[hung, 0] = limit
    return Workload(times, (wanted * bytes_a_second).astype(np.float32))


def _scaled(spent: Floats, sizes: Floats, wanted: Floats, drawn: npt.NDArray[np.int64], *, far: bool) -> Floats:
    """Return (V,) seconds: each measured video's own, times how much the line through duration grows to the wanted."""
    if far:
        return np.asarray(spent[drawn] / np.maximum(1.0, sizes[drawn]) * wanted)
    reached = spent > TYPICAL
    if not reached.any():
        return np.zeros(len(wanted))
    fixed, slope = line(sizes[reached][None], spent[reached][None])
    here = np.maximum(TYPICAL, fixed + slope * sizes)
    return np.asarray(spent[drawn] / here[drawn] * (fixed + slope * wanted))


def durations(count: int, mean: float, spread: float, seed: int = 0) -> Floats:
    """Return lognormal durations of that mean; spread: standard deviation of the log."""
    generator = np.random.default_rng(seed)
    return generator.lognormal(np.log(mean) - spread**2 / 2, spread, size=count)


def stacked(rows: Sequence[Mapping[str, float]], stages: Sequence[str]) -> dict[str, Floats]:
    """Return stage -> (n,) from one mapping a video."""
    return {stage: np.array([row.get(stage, 0.0) for row in rows]) for stage in stages}
