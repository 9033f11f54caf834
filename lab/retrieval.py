"""Retrieval for Sieve & Swap: 20,000 segments against 500,000 steps (384-d).

python lab/retrieval.py [--out FILE] [--cache FOLDER] [--threads N]

The base is inflated from real embeddings. 20,000 steps of real recipes are embedded by MiniLM. Each
further vector is normalise(v + NOISE_SPREAD (a - b)), with v, a, b real vectors drawn with a seed.
This is noise of the data's own covariance. NOISE_SPREAD is such that a
line's nearest other line is about as near as among real lines. Both quantiles are written next to
the results. Segments: 2,000 steps of other recipes, 2,000 sentences of YouCook2, both real, the
rest noisy as above.

Times are CPU seconds of the process, the search and the machine's matrix product taken in turns.
"""

import argparse
import gzip
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepline.sieve_swap.text_base.vectors import nearest_exact

LAB_FOLDER = Path(__file__).parent
# real texts are not part of the project
DATA_FOLDER = LAB_FOLDER.parents[1] / "shared" / "data"
STEP_COUNT = 500_000
SEGMENT_COUNT = 20_000
REAL_STEPS = 20_000
REAL_SEGMENTS = 2_000  # of recipes' steps, and as many of sentences
VECTOR_WIDTH = 384
NOISE_SPREAD = 0.45
RANDOM_SEED = 5
BLOCK_ROWS = 20_000  # of the base that are made together
SLICE_SEGMENTS = 4_096  # timed together
SQUARE_SIDE = 4_096  # of the matrices whose product is the machine's peak
Result = dict[str, object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default_out = LAB_FOLDER / "results" / "retrieval.json"
    default_cache = Path(tempfile.gettempdir()) / "stepline-retrieval"
    parser.add_argument("--out", type=Path, default=default_out)
    parser.add_argument("--cache", type=Path, default=default_cache)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    import torch

    torch.set_num_threads(options.threads)
    if not DATA_FOLDER.exists():
        sys.exit(f"{DATA_FOLDER}: no real texts to embed; the benchmark needs them")
    results = {
        "steps": STEP_COUNT,
        "segments": SEGMENT_COUNT,
        "width": VECTOR_WIDTH,
        "threads": options.threads,
        "base": prepare(options.cache),
        "exact": exact(options.cache, np.load(options.cache / "segments.npy")),
    }
    results["exact"]["peak_memory_mib"] = peak_memory()
    text = json.dumps(results, indent=1)
    options.out.write_text(f"{text}\n")
    print(text)


# ---------------------------------------------------------------- the base


def prepare(folder: Path) -> Result:
    """Write base.npy and segments.npy once. Return how near neighbours are, among real and inflated
    lines."""
    facts_path = folder / "base.json"
    if facts_path.exists():
        return json.loads(facts_path.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    lines, segments = real_vectors(folder)
    rng = np.random.default_rng(RANDOM_SEED)
    shape = (STEP_COUNT, VECTOR_WIDTH)
    base = np.lib.format.open_memmap(folder / "base.npy", mode="w+", dtype=np.float16, shape=shape)
    base[: len(lines)] = lines
    for start in range(len(lines), STEP_COUNT, BLOCK_ROWS):
        count = min(BLOCK_ROWS, STEP_COUNT - start)
        base[start : start + BLOCK_ROWS] = noisy(lines, rng, count)
    base.flush()
    noisy_segments = noisy(lines, rng, SEGMENT_COUNT - len(segments))
    np.save(folder / "segments.npy", np.concatenate([segments, noisy_segments]))

    inflated = np.asarray(base[-len(lines) :])
    last_rows = base[-2_000:]
    facts = {
        "real_lines": len(lines),
        "real_segments": len(segments),
        "spread": NOISE_SPREAD,
        "nearest_other_real": quantiles(lines, lines[:2_000]),
        "nearest_other_inflated_in_as_many": quantiles(inflated, last_rows),
        "nearest_other_inflated_in_all": quantiles(base, last_rows),
    }
    facts_path.write_text(json.dumps(facts))
    return facts


def real_vectors(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of real recipe steps (REAL_STEPS, D) and of real segments, steps and
    sentences (2 REAL_SEGMENTS, D)."""
    from stepline.text import embed

    path = folder / "real.npy"
    if not path.exists():
        steps = recipe_steps(REAL_STEPS + REAL_SEGMENTS)
        youcook2_path = DATA_FOLDER / "youcook2" / "train.json.gz"
        annotations = json.loads(gzip.decompress(youcook2_path.read_bytes()))
        sentences = list(dict.fromkeys(sentences_of(annotations)))
        np.save(path, embed([*steps, *sentences[:REAL_SEGMENTS]]))
    vectors = np.load(path)
    return vectors[:REAL_STEPS], vectors[REAL_STEPS:]


def recipe_steps(count: int) -> list[str]:
    """Return the first different steps of real recipes."""
    from stepline.sieve_swap.text_base import Document, read_source

    texts: dict[str, None] = {}
    for item in read_source(DATA_FOLDER / "recipes_json" / "recipes.json.gz"):
        if isinstance(item, Document):
            texts |= dict.fromkeys(step.text for step in item.steps)
        if len(texts) >= count:
            break
    return list(texts)[:count]


def sentences_of(tree: object) -> list[str]:
    """Return every string under a key `sentence` or `sentences`."""
    sentences: list[str] = []
    branches: list[object] = []
    if isinstance(tree, dict):
        sentence = tree.get("sentence")
        if isinstance(sentence, str):
            sentences.append(sentence)
        several = tree.get("sentences")
        if isinstance(several, list):
            sentences += [text for text in several if isinstance(text, str)]
        branches = list(tree.values())
    elif isinstance(tree, list):
        branches = tree
    for branch in branches:
        sentences += sentences_of(branch)
    return sentences


def noisy(lines: np.ndarray, rng: np.random.Generator, count: int) -> np.ndarray:
    """Return unit vectors near real ones: v + NOISE_SPREAD (a - b)."""
    v = lines[rng.integers(len(lines), size=count)]
    a = lines[rng.integers(len(lines), size=count)]
    b = lines[rng.integers(len(lines), size=count)]
    vectors = v + NOISE_SPREAD * (a - b)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / lengths).astype(np.float32)


def rounded_quantiles(values: Any, points: Sequence[float], digits: int) -> list[float]:
    """Return the quantiles of some values, rounded."""
    return [round(float(value), digits) for value in np.quantile(values, points)]


def quantiles(base: np.ndarray, queries: np.ndarray) -> list[float]:
    """Return p5, p50, p95 of the cosine of the nearest other line."""
    query_rows = np.asarray(queries, dtype=np.float32)
    _, cosines = nearest_exact(query_rows, base, 2)
    return rounded_quantiles(cosines[:, 1], [0.05, 0.5, 0.95], 3)


# ---------------------------------------------------------------- the search


def exact(folder: Path, segments: np.ndarray) -> Result:
    """Search all segments once, the machine's matrix product in turns with them."""
    import torch

    base = np.load(folder / "base.npy", mmap_mode="r")
    first_factor = torch.randn(SQUARE_SIDE, SQUARE_SIDE)
    second_factor = torch.randn(SQUARE_SIDE, SQUARE_SIDE)
    cpu(lambda: first_factor @ second_factor)
    # a product of the machine and a slice of the search, in turns
    product_gflops = []
    search_gflops = []
    search_seconds = []
    wall_seconds = 0.0
    operations_per_segment = 2 * len(base) * VECTOR_WIDTH
    for start in range(0, len(segments), SLICE_SEGMENTS):
        block = segments[start : start + SLICE_SEGMENTS]
        product_seconds, _ = cpu(lambda: first_factor @ second_factor)
        product_gflops.append(2 * SQUARE_SIDE**3 / product_seconds / 1e9)
        began = time.perf_counter()
        seconds, (rows, _) = cpu(lambda block=block: nearest_exact(block, base))
        wall_seconds += time.perf_counter() - began
        search_gflops.append(len(rows) * operations_per_segment / seconds / 1e9)
        search_seconds.append(seconds)

    cpu_seconds = sum(search_seconds)
    gflops = len(segments) * operations_per_segment / cpu_seconds / 1e9
    share_of_median = float(np.median(search_gflops) / np.median(product_gflops))
    return {
        "cpu_seconds": round(cpu_seconds, 2),
        "wall_seconds": round(wall_seconds, 2),
        "ms_a_segment": round(1e3 * cpu_seconds / len(segments), 3),
        "gflops": round(gflops, 1),
        "gflops_slices_min_median_max": rounded_quantiles(search_gflops, [0, 0.5, 1], 1),
        "product_gflops_min_median_max": rounded_quantiles(product_gflops, [0, 0.5, 1], 1),
        "share_of_best_product": round(gflops / max(product_gflops), 3),
        "share_of_median_product": round(share_of_median, 3),
    }


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of the process that some work took, and its result."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def peak_memory() -> int:
    """Return the most memory that this process held, in MiB, pages of mapped files counted in."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
