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

RESULT_PATH = Path(__file__).parent / "results" / "s3d.json"
CLIP_SHAPE = (3, 16, 224, 224)  # of a clip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clips", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-of", choices=["plain", "fast"])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.memory_of:
        print(peak(options.memory_of, options.clips))
        return
    sizes = {"threads": options.threads, "clips": options.clips}
    result = sizes | speeds(options.clips, options.rounds)
    for side in ("plain", "fast"):
        command = [sys.executable, __file__, "--memory-of", side]
        command += ["--clips", str(options.clips), "--threads", str(options.threads)]
        child = subprocess.run(command, capture_output=True, text=True, check=True)
        result[side]["peak_mib"] = float(child.stdout)
    results = {}
    if RESULT_PATH.exists():
        results = json.loads(RESULT_PATH.read_text())
    results[f"threads_{options.threads}"] = result
    RESULT_PATH.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(json.dumps(result, indent=1))


def speeds(count, rounds):
    network = random_network()
    sides = {"plain": network, "fast": FoldedS3D(network)}
    clips = torch.rand(count, *CLIP_SHAPE)
    seconds_by_side = {side: {"cpu": [], "wall": []} for side in sides}
    with torch.inference_mode():
        for run in sides.values():
            run(clips[:1])  # warm
        for _ in range(rounds):
            for side, run in sides.items():
                cpu_begin = time.process_time()
                wall_begin = time.perf_counter()
                run(clips)
                seconds_by_side[side]["cpu"].append(time.process_time() - cpu_begin)
                seconds_by_side[side]["wall"].append(time.perf_counter() - wall_begin)
    result = {}
    for side, clocks in seconds_by_side.items():
        row = {}
        for clock, seconds in clocks.items():
            prefix = f"clips_a_{clock}_second"
            row[f"{prefix}_best"] = round(count / min(seconds), 3)
            row[f"{prefix}_median"] = round(count / statistics.median(seconds), 3)
        result[side] = row
    return result


def random_network():
    """A network whose values do not fade to denormal numbers, which would cost time."""
    network = S3D()
    for weight in network.parameters():
        if weight.ndim == 5:
            torch.nn.init.kaiming_normal_(weight)
    return network.eval()


def peak(side, count):
    network = random_network()
    run = network if side == "plain" else FoldedS3D(network)
    with torch.inference_mode():
        run(torch.rand(count, *CLIP_SHAPE))
    # not ru_maxrss, which a child takes over from its parent
    status = Path("/proc/self/status").read_text()
    _, _, rest = status.partition("VmHWM:")
    kib = int(rest.split()[0])
    return round(kib / 1024, 1)


if __name__ == "__main__":
    main()
