"""Event simulation of `stepline curate` on a cluster: what breaks, what waits, how long it takes.

The earliest free worker takes the next video. Nodes and the driver die. A video's finished stages
stay finished, as results in OUT do: what a death takes is the task in flight alone. How long each
stage takes for each video is rows from what was measured.

V videos, S stages.
"""

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stepline.curate.forecast.extrapolation import fit_line
from stepline.evaluate.bootstrap import Floats

MIN_STAGE_SECONDS = 1e-9  # below it a stage was not reached
NEVER_SECONDS = math.inf


@dataclass(frozen=True)
class Workload:
    """times: (V, S) seconds on a usual core, 0 where a stage is not reached. bytes: (V,) to
    fetch."""

    times: npt.NDArray[np.float32]
    bytes: npt.NDArray[np.float32]

    @property
    def seconds(self) -> float:
        """Worker seconds in all."""
        return float(self.times.sum(dtype=np.float64))


def workload(
    measured: Mapping[str, Floats],
    sizes: Floats,
    lengths: Floats,
    *,
    far: bool = False,
    bytes_a_second: float = 0.0,
    poison: float = 0.0,
    limit: float = 1800.0,
    seed: int = 0,
) -> Workload:
    """Return V videos.

    lengths: (V,) their durations.
    measured: stage -> (n,) seconds of each measured video, 0 where it was not reached. sizes: (n,)
    their durations. A video is a measured one rows at random, its stages scaled along each stage's
    line through duration.
    far: the durations are far from the measured ones, where a line says nothing. Stages grow in
    proportion then.
    poison: fraction of videos that hang in their first stage until `limit` and end there.
    bytes_a_second: of the media.
    """
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(sizes), size=len(lengths))
    columns = [_scaled(spent, sizes, lengths, rows, far=far) for spent in measured.values()]
    times = np.stack(columns, axis=1).astype(np.float32)
    hangs = rng.random(len(lengths)) < poison
    times[hangs] = 0.0
    times[hangs, 0] = limit
    return Workload(times, (lengths * bytes_a_second).astype(np.float32))


def _scaled(
    spent: Floats, sizes: Floats, lengths: Floats, rows: npt.NDArray[np.int64], *, far: bool
) -> Floats:
    """Return (V,) seconds: each measured video's own, times how much the line through duration
    grows to the length wanted."""
    if far:
        rates = spent[rows] / np.maximum(1.0, sizes[rows])
        return np.asarray(rates * lengths)
    reached = spent > MIN_STAGE_SECONDS
    if not reached.any():
        return np.zeros(len(lengths))
    fixed, slope = fit_line(sizes[reached][None], spent[reached][None])
    usual = np.maximum(MIN_STAGE_SECONDS, fixed + slope * sizes)
    return np.asarray(spent[rows] / usual[rows] * (fixed + slope * lengths))


def durations(count: int, mean: float, spread: float, seed: int = 0) -> Floats:
    """Return lognormal durations of that mean. spread: standard deviation of the log."""
    rng = np.random.default_rng(seed)
    return rng.lognormal(np.log(mean) - spread**2 / 2, spread, size=count)


def stacked(rows: Sequence[Mapping[str, float]], stages: Sequence[str]) -> dict[str, Floats]:
    """Return stage -> (n,) from one mapping per video."""
    return {stage: np.array([row.get(stage, 0.0) for row in rows]) for stage in stages}


@dataclass(frozen=True)
class Cluster:
    """Machines and what befalls them. Times in seconds. `..._every`: mean time between,
    exponential.

    start: until a fresh worker has its models. batch: videos that a worker is handed together.
    speculate: give an idle worker a copy of the task that runs longest, once no video waits.
    storage: bytes/s that all read together. stream: bytes/s of one reader.
    loss: a node that dies or is pre-empted is away for `away` seconds.
    driver_every: the driver dies, all tasks in flight with it, and is back after `driver_away`.
    """

    nodes: int = 100
    cores: int = 16
    start: float = 20.0
    batch: int = 1
    speculate: bool = False
    slow_share: float = 0.0  # of the nodes
    slow_speed: float = 0.5  # of a slow node, 1 is usual
    loss_every: float = NEVER_SECONDS  # of one node
    away: float = 600.0
    driver_every: float = NEVER_SECONDS
    driver_away: float = 300.0
    storage: float = NEVER_SECONDS
    stream: float = NEVER_SECONDS

    @property
    def workers(self) -> int:
        """One per core."""
        return self.nodes * self.cores


