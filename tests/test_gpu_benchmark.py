"""benchmarks/gpu.py goes through every line without a GPU, and tells every network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepline.networks.weights import weights_fetched

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_every_network_is_measured_in_both_precisions():
    command = [
        sys.executable,
        ROOT / "benchmarks" / "gpu.py",
        "--device",
        "cpu",
        "--small",
        "--compile",
        "--json",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 0, done.stderr
    tree = json.loads(done.stdout)
    told = {(row["network"], row["kind"], row["precision"]) for row in tree["rows"]}
    trained = (
        "NaSVA, T 40, K 5",
        "ProcX, batch 2",
        "WYS2 detector, features",
        "WYS2 detector, S3D end to end",
    )
    backbones = ("whisper-tiny.en", "ConSE (EfficientNet-Lite0)", "MiniLM", "S3D")
    assert told >= {
        (name, "inference", each) for name in (*backbones, *trained) for each in ("bf16", "float32")
    }
    assert told >= {
        (name, "training", each)
        for name in (*trained, "summarizer")
        for each in ("bf16", "float32")
    }
    assert ("whisper-base" in {name for name, *_ in told}) == weights_fetched("whisper-base")
    for row in tree["rows"]:
        assert row["per_second"] > 0
        known = not row["network"].startswith("whisper")
        # rounded, a small network on a busy processor may have 0.0
        assert (row["tflops"] is not None) == known
        assert (row["hours_of_the_papers_training"] is not None) == (
            row["kind"] == "training" and row["network"].startswith(("NaSVA", "ProcX"))
        )


def test_without_a_gpu_nothing_is_measured():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "gpu.py"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
    )
    assert (done.returncode, done.stdout.splitlines()[0][:11]) == (0, "no GPU here")
