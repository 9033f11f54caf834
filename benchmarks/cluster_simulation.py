"""Plays a run through event by event: the earliest free worker takes the next video; nodes and the driver die.

A video's finished stages stay finished, as cells do: what a death takes is the unit in flight alone.

The videos of a simulated run: how long each stage takes for each, drawn from what was measured.

V videos, S stages.

What a simulated cluster is, and what came of a run on it.

A run on a cluster that nobody has at hand, played through: what breaks, what waits, how long it takes.
"""

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.curate.forecast.model import fit_line
from stepline.evaluate.bootstrap import Floats

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
    fixed, slope = fit_line(sizes[reached][None], spent[reached][None])
    here = np.maximum(TYPICAL, fixed + slope * sizes)
    return np.asarray(spent[drawn] / here[drawn] * (fixed + slope * wanted))


def durations(count: int, mean: float, spread: float, seed: int = 0) -> Floats:
    """Return lognormal durations of that mean; spread: standard deviation of the log."""
    generator = np.random.default_rng(seed)
    return generator.lognormal(np.log(mean) - spread**2 / 2, spread, size=count)


def stacked(rows: Sequence[Mapping[str, float]], stages: Sequence[str]) -> dict[str, Floats]:
    """Return stage -> (n,) from one mapping a video."""
    return {stage: np.array([row.get(stage, 0.0) for row in rows]) for stage in stages}


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


Event = tuple[float, int, int, int]  # second, kind, who, version
DONE, LOST, BACK, DRIVER, UP = range(5)
NOBODY = -1


def simulate(work: Workload, cluster: Cluster, *, seed: int = 0) -> Outcome:
    """Return what comes of a run; the same seed gives the same run."""
    return _Play(work, cluster, seed).run()