@dataclass(frozen=True)
class SimulatedRun:
    """What a run came to. Worker seconds: useful + lost + copied + starting + waiting + away =
    workers x makespan.

    useful: spent on tasks that ended, failing ones included.
    lost: on tasks that a node or the driver took with it.
    copied: on the slower of two copies. starting: loading models.
    waiting: for storage or for want of videos.
    tail: from the moment when no video waits. last: from when 99 in 100 videos are done. slowest,
    usual: the 99th and 50th percentile of the seconds from a video's first start to its end.
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
        """Fraction of all worker seconds that were useful."""
        if not self.makespan:
            return 0.0
        return self.useful / (self.workers * self.makespan)


Event = tuple[float, int, int, int]  # second, kind, who, version
WORKER_DONE, NODE_LOST, NODE_BACK, DRIVER_LOST, DRIVER_BACK = range(5)
NO_VIDEO = -1


def simulate(work: Workload, cluster: Cluster, *, seed: int = 0) -> SimulatedRun:
    """Return what comes of a run. The same seed gives the same run."""
    return _Simulation(work, cluster, seed).run()


class _Simulation:
    """The state of a run. Lists by worker: its video, since when it works on it, which version of
    its plan is true."""

    def __init__(self, work: Workload, cluster: Cluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = np.random.default_rng(seed)
        # (V, S) seconds from a video's start
        self.ends = np.cumsum(work.times, axis=1, dtype=np.float64)
        self.total = self.ends[:, -1].tolist()
        self.bytes = work.bytes.tolist()
        self.done_until = [0.0] * len(self.total)  # seconds of each video that are in OUT
        self.first_begun = [-1.0] * len(self.total)  # when it was first begun
        self.latencies: list[float] = []  # seconds from there to its end
        self.ended_at: list[float] = []
        self.queue = deque(range(len(self.total)))
        self.video = [NO_VIDEO] * cluster.workers
        self.since = [0.0] * cluster.workers
        # When the next video's bytes were asked for
        self.asked_at = [0.0] * cluster.workers
        self.version = [0] * cluster.workers
        self.batches: list[list[int]] = [[] for _ in range(cluster.workers)]
        is_slow = self.rng.random(cluster.nodes) < cluster.slow_share
        node_speeds = np.where(is_slow, cluster.slow_speed, 1.0)
        self.speed = np.repeat(node_speeds, cluster.cores).tolist()
        self.events: list[Event] = []
        # seconds of its video that were in OUT when it began
        self.done_before = [0.0] * cluster.workers
        self.idle: set[int] = set()
        self.loading: set[int] = set()
        # video -> the workers that have it, where there are two
        self.copies: dict[int, list[int]] = {}
        self.down_since: dict[int, float] = {}  # node -> when it went away
        self.now = 0.0
        self.storage_free = 0.0
        self.empty_at = 0.0
        self.driver_up = True
        self.videos_left = len(self.total)
        # Worker seconds, as in SimulatedRun
        self.useful = 0.0
        self.lost = 0.0
        self.copied = 0.0
        self.starting = 0.0
        self.away = 0.0
        self.losses = 0
        self.restarts = 0

    def run(self) -> SimulatedRun:
        """Simulate until every video has ended."""
        for worker in range(self.cluster.workers):
            self._load_models(worker)
        for node in range(self.cluster.nodes):
            self._schedule_event(NODE_LOST, node, self.cluster.loss_every)
        self._schedule_event(DRIVER_LOST, 0, self.cluster.driver_every)
        handlers = {
            WORKER_DONE: self._worker_done,
            NODE_LOST: self._node_lost,
            NODE_BACK: self._node_back,
            DRIVER_LOST: self._driver_lost,
            DRIVER_BACK: self._driver_back,
        }
        while self.videos_left:
            self.now, kind, who, version = heapq.heappop(self.events)
            handlers[kind](who, version)
        return self._outcome()

    def _schedule_event(self, kind: int, who: int, mean: float) -> None:
        if mean != NEVER_SECONDS:
            delay = float(self.rng.exponential(mean))
            heapq.heappush(self.events, (self.now + delay, kind, who, 0))

    def _schedule_done(self, worker: int, second: float) -> None:
        event = (second, WORKER_DONE, worker, self.version[worker])
        heapq.heappush(self.events, event)

    def _load_models(self, worker: int) -> None:
        """Let a worker load its models. During this its video is NO_VIDEO."""
        self.video[worker] = NO_VIDEO
        self.since[worker] = self.now
        self.asked_at[worker] = self.now
        self.loading.add(worker)
        self._schedule_done(worker, self.now + self.cluster.start)

    def _worker_done(self, worker: int, version: int) -> None:
        if version != self.version[worker]:
            return
        video = self.video[worker]
        if video == NO_VIDEO:
            self.starting += self.now - self.since[worker]
            self.loading.discard(worker)
        else:
            self._finish(worker, video)
        self._next_video(worker)

    def _finish(self, worker: int, video: int) -> None:
        self.useful += self.now - self.since[worker]
        # The slower copy ends with the faster.
        for other in self.copies.pop(video, ()):
            if other != worker:
                self.copied += max(0.0, self.now - self.since[other])
                self.version[other] += 1
                self._next_video(other)
        self.videos_left -= 1
        self.latencies.append(self.now - self.first_begun[video])
        self.ended_at.append(self.now)

    def _next_video(self, worker: int) -> None:
        """Give a worker its next video, or let it wait."""
        batch = self.batches[worker]
        if not batch and self.driver_up:
            for _ in range(min(self.cluster.batch, len(self.queue))):
                batch.append(self.queue.popleft())
            if not self.queue and batch:
                self.empty_at = self.now
        if not batch:
            self.video[worker] = NO_VIDEO
            self.idle.add(worker)
            if self.cluster.speculate and self.driver_up:
                self._begin_copy(worker)
            return
        self._begin_video(worker, batch.pop(0))

    def _begin_video(self, worker: int, video: int) -> None:
        self.idle.discard(worker)
        ready = self._fetched_at(worker, video)
        if self.first_begun[video] < 0:
            self.first_begun[video] = self.now
        self.video[worker] = video
        self.since[worker] = max(self.now, ready)
        self.asked_at[worker] = self.now
        self.done_before[worker] = self.done_until[video]
        seconds = (self.total[video] - self.done_until[video]) / self.speed[worker]
        self._schedule_done(worker, self.since[worker] + seconds)

    def _fetched_at(self, worker: int, video: int) -> float:
        """Return when a video's bytes are here. They were asked for when the one before it was
        begun."""
        storage = self.cluster.storage
        stream = self.cluster.stream
        count = self.bytes[video]
        if storage == stream == NEVER_SECONDS or not count:
            return self.now
        start = self.asked_at[worker]
        self.storage_free = max(self.storage_free, start) + count / storage
        return float(max(self.storage_free, start + count / stream))

    def _begin_copy(self, worker: int) -> None:
        """Give an idle worker a copy of the video that has run longest elsewhere, if it can still
        overtake it."""
        node = worker // self.cluster.cores
        running = []
        for other, video in enumerate(self.video):
            has_one_copy = video != NO_VIDEO and video not in self.copies
            if has_one_copy and other // self.cluster.cores != node:
                running.append((self.since[other], other))
        if running:
            since, other = min(running)
            video = self.video[other]
            seconds = max(0.0, self.now - since) * self.speed[other]
            self._store_finished_stages(video, self.done_before[other] + seconds)
            self.copies[video] = [other, worker]
            self._begin_video(worker, video)

    def _store_finished_stages(self, video: int, reached: float) -> float:
        """Note which stages of a video are in OUT once it is `reached`. Return the seconds of the
        task in flight."""
        index = int(np.searchsorted(self.ends[video], reached, side="right"))
        stage_end = float(self.ends[video, index - 1]) if index else 0.0
        stored = max(stage_end, self.done_until[video])
        self.done_until[video] = stored
        return max(0.0, reached - stored)

    def _interrupt(self, worker: int) -> None:
        """Take what a worker does from it: stages in OUT are kept, its videos wait again."""
        video = self.video[worker]
        self.version[worker] += 1
        self.idle.discard(worker)
        if video != NO_VIDEO:
            spent = max(0.0, self.now - self.since[worker])
            copy = self.copies.pop(video, None)
            if copy is not None:
                self.copied += spent
            else:
                reached = self.done_before[worker] + spent * self.speed[worker]
                in_flight = self._store_finished_stages(video, reached)
                flight = min(spent, in_flight / self.speed[worker])
                self.lost += flight
                self.useful += spent - flight
                self.queue.appendleft(video)
        elif worker in self.loading:
            self.starting += self.now - self.since[worker]
        self.queue.extendleft(reversed(self.batches[worker]))
        self.batches[worker] = []
        self.video[worker] = NO_VIDEO
        self.loading.discard(worker)

    def _node_lost(self, node: int, _: int) -> None:
        self.losses += 1
        for worker in self._workers_of(node):
            self._interrupt(worker)
        self.down_since[node] = self.now
        heapq.heappush(self.events, (self.now + self.cluster.away, NODE_BACK, node, 0))
        self._wake()

    def _node_back(self, node: int, _: int) -> None:
        self.away += (self.now - self.down_since.pop(node)) * self.cluster.cores
        if self.driver_up:
            for worker in self._workers_of(node):
                self._load_models(worker)
        self._schedule_event(NODE_LOST, node, self.cluster.loss_every)

    def _driver_lost(self, _: int, __: int) -> None:
        self.restarts += 1
        self.driver_up = False
        for worker in range(self.cluster.workers):
            self._interrupt(worker)
        heapq.heappush(self.events, (self.now + self.cluster.driver_away, DRIVER_BACK, 0, 0))

    def _driver_back(self, _: int, __: int) -> None:
        self.driver_up = True
        for worker in range(self.cluster.workers):
            if worker // self.cluster.cores not in self.down_since:
                self._load_models(worker)
        self._schedule_event(DRIVER_LOST, 0, self.cluster.driver_every)

    def _wake(self) -> None:
        """Give videos that wait again to workers that had none."""
        for worker in sorted(self.idle):
            if self.queue and self.driver_up:
                self._next_video(worker)

    def _workers_of(self, node: int) -> range:
        return range(node * self.cluster.cores, (node + 1) * self.cluster.cores)

    def _outcome(self) -> SimulatedRun:
        away = self.away
        away += sum((self.now - since) * self.cluster.cores for since in self.down_since.values())
        self.starting += sum(self.now - self.since[worker] for worker in self.loading)
        spent = self.useful + self.lost + self.copied + self.starting + away
        latencies = np.array(self.latencies)
        # When 99 of 100 videos had ended
        nearly_end = 0.0
        usual, slowest = 0.0, 0.0
        if self.ended_at:
            index = int(np.ceil(0.99 * len(self.ended_at))) - 1
            nearly_end = self.ended_at[max(0, index)]
            usual, slowest = np.percentile(latencies, [50, 99])
        return SimulatedRun(
            makespan=self.now,
            useful=self.useful,
            lost=self.lost,
            copied=self.copied,
            starting=self.starting,
            waiting=self.cluster.workers * self.now - spent,
            away=away,
            tail=self.now - self.empty_at,
            last=self.now - nearly_end,
            usual=float(usual),
            slowest=float(slowest),
            losses=self.losses,
            restarts=self.restarts,
            workers=self.cluster.workers,
        )
