"""The simulated cluster: small runs worked out by hand, and nothing lost from the books."""

import numpy as np
import pytest

from benchmarks.cluster_simulation import Cluster, Workload, durations, simulate, stacked, workload
from benchmarks.gpu_cluster_simulation import GpuCluster, Hop, Market, hops_of
from benchmarks.gpu_cluster_simulation import simulate as simulate_gpus


def work(*videos, size=0.0):
    """Each video: seconds of its stages."""
    widest = max(map(len, videos))
    times = np.array(
        [[*video, *[0.0] * (widest - len(video))] for video in videos], dtype=np.float32
    )
    return Workload(times, np.full(len(videos), size, dtype=np.float32))


def test_one_worker_does_one_video_after_another():
    told = simulate(work([2.0], [3.0, 1.0], [4.0]), Cluster(nodes=1, cores=1, start=5.0))
    assert (told.makespan, told.useful, told.starting, told.waiting) == (15.0, 10.0, 5.0, 0.0)
    assert told.utilisation == pytest.approx(10 / 15)
    assert told.tail == 4.0


def test_the_earliest_free_worker_takes_the_next_video():
    told = simulate(work([3.0], [1.0], [1.0], [4.0]), Cluster(nodes=2, cores=1, start=0.0))
    assert (told.makespan, told.waiting) == (6.0, 3.0)  # 3 here; 1, 1 and 4 there


def test_a_handed_batch_is_not_given_up():
    cluster = Cluster(nodes=2, cores=1, start=0.0, batch=4)
    assert simulate(work(*[[1.0]] * 4), cluster).makespan == 4.0
    assert simulate(work(*[[1.0]] * 8), cluster).makespan == 4.0


def test_shared_storage_bounds_the_rate_and_one_video_is_fetched_ahead():
    told = simulate(
        work(*[[1.0]] * 6, size=10.0), Cluster(nodes=6, cores=1, start=0.0, storage=5.0)
    )
    assert told.makespan == 13.0  # the sixth file is here after 60 / 5 s
    alone = simulate(
        work(*[[2.0]] * 3, size=10.0), Cluster(nodes=1, cores=1, start=0.0, stream=10.0)
    )
    assert alone.makespan == 7.0  # only the first is waited for


def test_a_copy_overtakes_a_slow_node():
    cluster = {"nodes": 2, "cores": 1, "start": 0.0, "slow_share": 0.5, "slow_speed": 0.1}
    seed = next(
        seed
        for seed in range(50)
        if (np.random.default_rng(seed).random(2) < 0.5).tolist() == [False, True]
    )
    videos = work([2.0], [2.0])
    assert simulate(videos, Cluster(**cluster), seed=seed).makespan == 20.0
    told = simulate(videos, Cluster(**cluster, speculate=True), seed=seed)
    assert (told.makespan, told.useful, told.copied) == (4.0, 4.0, 4.0)


def test_a_death_takes_the_unit_in_flight_alone():
    videos = work(*[[30.0, 30.0, 30.0]] * 40)
    told = simulate(
        videos, Cluster(nodes=4, cores=2, start=1.0, loss_every=200.0, away=20.0), seed=2
    )
    assert told.losses > 5
    assert told.useful == pytest.approx(videos.seconds)  # what was in cells was not done again
    assert 0 < told.lost <= told.losses * 2 * 30.0
    assert told.waiting >= -1e-6


@pytest.mark.parametrize("seed", range(4))
def test_the_books_balance_whatever_breaks(seed):
    times = np.random.default_rng(seed).lognormal(1, 1, size=(300, 3)).astype(np.float32)
    videos = Workload(times, np.full(300, 5.0, dtype=np.float32))
    cluster = Cluster(
        nodes=5,
        cores=3,
        start=4.0,
        batch=1 + seed,
        speculate=bool(seed % 2),
        slow_share=0.3,
        loss_every=60.0,
        away=15.0,
        driver_every=50.0,
        driver_away=10.0,
        storage=400.0,
        stream=40.0,
    )
    told = simulate(videos, cluster, seed=seed)
    parts = (told.useful, told.lost, told.copied, told.starting, told.away)
    assert min(*parts, told.waiting) >= -1e-6
    assert sum(parts) + told.waiting == pytest.approx(15 * told.makespan)
    assert told.restarts > 0
    assert told.useful + told.copied >= videos.seconds - 1e-3  # slow nodes need longer, none less
    assert simulate(videos, cluster, seed=seed) == told


