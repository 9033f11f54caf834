"""Runs that write for a while, small: `train nasva`, `refine` and `sieve-swap`, as people type
them, with the inputs that they need."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("nasva", "sieve_swap")]

from file_bytes import file_bytes  # noqa: E402   found by the path above
from test_refine import command as refine_command  # noqa: E402
from test_sieve_swap_run import write_videos  # noqa: E402
from training_data import command as train_command  # noqa: E402
from training_data import write_stores  # noqa: E402

from lab.simulate import SimulationSettings, simulate  # noqa: E402
from stepline.features import FeatureWriter, RowTexts  # noqa: E402
from stepline.storage import write_parquet  # noqa: E402

RECIPES = {
    "toast": {"title": "Garlic toast", "steps": ["Peel 2 cloves of garlic.", "Rub the toast."]},
    "salad": {"title": "Bean salad", "steps": ["Drain the beans.", "Chop 1 red onion."]},
}
# of training: they hold times, which differ from run to run
CLOCKED_FILES = ("log.jsonl", "train.jsonl", "report.json")


@dataclass(frozen=True)
class LongRun:
    """A command. arguments: all but those of --out, which end them."""

    name: str
    arguments: list[str]

    def line(self, out):
        """The command for a folder."""
        return [sys.executable, "-m", "stepline", *self.arguments, "--out", str(out)]

    def run(self, out, *, prefix=(), **more):
        """Run it to its end, under a prefix and with more variables; return the process that has
        ended."""
        line = [*map(str, prefix), *self.line(out)]
        return subprocess.run(
            line, capture_output=True, text=True, timeout=300, env=variables() | more, check=False
        )

    def start(self, out):
        """Start it, and return its process."""
        return subprocess.Popen(
            self.line(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=variables()
        )


def variables():
    """The environment of a run: this process's modules, one thread."""
    paths = os.pathsep.join(filter(None, sys.path))
    return os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def long_runs(folder):
    """Write the inputs of the runs, and return them by name."""
    runs = (_training(folder), _refinement(folder), _sieve_and_swap(folder))
    return {run.name: run for run in runs}


def contents(folder):
    """Name -> bytes of what a run has left, without locks and what holds times."""
    return file_bytes(
        folder, lambda path: path.suffix != ".lock" and path.name not in CLOCKED_FILES
    )


def _without_out(line):
    place = line.index("--out")
    return line[:place] + line[place + 2 :]


def _training(folder):
    settings = ("epochs=4", "batch=3", "learning_rate=3e-3", "save_every=4")
    line = train_command(write_stores(folder / "stores"), "out", *settings)
    return LongRun("train", _without_out(line))


def _refinement(folder):
    samples = simulate(0, SimulationSettings(videos=8, held_out=0.0)).videos
    place = folder / "refine"
    write_parquet((sample.record for sample in samples), place / "records.parquet")
    with FeatureWriter(place / "features") as features, FeatureWriter(place / "steps") as steps:
        for sample in samples:
            rows = sample.features()
            features.add(sample.id, rows.values, rate=rows.rate, backbone=rows.backbone)
            lines = RowTexts(tuple(step.text for step in sample.record.steps))
            steps.add(sample.id, sample.vectors("step"), rate=1.0, backbone="world", texts=lines)
    return LongRun("refine", _without_out(refine_command(place, "out")))


def _sieve_and_swap(folder):
    videos = write_videos(folder / "videos")
    base = folder / "recipes.json"
    base.write_text(json.dumps(RECIPES))
    options = ["--text-base", str(base)]
    for setting in ("pairing.smallest_category=1", "pairing.validation_iou=0.9"):
        options += ["--set", setting]
    return LongRun("sieve-swap", ["sieve-swap", str(videos), *options])
