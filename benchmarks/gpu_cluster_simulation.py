"""Event simulation of `stepline curate` on nodes with GPUs that die, or are bought on a spot
market.

A video goes through hops, runs of stages that do or do not use a GPU, as Ray's groups of actors do.
A worker of a GPU decodes on a core of its own, then waits for the GPU, which it shares with its
neighbours. Workers without one do the other hops. Results are in OUT after each hop, so a lost node
takes what its workers have in hand alone. A group hands on only as much as the next one has room
for. On a spot market each zone has a price of its own, a mean-reverting walk. The nodes of a zone
go with two minutes' notice while it is above the bid.

V videos, H hops.
"""

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from stepline.evaluate.bootstrap import Floats

SECONDS_PER_HOUR = 3600.0
NO_LOSSES = math.inf  # seconds between the losses of a node


@dataclass(frozen=True)
class Hop:
    """cpu: (V,) seconds on a core. gpu: (V,) seconds on a whole GPU behind them, or None where none
    is used."""

    name: str
    cpu: Floats
    gpu: Floats | None = None


@dataclass(frozen=True)
class Market:
    """usual: price in shares of the fixed one. spread: standard deviation of its log. back: hours
    to forget a swing.

    bid: share of the fixed price above which a zone's nodes go. notice: seconds in which a worker
    takes nothing new.
    """

    zones: int = 4
    usual: float = 0.35
    spread: float = 0.35
    back: float = 3.0
    bid: float = 0.6
    notice: float = 120.0
    step: float = 300.0


@dataclass(frozen=True)
class GpuCluster:
    """nodes of `cores` and `gpus`, `sharing` workers per GPU. One core per worker. Times in
    seconds.

    start: until a worker has its models. loss_every: mean time between a node's own failures.
    away: until it is back. price: of a node and hour. market: None where nodes are bought at that
    price.
    """

    nodes: int = 25
    cores: int = 16
    gpus: int = 1
    sharing: int = 4
    start: float = 30.0
    loss_every: float = NO_LOSSES
    away: float = 600.0
    price: float = 1.0
    market: Market | None = None
    # tasks that wait for a GPU worker, of each, above which nothing new is begun
    ahead: float = 2.0

    @property
    def gpu_workers(self) -> int:
        """Of a node. The other cores have workers without a GPU."""
        return min(self.gpus * self.sharing, self.cores - 1)


@dataclass(frozen=True)
class GpuRun:
    """hours: of the whole. gpu_busy, cpu_busy: shares of the seconds that nodes were there.
    lost: worker hours that went with nodes. price: of all node hours."""

    hours: float
    gpu_busy: float
    cpu_busy: float
    lost: float
    losses: int
    node_hours: float
    price: float


class EventKind(IntEnum):
    """What an event of the simulation is. Their order settles events of the same second."""

    TASK_DONE = 0
    DECODING_DONE = 1
    NODE_LOST = 2
    NODE_BACK = 3
    PRICES_MOVE = 4


Event = tuple[float, EventKind, int, int, int]  # (second, kind, count, worker or node, version)
Task = tuple[int, int]  # (hop, video)


def simulate(hops: Sequence[Hop], cluster: GpuCluster, *, seed: int = 0) -> GpuRun:
    """Return what comes of a run. The same seed gives the same run."""
    return _Simulation(hops, cluster, seed).run()


