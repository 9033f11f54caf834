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

RESULTS = Path(__file__).parent / "results"
GPU = 312e12 / 10  # floating-point operations per second
EIGHT = 7.0  # GPUs that eight are worth


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
        return self.core_hours * self.reached / GPU


def load(name: str) -> dict:  # type: ignore[type-arg]
    """Return the results of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())  # type: ignore[no-any-return]


def jobs() -> list[Job]:
    """Return what the papers trained and extracted."""
    nasva = load("nasva_speed")["steps"]["T 400, K 50, 1 threads"]
    step, core = nasva["train"]["stepline"]["cpu_min_s"] / 8, nasva["peak_gflops"] * 1e9
    infer = nasva["infer"]["stepline"]["cpu_min_s"] / 8
    procx = load("procx_model")
    # half of a core's peak is a guess
    paper, half = procx["paper, key-aware"], procx["peak_gflops"] * 1e9 / 2
    found = paper["step"]["stepline"]["cpu_min_s"] / 8
    clips = load("s3d")["threads_1"]["fast"]["clips_a_cpu_second_best"]
    s3d = 37e9 * clips  # docs/results/wys2.md: 37 GFLOP a clip
    return [
        Job("A: 4,000 test videos answered", 4000, infer, core * nasva["infer_share_of_peak"]),
        Job(
            "A: NaSVA trained, 710,000 samples x 12",
            710_000 * 12,
            step,
            core * nasva["train_share_of_peak"],
        ),
        Job(
            "A: refine, a teacher and the network",
            710_000 * 12 * 2,
            step,
            core * nasva["train_share_of_peak"],
        ),
        Job("B: ProcX pre-trained, 48,000 videos x 10", 48_000 * 10, found, half),
        Job("B: ProcX on YouCook2, 1,333 videos x 20", 1333 * 20, found, half),
        Job("C: S3D rows of COIN, 11,827 videos of 142 s", 11_827 * 142, 1 / clips, s3d),
    ]


def main() -> None:
    """Print a row a job."""
    print("| job | core hours | one GPU, h | eight, h |\n|---|---|---|---|")
    for job in jobs():
        print(
            f"| {job.name} | {job.core_hours:.1f} | {job.gpu_hours:.2f} | {job.gpu_hours / EIGHT:.2f} |"
        )


if __name__ == "__main__":
    main()
