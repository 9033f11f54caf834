"""Retrieval for Sieve & Swap: 20,000 segments against 500,000 steps (384-d), exact and approximate.

python benchmarks/retrieval.py [--out FILE] [--cache FOLDER] [--threads N]

The base is inflated from real embeddings. 20,000 steps of real recipes are embedded by MiniLM. Each
further vector is normalise(v + SPREAD (a - b)), with v, a, b real vectors drawn with a seed. This
is noise of the data's own covariance. So an index meets neighbourhoods like real ones (isotropic
noise would make every query equally far from all lists). SPREAD is such that a line's nearest other
line is about as near as among real lines. Both quantiles are written next to the results. Segments:
2,000 steps of other recipes, 2,000 sentences of YouCook2, both real, the rest noisy as above.

Each engine runs in a process of its own, so that its peak memory is its own. Times are CPU seconds
of the process, the sides taken in turns within it. Recall@1 counts a row as near as the exact one.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "shared" / "data"  # real texts are not part of the project
STEPS, SEGMENTS, REAL, HELD = 500_000, 20_000, 20_000, 2_000
GRAPH_STEPS = 60_000  # of the graph: it is slow to build
WIDTH = 384
SPREAD = 0.45
SEED = 5
SLICE = 4_096  # segments timed together
COMPARED = 512  # segments searched exactly in turns with an index
SQUARE = 4_096  # side of the matrices whose product is the machine's peak
WANTED = 0.98
ENOUGH = 0.985  # recall, of real segments, too, at which a curve ends
ENGINES = ("exact", "lists", "ivf", "hnsw")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=HERE / "results" / "retrieval.json")
    parser.add_argument(
        "--cache", type=Path, default=Path(tempfile.gettempdir()) / "stepline-retrieval"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--engine", choices=ENGINES, help="only this one, printed")
    parser.add_argument(
        "--only",
        nargs="*",
        choices=ENGINES,
        default=ENGINES,
        help="measure these, keep other results",
    )
    chosen = parser.parse_args()
    import torch

    torch.set_num_threads(chosen.threads)
    if chosen.engine:
        print(json.dumps(run(chosen.engine, chosen.cache, chosen.threads)))
        return
    if not DATA.exists():
        sys.exit(f"{DATA}: no real texts to embed; the benchmark needs them")
    kept = json.loads(chosen.out.read_text()) if chosen.out.exists() else {}
    results = kept | {
        "steps": STEPS,
        "segments": SEGMENTS,
        "width": WIDTH,
        "threads": chosen.threads,
        "wanted_recall": WANTED,
        "base": prepare(chosen.cache),
    }
    for engine in chosen.only:
        command = [
            sys.executable,
            __file__,
            "--engine",
            engine,
            "--cache",
            chosen.cache,
            "--threads",
            chosen.threads,
        ]
        done = subprocess.run(
            list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True
        )
        results[engine] = json.loads(done.stdout.splitlines()[-1])
        print(engine, json.dumps(results[engine]), flush=True)
        chosen.out.write_text(json.dumps(results, indent=1) + "\n")


# ---------------------------------------------------------------- the base


def prepare(folder: Path) -> dict[str, object]:
    """Write base.npy and segments.npy once. Return how near neighbours are, among real and inflated
    lines."""
    told = folder / "base.json"
    if told.exists():
        return json.loads(told.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    lines, segments = real_vectors(folder)
    rng = np.random.default_rng(SEED)
    base = np.lib.format.open_memmap(
        folder / "base.npy", mode="w+", dtype=np.float16, shape=(STEPS, WIDTH)
    )
    base[: len(lines)] = lines
    for at in range(len(lines), STEPS, 20_000):
        base[at : at + 20_000] = noisy(lines, rng, min(20_000, STEPS - at))
    base.flush()
    np.save(
        folder / "segments.npy",
        np.concatenate([segments, noisy(lines, rng, SEGMENTS - len(segments))]),
    )
    facts = {
        "real_lines": len(lines),
        "real_segments": len(segments),
        "spread": SPREAD,
        "nearest_other_real": quantiles(lines, lines[:2_000]),
        "nearest_other_inflated_in_as_many": quantiles(
            np.asarray(base[-len(lines) :]), base[-2_000:]
        ),
        "nearest_other_inflated_in_all": quantiles(base, base[-2_000:]),
    }
    told.write_text(json.dumps(facts))
    return facts


def real_vectors(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of real recipe steps (REAL, D) and of real segments (2 HELD, D)."""
    from stepline.text import embed
    from stepline.text_base import Document, read_source

    path = folder / "real.npy"
    if not path.exists():
        texts: dict[str, None] = {}
        for item in read_source(DATA / "recipes_json" / "recipes.json.gz"):
            if isinstance(item, Document):
                texts |= dict.fromkeys(step.text for step in item.steps)
            if len(texts) >= REAL + HELD:
                break
        spoken = json.loads(gzip.decompress((DATA / "youcook2" / "train.json.gz").read_bytes()))
        sentences = list(dict.fromkeys(sentences_of(spoken)))[:HELD]
        np.save(path, embed([*list(texts)[: REAL + HELD], *sentences]))
    vectors = np.load(path)
    return vectors[:REAL], vectors[REAL:]