class _Simulation:
    def __init__(self, hops: Sequence[Hop], cluster: GpuCluster, seed: int) -> None:
        self.cluster = cluster
        self.rng = np.random.default_rng(seed)
        self._add_work(hops)
        self._add_workers()
        # nodes
        self.up_since: dict[int, float] = {}
        # how often a node was lost: what was to befall it then is of no account now
        self.life = [0] * cluster.nodes
        self.draining: set[int] = set()
        self.priced_out: set[int] = set()  # zones
        self.log_price = np.zeros(cluster.market.zones if cluster.market else 1)
        # the clock
        self.now = 0.0
        self.events: list[Event] = []
        self.count = 0
        # the books
        self.gpu_seconds = 0.0
        self.cpu_seconds = 0.0
        self.node_seconds = 0.0
        self.lost = 0.0
        self.paid = 0.0
        self.losses = 0

    def _add_work(self, hops: Sequence[Hop]) -> None:
        """Put every video into the queue of the first hop."""
        self.cpu = [hop.cpu.tolist() for hop in hops]
        self.gpu: list[list[float] | None] = []
        self.queues: list[deque[int]] = []
        # a later hop comes first: what was begun is ended first
        self.hops_of: dict[bool, list[int]] = {True: [], False: []}
        for number, hop in enumerate(hops):
            self.gpu.append(None if hop.gpu is None else hop.gpu.tolist())
            self.queues.append(deque())
            self.hops_of[hop.gpu is not None].insert(0, number)
        self.unfinished = len(self.cpu[0])
        self.queues[0].extend(range(self.unfinished))

    def _add_workers(self) -> None:
        cluster = self.cluster
        workers = cluster.nodes * cluster.cores
        self.uses_gpu = []
        for worker in range(workers):
            core = worker % cluster.cores
            self.uses_gpu.append(core < cluster.gpu_workers)
        self.task: list[Task | None] = [None] * workers
        self.since = [0.0] * workers
        self.version = [0] * workers
        self.idle: dict[bool, set[int]] = {True: set(), False: set()}
        self.gpu_free = [0.0] * (cluster.nodes * max(1, cluster.gpus))
        self.room = cluster.ahead * sum(self.uses_gpu)

    def run(self) -> GpuRun:
        """Simulate until every video has gone through all hops."""
        cluster = self.cluster
        for node in range(cluster.nodes):
            self._node_back(node, 0)
        if cluster.market:
            self._push(cluster.market.step, EventKind.PRICES_MOVE, 0)
        actions = {
            EventKind.TASK_DONE: self._task_done,
            EventKind.DECODING_DONE: self._decoding_done,
            EventKind.NODE_LOST: self._node_lost,
            EventKind.NODE_BACK: self._node_back,
            EventKind.PRICES_MOVE: self._prices,
        }
        while self.unfinished:
            self.now, kind, _, subject, version = heapq.heappop(self.events)
            actions[kind](subject, version)
        for node in list(self.up_since):
            self._pay(node)
        gpu_seconds = self.node_seconds * max(1, cluster.gpus)
        core_seconds = self.node_seconds * cluster.cores
        return GpuRun(
            hours=self.now / SECONDS_PER_HOUR,
            gpu_busy=self.gpu_seconds / gpu_seconds,
            cpu_busy=self.cpu_seconds / core_seconds,
            lost=self.lost / SECONDS_PER_HOUR,
            losses=self.losses,
            node_hours=self.node_seconds / SECONDS_PER_HOUR,
            price=self.paid,
        )

    def _push(self, at: float, kind: EventKind, subject: int, version: int = 0) -> None:
        self.count += 1
        event = (at, kind, self.count, subject, version)
        heapq.heappush(self.events, event)

    def _give(self, worker: int) -> None:
        """Hand a worker its next task, or let it wait."""
        uses_gpu = self.uses_gpu[worker]
        node = worker // self.cluster.cores
        if node not in self.draining:
            for hop in self.hops_of[uses_gpu]:
                # A new video is begun without a GPU only while the queues of GPUs have room.
                may_begin = hop or uses_gpu or self._has_room()
                if self.queues[hop] and may_begin:
                    video = self.queues[hop].popleft()
                    self._begin(worker, hop, video)
                    return
        self.idle[uses_gpu].add(worker)

    def _has_room(self) -> bool:
        gpu_hops = self.hops_of[True]
        if not gpu_hops:
            return True
        waiting = sum(len(self.queues[hop]) for hop in gpu_hops)
        return waiting < self.room

    def _begin(self, worker: int, hop: int, video: int) -> None:
        self.idle[self.uses_gpu[worker]].discard(worker)
        self.task[worker] = (hop, video)
        self.since[worker] = self.now
        kind = EventKind.TASK_DONE if self.gpu[hop] is None else EventKind.DECODING_DONE
        end = self.now + self.cpu[hop][video]
        self._push(end, kind, worker, self.version[worker])

    def _decoding_done(self, worker: int, version: int) -> None:
        """Take the GPU next: the workers that share it wait in line."""
        task = self.task[worker]
        if version != self.version[worker] or task is None:
            return
        hop, video = task
        node, core = divmod(worker, self.cluster.cores)
        device = node * self.cluster.gpus + core // self.cluster.sharing
        seconds = self.gpu[hop]
        assert seconds is not None
        start = max(self.now, self.gpu_free[device])
        end = start + seconds[video]
        self.gpu_free[device] = end
        self._push(end, EventKind.TASK_DONE, worker, version)

    def _task_done(self, worker: int, version: int) -> None:
        if version != self.version[worker]:
            return
        task = self.task[worker]
        self.task[worker] = None
        # a worker without a task has loaded its models
        if task is not None:
            hop, video = task
            self._count_done(hop, video)
        self._give(worker)
        if self.uses_gpu[worker]:
            # there may be room again
            self._wake(uses_gpu=False)

    def _count_done(self, hop: int, video: int) -> None:
        """Enter a hop of a video into the books, and hand the video on."""
        self.cpu_seconds += self.cpu[hop][video]
        gpu = self.gpu[hop]
        if gpu is not None:
            self.gpu_seconds += gpu[video]
        next_hop = hop + 1
        if next_hop == len(self.queues):
            self.unfinished -= 1
        else:
            self.queues[next_hop].append(video)
            self._wake(uses_gpu=self.gpu[next_hop] is not None)

    def _wake(self, *, uses_gpu: bool) -> None:
        if self.idle[uses_gpu]:
            self._give(self.idle[uses_gpu].pop())

    # ------------------------------------------------------------ nodes

    def _zone(self, node: int) -> int:
        return node % len(self.log_price)

    def _node_back(self, node: int, _: int) -> None:
        if self._zone(node) in self.priced_out:
            self._push(self.now + self.cluster.away, EventKind.NODE_BACK, node)
            return
        self.up_since[node] = self.now
        self.draining.discard(node)
        ready = self.now + self.cluster.start
        for worker in self._workers(node):
            self.task[worker] = None
            self._push(ready, EventKind.TASK_DONE, worker, self.version[worker])
        if self.cluster.loss_every != NO_LOSSES:
            after = float(self.rng.exponential(self.cluster.loss_every))
            self._push(self.now + after, EventKind.NODE_LOST, node, self.life[node])

    def _node_lost(self, node: int, life: int) -> None:
        if life != self.life[node]:
            return
        self.losses += 1
        self.life[node] += 1
        self._pay(node)
        for worker in self._workers(node):
            self._drop_task(worker)
        gpus = self.cluster.gpus
        for device in range(node * gpus, (node + 1) * gpus):
            self.gpu_free[device] = self.now
        self._push(self.now + self.cluster.away, EventKind.NODE_BACK, node)
        # What was lost is in the queues again, so every idle worker looks.
        for uses_gpu in (True, False):
            for _worker in range(len(self.idle[uses_gpu])):
                self._wake(uses_gpu=uses_gpu)

    def _drop_task(self, worker: int) -> None:
        """Put what a worker of a lost node has in hand first in its queue again."""
        self.version[worker] += 1
        self.idle[self.uses_gpu[worker]].discard(worker)
        task = self.task[worker]
        self.task[worker] = None
        if task is not None:
            hop, video = task
            self.lost += self.now - self.since[worker]
            self.queues[hop].appendleft(video)

    def _pay(self, node: int) -> None:
        """Count the hours that a node was there since it was last counted, at its zone's price."""
        seconds = self.now - self.up_since.pop(node)
        self.node_seconds += seconds
        share = self._share(self._zone(node))
        self.paid += seconds / SECONDS_PER_HOUR * self.cluster.price * share

    def _share(self, zone: int) -> float:
        """Return a zone's price in shares of the fixed one."""
        market = self.cluster.market
        if market is None:
            return 1.0
        return market.usual * math.exp(float(self.log_price[zone]))

    def _prices(self, _: int, __: int) -> None:
        """Move each zone's price. Nodes are counted at the old one before."""
        market = self.cluster.market
        assert market is not None
        for node in list(self.up_since):
            self._pay(node)
            self.up_since[node] = self.now

        # a mean-reverting walk of the log price
        keep = math.exp(-market.step / (market.back * SECONDS_PER_HOUR))
        noise = self.rng.normal(size=market.zones) * market.spread * math.sqrt(1 - keep**2)
        self.log_price = keep * self.log_price + noise

        dear = {zone for zone in range(market.zones) if self._share(zone) > market.bid}
        newly_dear = dear - self.priced_out
        for node in list(self.up_since):
            if self._zone(node) in newly_dear:
                self.draining.add(node)
                end = self.now + market.notice
                self._push(end, EventKind.NODE_LOST, node, self.life[node])
        self.priced_out = dear
        self._push(self.now + market.step, EventKind.PRICES_MOVE, 0)

    def _workers(self, node: int) -> range:
        cores = self.cluster.cores
        return range(node * cores, (node + 1) * cores)


