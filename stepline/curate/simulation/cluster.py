"""What a simulated cluster is, and what came of a run on it."""

import math
from dataclasses import dataclass

NEVER = math.inf


@dataclass(frozen=True)
class Cluster:
    """Machines and what befalls them. Times in seconds; `..._every`: mean time between, exponential.

    start: until a fresh worker has its models. batch: videos that a worker is handed at once. speculate: give an idle
    worker a copy of the unit that runs longest, once no video waits. storage: bytes/s that all read together; stream:
    bytes/s of one reader. loss: a node that dies or is pre-empted is away for `away` seconds. driver_every: the driver
    dies, all units in flight with it, and is back after `driver_away`.
    """

    nodes: int = 100
    cores: int = 16
    start: float = 20.0
    batch: int = 1
    speculate: bool = False
    slow_share: float = 0.0  # of the nodes
    slow_speed: float = 0.5  # of a slow node, 1 is usual
    loss_every: float = NEVER  # of one node
    away: float = 600.0
    driver_every: float = NEVER
    driver_away: float = 300.0
    storage: float = NEVER
    stream: float = NEVER

    @property
    def workers(self) -> int:
        """One a core."""
        return self.nodes * self.cores


@dataclass(frozen=True)
class Outcome:
    """What a run came to. Worker seconds: useful + lost + copied + starting + waiting + away = workers x makespan.

    useful: spent on units that ended, failing ones included; lost: on units that a node or the driver took with it;
    copied: on the slower of two copies; starting: loading models; waiting: for storage or for want of videos.
    tail: from the moment when no video waits. last: from when 99 in 100 videos are done. slowest, usual: the 99th and
    50th percentile of the seconds from a video's first start to its end.
    """

    makespan: float
    useful: float
    lost: float
    copied: float
    starting: float
    waiting: float
    away: float
    tail: float
    last: float
    usual: float
    slowest: float
    losses: int
    restarts: int
    workers: int

    @property
    def utilisation(self) -> float:
        """Share of all worker seconds that were useful."""
        return self.useful / (self.workers * self.makespan) if self.makespan else 0.0
