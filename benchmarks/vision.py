"""Frames per second of the default backbone against a straightforward version of it, and what loading
costs.

    OMP_WAIT_POLICY=PASSIVE python benchmarks/vision.py

The straightforward version is the network as one writes it first. It has planes in NCHW order,
padding and BatchNorm as steps of their own, one picture at a time. Both get the same pictures in
turns, in one process, and must give the same scores. Loading is measured in fresh processes, with
the files in the system's cache.
"""

import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

# before torch. Waiting threads must not starve a busy machine
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from stepline.networks.weights import find_weights
from stepline.text import embed
from stepline.vision import VisionSettings, load_backbone
from stepline.vision.efficientnet import (
    NORM_EPSILON,
    PIXEL_MEAN,
    PIXEL_SCALE,
    EfficientNetLite0,
    architecture,
)

RESULT_PATH = Path(__file__).resolve().parent / "results" / "vision.json"
FRAME_COUNT = 32
ROUND_COUNT = 5
SENTENCE_COUNT = 100  # of 12 words

# the code whose loading is timed, from S() on if it calls that
NORM_NAMES = ("running_mean", "running_var", "weight", "bias")


LOADED_PARTS = {
    "import numpy + pydantic": "import numpy, pydantic",
    "import torch": "import torch",
    "conse: check, read and fold": """
from stepline.vision import *
import torch
S()
load_backbone(VisionSettings())
""",
    "conse: first frame": """
from stepline.vision import *
import numpy as np
b = load_backbone(VisionSettings())
S()
b.encode_images(np.zeros((1, 224, 224, 3), np.uint8))
""",
    "minilm: check (sha256)": """
from stepline.networks.weights import find_weights
S()
find_weights('minilm')
""",
    "minilm: read": """
from stepline.networks.weights import find_weights
from stepline.text.embedding import load_encoder
import torch
find_weights('minilm')
S()
load_encoder()
""",
    "minilm: first sentence": """
from stepline.text import embed
embed([])
S()
embed(['cut the banana'])
""",
}


def straightforward(weights: dict[str, Tensor], pictures: Tensor) -> Tensor:
    """Return class scores (B, 1000) as the network's definition reads."""
    hidden = (pictures.permute(0, 3, 1, 2).float().contiguous() - PIXEL_MEAN) / PIXEL_SCALE
    for part in architecture():
        before = hidden
        for conv in part:
            kernel = conv.shape[2]
            side = hidden.shape[2]
            # TensorFlow's "same" padding
            outputs = math.ceil(side / conv.stride)
            total = max((outputs - 1) * conv.stride + kernel - side, 0)
            hidden = F.pad(hidden, (total // 2, total - total // 2) * 2)
            weight = weights[f"{conv.name}.weight"]
            hidden = F.conv2d(hidden, weight, stride=conv.stride, groups=conv.groups)
            norm = [weights[f"{conv.norm}.{name}"] for name in NORM_NAMES]
            hidden = F.batch_norm(hidden, *norm, eps=NORM_EPSILON)
            if conv.relu6:
                hidden = F.relu6(hidden)
            if conv.residual:
                hidden = hidden + before
    return F.linear(hidden.mean((2, 3)), weights["_fc.weight"], weights["_fc.bias"])


def rates(sides: dict[str, Callable[[], object]], count: int) -> dict[str, dict[str, float]]:
    """Return items per second of each side, best and median, the sides taking turns."""
    seconds_by_side: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUND_COUNT):
        for name, run in sides.items():
            start = time.perf_counter()
            run()
            seconds_by_side[name].append(time.perf_counter() - start)
    rows = {}
    for name, seconds in seconds_by_side.items():
        rows[name] = {
            "best": round(count / min(seconds), 1),
            "median": round(count / statistics.median(seconds), 1),
        }
    return rows


def frame_rates(threads: int) -> dict[str, dict[str, float]]:
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # what ONNX Runtime is given
    path = find_weights("efficientnet-lite0")
    weights = torch.load(path, weights_only=True)
    network = EfficientNetLite0(path)
    backbone = load_backbone(VisionSettings())
    rng = np.random.default_rng(0)
    large = rng.integers(0, 256, (FRAME_COUNT, 256, 456, 3), dtype=np.uint8)
    pictures = large[:, :224, :224].copy()
    frames = torch.from_numpy(pictures)

    # the two versions must give the same scores
    with torch.inference_mode():
        ours = torch.from_numpy(network(pictures[:2])).softmax(1)
        difference = (ours - straightforward(weights, frames[:2]).softmax(1)).abs().max()
    if difference > 1e-5:
        raise SystemExit(f"the two versions differ by {difference}")

    batch = VisionSettings().batch
    batch_starts = range(0, FRAME_COUNT, batch)

    def run_straightforward() -> None:
        with torch.inference_mode():
            for frame in frames:
                straightforward(weights, frame[None])

    def run_batches() -> None:
        for start in batch_starts:
            network(pictures[start : start + batch])

    def run_whole() -> None:
        for start in batch_starts:
            backbone.encode_images(large[start : start + batch])

    sides = {
        "straightforward, batch 1": run_straightforward,
        "ours, batch 1": lambda: [network(picture[None]) for picture in pictures],
        f"ours, batch {batch}": run_batches,
        f"conse whole, 256 x 456, batch {batch}": run_whole,
    }
    return rates(sides, FRAME_COUNT)


def text_rates(threads: int) -> dict[str, dict[str, float]]:
    os.environ["OMP_NUM_THREADS"] = str(threads)
    texts = []
    for number in range(SENTENCE_COUNT):
        texts.append(f"cut piece {number} of the banana into slices and put them aside")
    return rates({"minilm, sentences": lambda: embed(texts)}, SENTENCE_COUNT)


def loading() -> dict[str, dict[str, float]]:
    """Return the ms that each part takes in a fresh process, best and median of five."""
    head = "import time\nt = [time.perf_counter()]\ndef S(): t[0] = time.perf_counter()\n"
    report: dict[str, dict[str, float]] = {}
    for name, code in LOADED_PARTS.items():
        program = [sys.executable, "-c", f"{head}{code}\nprint(time.perf_counter() - t[0])"]
        times = []
        for _ in range(5):
            child = subprocess.run(program, capture_output=True, text=True, check=True)
            times.append(1000 * float(child.stdout))
        report[name] = {"best": round(min(times)), "median": round(statistics.median(times))}
    return report


def main() -> None:
    machine = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
    }
    report: dict[str, dict[str, dict[str, float]]] = {}
    for threads in (1, 2):
        unit = "thread" if threads == 1 else "threads"
        rows = frame_rates(threads) | text_rates(threads)
        report[f"per second, {threads} {unit}"] = rows
    report["loading, ms"] = loading()
    for title, rows in report.items():
        print(f"\n| {title} | best | median |\n|---|---|---|")
        for name, row in rows.items():
            print(f"| {name} | {row['best']:g} | {row['median']:g} |")
    RESULT_PATH.write_text(json.dumps(machine | report, indent=2) + "\n")


if __name__ == "__main__":
    main()