class _Play:
    """The state of a run. Lists by worker: its video, since when it works on it, which version of its plan is true."""

    def __init__(self, work: Workload, cluster: Cluster, seed: int) -> None:
        self.cluster, self.generator = cluster, np.random.default_rng(seed)
        self.ends = np.cumsum(work.times, axis=1, dtype=np.float64)  # (V, S) seconds from a video's start
        self.total = self.ends[:, -1].tolist()
        self.bytes = work.bytes.tolist()
        self.done_until = [0.0] * len(self.total)  # seconds of each video that are in cells
        self.born = [-1.0] * len(self.total)  # when it was first begun
        self.life: list[float] = []  # seconds from there to its end
        self.ended_at: list[float] = []
        self.queue = deque(range(len(self.total)))
        self.video = [NOBODY] * cluster.workers
        self.since = [0.0] * cluster.workers
        self.asked = [0.0] * cluster.workers  # when the next video's bytes were asked for
        self.version = [0] * cluster.workers
        self.hand: list[list[int]] = [[] for _ in range(cluster.workers)]
        slow = self.generator.random(cluster.nodes) < cluster.slow_share
        self.speed = np.repeat(np.where(slow, cluster.slow_speed, 1.0), cluster.cores).tolist()
        self.events: list[Event] = []
        self.base = [0.0] * cluster.workers  # seconds of its video that were in cells when it began
        self.idle: set[int] = set()
        self.loading: set[int] = set()
        self.copies: dict[int, list[int]] = {}  # video -> the workers that have it, where there are two
        self.down_since: dict[int, float] = {}  # node -> when it went away
        self.now, self.storage_free, self.empty_at = 0.0, 0.0, 0.0
        self.driver_up, self.left = True, len(self.total)
        self.useful = self.lost = self.copied = self.starting = self.away = 0.0
        self.losses = self.restarts = 0

    def run(self) -> Outcome:
        """Play until every video has ended."""
        for worker in range(self.cluster.workers):
            self._start(worker)
        for node in range(self.cluster.nodes):
            self._plan(LOST, node, self.cluster.loss_every)
        self._plan(DRIVER, 0, self.cluster.driver_every)
        act = {DONE: self._done, LOST: self._node_lost, BACK: self._node_back, DRIVER: self._driver_lost, UP: self._up}
        while self.left:
            self.now, kind, who, version = heapq.heappop(self.events)
            act[kind](who, version)
        return self._outcome()

    def _plan(self, kind: int, who: int, mean: float) -> None:
        if mean != NEVER:
            heapq.heappush(self.events, (self.now + float(self.generator.exponential(mean)), kind, who, 0))

    def _start(self, worker: int) -> None:
        """Have a worker load its models; what it does meanwhile is the void, video NOBODY."""
        self.video[worker], self.since[worker], self.asked[worker] = NOBODY, self.now, self.now
        self.loading.add(worker)
        heapq.heappush(self.events, (self.now + self.cluster.start, DONE, worker, self.version[worker]))

    def _done(self, worker: int, version: int) -> None:
        if version != self.version[worker]:
            return
        video = self.video[worker]
        if video == NOBODY:
            self.starting += self.now - self.since[worker]
            self.loading.discard(worker)
        else:
            self._finish(worker, video)
        self._next(worker)

    def _finish(self, worker: int, video: int) -> None:
        self.useful += self.now - self.since[worker]
        for other in self.copies.pop(video, ()):
            if other != worker:  # the slower copy ends with the faster
                self.copied += max(0.0, self.now - self.since[other])
                self.version[other] += 1
                self._next(other)
        self.left -= 1
        self.life.append(self.now - self.born[video])
        self.ended_at.append(self.now)

    def _next(self, worker: int) -> None:
        """Give a worker its next video, or let it wait."""
        hand = self.hand[worker]
        if not hand and self.driver_up:
            hand.extend(self.queue.popleft() for _ in range(min(self.cluster.batch, len(self.queue))))
            if not self.queue and hand:
                self.empty_at = self.now
        if not hand:
            self.video[worker] = NOBODY
            self.idle.add(worker)
            if self.cluster.speculate and self.driver_up:
                self._copy(worker)
            return
        self._begin(worker, hand.pop(0))

    def _begin(self, worker: int, video: int) -> None:
        self.idle.discard(worker)
        ready = self._fetched(worker, video)
        if self.born[video] < 0:
            self.born[video] = self.now
        self.video[worker], self.since[worker] = video, max(self.now, ready)
        self.asked[worker], self.base[worker] = self.now, self.done_until[video]
        took = (self.total[video] - self.done_until[video]) / self.speed[worker]
        heapq.heappush(self.events, (self.since[worker] + took, DONE, worker, self.version[worker]))

    def _fetched(self, worker: int, video: int) -> float:
        """Return when a video's bytes are here; they were asked for when the one before it was begun."""
        cluster, count = self.cluster, self.bytes[video]
        if cluster.storage == cluster.stream == NEVER or not count:
            return self.now
        asked = self.asked[worker]
        self.storage_free = max(self.storage_free, asked) + count / cluster.storage
        return float(max(self.storage_free, asked + count / cluster.stream))

    def _copy(self, worker: int) -> None:
        """Give an idle worker a copy of the video that has run longest elsewhere, if it can still overtake it."""
        node = worker // self.cluster.cores
        running = [
            (self.since[other], other)
            for other, video in enumerate(self.video)
            if video != NOBODY and video not in self.copies and other // self.cluster.cores != node
        ]
        if running:
            since, other = min(running)
            video = self.video[other]
            self._keep(video, self.base[other] + max(0.0, self.now - since) * self.speed[other])
            self.copies[video] = [other, worker]
            self._begin(worker, video)

    def _keep(self, video: int, reached: float) -> float:
        """Note which stages of a video are in cells once it is `reached`; return the seconds of the unit in flight."""
        place = int(np.searchsorted(self.ends[video], reached, side="right"))
        kept = max(float(self.ends[video, place - 1]) if place else 0.0, self.done_until[video])
        self.done_until[video] = kept
        return max(0.0, reached - kept)

    def _drop(self, worker: int) -> None:
        """Take what a worker does from it: stages in cells are kept, its videos wait again."""
        video = self.video[worker]
        self.version[worker] += 1
        self.idle.discard(worker)
        if video != NOBODY:
            spent = max(0.0, self.now - self.since[worker])
            twin = self.copies.pop(video, None)
            if twin is not None:
                self.copied += spent
            else:
                reached = self.base[worker] + spent * self.speed[worker]
                flight = min(spent, self._keep(video, reached) / self.speed[worker])
                self.lost += flight
                self.useful += spent - flight
                self.queue.appendleft(video)
        elif worker in self.loading:
            self.starting += self.now - self.since[worker]
        self.queue.extendleft(reversed(self.hand[worker]))
        self.hand[worker] = []
        self.video[worker] = NOBODY
        self.loading.discard(worker)

    def _node_lost(self, node: int, _: int) -> None:
        self.losses += 1
        for worker in self._of(node):
            self._drop(worker)
        self.down_since[node] = self.now
        heapq.heappush(self.events, (self.now + self.cluster.away, BACK, node, 0))
        self._wake()

    def _node_back(self, node: int, _: int) -> None:
        self.away += (self.now - self.down_since.pop(node)) * self.cluster.cores
        if self.driver_up:
            for worker in self._of(node):
                self._start(worker)
        self._plan(LOST, node, self.cluster.loss_every)

    def _driver_lost(self, _: int, __: int) -> None:
        self.restarts += 1
        self.driver_up = False
        for worker in range(self.cluster.workers):
            self._drop(worker)
        heapq.heappush(self.events, (self.now + self.cluster.driver_away, UP, 0, 0))

    def _up(self, _: int, __: int) -> None:
        self.driver_up = True
        for worker in range(self.cluster.workers):
            if worker // self.cluster.cores not in self.down_since:
                self._start(worker)
        self._plan(DRIVER, 0, self.cluster.driver_every)

    def _wake(self) -> None:
        """Give videos that wait again to workers that had none."""
        for worker in sorted(self.idle):
            if self.queue and self.driver_up:
                self._next(worker)

    def _of(self, node: int) -> range:
        return range(node * self.cluster.cores, (node + 1) * self.cluster.cores)

    def _outcome(self) -> Outcome:
        away = self.away + sum((self.now - since) * self.cluster.cores for since in self.down_since.values())
        self.starting += sum(self.now - self.since[worker] for worker in self.loading)
        spent = self.useful + self.lost + self.copied + self.starting + away
        life = np.array(self.life)
        nearly = self.ended_at[max(0, int(np.ceil(0.99 * len(self.ended_at))) - 1)] if self.ended_at else 0.0
        usual, slowest = np.percentile(life, [50, 99]) if len(life) else (0.0, 0.0)
        return Outcome(
            self.now, self.useful, self.lost, self.copied, self.starting,
            self.cluster.workers * self.now - spent, away, self.now - self.empty_at, self.now - nearly,
            float(usual), float(slowest), self.losses, self.restarts, self.cluster.workers,
        )  # fmt: skip


__all__ = ["Cluster", "Outcome", "Workload", "simulate", "workload"]