def sentences_of(tree: object) -> list[str]:
    """Return every string under a key `sentence` or `sentences`."""
    if isinstance(tree, dict):
        own = [tree["sentence"]] if isinstance(tree.get("sentence"), str) else []
        many = tree.get("sentences")
        own += [text for text in many if isinstance(text, str)] if isinstance(many, list) else []
        return own + [text for part in tree.values() for text in sentences_of(part)]
    return [text for part in tree for text in sentences_of(part)] if isinstance(tree, list) else []


def noisy(lines: np.ndarray, rng: np.random.Generator, count: int) -> np.ndarray:
    """Return unit vectors near real ones: v + SPREAD (a - b)."""
    v, a, b = (lines[rng.integers(len(lines), size=count)] for _ in range(3))
    found = v + SPREAD * (a - b)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def quantiles(base: np.ndarray, queries: np.ndarray) -> list[float]:
    """Return p5, p50, p95 of the cosine of the nearest other line."""
    from stepline.text_base.vectors import nearest_exact

    _, cosines = nearest_exact(np.asarray(queries, dtype=np.float32), [(0, base)], 2)
    return [round(float(value), 3) for value in np.quantile(cosines[:, 1], [0.05, 0.5, 0.95])]


# ---------------------------------------------------------------- the engines


def run(engine: str, folder: Path, threads: int) -> dict[str, object]:
    """Return what one engine measures."""
    segments = np.load(folder / "segments.npy")
    if engine == "exact":
        return exact(folder, segments) | {"peak_memory_mib": peak_memory()}
    return approximate(engine, folder, segments, threads) | {"peak_memory_mib": peak_memory()}


def exact(folder: Path, segments: np.ndarray) -> dict[str, object]:
    """Search all segments once, the machine's matrix product in turns with them. Keep the answers
    for the others."""
    import torch

    from stepline.text_base.vectors import nearest_exact

    store = vectors(folder)
    one, other = torch.randn(SQUARE, SQUARE), torch.randn(SQUARE, SQUARE)
    cpu(lambda: one @ other)
    products, searches, wall, found = [], [], 0.0, []
    for at in range(0, len(segments), SLICE):
        products.append(2 * SQUARE**3 / cpu(lambda: one @ other)[0] / 1e9)
        began = time.perf_counter()
        spent, answer = cpu(lambda at=at: nearest_exact(segments[at : at + SLICE], store.blocks()))
        wall += time.perf_counter() - began
        searches.append((2 * len(answer[0]) * len(store) * WIDTH / spent / 1e9, spent))
        found.append(answer)
    np.save(folder / "true.npy", np.concatenate([cosines for _, cosines in found]))
    peak, rates = max(products), [rate for rate, _ in searches]
    whole = sum(spent for _, spent in searches)
    return {
        "cpu_seconds": round(whole, 2),
        "wall_seconds": round(wall, 2),
        "ms_a_segment": round(1e3 * whole / len(segments), 3),
        "gflops": round(2 * len(segments) * len(store) * WIDTH / whole / 1e9, 1),
        "gflops_slices_min_median_max": [
            round(float(x), 1) for x in np.quantile(rates, [0, 0.5, 1])
        ],
        "product_gflops_min_median_max": [
            round(float(x), 1) for x in np.quantile(products, [0, 0.5, 1])
        ],
        "share_of_best_product": round(
            2 * len(segments) * len(store) * WIDTH / whole / 1e9 / peak, 3
        ),
        "share_of_median_product": round(float(np.median(rates) / np.median(products)), 3),
    }


