"""Extrapolates how long the papers' trainings and extractions would take on GPUs, from what was
measured on a CPU.

    python benchmarks/gpu_hours.py

No GPU was had. CPU seconds per sample are those of `nasva_speed.py`, `procx_model.py` and `s3d.py`
(their results next to this file), the numbers of samples are the papers'. A GPU of 80 GB is taken
as A100 of NVIDIA's data sheet at a tenth of its peak in bf16. This is a guess that no measurement
supports. Eight of them are taken as seven. `gpu.py` measures.
"""

import json
from dataclasses import dataclass
from pathlib import Path

RESULTS_FOLDER = Path(__file__).parent / "results"
GPU_OPERATIONS = 312e12 / 10  # floating-point operations per second
WORTH_OF_EIGHT = 7.0  # GPUs


@dataclass(frozen=True)
class Job:
    """Its name, samples, and CPU seconds per sample on one core. reached: operations per second of
    that core, in the same run."""

    name: str
    samples: float
    seconds: float
    reached: float

    @property
    def core_hours(self) -> float:
        """Hours on one core."""
        return self.samples * self.seconds / 3600

    @property
    def gpu_hours(self) -> float:
        """Hours on one GPU: the same operations."""
        return self.core_hours * self.reached / GPU_OPERATIONS


def load(name: str) -> dict:  # type: ignore[type-arg]
    """Return the results of a benchmark."""
    return json.loads((RESULTS_FOLDER / f"{name}.json").read_text())  # type: ignore[no-any-return]


def jobs() -> list[Job]:
    """Return what the papers trained and extracted."""
    # batches have 8 videos
    nasva = load("nasva_speed")["steps"]["T 400, K 50, 1 threads"]
    train = nasva["train"]["stepline"]["cpu_min_s"] / 8
    infer = nasva["infer"]["stepline"]["cpu_min_s"] / 8
    core = nasva["peak_gflops"] * 1e9
    train_rate = core * nasva["train_share_of_peak"]
    infer_rate = core * nasva["infer_share_of_peak"]

    procx = load("procx_model")
    procx_step = procx["paper, key-aware"]["step"]["stepline"]["cpu_min_s"] / 8
    # half of a core's peak is a guess
    procx_rate = procx["peak_gflops"] * 1e9 / 2

    clips = load("s3d")["threads_1"]["fast"]["clips_a_cpu_second_best"]
    # docs/results/wys2.md: 37 GFLOP per clip
    s3d_rate = 37e9 * clips
    nasva_samples = 710_000 * 12
    return [
        Job("A: 4,000 test videos answered", 4000, infer, infer_rate),
        Job("A: NaSVA trained, 710,000 samples x 12", nasva_samples, train, train_rate),
        Job("A: refine, a teacher and the network", nasva_samples * 2, train, train_rate),
        Job("B: ProcX pre-trained, 48,000 videos x 10", 48_000 * 10, procx_step, procx_rate),
        Job("B: ProcX on YouCook2, 1,333 videos x 20", 1333 * 20, procx_step, procx_rate),
        Job("C: S3D rows of COIN, 11,827 videos of 142 s", 11_827 * 142, 1 / clips, s3d_rate),
    ]


def main() -> None:
    """Print a row per job."""
    print("| job | core hours | one GPU, h | eight, h |\n|---|---|---|---|")
    for job in jobs():
        eight_hours = job.gpu_hours / WORTH_OF_EIGHT
        print(f"| {job.name} | {job.core_hours:.1f} | {job.gpu_hours:.2f} | {eight_hours:.2f} |")


if __name__ == "__main__":
    main()