def test_more_nodes_are_faster_until_storage_is_full():
    videos = work(*[[5.0]] * 400, size=10.0)
    spans = [
        simulate(videos, Cluster(nodes=n, cores=1, start=0.0, storage=20.0)).makespan
        for n in (1, 2, 8, 16, 64)
    ]
    assert spans[0] == pytest.approx(2 * spans[1], rel=0.01)
    assert spans[2] == pytest.approx(2000 / 8, rel=0.05)
    assert spans[4] == pytest.approx(400 * 10 / 20, rel=0.05)


def test_videos_are_measured_ones_scaled_to_their_length():
    measured = {"hear": np.array([2.0, 4.0]), "write": np.array([0.0, 3.0])}
    drawn = workload(measured, np.array([10.0, 20.0]), np.full(1000, 40.0), bytes_a_second=2.0)
    assert sorted({tuple(row) for row in drawn.times.round(4).tolist()}) == [(8.0, 0.0), (8.0, 3.0)]
    assert drawn.bytes[0] == 80.0
    far = workload({"hear": np.array([5.0])}, np.array([10.0]), np.array([40.0, 400.0]), far=True)
    assert far.times[:, 0].tolist() == [20.0, 200.0]
    hung = workload(measured, np.array([10.0, 20.0]), np.full(1000, 40.0), poison=0.5, limit=99.0)
    assert 400 < (hung.times[:, 0] == 99.0).sum() < 600


def test_durations_have_the_mean_that_was_asked_for():
    assert durations(200_000, 390.0, 0.6).mean() == pytest.approx(390, rel=0.01)
    assert stacked([{"a": 1.0}, {}], ["a"])["a"].tolist() == [1.0, 0.0]


def hop(*seconds):
    return np.array(seconds, dtype=np.float64)


def test_workers_that_share_a_gpu_wait_in_line_and_decode_at_the_same_time():
    hops = [Hop("transcribe", hop(1.0, 1.0, 1.0, 1.0), hop(2.0, 2.0, 2.0, 2.0))]
    alone = simulate_gpus(hops, GpuCluster(nodes=1, cores=4, sharing=1, start=0.0))
    shared = simulate_gpus(hops, GpuCluster(nodes=1, cores=4, sharing=2, start=0.0))
    assert alone.hours * 3600 == pytest.approx(12.0)  # one after the other
    assert shared.hours * 3600 == pytest.approx(9.0)  # 1 of decoding, then the GPU is never idle
    assert shared.gpu_busy == pytest.approx(8 / 9)


def test_a_network_s_share_of_a_stage_goes_to_the_gpu_and_neighbours_are_one_hop():
    times = {"probe": hop(1.0), "transcribe": hop(10.0), "encode": hop(4.0), "judge": hop(2.0)}
    first, second, last = hops_of(
        times, {"transcribe": 8.0, "encode": 2.0}, {"transcribe": 0.2, "encode": 0.5}
    )
    assert (first.name, second.name, last.name) == ("probe", "transcribe, encode", "judge")
    assert (first.gpu, last.gpu) == (None, None)
    assert second.cpu.tolist() == [4.0]
    assert second.gpu.tolist() == [2.0]


@pytest.mark.parametrize(
    "market", [None, Market(zones=2, spread=1.0, step=30.0, back=0.1, notice=10.0)]
)
def test_what_a_lost_node_had_in_hand_is_done_again_and_paid_for(market):
    rng = np.random.default_rng(0)
    times = {
        "probe": rng.exponential(2.0, 300),
        "transcribe": rng.exponential(40.0, 300),
        "judge": np.ones(300),
    }
    hops = hops_of(times, {"transcribe": 10.0}, {"transcribe": 0.1})
    cluster = GpuCluster(
        nodes=4, cores=4, sharing=3, start=1.0, away=20.0, loss_every=60.0, market=market
    )
    told, calm = (
        simulate_gpus(hops, cluster),
        simulate_gpus(hops, GpuCluster(nodes=4, cores=4, sharing=3, start=1.0)),
    )
    assert told.losses > 3
    assert told.lost > 0
    assert told.hours > calm.hours
    # each video once
    assert told.gpu_busy * told.node_hours == pytest.approx(calm.gpu_busy * calm.node_hours)
    assert calm.price == pytest.approx(calm.node_hours)
    assert told == simulate_gpus(hops, cluster)
    if market:
        assert told.price != pytest.approx(told.node_hours)
