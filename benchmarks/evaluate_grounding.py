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

RESULT_PATH = Path(__file__).resolve().parent / "results" / "evaluate_grounding.json"
VIDEO_COUNT = 10_000
SEGMENT_COUNT = 8  # per video
TASK_COUNT = 100
VIDEO_SECONDS = 200
SEGMENT_SECONDS = 8
BENCHMARK_CONVENTIONS = (
    ("htm-align", "tan"),
    ("youcook2", "grounding"),
    ("youcook2", "segmentation"),
    ("ht-step", "official"),
)


def write(folder: Path) -> None:
    """Write references and predictions in the form of each benchmark."""
    rng = np.random.default_rng(0)
    shape = (VIDEO_COUNT, SEGMENT_COUNT)
    starts = np.sort(rng.uniform(0, VIDEO_SECONDS - 10, shape), axis=1).round(2)
    predicted_starts = (starts + rng.normal(0, 3, starts.shape)).round(2)
    texts = [f"do thing {k}" for k in range(SEGMENT_COUNT)]
    ids = [f"video{number:05d}" for number in range(VIDEO_COUNT)]
    htm_align = {}
    youcook2 = {}
    youcook2_predictions = {}
    predicted_rows = predicted_starts.tolist()
    for id, row, predicted in zip(ids, starts.tolist(), predicted_rows, strict=True):
        segments = [[start, start + SEGMENT_SECONDS] for start in row]
        htm_align[id] = []
        for k, segment in enumerate(segments):
            htm_align[id].append([k % 2, *segment, texts[k]])
        youcook2[id] = {"duration": VIDEO_SECONDS, "timestamps": segments, "sentences": texts}
        youcook2_predictions[id] = []
        for start, text in zip(predicted, texts, strict=True):
            youcook2_predictions[id].append([start, start + SEGMENT_SECONDS, text])
    save(folder / "htm_align.json", htm_align)
    save(folder / "htm-align.json", dict(zip(ids, predicted_rows, strict=True)))
    save(folder / "yc2_val.json", youcook2)
    save(folder / "youcook2.json", youcook2_predictions)
    write_ht_step(folder, ids, starts, predicted_starts)


def write_ht_step(folder: Path, ids: list[str], starts: Floats, predicted_starts: Floats) -> None:
    """Write a taxonomy, annotations and predictions as HT-Step's."""
    rows = ["global_step_index,activity,variation,headline"]
    for task in range(TASK_COUNT):
        for k in range(SEGMENT_COUNT):
            rows.append(f"{task * SEGMENT_COUNT + k},task {task},none,step {k}")
    save_lines(folder / "taxonomy.csv", rows)
    tree = {}
    lines = ["video-id,t-start,t-end,label,score"]
    for number, id in enumerate(ids):
        task = number % TASK_COUNT
        steps = range(task * SEGMENT_COUNT, (task + 1) * SEGMENT_COUNT)
        annotations = []
        for step, start in zip(steps, starts[number].tolist(), strict=True):
            annotations.append({"id": step, "segment": [start, start + SEGMENT_SECONDS]})
        tree[id] = {"subset": "val_seen", "activity": f"task {task}", "annotations": annotations}
        for step, start in zip(steps, predicted_starts[number].tolist(), strict=True):
            score = (start * 7) % 1
            lines.append(f"{id},{start},{start + SEGMENT_SECONDS},{step},{score:.4f}")
    save(folder / "annotations.json", tree)
    save_lines(folder / "ht-step.csv", lines)


def save(path: Path, tree: object) -> None:
    path.write_text(json.dumps(tree))


def save_lines(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines) + "\n")


REFERENCE_FILES = {"htm-align": "htm_align.json", "youcook2": "yc2_val.json", "ht-step": "."}


def measure(folder: Path, benchmark: str, convention: str) -> None:
    """Score in this process and print seconds and peak MiB as JSON."""
    from stepline.evaluate.benchmarks import evaluate
    from stepline.evaluate.report import report

    ending = "csv" if benchmark == "ht-step" else "json"
    predictions = folder / f"{benchmark}.{ending}"
    reference = folder / REFERENCE_FILES[benchmark]
    score_start = time.perf_counter()
    scores = evaluate(benchmark, predictions, reference, convention=convention)
    report_start = time.perf_counter()
    metrics = report(scores).metrics
    report_end = time.perf_counter()
    row = {
        "score_s": round(report_start - score_start, 2),
        "intervals_s": round(report_end - report_start, 2),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "metrics": len(metrics),
    }
    print(json.dumps(row))


def main() -> None:
    if len(sys.argv) == 4:
        measure(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
        return
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        for benchmark, convention in BENCHMARK_CONVENTIONS:
            command = [sys.executable, __file__, folder, benchmark, convention]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rows[f"{benchmark}/{convention}"] = json.loads(output)
    result = {"videos": VIDEO_COUNT, "segments": SEGMENT_COUNT, "rows": rows}
    RESULT_PATH.write_text(json.dumps(result, indent=1) + "\n")
    print("| protocol | read and score, s | 1,000 draws, s | peak MiB | metrics |")
    print("|---|---|---|---|---|")
    for name, row in rows.items():
        seconds = f"{row['score_s']} | {row['intervals_s']}"
        print(f"| {name} | {seconds} | {row['peak_mib']} | {row['metrics']} |")


if __name__ == "__main__":
    main()
