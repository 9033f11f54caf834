"""Plays 1.2 M videos through on nodes with a GPU each, that fail or are bought on a spot market.

    python benchmarks/curate_simulation_gpu.py [--price DOLLARS]

Core seconds per second of video are those that `curate_simulation.py` took from a measured run. No
GPU was had: how many times faster than a core it runs a network is assumed (GPU_SPEEDS).
What stays on the core of a GPU's worker is measured (docs/results/speed.md: decoding and voice
detection next to recognition, decoding and motion next to features). Money is node hours at --price
per node hour, 1 by default. Writes benchmarks/results/curate_simulation_gpu.json.
"""

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.cluster_simulation import durations
from benchmarks.gpu_cluster_simulation import (
    SECONDS_PER_HOUR,
    GpuCluster,
    Hop,
    Market,
    hops_of,
    simulate,
)
from stepline.evaluate.bootstrap import Floats

RESULTS_FOLDER = Path(__file__).resolve().parent / "results"
RESULT_PATH = RESULTS_FOLDER / "curate_simulation_gpu.json"
VIDEO_COUNT = 1_200_000
GPU_SPEEDS = (10.0, 30.0, 100.0)  # of a GPU, next to a core
ON_GPU = ("transcribe", "encode")
# share of a stage that is not a network's, docs/results/speed.md
DECODING_SHARES = {"transcribe": 0.13, "encode": 0.53}
USUAL_CLUSTER = GpuCluster(nodes=25, cores=16, gpus=1, sharing=4)
FAILING_NODES = {"loss_every": 200 * SECONDS_PER_HOUR}
# a GPU's speed, what differs from USUAL_CLUSTER
CLUSTER_CASES: Mapping[str, tuple[float, Mapping[str, object]]] = {
    "no GPU, 25 nodes": (0.0, {"gpus": 0}),
    **{f"{count} workers a GPU": (30.0, {"sharing": count}) for count in (1, 2, 4, 8, 12)},
    "a GPU as 10 cores, 8 workers": (10.0, {"sharing": 8}),
    "a GPU as 100 cores, 8 workers": (100.0, {"sharing": 8}),
    "a GPU as 100 cores, 12 workers": (100.0, {"sharing": 12}),
    "8 workers a GPU, a node fails every 200 h": (30.0, {"sharing": 8, **FAILING_NODES}),
    "8 workers a GPU, a node fails every 6 h": (
        30.0,
        {"sharing": 8, "loss_every": 6 * SECONDS_PER_HOUR},
    ),
    "spot, bid 1": (30.0, {"sharing": 8, **FAILING_NODES, "market": Market(bid=1.0)}),
    "spot, bid .5": (30.0, {"sharing": 8, **FAILING_NODES, "market": Market(bid=0.5)}),
    "spot, bid .4": (30.0, {"sharing": 8, **FAILING_NODES, "market": Market(bid=0.4)}),
    "spot, bid .5, no notice": (
        30.0,
        {"sharing": 8, **FAILING_NODES, "market": Market(bid=0.5, notice=0.0)},
    ),
}


def core_seconds(videos: int) -> dict[str, Floats]:
    """Return stage -> (V,) core seconds, in proportion to a video's duration."""
    tree = json.loads((RESULTS_FOLDER / "curate_simulation.json").read_text(encoding="utf-8"))
    assumed = tree["assumed"]
    lengths = durations(videos, assumed["mean_s"], assumed["spread"])
    all_seconds = durations(VIDEO_COUNT, assumed["mean_s"], assumed["spread"]).sum()
    all_hours = all_seconds / SECONDS_PER_HOUR
    return {stage: lengths * (hours / all_hours) for stage, hours in tree["core_hours"].items()}


def main() -> None:
    """Print and keep the cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--price", type=float, default=1.0, help="of a node and hour, bought at the fixed price"
    )
    parser.add_argument("--videos", type=int, default=VIDEO_COUNT)
    options = parser.parse_args()
    times = core_seconds(options.videos)
    rows = []
    for name, (speed, changes) in CLUSTER_CASES.items():
        cluster = replace(USUAL_CLUSTER, price=options.price, **changes)  # type: ignore[arg-type]
        hops = [Hop("all", sum(times.values()))]  # type: ignore[arg-type]
        if speed:
            hops = hops_of(times, dict.fromkeys(ON_GPU, speed), DECODING_SHARES)
        start = time.process_time()
        run = simulate(hops, cluster)
        cpu_seconds = round(time.process_time() - start, 1)
        figures = {key: round(value, 3) for key, value in asdict(run).items()}
        rows.append({"case": name, **figures, "cpu_s": cpu_seconds})
        print(json.dumps(rows[-1]), flush=True)
    if options.videos == VIDEO_COUNT:
        tree = {
            "videos": VIDEO_COUNT,
            "usual": asdict(USUAL_CLUSTER),
            "market": asdict(Market()),
            "decoding": DECODING_SHARES,
            "cases": rows,
        }
        RESULT_PATH.write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
