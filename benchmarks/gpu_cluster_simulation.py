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

import numpy as np

from stepline.evaluate.bootstrap import Floats

HOUR = 3600.0
NEVER = math.inf


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
    loss_every: float = NEVER
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


TASK_DONE, DECODED, NODE_LOST, NODE_BACK, PRICES = range(5)


def simulate(hops: Sequence[Hop], cluster: GpuCluster, *, seed: int = 0) -> GpuRun:
    """Return what comes of a run. The same seed gives the same run."""
    return _Simulation(hops, cluster, seed).run()


class _Simulation:
    def __init__(self, hops: Sequence[Hop], cluster: GpuCluster, seed: int) -> None:
        self.cluster, self.rng = cluster, np.random.default_rng(seed)
        self.cpu = [hop.cpu.tolist() for hop in hops]
        self.gpu = [None if hop.gpu is None else hop.gpu.tolist() for hop in hops]
        self.queues: list[deque[int]] = [deque() for _ in hops]
        self.queues[0].extend(range(len(self.cpu[0])))
        self.left = len(self.cpu[0])
        on_gpu = [number for number, gpu in enumerate(self.gpu) if gpu is not None]
        others = [number for number, gpu in enumerate(self.gpu) if gpu is None]
        self.hops_of = {True: on_gpu[::-1], False: others[::-1]}  # what was begun is ended first
        workers = cluster.nodes * cluster.cores
        self.uses_gpu = [number % cluster.cores < cluster.gpu_workers for number in range(workers)]
        self.task: list[tuple[int, int] | None] = [None] * workers  # (hop, video)
        self.since, self.version = [0.0] * workers, [0] * workers
        self.idle: dict[bool, set[int]] = {True: set(), False: set()}
        self.gpu_free = [0.0] * (cluster.nodes * max(1, cluster.gpus))
        self.up_since: dict[int, float] = {}
        # how often a node was lost: what was to befall it then is of no account now
        self.life = [0] * cluster.nodes
        self.draining: set[int] = set()
        self.priced_out: set[int] = set()  # zones
        self.room = cluster.ahead * sum(self.uses_gpu)
        self.now, self.events, self.count = 0.0, [], 0
        self.gpu_seconds = self.cpu_seconds = self.lost = self.node_seconds = self.paid = 0.0
        self.losses = 0
        market = cluster.market
        self.log_price = np.zeros(market.zones) if market else np.zeros(1)

    def run(self) -> GpuRun:
        """Simulate until every video has gone through all hops."""
        for node in range(self.cluster.nodes):
            self._node_back(node, 0)
        if self.cluster.market:
            self._push(self.cluster.market.step, PRICES, 0)
        act = {
            TASK_DONE: self._task_done,
            DECODED: self._decoded,
            NODE_LOST: self._node_lost,
            NODE_BACK: self._node_back,
            PRICES: self._prices,
        }
        while self.left:
            self.now, kind, _, who, version = heapq.heappop(self.events)
            act[kind](who, version)
        for node in list(self.up_since):
            self._pay(node)
        seconds, gpus = self.node_seconds, max(1, self.cluster.gpus)
        return GpuRun(
            self.now / HOUR,
            self.gpu_seconds / (seconds * gpus),
            self.cpu_seconds / (seconds * self.cluster.cores),
            self.lost / HOUR,
            self.losses,
            seconds / HOUR,
            self.paid,
        )

    def _push(self, at: float, kind: int, who: int, version: int = 0) -> None:
        self.count += 1
        heapq.heappush(self.events, (at, kind, self.count, who, version))

    def _give(self, worker: int) -> None:
        """Hand a worker its next task, or let it wait."""
        kind = self.uses_gpu[worker]
        if worker // self.cluster.cores not in self.draining:
            for hop in self.hops_of[kind]:
                if self.queues[hop] and (hop or kind or self._has_room()):
                    self._begin(worker, hop, self.queues[hop].popleft())
                    return
        self.idle[kind].add(worker)

    def _has_room(self) -> bool:
        return (
            not self.hops_of[True]
            or sum(len(self.queues[hop]) for hop in self.hops_of[True]) < self.room
        )

    def _begin(self, worker: int, hop: int, video: int) -> None:
        self.idle[self.uses_gpu[worker]].discard(worker)
        self.task[worker], self.since[worker] = (hop, video), self.now
        kind = TASK_DONE if self.gpu[hop] is None else DECODED
        self._push(self.now + self.cpu[hop][video], kind, worker, self.version[worker])

    def _decoded(self, worker: int, version: int) -> None:
        """Take the GPU next: the workers that share it wait in line."""
        task = self.task[worker]
        if version != self.version[worker] or task is None:
            return
        hop, video = task
        node, place = divmod(worker, self.cluster.cores)
        device = node * self.cluster.gpus + place // self.cluster.sharing
        seconds = self.gpu[hop]
        assert seconds is not None
        self.gpu_free[device] = max(self.now, self.gpu_free[device]) + seconds[video]
        self._push(self.gpu_free[device], TASK_DONE, worker, version)

    def _task_done(self, worker: int, version: int) -> None:
        if version != self.version[worker]:
            return
        task, self.task[worker] = self.task[worker], None
        if task is not None:  # else its models are loaded
            hop, video = task
            self.cpu_seconds += self.cpu[hop][video]
            gpu = self.gpu[hop]
            self.gpu_seconds += 0.0 if gpu is None else gpu[video]
            if hop + 1 == len(self.queues):
                self.left -= 1
            else:
                self.queues[hop + 1].append(video)
                self._wake(self.gpu[hop + 1] is not None)
        self._give(worker)
        if self.uses_gpu[worker]:
            self._wake(False)  # there may be room again

    def _wake(self, kind: bool) -> None:
        if self.idle[kind]:
            self._give(self.idle[kind].pop())

    # ------------------------------------------------------------ nodes

    def _zone(self, node: int) -> int:
        return node % len(self.log_price)

    def _node_back(self, node: int, _: int) -> None:
        if self._zone(node) in self.priced_out:
            self._push(self.now + self.cluster.away, NODE_BACK, node)
            return
        self.up_since[node] = self.now
        self.draining.discard(node)
        for worker in self._workers(node):
            self.task[worker] = None
            self._push(self.now + self.cluster.start, TASK_DONE, worker, self.version[worker])
        if self.cluster.loss_every != NEVER:
            after = float(self.rng.exponential(self.cluster.loss_every))
            self._push(self.now + after, NODE_LOST, node, self.life[node])

    def _node_lost(self, node: int, life: int) -> None:
        if life != self.life[node]:
            return
        self.losses += 1
        self.life[node] += 1
        self._pay(node)
        for worker in self._workers(node):
            self.version[worker] += 1
            self.idle[self.uses_gpu[worker]].discard(worker)
            task, self.task[worker] = self.task[worker], None
            if task is not None:
                self.lost += self.now - self.since[worker]
                self.queues[task[0]].appendleft(task[1])
        for number in range(node * self.cluster.gpus, (node + 1) * self.cluster.gpus):
            self.gpu_free[number] = self.now
        self._push(self.now + self.cluster.away, NODE_BACK, node)
        for kind in (True, False):
            for _worker in range(len(self.idle[kind])):
                self._wake(kind)

    def _pay(self, node: int) -> None:
        """Count the hours that a node was there since it was last counted, at its zone's price."""
        seconds = self.now - self.up_since.pop(node)
        self.node_seconds += seconds
        self.paid += seconds / HOUR * self.cluster.price * self._share(self._zone(node))

    def _share(self, zone: int) -> float:
        market = self.cluster.market
        return 1.0 if market is None else market.usual * math.exp(float(self.log_price[zone]))

    def _prices(self, _: int, __: int) -> None:
        """Move each zone's price. Nodes are counted at the old one before."""
        market = self.cluster.market
        assert market is not None
        for node in list(self.up_since):
            self._pay(node)
            self.up_since[node] = self.now
        keep = math.exp(-market.step / (market.back * HOUR))
        noise = self.rng.normal(size=market.zones) * market.spread * math.sqrt(1 - keep**2)
        self.log_price = keep * self.log_price + noise
        dear = {zone for zone in range(market.zones) if self._share(zone) > market.bid}
        for node in list(self.up_since):
            if self._zone(node) in dear - self.priced_out:
                self.draining.add(node)
                self._push(self.now + market.notice, NODE_LOST, node, self.life[node])
        self.priced_out = dear
        self._push(self.now + market.step, PRICES, 0)

    def _workers(self, node: int) -> range:
        return range(node * self.cluster.cores, (node + 1) * self.cluster.cores)


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
        share = 1.0 if speed is None else decoding.get(name, 0.0)
        cpu = np.asarray(seconds * share, np.float64)
        gpu = None if speed is None else np.asarray(seconds * (1 - share) / speed, np.float64)
        last = hops[-1] if hops else None
        if last is not None and (last.gpu is None) == (gpu is None):
            both = None if gpu is None or last.gpu is None else last.gpu + gpu
            hops[-1] = Hop(f"{last.name}, {name}", last.cpu + cpu, both)
        else:
            hops.append(Hop(name, cpu, gpu))
    return hops