def hops_of(
    times: Mapping[str, Floats], speeds: Mapping[str, float], decoding: Mapping[str, float]
) -> list[Hop]:
    """Return the runs of stages that do or do not use a GPU.

    times: (V,) core seconds by stage, in the order of the recipe.
    speeds: how much faster a GPU does a stage's network, of the stages that use one.
    decoding: share of such a stage that stays on the core.
    """
    hops: list[Hop] = []
    for name, seconds in times.items():
        speed = speeds.get(name)
        if speed is None:
            cpu = np.asarray(seconds * 1.0, np.float64)
            gpu = None
        else:
            share = decoding.get(name, 0.0)
            cpu = np.asarray(seconds * share, np.float64)
            gpu = np.asarray(seconds * (1 - share) / speed, np.float64)
        hop = Hop(name, cpu, gpu)
        if hops and (hops[-1].gpu is None) == (gpu is None):
            hop = joined(hops.pop(), hop)
        hops.append(hop)
    return hops


def joined(first: Hop, second: Hop) -> Hop:
    """Return two hops in turn as one: both use a GPU, or none does."""
    gpu = None
    if first.gpu is not None and second.gpu is not None:
        gpu = first.gpu + second.gpu
    return Hop(f"{first.name}, {second.name}", first.cpu + second.cpu, gpu)
