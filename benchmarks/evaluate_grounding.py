"""Times R@1, recall at overlap and their intervals on 10,000 made-up videos of 8 segments, files to
report.

    python benchmarks/evaluate_grounding.py

Writes benchmarks/results/evaluate_grounding.json: seconds a protocol (reading, scoring, 1,000
bootstrap draws) and the peak memory of its process.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from stepline.evaluate.bootstrap import Floats

OUT = Path(__file__).resolve().parent / "results" / "evaluate_grounding.json"
VIDEOS, SEGMENTS, LENGTH = 10_000, 8, 200
CASES = (
    ("htm-align", "tan"),
    ("youcook2", "grounding"),
    ("youcook2", "segmentation"),
    ("ht-step", "official"),
)


def write(folder: Path) -> None:
    generator = np.random.default_rng(0)
    starts = np.sort(generator.uniform(0, LENGTH - 10, (VIDEOS, SEGMENTS)), axis=1).round(2)
    moved = (starts + generator.normal(0, 3, starts.shape)).round(2)
    texts = [f"do thing {k}" for k in range(SEGMENTS)]
    ids = [f"video{n:05d}" for n in range(VIDEOS)]
    truth = {
        id: [[k % 2, s, s + 8, t] for k, (s, t) in enumerate(zip(row, texts, strict=True))]
        for id, row in zip(ids, starts.tolist(), strict=True)
    }
    save(folder / "htm_align.json", truth)
    save(folder / "htm-align.json", dict(zip(ids, moved.tolist(), strict=True)))
    flat = {
        id: {"duration": LENGTH, "timestamps": [[s, s + 8] for s in row], "sentences": texts}
        for id, row in zip(ids, starts.tolist(), strict=True)
    }
    save(folder / "yc2_val.json", flat)
    save(
        folder / "youcook2.json",
        {
            id: [[s, s + 8, t] for s, t in zip(row, texts, strict=True)]
            for id, row in zip(ids, moved.tolist(), strict=True)
        },
    )
    write_ht_step(folder, ids, starts, moved)


def write_ht_step(folder: Path, ids: list[str], starts: Floats, moved: Floats) -> None:
    rows = "\n".join(
        f"{a * SEGMENTS + k},task {a},none,step {k}" for a in range(100) for k in range(SEGMENTS)
    )
    (folder / "taxonomy.csv").write_text(f"global_step_index,activity,variation,headline\n{rows}\n")
    tree, lines = {}, ["video-id,t-start,t-end,label,score"]
    for n, id in enumerate(ids):
        steps = [n % 100 * SEGMENTS + k for k in range(SEGMENTS)]
        annotations = [
            {"id": k, "segment": [s, s + 8]} for k, s in zip(steps, starts[n].tolist(), strict=True)
        ]
        tree[id] = {"subset": "val_seen", "activity": f"task {n % 100}", "annotations": annotations}
        lines += [
            f"{id},{s},{s + 8},{k},{(s * 7) % 1:.4f}"
            for k, s in zip(steps, moved[n].tolist(), strict=True)
        ]
    save(folder / "annotations.json", tree)
    (folder / "ht-step.csv").write_text("\n".join(lines) + "\n")


def save(path: Path, tree: object) -> None:
    path.write_text(json.dumps(tree))


REFERENCES = {"htm-align": "htm_align.json", "youcook2": "yc2_val.json", "ht-step": "."}


def measure(folder: Path, benchmark: str, convention: str) -> None:
    """Score in this process and print seconds and peak MiB as JSON."""
    from stepline.evaluate.benchmarks import evaluate
    from stepline.evaluate.report import report

    began = time.perf_counter()
    given = folder / f"{benchmark}.{'csv' if benchmark == 'ht-step' else 'json'}"
    scores = evaluate(benchmark, given, folder / REFERENCES[benchmark], convention=convention)
    scored = time.perf_counter()
    made = report(scores)
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {
                "score_s": round(scored - began, 2),
                "intervals_s": round(done - scored, 2),
                "peak_mib": round(peak),
                "metrics": len(made.metrics),
            }
        )
    )


def main() -> None:
    if len(sys.argv) == 4:
        measure(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
        return
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for benchmark, convention in CASES:
            command = [sys.executable, __file__, folder, benchmark, convention]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rows[f"{benchmark}/{convention}"] = json.loads(output)
    OUT.write_text(
        json.dumps({"videos": VIDEOS, "segments": SEGMENTS, "rows": rows}, indent=1) + "\n"
    )
    print(
        "| protocol | read and score, s | 1,000 draws, s | peak MiB | metrics |\n|---|---|---|---|---|"
    )
    for name, row in rows.items():
        print(
            f"| {name} | {row['score_s']} | {row['intervals_s']} | {row['peak_mib']} | {row['metrics']} |"
        )


if __name__ == "__main__":
    main()