def approximate(engine: str, folder: Path, segments: np.ndarray, threads: int) -> dict[str, object]:
    """Build an index, then search at rising efforts, a slice of exact search in turns with them."""
    from stepline.text_base.index import build_faiss, build_lists, library, open_index
    from stepline.text_base.vectors import nearest_exact

    store = vectors(folder, GRAPH_STEPS if engine == "hnsw" else STEPS)
    place = folder / "base" / "indexes" / engine
    place.mkdir(parents=True, exist_ok=True)
    chosen = {"seed": SEED, "memory": 512 << 20}
    if engine == "lists":
        built = cpu(lambda: build_lists(store, place, **chosen))[0]
    else:
        library().omp_set_num_threads(threads)
        built = cpu(lambda: build_faiss(store, place, engine, **chosen))[0]
        library().omp_set_num_threads(threads)
    index = open_index(folder / "base", engine)
    true = np.load(folder / "true.npy")[:, 0]
    if engine == "hnsw":
        true = nearest_exact(segments, store.blocks())[1][:, 0]
    some = segments[:: len(segments) // COMPARED][:COMPARED]
    curve = []
    for effort in index.efforts():
        alone = cpu(lambda: nearest_exact(some, store.blocks()))[0] / len(some)
        spent, (_, cosines) = cpu(lambda effort=effort: index.search(segments, 1, effort))
        hit = cosines[:, 0] >= true - 1e-4  # float16 and float32 vectors differ by less
        each = spent / len(segments)
        curve.append(
            {
                "effort": effort,
                "recall": round(float(hit.mean()), 4),
                "recall_real": round(float(hit[: 2 * HELD].mean()), 4),
                "ms_a_segment": round(1e3 * each, 4),
                "exact_ms_a_segment": round(1e3 * alone, 4),
                "times_faster": round(alone / each, 2),
            }
        )
        print(engine, json.dumps(curve[-1]), file=sys.stderr, flush=True)
        if min(curve[-1]["recall"], curve[-1]["recall_real"]) >= ENOUGH:
            break
    good = [point for point in curve if point["recall"] >= WANTED]
    real = [point for point in curve if point["recall_real"] >= WANTED]
    return {
        "steps": len(store),
        "build_cpu_seconds": round(built, 1),
        "at_wanted": good[0] if good else None,
        "at_wanted_of_real_segments": real[0] if real else None,
        "curve": curve,
    }


def vectors(folder: Path, count: int = STEPS):
    """Return the first `count` vectors of the base as the package reads them."""
    from stepline.text_base.vectors import VectorStore

    path = folder / "base.npy"
    if count != STEPS:
        path = folder / f"base-{count}.npy"
        np.save(path, np.load(folder / "base.npy", mmap_mode="r")[:count])
    return VectorStore([path], WIDTH, "float16")


def cpu(work: Callable[[], object]):
    """Return the CPU seconds of the process that some work took, and its result."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def peak_memory() -> int:
    """Return the most memory that this process held, in MiB, pages of mapped files counted in."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()
