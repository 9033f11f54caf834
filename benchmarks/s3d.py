"""S3D-G at inference: the fast form against the plain graph of 3-D convolutions, clips per second
and memory.

    python benchmarks/s3d.py [--threads 1] [--clips 8] [--rounds 3]

Random weights (speed does not depend on them). The two sides take turns in one process, CPU and
wall seconds. Then each runs alone in a process of its own for its memory. Writes
benchmarks/results/s3d.json.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch

from stepline.vision.s3d_network import S3D, FoldedS3D

RESULTS = Path(__file__).parent / "results" / "s3d.json"
SHAPE = (3, 16, 224, 224)  # of a clip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clips", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-of", choices=["plain", "fast"])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    if given.memory_of:
        print(peak(given.memory_of, given.clips))
        return
    result = {"threads": given.threads, "clips": given.clips, **speeds(given.clips, given.rounds)}
    for side in ("plain", "fast"):
        again = [sys.executable, __file__, "--memory-of", side, "--clips", str(given.clips)]
        shown = subprocess.run(
            [*again, "--threads", str(given.threads)], capture_output=True, text=True, check=True
        )
        result[side]["peak_mib"] = float(shown.stdout)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(
        json.dumps({**known, f"threads_{given.threads}": result}, indent=1, sort_keys=True) + "\n"
    )
    print(json.dumps(result, indent=1))


def speeds(count, rounds):
    network = made()
    sides = {"plain": network, "fast": FoldedS3D(network)}
    clips = torch.rand(count, *SHAPE)
    took = {side: {"cpu": [], "wall": []} for side in sides}
    with torch.inference_mode():
        for run in sides.values():
            run(clips[:1])  # warm
        for _ in range(rounds):
            for side, run in sides.items():
                cpu, wall = time.process_time(), time.perf_counter()
                run(clips)
                took[side]["cpu"].append(time.process_time() - cpu)
                took[side]["wall"].append(time.perf_counter() - wall)
    result = {}
    for side, times in took.items():
        result[side] = {
            f"clips_a_{clock}_second_{name}": round(count / of(seconds), 3)
            for clock, seconds in times.items()
            for name, of in (("best", min), ("median", statistics.median))
        }
    return result


def made():
    """A network whose values do not fade to denormal numbers, which would cost time."""
    network = S3D()
    for weight in network.parameters():
        if weight.ndim == 5:
            torch.nn.init.kaiming_normal_(weight)
    return network.eval()


def peak(side, count):
    network = made()
    run = network if side == "plain" else FoldedS3D(network)
    with torch.inference_mode():
        run(torch.rand(count, *SHAPE))
    # not ru_maxrss, which a child takes over from its parent
    status = Path("/proc/self/status").read_text()
    return round(int(status.split("VmHWM:")[1].split()[0]) / 1024, 1)


if __name__ == "__main__":
    main()
