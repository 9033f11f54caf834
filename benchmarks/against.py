"""Commands of this checkout against those of another, in turn: python benchmarks/against.py OTHER
[--rounds 5]

Both run the same command lines on the same files, one thread each, A B A B .... What counts is the
ratio of CPU seconds (user and system) pair by pair, so that a busy machine disturbs both alike.
Start-up is part of every figure.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

PROJECT_FOLDER = Path(__file__).resolve().parents[1]
DEMO_FILES = (
    "stepline/demo/demo.mp4",
    "stepline/world/demo/demo.mp4",
)  # where a checkout may have it
STEP_VERBS = ("cut", "fry", "mix", "boil", "fold")
STEP_THINGS = ("the onion", "an egg", "the dough", "some rice", "the beans")


def write_data(folder: Path, videos: int = 60, seconds: int = 200) -> None:
    """Write features as .npy and steps and predictions in YouCook2's form."""
    rng = np.random.default_rng(0)
    (folder / "features").mkdir()
    database = {}
    results = {}
    for number in range(videos):
        id = f"v{number:09d}x"  # as long as a video's id
        features = rng.normal(size=(seconds, 384)).astype(np.float32)
        np.save(folder / "features" / f"{id}.npy", features)
        starts = sorted(rng.integers(0, seconds - 20, size=8).tolist())
        steps = []
        predictions = []
        for k, start in enumerate(starts):
            verb = STEP_VERBS[(k + number) % 5]
            thing = STEP_THINGS[(2 * k + number) % 5]
            text = f"{verb} {thing} in pan {k}"
            steps.append({"id": k, "segment": [start, start + 15], "sentence": text})
            prediction = {"timestamp": [start + 4, start + 18], "sentence": f"{text} well"}
            predictions.append(prediction)
        database[id] = {
            "duration": seconds,
            "subset": "validation",
            "recipe_type": "101",
            "annotations": steps,
            "video_url": f"https://www.youtube.com/watch?v={id}",
        }
        results[id] = predictions
    (folder / "truth.json").write_text(json.dumps({"database": database}))
    (folder / "predictions.json").write_text(json.dumps({"results": results}))


def commands(folder: Path, demo: Path, out: Path) -> dict[str, list[str]]:
    """Return name -> arguments of `stepline`."""
    data = [
        "--features",
        str(folder / "store"),
        "--steps",
        f"youcook2:{folder / 'truth.json'}",
        "--out",
        str(out),
    ]
    small = ["--set", "train.device=cpu", "--set", "train.readers=0"]
    return {
        "main job: steps of the demo": ["steps", str(demo), "--out", str(out)],
        "training step: train nasva": [
            "train",
            "nasva",
            *data,
            *small,
            "--step-vectors",
            "minilm",
            "--set",
            "train.epochs=2",
        ],
        "attention: train procx": [
            "train",
            "procx",
            *data,
            *small,
            "--set",
            "train.epochs=1",
            "--set",
            "train.batch=4",
        ],
        "scorers: evaluate youcook2": [
            "evaluate",
            "youcook2",
            "--predictions",
            str(folder / "predictions.json"),
            "--reference",
            str(folder / "truth.json"),
            "--json",
        ],
        "start: --help": ["--help"],
    }


def cpu_seconds(checkout: Path, arguments: list[str]) -> float:
    """Run a command with a checkout's code. Return the CPU seconds that it and its children
    took."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.run(
        [sys.executable, "-m", "stepline", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        cwd=checkout,
    )
    if process.returncode:
        command = " ".join(arguments)
        outcome = f"ended with {process.returncode} in {checkout.name}"
        sys.exit(f"stepline {command} {outcome}:\n{process.stderr[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print a row per command: median seconds of both, and the median, least and greatest ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="Commands whose name holds this.")
    options = parser.parse_args()
    sides = {"before": options.other.resolve(), "now": PROJECT_FOLDER}
    print("| command | before, CPU s | now, CPU s | now / before: median [least, greatest] |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        features = str(folder / "features")
        store = str(folder / "store")
        cpu_seconds(PROJECT_FOLDER, ["features", "import", features, "--out", store])
        for command in commands(folder, Path("demo.mp4"), folder):
            if options.only not in command:
                continue
            seconds: dict[str, list[float]] = {side: [] for side in sides}
            for turn in range(options.rounds + 1):
                for side, checkout in sides.items():
                    out = folder / f"{command[:4]}-{turn}{side}"
                    arguments = commands(folder, demo_of(checkout), out)[command]
                    side_seconds = cpu_seconds(checkout, arguments)
                    # The first turn warms the disk.
                    if turn:
                        seconds[side].append(side_seconds)
            ratios = []
            for before, now in zip(seconds["before"], seconds["now"], strict=True):
                ratios.append(now / before)
            medians = " | ".join(f"{statistics.median(seconds[side]):.2f}" for side in sides)
            spread = f"{statistics.median(ratios):.3f} [{min(ratios):.3f}, {max(ratios):.3f}]"
            print(f"| {command} | {medians} | {spread} |", flush=True)


def demo_of(checkout: Path) -> Path:
    """Return the demo video of a checkout."""
    return next(checkout / file for file in DEMO_FILES if (checkout / file).exists())


if __name__ == "__main__":
    main()
